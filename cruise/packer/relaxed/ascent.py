"""Prices that bound well: a class's price follows what it and those of like sizes lack, ever more slowly."""

import math

import numpy as np

from cruise.packer.arrays import FloatArray, IntArray
from cruise.packer.budget import Meter
from cruise.packer.relaxed.dual import SCALE, Dual
from cruise.packer.relaxed.question import Question
from cruise.packer.relaxed.sizes import by_size

# How far a price, or its part by size, goes at first, in costs of an eviction; how much of its last direction it keeps.
_STEP, _KEPT = 0.1, 0.7
# After so many prices that bound no better it goes on from the best ones, in shorter steps, so many times at most.
_PATIENCE, _SHORTER, _RETURNS = 4, 0.5, 30
# Nodes are searched for no longer than this until something is bounded, then for more, twice as long after each return.
_QUICK_SEARCH, _SEARCH, _LONGEST_SEARCH = 500, 4_000, 20_000


def least(dual: Dual, question: Question, known: int, meter: Meter) -> int:
    """The greatest bound found until it meets what a plan is known to reach, nothing gains, or the budget ends."""
    climb, bound, vain, returns, search = _Climb(dual, question), 0, 0, 0, _SEARCH
    best = climb.parts
    while returns <= _RETURNS and math.ceil(bound / SCALE) < known and not meter.over():
        value = dual.value(question, climb.prices(), search if bound > 0 else _QUICK_SEARCH, meter)
        if value is None:
            break
        if value.bound > bound:
            bound, best, vain = value.bound, climb.parts, 0
        else:
            vain += 1
        if vain > _PATIENCE:
            climb.restart(best)
            vain, returns, search = 0, returns + 1, min(2 * search, _LONGEST_SEARCH)
        else:
            climb.follow(value.slope)
    return -(-bound // SCALE)


class _Climb:
    """Prices on their way up: each is the sum of parts by size and one of its own."""

    def __init__(self, dual: Dual, question: Question) -> None:
        self._sizes = by_size(dual.problem)
        self.parts = np.zeros(self._sizes.shape[1] + len(self._sizes))
        self._swings, self._direction = np.ones(len(self.parts)), np.zeros(len(self.parts))
        self._step = _STEP * float(max(question.cost.max(initial=0), 1))

    def prices(self) -> FloatArray:
        """The price of each class, below 0 where even 0 is too much."""
        mine = self._sizes.shape[1]
        return np.asarray(self._sizes @ self.parts[:mine] + self.parts[mine:], dtype=np.float64)

    def follow(self, slope: IntArray) -> None:
        """Go where what classes lack points, where prices can."""
        lacks = np.where((self.prices() <= 0.0) & (slope < 0), 0, slope)
        every = np.concatenate([self._sizes.T @ lacks, lacks])
        self._direction = _KEPT * self._direction + (1.0 - _KEPT) * every
        self._swings += np.square(every)
        self.parts = self.parts + self._step * self._direction / np.sqrt(self._swings)

    def restart(self, parts: FloatArray) -> None:
        """Go on from elsewhere in shorter steps."""
        self.parts, self._direction, self._step = parts, np.zeros(len(parts)), self._step * _SHORTER
