"""Deciding a target under rules by branch and price: every part of the question has its own prices and bound."""

import math
from dataclasses import dataclass, replace

import numpy as np

from cruise.packer.budget import COLUMN_CELL, SUBPROBLEM_STEP, BudgetMeter
from cruise.packer.columns.affinity import NodeAffinityRules
from cruise.packer.columns.generation import start_column_generation
from cruise.packer.columns.instance import ResidualInstance
from cruise.packer.columns.master import MasterState
from cruise.packer.columns.pod_rules import find_domain_attractions, get_domains
from cruise.packer.columns.subproblem import PrioritySubproblem, choose_branching, reaches_target
from cruise.packer.problem import BoolArray, FloatArray, IntArray, PackingProblem, count_copies

# Ways to go on from an assignment where copies arrive without the company that attracts them: one of them holds.


@dataclass(frozen=True, slots=True, eq=False)
class DomainAttraction:
    """An attraction in a domain, of a question in which every node is a group.

    `holder` and `targets` are among the question's classes; `inside` and `elsewhere` mark nodes, on which `ran[node]`
    holders run. A `row` of the question counts targets inside; -1 where holders are the first of all.
    """

    holder: int
    targets: BoolArray
    inside: BoolArray
    outside: BoolArray
    was_running: IntArray
    row: int

    def is_unaccompanied(self, groups: IntArray, amounts: FloatArray, fillings: IntArray) -> float:
        """How uncertain it is, from 0 to 1, whether holders that arrive have company; `amounts` are of fillings."""
        inside = self.inside[groups]
        arriving = np.maximum(fillings[:, self.holder] - self.was_running[groups], 0)
        arrives = float(amounts[inside] @ arriving[inside])
        if self.row < 0:
            others = float(amounts @ (fillings[:, self.holder] * self.outside[groups]))
            return min(arrives, others, 1.0)
        there = float(amounts[inside] @ fillings[inside][:, self.targets].sum(axis=1))
        return min(arrives, 1.0) * max(1.0 - there, 0.0)


def find_domain_attractions_of_subproblem(
    problem: PackingProblem, residual: ResidualInstance, phase: PrioritySubproblem
) -> tuple[DomainAttraction, ...]:
    """The attractions of a question by domain, where it has all the targets and may ask for them."""
    classes, rules = residual.origin[phase.classes], problem.rules
    asked, found = set(find_domain_attractions(problem)), []
    running = count_copies(problem, problem.pod_node)
    for rule in rules.attractions:
        holders, targets = np.flatnonzero(classes == rule.holder), np.isin(classes, rule.targets)
        first = rule.allows_first_pod
        if not len(holders) or targets.sum() != 1 or len(rule.targets) > 1 or (first and len(rule.topologies) > 1):
            continue
        for topology in rule.topologies:
            row = rules.topologies[topology]
            for domain in get_domains(row) if (int(rule.targets[0]), topology) in asked else ():
                inside = row == domain
                ran = running[rule.holder]
                settled = ran[inside].any() if first else residual.fixed[rule.targets][:, inside].any()
                if not settled:
                    counting = np.where(targets, inside[:, None], False)
                    number = -1 if first else int(np.argmax((phase.row_share == counting).all(axis=(1, 2))))
                    moving = residual.running[phase.classes[holders[0]]]
                    found.append(
                        DomainAttraction(int(holders[0]), targets, inside, (row >= 0) & ~inside, moving, number)
                    )
    return tuple(found)


_TRACE = 1e-7
# Company that is uncertain by no less is decided about first.
_LONELY = 0.05
_DEARER = 8.0
# Where all fillings are listed, an unmet demand costs so much more than it can gain.
_PENALTY, _MARGIN = 1000.0, 1e-4
# Of the bases that are kept to come back to, 8 bytes each.
_MOST_CELLS = 30_000_000


@dataclass(frozen=True, slots=True, eq=False)
class _BranchNode:
    """A part of the question: copies by group and class, and what rows between nodes ask for."""

    minimum: IntArray
    maximum: IntArray
    required: FloatArray


class BranchAndPrice:
    """A search for one filling a node that reaches a target, of a question in which every node is a group.

    It prices fillings in each part, beginning with those that are known; these are all where they are `listed`.
    """

    def __init__(
        self,
        phase: PrioritySubproblem,
        bonds: tuple[DomainAttraction, ...],
        company: NodeAffinityRules,
        target: int,
        generator: np.random.Generator,
        known: tuple[IntArray, IntArray],
        *,
        listed: bool = False,
    ) -> None:
        self.subproblem, self.attractions, self.node_affinity, self.target = phase, bonds, company, target
        self.generation = start_column_generation(phase, generator, company)
        self.master = self.generation.master
        self.master.perturb(generator)
        self.master.raise_artificials(_DEARER)
        self._known, self._listed = known, listed
        self._root = _BranchNode(np.zeros_like(phase.limits), phase.limits, phase.row_least.copy())
        self._part: _BranchNode | None = self._root
        self._stand = self.master.save_state()
        # Parts that are not looked at yet, each with the basis and the prices of what it is a part of.
        self._pending: list[tuple[_BranchNode, MasterState, FloatArray]] = []
        self._complete, self.nodes_visited = True, 0

    def set_target(self, target: int) -> None:
        """Begin anew with another target."""
        self.target, self._part, self._complete = target, self._root, True
        self._pending.clear()
        self.master.restore_state(self._stand)

    def search(self, meter: BudgetMeter) -> tuple[tuple[IntArray, IntArray] | None, bool]:
        """The groups and fillings of an answer, if there is one, or whether that is refuted; goes on where it was."""
        while self._part is not None and len(self._pending) * len(self.master.right) ** 2 < _MOST_CELLS:
            reached = None if meter.is_exhausted() else self._look(self._part, meter)
            if reached is None and meter.is_exhausted():
                return None, False
            parts = self._parts(self._part) if reached else None
            if parts is not None:
                self._part, later = parts
                self._pending.append((later, self.master.save_state(), self.generation.duals))
                continue
            found = self._whole() if reached else None
            # An answer that is no use, or none, of a part that was not refuted.
            self._complete &= reached is False
            self._part = self._next()
            if found is not None:
                return found, False
        return None, self._part is None and self._complete

    def start(self, few: int, meter: BudgetMeter) -> bool:
        """Solve the master of all fillings that are known, the first few at first; False when the budget ended."""
        master, (groups, fillings) = self.master, self._known
        master.raise_artificials(_PENALTY)
        master.add_all(groups[:few], fillings[:few])
        begun = master.solve(meter)
        meter.spend(COLUMN_CELL * len(master.right) * len(groups))
        master.add_all(groups[few:], fillings[few:])
        solved = begun and not meter.is_exhausted() and master.solve(meter)
        self._stand = master.save_state()
        return solved

    def set_rows(self, meter: BudgetMeter) -> FloatArray | None:
        """How many copies of each class each node has before anything is parted; None where that reaches no target."""
        # The master is at its optimum sooner if it begins with few.
        few = len(self.master.right)
        self.generation.take(*(one[:few] for one in self._known))
        self.master.solve(meter)
        self.generation.take(*(one[few:] for one in self._known))
        if not self._look(self._root, meter):
            return None
        self._stand = self.master.save_state()
        levels = self.master.levels()[self.master.first :]
        groups, fillings = self.master.known()
        means = np.zeros(self.subproblem.limits.shape)
        np.add.at(means, groups, levels[:, None] * fillings)
        return means.T

    def _next(self) -> _BranchNode | None:
        if not self._pending:
            return None
        part, stand, self.generation.duals = self._pending.pop()
        self.master.restore_state(stand)
        return part

    def _look(self, part: _BranchNode, meter: BudgetMeter) -> bool | None:
        """Whether a part may reach the target, by its own prices; None where the budget ended."""
        generation, master = self.generation, self.master
        if self._listed:
            master.restrict(self._fits(part), np.any(part.minimum > 0, axis=1), part.required)
            return master.repair(self.target - _MARGIN, meter)
        if not generation.pricing.tighten(part.minimum, part.maximum):
            return False
        self.nodes_visited += 1
        meter.spend(SUBPROBLEM_STEP)
        occupied = np.any(part.minimum > 0, axis=1)
        for group in np.flatnonzero(occupied).tolist():
            # Without a filling of the least the master might have no solution.
            if self.node_affinity.find_unaccompanied(group, part.minimum[group]) < 0:
                master.add(group, part.minimum[group])
        master.restrict(self._fits(part), occupied, part.required)
        repaired = master.repair(-math.inf, meter)
        if not repaired:
            return None
        generation.bound, generation.ceiling, generation.converged = math.inf, self.target, False
        if not self.subproblem.fixed_copies.any() or self.target == self.subproblem.ceiling:
            # Where nothing but pods counts, or all is asked for, most of the rounds would be about the tilt.
            generation.target_bound = self.target
        generation.generate(self.target - 1, meter)
        if generation.ceiling < self.target:
            return False
        return True if generation.converged else None

    def _fillings(self) -> tuple[IntArray, IntArray]:
        return self._known if self._listed else self.master.known()

    def _fits(self, part: _BranchNode) -> BoolArray:
        groups, fillings = self._fillings()
        return np.asarray(np.all((fillings >= part.minimum[groups]) & (fillings <= part.maximum[groups]), axis=1))

    def _parts(self, part: _BranchNode) -> tuple[_BranchNode, _BranchNode] | None:
        """Two parts that any answer belongs to one of, the more likely one first; None where all is certain."""
        levels = self.master.levels()[self.master.first :]
        used = np.flatnonzero(levels > _TRACE)
        groups, fillings = (one[used] for one in self._fillings())
        amounts = levels[used]
        found = [bond.is_unaccompanied(groups, amounts, fillings) for bond in self.attractions]
        top = int(np.argmax(found)) if found else 0
        if found and found[top] > _LONELY:
            return self._with_company(part, self.attractions[top])
        value, stay_bonus = self.master.prices(self.master.compute_values())
        split = choose_branching(groups, amounts, fillings, value + stay_bonus)
        if split is None:
            return None
        group, c, copies = split
        more, fewer = part.minimum.copy(), part.maximum.copy()
        more[group, c], fewer[group, c] = copies, copies - 1
        self.node_affinity.add_companions(group, more[group])
        return replace(part, minimum=more), replace(part, maximum=fewer)

    def _with_company(self, part: _BranchNode, bond: DomainAttraction) -> tuple[_BranchNode, _BranchNode]:
        """Either nothing arrives in the domain, or what attracts is there, and of a group that stays together all."""
        without, within, asked = part.maximum.copy(), part.maximum.copy(), part.required.copy()
        without[bond.inside, bond.holder] = np.minimum(without[bond.inside, bond.holder], bond.was_running[bond.inside])
        if bond.row >= 0:
            asked[bond.row] = self.subproblem.row_least[bond.row] + 1.0
        else:
            within[bond.outside, bond.holder] = 0
        return replace(part, maximum=within, required=asked), replace(part, maximum=without)

    def _whole(self) -> tuple[IntArray, IntArray] | None:
        """The filling that each node is certain to have, where that meets every demand in whole numbers."""
        used = self.master.levels()[self.master.first :] > 0.5
        groups, fillings = (one[used] for one in self._fillings())
        return (groups, fillings) if reaches_target(self.subproblem, groups, fillings, self.target) else None
