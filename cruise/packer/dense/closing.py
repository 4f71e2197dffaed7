"""Closing a phase: list every filling that an answer at the ceiling could use, and decide by branch and bound."""

from dataclasses import dataclass

import numpy as np

from cruise.packer.arrays import IntArray
from cruise.packer.budget import PRICING_STEP, Meter
from cruise.packer.dense.branching import Verdict, branch
from cruise.packer.dense.generation import BOUND_TOLERANCE, Generation
from cruise.packer.dense.phase import shelf_for
from cruise.packer.kernels.listing import enumerate_fillings
from cruise.packer.kernels.pricing import EXACT
from cruise.packer.kernels.shelf import Shelf

_MOST_NODES = 200_000
_MOST_FILLINGS, _MOST_CELLS = 20_000, 4_000_000
_MOST_BRANCHED, _FEW_ALIKE = 20_000, 4
# Fillings are made of what is worth more than -1.
_LEFT_OUT = -2.0


@dataclass(slots=True)
class Closer:
    """The space for enumerated fillings, kept from one attempt to the next."""

    generation: Generation
    most_fillings: int
    shelf: Shelf
    generator: np.random.Generator

    def enumerate(self, target: int, meter: Meter) -> tuple[IntArray, IntArray] | None:
        """Every maximal filling (groups and copies) that an answer of at least `target` could use.

        The slack of a filling is measured against the pricing values stored with the best bound, since pricing the
        same duals again may stop elsewhere and so cut off fillings that belong to a better answer. None when there
        are too many, or the budget ended.
        """
        generation, phase = self.generation, self.generation.phase
        gap = generation.bound - target + BOUND_TOLERANCE
        value, stay_bonus = generation.master.prices(generation.duals)
        # A copy that costs a node something is left out; one that stays there may be worth something all the same.
        staying = np.maximum(value + stay_bonus, 0.0)
        stay_bonus = np.where(value < 0, np.where(staying > 0, staying - _LEFT_OUT, 0.0), stay_bonus)
        value = np.where(value < 0, _LEFT_OUT, value)
        written = 0
        for group in range(len(phase.group_size)):
            before = int(self.shelf.nodes[0])
            found, outcome = enumerate_fillings(
                self.shelf,
                group,
                value[group],
                stay_bonus[group],
                phase.counts,
                float(generation.group_bounds[group]) - gap,
                written,
                _MOST_NODES,
                meter.deadline_seconds,
            )
            meter.spend(PRICING_STEP * (int(self.shelf.nodes[0]) - before))
            if outcome != EXACT or meter.over():
                return None
            written += found
        return self.shelf.found_group[:written].copy(), self.shelf.found[:written].copy()

    def decide(self, groups: IntArray, fillings: IntArray, target: int, share: float, meter: Meter) -> Verdict:
        """Decide about the target, within a share of what is left: of few fillings, of nodes that mostly differ."""
        sizes = self.generation.phase.group_size
        if int(sizes[groups].sum()) > _MOST_BRANCHED or int(sizes.max()) > _FEW_ALIKE:
            return Verdict(None, np.zeros(0, dtype=np.int64))
        with meter.part(share) as part:
            return branch(self.generation.phase, groups, fillings, target, self.generator, part)


def closer_of(generation: Generation, generator: np.random.Generator, most_fillings: int = _MOST_FILLINGS) -> Closer:
    """A closer for a phase's generation, that lists fewer fillings where each takes more memory."""
    phase = generation.phase
    most_fillings = min(most_fillings, _MOST_CELLS // max(len(phase.classes), 1))
    shelf = shelf_for(phase, most_fillings)
    shelf.mix[:, :] = generation.shelf.mix
    return Closer(generation, most_fillings, shelf, generator)


def chosen(groups: IntArray, fillings: IntArray, verdict: Verdict) -> tuple[IntArray, IntArray]:
    """The groups and copies of one filling a node that were chosen."""
    picks = np.repeat(np.arange(len(groups)), verdict.uses)
    return groups[picks], fillings[picks]
