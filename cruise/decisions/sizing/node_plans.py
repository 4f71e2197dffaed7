"""One pass over nodes: what fits, which pods must go, what every other container gets, and what is done about it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

import numpy as np

from cruise.decisions.eviction.destinations import PodPredictions, ReplacementDestinations, SpareCapacity
from cruise.decisions.eviction.ranking import ASSUME_UNCHANGED, EarlierPasses
from cruise.decisions.pod_policy.eligibility import Eligibility
from cruise.decisions.sizing.container_sizes import PlannedContainerSize, PlannedContainerSizes
from cruise.decisions.sizing.damping import ResizeUrgency
from cruise.decisions.sizing.earlier_passes import (
    build_write_damping,
    find_over_requested_resources,
    find_under_requested_containers,
)
from cruise.decisions.sizing.fitting import (
    ContendedNodes,
    ContentionContext,
    decide_node_fit,
    find_contended_nodes,
    find_shortages,
)
from cruise.decisions.sizing.headroom import SHARED_MAX_HEADROOM, HeadroomModel
from cruise.decisions.sizing.node_columns import (
    NodeCapacities,
    NodeCapacity,
    NodePodColumns,
    build_node_capacities,
    split_into_columns,
)
from cruise.decisions.sizing.node_sizes import SizingResult, size_nodes
from cruise.decisions.sizing.quota_bounds import limit_demand_to_quotas
from cruise.decisions.sizing.recommendation import build_demand_table
from cruise.decisions.sizing.resizes import ResizeRefusals, SizeDecision, is_refusal_outdated, withdraw_pending_resize
from cruise.decisions.sizing.sharing import HeadroomShares
from cruise.decisions.sizing.user_minimums import count_at_submitted_requests
from cruise.domain.actions import EvictPod, ReasonCode, RefusedResize, ResizePod, SkippedPod
from cruise.domain.cluster import ClusterSnapshot
from cruise.domain.overrides import StoredOverrides
from cruise.domain.policy import Policy
from cruise.domain.resources import NO_RESOURCES, Int64Array, ResourceName, Resources, convert_to_int64
from cruise.domain.usage import StatisticsTable

_HELD = {
    SizeDecision.REFUSED: ReasonCode.RESIZE_REFUSED,
    SizeDecision.LIMIT_RANGE: ReasonCode.LIMIT_RANGE,
    SizeDecision.QOS_CHANGE: ReasonCode.QOS_CHANGE,
    SizeDecision.WAITING_FOR_CAPACITY: ReasonCode.WAITING_FOR_CAPACITY,
    SizeDecision.QUOTA: ReasonCode.QUOTA_EXCEEDED,
}


# What finds the replacements of evicted pods, for one snapshot; None where evictions need not know them.
ReplacementPredictor = Callable[[ClusterSnapshot, Eligibility, StatisticsTable, Policy], PodPredictions | None]


@dataclass(frozen=True, slots=True)
class NodePlan:
    """What to do on one node.

    `fits` tells whether the surviving pods' bases and the largest headroom fit `available`; of what does not fit they
    share what there is, the bases first, and `reason` is `oversubscribed` where no eviction would mend it, `crowded`
    where none is due. `short` is what the node was short of before anyone goes, and `pressing` what of it
    evictions mend if the next pass finds it again. `evict` is in marking order, `resize`
    has the shrinks first, `targets` and `hold` are sorted by namespace, pod, container. `base` and `headroom` are those
    of the survivors, `growing` are pods whose memory only grows, towards a limit that does not follow, whatever else is
    done about them; `own_headrooms` is the sum of what each of their containers has by itself, zero where headroom is
    not shared by it. `counted` is what kube-scheduler counts on the node now. `above` has the resources whose sum is
    above its band, and `below` the containers, by uid and name, whose bases are above their requests.
    """

    node: str
    fits: bool
    reason: ReasonCode | None
    available: Resources
    base: Resources
    headroom: Resources
    counted: Resources
    allocatable: Resources
    evict: tuple[EvictPod, ...] = ()
    targets: Sequence[PlannedContainerSize] = ()
    headroom_by_pod: Resources = NO_RESOURCES
    resize: tuple[ResizePod, ...] = ()
    skipped: tuple[SkippedPod, ...] = ()
    shortages: frozenset[ResourceName] = frozenset()
    eviction_pressure: frozenset[ResourceName] = frozenset()
    suspected_leaks: tuple[SkippedPod, ...] = ()
    over_requested: frozenset[ResourceName] = frozenset()
    under_requested: tuple[tuple[str, str, ResourceName], ...] = ()


@dataclass(frozen=True, slots=True)
class NodeSizing:
    """What a pass sized: the rooms of the nodes, the crowded ones' pods, and every step of the sizes in columns."""

    capacities: Sequence[NodeCapacity]
    sized: SizingResult
    contended: ContendedNodes = field(default_factory=dict)


def decide_node_plans(
    snapshot: ClusterSnapshot,
    statistics: StatisticsTable,
    policy: Policy,
    now: datetime,
    *,
    stored: StoredOverrides | None = None,
    refused: Mapping[str, RefusedResize] | None = None,
    nodes: frozenset[str] | None = None,
    headroom: HeadroomModel = SHARED_MAX_HEADROOM,
    earlier: EarlierPasses = ASSUME_UNCHANGED,
    replacements: ReplacementPredictor | None = None,
) -> list[NodePlan]:
    """Decide every node of a snapshot, or only `nodes`; sorted by node name.

    `headroom` is prepared for the rows of `statistics`. `earlier` is what the pass before saw. Without `replacements`
    every evicted pod is taken to have somewhere to go.
    """
    eligibility = Eligibility(snapshot, statistics, stored or {}, policy, now)
    found = size_cluster(
        snapshot,
        eligibility,
        statistics,
        policy,
        now,
        refused=refused,
        nodes=nodes,
        headroom=headroom,
        earlier=earlier,
        replacements=replacements,
    )
    return build_node_plans(found, policy, refused or {}, now)


def size_cluster(
    snapshot: ClusterSnapshot,
    eligibility: Eligibility,
    statistics: StatisticsTable,
    policy: Policy,
    now: datetime,
    *,
    refused: Mapping[str, RefusedResize] | None = None,
    nodes: frozenset[str] | None = None,
    headroom: HeadroomModel = SHARED_MAX_HEADROOM,
    earlier: EarlierPasses = ASSUME_UNCHANGED,
    replacements: ReplacementPredictor | None = None,
) -> NodeSizing:
    """Put the touchable pods of a snapshot, or of some `nodes`, into columns, and size them."""
    rooms = build_node_capacities(snapshot, eligibility, nodes)
    counted = {
        ResourceName.CPU: convert_to_int64(rooms.own_cpu),
        ResourceName.MEMORY: convert_to_int64(rooms.own_memory),
    }
    table = build_demand_table(rooms.resizable_pods, statistics, snapshot.limit_ranges, policy)
    demanded = NodePodColumns(
        nodes=[room.node for room in rooms.by_node],
        available=split_into_columns([room.available for room in rooms.by_node]),
        node_of_pod=np.array(rooms.capacity_by_pod, dtype=np.int64),
        counted=counted,
        table=limit_demand_to_quotas(table, counted, snapshot.quotas)
        if policy.rules.quotas and snapshot.quotas
        else table,
    )

    def crowds_at(
        columns: NodePodColumns, short: Mapping[int, frozenset[ResourceName]]
    ) -> tuple[ContendedNodes, ReplacementDestinations | None]:
        if not short:
            return {}, None
        prospects = replacements(snapshot, eligibility, statistics, policy) if replacements is not None else None
        places = (
            None if prospects is None else ReplacementDestinations(snapshot, prospects, _spare(columns, rooms.by_node))
        )
        around = ContentionContext(
            cpu_demand=_cpu_demand(columns, rooms.by_node, short, statistics),
            earlier=earlier,
            fixed_pods={node: rooms.by_node[node].fixed_pods for node in short},
            destinations=None if places is None else places.for_node,
        )
        return find_contended_nodes(columns, eligibility, policy.rules, around, short), places

    short = find_shortages(demanded)
    crowds, places = crowds_at(demanded, short)
    columns = count_at_submitted_requests(demanded, [node for node, crowd in crowds.items() if crowd.has_candidates])
    if columns is not demanded:
        short = find_shortages(columns)
        crowds, places = crowds_at(columns, short)
    fit = decide_node_fit(columns, crowds, short)
    if places is not None and fit.evicted:
        promised, going = (
            places.get_reserved_capacity(),
            [one.index for marked in fit.evicted.values() for one in marked],
        )
        fit = replace(
            fit,
            reserved_for_replacements={
                at: promised[one.name] for at, one in enumerate(columns.nodes) if one.name in promised
            },
            pending_replacements={at: places.get_replacement_requests(columns.candidates.pods[at].pod) for at in going},
        )
    refusals = ResizeRefusals(snapshot.limit_ranges, _still_refused(rooms, refused or {}, policy, now))
    calm = build_write_damping(columns, earlier, policy, now)
    return NodeSizing(rooms.by_node, size_nodes(columns, fit, headroom, refusals, calm), crowds)


def _still_refused(
    rooms: NodeCapacities, refused: Mapping[str, RefusedResize], policy: Policy, now: datetime
) -> Mapping[str, RefusedResize]:
    """Return the refusals that still stand."""
    standing = dict(refused)
    for touchable, number in zip(rooms.resizable_pods, rooms.capacity_by_pod, strict=True) if refused else ():
        pod, room = touchable.pod, rooms.by_node[number]
        earlier = refused.get(pod.uid)
        if earlier is None:
            continue
        left = room.get_available_without(pod)
        if is_refusal_outdated(earlier, left, room.node.allocatable, policy, now):
            del standing[pod.uid]
    return standing


def _cpu_demand(
    columns: NodePodColumns, rooms: Sequence[NodeCapacity], short: Iterable[int], statistics: StatisticsTable
) -> Int64Array:
    """Return what the pods of each node demand of CPU at P75; those apart count on the nodes that are short alone."""
    demand = columns.sum_containers_by_node(statistics.cpu_base_millicores[columns.table.rows]).astype(np.int64)
    for node in short:
        for pod in rooms[node].fixed_pods:
            for container in () if pod.is_finished else pod.sized_containers:
                row = statistics.find(pod.namespace, pod.name, pod.workload, container.name, pod.identity)
                demand[node] += 0 if row is None else int(statistics.cpu_base_millicores[row])
    return demand


def _spare(columns: NodePodColumns, rooms: Sequence[NodeCapacity]) -> dict[str, SpareCapacity]:
    """Return what each node could give to more pods: of CPU beside the bases, of memory beside the headroom as well."""
    cpu, memory = (columns.available[resource] - columns.base_by_node[resource] for resource in ResourceName)
    found = {}
    for room, *beside in zip(
        rooms,
        cpu.tolist(),
        memory.tolist(),
        columns.largest_headroom_by_node[ResourceName.MEMORY].tolist(),
        strict=True,
    ):
        free, (of_cpu, of_memory, spike) = room.node.allocatable - room.counted_requests, beside
        at_most = free.at_least(Resources(of_cpu, of_memory))
        found[room.node.name] = SpareCapacity(free, Resources(of_cpu, of_memory - spike), at_most)
    return found


def build_node_plans(
    found: NodeSizing, policy: Policy, refused: Mapping[str, RefusedResize], now: datetime
) -> list[NodePlan]:
    """Return what to do on each node of `rooms`, which may be some of those that were sized."""
    resizes, holds = _resizes(found, policy, refused, now)
    growing, below = _growing(found.sized), find_under_requested_containers(found.sized)
    return [
        replace(
            _plan(room, found.sized, resizes, holds, growing),
            over_requested=find_over_requested_resources(found.sized, room.number),
            under_requested=tuple(below.get(room.number, ())),
        )
        for room in found.capacities
    ]


def _growing(sized: SizingResult) -> Mapping[int, Sequence[SkippedPod]]:
    """Return the pods whose memory only grows, by the index of their node."""
    columns, found = sized.columns, dict[int, list[SkippedPod]]()
    names: dict[int, list[str]] = {}
    for at in np.flatnonzero(sized.memory_leak_suspected).tolist():
        pod = int(columns.candidates.pod_of[at])
        container = columns.candidates.pods[pod].sized[at - int(columns.candidates.first_container[pod])]
        names.setdefault(pod, []).append(container.name)
    for index, containers in names.items():
        pod_there, node = columns.candidates.pods[index].pod, int(columns.node_of_pod[index])
        hold = SkippedPod(pod_there.namespace, pod_there.name, ReasonCode.MEMORY_LEAK_SUSPECTED, ", ".join(containers))
        found.setdefault(node, []).append(hold)
    return found


def _resizes(
    found: NodeSizing, policy: Policy, refused: Mapping[str, RefusedResize], now: datetime
) -> tuple[list[ResizePod | None], list[SkippedPod | None]]:
    """Return for each pod its resize, or why it is held back; both None where it is settled, evicted or elsewhere."""
    sized = found.sized
    table = sized.columns.table
    here = np.zeros(len(sized.columns.nodes), dtype=np.bool_)
    here[[room.number for room in found.capacities]] = True
    here = here[sized.columns.node_of_pod]
    resizes: list[ResizePod | None] = [None] * len(table.candidates.pods)
    holds: list[SkippedPod | None] = [None] * len(table.candidates.pods)
    for index in np.flatnonzero(here & (sized.decisions > SizeDecision.RIGHTSIZED)).tolist():
        cause, touchable = SizeDecision(int(sized.decisions[index])), table.candidates.pods[index]
        if cause is SizeDecision.RESIZING:
            resizes[index], holds[index] = withdraw_pending_resize(touchable, policy, refused, now)
        elif cause is not SizeDecision.EVICTED:
            holds[index] = SkippedPod(touchable.pod.namespace, touchable.pod.name, _HELD[cause])
    written = here & sized.rightsized
    indices = np.flatnonzero(written)
    growth_cpu, growth_memory = (sized.growth(resource)[indices].tolist() for resource in ResourceName)
    for index, targets, cpu, memory in zip(
        indices.tolist(), sized.sizes_to_write.to_targets(table, written), growth_cpu, growth_memory, strict=True
    ):
        growth, pod = Resources(cpu, memory) if cpu or memory else NO_RESOURCES, table.candidates.pods[index].pod
        resizes[index] = ResizePod(
            pod.namespace,
            pod.name,
            pod.uid,
            pod.node,
            pod.workload,
            targets,
            growth,
            ReasonCode.RIGHTSIZED,
            None if sized.urgency is None else ResizeUrgency(int(sized.urgency[index])).resize_cause,
        )
    return resizes, holds


def _own_headroom(shares: HeadroomShares, node: int) -> int:
    return 0 if shares.by_base[node] else int(shares.total[node])


def _plan(
    room: NodeCapacity,
    sized: SizingResult,
    resizes: Sequence[ResizePod | None],
    holds: Sequence[SkippedPod | None],
    growing: Mapping[int, Sequence[SkippedPod]],
) -> NodePlan:
    node, table, pods = room.number, sized.columns.table, sized.columns.get_pods_on_node(room.number)
    cpu, memory = sized.sums[ResourceName.CPU], sized.sums[ResourceName.MEMORY]
    own = [resize for resize in map(resizes.__getitem__, pods) if resize is not None]
    # The pods of a room are in the order of their names already, and sorting keeps it.
    own.sort(key=lambda resize: resize.needs_capacity)
    held = [*room.skipped_pods, *(hold for hold in map(holds.__getitem__, pods) if hold is not None)]
    fits = all(bool(fits[node]) for fits in sized.fit.fits.values())
    reason = ReasonCode.OVERCOMMITTED if node in sized.fit.unfit else ReasonCode.UNDER_PRESSURE
    return NodePlan(
        node=room.node.name,
        fits=fits,
        reason=None if fits else reason,
        available=room.available,
        base=Resources(int(cpu.base[node]), int(memory.base[node])),
        headroom=Resources(int(cpu.headroom[node]), int(memory.headroom[node])),
        counted=room.counted_requests,
        allocatable=room.node.allocatable,
        evict=tuple(one.to_action(table.candidates.pods[one.index].pod) for one in sized.fit.evicted.get(node, ())),
        targets=PlannedContainerSizes(sized, pods),
        resize=tuple(own),
        skipped=tuple(sorted(held, key=lambda hold: (hold.namespace, hold.pod))),
        suspected_leaks=tuple(growing.get(node, ())),
        headroom_by_pod=Resources(*(_own_headroom(sized.headroom_shares[one], node) for one in ResourceName)),
        shortages=sized.fit.shortages.get(node, frozenset()),
        eviction_pressure=sized.fit.eviction_pressure.get(node, frozenset()),
    )
