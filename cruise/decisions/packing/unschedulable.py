"""Explains why a pod stays pending: which obstacles close the nodes, and what the nearest node lacks."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cruise.decisions.packing.node_masks import NodeMasks, ObstacleMasks, PlacementObstacle, find_node_obstacles
from cruise.decisions.packing.obstacles import (
    MissingCapacity,
    ObstacleSet,
    PlacedPodsByClass,
    PodObstacles,
    find_smallest_obstacle_set,
)
from cruise.decisions.packing.problem import BuiltProblem
from cruise.decisions.packing.resources import build_capacity_table
from cruise.decisions.packing.volumes import VolumeIndex
from cruise.domain.arrays import BoolArray, Int64Array
from cruise.domain.cluster import Node, Pod
from cruise.domain.pod_resources import tolerates_cordon
from cruise.domain.reasons import BlockingPodKind, UnplacedPod, UnschedulableCode, UnschedulableReason
from cruise.domain.scheduling import Taint, TaintEffect
from cruise.packer.answer import Packing
from cruise.packer.problem import PackingObjective

_AFFINITY_OBSTACLES = (PlacementObstacle.AFFINITY, PlacementObstacle.ANTI_AFFINITY)
_LABEL_OBSTACLES = (PlacementObstacle.NODE_SELECTOR, PlacementObstacle.NODE_AFFINITY)


@dataclass(frozen=True, slots=True, eq=False)
class UnschedulableEvidence:
    """The smallest set of obstacles of a pod, all their masks, and whether they hold in any plan."""

    built: BuiltProblem
    pod: Pod
    pod_class: int
    blocked: ObstacleSet
    masks: dict[str, BoolArray]
    missing_capacity: MissingCapacity
    holds_in_any_plan: bool
    pod_obstacles: PodObstacles

    @property
    def is_blocked_by_capacity(self) -> bool:
        """Return whether the pod lacks capacity only."""
        closing = [self.masks[obstacle] for obstacle in self.blocked.obstacles if obstacle in self.masks]
        return not any(mask[self.blocked.nodes].any() for mask in closing)

    def get_nodes(self, mask: BoolArray) -> list[Node]:
        """Return the nodes of a mask."""
        return [self.built.nodes[index] for index in np.flatnonzero(mask).tolist()]


def explain_unschedulable(evidence: UnschedulableEvidence) -> UnschedulableReason:
    """Return what keeps the pod out and what would let it in."""
    obstacles = evidence.blocked.obstacles
    if not obstacles:
        return UnschedulableReason(UnschedulableCode.SCHEDULABLE)
    all_nodes = np.ones(len(evidence.built.nodes), dtype=np.bool_)
    if evidence.holds_in_any_plan and len(obstacles) == 1 and evidence.masks.get(obstacles[0], np.zeros(1)).all():
        return _explain_no_matching_node(evidence, evidence.get_nodes(all_nodes))
    if obstacles[0] in _AFFINITY_OBSTACLES and evidence.pod_obstacles.repels_itself(evidence.pod_class):
        return UnschedulableReason(
            UnschedulableCode.ONLY_FIRST_POD_OF_GROUP, affinity=evidence.pod.constraints.affinity
        )
    if evidence.is_blocked_by_capacity:
        return _explain_full_nodes(evidence)
    nodes = evidence.get_nodes(evidence.blocked.nodes)
    _, missing = _find_nearest_node(evidence, evidence.missing_capacity.get_missing())
    return _build_reason(evidence, UnschedulableCode.NODES_UNSCHEDULABLE, nodes, missing)


def _explain_no_matching_node(evidence: UnschedulableEvidence, nodes: list[Node]) -> UnschedulableReason:
    """Explain an obstacle that closes all nodes."""
    pod, obstacle = evidence.pod, evidence.blocked.obstacles[0]
    if obstacle == PlacementObstacle.AFFINITY:
        return _explain_affinity(evidence, nodes)
    keys = [spread.topology_key for spread in pod.constraints.spread]
    keys = _find_missing_labels(keys, nodes) or keys if obstacle == PlacementObstacle.TOPOLOGY_SPREAD else []
    return _build_reason(evidence, UnschedulableCode.NO_MATCHING_NODE, nodes, {}, keys)


def _explain_affinity(evidence: UnschedulableEvidence, nodes: list[Node]) -> UnschedulableReason:
    affinity = evidence.pod.constraints.affinity
    missing = _find_missing_labels([term.topology_key for term in affinity], nodes)
    code = UnschedulableCode.AFFINITY_NOWHERE
    if missing:
        code = UnschedulableCode.AFFINITY_UNLABELLED
    elif evidence.pod_obstacles.is_contradictory(evidence.pod_class):
        code = UnschedulableCode.AFFINITY_CONTRADICTED
    elif evidence.pod_obstacles.requires_missing_pods(evidence.pod_class):
        code = UnschedulableCode.AFFINITY_WITHOUT_PODS
    return UnschedulableReason(code, affinity=affinity, topology_keys=tuple(missing))


def _build_reason(
    evidence: UnschedulableEvidence,
    code: UnschedulableCode,
    nodes: list[Node],
    missing: dict[str, int],
    keys: Sequence[str] | None = None,
) -> UnschedulableReason:
    """Return a reason with the details of each obstacle on some nodes."""
    pod, obstacles = evidence.pod, evidence.blocked.obstacles
    if keys is None and PlacementObstacle.TOPOLOGY_SPREAD in obstacles:
        keys = [spread.topology_key for spread in pod.constraints.spread]
    return UnschedulableReason(
        code,
        nodes=len(nodes),
        node=nodes[0].name if len(nodes) == 1 else "",
        missing_resources=tuple(missing.items()),
        selector=pod.placement.node_selector if PlacementObstacle.NODE_SELECTOR in obstacles else (),
        node_terms=tuple(pod.placement.terms or ()) if PlacementObstacle.NODE_AFFINITY in obstacles else (),
        affinity=pod.constraints.affinity if PlacementObstacle.AFFINITY in obstacles else (),
        topology_keys=tuple(keys or ()),
        taints=_find_untolerated_taints(pod, nodes) if PlacementObstacle.TAINTS in obstacles else (),
    )


def _explain_full_nodes(evidence: UnschedulableEvidence) -> UnschedulableReason:
    """Explain that the nodes that match are full, or too small even when empty."""
    problem = evidence.built.problem
    closed = np.zeros(len(evidence.built.nodes), dtype=np.bool_)
    for mask in evidence.masks.values():
        closed |= mask
    matching = evidence.get_nodes(~closed)
    empty = evidence.missing_capacity.get_missing_on_empty_node()
    # Without the capacity for nominated pods a node may seem too small that is not.
    allocatable = build_capacity_table(
        evidence.built.nodes, evidence.built.snapshot.storage_and_namespaces, problem.resources
    )
    too_large = bool((empty > allocatable - problem.capacities)[~closed].any(axis=1).all())
    nearest_node, missing = _find_nearest_node(
        evidence, empty if too_large else evidence.missing_capacity.get_missing()
    )
    is_all_nodes = len(matching) == len(evidence.built.nodes)
    narrowed_by = () if is_all_nodes else tuple(str(label) for label in _LABEL_OBSTACLES if evidence.masks[label].any())
    placement = evidence.pod.placement
    size = problem.demands[evidence.pod_class] + problem.headroom[evidence.pod_class]
    return UnschedulableReason(
        UnschedulableCode.TOO_LARGE if too_large else UnschedulableCode.NODES_FULL,
        nodes=len(matching),
        node=matching[0].name if len(matching) == 1 else "",
        nearest=evidence.built.nodes[nearest_node].name,
        covers_all_nodes=is_all_nodes,
        narrowed_by=narrowed_by,
        narrowed_further=any(
            mask.any() for obstacle, mask in evidence.masks.items() if obstacle not in _LABEL_OBSTACLES
        ),
        missing_resources=tuple(missing.items()),
        size=tuple((name, int(size[problem.resources.index(name)])) for name in missing) if too_large else (),
        blocking_pods=BlockingPodKind.ANY if too_large else _get_blocking_pods(evidence, ~closed),
        selector=placement.node_selector if PlacementObstacle.NODE_SELECTOR in narrowed_by else (),
        node_terms=tuple(placement.terms or ()) if PlacementObstacle.NODE_AFFINITY in narrowed_by else (),
    )


def _get_blocking_pods(evidence: UnschedulableEvidence, matching: BoolArray) -> BlockingPodKind:
    return (
        BlockingPodKind.STAYING if evidence.holds_in_any_plan else evidence.missing_capacity.get_blocking_pods(matching)
    )


def _find_missing_labels(keys: list[str], nodes: list[Node]) -> list[str]:
    return list(dict.fromkeys(key for key in keys if not any(key in node.labels for node in nodes)))


def _find_untolerated_taints(pod: Pod, nodes: list[Node]) -> tuple[Taint, ...]:
    """Return the distinct taints of some nodes that a pod does not tolerate."""
    taints = [taint for node in nodes for taint in node.taints if taint.effect is not TaintEffect.PREFER_NO_SCHEDULE]
    untolerated = [taint for taint in taints if not any(t.tolerates(taint) for t in pod.placement.tolerations)]
    return tuple(dict.fromkeys(untolerated))


def _find_nearest_node(evidence: UnschedulableEvidence, missing: Int64Array) -> tuple[int, dict[str, int]]:
    """Return the node that lacks the smallest share of the pod's size, and what it lacks."""
    problem = evidence.built.problem
    size = np.maximum(problem.demands[evidence.pod_class] + problem.headroom[evidence.pod_class], 1)
    share = np.where(evidence.blocked.nodes, (missing / size).max(axis=1), np.inf)
    nearest = int(share.argmin())
    return nearest, {problem.resources[r]: int(missing[nearest, r]) for r in np.flatnonzero(missing[nearest]).tolist()}


# Budgets that are refilled, so that a later plan may evict.

_RENEWED_BUDGETS = (PlacementObstacle.DISRUPTION_BUDGET, PlacementObstacle.EVICTION_LIMIT)


def explain_unplaced_pods(built: BuiltProblem, packing: Packing) -> tuple[UnplacedPod, ...]:
    """Return for each pod that stays pending what keeps it out, sorted by namespace and name."""
    explainer = _UnplacedPodExplainer(built, packing)
    pending = np.flatnonzero((built.problem.pod_node < 0) & (packing.pod_node < 0))
    unplaced = [*built.ignored_pods, *(explainer.explain(pod) for pod in pending.tolist())]
    return tuple(sorted(unplaced, key=lambda one: one.key))


class _UnplacedPodExplainer:
    """Explains pods, once for all pods that nothing distinguishes."""

    def __init__(self, built: BuiltProblem, packing: Packing) -> None:
        self._built = built
        self._hopeless_priority = _find_hopeless_priority(built, packing)
        self._placed_pods = PlacedPodsByClass(built, packing.pod_node)
        self._node_masks = NodeMasks(built.nodes)
        self._volumes = VolumeIndex(built.snapshot.storage_and_namespaces)
        for pod in built.snapshot.pods:
            if not pod.is_finished:
                self._volumes.add_user(pod)
        self._pod_obstacles = PodObstacles(built, self._placed_pods)
        self._known: dict[Hashable, tuple[tuple[str, ...], UnschedulableReason, bool]] = {}

    def explain(self, index: int) -> UnplacedPod:
        """Return what keeps a pod out."""
        pod, pod_class = self._built.pods[index], int(self._built.problem.pod_class[index])
        key = pod_class, pod.placement, pod.constraints
        if key not in self._known:
            self._known[key] = self._explain_class(pod_class, pod)
        obstacles, reason, impossible = self._known[key]
        return UnplacedPod(pod.namespace, pod.name, obstacles, reason, impossible)

    def _explain_class(self, pod_class: int, pod: Pod) -> tuple[tuple[str, ...], UnschedulableReason, bool]:
        built, nodes = self._built, self._built.problem.node_count
        if nodes == 0:
            return (PlacementObstacle.NO_NODES,), UnschedulableReason(UnschedulableCode.NO_NODES), True
        fixed = find_node_obstacles(self._node_masks, pod, self._volumes.get_for_arriving_pod(pod).terms)
        capacity = MissingCapacity(self._placed_pods, pod_class)
        lasting = self._pod_obstacles.get_for_any_plan(pod_class, pod, fixed)
        blocked = find_smallest_obstacle_set(nodes, lasting, capacity.get_alternatives_in_any_plan())
        is_never_placed = bool(blocked.obstacles)
        masks = lasting
        if not is_never_placed:
            masks = self._pod_obstacles.get_for_packing(pod_class, pod, fixed)
            blocked = find_smallest_obstacle_set(nodes, masks, capacity.get_alternatives())
        # That as many pods are placed as possible does not rule out this one: it could replace another.
        proved = is_never_placed or int(built.problem.priorities[pod_class]) == self._hopeless_priority
        evidence = UnschedulableEvidence(
            built, pod, pod_class, blocked, masks, capacity, is_never_placed, self._pod_obstacles
        )
        # A budget is refilled, so a later plan may place the pod.
        impossible = (
            bool(blocked.obstacles)
            and proved
            and not any(obstacle in _RENEWED_BUDGETS for obstacle in blocked.obstacles)
        )
        if PlacementObstacle.CORDONED in blocked.obstacles and tolerates_cordon(pod):
            # Plans avoid the node, but kube-scheduler does not.
            impossible = False
        reason = explain_unschedulable(evidence)
        if impossible and self._may_preempt(pod_class, pod, fixed, capacity):
            impossible, reason = False, replace(reason, preemptible=True)
        return tuple(str(obstacle) for obstacle in blocked.obstacles), reason, impossible

    def _may_preempt(self, pod_class: int, pod: Pod, fixed: ObstacleMasks, capacity: MissingCapacity) -> bool:
        """Return whether kube-scheduler may preempt what no plan evicts: it spares only pods that budgets cover."""
        open_nodes = capacity.get_after_preemption()
        if not open_nodes.any():
            return False
        masks = self._pod_obstacles.get_after_preemption(pod_class, pod, fixed)
        return bool((open_nodes & ~np.logical_or.reduce(list(masks.values()))).any())


def _find_hopeless_priority(built: BuiltProblem, packing: Packing) -> int | None:
    """Return the highest pending priority if it is proved that no plan places any of its pods; else None.

    It is only known if all running pods of this priority and above stay placed in every plan.
    """
    problem = built.problem
    is_pending = problem.pod_node < 0
    if (
        problem.objective is PackingObjective.PAPER
        or problem.rules.eviction_limits
        or problem.rules.max_evicted_by_node is not None
    ):
        return None
    if not is_pending.any():
        return None
    priorities = problem.priorities[problem.pod_class]
    highest = int(priorities[is_pending].max())
    entry_count = int(np.count_nonzero(np.unique(problem.priorities) >= highest))
    placed = is_pending & (priorities == highest) & (packing.pod_node >= 0)
    is_proved = packing.planned.get_key(problem.objective)[:entry_count] == packing.bound[:entry_count]
    return highest if is_proved and not placed.any() else None
