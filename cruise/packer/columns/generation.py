"""Generates columns for a subproblem: patterns that the master lacks, and the best bound that their prices prove."""

import math
from dataclasses import dataclass, field

import numpy as np

from cruise.packer.budget import LISTED_CELL, PRICING_STEP, BudgetMeter
from cruise.packer.columns.instance import ResidualInstance
from cruise.packer.columns.master import MasterProblem, build_master_problem
from cruise.packer.columns.subproblem import PrioritySubproblem, build_subproblem_items
from cruise.packer.kernels.knapsack import list_patterns_of_node
from cruise.packer.kernels.knapsack_items import KnapsackItems
from cruise.packer.kernels.same_node_affinity_patterns import GroupCopyBounds, build_group_copy_bounds, price_patterns
from cruise.packer.kernels.simplex import REDUCED_COST_TOLERANCE, raise_best_column_values
from cruise.packer.problem import BoolArray, FloatArray, IntArray, PackingProblem
from cruise.packer.rules.by_class import is_domain_per_node

_PER_GROUP = 4
MAX_SEARCH_NODES = 30_000
# Work units for each group, in addition to its search.
_GROUP_STEP = 1_000
# The value of a group without a possible pattern.
EMPTY_PATTERN = -1e15


@dataclass(frozen=True, slots=True, eq=False)
class SameNodeAffinityRules:
    """Affinity by node: at most `max_alone[k, group]` pods of `holder[k]` on a node without `targets[k]`."""

    holder: IntArray
    targets: BoolArray
    max_alone: IntArray

    def find_broken_rule(self, group: int, pattern: IntArray) -> int:
        """Return the first rule that a pattern breaks, -1 for none."""
        has_too_many = pattern[self.holder] > self.max_alone[:, group]
        broken = np.flatnonzero(has_too_many & ~(self.targets & (pattern > 0)).any(axis=1))
        return int(broken[0]) if len(broken) else -1

    def add_required_targets(self, group: int, minimum: IntArray) -> None:
        """Add the pods that the minimum of a group needs, where only one class can be them."""
        for _ in self.holder:
            rule = self.find_broken_rule(group, minimum)
            if rule < 0 or self.targets[rule].sum() != 1:
                return
            minimum[self.targets[rule]] = 1


NO_SAME_NODE_AFFINITY_RULES = SameNodeAffinityRules(
    np.zeros(0, dtype=np.int64), np.zeros((0, 0), dtype=np.bool_), np.zeros((0, 0), dtype=np.int64)
)


def build_same_node_affinity_rules(
    problem: PackingProblem, residual: ResidualInstance, subproblem: PrioritySubproblem
) -> SameNodeAffinityRules:
    """Return the affinity by node of a subproblem, if all targets are among its classes."""
    classes, rules = residual.origin[subproblem.classes], problem.rules
    rows = []
    for rule in rules.attractions:
        holder_index = np.flatnonzero(classes == rule.holder)
        missing_targets = np.setdiff1d(np.intersect1d(rule.targets, residual.origin), classes)
        by_node = any(is_domain_per_node(rules.topologies[topology]) for topology in rule.topologies)
        if len(holder_index) and by_node and not rule.allows_first_pod and not len(missing_targets):
            running = residual.running[subproblem.classes[holder_index[0]]]
            # Next to immovable targets any number of pods is allowed.
            alone = np.where(residual.fixed[rule.targets].any(axis=0), np.iinfo(np.int64).max, running)
            max_alone = np.zeros(len(subproblem.group_size), dtype=np.int64)
            np.maximum.at(max_alone, subproblem.node_group, alone)
            rows.append((int(holder_index[0]), np.isin(classes, rule.targets), max_alone))
    return SameNodeAffinityRules(
        np.array([holder for holder, _, _ in rows], dtype=np.int64),
        np.array([targets for _, targets, _ in rows], dtype=np.bool_).reshape(len(rows), len(classes)),
        np.array([max_alone for _, _, max_alone in rows], dtype=np.int64).reshape(
            len(rows), len(subproblem.group_size)
        ),
    )


@dataclass(slots=True, eq=False)
class PatternPricing:
    """Prices patterns for the groups of a subproblem, between `bounds.minimum` and `bounds.maximum` copies."""

    subproblem: PrioritySubproblem
    items: KnapsackItems
    bounds: GroupCopyBounds

    def tighten(self, minimum: IntArray, maximum: IntArray) -> bool:
        """Set the bounds of copies; False if a group has too little capacity for its minimum."""
        bounds, subproblem = self.bounds, self.subproblem
        bounds.minimum[:, :], bounds.maximum[:, :] = minimum, maximum
        floor = subproblem.floor
        if len(subproblem.headroom):
            headroom = [subproblem.headroom[copies > 0].max(axis=0, initial=0) for copies in minimum]
            floor = np.maximum(floor, np.array(headroom))
        return bool(
            (minimum <= maximum).all() and (subproblem.free_capacity - minimum @ subproblem.demands >= floor).all()
        )

    def get_empty_values(self) -> FloatArray:
        """Return the value of each group without any known pattern: an empty node, if that is allowed."""
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
        """Return patterns worth more than the known ones, and the groups' bounds; None if the budget ends.

        `value[group, class]` is the value of a copy. The bound of a group without an open node is 0.
        """
        items, bounds = self.items, np.zeros(len(known))
        steps_before = int(items.nodes[0])
        limits = _PER_GROUP, most_nodes, meter.deadline_seconds
        count = price_patterns(items, self.bounds, value, stay_bonus, counts, open_groups, known, bounds, *limits)
        if count < 0:
            return None
        meter.spend(PRICING_STEP * (int(items.nodes[0]) - steps_before) + _GROUP_STEP * len(known))
        return items.found_group[:count].copy(), items.found[:count].copy(), bounds


# Bounds are floating point: a whole number is exceeded only beyond this.
BOUND_TOLERANCE = 1e-6
_SMOOTHING = 0.8
_UNMET = 1e-4
_MAX_ARTIFICIAL_COST = 1e4


@dataclass(slots=True)
class ColumnGeneration:
    """A master that grows.

    `bound` is the least bound found, with the duals and group values from which it was computed: only together they
    tell the slack of a pattern. `ceiling` is the whole number that no answer exceeds; a master worth `target_bound`
    needs no columns.
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
        """Return the subproblem of the master."""
        return self.master.subproblem

    def generate(self, answer: int, meter: BudgetMeter) -> None:
        """Add columns until the ceiling equals the answer, no column gains, or the budget ends."""
        while self.ceiling > answer and not self.converged and self.master.solve(meter):
            if self.master.compute_objective() >= self.target_bound and self.master.compute_unmet_demand() <= _UNMET:
                self.converged = True
                return
            duals = self.master.compute_values()
            gained = self._separate(duals, answer, meter)
            if gained is None:
                return
            if gained:
                continue
            if self.master.compute_unmet_demand() > _UNMET and self.master.get_artificial_cost() < _MAX_ARTIFICIAL_COST:
                self.master.raise_artificials(2.0)
            else:
                self.converged = True

    def _separate(self, duals: FloatArray, answer: int, meter: BudgetMeter) -> bool | None:
        """Price between the best duals and the master's, closer to the latter each time no column gains."""
        smoothing = _SMOOTHING if len(self.duals) else 0.0
        while True:
            smoothed = smoothing * self.duals + (1.0 - smoothing) * duals if smoothing else duals
            priced = self.find_patterns(smoothed, self.subproblem.counts, self.subproblem.group_size, meter)
            if priced is None:
                return None
            self.rounds += 1
            self._update_bound(smoothed, priced[2])
            if self.ceiling <= answer:
                return True
            if self.add_patterns(priced[0], priced[1]):
                return True
            if smoothing == 0.0:
                return False
            smoothing = smoothing - 0.4 if smoothing > 0.5 else 0.0

    def _update_bound(self, duals: FloatArray, group_bounds: FloatArray) -> None:
        bound = self.master.compute_bound(duals, group_bounds)
        if bound < self.bound:
            self.bound, self.duals, self.group_bounds = bound, duals.copy(), group_bounds.copy()
            self.ceiling = min(self.ceiling, math.floor(bound + BOUND_TOLERANCE))

    def find_patterns(
        self, duals: FloatArray, counts: IntArray, open_groups: IntArray, meter: BudgetMeter
    ) -> tuple[IntArray, IntArray, FloatArray] | None:
        """Return new patterns (groups and copies) at some duals, and the groups' bounds; None if the budget ends."""
        known = self.pricing.get_empty_values()
        raise_best_column_values(self.master.tableau, duals, self.master.first, self.master.convexity, known)
        value, stay_bonus = self.master.compute_prices(duals)
        return self.pricing.price(value, stay_bonus, counts, open_groups, known, self.most_nodes, meter)

    def add_patterns(self, groups: IntArray, patterns: IntArray) -> bool:
        """Add patterns to the master; return whether one of them gains at its duals."""
        gained = False
        duals = self.master.tableau.duals
        value, stay_bonus = self.master.compute_prices(-duals[: self.master.convexity])
        for group, pattern in zip(groups.tolist(), patterns, strict=True):
            stays = np.minimum(pattern, self.subproblem.running[group])
            worth = float(pattern @ value[group] + stays @ stay_bonus) - float(duals[self.master.convexity + group])
            if self.master.add(group, pattern) and worth > REDUCED_COST_TOLERANCE:
                gained = True
        return gained


def start_column_generation(
    subproblem: PrioritySubproblem,
    generator: np.random.Generator,
    same_node_affinity: SameNodeAffinityRules = NO_SAME_NODE_AFFINITY_RULES,
) -> ColumnGeneration:
    """Return column generation without any pattern."""
    master = build_master_problem(subproblem, generator)
    items = build_subproblem_items(subproblem, _PER_GROUP * (max(len(subproblem.group_size), 1) + 2))
    copy_bounds = build_group_copy_bounds(
        items, same_node_affinity.holder, same_node_affinity.targets, same_node_affinity.max_alone
    )
    return ColumnGeneration(master, PatternPricing(subproblem, items, copy_bounds), subproblem.ceiling)


_MAX_NODES = 200_000
# Limits of patterns on all nodes together, and of their cells.
_MAX_PATTERNS, _MAX_CELLS = 20_000, 4_000_000
# Patterns contain only copies that are worth more than -1.
_LEFT_OUT = -2.0


def list_patterns(generation: ColumnGeneration, target: int, meter: BudgetMeter) -> tuple[IntArray, IntArray] | None:
    """Return the groups and copies of all maximal patterns that may reach a target; None if they are too many.

    The slack of a pattern is measured with the group values of the best bound, because pricing the same duals again may
    stop elsewhere and cut off patterns of a better answer. Rows that limit copies would need patterns that are not
    maximal.
    """
    if generation.bound == math.inf:
        return None
    subproblem = generation.subproblem
    max_patterns = min(_MAX_PATTERNS, _MAX_CELLS // max(len(subproblem.classes), 1))
    items = build_subproblem_items(subproblem, max_patterns)
    items.mix[:, :] = generation.pricing.items.mix
    gap = generation.bound - target + BOUND_TOLERANCE
    value, stay_bonus = generation.master.compute_prices(generation.duals)
    # A copy that costs more than the gap is left out; others count as if they cost nothing.
    stays, value = (np.where(one < -gap, _LEFT_OUT, np.maximum(one, 0.0)) for one in (value + stay_bonus, value))
    count = 0
    for group in range(len(subproblem.group_size)):
        before = int(items.nodes[0])
        least = float(generation.group_bounds[group]) - gap
        listed = list_patterns_of_node(
            items, group, value[group], (stays - value)[group], subproblem.counts, least, count, _MAX_NODES
        )
        count += max(listed, 0)
        meter.spend(PRICING_STEP * (int(items.nodes[0]) - before) + LISTED_CELL * count * len(subproblem.classes))
        if listed < 0 or meter.is_exhausted():
            return None
    groups = items.found_group[:count].copy()
    return None if subproblem.group_size[groups].sum() > max_patterns else (groups, items.found[:count].copy())
