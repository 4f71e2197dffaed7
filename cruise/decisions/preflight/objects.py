"""Checks the cluster's own objects: nodes, other autoscalers, budgets, quotas, LimitRanges."""

from collections.abc import Iterator

from cruise.decisions.node_load import find_tainted_nodes, format_untaint_command
from cruise.decisions.pod_policy.evictability import DisruptionBudgetIndex
from cruise.decisions.pod_policy.heap_floors import compute_heap_excess_over_limit
from cruise.decisions.pod_policy.quotas import allows_one_more_pod
from cruise.decisions.pod_policy.resizable_pod import FIRST_RESIZING_KUBELET
from cruise.decisions.scan.policy_status import find_policy_problems
from cruise.decisions.sizing.memory_limit import FIRST_KUBELET_LOWERING_MEMORY_LIMITS
from cruise.domain.autoscalers import LimitRangeItem, NodeAutoscalerKind
from cruise.domain.cluster import ClusterSnapshot, Pod, PodDisruptionBudget, WorkloadRef
from cruise.domain.policy import Mode
from cruise.domain.preflight import CheckItem, CheckLevel, format_item_count, format_names
from cruise.domain.resources import StatedResources
from cruise.domain.run_to_completion_operators import POD_CONTROLLER_KINDS

OBJECT_AREA = "objects"


def check_autoscalers(snapshot: ClusterSnapshot) -> Iterator[CheckItem]:
    """Yield what other autoscalers, of pods and of nodes, mean for cruise, and what to do."""
    yield _check_vpas(snapshot)
    yield _check_hpas(snapshot)
    yield from _check_unknown_targets(snapshot)
    yield _check_node_autoscaler(snapshot)


def _check_vpas(snapshot: ClusterSnapshot) -> CheckItem:
    found = snapshot.vertical_autoscalers
    rivals = [f"{one.namespace}/{one.name} ({one.mode or 'no mode'})" for one in found if one.changes_pods]
    if not rivals:
        words = f"{format_item_count(found, 'VPA')}, none of which resizes pods" if found else "none"
        return CheckItem(OBJECT_AREA, "VPAs", CheckLevel.OK, words)
    verb = "resizes" if len(rivals) == 1 else "resize"
    count = f"{len(rivals):,} of {format_item_count(found, 'VPA')}"
    words = f"{count} {verb} pods, which cruise skips: {format_names(rivals)}"
    fix = 'to let cruise resize these pods, delete the VPAs or set their updateMode to "Off"; two would conflict'
    return CheckItem(OBJECT_AREA, "VPAs", CheckLevel.WARN, words, fix)


def check_policies(snapshot: ClusterSnapshot) -> Iterator[CheckItem]:
    """Yield what is wrong with policy objects, if there are any."""
    if not snapshot.rightsizing_policies:
        return
    problems = find_policy_problems(snapshot)
    unreadable, conflicts, unmatched = (
        [one.title for one in found] for found in (problems.unreadable, problems.conflicting, problems.unmatched)
    )
    count = f"{len(snapshot.rightsizing_policies):,} policy objects"
    if unreadable:
        words = f"{len(unreadable):,} of {count} cannot be read, and their pods are skipped: {format_names(unreadable)}"
        fix = (
            "correct them: cruise explain shows what is wrong for a pod; or update cruise, if they are for a newer one"
        )
    elif conflicts:
        words = f"{len(conflicts):,} of {count} contradict others: {format_names(conflicts)}"
        fix = (
            "state the settings in one of them, select more specifically, or keep within the maxAllowed of "
            "ClusterRightsizingPolicies; their status names the one that applies"
        )
    elif unmatched:
        words = f"{len(unmatched):,} of {count} select no pod and no workload: {format_names(unmatched)}"
        fix = "correct their selectors or their namespace, or delete them"
    else:
        yield CheckItem(OBJECT_AREA, "policies", CheckLevel.OK, f"{count} without conflicts")
        return
    yield CheckItem(OBJECT_AREA, "policies", CheckLevel.WARN, words, fix)


def _check_hpas(snapshot: ClusterSnapshot) -> CheckItem:
    targeting = [
        f"{one.namespace}/{one.name} ({', '.join(sorted(one.utilisation_resources))} of {one.target})"
        for one in snapshot.autoscalers
        if one.utilisation_resources
    ]
    if not targeting:
        words = (
            f"{format_item_count(snapshot.autoscalers, 'HPA')}, none on utilisation" if snapshot.autoscalers else "none"
        )
        return CheckItem(OBJECT_AREA, "HPAs", CheckLevel.OK, words)
    count = format_item_count(targeting, "HPA")
    words = f"{count} on utilisation of a resource, which changes only within the target: {format_names(targeting)}"
    fix = "none needed; hpa: hold skips the resource, and a target of AverageValue lets cruise size it freely"
    return CheckItem(OBJECT_AREA, "HPAs", CheckLevel.OK, words, fix)


def _check_unknown_targets(snapshot: ClusterSnapshot) -> Iterator[CheckItem]:
    """Yield autoscaler targets whose pods are unknown."""
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
            f"{namespace}/{ref} ({reason})" for (namespace, ref), reason in sorted(snapshot.unreadable_scales.items())
        ]
        words = "the resources of these autoscalers are not resized in pods that may belong to them"
        fix = "grant get on */scale, as deploy/rbac does, and check that the kind's scale subresource has a selector"
        found = f"{format_item_count(unreadable, 'scale')} cannot be read: {format_names(unreadable)}"
        yield CheckItem(OBJECT_AREA, "scales", CheckLevel.WARN, f"{found}; {words}", fix)
    if unknown:
        count = format_item_count(unknown, "target")
        words = f"the pods of {count} are unknown, and all that may be theirs are skipped"
        fix = "check that the kind has a scale subresource with a selector, and that cruise may get it (deploy/rbac)"
        yield CheckItem(OBJECT_AREA, "targets", CheckLevel.WARN, f"{words}: {format_names(unknown)}", fix)


def _check_node_autoscaler(snapshot: ClusterSnapshot) -> CheckItem:
    match snapshot.node_autoscaler:
        case NodeAutoscalerKind.KARPENTER:
            name = "Karpenter"
        case NodeAutoscalerKind.CLUSTER_AUTOSCALER:
            name = "cluster-autoscaler"
        case None:
            words = "none found: cruise raises a new pod's requests at most to the largest present node"
            return CheckItem(OBJECT_AREA, "node autoscaler", CheckLevel.OK, words)
    words = f"{name}: cruise raises a new pod's requests at most to the largest known node, and may evict to new ones"
    return CheckItem(OBJECT_AREA, "node autoscaler", CheckLevel.OK, words)


def check_disruption_budgets(snapshot: ClusterSnapshot, mode: Mode) -> Iterator[CheckItem]:
    """Yield which PodDisruptionBudgets prevent evictions; this matters in mode full only."""
    budgets = snapshot.budgets
    if not budgets:
        yield CheckItem(OBJECT_AREA, "PDBs", CheckLevel.OK, "none")
        return
    level = CheckLevel.WARN if mode >= Mode.FULL else CheckLevel.OK
    never = [_get_name(one) for one in budgets if one.blocks_all_evictions]
    closed = [_get_name(one) for one in budgets if one.disruptions_allowed <= 0 and not one.blocks_all_evictions]
    yield _check_exhausted_budgets(closed, len(budgets), level, mode)
    if never:
        count = format_item_count(never, "PDB")
        words = f"{count} can never allow an eviction (all replicas required): {format_names(never)}"
        fix = "lower minAvailable, or set maxUnavailable 1; these pods are resized, but cannot be evicted or drained"
        yield CheckItem(OBJECT_AREA, "strict PDBs", level, words, fix)
    several = _find_pods_with_several_budgets(snapshot)
    if several:
        words = f"{format_item_count(several, 'pod')} with more than one PDB cannot be evicted: {format_names(several)}"
        fix = "let one PDB select each pod"
        yield CheckItem(OBJECT_AREA, "several PDBs", level, words, fix)


def _check_exhausted_budgets(closed: list[str], total: int, level: CheckLevel, mode: Mode) -> CheckItem:
    if not closed:
        return CheckItem(
            OBJECT_AREA, "PDBs", CheckLevel.OK, f"{total:,} PDB{'' if total == 1 else 's'}, none exhausted"
        )
    words = f"{len(closed):,} of {total:,} allow no eviction now: {format_names(closed)}"
    if level is CheckLevel.OK:
        return CheckItem(OBJECT_AREA, "PDBs", CheckLevel.OK, f"{words}; mode {mode.label} evicts no pods")
    fix = "add replicas, or set maxUnavailable 1; until then these pods are resized and not evicted"
    return CheckItem(OBJECT_AREA, "PDBs", level, words, fix)


def _find_pods_with_several_budgets(snapshot: ClusterSnapshot) -> list[str]:
    covering = DisruptionBudgetIndex(snapshot.budgets)
    return [
        f"{pod.namespace}/{pod.name}"
        for pod in snapshot.pods
        if not pod.is_finished and len(covering.find_for_pod(pod)) > 1
    ]


def _get_name(budget: PodDisruptionBudget) -> str:
    return f"{budget.namespace}/{budget.name}"


def check_cluster_objects(snapshot: ClusterSnapshot, mode: Mode) -> Iterator[CheckItem]:
    """Yield the items."""
    yield _check_kubelets(snapshot, mode)
    yield _check_limit_ranges(snapshot)
    yield _check_quotas(snapshot)
    yield _check_heaps(snapshot)
    yield from check_autoscalers(snapshot)
    yield from check_policies(snapshot)
    yield from check_disruption_budgets(snapshot, mode)
    yield from _check_taints(snapshot, mode)


def _check_kubelets(snapshot: ClusterSnapshot, mode: Mode) -> CheckItem:
    versions = [node.kubelet_version for node in snapshot.nodes]
    if not versions:
        return CheckItem(
            "cluster", "kubelets", CheckLevel.RED, "there are no nodes", "check that cruise may list nodes"
        )
    old = [node.name for node in snapshot.nodes if (node.kubelet_version or (9, 9)) < FIRST_RESIZING_KUBELET]
    known = sorted({version for version in versions if version is not None})
    span = " to ".join(dict.fromkeys(f"{version[0]}.{version[1]}" for version in (known[:1] + known[-1:])))
    words = f"{format_item_count(versions, 'node')}, kubelets {span or 'of unknown version'}"
    if old:
        level = CheckLevel.RED if len(old) == len(versions) and mode >= Mode.RESIZE else CheckLevel.WARN
        fix = "upgrade these kubelets to 1.33 or newer; until then their pods are skipped"
        return CheckItem("cluster", "kubelets", level, f"{words}; too old to resize: {format_names(old)}", fix)
    raise_only = [one for one in versions if one is not None and one < FIRST_KUBELET_LOWERING_MEMORY_LIMITS]
    if raise_only:
        words += f"; {len(raise_only):,} of 1.33, which cannot lower memory limits"
    return CheckItem("cluster", "kubelets", CheckLevel.OK, words)


def _check_limit_ranges(snapshot: ClusterSnapshot) -> CheckItem:
    blocking = sorted(name for name, items in snapshot.limit_ranges.items() if any(_fixes_sizes(i) for i in items))
    if not blocking:
        words = (
            f"in {format_item_count(snapshot.limit_ranges, 'namespace')}, none of which fixes sizes"
            if snapshot.limit_ranges
            else "none"
        )
        return CheckItem(OBJECT_AREA, "limit ranges", CheckLevel.OK, words)
    words = f"{format_names(blocking)}: minimum and maximum, or request and limit, must be equal"
    fix = "widen these LimitRanges; until then cruise skips these pods (limit-range)"
    return CheckItem(OBJECT_AREA, "limit ranges", CheckLevel.WARN, words, fix)


def _fixes_sizes(item: LimitRangeItem) -> bool:
    ratios = [ratio for ratio in (item.max_cpu_ratio, item.max_memory_ratio) if ratio is not None]
    return _has_equal_bound(item.minimum, item.maximum) or any(ratio <= 1 for ratio in ratios)


def _has_equal_bound(low: StatedResources, high: StatedResources) -> bool:
    return (low.cpu_millicores is not None and low.cpu_millicores == high.cpu_millicores) or (
        low.memory_bytes is not None and low.memory_bytes == high.memory_bytes
    )


def _check_heaps(snapshot: ClusterSnapshot) -> CheckItem:
    stated, above = set(), set()
    for pod in snapshot.pods:
        for container in pod.sized_containers if not pod.is_finished else ():
            if container.heap is not None and container.heap.is_stated:
                name = f"{pod.namespace}/{pod.workload_name} {container.name}"
                stated.add(name)
                if compute_heap_excess_over_limit(container.heap, container):
                    above.add(name)
    if not above:
        return CheckItem(
            OBJECT_AREA, "heaps", CheckLevel.OK, f"{format_item_count(stated, 'container')} with a stated heap"
        )
    words = f"the heap and its overhead exceed the memory limit of {format_item_count(above, 'container')}"
    fix = "raise the memory limit in the pod template, or lower the heap; else these containers may be OOM-killed"
    return CheckItem(OBJECT_AREA, "heaps", CheckLevel.WARN, f"{words}: {format_names(sorted(above))}", fix)


def _check_quotas(snapshot: ClusterSnapshot) -> CheckItem:
    if not snapshot.quotas:
        return CheckItem(OBJECT_AREA, "quotas", CheckLevel.OK, "none")
    full = sorted(
        name for name, quotas in snapshot.quotas.items() if any(_is_exhausted(one.requests_left) for one in quotas)
    )
    limited = sorted(
        name for name, quotas in snapshot.quotas.items() if any(_is_counted(one.limits_left) for one in quotas)
    )
    words = f"in {format_item_count(snapshot.quotas, 'namespace')}"
    if limited:
        words += f"; limits are counted, and not changed, in {format_names(limited)}"
    tight = sorted({pod.namespace for pod in snapshot.pods if _has_no_quota_for_replacement(pod, snapshot)} - set(full))
    if not full and not tight:
        return CheckItem(OBJECT_AREA, "quotas", CheckLevel.OK, words)
    if full:
        words += (
            f"; no requests are left in {format_names(full)}: nothing can grow there, and no replacement be created"
        )
    if tight:
        words += f"; too little is left in {format_names(tight)} for replacements of some pods, which are not evicted"
    fix = "raise these quotas, or lower requests in the namespaces"
    return CheckItem(OBJECT_AREA, "quotas", CheckLevel.WARN, words, fix)


def _has_no_quota_for_replacement(pod: Pod, snapshot: ClusterSnapshot) -> bool:
    return (
        pod.node is not None
        and not pod.is_finished
        and not allows_one_more_pod(pod, snapshot.quotas.get(pod.namespace, ()))
    )


def _is_counted(left: StatedResources) -> bool:
    return left.cpu_millicores is not None or left.memory_bytes is not None


def _is_exhausted(left: StatedResources) -> bool:
    return left.cpu_millicores == 0 or left.memory_bytes == 0


def _check_taints(snapshot: ClusterSnapshot, mode: Mode) -> Iterator[CheckItem]:
    tainted = find_tainted_nodes(snapshot.nodes)
    if not tainted:
        return
    words = f"{format_item_count(tainted, 'node')} with cruise's taint: {format_names(tainted)}"
    if mode >= Mode.FULL:
        yield CheckItem(OBJECT_AREA, "taints", CheckLevel.OK, f"{words}; removed when their load falls")
        return
    words += f"; with the rights of mode {mode.label} `cruise serve` cannot remove it"
    yield CheckItem(OBJECT_AREA, "taints", CheckLevel.WARN, words, format_untaint_command(tainted))
