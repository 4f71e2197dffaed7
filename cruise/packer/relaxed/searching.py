"""All nodes searched at prices, a span of them after the other, each span divided among threads."""

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from cruise.packer.arrays import FloatArray, IntArray
from cruise.packer.budget import Threads
from cruise.packer.kernels.changes import Changes
from cruise.packer.kernels.relaxing import Present, price_nodes
from cruise.packer.kernels.shelf import Shelf, shelf_of

# Spans of all nodes, after each of which a search may end, and how many are searched in any case.
_SPANS, _LEAST_SPANS = 16, 2


@dataclass(frozen=True, slots=True, eq=False)
class Prices:
    """What a search is at: whole prices of classes and limits, and costs, as `kernels.relaxing` has them."""

    priced: IntArray
    price: FloatArray
    cost: FloatArray
    leaving: FloatArray
    rates: FloatArray
    above: IntArray


class _Hand:
    """What one thread needs for itself: scratch, and what it adds up."""

    def __init__(self, shelf: Shelf, present: Present, prices: int) -> None:
        own = shelf_of(shelf.demands, shelf.headroom, shelf.room, shelf.floor, shelf.limits, shelf.running, 1)
        # Nodes are searched by one thread each, so what belongs to a node may be shared.
        self.shelf = own._replace(mix=shelf.mix)
        self.present = present._replace(here=np.zeros_like(present.here))
        self.kept = np.zeros(int(np.diff(present.first).max(initial=0)), dtype=np.bool_)
        self.net, self.surplus = np.zeros(prices, dtype=np.int64), np.zeros(2)


class Searches:
    """Searches of all nodes; `gains`, `net` and `surplus` are those of the last one, `spent` the steps of all.

    What comes of a search does not depend on the number of threads: whole numbers are added up.
    """

    def __init__(self, shelf: Shelf, present: Present, changes: Changes, prices: int, threads: Threads) -> None:
        self._changes, self._nodes, self._threads = changes, len(shelf.room), threads
        self._hands = [_Hand(shelf, present, prices) for _ in range(threads.count)]
        self._begin = 0
        self.gains = np.zeros(self._nodes)

    @property
    def net(self) -> IntArray:
        """What arrived of each class less what left."""
        return np.asarray(np.sum([hand.net for hand in self._hands], axis=0))

    @property
    def surplus(self) -> tuple[float, float]:
        """How much more nodes gain than by changes known before, and of that what no change is known for."""
        more, unsure = np.sum([hand.surplus for hand in self._hands], axis=0).tolist()
        return more, unsure

    @property
    def spent(self) -> int:
        """The steps of all searches so far."""
        return sum(int(hand.shelf.nodes[0]) for hand in self._hands)

    def run(self, at: Prices, enough: float, most_steps: int, deadline: float) -> int | None:
        """Search until the surplus is `enough`; how many nodes that took, None where the deadline came first."""
        for hand in self._hands:
            hand.net[:], hand.surplus[:] = 0, 0.0
        ends = [0, self._nodes] if enough == math.inf else np.linspace(0, self._nodes, _SPANS + 1).astype(int).tolist()
        for span, (begin, end) in enumerate(pairwise(ends)):
            if span >= _LEAST_SPANS and self.surplus[0] > enough:
                self._begin = (self._begin + begin) % self._nodes
                return int(begin)
            edges = np.linspace(begin, end, len(self._hands) + 1).astype(int).tolist()
            parts = zip(self._hands, edges[:-1], edges[1:], strict=True)
            if not all(list(self._threads.each(lambda part: self._search(at, part, most_steps, deadline), parts))):
                return None
        return self._nodes

    def _search(self, at: Prices, part: tuple[_Hand, int, int], most_steps: int, deadline: float) -> bool:
        hand, begin, end = part
        return price_nodes(
            hand.shelf,
            hand.present,
            self._changes,
            at.priced,
            at.price,
            at.cost,
            at.leaving,
            at.rates,
            at.above,
            hand.kept,
            hand.net,
            self.gains,
            hand.surplus,
            (self._begin + begin) % self._nodes,
            end - begin,
            most_steps,
            deadline,
        )
