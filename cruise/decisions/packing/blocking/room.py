"""Whether nodes have room for one more pod, and what would have to give where they have not."""

from collections.abc import Iterator
from itertools import combinations

import numpy as np

from cruise.decisions.packing.blocking.holding import Holding, Without
from cruise.decisions.packing.blocking.smallest import Way
from cruise.decisions.packing.building.obstacle import PROTECTIONS, Obstacle, resource_obstacle
from cruise.domain.arrays import BoolArray, Int64Array
from cruise.domain.unplaced import Occupants

NO_PODS = Without()


class Room:
    """What nodes lack for one more pod of a class."""

    def __init__(self, holding: Holding, pod_class: int) -> None:
        self._holding, self._problem = holding, holding.problem
        self._demand = self._problem.demands[pod_class]
        self._headroom = self._problem.headroom[pod_class]
        self._preempts = bool(self._problem.preempt[pod_class])
        self._priority = int(self._problem.priorities[pod_class])

    def lacking(self, without: Without = NO_PODS) -> Int64Array:
        """How much of each resource each node is short of, beside those pods that are left."""
        short = self._holding.taken(without, self._headroom) + self._demand - self._problem.capacities
        takes = (self._demand > 0) | (self._headroom > 0)
        return np.where(takes, np.maximum(short, 0), 0)

    def lacking_when_empty(self) -> Int64Array:
        """How much each node is short of with nothing else on it."""
        short = self._demand + self._headroom - self._problem.capacities
        return np.asarray(np.maximum(short, 0), dtype=np.int64)

    def full_of(self, nodes: BoolArray) -> Occupants:
        """Tell of which priorities those nodes are full, if that is what keeps the pod out."""
        if not self._fits(Without(self._priority + 1, protected=True))[nodes].any():
            return Occupants.HIGHER
        lower_gone = self._fits(Without(self._priority, protected=True))
        return Occupants.ANY if lower_gone[nodes].any() else Occupants.EQUAL_OR_HIGHER

    def ways_as_packed(self) -> Iterator[Way]:
        """What to drop for room beside the placed pods: what is short, or what protects lower priorities."""
        yield from self._by_resource(self.lacking())
        polite: tuple[str, ...] = () if self._preempts else (Obstacle.PREEMPTION_POLICY,)
        for dropped in _subsets(self._holding.protections_of(self._priority)):
            names = (*polite, *(PROTECTIONS[index] for index in dropped))
            if names:
                yield Way(self._fits(Without(self._priority, dropped)), frozenset(names))

    def ways_in_any_plan(self) -> Iterator[Way]:
        """What to drop for room beside those that stay in every plan."""
        yield from self._by_resource(self.lacking(Without(movable=True)))
        for dropped in _subsets(self._holding.protections_of(None)):
            if dropped:
                names = frozenset[str](PROTECTIONS[index] for index in dropped)
                yield Way(self._fits(Without(protections=dropped, movable=True)), names)

    def once_preempted(self) -> BoolArray:
        """Tell of each node whether it has room once kube-scheduler has preempted what stays there in every plan."""
        if not self._preempts:
            return np.zeros(self._problem.node_count, dtype=np.bool_)
        helps = self._holding.preempting_helps(self._priority)
        return helps & self._fits(Without(self._priority, protected=True, movable=True)) if helps.any() else helps

    def _fits(self, without: Without) -> BoolArray:
        return np.asarray(~self.lacking(without).any(axis=1), dtype=np.bool_)

    def _by_resource(self, lacking: Int64Array) -> Iterator[Way]:
        """For nodes that lack the same resources, these."""
        codes = (lacking > 0) @ (1 << np.arange(lacking.shape[1]))
        for code in np.unique(codes).tolist():
            names = [resource_obstacle(name) for r, name in enumerate(self._problem.resources) if code >> r & 1]
            yield Way(np.asarray(codes == code, dtype=np.bool_), frozenset(names))


def _subsets(protections: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    for size in range(len(protections) + 1):
        yield from combinations(protections, size)
