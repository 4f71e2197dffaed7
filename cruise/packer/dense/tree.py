"""Deciding a target under rules by branch and price: every part of the question has its own prices and bound."""

import math
from dataclasses import dataclass, replace

import numpy as np

from cruise.packer.arrays import BoolArray, FloatArray, IntArray
from cruise.packer.budget import COLUMN_CELL, PART_STEP, Meter
from cruise.packer.dense.branching import reaches, uncertain
from cruise.packer.dense.company import Company
from cruise.packer.dense.generation import generation_of
from cruise.packer.dense.master import Stand
from cruise.packer.dense.parting import Bond
from cruise.packer.dense.phase import Phase

_TRACE = 1e-7
# Company that is uncertain by no less is decided about first.
_LONELY = 0.05
_DEARER = 8.0
# Where all fillings are listed, an unmet demand costs so much more than it can gain.
_PENALTY, _MARGIN = 1000.0, 1e-4
# Of the bases that are kept to come back to, 8 bytes each.
_MOST_CELLS = 30_000_000


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """A part of the question: copies by group and class, and what rows between nodes ask for."""

    least: IntArray
    most: IntArray
    asked: FloatArray


class Tree:
    """A search for one filling a node that reaches a target, of a question in which every node is a group.

    It prices fillings in each part, beginning with those that are known; these are all where they are `listed`.
    """

    def __init__(
        self,
        phase: Phase,
        bonds: tuple[Bond, ...],
        company: Company,
        target: int,
        generator: np.random.Generator,
        known: tuple[IntArray, IntArray],
        *,
        listed: bool = False,
    ) -> None:
        self.phase, self.bonds, self.company, self.target = phase, bonds, company, target
        self.generation = generation_of(phase, generator, company)
        self.master = self.generation.master
        self.master.tilt_by(generator)
        self.master.raise_artificials(_DEARER)
        self._known, self._listed = known, listed
        self._root = _Part(np.zeros_like(phase.limits), phase.limits, phase.row_least.copy())
        self._part: _Part | None = self._root
        self._stand = self.master.stand()
        # Parts that are not looked at yet, each with the basis and the prices of what it is a part of.
        self._pending: list[tuple[_Part, Stand, FloatArray]] = []
        self._complete, self.looked = True, 0

    def aim(self, target: int) -> None:
        """Begin anew with another target."""
        self.target, self._part, self._complete = target, self._root, True
        self._pending.clear()
        self.master.return_to(self._stand)

    def search(self, meter: Meter) -> tuple[tuple[IntArray, IntArray] | None, bool]:
        """The groups and fillings of an answer, if there is one, or whether that is refuted; goes on where it was."""
        while self._part is not None and len(self._pending) * len(self.master.right) ** 2 < _MOST_CELLS:
            reached = None if meter.over() else self._look(self._part, meter)
            if reached is None and meter.over():
                return None, False
            parts = self._parts(self._part) if reached else None
            if parts is not None:
                self._part, later = parts
                self._pending.append((later, self.master.stand(), self.generation.duals))
                continue
            found = self._whole() if reached else None
            # An answer that is no use, or none, of a part that was not refuted.
            self._complete &= reached is False
            self._part = self._next()
            if found is not None:
                return found, False
        return None, self._part is None and self._complete

    def begin(self, few: int, meter: Meter) -> bool:
        """Solve the master of all fillings that are known, the first few at first; False when the budget ended."""
        master, (groups, fillings) = self.master, self._known
        master.raise_artificials(_PENALTY)
        master.add_all(groups[:few], fillings[:few])
        begun = master.solve(meter)
        meter.spend(COLUMN_CELL * len(master.right) * len(groups))
        master.add_all(groups[few:], fillings[few:])
        solved = begun and not meter.over() and master.solve(meter)
        self._stand = master.stand()
        return solved

    def means(self, meter: Meter) -> FloatArray | None:
        """How many copies of each class each node has before anything is parted; None where that reaches no target."""
        # The master is at its optimum sooner if it begins with few.
        few = len(self.master.right)
        self.generation.take(*(one[:few] for one in self._known))
        self.master.solve(meter)
        self.generation.take(*(one[few:] for one in self._known))
        if not self._look(self._root, meter):
            return None
        self._stand = self.master.stand()
        levels = self.master.levels()[self.master.first :]
        groups, fillings = self.master.known()
        means = np.zeros(self.phase.limits.shape)
        np.add.at(means, groups, levels[:, None] * fillings)
        return means.T

    def _next(self) -> _Part | None:
        if not self._pending:
            return None
        part, stand, self.generation.duals = self._pending.pop()
        self.master.return_to(stand)
        return part

    def _look(self, part: _Part, meter: Meter) -> bool | None:
        """Whether a part may reach the target, by its own prices; None where the budget ended."""
        generation, master = self.generation, self.master
        if self._listed:
            master.restrict(self._fits(part), np.any(part.least > 0, axis=1), part.asked)
            return master.repair(self.target - _MARGIN, meter)
        if not generation.filler.narrow(part.least, part.most):
            return False
        self.looked += 1
        meter.spend(PART_STEP)
        occupied = np.any(part.least > 0, axis=1)
        for group in np.flatnonzero(occupied).tolist():
            # Without a filling of the least the master might have no solution.
            if self.company.lonely(group, part.least[group]) < 0:
                master.add(group, part.least[group])
        master.restrict(self._fits(part), occupied, part.asked)
        repaired = master.repair(-math.inf, meter)
        if not repaired:
            return None
        generation.bound, generation.ceiling, generation.converged = math.inf, self.target, False
        if not self.phase.kept.any() or self.target == self.phase.ceiling:
            # Where nothing but pods counts, or all is asked for, most of the rounds would be about the tilt.
            generation.enough = self.target
        generation.generate(self.target - 1, meter)
        if generation.ceiling < self.target:
            return False
        return True if generation.converged else None

    def _fillings(self) -> tuple[IntArray, IntArray]:
        return self._known if self._listed else self.master.known()

    def _fits(self, part: _Part) -> BoolArray:
        groups, fillings = self._fillings()
        return np.asarray(np.all((fillings >= part.least[groups]) & (fillings <= part.most[groups]), axis=1))

    def _parts(self, part: _Part) -> tuple[_Part, _Part] | None:
        """Two parts that any answer belongs to one of, the more likely one first; None where all is certain."""
        levels = self.master.levels()[self.master.first :]
        used = np.flatnonzero(levels > _TRACE)
        groups, fillings = (one[used] for one in self._fillings())
        amounts = levels[used]
        found = [bond.lonely(groups, amounts, fillings) for bond in self.bonds]
        top = int(np.argmax(found)) if found else 0
        if found and found[top] > _LONELY:
            return self._with_company(part, self.bonds[top])
        value, stay_bonus = self.master.prices(self.master.worths())
        split = uncertain(groups, amounts, fillings, value + stay_bonus)
        if split is None:
            return None
        group, c, copies = split
        more, fewer = part.least.copy(), part.most.copy()
        more[group, c], fewer[group, c] = copies, copies - 1
        self.company.accompany(group, more[group])
        return replace(part, least=more), replace(part, most=fewer)

    def _with_company(self, part: _Part, bond: Bond) -> tuple[_Part, _Part]:
        """Either nothing arrives in the domain, or what attracts is there, and of a group that stays together all."""
        without, within, asked = part.most.copy(), part.most.copy(), part.asked.copy()
        without[bond.inside, bond.holder] = np.minimum(without[bond.inside, bond.holder], bond.ran[bond.inside])
        if bond.row >= 0:
            asked[bond.row] = self.phase.row_least[bond.row] + 1.0
        else:
            within[bond.elsewhere, bond.holder] = 0
        return replace(part, most=within, asked=asked), replace(part, most=without)

    def _whole(self) -> tuple[IntArray, IntArray] | None:
        """The filling that each node is certain to have, where that meets every demand in whole numbers."""
        used = self.master.levels()[self.master.first :] > 0.5
        groups, fillings = (one[used] for one in self._fillings())
        return (groups, fillings) if reaches(self.phase, groups, fillings, self.target) else None
