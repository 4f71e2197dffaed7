"""The most valuable fillings of nodes at some prices, between bounds of what they hold, with the company it needs."""

from dataclasses import dataclass

import numpy as np

from cruise.packer.arrays import FloatArray, IntArray
from cruise.packer.budget import PRICING_STEP, Meter
from cruise.packer.dense.company import NO_COMPANY, Company
from cruise.packer.dense.phase import Phase, shelf_for
from cruise.packer.kernels.accompanying import Held, fill_parts, held_of
from cruise.packer.kernels.shelf import Shelf

_PER_GROUP = 4
MOST_NODES = 30_000
# For each group, whatever its search takes.
_GROUP_STEP = 1_000
# What a group is worth that no filling is left for.
NOTHING = -1e15


@dataclass(slots=True, eq=False)
class Filler:
    """Fills a phase's groups, each of which has at least `held.least[group, class]` copies and at most `held.most`."""

    phase: Phase
    shelf: Shelf
    held: Held

    def narrow(self, least: IntArray, most: IntArray) -> bool:
        """Hold the groups to other copies; False where one of them has no room for the least."""
        held, phase = self.held, self.phase
        held.least[:, :], held.most[:, :] = least, most
        floor = phase.floor
        if len(phase.headroom):
            kept = [phase.headroom[copies > 0].max(axis=0, initial=0) for copies in least]
            floor = np.maximum(floor, np.array(kept))
        return bool((least <= most).all() and (phase.room - least @ phase.demands >= floor).all())

    def known(self) -> FloatArray:
        """What each group is worth without any filling that is known: an empty node, where that is a choice."""
        return np.where(self.held.least.any(axis=1), NOTHING, 0.0)

    def fill(
        self,
        value: FloatArray,
        stay_bonus: FloatArray,
        counts: IntArray,
        open_groups: IntArray,
        known: FloatArray,
        most_nodes: int,
        meter: Meter,
    ) -> tuple[IntArray, IntArray, FloatArray] | None:
        """Fillings worth more than what is known of each group, and each group's bound; None when the budget ended.

        `value[group, class]` is what a copy is worth there. A group's bound is 0 where none of its nodes is open.
        """
        shelf, bounds = self.shelf, np.zeros(len(known))
        begun = int(shelf.nodes[0])
        limits = _PER_GROUP, most_nodes, meter.deadline_seconds
        written = fill_parts(shelf, self.held, value, stay_bonus, counts, open_groups, known, bounds, *limits)
        if written < 0:
            return None
        meter.spend(PRICING_STEP * (int(shelf.nodes[0]) - begun) + _GROUP_STEP * len(known))
        return shelf.found_group[:written].copy(), shelf.found[:written].copy(), bounds


def filler_of(phase: Phase, company: Company = NO_COMPANY) -> Filler:
    """A filler that holds the groups to no more than the phase does."""
    shelf = shelf_for(phase, _PER_GROUP * (max(len(phase.group_size), 1) + 2))
    return Filler(phase, shelf, held_of(shelf, company.holder, company.targets, company.alone))
