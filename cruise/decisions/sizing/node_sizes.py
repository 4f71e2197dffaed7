"""Computes the sizes of all containers of some nodes in columns, and keeps every step."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cruise.decisions.sizing.cpu_limit import raise_cpu_limits
from cruise.decisions.sizing.damping import (
    DampedSizes,
    ResizeUrgency,
    ResizeUrgencyColumn,
    Sizes,
    Targets,
    choose_sizes_to_write,
)
from cruise.decisions.sizing.fitting import NodeFit
from cruise.decisions.sizing.headroom import HeadroomModel
from cruise.decisions.sizing.headroom_shares import (
    HeadroomShares,
    NodeNeeds,
    share_headroom,
    sum_node_needs,
)
from cruise.decisions.sizing.memory_limit import (
    MemoryLimitConstraints,
    compute_memory_limits,
    detect_memory_leaks,
)
from cruise.decisions.sizing.node_columns import NodePodColumns
from cruise.decisions.sizing.quota_bounds import trim_growth_to_quotas
from cruise.decisions.sizing.resizes import (
    NO_RESIZE_REFUSALS,
    ContainerSizeColumns,
    ResizeBlockers,
    SizeDecision,
    SizeDecisions,
    decide_size_changes,
)
from cruise.decisions.sizing.trimming import (
    NO_BOUND,
    compute_growth_bounds,
    trim_growth_to_capacity,
    trim_to_capacity,
)
from cruise.decisions.sizing.user_minimums import UserMinimumGrants, grant_user_minimums, release_user_minimums
from cruise.decisions.sizing.write_tolerances import WriteDamping
from cruise.domain.actions import ReasonCode, SkippedPod
from cruise.domain.arrays import BoolArray, Int64Array
from cruise.domain.resources import ResourceName


@dataclass(frozen=True, slots=True)
class SizingResult:
    """Every step from demand to the sizes that are written; `columns` and `fit` are the input.

    `node_needs` has an entry per node, `decisions` and `urgency` one per pod, the others one per container.
    `headroom_shares` go from base to clamped size; `targets` are what remains of them, with limits, once each node's
    sum fits, plus the granted user minimums; `sizes_to_write` lack the growth that does not fit quotas, or next to pods
    that keep their sizes. Without write damping `damped_sizes` and `urgency` are None: all changes are written.
    """

    columns: NodePodColumns
    fit: NodeFit
    node_needs: Mapping[ResourceName, NodeNeeds]
    headroom_shares: Mapping[ResourceName, HeadroomShares]
    user_minimum_grants: UserMinimumGrants
    targets: ContainerSizeColumns
    sizes_to_write: ContainerSizeColumns
    decisions: SizeDecisions
    damping: WriteDamping | None = None
    damped_sizes: DampedSizes | None = None
    urgency: ResizeUrgencyColumn | None = None

    @property
    def rightsized(self) -> BoolArray:
        """Return for each pod whether its sizes are written."""
        return np.asarray(self.decisions == SizeDecision.RIGHTSIZED)

    @property
    def memory_leak_suspected(self) -> BoolArray:
        """Return for each container whether its memory use only grows, towards a limit that does not follow."""
        table = self.columns.table
        if table.ceilings is None:
            return np.zeros(len(table.rows), dtype=np.bool_)
        return detect_memory_leaks(table.limit_demand, self.sizes_to_write.memory_limit_bytes) & table.memory.managed

    def compute_reclaimable(self, resource: ResourceName) -> Int64Array:
        """Return what each pod requests beyond its targets, as kube-scheduler counts them; 0 if it is not managed."""
        sums = self.columns.candidates.sum_by_pod(resource, self.targets.get_requests(resource))
        return np.where(self.columns.candidates.manages[resource], self.columns.counted[resource] - sums, 0)

    def compute_growth(self, resource: ResourceName) -> Int64Array:
        """Return by how much each pod's requests increase, as kube-scheduler counts them; 0 if they do not."""
        sums = self.columns.candidates.sum_by_pod(resource, self.sizes_to_write.get_requests(resource))
        growth = np.maximum(sums - self.columns.counted[resource], 0)
        return np.where(self.columns.candidates.manages[resource], growth, 0)


def size_nodes(
    columns: NodePodColumns,
    fit: NodeFit,
    headroom: HeadroomModel,
    refusals: ResizeBlockers = NO_RESIZE_REFUSALS,
    damping: WriteDamping | None = None,
) -> SizingResult:
    """Size all containers of all nodes; without `damping` every change beyond the update threshold is written."""
    node_needs = {one: sum_node_needs(columns, fit, headroom, one) for one in ResourceName}
    shares = {one: share_headroom(columns, fit, node_needs[one].shared, one) for one in ResourceName}
    requests: Sizes = {one: shares[one].clamped.copy() for one in ResourceName}
    trim_to_capacity(columns, fit, requests)
    grants = grant_user_minimums(columns, fit, requests, columns.memory_limit_ceilings)
    targets = _add_limits(columns, requests)
    without_limit_ranges = {
        one: _exclude_limit_ranges(columns, one, requests[one], shares[one], grants) for one in ResourceName
    }
    growth_bounds: Sizes = {}
    if damping is not None:
        growth_bounds = {one: compute_growth_bounds(columns, one, node_needs[one].headroom) for one in ResourceName}
    chosen = _choose_sizes_to_write(
        columns, fit, Targets(requests, without_limit_ranges), targets, refusals, damping, growth_bounds
    )
    requests, sizes, decisions = chosen.requests, chosen.sizes, chosen.decisions
    while cut := trim_growth_to_capacity(
        columns, fit, requests := _copy(requests), decisions == SizeDecision.RIGHTSIZED, grants.sizes_before
    ):
        sizes = _add_limits(columns, requests)
        decisions = _decide_again(columns, sizes, decisions, cut, refusals)
    return SizingResult(
        columns, fit, node_needs, shares, grants, targets, sizes, decisions, damping, chosen.damped, chosen.urgency
    )


@dataclass(frozen=True, slots=True)
class _SizesToWrite:
    """The part of the way to the targets that is written, within quotas."""

    requests: Sizes
    sizes: ContainerSizeColumns
    decisions: SizeDecisions
    damped: DampedSizes | None = None
    urgency: ResizeUrgencyColumn | None = None


def _exclude_limit_ranges(
    columns: NodePodColumns,
    resource: ResourceName,
    targets: Int64Array,
    shares: HeadroomShares,
    grants: UserMinimumGrants,
) -> Int64Array:
    """Return the targets without growth that only a LimitRange requires."""
    demand, stated_minimum = columns.table.get_resource(resource), columns.candidates.stated_minimum[resource]
    granted = targets - grants.sizes_before.get(resource, targets)
    without_ranges = np.clip(
        np.maximum(shares.rounded, stated_minimum) + granted, demand.current, np.maximum(targets, demand.current)
    )
    return np.where((demand.lower > stated_minimum) & (targets > demand.current), without_ranges, targets)


def _choose_sizes_to_write(
    columns: NodePodColumns,
    fit: NodeFit,
    targets: Targets,
    whole_sizes: ContainerSizeColumns,
    refusals: ResizeBlockers,
    damping: WriteDamping | None,
    growth_bounds: Sizes,
) -> _SizesToWrite:
    """Choose the sizes to write; growth that quotas reject is offered to the other pods of the node.

    `whole_sizes` are the targets with their limits, `growth_bounds` the most that a damped request may grow to.
    """
    whole = targets.with_limit_ranges
    maximum = whole if damping is None else growth_bounds
    all_cut_pods: set[int] = set()
    while True:
        damped = urgency = None
        requests, sizes = whole, whole_sizes
        if damping is not None:
            damped = choose_sizes_to_write(columns, fit, targets, damping, maximum)
            requests = _copy(damped.requests)
            sizes = _add_limits(columns, requests)
            urgency = _compute_urgency_by_pod(columns, damped, sizes)
            sizes = _keep_present_sizes(columns, sizes, urgency == ResizeUrgency.UNCHANGED)
        decisions = decide_size_changes(columns.table, sizes, fit.remains, refusals)
        release_user_minimums(columns, fit, requests, decisions)
        if columns.table.quotas is None:
            return _SizesToWrite(requests, sizes, decisions, damped, urgency)
        within_quotas = _copy(requests)
        cut_pods = trim_growth_to_quotas(
            columns.table,
            columns.counted,
            within_quotas,
            decisions == SizeDecision.RIGHTSIZED,
            fit.pending_replacements,
        )
        all_cut_pods.update(cut_pods)
        if not cut_pods or damping is None:
            break
        reduced = {
            one: np.where(within_quotas[one] < requests[one], within_quotas[one], maximum[one]) for one in maximum
        }
        if all(np.array_equal(reduced[one], maximum[one]) for one in maximum):
            break
        maximum = reduced
    sizes = _add_limits(columns, within_quotas)
    decisions = _decide_again(columns, sizes, decisions, sorted(all_cut_pods), refusals, SizeDecision.QUOTA)
    decisions[(decisions == SizeDecision.NO_CHANGE_NEEDED) & columns.table.quotas.withholds_growth] = SizeDecision.QUOTA
    return _SizesToWrite(within_quotas, sizes, decisions, damped, urgency)


def _compute_urgency_by_pod(
    columns: NodePodColumns, damped: DampedSizes, sizes: ContainerSizeColumns
) -> ResizeUrgencyColumn:
    """Return the highest urgency of each pod's containers; a usage near the limit counts as well."""
    table = columns.table
    near_limit = (
        table.memory.managed & (table.memory_limit > 0) & (table.limit_demand.minimum_safe > table.memory_limit)
    )
    near_limit &= sizes.memory_limit_bytes > table.memory_limit
    near_limit |= table.cpu.managed & (sizes.cpu_limit_millicores > table.cpu_limit)
    limit_urgency = np.where(near_limit, np.int8(ResizeUrgency.USAGE_NEAR_LIMIT), np.int8(ResizeUrgency.UNCHANGED))
    urgency: ResizeUrgencyColumn = np.maximum.reduce([limit_urgency, *damped.urgency.values()])
    if urgency.size:
        urgency = np.maximum.reduceat(urgency, columns.candidates.first_container)
        near_container_limit = list(columns.candidates.near_container_limit)
        urgency[near_container_limit] = np.maximum(
            urgency[near_container_limit], np.int8(ResizeUrgency.USAGE_NEAR_LIMIT)
        )
    return urgency


def _keep_present_sizes(
    columns: NodePodColumns, sizes: ContainerSizeColumns, unchanged: BoolArray
) -> ContainerSizeColumns:
    """Return sizes that are the present ones for the flagged pods."""
    table, flags = columns.table, unchanged[columns.candidates.pod_of_container]
    return ContainerSizeColumns(
        np.where(flags, table.cpu.current, sizes.cpu_millicores),
        np.where(flags, table.memory.current, sizes.memory_bytes),
        np.where(flags, table.memory_limit, sizes.memory_limit_bytes),
        np.where(flags, table.cpu_limit, sizes.cpu_limit_millicores),
    )


def _copy(requests: Sizes) -> dict[ResourceName, Int64Array]:
    return {one: values.copy() for one, values in requests.items()}


def _decide_again(
    columns: NodePodColumns,
    sizes: ContainerSizeColumns,
    decisions: SizeDecisions,
    cut_pods: list[int],
    refusals: ResizeBlockers,
    reason_if_unchanged: SizeDecision = SizeDecision.WAITING_FOR_CAPACITY,
) -> SizeDecisions:
    is_cut = np.zeros(len(decisions), dtype=np.bool_)
    is_cut[cut_pods] = True
    renewed = decide_size_changes(columns.table, sizes, is_cut, refusals)
    renewed[renewed == SizeDecision.NO_CHANGE_NEEDED] = reason_if_unchanged
    return np.where(is_cut, renewed, decisions)


def _add_limits(columns: NodePodColumns, requests: Sizes) -> ContainerSizeColumns:
    cpu, memory = requests[ResourceName.CPU], requests[ResourceName.MEMORY]
    memory_limits, cpu_limits = _compute_memory_limits(columns, memory), _compute_cpu_limits(columns, cpu)
    guaranteed = columns.candidates.guaranteed[columns.candidates.pod_of_container]
    return ContainerSizeColumns(
        cpu, memory, np.where(guaranteed, memory, memory_limits), np.where(guaranteed, cpu, cpu_limits)
    )


def _compute_memory_limits(columns: NodePodColumns, memory: Int64Array) -> Int64Array:
    table = columns.table
    maximum = columns.candidates.get_max_limit(ResourceName.MEMORY, memory)
    terms = None
    if table.minimum_limit is not None:
        candidates = columns.candidates
        adds_missing, keeps_existing = candidates.adds_limit[ResourceName.MEMORY], candidates.keeps_memory_limit
        terms = MemoryLimitConstraints(table.minimum_limit[ResourceName.MEMORY], adds_missing, keeps_existing)
    limits = compute_memory_limits(
        table.limit_demand,
        table.memory_limit,
        memory,
        maximum,
        columns.lowers_memory_limit,
        columns.memory_limit_ceilings,
        terms,
    )
    present = np.where(table.memory_limit > 0, table.memory_limit, NO_BOUND)
    highest = np.where(columns.candidates.may_grow, NO_BOUND, present)
    limits = np.minimum(limits, highest)
    limits = _apply_pod_ranges(columns, ResourceName.MEMORY, memory, limits, np.minimum(maximum, highest))
    return np.where(table.memory.managed & ~keep_limits(columns, ResourceName.MEMORY), limits, table.memory_limit)


def _apply_pod_ranges(
    columns: NodePodColumns, resource: ResourceName, requests: Int64Array, limits: Int64Array, maximum: Int64Array
) -> Int64Array:
    """Return limits whose sums per pod are within LimitRanges of type Pod, if possible."""
    candidates, table = columns.candidates, columns.table
    if not candidates.pod_ranges or table.minimum_limit is None:
        return limits
    current = table.memory_limit if resource is ResourceName.MEMORY else table.cpu_limit
    minimum = np.where(current > 0, np.minimum(table.minimum_limit[resource], current), table.minimum_limit[resource])
    limits = limits.copy()
    for index, ranges in candidates.pod_ranges.items():
        if resource in ranges:
            first = int(candidates.first_container[index])
            containers = slice(first, first + len(candidates.pods[index].sized))
            columns_of_pod = (column[containers].tolist() for column in (requests, minimum, limits, maximum))
            limits[containers] = ranges[resource].get_limits(*columns_of_pod)
    return limits


def _compute_cpu_limits(columns: NodePodColumns, cpu: Int64Array) -> Int64Array:
    """Return the CPU limit of each container, 0 for none.

    It is the node's capacity if the container has or needs a limit, or what its peak needs. One above the node's CPU
    limits nothing, and stays.
    """
    table, candidates = columns.table, columns.candidates
    maximum = columns.candidates.get_max_limit(ResourceName.CPU, cpu)
    highest = np.maximum(columns.node_cpu, table.cpu_limit)
    rising = raise_cpu_limits(table.cpu_limit, table.cpu.peak, cpu, highest)
    wanted = np.where(candidates.raises_cpu_limit & (table.cpu_limit > 0), rising, highest)
    raised = np.maximum(np.minimum(wanted, maximum), cpu)
    if table.minimum_limit is not None:
        minimum = table.minimum_limit[ResourceName.CPU]
        raised = np.maximum(raised, np.where(table.cpu_limit > 0, np.minimum(minimum, table.cpu_limit), minimum))
    has_limit = (table.cpu_limit > 0) | (columns.candidates.adds_limit[ResourceName.CPU] & (cpu > 0))
    raised = _apply_pod_ranges(columns, ResourceName.CPU, cpu, np.where(has_limit, raised, 0), maximum)
    changes = table.cpu.managed & has_limit & ~keep_limits(columns, ResourceName.CPU) & ~candidates.keeps_cpu_limit
    limits = np.where(changes, raised, table.cpu_limit)
    is_highest = ~candidates.may_grow & (table.cpu_limit > 0)
    return np.where(is_highest, np.minimum(limits, table.cpu_limit), limits)


def keep_limits(columns: NodePodColumns, resource: ResourceName) -> BoolArray:
    """Return for each container whether its limit is unchanged because a quota counts it."""
    quotas = columns.table.quotas
    return np.zeros(len(columns.node_of_container), dtype=np.bool_) if quotas is None else quotas.keeps_limits[resource]


def find_suspected_leaks(sized: SizingResult) -> Mapping[int, Sequence[SkippedPod]]:
    """Return the pods whose memory use only grows, by the index of their node."""
    columns, by_node = sized.columns, dict[int, list[SkippedPod]]()
    names_by_pod: dict[int, list[str]] = {}
    for at in np.flatnonzero(sized.memory_leak_suspected).tolist():
        pod = int(columns.candidates.pod_of_container[at])
        container = columns.candidates.pods[pod].sized[at - int(columns.candidates.first_container[pod])]
        names_by_pod.setdefault(pod, []).append(container.name)
    for index, containers in names_by_pod.items():
        pod_object, node = columns.candidates.pods[index].pod, int(columns.node_of_pod[index])
        skipped = SkippedPod(
            pod_object.namespace, pod_object.name, ReasonCode.MEMORY_LEAK_SUSPECTED, ", ".join(containers)
        )
        by_node.setdefault(node, []).append(skipped)
    return by_node
