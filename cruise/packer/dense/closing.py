"""Closing a phase: list every filling that an answer at the ceiling could use, and decide by branch and bound."""

from dataclasses import dataclass

import numpy as np

from cruise.packer.arrays import IntArray
from cruise.packer.budget import LISTED_CELL, PRICING_STEP, Meter
from cruise.packer.dense.branching import Verdict, branch
from cruise.packer.dense.generation import BOUND_TOLERANCE, Generation
from cruise.packer.dense.phase import shelf_for
from cruise.packer.kernels.listing import enumerate_fillings
from cruise.packer.kernels.pricing import EXACT
from cruise.packer.kernels.shelf import Shelf

_MOST_NODES = 200_000
_MOST_FILLINGS, _MOST_CELLS = 20_000, 4_000_000
_MOST_BRANCHED, _FEW_ALIKE, _ALIKE_SHARE = 20_000, 4, 0.03
# Fillings are made of what is worth more than -1.
_LEFT_OUT = -2.0


@dataclass(slots=True)
class Closer:
    """The space for enumerated fillings, kept from one attempt to the next."""

    generation: Generation
    most_fillings: int
    shelf: Shelf
    generator: np.random.Generator
    most_nodes: int = _MOST_NODES
    known: int = 0

    def enumerate(self, target: int, meter: Meter, share: float = 1.0) -> tuple[IntArray, IntArray] | None:
        """Every maximal filling (groups and copies) that an answer of at least `target` could use.

        With a share below 1 only those that lose no more than that share of what an answer may lose. What the master
        uses comes first.

        The slack of a filling is measured against the pricing values stored with the best bound, since pricing the
        same duals again may stop elsewhere and so cut off fillings that belong to a better answer. None when there
        are too many, or the budget ended.
        """
        generation, phase = self.generation, self.generation.phase
        gap = share * (generation.bound - target) + BOUND_TOLERANCE
        value, stay_bonus = generation.master.prices(generation.duals)
        # A copy that costs a node more than there is to lose is left out; others count as if they cost nothing.
        stays, value = (np.where(one < -gap, _LEFT_OUT, np.maximum(one, 0.0)) for one in (value + stay_bonus, value))
        stay_bonus = stays - value
        written, begun = 0, int(self.shelf.nodes[0])
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
                max(_MOST_NODES, self.most_nodes - (before - begun)),
                meter.deadline_seconds,
            )
            meter.spend(PRICING_STEP * (int(self.shelf.nodes[0]) - before) + LISTED_CELL * found * len(phase.classes))
            if outcome != EXACT or meter.over():
                return None
            written += found
        used = np.flatnonzero(generation.master.levels()[generation.master.first :] > 0)
        self.known = len(used)
        groups, fillings = np.array(generation.master.groups)[used], np.array(generation.master.fillings)[used]
        more, copies = self.shelf.found_group[:written].copy(), self.shelf.found[:written].copy()
        return np.concatenate([groups, more]), np.concatenate([fillings, copies])

    def decide(
        self,
        groups: IntArray,
        fillings: IntArray,
        target: int,
        share: float,
        meter: Meter,
    ) -> Verdict:
        """Decide about the target, within a share of what is left: of few fillings.

        Where many nodes are alike a tree proves nothing for long, but finds an answer soon or never.
        """
        sizes = self.generation.phase.group_size
        if int(sizes[groups].sum()) > max(_MOST_BRANCHED, self.most_fillings):
            return Verdict(None, np.zeros(0, dtype=np.int64))
        alike = int(sizes.max()) > _FEW_ALIKE
        with meter.part(min(share, _ALIKE_SHARE) if alike else share) as part:
            return branch(self.generation.phase, groups, fillings, target, self.generator, part, self.known)


def closer_of(
    generation: Generation,
    generator: np.random.Generator,
    most_fillings: int = _MOST_FILLINGS,
    most_nodes: int = _MOST_NODES,
) -> Closer:
    """A closer for a phase's generation, that lists fewer fillings where each takes more memory."""
    phase = generation.phase
    most_fillings = min(most_fillings, _MOST_CELLS // max(len(phase.classes), 1))
    shelf = shelf_for(phase, most_fillings)
    shelf.mix[:, :] = generation.filler.shelf.mix
    return Closer(generation, most_fillings, shelf, generator, most_nodes)


def chosen(groups: IntArray, fillings: IntArray, verdict: Verdict) -> tuple[IntArray, IntArray]:
    """The groups and copies of one filling a node that were chosen."""
    picks = np.repeat(np.arange(len(groups)), verdict.uses)
    return groups[picks], fillings[picks]
