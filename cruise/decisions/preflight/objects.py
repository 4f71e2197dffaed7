"""What a preflight says about the cluster's own objects: nodes, and what gets in the way of sizing pods."""

from collections.abc import Iterator

from cruise.decisions.node_load import find_tainted_nodes, format_untaint_command
from cruise.decisions.pod_policy.eligibility import FIRST_RESIZING_KUBELET
from cruise.decisions.pod_policy.evictability import DisruptionBudgetIndex
from cruise.decisions.pod_policy.quotas import allows_one_more_pod
from cruise.decisions.preflight.items import CheckItem, CheckLevel, format_count, format_names
from cruise.decisions.sizing.memory_limit import FIRST_KUBELET_LOWERING_MEMORY_LIMITS
from cruise.domain.cluster import (
    POD_CONTROLLER_KINDS,
    ClusterSnapshot,
    LimitRangeItem,
    NodeAutoscalerKind,
    Pod,
    PodDisruptionBudget,
    WorkloadRef,
)
from cruise.domain.policy import Mode
from cruise.domain.resources import StatedResources

# What a preflight says about other autoscalers, of pods and of nodes: what each means for cruise, and what to do.

AUTOSCALER_AREA = "objects"


def check_autoscalers(snapshot: ClusterSnapshot) -> Iterator[CheckItem]:
    """Yield the items."""
    yield _vertical(snapshot)
    yield _horizontal(snapshot)
    yield from _unknown_targets(snapshot)
    yield _of_nodes(snapshot)


def _vertical(snapshot: ClusterSnapshot) -> CheckItem:
    found = snapshot.vertical_autoscalers
    rivals = [f"{one.namespace}/{one.name} ({one.mode or 'no mode'})" for one in found if one.changes_pods]
    if not rivals:
        words = f"{format_count(found, 'VPA')}, none of which sizes pods" if found else "none"
        return CheckItem(AUTOSCALER_AREA, "VPAs", CheckLevel.OK, words)
    verb = "sizes" if len(rivals) == 1 else "size"
    words = f"{len(rivals):,} of {format_count(found, 'VPA')} {verb} pods, which cruise leaves alone: {format_names(rivals)}"
    fix = 'to let cruise size these pods, delete the VPAs or set their updateMode to "Off": two would undo each other'
    return CheckItem(AUTOSCALER_AREA, "VPAs", CheckLevel.WARN, words, fix)


def _horizontal(snapshot: ClusterSnapshot) -> CheckItem:
    targeting = [
        f"{one.namespace}/{one.name} ({', '.join(sorted(one.utilisation_resources))} of {one.target})"
        for one in snapshot.autoscalers
        if one.utilisation_resources
    ]
    if not targeting:
        words = f"{format_count(snapshot.autoscalers, 'HPA')}, none on utilisation" if snapshot.autoscalers else "none"
        return CheckItem(AUTOSCALER_AREA, "HPAs", CheckLevel.OK, words)
    words = f"{format_count(targeting, 'HPA')} on utilisation, whose resource is left alone: {format_names(targeting)}"
    fix = "nothing has to be done; to have it sized too, let the HPA target an AverageValue or another metric"
    return CheckItem(AUTOSCALER_AREA, "HPAs", CheckLevel.OK, words, fix)


def _unknown_targets(snapshot: ClusterSnapshot) -> Iterator[CheckItem]:
    """Yield what is left alone on doubt."""
    targets: set[tuple[str, WorkloadRef]] = {
        (one.namespace, one.target) for one in snapshot.autoscalers if one.utilisation_resources
    }
    targets |= {
        (one.namespace, one.target)
        for one in snapshot.vertical_autoscalers
        if one.changes_pods and one.target is not None
    }
    unknown = [
        f"{namespace}/{ref}"
        for namespace, ref in sorted(
            targets - {target for target, found in snapshot.scales.items() if found is not None}
        )
        if ref.kind not in POD_CONTROLLER_KINDS and (namespace, ref) not in snapshot.unreadable_scales
    ]
    if snapshot.unreadable_scales:
        unreadable = [
            f"{namespace}/{ref} ({why})" for (namespace, ref), why in sorted(snapshot.unreadable_scales.items())
        ]
        words = (
            "what an autoscaler acts on is left alone for pods that may be theirs (of a namespace where none is known)"
        )
        fix = "grant get on */scale, as deploy/rbac does, and see that the scale subresource of the kind has a selector"
        found = f"{format_count(unreadable, 'scale')} cannot be read: {format_names(unreadable)}"
        yield CheckItem(AUTOSCALER_AREA, "scales", CheckLevel.WARN, f"{found}; {words}", fix)
    if unknown:
        words = (
            f"the pods of {format_count(unknown, 'target')} are not known, and all that may be theirs are left alone"
        )
        fix = "see that the kind has a scale subresource with a selector, and that cruise may get it (deploy/rbac)"
        yield CheckItem(AUTOSCALER_AREA, "targets", CheckLevel.WARN, f"{words}: {format_names(unknown)}", fix)


def _of_nodes(snapshot: ClusterSnapshot) -> CheckItem:
    match snapshot.node_autoscaler:
        case NodeAutoscalerKind.KARPENTER:
            name = "Karpenter"
        case NodeAutoscalerKind.CLUSTER_AUTOSCALER:
            name = "cluster-autoscaler"
        case None:
            words = "none seen: what cruise adds to a new pod ends at the largest node that there is"
            return CheckItem(AUTOSCALER_AREA, "node autoscaler", CheckLevel.OK, words)
    words = f"{name}: what cruise adds to a new pod ends at the largest node seen; an evicted pod may get a new node"
    return CheckItem(AUTOSCALER_AREA, "node autoscaler", CheckLevel.OK, words)


# What a preflight says about PodDisruptionBudgets: which keep cruise from evicting pods, for now or for good.

BUDGET_AREA = "objects"


def check_disruption_budgets(snapshot: ClusterSnapshot, mode: Mode) -> Iterator[CheckItem]:
    """Yield the items; below mode full no pod is evicted, so nothing has to be done."""
    budgets = snapshot.budgets
    if not budgets:
        yield CheckItem(BUDGET_AREA, "PDBs", CheckLevel.OK, "none")
        return
    level = CheckLevel.WARN if mode >= Mode.FULL else CheckLevel.OK
    never = [_name(one) for one in budgets if one.blocks_all_evictions]
    closed = [_name(one) for one in budgets if one.disruptions_allowed <= 0 and not one.blocks_all_evictions]
    yield _closed(closed, len(budgets), level, mode)
    if never:
        words = f"{format_count(never, 'PDB')} can never allow an eviction, since all replicas are asked for: {format_names(never)}"
        fix = (
            "lower minAvailable, or set maxUnavailable 1; those pods are resized and never evicted, by no drain either"
        )
        yield CheckItem(BUDGET_AREA, "strict PDBs", level, words, fix)
    several = _pods_with_several(snapshot)
    if several:
        words = f"{format_count(several, 'pod')} with more than one PDB, which the API server never evicts: {format_names(several)}"
        fix = "let one PDB select each pod"
        yield CheckItem(BUDGET_AREA, "several PDBs", level, words, fix)


def _closed(closed: list[str], total: int, level: CheckLevel, mode: Mode) -> CheckItem:
    if not closed:
        return CheckItem(
            BUDGET_AREA, "PDBs", CheckLevel.OK, f"{total:,} PDB{'' if total == 1 else 's'}, none is used up"
        )
    words = f"{len(closed):,} of {total:,} allow no eviction now: {format_names(closed)}"
    if level is CheckLevel.OK:
        return CheckItem(BUDGET_AREA, "PDBs", CheckLevel.OK, f"{words}; mode {mode.label} evicts no pods")
    fix = "give them room (more replicas, or maxUnavailable 1); until then those pods are resized and not evicted"
    return CheckItem(BUDGET_AREA, "PDBs", level, words, fix)


def _pods_with_several(snapshot: ClusterSnapshot) -> list[str]:
    covering = DisruptionBudgetIndex(snapshot.budgets)
    return [
        f"{pod.namespace}/{pod.name}"
        for pod in snapshot.pods
        if not pod.is_finished and len(covering.find_for_pod(pod)) > 1
    ]


def _name(budget: PodDisruptionBudget) -> str:
    return f"{budget.namespace}/{budget.name}"


OBJECT_AREA = "objects"


def check_objects(snapshot: ClusterSnapshot, mode: Mode) -> Iterator[CheckItem]:
    """Yield the items."""
    yield _kubelets(snapshot, mode)
    yield _limit_ranges(snapshot)
    yield _quotas(snapshot)
    yield from check_autoscalers(snapshot)
    yield from check_disruption_budgets(snapshot, mode)
    yield from _taints(snapshot, mode)


def _kubelets(snapshot: ClusterSnapshot, mode: Mode) -> CheckItem:
    versions = [node.kubelet_version for node in snapshot.nodes]
    if not versions:
        return CheckItem(
            "cluster", "kubelets", CheckLevel.RED, "there are no nodes", "see whether cruise may list nodes"
        )
    old = [node.name for node in snapshot.nodes if (node.kubelet_version or (9, 9)) < FIRST_RESIZING_KUBELET]
    known = sorted({version for version in versions if version is not None})
    span = " to ".join(dict.fromkeys(f"{version[0]}.{version[1]}" for version in (known[:1] + known[-1:])))
    words = f"{format_count(versions, 'node')}, kubelets {span or 'of unknown version'}"
    if old:
        level = CheckLevel.RED if len(old) == len(versions) and mode >= Mode.RESIZE else CheckLevel.WARN
        fix = "upgrade these kubelets to 1.33 or newer; until then their pods are left alone"
        return CheckItem("cluster", "kubelets", level, f"{words}; too old to resize: {format_names(old)}", fix)
    shy = [node for node in versions if node is not None and node < FIRST_KUBELET_LOWERING_MEMORY_LIMITS]
    if shy:
        words += f"; {len(shy):,} of 1.33, which lower no memory limits"
    return CheckItem("cluster", "kubelets", CheckLevel.OK, words)


def _limit_ranges(snapshot: ClusterSnapshot) -> CheckItem:
    blocking = sorted(name for name, items in snapshot.limit_ranges.items() if any(_leaves_no_choice(i) for i in items))
    if not blocking:
        words = (
            f"in {format_count(snapshot.limit_ranges, 'namespace')}, with room for sizes"
            if snapshot.limit_ranges
            else "none"
        )
        return CheckItem(OBJECT_AREA, "limit ranges", CheckLevel.OK, words)
    words = f"{format_names(blocking)}: minimum and maximum, or request and limit, have to be equal"
    fix = "widen these LimitRanges; until then cruise leaves those pods alone (limit-range)"
    return CheckItem(OBJECT_AREA, "limit ranges", CheckLevel.WARN, words, fix)


def _leaves_no_choice(item: LimitRangeItem) -> bool:
    ratios = [ratio for ratio in (item.max_cpu_ratio, item.max_memory_ratio) if ratio is not None]
    return _equal(item.minimum, item.maximum) or any(ratio <= 1 for ratio in ratios)


def _equal(low: StatedResources, high: StatedResources) -> bool:
    return (low.cpu_millicores is not None and low.cpu_millicores == high.cpu_millicores) or (
        low.memory_bytes is not None and low.memory_bytes == high.memory_bytes
    )


def _quotas(snapshot: ClusterSnapshot) -> CheckItem:
    if not snapshot.quotas:
        return CheckItem(OBJECT_AREA, "quotas", CheckLevel.OK, "none")
    full = sorted(
        name for name, quotas in snapshot.quotas.items() if any(_is_spent(one.requests_left) for one in quotas)
    )
    limited = sorted(
        name for name, quotas in snapshot.quotas.items() if any(_counts(one.limits_left) for one in quotas)
    )
    words = f"in {format_count(snapshot.quotas, 'namespace')}"
    if limited:
        words += f"; limits are counted, and stay as they are, in {format_names(limited)}"
    tight = sorted({pod.namespace for pod in snapshot.pods if _comes_back_in_vain(pod, snapshot)} - set(full))
    if not full and not tight:
        return CheckItem(OBJECT_AREA, "quotas", CheckLevel.OK, words)
    if full:
        words += f"; no requests are left in {format_names(full)}: nothing grows there, and an evicted pod would not come back"
    if tight:
        words += (
            f"; too little is left in {format_names(tight)} for another of the pods there, which is not evicted then"
        )
    fix = "raise these quotas, or lower requests in the namespaces"
    return CheckItem(OBJECT_AREA, "quotas", CheckLevel.WARN, words, fix)


def _comes_back_in_vain(pod: Pod, snapshot: ClusterSnapshot) -> bool:
    return (
        pod.node is not None
        and not pod.is_finished
        and not allows_one_more_pod(pod, snapshot.quotas.get(pod.namespace, ()))
    )


def _counts(left: StatedResources) -> bool:
    return left.cpu_millicores is not None or left.memory_bytes is not None


def _is_spent(left: StatedResources) -> bool:
    return left.cpu_millicores == 0 or left.memory_bytes == 0


def _taints(snapshot: ClusterSnapshot, mode: Mode) -> Iterator[CheckItem]:
    tainted = find_tainted_nodes(snapshot.nodes)
    if not tainted:
        return
    words = f"{format_count(tainted, 'node')} with cruise's taint: {format_names(tainted)}"
    if mode >= Mode.FULL:
        yield CheckItem(OBJECT_AREA, "taints", CheckLevel.OK, f"{words}; taken off when their load falls")
        return
    words += f"; with the rights of mode {mode.label} `cruise serve` cannot take it off"
    yield CheckItem(OBJECT_AREA, "taints", CheckLevel.WARN, words, format_untaint_command(tainted))
