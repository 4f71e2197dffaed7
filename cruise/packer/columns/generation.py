"""Column generation for a phase: fillings that the master lacks, and the best bound that their prices prove."""

import math
from dataclasses import dataclass, field

import numpy as np

from cruise.packer.budget import LISTED_CELL, PRICING_STEP, BudgetMeter
from cruise.packer.columns.affinity import NO_NODE_AFFINITY_RULES, NodeAffinityRules
from cruise.packer.columns.master import MasterProblem, build_master_problem
from cruise.packer.columns.subproblem import PrioritySubproblem, create_items
from cruise.packer.kernels.companions import PatternBounds, build_pattern_bounds, price_patterns
from cruise.packer.kernels.knapsack import list_patterns_of_node
from cruise.packer.kernels.knapsack_items import KnapsackItems
from cruise.packer.kernels.simplex import REDUCED_COST_TOLERANCE, find_best_columns
from cruise.packer.problem import FloatArray, IntArray

# The most valuable fillings of nodes at some prices, between bounds of what they hold, with the company it needs.

_PER_GROUP = 4
MAX_SEARCH_NODES = 30_000
# For each group, whatever its search takes.
_GROUP_STEP = 1_000
# What a group is worth that no filling is left for.
EMPTY_PATTERN = -1e15


@dataclass(slots=True, eq=False)
class PatternPricing:
    """Fills a phase's groups, each of which has at least `held.least[group, class]` copies and at most `held.most`."""

    phase: PrioritySubproblem
    items: KnapsackItems
    bounds: PatternBounds

    def tighten(self, least: IntArray, most: IntArray) -> bool:
        """Hold the groups to other copies; False where one of them has no room for the least."""
        held, phase = self.bounds, self.phase
        held.minimum[:, :], held.maximum[:, :] = least, most
        floor = phase.floor
        if len(phase.headroom):
            kept = [phase.headroom[copies > 0].max(axis=0, initial=0) for copies in least]
            floor = np.maximum(floor, np.array(kept))
        return bool((least <= most).all() and (phase.free_capacity - least @ phase.demands >= floor).all())

    def add_known(self) -> FloatArray:
        """What each group is worth without any filling that is known: an empty node, where that is a choice."""
        return np.where(self.bounds.minimum.any(axis=1), EMPTY_PATTERN, 0.0)

    def price(
        self,
        value: FloatArray,
        stay_bonus: FloatArray,
        counts: IntArray,
        open_groups: IntArray,
        known: FloatArray,
        most_nodes: int,
        meter: BudgetMeter,
    ) -> tuple[IntArray, IntArray, FloatArray] | None:
        """Fillings worth more than what is known of each group, and each group's bound; None when the budget ended.

        `value[group, class]` is what a copy is worth there. A group's bound is 0 where none of its nodes is open.
        """
        shelf, bounds = self.items, np.zeros(len(known))
        begun = int(shelf.nodes[0])
        limits = _PER_GROUP, most_nodes, meter.deadline_seconds
        written = price_patterns(shelf, self.bounds, value, stay_bonus, counts, open_groups, known, bounds, *limits)
        if written < 0:
            return None
        meter.spend(PRICING_STEP * (int(shelf.nodes[0]) - begun) + _GROUP_STEP * len(known))
        return shelf.found_group[:written].copy(), shelf.found[:written].copy(), bounds


def build_pattern_pricing(
    phase: PrioritySubproblem, company: NodeAffinityRules = NO_NODE_AFFINITY_RULES
) -> PatternPricing:
    """A filler that holds the groups to no more than the phase does."""
    shelf = create_items(phase, _PER_GROUP * (max(len(phase.group_size), 1) + 2))
    return PatternPricing(phase, shelf, build_pattern_bounds(shelf, company.holder, company.targets, company.max_alone))


# Bounds are floating point: a whole number counts as surpassed only beyond this.
BOUND_TOLERANCE = 1e-6
_SMOOTHING = 0.8
_UNMET = 1e-4
_DEAREST = 1e4


@dataclass(slots=True)
class ColumnGeneration:
    """A master that grows.

    `bound` is the least one found, with the duals and the groups' pricing values that it was computed from: only
    together do they say what slack a filling has. `ceiling` is the whole number that no answer surpasses; a master that
    is worth `enough` is not asked for more.
    """

    master: MasterProblem
    pricing: PatternPricing
    ceiling: int
    bound: float = math.inf
    duals: FloatArray = field(default_factory=lambda: np.zeros(0))
    group_bounds: FloatArray = field(default_factory=lambda: np.zeros(0))
    rounds: int = 0
    most_nodes: int = MAX_SEARCH_NODES
    converged: bool = False
    target_bound: float = math.inf

    @property
    def subproblem(self) -> PrioritySubproblem:
        """The question that the master answers."""
        return self.master.subproblem

    def generate(self, answer: int, meter: BudgetMeter) -> None:
        """Add columns until the ceiling meets the answer, nothing gains any more, or the budget ends."""
        while self.ceiling > answer and not self.converged and self.master.solve(meter):
            if self.master.objective() >= self.target_bound and self.master.artificial() <= _UNMET:
                self.converged = True
                return
            duals = self.master.compute_values()
            gained = self._separate(duals, answer, meter)
            if gained is None:
                return
            if gained:
                continue
            if self.master.artificial() > _UNMET and self.master.get_most_expensive() < _DEAREST:
                self.master.raise_artificials(2.0)
            else:
                self.converged = True

    def _separate(self, duals: FloatArray, answer: int, meter: BudgetMeter) -> bool | None:
        """Price between the best duals and the master's, nearer to the latter each time nothing gains there."""
        smoothing = _SMOOTHING if len(self.duals) else 0.0
        while True:
            at = smoothing * self.duals + (1.0 - smoothing) * duals if smoothing else duals
            found = self.price(at, self.subproblem.counts, self.subproblem.group_size, meter)
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
        self, duals: FloatArray, counts: IntArray, open_groups: IntArray, meter: BudgetMeter
    ) -> tuple[IntArray, IntArray, FloatArray] | None:
        """New fillings (groups and copies) at some duals, and each group's bound; None when the budget ended."""
        known = self.pricing.add_known()
        find_best_columns(self.master.tableau, duals, self.master.first, self.master.convexity, known)
        value, stay_bonus = self.master.prices(duals)
        return self.pricing.price(value, stay_bonus, counts, open_groups, known, self.most_nodes, meter)

    def take(self, groups: IntArray, fillings: IntArray) -> bool:
        """Add fillings to the master; whether one of them gains at its duals."""
        gained = False
        duals = self.master.tableau.duals
        value, stay_bonus = self.master.prices(-duals[: self.master.convexity])
        for group, filling in zip(groups.tolist(), fillings, strict=True):
            stays = np.minimum(filling, self.subproblem.running[group])
            worth = float(filling @ value[group] + stays @ stay_bonus) - float(duals[self.master.convexity + group])
            if self.master.add(group, filling) and worth > REDUCED_COST_TOLERANCE:
                gained = True
        return gained


def start_column_generation(
    phase: PrioritySubproblem, generator: np.random.Generator, company: NodeAffinityRules = NO_NODE_AFFINITY_RULES
) -> ColumnGeneration:
    """Column generation that knows no filling yet."""
    return ColumnGeneration(
        build_master_problem(phase, generator), build_pattern_pricing(phase, company), phase.ceiling
    )


# Every filling that an answer could use which reaches a target, where they are few.

_MOST_NODES = 200_000
# So many at most, on all nodes together, and as many numbers.
_MOST_FILLINGS, _MOST_CELLS = 20_000, 4_000_000
# Fillings are made of what is worth more than -1.
_LEFT_OUT = -2.0


def list_patterns(generation: ColumnGeneration, target: int, meter: BudgetMeter) -> tuple[IntArray, IntArray] | None:
    """The groups and copies of every maximal filling; None where there are too many, or the budget ended.

    The slack of a filling is measured against the pricing values stored with the best bound, since pricing the same
    duals again may stop elsewhere and so cut off fillings that belong to a better answer. Rows between nodes that ask
    for no more of something would need fillings that are not maximal.
    """
    if generation.bound == math.inf:
        return None
    phase = generation.subproblem
    most = min(_MOST_FILLINGS, _MOST_CELLS // max(len(phase.classes), 1))
    shelf = create_items(phase, most)
    shelf.mix[:, :] = generation.pricing.items.mix
    gap = generation.bound - target + BOUND_TOLERANCE
    value, stay_bonus = generation.master.prices(generation.duals)
    # A copy that costs a node more than there is to lose is left out; others count as if they cost nothing.
    stays, value = (np.where(one < -gap, _LEFT_OUT, np.maximum(one, 0.0)) for one in (value + stay_bonus, value))
    written = 0
    for group in range(len(phase.group_size)):
        before = int(shelf.nodes[0])
        least = float(generation.group_bounds[group]) - gap
        found = list_patterns_of_node(
            shelf, group, value[group], (stays - value)[group], phase.counts, least, written, _MOST_NODES
        )
        written += max(found, 0)
        meter.spend(PRICING_STEP * (int(shelf.nodes[0]) - before) + LISTED_CELL * written * len(phase.classes))
        if found < 0 or meter.is_exhausted():
            return None
    groups = shelf.found_group[:written].copy()
    return None if phase.group_size[groups].sum() > most else (groups, shelf.found[:written].copy())
