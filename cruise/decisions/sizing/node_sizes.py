"""The sizes of every container of some nodes, in columns: one function, with all its steps laid open."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from cruise.decisions.sizing.damping import (
    DampedSizes,
    ResizeUrgency,
    ResizeUrgencyColumn,
    Sizes,
    Targets,
    WriteDamping,
    choose_sizes_to_write,
)
from cruise.decisions.sizing.fitting import NodeFit
from cruise.decisions.sizing.headroom import HeadroomModel
from cruise.decisions.sizing.memory_limit import (
    MemoryLimitCeilings,
    MemoryLimitTerms,
    compute_memory_limits,
    detect_memory_leaks,
    supports_lowering_memory_limits,
)
from cruise.decisions.sizing.node_columns import NodePodColumns
from cruise.decisions.sizing.quota_bounds import trim_growth_to_quotas
from cruise.decisions.sizing.resizes import (
    NO_RESIZE_REFUSALS,
    ContainerSizeColumns,
    ResizeRefusals,
    SizeDecision,
    SizeDecisions,
    decide_size_changes,
)
from cruise.decisions.sizing.sharing import (
    HeadroomShares,
    NodeNeeds,
    share_headroom,
    sum_node_needs,
    trim_growth_to_capacity,
    trim_to_capacity,
)
from cruise.decisions.sizing.user_minimums import UserMinimumGrants, grant_user_minimums, release_user_minimums
from cruise.domain.resources import BoolArray, Int64Array, ResourceName, convert_to_int64

_NO_BOUND = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class SizingResult:
    """Every step from demand to what is written; `columns` and `fit` are what was sized.

    `sums` has an entry a node: the bases, and the headroom that is shared. The others have an entry a container:
    `shares` goes from base to share, rounded and clamped; `trimmed` is what is left of that, with the limits, once the
    sum of each node fits, and with what is granted of wishes: the target of the plan. `written` has the growth taken
    back for which quotas, or pods that keep their sizes, leave no room. `causes` has an entry a pod, and tells whether
    `written` is written; `writes` are what was chosen to be, and `why` by pod, both None where all changes are written.
    """

    columns: NodePodColumns
    fit: NodeFit
    sums: Mapping[ResourceName, NodeNeeds]
    headroom_shares: Mapping[ResourceName, HeadroomShares]
    user_minimum_grants: UserMinimumGrants
    trimmed: ContainerSizeColumns
    sizes_to_write: ContainerSizeColumns
    decisions: SizeDecisions
    damping: WriteDamping | None = None
    damped_sizes: DampedSizes | None = None
    urgency: ResizeUrgencyColumn | None = None

    @property
    def rightsized(self) -> BoolArray:
        """Tell for each pod whether its sizes are written."""
        return np.asarray(self.decisions == SizeDecision.RIGHTSIZED)

    @property
    def memory_leak_suspected(self) -> BoolArray:
        """Tell for each container whether its memory only grows, towards a limit that does not follow."""
        table = self.columns.table
        if table.ceilings is None:
            return np.zeros(len(table.rows), dtype=np.bool_)
        return detect_memory_leaks(table.limit_demand, self.sizes_to_write.memory_limit_bytes) & table.memory.managed

    def growth(self, resource: ResourceName) -> Int64Array:
        """Return what each pod's requests, as kube-scheduler counts them, would rise by; 0 where they fall or stay."""
        sums = self.columns.candidates.sum_by_pod(resource, self.sizes_to_write.from_table(resource))
        more = np.maximum(sums - self.columns.counted[resource], 0)
        return np.where(self.columns.candidates.manages[resource], more, 0)


def size_nodes(
    columns: NodePodColumns,
    fit: NodeFit,
    headroom: HeadroomModel,
    refusals: ResizeRefusals = NO_RESIZE_REFUSALS,
    calm: WriteDamping | None = None,
) -> SizingResult:
    """Size all containers of all nodes; without `calm` whatever leaves its dead band is written."""
    sums = {one: sum_node_needs(columns, fit, headroom, one) for one in ResourceName}
    shares = {one: share_headroom(columns, fit, sums[one].shared, one) for one in ResourceName}
    requests: Sizes = {one: shares[one].clamped.copy() for one in ResourceName}
    trim_to_capacity(columns, fit, requests)
    grants = grant_user_minimums(columns, fit, requests, get_node_limit_ceilings(columns))
    trimmed = _with_limits(columns, requests)
    needed = {one: _needed(columns, one, requests[one], shares[one], grants) for one in ResourceName}
    chosen = _choose(columns, fit, Targets(requests, needed), refusals, calm)
    requests, written, causes = chosen.requests, chosen.written, chosen.causes
    while cut := trim_growth_to_capacity(
        columns, fit, requests := _copied(requests), causes == SizeDecision.RIGHTSIZED, grants.sizes_before
    ):
        written = _with_limits(columns, requests)
        causes = _causes_after_cut(columns, written, causes, cut, refusals)
    return SizingResult(
        columns, fit, sums, shares, grants, trimmed, written, causes, calm, chosen.writes, chosen.reason
    )


@dataclass(frozen=True, slots=True)
class _SizesToWrite:
    """What is written of the way to the targets, as far as quotas let it."""

    requests: Sizes
    written: ContainerSizeColumns
    causes: SizeDecisions
    writes: DampedSizes | None = None
    reason: ResizeUrgencyColumn | None = None


def _needed(
    columns: NodePodColumns,
    resource: ResourceName,
    targets: Int64Array,
    shares: HeadroomShares,
    grants: UserMinimumGrants,
) -> Int64Array:
    """Return the targets without what a LimitRange alone makes a container grow by."""
    demand, stated = columns.table.get_resource(resource), columns.candidates.stated_least[resource]
    granted = targets - grants.sizes_before.get(resource, targets)
    alone = np.clip(np.maximum(shares.rounded, stated) + granted, demand.current, np.maximum(targets, demand.current))
    return np.where((demand.lower > stated) & (targets > demand.current), alone, targets)


def _choose(
    columns: NodePodColumns, fit: NodeFit, targets: Targets, refusals: ResizeRefusals, calm: WriteDamping | None
) -> _SizesToWrite:
    """Choose what is written; what quotas take back of a pod's growth is chosen among the other pods of its node."""
    whole = targets.with_limit_ranges
    most: Sizes = whole if calm is None else {one: np.full_like(values, _NO_BOUND) for one, values in whole.items()}
    cut: set[int] = set()
    while True:
        writes = why = None
        requests, written = whole, _with_limits(columns, whole)
        if calm is not None:
            writes = choose_sizes_to_write(columns, fit, targets, calm, most)
            requests = _copied(writes.requests)
            written = _with_limits(columns, requests)
            why = _why_of_pods(columns, writes, written)
            written = _left_alone(columns, written, why == ResizeUrgency.UNCHANGED)
        causes = decide_size_changes(columns.table, written, fit.remains, refusals)
        release_user_minimums(columns, fit, requests, causes)
        if columns.table.quotas is None:
            return _SizesToWrite(requests, written, causes, writes, why)
        left = _copied(requests)
        now_cut = trim_growth_to_quotas(
            columns.table, columns.counted, left, causes == SizeDecision.RIGHTSIZED, fit.pending_replacements
        )
        cut.update(now_cut)
        if not now_cut or calm is None:
            break
        bounds = {one: np.where(left[one] < requests[one], left[one], most[one]) for one in most}
        if all(np.array_equal(bounds[one], most[one]) for one in most):
            break
        most = bounds
    written = _with_limits(columns, left)
    causes = _causes_after_cut(columns, written, causes, sorted(cut), refusals, SizeDecision.QUOTA)
    causes[(causes == SizeDecision.NO_CHANGE_NEEDED) & columns.table.quotas.withholds_growth] = SizeDecision.QUOTA
    return _SizesToWrite(left, written, causes, writes, why)


def _why_of_pods(columns: NodePodColumns, writes: DampedSizes, written: ContainerSizeColumns) -> ResizeUrgencyColumn:
    """Return the most urgent cause of each pod's containers; a limit that use is near is one as well."""
    table = columns.table
    near = table.memory.managed & (table.memory_limit > 0) & (table.limit_demand.minimum_safe > table.memory_limit)
    near &= written.memory_limit_bytes > table.memory_limit
    near |= table.cpu.managed & (written.cpu_limit_millicores > table.cpu_limit)
    of_limits = np.where(near, np.int8(ResizeUrgency.USAGE_NEAR_LIMIT), np.int8(ResizeUrgency.UNCHANGED))
    found: ResizeUrgencyColumn = np.maximum.reduce([of_limits, *writes.urgency.values()])
    if found.size:
        found = np.maximum.reduceat(found, columns.candidates.first_container)
    return found


def _left_alone(columns: NodePodColumns, sizes: ContainerSizeColumns, alone: BoolArray) -> ContainerSizeColumns:
    """Return sizes that are what they are now for the pods that are left alone."""
    table, there = columns.table, alone[columns.candidates.pod_of]
    return ContainerSizeColumns(
        np.where(there, table.cpu.current, sizes.cpu_millicores),
        np.where(there, table.memory.current, sizes.memory_bytes),
        np.where(there, table.memory_limit, sizes.memory_limit_bytes),
        np.where(there, table.cpu_limit, sizes.cpu_limit_millicores),
    )


def _copied(requests: Sizes) -> dict[ResourceName, Int64Array]:
    return {one: values.copy() for one, values in requests.items()}


def _causes_after_cut(
    columns: NodePodColumns,
    sizes: ContainerSizeColumns,
    causes: SizeDecisions,
    cut: list[int],
    refusals: ResizeRefusals,
    settled: SizeDecision = SizeDecision.WAITING_FOR_CAPACITY,
) -> SizeDecisions:
    among = np.zeros(len(causes), dtype=np.bool_)
    among[cut] = True
    again = decide_size_changes(columns.table, sizes, among, refusals)
    again[again == SizeDecision.NO_CHANGE_NEEDED] = settled
    return np.where(among, again, causes)


def _with_limits(columns: NodePodColumns, requests: Sizes) -> ContainerSizeColumns:
    cpu, memory = requests[ResourceName.CPU], requests[ResourceName.MEMORY]
    return ContainerSizeColumns(cpu, memory, _memory_limits(columns, memory), _cpu_limits(columns, cpu))


def _memory_limits(columns: NodePodColumns, memory: Int64Array) -> Int64Array:
    table = columns.table
    most = columns.candidates.get_max_limit(ResourceName.MEMORY, memory)
    lowers = np.array([supports_lowering_memory_limits(node) for node in columns.nodes], dtype=np.bool_)[
        columns.node_of
    ]
    terms = None
    if table.minimum_limit is not None:
        candidates = columns.candidates
        adds, keeps = candidates.adds_limit[ResourceName.MEMORY], candidates.keeps_memory_limit
        terms = MemoryLimitTerms(table.minimum_limit[ResourceName.MEMORY], adds, keeps)
    limits = compute_memory_limits(
        table.limit_demand, table.memory_limit, memory, most, lowers, get_node_limit_ceilings(columns), terms
    )
    limits = _within_pod_ranges(columns, ResourceName.MEMORY, memory, limits, most)
    return np.where(table.memory.managed & ~_stay(columns, ResourceName.MEMORY), limits, table.memory_limit)


def _within_pod_ranges(
    columns: NodePodColumns, resource: ResourceName, requests: Int64Array, limits: Int64Array, most: Int64Array
) -> Int64Array:
    """Return limits whose sums over a pod are within the LimitRanges of type Pod, where they can be."""
    candidates, table = columns.candidates, columns.table
    if not candidates.pod_ranges or table.minimum_limit is None:
        return limits
    current = table.memory_limit if resource is ResourceName.MEMORY else table.cpu_limit
    least = np.where(current > 0, np.minimum(table.minimum_limit[resource], current), table.minimum_limit[resource])
    limits = limits.copy()
    for index, ranges in candidates.pod_ranges.items():
        if resource in ranges:
            first = int(candidates.first_container[index])
            at = slice(first, first + len(candidates.pods[index].sized))
            own = (column[at].tolist() for column in (requests, least, limits, most))
            limits[at] = ranges[resource].limits(*own)
    return limits


def get_node_limit_ceilings(columns: NodePodColumns) -> MemoryLimitCeilings | None:
    """Return how far memory limits may rise on the nodes that the containers are on, None where anything goes."""
    if columns.table.ceilings is None:
        return None
    memory = convert_to_int64([node.allocatable.memory_bytes for node in columns.nodes])
    return columns.table.ceilings.for_nodes(memory[columns.node_of])


def _cpu_limits(columns: NodePodColumns, cpu: Int64Array) -> Int64Array:
    """Return the CPU limit of each container: what the node has, where there is or must be one; 0 for none.

    It cannot be removed in place. A limit above the node's CPU limits nothing, and stays.
    """
    table = columns.table
    whole = convert_to_int64([node.allocatable.cpu_millicores for node in columns.nodes])[columns.node_of]
    most = columns.candidates.get_max_limit(ResourceName.CPU, cpu)
    raised = np.maximum(np.minimum(np.maximum(whole, table.cpu_limit), most), cpu)
    if table.minimum_limit is not None:
        least = table.minimum_limit[ResourceName.CPU]
        raised = np.maximum(raised, np.where(table.cpu_limit > 0, np.minimum(least, table.cpu_limit), least))
    there = (table.cpu_limit > 0) | (columns.candidates.adds_limit[ResourceName.CPU] & (cpu > 0))
    raised = _within_pod_ranges(columns, ResourceName.CPU, cpu, np.where(there, raised, 0), most)
    rises = table.cpu.managed & there & ~_stay(columns, ResourceName.CPU)
    return np.where(rises, raised, table.cpu_limit)


def keeps_limit(columns: NodePodColumns, resource: ResourceName, at: int) -> bool:
    """Tell whether one container's limit is left as it is, since a quota counts it."""
    quotas = columns.table.quotas
    return quotas is not None and bool(quotas.keeps_limits[resource][at])


def _stay(columns: NodePodColumns, resource: ResourceName) -> BoolArray:
    """Tell for each container whether its limit is left as it is, since a quota counts it."""
    quotas = columns.table.quotas
    return np.zeros(len(columns.node_of), dtype=np.bool_) if quotas is None else quotas.keeps_limits[resource]
