"""What is found of a pod that stays pending: which nodes fall short, and of what."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cruise.decisions.packing.blocking.neighbours import NeighbourObstacles
from cruise.decisions.packing.blocking.room import Room
from cruise.decisions.packing.blocking.smallest import Blocked
from cruise.decisions.packing.building import Built
from cruise.decisions.packing.building.amounts import capacities
from cruise.decisions.packing.building.obstacle import Obstacle
from cruise.domain.arrays import BoolArray, Int64Array
from cruise.domain.cluster import Node, Pod
from cruise.domain.scheduling import Taint, TaintEffect
from cruise.domain.unplaced import Finding, Occupants, Pattern

_OF_COMPANY = (Obstacle.AFFINITY, Obstacle.ANTI_AFFINITY)
_OF_LABELS = (Obstacle.NODE_SELECTOR, Obstacle.NODE_AFFINITY)


@dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """What keeps a pod out: the smallest set, all masks behind it, and whether that holds in any plan at all."""

    built: Built
    pod: Pod
    pod_class: int
    blocked: Blocked
    masks: dict[str, BoolArray]
    room: Room
    never: bool
    neighbours: NeighbourObstacles

    @property
    def by_room(self) -> bool:
        """Whether room alone is what is missing."""
        closing = [self.masks[obstacle] for obstacle in self.blocked.obstacles if obstacle in self.masks]
        return not any(mask[self.blocked.nodes].any() for mask in closing)

    def nodes(self, mask: BoolArray) -> list[Node]:
        """The nodes of a mask."""
        return [self.built.nodes[index] for index in np.flatnonzero(mask).tolist()]


def finding_of(evidence: Evidence) -> Finding:
    """Say what keeps the pod out, and what would let it in."""
    obstacles = evidence.blocked.obstacles
    if not obstacles:
        return Finding(Pattern.OPEN)
    everything = np.ones(len(evidence.built.nodes), dtype=np.bool_)
    if evidence.never and len(obstacles) == 1 and evidence.masks.get(obstacles[0], np.zeros(1)).all():
        return _nowhere(evidence, evidence.nodes(everything))
    if obstacles[0] in _OF_COMPANY and evidence.neighbours.shuns_its_own(evidence.pod_class):
        return Finding(Pattern.ONLY_FIRST, affinity=evidence.pod.constraints.affinity)
    if evidence.by_room:
        return _full(evidence)
    there = evidence.nodes(evidence.blocked.nodes)
    _, lacking = _nearest(evidence, evidence.room.lacking())
    return _about(evidence, Pattern.CLOSED, there, lacking)


def _nowhere(evidence: Evidence, nodes: list[Node]) -> Finding:
    """What no node at all meets."""
    pod, obstacle = evidence.pod, evidence.blocked.obstacles[0]
    if obstacle == Obstacle.AFFINITY:
        return _never_beside(evidence, nodes)
    keys = [spread.topology_key for spread in pod.constraints.spread]
    keys = _missing(keys, nodes) or keys if obstacle == Obstacle.TOPOLOGY_SPREAD else []
    return _about(evidence, Pattern.NOWHERE, nodes, {}, keys)


def _never_beside(evidence: Evidence, nodes: list[Node]) -> Finding:
    affinity = evidence.pod.constraints.affinity
    missing = _missing([term.topology_key for term in affinity], nodes)
    pattern = Pattern.AFFINITY_NOWHERE
    if missing:
        pattern = Pattern.AFFINITY_UNLABELLED
    elif evidence.neighbours.contradicts_itself(evidence.pod_class):
        pattern = Pattern.AFFINITY_CONTRADICTED
    elif evidence.neighbours.wants_pods_that_are_nowhere(evidence.pod_class):
        pattern = Pattern.AFFINITY_WITHOUT_PODS
    return Finding(pattern, affinity=affinity, topology_keys=tuple(missing))


def _about(
    evidence: Evidence, pattern: Pattern, there: list[Node], lacking: dict[str, int], keys: Sequence[str] | None = None
) -> Finding:
    """A finding with what the obstacles are about, on some nodes."""
    pod, obstacles = evidence.pod, evidence.blocked.obstacles
    if keys is None and Obstacle.TOPOLOGY_SPREAD in obstacles:
        keys = [spread.topology_key for spread in pod.constraints.spread]
    return Finding(
        pattern,
        nodes=len(there),
        node=there[0].name if len(there) == 1 else "",
        lacking=tuple(lacking.items()),
        selector=pod.placement.node_selector if Obstacle.NODE_SELECTOR in obstacles else (),
        node_terms=tuple(pod.placement.terms or ()) if Obstacle.NODE_AFFINITY in obstacles else (),
        affinity=pod.constraints.affinity if Obstacle.AFFINITY in obstacles else (),
        topology_keys=tuple(keys or ()),
        taints=_untolerated(pod, there) if Obstacle.TAINTS in obstacles else (),
    )


def _full(evidence: Evidence) -> Finding:
    """The nodes that would do are full, or too small even when empty."""
    problem = evidence.built.problem
    closed = np.zeros(len(evidence.built.nodes), dtype=np.bool_)
    for mask in evidence.masks.values():
        closed |= mask
    able = evidence.nodes(~closed)
    empty = evidence.room.lacking_when_empty()
    # Where room is kept for others there is more than nodes offer to this one.
    kept = capacities(evidence.built.nodes, evidence.built.snapshot.surroundings, problem.resources)
    too_large = bool((empty > kept - problem.capacities)[~closed].any(axis=1).all())
    nearest, lacking = _nearest(evidence, empty if too_large else evidence.room.lacking())
    of_all = len(able) == len(evidence.built.nodes)
    narrowed_by = () if of_all else tuple(str(label) for label in _OF_LABELS if evidence.masks[label].any())
    placement = evidence.pod.placement
    size = problem.demands[evidence.pod_class] + problem.headroom[evidence.pod_class]
    return Finding(
        Pattern.TOO_LARGE if too_large else Pattern.FULL,
        nodes=len(able),
        node=able[0].name if len(able) == 1 else "",
        nearest=evidence.built.nodes[nearest].name,
        of_all=of_all,
        narrowed_by=narrowed_by,
        narrowed_further=any(mask.any() for obstacle, mask in evidence.masks.items() if obstacle not in _OF_LABELS),
        lacking=tuple(lacking.items()),
        size=tuple((name, int(size[problem.resources.index(name)])) for name in lacking) if too_large else (),
        occupants=Occupants.ANY if too_large else _occupants(evidence, ~closed),
        selector=placement.node_selector if Obstacle.NODE_SELECTOR in narrowed_by else (),
        node_terms=tuple(placement.terms or ()) if Obstacle.NODE_AFFINITY in narrowed_by else (),
    )


def _occupants(evidence: Evidence, able: BoolArray) -> Occupants:
    return Occupants.STAYING if evidence.never else evidence.room.full_of(able)


def _missing(keys: list[str], nodes: list[Node]) -> list[str]:
    return list(dict.fromkeys(key for key in keys if not any(key in node.labels for node in nodes)))


def _untolerated(pod: Pod, nodes: list[Node]) -> tuple[Taint, ...]:
    """The taints of some nodes that a pod does not tolerate, each once."""
    hard = [taint for node in nodes for taint in node.taints if taint.effect is not TaintEffect.PREFER_NO_SCHEDULE]
    repel = [taint for taint in hard if not any(t.tolerates(taint) for t in pod.placement.tolerations)]
    return tuple(dict.fromkeys(repel))


def _nearest(evidence: Evidence, lacking: Int64Array) -> tuple[int, dict[str, int]]:
    """Of the nodes that the set is about, the one that lacks the smallest share of the pod's size; what it lacks."""
    problem = evidence.built.problem
    size = np.maximum(problem.demands[evidence.pod_class] + problem.headroom[evidence.pod_class], 1)
    share = np.where(evidence.blocked.nodes, (lacking / size).max(axis=1), np.inf)
    best = int(share.argmin())
    return best, {problem.resources[r]: int(lacking[best, r]) for r in np.flatnonzero(lacking[best]).tolist()}
