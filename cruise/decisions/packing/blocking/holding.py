"""Which pods hold the nodes once a packing is in place, and what would be held if some of them went."""

from dataclasses import dataclass

import numpy as np

from cruise.decisions.packing.building import Built
from cruise.decisions.packing.building.obstacle import PROTECTIONS, Obstacle
from cruise.domain.arrays import BoolArray, Int64Array
from cruise.domain.details import Detail, code_of
from cruise.packer.problem import loads_of

_FREE = -1
_LOWEST = -(2**62)


@dataclass(frozen=True, slots=True)
class Without:
    """Which of the placed pods are thought away: those `below` a priority that nothing but `protections` keeps.

    With `protected`, all below it go; with `movable`, of whatever priority, those that do not stay in every plan. With
    both, what kube-scheduler may preempt goes besides.
    """

    below: int = _LOWEST
    protections: tuple[int, ...] = ()
    protected: bool = False
    movable: bool = False


class Holding:
    """Pods by class on the nodes where a packing puts them.

    `protection[pod]` is the index in PROTECTIONS of what keeps a placed pod from being preempted, -1 for nothing.
    """

    def __init__(self, built: Built, pod_node: Int64Array) -> None:
        self.problem = problem = built.problem
        self.pod_node = pod_node
        self.priority = problem.priorities[problem.pod_class]
        ran = problem.pod_node >= 0
        self.stuck = ran & ~problem.movable[problem.pod_class]
        self.preempted_from = np.zeros(problem.node_count, dtype=np.bool_)
        self.preempted_from[problem.pod_node[ran & (pod_node < 0)]] = True
        self.protection = _protections(built, pod_node, self.stuck)
        self._placed = pod_node >= 0
        self._loads: dict[Without, tuple[Int64Array, Int64Array]] = {}
        self._protections_of: dict[int | None, tuple[int, ...]] = {}

    def taken(self, without: Without, headroom: Int64Array) -> Int64Array:
        """What the pods that would be left take of each node, with the larger of their headroom and `headroom`."""
        if without not in self._loads:
            self._loads[without] = loads_of(self.problem, np.where(self._left(without), self.pod_node, -1))
        sums, largest = self._loads[without]
        return np.asarray(sums + np.maximum(largest, headroom), dtype=np.int64)

    def protections_of(self, below: int | None) -> tuple[int, ...]:
        """What protects placed pods below a priority, or (None) those that stay in every plan."""
        if below not in self._protections_of:
            of_these = self.stuck if below is None else self._placed & (self.priority < below)
            self._protections_of[below] = tuple(np.unique(self.protection[of_these & (self.protection >= 0)]).tolist())
        return self._protections_of[below]

    def preempting_helps(self, below: int) -> BoolArray:
        """Tell which nodes hold pods below a priority that no plan evicts but kube-scheduler may preempt."""
        helps = np.zeros(self.problem.node_count, dtype=np.bool_)
        helps[self.problem.pod_node[self.stuck & (self.priority < below)]] = True
        return helps

    def _left(self, without: Without) -> BoolArray:
        dropped = np.isin(self.protection, without.protections)
        if without.movable:
            return self.stuck & ~dropped & ~(without.protected & (self.priority < without.below))
        # What is weaker could go for a pod that preempts, even where none that waits does.
        free = self.problem.movable[self.problem.pod_class] & (self.protection < 0)
        goes = (self.priority < without.below) & (free | dropped | without.protected)
        return self._placed & ~goes


def _protections(built: Built, pod_node: Int64Array, stuck: BoolArray) -> Int64Array:
    """What keeps each pod: an exhausted limit of evictions, or the reason for which it stays."""
    problem = built.problem
    left = (problem.pod_node >= 0) & (pod_node != problem.pod_node)
    gone = np.bincount(problem.pod_class[left], minlength=problem.class_count)
    protection = np.full(problem.pod_count, _FREE, dtype=np.int64)
    for limit, obstacle in zip(problem.rules.eviction_limits, built.limit_obstacles, strict=True):
        if gone[limit.members].sum() >= limit.allowed:
            covered = np.isin(problem.pod_class, limit.members) & (problem.pod_node >= 0) & ~left
            protection[covered] = PROTECTIONS.index(obstacle)
    most = problem.rules.most_evicted
    if most is not None:
        spent = np.bincount(problem.pod_node[left], minlength=problem.node_count) >= most
        held = (problem.pod_node >= 0) & spent[problem.pod_node] & ~left
        protection[held] = PROTECTIONS.index(Obstacle.EVICTION_LIMIT)
    for pod in np.flatnonzero(stuck).tolist():
        protection[pod] = PROTECTIONS.index(_obstacle_of(built.unmovable[pod] if built.unmovable else None))
    return protection


def _obstacle_of(stays: str | None) -> Obstacle:
    detail = code_of(stays or "")
    if detail in (Detail.SEVERAL_BUDGETS, Detail.BUDGET_EXHAUSTED):
        return Obstacle.DISRUPTION_BUDGET
    return Obstacle.EVICTION_LIMIT if detail is Detail.EVICTIONS_SPENT else Obstacle.UNMOVABLE
