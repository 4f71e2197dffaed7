"""What a preflight says about the cluster's own objects: nodes, and what gets in the way of sizing pods."""

from collections.abc import Iterator

from cruise.decisions.guidance.eligibility import FIRST_RESIZING_KUBELET
from cruise.decisions.guidance.quotas import grants
from cruise.decisions.node_load import tainted_nodes, untaint_command
from cruise.decisions.preflight.autoscalers import autoscaler_items
from cruise.decisions.preflight.budgets import budget_items
from cruise.decisions.preflight.items import CheckItem, Level, count_of, named
from cruise.decisions.sizing.memory_limit import FIRST_KUBELET_LOWERING_MEMORY_LIMITS
from cruise.domain.cluster import LimitRangeItem, Pod, Snapshot
from cruise.domain.policy import Mode
from cruise.domain.resources import Amounts

AREA = "objects"


def object_items(snapshot: Snapshot, mode: Mode) -> Iterator[CheckItem]:
    """Yield the items."""
    yield _kubelets(snapshot, mode)
    yield _limit_ranges(snapshot)
    yield _quotas(snapshot)
    yield from autoscaler_items(snapshot)
    yield from budget_items(snapshot, mode)
    yield from _taints(snapshot, mode)


def _kubelets(snapshot: Snapshot, mode: Mode) -> CheckItem:
    versions = [node.kubelet_version for node in snapshot.nodes]
    if not versions:
        return CheckItem("cluster", "kubelets", Level.RED, "there are no nodes", "see whether cruise may list nodes")
    old = [node.name for node in snapshot.nodes if (node.kubelet_version or (9, 9)) < FIRST_RESIZING_KUBELET]
    known = sorted({version for version in versions if version is not None})
    span = " to ".join(dict.fromkeys(f"{version[0]}.{version[1]}" for version in (known[:1] + known[-1:])))
    words = f"{count_of(versions, 'node')}, kubelets {span or 'of unknown version'}"
    if old:
        level = Level.RED if len(old) == len(versions) and mode >= Mode.RESIZE else Level.WARN
        fix = "upgrade these kubelets to 1.33 or newer; until then their pods are left alone"
        return CheckItem("cluster", "kubelets", level, f"{words}; too old to resize: {named(old)}", fix)
    shy = [node for node in versions if node is not None and node < FIRST_KUBELET_LOWERING_MEMORY_LIMITS]
    if shy:
        words += f"; {len(shy):,} of 1.33, which lower no memory limits"
    return CheckItem("cluster", "kubelets", Level.OK, words)


def _limit_ranges(snapshot: Snapshot) -> CheckItem:
    blocking = sorted(name for name, items in snapshot.limit_ranges.items() if any(_leaves_no_choice(i) for i in items))
    if not blocking:
        words = (
            f"in {count_of(snapshot.limit_ranges, 'namespace')}, with room for sizes"
            if snapshot.limit_ranges
            else "none"
        )
        return CheckItem(AREA, "limit ranges", Level.OK, words)
    words = f"{named(blocking)}: minimum and maximum, or request and limit, have to be equal"
    fix = "widen these LimitRanges; until then cruise leaves those pods alone (limit-range)"
    return CheckItem(AREA, "limit ranges", Level.WARN, words, fix)


def _leaves_no_choice(item: LimitRangeItem) -> bool:
    ratios = [ratio for ratio in (item.max_cpu_ratio, item.max_memory_ratio) if ratio is not None]
    return _equal(item.minimum, item.maximum) or any(ratio <= 1 for ratio in ratios)


def _equal(low: Amounts, high: Amounts) -> bool:
    return (low.cpu_millicores is not None and low.cpu_millicores == high.cpu_millicores) or (
        low.memory_bytes is not None and low.memory_bytes == high.memory_bytes
    )


def _quotas(snapshot: Snapshot) -> CheckItem:
    if not snapshot.quotas:
        return CheckItem(AREA, "quotas", Level.OK, "none")
    full = sorted(
        name for name, quotas in snapshot.quotas.items() if any(_is_spent(one.requests_left) for one in quotas)
    )
    limited = sorted(
        name for name, quotas in snapshot.quotas.items() if any(_counts(one.limits_left) for one in quotas)
    )
    words = f"in {count_of(snapshot.quotas, 'namespace')}"
    if limited:
        words += f"; limits are counted, and stay as they are, in {named(limited)}"
    tight = sorted({pod.namespace for pod in snapshot.pods if _comes_back_in_vain(pod, snapshot)} - set(full))
    if not full and not tight:
        return CheckItem(AREA, "quotas", Level.OK, words)
    if full:
        words += f"; no requests are left in {named(full)}: nothing grows there, and an evicted pod would not come back"
    if tight:
        words += f"; too little is left in {named(tight)} for another of the pods there, which is not evicted then"
    fix = "raise these quotas, or lower requests in the namespaces"
    return CheckItem(AREA, "quotas", Level.WARN, words, fix)


def _comes_back_in_vain(pod: Pod, snapshot: Snapshot) -> bool:
    return pod.node is not None and not pod.terminal and not grants(pod, snapshot.quotas.get(pod.namespace, ()))


def _counts(left: Amounts) -> bool:
    return left.cpu_millicores is not None or left.memory_bytes is not None


def _is_spent(left: Amounts) -> bool:
    return left.cpu_millicores == 0 or left.memory_bytes == 0


def _taints(snapshot: Snapshot, mode: Mode) -> Iterator[CheckItem]:
    tainted = tainted_nodes(snapshot.nodes)
    if not tainted:
        return
    words = f"{count_of(tainted, 'node')} with cruise's taint: {named(tainted)}"
    if mode >= Mode.FULL:
        yield CheckItem(AREA, "taints", Level.OK, f"{words}; taken off when their load falls")
        return
    words += f"; with the rights of mode {mode.label} `cruise serve` cannot take it off"
    yield CheckItem(AREA, "taints", Level.WARN, words, untaint_command(tainted))
