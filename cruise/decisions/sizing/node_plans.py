"""One node pass as a pure function: which pods are evicted, and what every other container should request."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

import numpy as np

from cruise.decisions.eviction.destinations import PodPredictor, ReplacementDestinations, SpareCapacity
from cruise.decisions.eviction.ranking import ASSUME_UNCHANGED, EarlierPassResults
from cruise.decisions.pod_policy.eligibility import Eligibility
from cruise.decisions.pod_policy.policy_objects import PolicyIndex
from cruise.decisions.pod_policy.resizable_pod import has_working_kubelet, mark_nodes_that_refuse_resizes
from cruise.decisions.sizing.container_sizes import PlannedContainerSize, PlannedContainerSizes
from cruise.decisions.sizing.damping import ResizeUrgency
from cruise.decisions.sizing.demand import build_demand_table
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
from cruise.decisions.sizing.guaranteed import apply_guaranteed_sizes, limit_guaranteed_growth
from cruise.decisions.sizing.headroom import SHARED_MAX_HEADROOM, HeadroomModel
from cruise.decisions.sizing.headroom_shares import HeadroomShares
from cruise.decisions.sizing.node_columns import (
    NodeCapacities,
    NodeCapacity,
    NodePodColumns,
    build_node_capacities,
    split_by_resource,
)
from cruise.decisions.sizing.node_sizes import SizingResult, find_suspected_leaks, size_nodes
from cruise.decisions.sizing.quota_bounds import limit_demand_to_quotas
from cruise.decisions.sizing.resizes import (
    ResizeBlockers,
    SizeDecision,
    build_resize,
    is_refusal_outdated,
    withdraw_pending_resize,
)
from cruise.decisions.sizing.user_minimums import count_protected_pods_at_submitted_requests
from cruise.domain.actions import EvictPod, ReasonCode, RefusedResize, ResizePod, SkippedPod
from cruise.domain.arrays import Int64Array, convert_to_int64
from cruise.domain.cluster import ClusterSnapshot
from cruise.domain.overrides import NO_PAUSED_WORKLOADS, PausedWorkloads
from cruise.domain.policy import Policy
from cruise.domain.resources import NO_RESOURCES, ResourceName, Resources
from cruise.domain.usage import StatisticsTable

_SKIP_REASONS = {
    SizeDecision.REFUSED: ReasonCode.RESIZE_REFUSED,
    SizeDecision.LIMIT_RANGE: ReasonCode.LIMIT_RANGE,
    SizeDecision.QOS_CHANGE: ReasonCode.QOS_CHANGE,
    SizeDecision.WAITING_FOR_CAPACITY: ReasonCode.WAITING_FOR_CAPACITY,
    SizeDecision.QUOTA: ReasonCode.QUOTA_EXCEEDED,
}


# Predicts the replacements of evicted pods for one snapshot.
ReplacementPredictor = Callable[[ClusterSnapshot, Eligibility, StatisticsTable, Policy], PodPredictor | None]


@dataclass(frozen=True, slots=True)
class NodePlan:
    """What to do on one node.

    `fits`: whether the bases and the largest headroom of the remaining pods fit `available`; if they do not, the pods
    share what there is, bases first, and `reason` is `overcommitted` if no eviction would help, else `under-pressure`.
    It is `node-not-ready`, whether they fit or not, if the node's kubelet would not act. `shortages` are the resources
    that the node lacked before evictions, `eviction_pressure` those of them for which pods are evicted if the next pass
    finds the same. `evict` is in marking order, `resize` has decreases first; `targets` and `skipped` are sorted by
    namespace, pod and container. `base` and `headroom` are the sums of the remaining pods, `headroom_by_pod` the sum of
    their containers' own headrooms (zero where headroom is shared by base). `counted` is what kube-scheduler counts on
    the node now. `suspected_leaks` are pods whose memory use only grows, towards a limit that does not follow.
    `over_requested` and `under_requested` (pod uid, container) are the conditions of this pass.
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

    @property
    def is_full(self) -> bool:
        """Whether its pods need more than it has."""
        return bool(self.evict) or self.reason in (ReasonCode.OVERCOMMITTED, ReasonCode.UNDER_PRESSURE)

    @property
    def has_working_kubelet(self) -> bool:
        """Whether the node is ready and reports what it has."""
        return self.reason is not ReasonCode.NODE_NOT_READY


@dataclass(frozen=True, slots=True)
class SizingContext:
    """What a pass takes from earlier passes and from outside the snapshot.

    `refused` holds the rejected resizes by pod uid. `replacements` is None where evictions need no destination.
    """

    refused: Mapping[str, RefusedResize] = field(default_factory=dict)
    headroom: HeadroomModel = SHARED_MAX_HEADROOM
    earlier: EarlierPassResults = ASSUME_UNCHANGED
    replacements: ReplacementPredictor | None = None


@dataclass(frozen=True, slots=True)
class SizedNodes:
    """The sizes that a pass computed, step by step in columns, its nodes' capacities, and the contended nodes."""

    capacities: Sequence[NodeCapacity]
    result: SizingResult
    contended: ContendedNodes = field(default_factory=dict)


def decide_node_plans(
    snapshot: ClusterSnapshot,
    statistics: StatisticsTable,
    policy: Policy,
    now: datetime,
    *,
    paused_workloads: PausedWorkloads = NO_PAUSED_WORKLOADS,
    refused: Mapping[str, RefusedResize] | None = None,
    nodes: frozenset[str] | None = None,
    headroom: HeadroomModel = SHARED_MAX_HEADROOM,
    earlier: EarlierPassResults = ASSUME_UNCHANGED,
    replacements: ReplacementPredictor | None = None,
    policy_index: PolicyIndex | None = None,
) -> list[NodePlan]:
    """Decide the plan of every node of a snapshot, or only of `nodes`; sorted by node name.

    `headroom` must be prepared for the rows of `statistics`. Without `replacements` every evicted pod is assumed to
    find another node. `policy_index` is that of an earlier snapshot, used again if nothing changed.
    """
    snapshot = mark_nodes_that_refuse_resizes(snapshot, refused or {})
    eligibility = Eligibility(snapshot, statistics, paused_workloads, policy, now, policy_index)
    context = SizingContext(refused or {}, headroom, earlier, replacements)
    sizing = size_cluster(snapshot, eligibility, policy, now, context, nodes)
    return build_node_plans(sizing, policy, refused or {}, now)


def size_cluster(
    snapshot: ClusterSnapshot,
    eligibility: Eligibility,
    policy: Policy,
    now: datetime,
    context: SizingContext,
    nodes: frozenset[str] | None = None,
) -> SizedNodes:
    """Compute the sizes of the resizable pods of a snapshot, or only of `nodes`, by the statistics of `eligibility`."""
    capacities = build_node_capacities(snapshot, eligibility, nodes)
    counted = {
        ResourceName.CPU: convert_to_int64(capacities.own_cpu),
        ResourceName.MEMORY: convert_to_int64(capacities.own_memory),
    }
    statistics = eligibility.statistics
    table = build_demand_table(capacities.resizable_pods, statistics, snapshot.limit_ranges, policy)
    table = apply_guaranteed_sizes(table, statistics, policy)
    demand_columns = NodePodColumns(
        nodes=[capacity.node for capacity in capacities.by_node],
        available=split_by_resource([capacity.available for capacity in capacities.by_node]),
        node_of_pod=np.array(capacities.capacity_by_pod, dtype=np.int64),
        counted=counted,
        table=limit_demand_to_quotas(table, counted, snapshot.quotas)
        if policy.rules.quotas and snapshot.quotas
        else table,
    )
    demand_columns = limit_guaranteed_growth(demand_columns)

    def find_contended(
        columns: NodePodColumns, shortages: Mapping[int, frozenset[ResourceName]]
    ) -> tuple[ContendedNodes, ReplacementDestinations | None]:
        if not shortages:
            return {}, None
        predict = context.replacements
        predictions = None if predict is None else predict(snapshot, eligibility, statistics, policy)
        destinations = (
            None
            if predictions is None
            else ReplacementDestinations(snapshot, predictions, _compute_spare_capacity(columns, capacities.by_node))
        )
        contention = ContentionContext(
            cpu_demand=_compute_cpu_demand(columns, capacities.by_node, shortages, statistics),
            earlier=context.earlier,
            fixed_pods={node: capacities.by_node[node].fixed_pods for node in shortages},
            destinations=None if destinations is None else destinations.get_for_node,
        )
        return find_contended_nodes(columns, eligibility, policy.rules, contention, shortages), destinations

    shortages = find_shortages(demand_columns)
    contended, destinations = find_contended(demand_columns, shortages)
    with_candidates = [node for node, one in contended.items() if one.has_candidates]
    columns = count_protected_pods_at_submitted_requests(demand_columns, with_candidates)
    if columns is not demand_columns:
        shortages = find_shortages(columns)
        contended, destinations = find_contended(columns, shortages)
    fit = decide_node_fit(columns, contended, shortages)
    if destinations is not None and fit.evicted:
        reserved = destinations.get_reserved_capacity()
        evicted = [one.index for marked in fit.evicted.values() for one in marked]
        fit = replace(
            fit,
            reserved_for_replacements={
                at: reserved[one.name] for at, one in enumerate(columns.nodes) if one.name in reserved
            },
            pending_replacements={
                at: destinations.get_replacement_requests(columns.candidates.pods[at].pod) for at in evicted
            },
        )
    blockers = ResizeBlockers(snapshot.limit_ranges, _select_valid_refusals(capacities, context.refused, policy, now))
    damping = build_write_damping(columns, context.earlier, context.headroom, policy, now, statistics.revisions)
    sized = size_nodes(columns, fit, context.headroom, blockers, damping)
    return SizedNodes(capacities.by_node, sized, contended)


def _select_valid_refusals(
    capacities: NodeCapacities, refused: Mapping[str, RefusedResize], policy: Policy, now: datetime
) -> Mapping[str, RefusedResize]:
    """Return the refusals that are still valid."""
    valid = dict(refused)
    for resizable, number in zip(capacities.resizable_pods, capacities.capacity_by_pod, strict=True) if refused else ():
        pod, capacity = resizable.pod, capacities.by_node[number]
        earlier = refused.get(pod.uid)
        if earlier is None:
            continue
        free_capacity = capacity.get_available_without(pod)
        if is_refusal_outdated(earlier, free_capacity, capacity.node.allocatable, policy, now):
            del valid[pod.uid]
    return valid


def _compute_cpu_demand(
    columns: NodePodColumns, capacities: Sequence[NodeCapacity], shortages: Iterable[int], statistics: StatisticsTable
) -> Int64Array:
    """Return the P75 CPU demand of each node's resizable pods; of fixed pods only on nodes with shortages."""
    demand = columns.sum_containers_by_node(statistics.cpu_base_millicores[columns.table.rows]).astype(np.int64)
    for node in shortages:
        for pod in capacities[node].fixed_pods:
            for container in () if pod.is_finished else pod.sized_containers:
                row = statistics.find_row(pod.namespace, pod.name, pod.workload, container.name, pod.identity)
                demand[node] += 0 if row is None else int(statistics.cpu_base_millicores[row])
    return demand


def _compute_spare_capacity(columns: NodePodColumns, capacities: Sequence[NodeCapacity]) -> dict[str, SpareCapacity]:
    """Return what each node can give to more pods: CPU beyond the bases, memory beyond bases and headroom."""
    cpu, memory = (columns.available[resource] - columns.base_by_node[resource] for resource in ResourceName)
    by_node = {}
    for capacity, *amounts in zip(
        capacities,
        cpu.tolist(),
        memory.tolist(),
        columns.largest_headroom_by_node[ResourceName.MEMORY].tolist(),
        strict=True,
    ):
        free, (spare_cpu, spare_memory, largest_headroom) = (
            capacity.node.allocatable - capacity.counted_requests,
            amounts,
        )
        at_most = free.max_with(Resources(spare_cpu, spare_memory))
        by_node[capacity.node.name] = SpareCapacity(
            free, Resources(spare_cpu, spare_memory - largest_headroom), at_most
        )
    return by_node


def build_node_plans(
    sizing: SizedNodes, policy: Policy, refused: Mapping[str, RefusedResize], now: datetime
) -> list[NodePlan]:
    """Return what to do on each node of `sizing.capacities`, which may be a part of the nodes that were sized."""
    resizes, skipped = _build_resizes(sizing, policy, refused, now)
    suspected_leaks, under_requested = (
        find_suspected_leaks(sizing.result),
        find_under_requested_containers(sizing.result),
    )
    return [
        _build_plan(capacity, sizing.result, resizes, skipped, suspected_leaks, under_requested)
        for capacity in sizing.capacities
    ]


_CAUSES = {int(urgency): urgency.resize_cause for urgency in ResizeUrgency}


def _build_resizes(
    sizing: SizedNodes, policy: Policy, refused: Mapping[str, RefusedResize], now: datetime
) -> tuple[list[ResizePod | None], list[SkippedPod | None]]:
    """Return for each pod its resize, or why it is skipped; both None if it does not change or is not included."""
    sized = sizing.result
    table = sized.columns.table
    is_included = np.zeros(len(sized.columns.nodes), dtype=np.bool_)
    is_included[[capacity.number for capacity in sizing.capacities]] = True
    is_included = is_included[sized.columns.node_of_pod]
    resizes: list[ResizePod | None] = [None] * len(table.candidates.pods)
    skipped: list[SkippedPod | None] = [None] * len(table.candidates.pods)
    for index in np.flatnonzero(is_included & (sized.decisions > SizeDecision.RIGHTSIZED)).tolist():
        decision, resizable = SizeDecision(int(sized.decisions[index])), table.candidates.pods[index]
        if decision is SizeDecision.RESIZING:
            resizes[index], skipped[index] = withdraw_pending_resize(resizable, policy, refused, now)
        elif decision is not SizeDecision.EVICTED:
            skipped[index] = SkippedPod(resizable.pod.namespace, resizable.pod.name, _SKIP_REASONS[decision])
    written = is_included & sized.rightsized
    indices = np.flatnonzero(written)
    growth_cpu, growth_memory = (sized.compute_growth(resource)[indices].tolist() for resource in ResourceName)
    causes = (
        [None] * len(indices)
        if sized.urgency is None
        else [_CAUSES[urgency] for urgency in sized.urgency[indices].tolist()]
    )
    for index, targets, cpu, memory, cause in zip(
        indices.tolist(),
        sized.sizes_to_write.to_targets(table, written),
        growth_cpu,
        growth_memory,
        causes,
        strict=True,
    ):
        growth, pod = Resources(cpu, memory) if cpu or memory else NO_RESOURCES, table.candidates.pods[index].pod
        resizes[index] = build_resize(pod, targets, growth, ReasonCode.RIGHTSIZED, cause)
    return resizes, skipped


def _sum_own_headroom(shares: HeadroomShares, node: int) -> int:
    return 0 if shares.by_base[node] else int(shares.total[node])


def _build_plan(
    capacity: NodeCapacity,
    sized: SizingResult,
    resizes: Sequence[ResizePod | None],
    skipped: Sequence[SkippedPod | None],
    suspected_leaks: Mapping[int, Sequence[SkippedPod]],
    under_requested: Mapping[int, Sequence[tuple[str, str, ResourceName]]],
) -> NodePlan:
    node, table, pods = capacity.number, sized.columns.table, sized.columns.get_pods_on_node(capacity.number)
    cpu, memory = sized.node_needs[ResourceName.CPU], sized.node_needs[ResourceName.MEMORY]
    own_resizes = [resize for resize in map(resizes.__getitem__, pods) if resize is not None]
    # The pods of a node are sorted by name; a stable sort keeps that order.
    own_resizes.sort(key=lambda resize: resize.needs_capacity)
    own_skipped = [*capacity.skipped_pods, *(one for one in map(skipped.__getitem__, pods) if one is not None)]
    fits = all(bool(fits[node]) for fits in sized.fit.fits.values())
    reason = None
    if not has_working_kubelet(capacity.node):
        reason = ReasonCode.NODE_NOT_READY
    elif not fits:
        reason = ReasonCode.OVERCOMMITTED if node in sized.fit.unfit else ReasonCode.UNDER_PRESSURE
    return NodePlan(
        node=capacity.node.name,
        fits=fits,
        reason=reason,
        available=capacity.available,
        base=Resources(int(cpu.base[node]), int(memory.base[node])),
        headroom=Resources(int(cpu.headroom[node]), int(memory.headroom[node])),
        counted=capacity.counted_requests,
        allocatable=capacity.node.allocatable,
        evict=tuple(one.to_action(table.candidates.pods[one.index].pod) for one in sized.fit.evicted.get(node, ())),
        targets=PlannedContainerSizes(sized, pods),
        resize=tuple(own_resizes),
        skipped=tuple(sorted(own_skipped, key=lambda one: (one.namespace, one.pod))),
        suspected_leaks=tuple(suspected_leaks.get(node, ())),
        headroom_by_pod=Resources(*(_sum_own_headroom(sized.headroom_shares[one], node) for one in ResourceName)),
        shortages=sized.fit.shortages.get(node, frozenset()),
        eviction_pressure=sized.fit.eviction_pressure.get(node, frozenset()),
        over_requested=find_over_requested_resources(sized, node),
        under_requested=tuple(under_requested.get(node, ())),
    )
