"""Builds a packing problem from a cluster snapshot."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from operator import attrgetter

import numpy as np

from cruise.decisions.packing.movability import MovabilityCheck
from cruise.decisions.packing.node_masks import NodeMasks, PlacementObstacle
from cruise.decisions.packing.pod_classes import ClassRuleBuilder, build_group_signatures, build_pod_classes
from cruise.decisions.packing.pod_groups import (
    AllowedNodeMasks,
    PodGroups,
    find_most_shared_volumes,
    get_extra_resources,
    group_pods,
    has_nominated_node,
)
from cruise.decisions.packing.pod_rules import apply_eviction_limits, find_pod_rules, get_max_evictions_by_node
from cruise.decisions.packing.resources import (
    ATTACH_PREFIX,
    build_amounts_table,
    build_capacity_table,
    list_scarce_resources,
    select_amounts_by_name,
    subtract_nominated_capacity,
)
from cruise.decisions.pod_policy.eligibility import Eligibility
from cruise.decisions.pod_policy.resizable_pod import ResizablePod, mark_nodes_that_refuse_resizes
from cruise.decisions.scheduling.placements import find_leftover_attachments
from cruise.decisions.sizing.demand import DemandTable, build_demand_table, get_headroom_above_base
from cruise.decisions.sizing.guaranteed import apply_guaranteed_sizes
from cruise.decisions.sizing.pod_columns import count_kept_requests
from cruise.domain.actions import RefusedResize
from cruise.domain.arrays import Int64Array
from cruise.domain.cluster import ClusterSnapshot, Node, Pod
from cruise.domain.overrides import PausedWorkloads
from cruise.domain.packing_plan import UNLIMITED, EvictionAllowance, PackingSizes
from cruise.domain.pod_resources import count_pod_requests
from cruise.domain.policy import Mode, Policy
from cruise.domain.reasons import UnplacedPod
from cruise.domain.resources import ResourceName, Resources
from cruise.domain.usage import StatisticsTable
from cruise.packer.answer import PackingNote, PackingNoteCode
from cruise.packer.problem import NodePrices, PackingObjective, PackingProblem


@dataclass(frozen=True, slots=True)
class UsageInputs:
    """The statistics and stored state from which pods are sized, the same as in a node pass.

    `not_resizable` has the uids of pods that keep their sizes because an earlier plan could not shrink them.
    """

    statistics: StatisticsTable
    now: datetime
    paused_workloads: PausedWorkloads = field(default_factory=dict)
    refused: Mapping[str, RefusedResize] = field(default_factory=dict)
    not_resizable: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, eq=False)
class BuiltProblem:
    """A packing problem with the objects behind its indices: `pods` by namespace and name, `nodes` by name.

    `ignored_pods` are pending pods that no placement could help; they are in no class. `exclusion_obstacles` and
    `limit_obstacles` name the obstacle of each exclusion and eviction limit. `immovable_reasons` has for each running
    pod why it must stay; None if it may move.
    """

    snapshot: ClusterSnapshot
    policy: Policy
    sizes: PackingSizes
    usage: UsageInputs
    problem: PackingProblem
    pods: tuple[Pod, ...]
    nodes: tuple[Node, ...]
    ignored_pods: tuple[UnplacedPod, ...] = ()
    notes: tuple[PackingNote, ...] = ()
    exclusion_obstacles: tuple[PlacementObstacle, ...] = ()
    limit_obstacles: tuple[PlacementObstacle, ...] = ()
    immovable_reasons: tuple[str | None, ...] = ()


# A chunk of pods is sized together: verdicts need more memory than the sizes do.
_SIZING_CHUNK = 16_384
# Columns of a requests table. The first two add up on a node, overhead included; of headroom the largest counts.
CPU, MEMORY, CPU_HEADROOM, MEMORY_HEADROOM = range(4)


def count_current_requests(pods: Sequence[Pod]) -> Int64Array:
    """Return for each pod what kube-scheduler counts, without headroom."""
    requests: list[tuple[int, ...]] = []
    known_requests: dict[tuple[object, ...], Resources] = {}
    for pod in pods:
        # Decoding shares equal containers, and most replicas have the same requests.
        key = (*map(id, pod.containers), id(pod.overhead), id(pod.pod_level), pod.resize.pending)
        pod_requests = known_requests.get(key)
        if pod_requests is None:
            pod_requests = known_requests[key] = count_pod_requests(pod)
        requests.append((pod_requests.cpu_millicores, pod_requests.memory_bytes, 0, 0))
    return np.array(requests, dtype=np.int64).reshape(len(pods), 4)


def compute_rightsized_requests(
    pods: Sequence[Pod], snapshot: ClusterSnapshot, eligibility: Eligibility, usage: UsageInputs, policy: Policy
) -> Int64Array:
    """Return the base and headroom of pods that may be sized, and the current requests of the others.

    A pending pod is sized by its workload's statistics, as it will be once it runs.
    """
    requests = count_current_requests(pods)
    for start in range(0, len(pods), _SIZING_CHUNK):
        sized: list[int] = []
        resizable: list[ResizablePod] = []
        for index, pod in enumerate(pods[start : start + _SIZING_CHUNK], start):
            if keeps_current_size(pod, usage):
                continue
            eligible = eligibility.check(pod if pod.node is not None else replace(pod, phase="Running"))
            if isinstance(eligible, ResizablePod):
                sized.append(index)
                resizable.append(eligible)
        # With the rows of pods that state resources as a whole.
        table = build_demand_table(resizable, eligibility.statistics, snapshot.limit_ranges, policy)
        table = apply_guaranteed_sizes(table, eligibility.statistics, policy)
        _apply_rightsized_requests(requests, sized, resizable, table)
    return requests


def _apply_rightsized_requests(
    requests: Int64Array, pods: Sequence[int], resizable: Sequence[ResizablePod], demands: DemandTable
) -> None:
    candidates = demands.candidates
    # A plan writes sizes, which the server checks.
    bases = {
        resource: np.where(
            demands.get_resource(resource).managed,
            np.maximum(demands.get_resource(resource).base, demands.get_resource(resource).lower),
            demands.get_resource(resource).base,
        )
        for resource in ResourceName
    }
    cpu, memory = (candidates.sum_by_pod(resource, bases[resource]).tolist() for resource in ResourceName)
    cpu_headroom, memory_headroom = (
        candidates.max_by_pod(get_headroom_above_base(candidates, demands.get_resource(resource))).tolist()
        for resource in ResourceName
    )
    for row, (index, resizable_pod) in enumerate(zip(pods, resizable, strict=True)):
        other_requests = resizable_pod.pod.overhead + count_kept_requests(resizable_pod)
        if resizable_pod.manages_cpu:
            requests[index, CPU] = cpu[row] + other_requests.cpu_millicores
            requests[index, CPU_HEADROOM] = cpu_headroom[row]
        if resizable_pod.manages_memory:
            requests[index, MEMORY] = memory[row] + other_requests.memory_bytes
            requests[index, MEMORY_HEADROOM] = memory_headroom[row]


def keeps_current_size(pod: Pod, usage: UsageInputs) -> bool:
    """Return whether a pod's sizes cannot change now, whatever its statistics say."""
    return pod.resize.pending is not None or pod.uid in usage.refused or pod.uid in usage.not_resizable


# Offline, plans are made as in mode `full`.
FULL_MODE = Policy(mode=Mode.FULL)
NO_USAGE = UsageInputs(StatisticsTable.from_rows(()), datetime(1970, 1, 2, tzinfo=UTC))


def build_packing_problem(
    snapshot: ClusterSnapshot,
    policy: Policy = FULL_MODE,
    sizes: PackingSizes = PackingSizes.FIXED,
    usage: UsageInputs = NO_USAGE,
    *,
    objective: PackingObjective | None = None,
    allowance: EvictionAllowance = UNLIMITED,
    prices: Mapping[str, int] | None = None,
    keep_domains: bool = False,
) -> BuiltProblem:
    """Group a cluster's pods into classes, and express nodes and rules by class.

    `build_packing_problem(snapshot)` is the whole offline call for fixed sizes. With `PackingSizes.RIGHTSIZED`, pass
    `usage` as well: pods without statistics keep their sizes. The objective is PAPER for fixed sizes and OPERATOR
    otherwise; with `prices` by node name it is CONSOLIDATION. With `keep_domains`, pods that are spread over zones or
    other domains stay in theirs, because kube-scheduler lets the replacement of a moved pod only into the domain it
    left.
    """
    eligibility = Eligibility(
        mark_nodes_that_refuse_resizes(snapshot, usage.refused),
        usage.statistics,
        usage.paused_workloads,
        policy,
        usage.now,
    )
    if prices is not None:
        objective = PackingObjective.CONSOLIDATION
    elif objective is None:
        objective = PackingObjective.PAPER if sizes is PackingSizes.FIXED else PackingObjective.OPERATOR
    nodes = tuple(sorted(snapshot.nodes, key=attrgetter("name")))
    node_masks = NodeMasks(nodes)
    node_index = {node.name: index for index, node in enumerate(nodes)}
    pod_groups = group_pods(
        snapshot,
        node_index,
        MovabilityCheck(snapshot, eligibility, policy),
        lambda pod: node_masks.get_platform_labels(pod) + (node_masks.get_spread_domains(pod) if keep_domains else ()),
    )
    limits = apply_eviction_limits(pod_groups, snapshot.budgets, allowance, sequential=prices is not None)
    pod_rules = find_pod_rules(pod_groups, node_masks, snapshot.storage_and_namespaces)
    allowed_masks = AllowedNodeMasks(node_masks)
    signatures = build_group_signatures(pod_groups, allowed_masks, pod_rules, limits, objective)
    pods = tuple([grouped.pod for grouped in pod_groups.pods])
    if sizes is PackingSizes.FIXED:
        requests = count_current_requests(pods)
    else:
        requests = compute_rightsized_requests(pods, snapshot, eligibility, usage, policy)
    # Their capacity is already subtracted from their nominated node.
    requests[[index for index, pod in enumerate(pods) if has_nominated_node(pod)]] = 0
    pod_node = np.array([grouped.node for grouped in pod_groups.pods], dtype=np.int64)
    running_count = np.bincount(pod_node[pod_node >= 0], minlength=len(nodes))
    max_pods = np.maximum(running_count, np.array([node.allocatable_pods for node in nodes], dtype=np.int64))
    leftover = find_leftover_attachments(snapshot)
    resources = list_scarce_resources(
        (get_extra_resources(group.pod, group.volumes) for group in pod_groups.groups),
        nodes,
        snapshot.storage_and_namespaces,
        max_pods,
        leftover,
    )
    shared_volumes = find_most_shared_volumes(pod_groups)
    extras = [
        select_amounts_by_name(get_extra_resources(group.pod, group.volumes, shared_volumes), resources)
        for group in pod_groups.groups
    ]
    shared_once = [
        select_amounts_by_name(
            ()
            if has_nominated_node(group.pod)
            else tuple((ATTACH_PREFIX + volume[0], 1) for volume in group.volumes.attached if volume in shared_volumes),
            resources,
        )
        for group in pod_groups.groups
    ]
    classes = build_pod_classes(pod_groups, requests, signatures, extras, shared_once)
    class_signatures = [key.signature for key in classes.keys]
    allowed_nodes = allowed_masks.build_table()
    mask_of_class = np.array([signature.node_mask for signature in class_signatures], dtype=np.int64)
    max_on_node = np.full(len(class_signatures), max(1, len(pods)), dtype=np.int64)
    rule_builder = ClassRuleBuilder(
        pod_groups, node_masks, classes.classes_by_group, mask_of_class, allowed_nodes, max_on_node
    )
    rules, exclusion_obstacles = rule_builder.build(pod_rules, limits)
    problem = PackingProblem(
        resources=resources,
        capacities=subtract_nominated_capacity(
            build_capacity_table(nodes, snapshot.storage_and_namespaces, resources, leftover),
            snapshot,
            nodes,
            resources,
        ),
        demands=build_amounts_table(
            [
                (key.cpu, key.memory, int(not signature.is_nominated), key.extras)
                for key, signature in zip(classes.keys, class_signatures, strict=True)
            ],
            resources,
        ),
        headroom=build_amounts_table(
            [(key.cpu_headroom, key.memory_headroom, 0, key.shared_once) for key in classes.keys], resources
        ),
        priorities=np.array([signature.priority for signature in class_signatures], dtype=np.int64),
        movable=np.array([signature.movable for signature in class_signatures], dtype=np.bool_),
        preemptible=np.array([signature.preemptible for signature in class_signatures], dtype=np.bool_),
        preempt=np.array([signature.preempts for signature in class_signatures], dtype=np.bool_),
        weights=np.array([signature.weight for signature in class_signatures], dtype=np.int64),
        max_on_node=max_on_node,
        node_mask_of_class=mask_of_class,
        allowed_nodes=allowed_nodes,
        pod_class=classes.pod_class,
        pod_node=pod_node,
        rules=replace(rules, max_evicted_by_node=get_max_evictions_by_node(allowance, nodes)),
        objective=objective,
        node_prices=None
        if prices is None
        else NodePrices(
            np.array([prices[node.name] for node in nodes], dtype=np.int64),
            np.array([signature.keeps_node_in_use for signature in class_signatures], dtype=np.bool_),
        ),
    )
    return BuiltProblem(
        snapshot=snapshot,
        policy=policy,
        sizes=sizes,
        usage=usage,
        problem=problem,
        pods=pods,
        nodes=nodes,
        ignored_pods=tuple(pod_groups.ignored_pods),
        notes=_build_notes(pod_groups),
        exclusion_obstacles=exclusion_obstacles,
        limit_obstacles=tuple([limit.obstacle for limit in limits]),
        immovable_reasons=tuple(
            [
                None if grouped.node < 0 else pod_groups.groups[grouped.group].immovable_reason
                for grouped in pod_groups.pods
            ]
        ),
    )


def _build_notes(pod_groups: PodGroups) -> tuple[PackingNote, ...]:
    counts = Counter(pod.blocked_by[0] for pod in pod_groups.ignored_pods)
    notes = [PackingNote(PackingNoteCode.PODS_IGNORED, obstacle, count) for obstacle, count in sorted(counts.items())]
    if pod_groups.unknown_node_pod_count:
        notes.append(PackingNote(PackingNoteCode.NODES_MISSING, count=pod_groups.unknown_node_pod_count))
    return tuple(notes)
