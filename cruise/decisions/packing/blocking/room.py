"""Whether nodes have room for one more pod, and what would have to give where they have not."""

from collections.abc import Iterator
from itertools import combinations

import numpy as np

from cruise.decisions.packing.blocking.holding import Holding
from cruise.decisions.packing.blocking.obstacle import PROTECTIONS, Obstacle, resource_obstacle
from cruise.decisions.packing.blocking.smallest import Way
from cruise.decisions.packing.instance import BoolArray, IntArray


class Room:
    """What nodes lack for one more pod of a class."""

    def __init__(self, holding: Holding, pod_class: int) -> None:
        self._holding, self._problem = holding, holding.problem
        self._demand = self._problem.demands[pod_class]
        self._headroom = self._problem.headroom[pod_class]
        self._preempts = bool(self._problem.preempt[pod_class])
        self._priority = int(self._problem.priorities[pod_class])
        self._placed = holding.pod_node >= 0
        self._lower = self._placed & (holding.priority < self._priority)

    def lacking(self, staying: BoolArray | None = None) -> IntArray:
        """How much of each resource each node is short of, beside those pods (None: all that are placed)."""
        staying = self._placed if staying is None else staying
        short = self._holding.taken(staying, self._headroom) + self._demand - self._problem.capacities
        takes = (self._demand > 0) | (self._headroom > 0)
        return np.where(takes, np.maximum(short, 0), 0)

    def lacking_when_empty(self) -> IntArray:
        """How much each node is short of with nothing else on it."""
        return self.lacking(np.zeros_like(self._placed))

    def full_of(self, nodes: BoolArray) -> str:
        """Tell of which priorities those nodes are full; empty where that is not what keeps the pod out."""
        if not self._fits(self._placed & (self._holding.priority > self._priority))[nodes].any():
            return "higher"
        return "" if self._fits(self._placed & ~self._lower)[nodes].any() else "equal or higher"

    def ways_as_packed(self) -> Iterator[Way]:
        """What to drop for room beside who is placed: what is short, or what protects lower priorities."""
        yield from self._by_resource(self.lacking())
        movable = self._problem.preemptible[self._problem.pod_class] & (self._holding.protection < 0)
        polite: tuple[str, ...] = () if self._preempts else (Obstacle.PREEMPTION_POLICY,)
        for dropped in _some_protections():
            goes = self._lower & (movable | np.isin(self._holding.protection, dropped))
            names = (*polite, *(PROTECTIONS[index] for index in dropped))
            if names:
                yield Way(self._fits(self._placed & ~goes), frozenset(names))

    def ways_in_any_plan(self) -> Iterator[Way]:
        """What to drop for room beside those that stay in every plan."""
        stuck = self._holding.stuck
        yield from self._by_resource(self.lacking(stuck))
        for dropped in _some_protections():
            if dropped:
                names = frozenset[str](PROTECTIONS[index] for index in dropped)
                yield Way(self._fits(stuck & ~np.isin(self._holding.protection, dropped)), names)

    def _fits(self, staying: BoolArray) -> BoolArray:
        return np.asarray(~self.lacking(staying).any(axis=1), dtype=np.bool_)

    def _by_resource(self, lacking: IntArray) -> Iterator[Way]:
        """For nodes that lack the same resources, these."""
        patterns, which = np.unique(lacking > 0, axis=0, return_inverse=True)
        for index, pattern in enumerate(patterns):
            names = [resource_obstacle(self._problem.resources[r]) for r in np.flatnonzero(pattern).tolist()]
            yield Way(which.reshape(-1) == index, frozenset(names))


def _some_protections() -> Iterator[tuple[int, ...]]:
    for size in range(len(PROTECTIONS) + 1):
        yield from combinations(range(len(PROTECTIONS)), size)
