"""Builds a packing problem from a snapshot."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from operator import attrgetter

import numpy as np

from cruise.decisions.packing.movability import MovabilityCheck
from cruise.decisions.packing.node_masks import NodeMasks, PlacementObstacle
from cruise.decisions.packing.pod_classes import ClassRuleBuilder, build_pod_classes, build_signatures
from cruise.decisions.packing.pod_groups import (
    AllowedNodeMasks,
    PodGroups,
    find_shared_volumes,
    get_extra_resources,
    group_pods,
    has_nominated_node,
)
from cruise.decisions.packing.pod_rules import apply_eviction_limits, find_pod_rules, get_max_evictions_by_node
from cruise.decisions.packing.resources import (
    ATTACH_PREFIX,
    build_amounts_table,
    build_capacity_table,
    list_resource_columns,
    select_resources,
    subtract_nominated_capacity,
)
from cruise.decisions.pod_policy.eligibility import Eligibility, ResizablePod
from cruise.decisions.scheduling.placements import find_leftover_attachments
from cruise.decisions.sizing.recommendation import DemandTable, build_demand_table
from cruise.domain.actions import RefusedTarget
from cruise.domain.cluster import ClusterSnapshot, Node, Pod
from cruise.domain.overrides import StoredOverrides
from cruise.domain.packing_plan import UNLIMITED, EvictionAllowance, PackingSizes
from cruise.domain.pod_resources import count_pod_requests
from cruise.domain.policy import Mode, Policy
from cruise.domain.reasons import UnplacedPod
from cruise.domain.resources import Int64Array, ResourceName, Resources
from cruise.domain.usage import StatisticsTable
from cruise.packer.answer import PackingNote, PackingNoteCode
from cruise.packer.problem import NodePrices, PackingObjective, PackingProblem

# A packing problem with the objects that its indices stand for.


@dataclass(frozen=True, slots=True)
class UsageInputs:
    """What sizes are decided from: the same as the node pass reads.

    `unsizable` are uids of pods that keep the sizes they have: a plan found that nothing smaller can be written.
    """

    statistics: StatisticsTable
    now: datetime
    stored: StoredOverrides = field(default_factory=dict)
    refused: Mapping[str, RefusedTarget] = field(default_factory=dict)
    not_resizable: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, eq=False)
class BuiltProblem:
    """A problem, and by its indices: `pods` (sorted by namespace and name) and `nodes` (sorted by name).

    `left_out` are pending pods that no place could help: they are in no class. `exclusion_obstacles` and
    `limit_obstacles` have what each exclusion and each eviction limit is, `unmovable` the detail for which each running
    pod stays (None: it may be moved).
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


# What every pod takes of CPU and memory: what it asks for, or its base with the headroom it shares.

# Pods whose verdicts are held at once: they are larger than what is kept of them.
_AT_ONCE = 16_384
# What a row of needs has: what sums up on the pod's node, overhead included, and headroom, of which the largest counts.
CPU, MEMORY, CPU_HEADROOM, MEMORY_HEADROOM = range(4)


def count_current_requests(pods: Sequence[Pod]) -> Int64Array:
    """Return a row for each pod, which takes what kube-scheduler counts."""
    rows: list[tuple[int, ...]] = []
    known: dict[tuple[object, ...], Resources] = {}
    for pod in pods:
        # Decoding shares equal containers, and most replicas count alike.
        key = (*map(id, pod.containers), id(pod.overhead), id(pod.pod_requests), pod.resize.pending)
        counted = known.get(key)
        if counted is None:
            counted = known[key] = count_pod_requests(pod)
        rows.append((counted.cpu_millicores, counted.memory_bytes, 0, 0))
    return np.array(rows, dtype=np.int64).reshape(len(pods), 4)


def compute_rightsized_requests(
    pods: Sequence[Pod], snapshot: ClusterSnapshot, eligibility: Eligibility, usage: UsageInputs, policy: Policy
) -> Int64Array:
    """Return the same with pods that may be sized by their statistics, and the others as kube-scheduler counts them.

    A pending pod counts with its workload's statistics, as it will once it runs.
    """
    needs = count_current_requests(pods)
    for first in range(0, len(pods), _AT_ONCE):
        sized: list[int] = []
        touchable: list[ResizablePod] = []
        for index, pod in enumerate(pods[first : first + _AT_ONCE], first):
            if keeps_current_size(pod, usage):
                continue
            verdict = eligibility.check(pod if pod.node is not None else replace(pod, phase="Running"))
            if isinstance(verdict, ResizablePod):
                sized.append(index)
                touchable.append(verdict)
        _take_sized(
            needs, sized, touchable, build_demand_table(touchable, usage.statistics, snapshot.limit_ranges, policy)
        )
    return needs


def _take_sized(needs: Int64Array, pods: Sequence[int], touchable: Sequence[ResizablePod], table: DemandTable) -> None:
    candidates = table.candidates
    # A plan writes sizes, which the server checks.
    bases = {
        one: np.where(
            table.get_resource(one).managed, np.maximum(table.get_resource(one).base, table.get_resource(one).lower), 0
        )
        for one in ResourceName
    }
    cpu, memory = (candidates.sum_by_pod(one, bases[one]).tolist() for one in ResourceName)
    cpu_headroom, memory_headroom = (
        candidates.max_by_pod(table.get_resource(one).headroom).tolist() for one in ResourceName
    )
    for at, (index, verdict) in enumerate(zip(pods, touchable, strict=True)):
        if verdict.manages_cpu:
            needs[index, CPU] = cpu[at] + verdict.pod.overhead.cpu_millicores
            needs[index, CPU_HEADROOM] = cpu_headroom[at]
        if verdict.manages_memory:
            needs[index, MEMORY] = memory[at] + verdict.pod.overhead.memory_bytes
            needs[index, MEMORY_HEADROOM] = memory_headroom[at]


def keeps_current_size(pod: Pod, usage: UsageInputs) -> bool:
    """Tell whether a pod may get no other size now, whatever its statistics say."""
    return pod.resize.pending is not None or pod.uid in usage.refused or pod.uid in usage.not_resizable


# Offline a plan is decided as mode `full` would.
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
    """Put a cluster into classes of equal pods, nodes and rules.

    `build_problem(snapshot)` is the whole offline call for sizes as they are; for `Sizes.RIGHTSIZED` add
    `usage=Usage(statistics, now)`: without it nothing is known of any pod, so none is sized. The objective is PAPER for
    fixed sizes, else OPERATOR; with `prices`, by node, it is FLEET. With `keep_domains` pods that are spread over
    zones, or the like, stay in theirs: where one leaves a zone for another, kube-scheduler lets its replacement into
    its own alone.
    """
    eligibility = Eligibility(snapshot, usage.statistics, usage.stored, policy, usage.now)
    if prices is not None:
        objective = PackingObjective.FLEET
    elif objective is None:
        objective = PackingObjective.PAPER if sizes is PackingSizes.FIXED else PackingObjective.OPERATOR
    nodes = tuple(sorted(snapshot.nodes, key=attrgetter("name")))
    columns = NodeMasks(nodes)
    node_index = {node.name: index for index, node in enumerate(nodes)}
    census = group_pods(
        snapshot,
        node_index,
        MovabilityCheck(snapshot, eligibility, policy),
        columns.get_spread_domains if keep_domains else None,
    )
    limits = apply_eviction_limits(census, snapshot.budgets, allowance, one_by_one=prices is not None)
    marks = find_pod_rules(census, columns, snapshot.storage_and_namespaces)
    sites = AllowedNodeMasks(columns)
    signatures = build_signatures(census, sites, marks, limits, objective)
    pods = tuple([taken.pod for taken in census.pods])
    if sizes is PackingSizes.FIXED:
        needs = count_current_requests(pods)
    else:
        needs = compute_rightsized_requests(pods, snapshot, eligibility, usage, policy)
    # Room is kept for these.
    needs[[index for index, pod in enumerate(pods) if has_nominated_node(pod)]] = 0
    pod_node = np.array([taken.node for taken in census.pods], dtype=np.int64)
    here = np.bincount(pod_node[pod_node >= 0], minlength=len(nodes))
    most_pods = np.maximum(here, np.array([node.allocatable_pods for node in nodes], dtype=np.int64))
    left = find_leftover_attachments(snapshot)
    names = list_resource_columns(
        (get_extra_resources(kind.pod, kind.requests) for kind in census.groups),
        nodes,
        snapshot.storage_and_namespaces,
        most_pods,
        left,
    )
    shared = find_shared_volumes(census)
    extras = [select_resources(get_extra_resources(kind.pod, kind.requests, shared), names) for kind in census.groups]
    once = [
        select_resources(
            ()
            if has_nominated_node(kind.pod)
            else tuple((ATTACH_PREFIX + volume[0], 1) for volume in kind.requests.attached if volume in shared),
            names,
        )
        for kind in census.groups
    ]
    classes = build_pod_classes(census, needs, signatures, extras, once)
    signed = [key.signature for key in classes.keys]
    admits = sites.build_table()
    of_class = np.array([signature.node_mask for signature in signed], dtype=np.int64)
    most_on_node = np.full(len(signed), max(1, len(pods)), dtype=np.int64)
    maker = ClassRuleBuilder(census, columns, classes.by_group, of_class, admits, most_on_node)
    rules, exclusion_obstacles = maker.build(marks, limits)
    problem = PackingProblem(
        resources=names,
        capacities=subtract_nominated_capacity(
            build_capacity_table(nodes, snapshot.storage_and_namespaces, names, left), snapshot, nodes, names
        ),
        demands=build_amounts_table(
            [
                (key.cpu, key.memory, int(not one.is_nominated), key.extras)
                for key, one in zip(classes.keys, signed, strict=True)
            ],
            names,
        ),
        headroom=build_amounts_table(
            [(key.cpu_headroom, key.memory_headroom, 0, key.shared_once) for key in classes.keys], names
        ),
        priorities=np.array([signature.priority for signature in signed], dtype=np.int64),
        movable=np.array([signature.movable for signature in signed], dtype=np.bool_),
        preemptible=np.array([signature.preemptible for signature in signed], dtype=np.bool_),
        preempt=np.array([signature.preempts for signature in signed], dtype=np.bool_),
        weights=np.array([signature.weight for signature in signed], dtype=np.int64),
        max_on_node=most_on_node,
        node_mask_of_class=of_class,
        allowed_nodes=admits,
        pod_class=classes.pod_class,
        pod_node=pod_node,
        rules=replace(rules, max_evicted_by_node=get_max_evictions_by_node(allowance, nodes)),
        objective=objective,
        node_prices=None
        if prices is None
        else NodePrices(
            np.array([prices[node.name] for node in nodes], dtype=np.int64),
            np.array([signature.keeps_node_in_use for signature in signed], dtype=np.bool_),
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
        ignored_pods=tuple(census.ignored_pods),
        notes=_notes(census),
        exclusion_obstacles=exclusion_obstacles,
        limit_obstacles=tuple([limit.obstacle for limit in limits]),
        immovable_reasons=tuple(
            [None if taken.node < 0 else census.groups[taken.group].immovable_reason for taken in census.pods]
        ),
    )


def _notes(census: PodGroups) -> tuple[PackingNote, ...]:
    counts = Counter(one.blocked_by[0] for one in census.ignored_pods)
    notes = [PackingNote(PackingNoteCode.PODS_IGNORED, obstacle, count) for obstacle, count in sorted(counts.items())]
    if census.without_node:
        notes.append(PackingNote(PackingNoteCode.NODES_MISSING, count=census.without_node))
    return tuple(notes)
