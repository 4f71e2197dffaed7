"""Column generation for a phase: fillings that the master lacks, and the best bound that their prices prove."""

import math
from dataclasses import dataclass, field

import numpy as np

from cruise.packer.arrays import FloatArray, IntArray
from cruise.packer.budget import Meter
from cruise.packer.dense.company import NO_COMPANY, Company
from cruise.packer.dense.filling import MOST_NODES, Filler, filler_of
from cruise.packer.dense.master import Master, master_of
from cruise.packer.dense.phase import Phase
from cruise.packer.kernels.simplex import REDUCED_COST_TOLERANCE, best_known

# Bounds are floating point: a whole number counts as surpassed only beyond this.
BOUND_TOLERANCE = 1e-6
_SMOOTHING = 0.8
_UNMET = 1e-4
_DEAREST = 1e4


@dataclass(slots=True)
class Generation:
    """A master that grows.

    `bound` is the least one found, with the duals and the groups' pricing values that it was computed from: only
    together do they say what slack a filling has. `ceiling` is the whole number that no answer surpasses; a master that
    is worth `enough` is not asked for more.
    """

    master: Master
    filler: Filler
    ceiling: int
    bound: float = math.inf
    duals: FloatArray = field(default_factory=lambda: np.zeros(0))
    group_bounds: FloatArray = field(default_factory=lambda: np.zeros(0))
    rounds: int = 0
    most_nodes: int = MOST_NODES
    converged: bool = False
    enough: float = math.inf

    @property
    def phase(self) -> Phase:
        """The question that the master answers."""
        return self.master.phase

    def generate(self, answer: int, meter: Meter) -> None:
        """Add columns until the ceiling meets the answer, nothing gains any more, or the budget ends."""
        while self.ceiling > answer and not self.converged and self.master.solve(meter):
            if self.master.objective() >= self.enough and self.master.artificial() <= _UNMET:
                self.converged = True
                return
            duals = self.master.worths()
            gained = self._separate(duals, answer, meter)
            if gained is None:
                return
            if gained:
                continue
            if self.master.artificial() > _UNMET and self.master.dearest() < _DEAREST:
                self.master.raise_artificials(2.0)
            else:
                self.converged = True

    def _separate(self, duals: FloatArray, answer: int, meter: Meter) -> bool | None:
        """Price between the best duals and the master's, nearer to the latter each time nothing gains there."""
        smoothing = _SMOOTHING if len(self.duals) else 0.0
        while True:
            at = smoothing * self.duals + (1.0 - smoothing) * duals if smoothing else duals
            found = self.price(at, self.phase.counts, self.phase.group_size, meter)
            if found is None:
                return None
            self.rounds += 1
            self._learn(at, found[2])
            if self.ceiling <= answer:
                return True
            if self.take(found[0], found[1]):
                return True
            if smoothing == 0.0:
                return False
            smoothing = smoothing - 0.4 if smoothing > 0.5 else 0.0

    def _learn(self, duals: FloatArray, group_bounds: FloatArray) -> None:
        bound = self.master.bound(duals, group_bounds)
        if bound < self.bound:
            self.bound, self.duals, self.group_bounds = bound, duals.copy(), group_bounds.copy()
            self.ceiling = min(self.ceiling, math.floor(bound + BOUND_TOLERANCE))

    def price(
        self, duals: FloatArray, counts: IntArray, open_groups: IntArray, meter: Meter
    ) -> tuple[IntArray, IntArray, FloatArray] | None:
        """New fillings (groups and copies) at some duals, and each group's bound; None when the budget ended."""
        known = self.filler.known()
        best_known(self.master.tableau, duals, self.master.first, self.master.convexity, known)
        value, stay_bonus = self.master.prices(duals)
        return self.filler.fill(value, stay_bonus, counts, open_groups, known, self.most_nodes, meter)

    def take(self, groups: IntArray, fillings: IntArray) -> bool:
        """Add fillings to the master; whether one of them gains at its duals."""
        gained = False
        duals = self.master.tableau.duals
        value, stay_bonus = self.master.prices(-duals[: self.master.convexity])
        for group, filling in zip(groups.tolist(), fillings, strict=True):
            stays = np.minimum(filling, self.phase.running[group])
            worth = float(filling @ value[group] + stays @ stay_bonus) - float(duals[self.master.convexity + group])
            if self.master.add(group, filling) and worth > REDUCED_COST_TOLERANCE:
                gained = True
        return gained


def generation_of(phase: Phase, generator: np.random.Generator, company: Company = NO_COMPANY) -> Generation:
    """Column generation that knows no filling yet."""
    return Generation(master_of(phase, generator), filler_of(phase, company), phase.ceiling)
