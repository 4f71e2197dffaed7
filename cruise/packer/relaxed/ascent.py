"""Prices that bound well: each class's price follows what it is short of, ever more slowly the more it swings."""

import math
from typing import NamedTuple

import numpy as np

from cruise.packer.arrays import FloatArray
from cruise.packer.budget import Meter
from cruise.packer.relaxed.dual import SCALE, Dual
from cruise.packer.relaxed.question import Question

# How far a price goes at first, in costs of an eviction; how much of its last direction it keeps.
_STEP, _KEPT = 0.3, 0.7
# After so many prices that bound no better it goes on from the best ones, in shorter steps, so many times at most.
_PATIENCE, _SHORTER, _RETURNS = 25, 0.5, 6


class Least(NamedTuple):
    """A bound, and the prices that prove it."""

    bound: int
    prices: FloatArray


def least(dual: Dual, question: Question, known: int, prices: FloatArray, meter: Meter) -> Least:
    """The greatest bound found until it meets what a plan is known to reach, nothing gains, or the budget ends."""
    unit = float(max(question.cost.max(initial=0), 1))
    swings, direction, best, bound = np.zeros(len(prices)), np.zeros(len(prices)), prices, 0
    step, vain, returns = _STEP * unit, 0, 0
    while returns <= _RETURNS and math.ceil(bound / SCALE) < known and not meter.over():
        value = dual.value(question, prices, meter)
        if value is None:
            break
        if value.bound > bound:
            bound, best, vain = value.bound, prices, 0
        else:
            vain += 1
        direction = _KEPT * direction + (1.0 - _KEPT) * value.slope
        swings += np.square(value.slope)
        if vain > _PATIENCE:
            prices, direction, vain = best, np.zeros(len(prices)), 0
            step, returns = step * _SHORTER, returns + 1
        else:
            prices = np.maximum(prices + step * direction / np.sqrt(swings + 1.0), 0.0)
    return Least(-(-bound // SCALE), best)
