"""Every filling that an answer could use which reaches a target, where they are few."""

import math

import numpy as np

from cruise.packer.arrays import IntArray
from cruise.packer.budget import LISTED_CELL, PRICING_STEP, Meter
from cruise.packer.dense.generation import BOUND_TOLERANCE, Generation
from cruise.packer.dense.phase import shelf_for
from cruise.packer.kernels.listing import enumerate_fillings

_MOST_NODES = 200_000
# So many at most, on all nodes together, and as many numbers.
_MOST_FILLINGS, _MOST_CELLS = 20_000, 4_000_000
# Fillings are made of what is worth more than -1.
_LEFT_OUT = -2.0


def list_fillings(generation: Generation, target: int, meter: Meter) -> tuple[IntArray, IntArray] | None:
    """The groups and copies of every maximal filling; None where there are too many, or the budget ended.

    The slack of a filling is measured against the pricing values stored with the best bound, since pricing the same
    duals again may stop elsewhere and so cut off fillings that belong to a better answer. Rows between nodes that ask
    for no more of something would need fillings that are not maximal.
    """
    if generation.bound == math.inf:
        return None
    phase = generation.phase
    most = min(_MOST_FILLINGS, _MOST_CELLS // max(len(phase.classes), 1))
    shelf = shelf_for(phase, most)
    shelf.mix[:, :] = generation.filler.shelf.mix
    gap = generation.bound - target + BOUND_TOLERANCE
    value, stay_bonus = generation.master.prices(generation.duals)
    # A copy that costs a node more than there is to lose is left out; others count as if they cost nothing.
    stays, value = (np.where(one < -gap, _LEFT_OUT, np.maximum(one, 0.0)) for one in (value + stay_bonus, value))
    written = 0
    for group in range(len(phase.group_size)):
        before = int(shelf.nodes[0])
        least = float(generation.group_bounds[group]) - gap
        found = enumerate_fillings(
            shelf, group, value[group], (stays - value)[group], phase.counts, least, written, _MOST_NODES
        )
        written += max(found, 0)
        meter.spend(PRICING_STEP * (int(shelf.nodes[0]) - before) + LISTED_CELL * written * len(phase.classes))
        if found < 0 or meter.over():
            return None
    groups = shelf.found_group[:written].copy()
    return None if phase.group_size[groups].sum() > most else (groups, shelf.found[:written].copy())
