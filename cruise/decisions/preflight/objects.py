"""What a preflight says about the cluster's own objects: nodes, and what gets in the way of sizing pods."""

from collections.abc import Iterable, Iterator, Sequence, Sized

from cruise.decisions.guidance.eligibility import FIRST_RESIZING_KUBELET
from cruise.decisions.preflight.items import CheckItem, Level
from cruise.decisions.sizing.memory_limit import FIRST_KUBELET_LOWERING_MEMORY_LIMITS
from cruise.domain.cluster import LimitRangeItem, Snapshot
from cruise.domain.policy import Mode
from cruise.domain.preflight import VerticalAutoscaler
from cruise.domain.resources import Amounts

AREA = "objects"
_MOST_NAMED = 3
# A VPA in one of these modes changes no pod.
_PASSIVE = ("Off",)


def object_items(
    snapshot: Snapshot, vertical_autoscalers: Sequence[VerticalAutoscaler] | None, mode: Mode
) -> Iterator[CheckItem]:
    """Yield the items."""
    yield _kubelets(snapshot, mode)
    yield _limit_ranges(snapshot)
    if vertical_autoscalers is not None:
        yield _vertical(snapshot, vertical_autoscalers, mode)
    yield _horizontal(snapshot)
    yield _budgets(snapshot, mode)


def _kubelets(snapshot: Snapshot, mode: Mode) -> CheckItem:
    versions = [node.kubelet_version for node in snapshot.nodes]
    if not versions:
        return CheckItem("cluster", "kubelets", Level.RED, "there are no nodes", "see whether cruise may list nodes")
    old = [node.name for node in snapshot.nodes if (node.kubelet_version or (9, 9)) < FIRST_RESIZING_KUBELET]
    known = sorted({version for version in versions if version is not None})
    span = " to ".join(dict.fromkeys(f"{version[0]}.{version[1]}" for version in (known[:1] + known[-1:])))
    words = f"{_count(versions, 'node')}, kubelets {span or 'of unknown version'}"
    if old:
        level = Level.RED if len(old) == len(versions) and mode >= Mode.RESIZE else Level.WARN
        fix = "upgrade these kubelets to 1.33 or newer; until then their pods are left alone"
        return CheckItem("cluster", "kubelets", level, f"{words}; too old to resize: {_named(old)}", fix)
    shy = [node for node in versions if node is not None and node < FIRST_KUBELET_LOWERING_MEMORY_LIMITS]
    if shy:
        words += f"; {len(shy):,} of 1.33, which lower no memory limits"
    return CheckItem("cluster", "kubelets", Level.OK, words)


def _limit_ranges(snapshot: Snapshot) -> CheckItem:
    blocking = sorted(name for name, items in snapshot.limit_ranges.items() if any(_leaves_no_choice(i) for i in items))
    if not blocking:
        words = (
            f"in {_count(snapshot.limit_ranges, 'namespace')}, with room for sizes" if snapshot.limit_ranges else "none"
        )
        return CheckItem(AREA, "limit ranges", Level.OK, words)
    words = f"{_named(blocking)}: minimum and maximum, or request and limit, have to be equal"
    fix = "widen these LimitRanges; until then cruise leaves those pods alone (limit-range)"
    return CheckItem(AREA, "limit ranges", Level.WARN, words, fix)


def _leaves_no_choice(item: LimitRangeItem) -> bool:
    ratios = [ratio for ratio in (item.max_cpu_ratio, item.max_memory_ratio) if ratio is not None]
    return _equal(item.minimum, item.maximum) or any(ratio <= 1 for ratio in ratios)


def _equal(low: Amounts, high: Amounts) -> bool:
    return (low.cpu_millicores is not None and low.cpu_millicores == high.cpu_millicores) or (
        low.memory_bytes is not None and low.memory_bytes == high.memory_bytes
    )


def _vertical(snapshot: Snapshot, found: Sequence[VerticalAutoscaler], mode: Mode) -> CheckItem:
    managed = {(pod.namespace, pod.workload) for pod in snapshot.pods}
    rivals = [
        f"{one.namespace}/{one.name}"
        for one in found
        if one.mode not in _PASSIVE and one.target is not None and (one.namespace, one.target) in managed
    ]
    if not rivals:
        words = f"{_count(found, 'VPA')}, none of which changes pods that cruise sizes" if found else "none"
        return CheckItem(AREA, "VPAs", Level.OK, words)
    words = f"{len(rivals):,} change pods that cruise would size too: {_named(sorted(rivals))}"
    fix = 'set their updateMode to "Off", or cruise.io/mode: "off" on their workloads: two would undo each other'
    return CheckItem(AREA, "VPAs", Level.RED if mode > Mode.OBSERVE else Level.WARN, words, fix)


def _horizontal(snapshot: Snapshot) -> CheckItem:
    overlapping = sorted(f"{one.namespace}/{one.target}" for one in snapshot.autoscalers if one.utilisation_of)
    if not overlapping:
        words = f"{_count(snapshot.autoscalers, 'HPA')}, none on utilisation" if snapshot.autoscalers else "none"
        return CheckItem(AREA, "HPAs", Level.OK, words)
    words = f"{_count(overlapping, 'HPA')} on utilisation, whose resource is left alone: {_named(overlapping)}"
    return CheckItem(AREA, "HPAs", Level.OK, words)


def _budgets(snapshot: Snapshot, mode: Mode) -> CheckItem:
    closed = sorted(f"{one.namespace}/{one.name}" for one in snapshot.budgets if one.disruptions_allowed <= 0)
    if not closed:
        words = f"{_count(snapshot.budgets, 'PDB')}, each allows an eviction now" if snapshot.budgets else "none"
        return CheckItem(AREA, "PDBs", Level.OK, words)
    words = f"{len(closed):,} of {len(snapshot.budgets):,} allow no eviction now: {_named(closed)}"
    if mode < Mode.FULL:
        return CheckItem(AREA, "PDBs", Level.OK, f"{words}; mode {mode.label} evicts no pods")
    fix = "give them room (more replicas, or maxUnavailable 1); those pods are resized and never evicted"
    return CheckItem(AREA, "PDBs", Level.WARN, words, fix)


def _count(things: Sized, noun: str) -> str:
    return f"{len(things):,} {noun}{'' if len(things) == 1 else 's'}"


def _named(names: Iterable[str]) -> str:
    listed = list(names)
    more = f" and {len(listed) - _MOST_NAMED:,} more" if len(listed) > _MOST_NAMED else ""
    return ", ".join(listed[:_MOST_NAMED]) + more
