"""What is found of a pod that stays pending: which nodes fall short, and of what."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cruise.decisions.packing.node_masks import NodeMasks, ObstacleMasks, PlacementObstacle, find_node_obstacles
from cruise.decisions.packing.obstacles import (
    CapacityObstacles,
    ObstacleSet,
    PlacedPodsByClass,
    PodObstacles,
    find_smallest_obstacle_set,
)
from cruise.decisions.packing.problem import BuiltProblem
from cruise.decisions.packing.resources import build_capacity_table
from cruise.decisions.packing.volumes import VolumeIndex
from cruise.domain.cluster import Node, Pod
from cruise.domain.pod_resources import tolerates_cordon
from cruise.domain.reasons import BlockingPods, UnplacedPod, UnschedulableCode, UnschedulableReason
from cruise.domain.resources import BoolArray, Int64Array
from cruise.domain.scheduling import Taint, TaintEffect
from cruise.packer.answer import Packing
from cruise.packer.problem import PackingObjective

_OF_COMPANY = (PlacementObstacle.AFFINITY, PlacementObstacle.ANTI_AFFINITY)
_OF_LABELS = (PlacementObstacle.NODE_SELECTOR, PlacementObstacle.NODE_AFFINITY)


@dataclass(frozen=True, slots=True, eq=False)
class UnschedulableEvidence:
    """What keeps a pod out: the smallest set, all masks behind it, and whether that holds in any plan at all."""

    built: BuiltProblem
    pod: Pod
    pod_class: int
    blocked: ObstacleSet
    masks: dict[str, BoolArray]
    capacity_obstacles: CapacityObstacles
    holds_in_any_plan: bool
    pod_obstacles: PodObstacles

    @property
    def is_blocked_by_capacity(self) -> bool:
        """Whether room alone is what is missing."""
        closing = [self.masks[obstacle] for obstacle in self.blocked.obstacles if obstacle in self.masks]
        return not any(mask[self.blocked.nodes].any() for mask in closing)

    def nodes(self, mask: BoolArray) -> list[Node]:
        """The nodes of a mask."""
        return [self.built.nodes[index] for index in np.flatnonzero(mask).tolist()]


def explain_unschedulable(evidence: UnschedulableEvidence) -> UnschedulableReason:
    """Say what keeps the pod out, and what would let it in."""
    obstacles = evidence.blocked.obstacles
    if not obstacles:
        return UnschedulableReason(UnschedulableCode.SCHEDULABLE)
    everything = np.ones(len(evidence.built.nodes), dtype=np.bool_)
    if evidence.holds_in_any_plan and len(obstacles) == 1 and evidence.masks.get(obstacles[0], np.zeros(1)).all():
        return _nowhere(evidence, evidence.nodes(everything))
    if obstacles[0] in _OF_COMPANY and evidence.pod_obstacles.repels_itself(evidence.pod_class):
        return UnschedulableReason(
            UnschedulableCode.ONLY_FIRST_POD_OF_GROUP, affinity=evidence.pod.constraints.affinity
        )
    if evidence.is_blocked_by_capacity:
        return _full(evidence)
    there = evidence.nodes(evidence.blocked.nodes)
    _, lacking = _nearest(evidence, evidence.capacity_obstacles.get_missing())
    return _about(evidence, UnschedulableCode.NODES_UNSCHEDULABLE, there, lacking)


def _nowhere(evidence: UnschedulableEvidence, nodes: list[Node]) -> UnschedulableReason:
    """What no node at all meets."""
    pod, obstacle = evidence.pod, evidence.blocked.obstacles[0]
    if obstacle == PlacementObstacle.AFFINITY:
        return _never_beside(evidence, nodes)
    keys = [spread.topology_key for spread in pod.constraints.spread]
    keys = _missing(keys, nodes) or keys if obstacle == PlacementObstacle.TOPOLOGY_SPREAD else []
    return _about(evidence, UnschedulableCode.NO_MATCHING_NODE, nodes, {}, keys)


def _never_beside(evidence: UnschedulableEvidence, nodes: list[Node]) -> UnschedulableReason:
    affinity = evidence.pod.constraints.affinity
    missing = _missing([term.topology_key for term in affinity], nodes)
    pattern = UnschedulableCode.AFFINITY_NOWHERE
    if missing:
        pattern = UnschedulableCode.AFFINITY_UNLABELLED
    elif evidence.pod_obstacles.is_contradictory(evidence.pod_class):
        pattern = UnschedulableCode.AFFINITY_CONTRADICTED
    elif evidence.pod_obstacles.requires_missing_pods(evidence.pod_class):
        pattern = UnschedulableCode.AFFINITY_WITHOUT_PODS
    return UnschedulableReason(pattern, affinity=affinity, topology_keys=tuple(missing))


def _about(
    evidence: UnschedulableEvidence,
    pattern: UnschedulableCode,
    there: list[Node],
    lacking: dict[str, int],
    keys: Sequence[str] | None = None,
) -> UnschedulableReason:
    """A finding with what the obstacles are about, on some nodes."""
    pod, obstacles = evidence.pod, evidence.blocked.obstacles
    if keys is None and PlacementObstacle.TOPOLOGY_SPREAD in obstacles:
        keys = [spread.topology_key for spread in pod.constraints.spread]
    return UnschedulableReason(
        pattern,
        nodes=len(there),
        node=there[0].name if len(there) == 1 else "",
        missing_resources=tuple(lacking.items()),
        selector=pod.placement.node_selector if PlacementObstacle.NODE_SELECTOR in obstacles else (),
        node_terms=tuple(pod.placement.terms or ()) if PlacementObstacle.NODE_AFFINITY in obstacles else (),
        affinity=pod.constraints.affinity if PlacementObstacle.AFFINITY in obstacles else (),
        topology_keys=tuple(keys or ()),
        taints=_untolerated(pod, there) if PlacementObstacle.TAINTS in obstacles else (),
    )


def _full(evidence: UnschedulableEvidence) -> UnschedulableReason:
    """The nodes that would do are full, or too small even when empty."""
    problem = evidence.built.problem
    closed = np.zeros(len(evidence.built.nodes), dtype=np.bool_)
    for mask in evidence.masks.values():
        closed |= mask
    able = evidence.nodes(~closed)
    empty = evidence.capacity_obstacles.get_missing_on_empty_node()
    # Where room is kept for others there is more than nodes offer to this one.
    kept = build_capacity_table(evidence.built.nodes, evidence.built.snapshot.storage_and_namespaces, problem.resources)
    too_large = bool((empty > kept - problem.capacities)[~closed].any(axis=1).all())
    nearest, lacking = _nearest(evidence, empty if too_large else evidence.capacity_obstacles.get_missing())
    of_all = len(able) == len(evidence.built.nodes)
    narrowed_by = () if of_all else tuple(str(label) for label in _OF_LABELS if evidence.masks[label].any())
    placement = evidence.pod.placement
    size = problem.demands[evidence.pod_class] + problem.headroom[evidence.pod_class]
    return UnschedulableReason(
        UnschedulableCode.TOO_LARGE if too_large else UnschedulableCode.NODES_FULL,
        nodes=len(able),
        node=able[0].name if len(able) == 1 else "",
        nearest=evidence.built.nodes[nearest].name,
        covers_all_nodes=of_all,
        narrowed_by=narrowed_by,
        narrowed_further=any(mask.any() for obstacle, mask in evidence.masks.items() if obstacle not in _OF_LABELS),
        missing_resources=tuple(lacking.items()),
        size=tuple((name, int(size[problem.resources.index(name)])) for name in lacking) if too_large else (),
        blocking_pods=BlockingPods.ANY if too_large else _occupants(evidence, ~closed),
        selector=placement.node_selector if PlacementObstacle.NODE_SELECTOR in narrowed_by else (),
        node_terms=tuple(placement.terms or ()) if PlacementObstacle.NODE_AFFINITY in narrowed_by else (),
    )


def _occupants(evidence: UnschedulableEvidence, able: BoolArray) -> BlockingPods:
    return BlockingPods.STAYING if evidence.holds_in_any_plan else evidence.capacity_obstacles.get_blocking_pods(able)


def _missing(keys: list[str], nodes: list[Node]) -> list[str]:
    return list(dict.fromkeys(key for key in keys if not any(key in node.labels for node in nodes)))


def _untolerated(pod: Pod, nodes: list[Node]) -> tuple[Taint, ...]:
    """The taints of some nodes that a pod does not tolerate, each once."""
    hard = [taint for node in nodes for taint in node.taints if taint.effect is not TaintEffect.PREFER_NO_SCHEDULE]
    repel = [taint for taint in hard if not any(t.tolerates(taint) for t in pod.placement.tolerations)]
    return tuple(dict.fromkeys(repel))


def _nearest(evidence: UnschedulableEvidence, lacking: Int64Array) -> tuple[int, dict[str, int]]:
    """Of the nodes that the set is about, the one that lacks the smallest share of the pod's size; what it lacks."""
    problem = evidence.built.problem
    size = np.maximum(problem.demands[evidence.pod_class] + problem.headroom[evidence.pod_class], 1)
    share = np.where(evidence.blocked.nodes, (lacking / size).max(axis=1), np.inf)
    best = int(share.argmin())
    return best, {problem.resources[r]: int(lacking[best, r]) for r in np.flatnonzero(lacking[best]).tolist()}


# Why each pod that stays pending does so.

_PASSING = (PlacementObstacle.DISRUPTION_BUDGET, PlacementObstacle.EVICTION_LIMIT)


def explain_unplaced_pods(built: BuiltProblem, packing: Packing) -> tuple[UnplacedPod, ...]:
    """Say for each pod that is pending and stays so what keeps it out, sorted by namespace and pod."""
    asking = _UnplacedPodExplainer(built, packing)
    waiting = np.flatnonzero((built.problem.pod_node < 0) & (packing.pod_node < 0))
    found = [*built.ignored_pods, *(asking.explain(pod) for pod in waiting.tolist())]
    return tuple(sorted(found, key=lambda one: one.key))


class _UnplacedPodExplainer:
    """Answers for pods; those that nothing tells apart share an answer."""

    def __init__(self, built: BuiltProblem, packing: Packing) -> None:
        self._built = built
        self._closed = _closed_priority(built, packing)
        self._holding = PlacedPodsByClass(built, packing.pod_node)
        self._columns = NodeMasks(built.nodes)
        self._volumes = VolumeIndex(built.snapshot.storage_and_namespaces)
        for pod in built.snapshot.pods:
            if not pod.is_finished:
                self._volumes.get_in_use(pod)
        self._neighbours = PodObstacles(built, self._holding)
        self._known: dict[Hashable, tuple[tuple[str, ...], UnschedulableReason, bool]] = {}

    def explain(self, index: int) -> UnplacedPod:
        """Say what keeps a pod out."""
        pod, pod_class = self._built.pods[index], int(self._built.problem.pod_class[index])
        key = pod_class, pod.placement, pod.constraints
        if key not in self._known:
            self._known[key] = self._find(pod_class, pod)
        obstacles, finding, impossible = self._known[key]
        return UnplacedPod(pod.namespace, pod.name, obstacles, finding, impossible)

    def _find(self, pod_class: int, pod: Pod) -> tuple[tuple[str, ...], UnschedulableReason, bool]:
        built, nodes = self._built, self._built.problem.node_count
        if nodes == 0:
            return (PlacementObstacle.NO_NODES,), UnschedulableReason(UnschedulableCode.NO_NODES), True
        fixed = find_node_obstacles(self._columns, pod, self._volumes.get_for_arriving_pod(pod).terms)
        room = CapacityObstacles(self._holding, pod_class)
        ever = self._neighbours.get_for_any_plan(pod_class, pod, fixed)
        blocked = find_smallest_obstacle_set(nodes, ever, room.get_alternatives_in_any_plan())
        never = bool(blocked.obstacles)
        masks = ever
        if not never:
            masks = self._neighbours.get_for_packing(pod_class, pod, fixed)
            blocked = find_smallest_obstacle_set(nodes, masks, room.get_alternatives())
        # That as many are placed as can be says nothing of this one: another might be left out for it.
        proved = never or int(built.problem.priorities[pod_class]) == self._closed
        evidence = UnschedulableEvidence(built, pod, pod_class, blocked, masks, room, never, self._neighbours)
        # Budgets fill up again: what they stand in the way of is possible in a plan made later.
        impossible = bool(blocked.obstacles) and proved and not any(one in _PASSING for one in blocked.obstacles)
        if PlacementObstacle.CORDONED in blocked.obstacles and tolerates_cordon(pod):
            # No plan sends it there, yet kube-scheduler does.
            impossible = False
        finding = explain_unschedulable(evidence)
        if impossible and self._may_preempt(pod_class, pod, fixed, room):
            impossible, finding = False, replace(finding, preemptible=True)
        return tuple(str(obstacle) for obstacle in blocked.obstacles), finding, impossible

    def _may_preempt(self, pod_class: int, pod: Pod, fixed: ObstacleMasks, room: CapacityObstacles) -> bool:
        """Tell whether kube-scheduler may preempt for a pod what no plan does: it protects only what budgets cover."""
        open_nodes = room.once_preempted()
        if not open_nodes.any():
            return False
        masks = self._neighbours.once_preempted(pod_class, pod, fixed)
        return bool((open_nodes & ~np.logical_or.reduce(list(masks.values()))).any())


def _closed_priority(built: BuiltProblem, packing: Packing) -> int | None:
    """The highest priority that waits, if it is proved that no plan places any pod of it; else None.

    Only where all that run with it, or with a higher one, are placed in every plan.
    """
    problem = built.problem
    waits = problem.pod_node < 0
    if (
        problem.objective is PackingObjective.PAPER
        or problem.rules.eviction_limits
        or problem.rules.max_evicted_by_node is not None
    ):
        return None
    if not waits.any():
        return None
    priorities = problem.priorities[problem.pod_class]
    highest = int(priorities[waits].max())
    until = int(np.count_nonzero(np.unique(problem.priorities) >= highest))
    came = waits & (priorities == highest) & (packing.pod_node >= 0)
    proved = packing.planned.get_key(problem.objective)[:until] == packing.bound[:until]
    return highest if proved and not came.any() else None
