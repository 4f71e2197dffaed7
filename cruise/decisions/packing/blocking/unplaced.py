"""Why each pod that stays pending does so."""

from collections.abc import Hashable
from dataclasses import replace

import numpy as np

from cruise.decisions.packing.blocking.finding import Evidence, finding_of
from cruise.decisions.packing.blocking.holding import Holding
from cruise.decisions.packing.blocking.neighbours import NeighbourObstacles
from cruise.decisions.packing.blocking.room import Room
from cruise.decisions.packing.blocking.smallest import smallest
from cruise.decisions.packing.building import Built
from cruise.decisions.packing.building.fixed import Masks, closed_by
from cruise.decisions.packing.building.nodes import NodeColumns
from cruise.decisions.packing.building.obstacle import Obstacle
from cruise.decisions.packing.building.volumes import Volumes
from cruise.domain.cluster import Pod
from cruise.domain.cordons import tolerates_cordon
from cruise.domain.unplaced import Finding, Pattern, Unplaced
from cruise.packer.answer import Packing
from cruise.packer.problem import Objective

_PASSING = (Obstacle.DISRUPTION_BUDGET, Obstacle.EVICTION_LIMIT)


def why_unplaced(built: Built, packing: Packing) -> tuple[Unplaced, ...]:
    """Say for each pod that is pending and stays so what keeps it out, sorted by namespace and pod."""
    asking = _Asking(built, packing)
    waiting = np.flatnonzero((built.problem.pod_node < 0) & (packing.pod_node < 0))
    found = [*built.left_out, *(asking.answer(pod) for pod in waiting.tolist())]
    return tuple(sorted(found, key=lambda one: one.key))


class _Asking:
    """Answers for pods; those that nothing tells apart share an answer."""

    def __init__(self, built: Built, packing: Packing) -> None:
        self._built = built
        self._closed = _closed_priority(built, packing)
        self._holding = Holding(built, packing.pod_node)
        self._columns = NodeColumns(built.nodes)
        self._volumes = Volumes(built.snapshot.surroundings)
        for pod in built.snapshot.pods:
            if not pod.terminal:
                self._volumes.use(pod)
        self._neighbours = NeighbourObstacles(built, self._holding)
        self._known: dict[Hashable, tuple[tuple[str, ...], Finding, bool]] = {}

    def answer(self, index: int) -> Unplaced:
        """Say what keeps a pod out."""
        pod, pod_class = self._built.pods[index], int(self._built.problem.pod_class[index])
        key = pod_class, pod.placement, pod.constraints
        if key not in self._known:
            self._known[key] = self._find(pod_class, pod)
        obstacles, finding, impossible = self._known[key]
        return Unplaced(pod.namespace, pod.name, obstacles, finding, impossible)

    def _find(self, pod_class: int, pod: Pod) -> tuple[tuple[str, ...], Finding, bool]:
        built, nodes = self._built, self._built.problem.node_count
        if nodes == 0:
            return (Obstacle.NO_NODES,), Finding(Pattern.NO_NODES), True
        fixed = closed_by(self._columns, pod, self._volumes.of_arrival(pod).terms)
        room = Room(self._holding, pod_class)
        ever = self._neighbours.in_any_plan(pod_class, pod, fixed)
        blocked = smallest(nodes, ever, room.ways_in_any_plan())
        never = bool(blocked.obstacles)
        masks = ever
        if not never:
            masks = self._neighbours.as_packed(pod_class, pod, fixed)
            blocked = smallest(nodes, masks, room.ways_as_packed())
        # That as many are placed as can be says nothing of this one: another might be left out for it.
        proved = never or int(built.problem.priorities[pod_class]) == self._closed
        evidence = Evidence(built, pod, pod_class, blocked, masks, room, never, self._neighbours)
        # Budgets fill up again: what they stand in the way of is possible in a plan made later.
        impossible = bool(blocked.obstacles) and proved and not any(one in _PASSING for one in blocked.obstacles)
        if Obstacle.CORDONED in blocked.obstacles and tolerates_cordon(pod):
            # No plan sends it there, yet kube-scheduler does.
            impossible = False
        finding = finding_of(evidence)
        if impossible and self._may_preempt(pod_class, pod, fixed, room):
            impossible, finding = False, replace(finding, preemptible=True)
        return tuple(str(obstacle) for obstacle in blocked.obstacles), finding, impossible

    def _may_preempt(self, pod_class: int, pod: Pod, fixed: Masks, room: Room) -> bool:
        """Tell whether kube-scheduler may preempt for a pod what no plan does: it protects only what budgets cover."""
        open_nodes = room.once_preempted()
        if not open_nodes.any():
            return False
        masks = self._neighbours.once_preempted(pod_class, pod, fixed)
        return bool((open_nodes & ~np.logical_or.reduce(list(masks.values()))).any())


def _closed_priority(built: Built, packing: Packing) -> int | None:
    """The highest priority that waits, if it is proved that no plan places any pod of it; else None.

    Only where all that run with it, or with a higher one, are placed in every plan.
    """
    problem = built.problem
    waits = problem.pod_node < 0
    if problem.objective is Objective.PAPER or problem.rules.eviction_limits or problem.rules.most_evicted is not None:
        return None
    if not waits.any():
        return None
    priorities = problem.priorities[problem.pod_class]
    highest = int(priorities[waits].max())
    until = int(np.count_nonzero(np.unique(problem.priorities) >= highest))
    came = waits & (priorities == highest) & (packing.pod_node >= 0)
    proved = packing.after.key(problem.objective)[:until] == packing.bound[:until]
    return highest if proved and not came.any() else None
