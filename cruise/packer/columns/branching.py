"""Searches a target by branch and price: every node of the tree has its own prices and bound."""

import math
from dataclasses import dataclass, replace

import numpy as np

from cruise.packer.budget import COLUMN_CELL, SUBPROBLEM_STEP, BudgetMeter
from cruise.packer.columns.generation import SameNodeAffinityRules, start_column_generation
from cruise.packer.columns.instance import ResidualInstance
from cruise.packer.columns.master import MasterState
from cruise.packer.columns.pod_rules import find_domain_attractions, get_domains
from cruise.packer.columns.subproblem import PrioritySubproblem, choose_branching, meets_demands_and_target
from cruise.packer.problem import BoolArray, FloatArray, IntArray, PackingProblem, count_copies


@dataclass(frozen=True, slots=True, eq=False)
class DomainAttraction:
    """An attraction in a domain, for a subproblem in which every node is a group.

    `holder` and `targets` are classes of the subproblem; `inside` and `outside` mark nodes, on which
    `was_running[node]` holders ran. `row` is the row of the subproblem that counts targets inside; -1 if holders are
    the first of all.
    """

    holder: int
    targets: BoolArray
    inside: BoolArray
    outside: BoolArray
    was_running: IntArray
    row: int

    def measure_uncertainty(self, groups: IntArray, amounts: FloatArray, patterns: IntArray) -> float:
        """Return how uncertain it is, from 0 to 1, whether arriving holders have targets; `amounts` of the patterns."""
        inside = self.inside[groups]
        arriving = np.maximum(patterns[:, self.holder] - self.was_running[groups], 0)
        arriving_count = float(amounts[inside] @ arriving[inside])
        if self.row < 0:
            outside_count = float(amounts @ (patterns[:, self.holder] * self.outside[groups]))
            return min(arriving_count, outside_count, 1.0)
        target_count = float(amounts[inside] @ patterns[inside][:, self.targets].sum(axis=1))
        return min(arriving_count, 1.0) * max(1.0 - target_count, 0.0)


def find_domain_attractions_of_subproblem(
    problem: PackingProblem, residual: ResidualInstance, subproblem: PrioritySubproblem
) -> tuple[DomainAttraction, ...]:
    """Return the attractions by domain of a subproblem that has all their targets and rows for them."""
    classes, rules = residual.origin[subproblem.classes], problem.rules
    with_rows, found = set(find_domain_attractions(problem)), []
    running = count_copies(problem, problem.pod_node)
    for rule in rules.attractions:
        holders, targets = np.flatnonzero(classes == rule.holder), np.isin(classes, rule.targets)
        first = rule.allows_first_pod
        if not len(holders) or targets.sum() != 1 or len(rule.targets) > 1 or (first and len(rule.topologies) > 1):
            continue
        for topology in rule.topologies:
            row = rules.topologies[topology]
            for domain in get_domains(row) if (int(rule.targets[0]), topology) in with_rows else ():
                inside = row == domain
                running_on_node = running[rule.holder]
                is_certain = running_on_node[inside].any() if first else residual.fixed[rule.targets][:, inside].any()
                if not is_certain:
                    share = np.where(targets, inside[:, None], False)
                    number = -1 if first else int(np.argmax((subproblem.row_share == share).all(axis=(1, 2))))
                    movable_running = residual.running[subproblem.classes[holders[0]]]
                    found.append(
                        DomainAttraction(
                            int(holders[0]), targets, inside, (row >= 0) & ~inside, movable_running, number
                        )
                    )
    return tuple(found)


_TRACE = 1e-7
# Attractions that are at least so uncertain are branched on first.
_MIN_UNCERTAINTY = 0.05
_ARTIFICIAL_COST_FACTOR = 8.0
# With all patterns listed, an unmet demand costs so much more than it can gain.
_PENALTY, _MARGIN = 1000.0, 1e-4
# Limit of the saved bases, 8 bytes per cell.
_MAX_SAVED_CELLS = 30_000_000


@dataclass(frozen=True, slots=True, eq=False)
class _BranchNode:
    """A node of the tree: bounds of copies by group and class, and the minimum of each row."""

    minimum: IntArray
    maximum: IntArray
    required: FloatArray


class BranchAndPrice:
    """Searches for one pattern per node that reaches a target, in a subproblem in which every node is a group.

    It prices patterns in each node of the tree, from the known ones; with `listed`, these are all patterns.
    """

    def __init__(
        self,
        subproblem: PrioritySubproblem,
        attractions: tuple[DomainAttraction, ...],
        same_node_affinity: SameNodeAffinityRules,
        target: int,
        generator: np.random.Generator,
        known: tuple[IntArray, IntArray],
        *,
        listed: bool = False,
    ) -> None:
        self.subproblem, self.attractions, self.same_node_affinity, self.target = (
            subproblem,
            attractions,
            same_node_affinity,
            target,
        )
        self.generation = start_column_generation(subproblem, generator, same_node_affinity)
        self.master = self.generation.master
        self.master.perturb(generator)
        self.master.raise_artificials(_ARTIFICIAL_COST_FACTOR)
        self._known, self._listed = known, listed
        self._root = _BranchNode(np.zeros_like(subproblem.limits), subproblem.limits, subproblem.row_minimum.copy())
        self._current: _BranchNode | None = self._root
        self._root_state = self.master.save_state()
        # Nodes of the tree that are pending, each with the basis and prices of its parent.
        self._pending: list[tuple[_BranchNode, MasterState, FloatArray]] = []
        self._complete, self.nodes_visited = True, 0

    def set_target(self, target: int) -> None:
        """Start again with another target."""
        self.target, self._current, self._complete = target, self._root, True
        self._pending.clear()
        self.master.restore_state(self._root_state)

    def search(self, meter: BudgetMeter) -> tuple[tuple[IntArray, IntArray] | None, bool]:
        """Return the groups and patterns of an answer, or whether there is none; continue where it stopped."""
        while self._current is not None and len(self._pending) * len(self.master.right) ** 2 < _MAX_SAVED_CELLS:
            may_reach = None if meter.is_exhausted() else self._may_reach_target(self._current, meter)
            if may_reach is None and meter.is_exhausted():
                return None, False
            children = self._branch(self._current) if may_reach else None
            if children is not None:
                self._current, later = children
                self._pending.append((later, self.master.save_state(), self.generation.duals))
                continue
            answer = self._get_whole_patterns() if may_reach else None
            # The search is incomplete if a node without a useful answer was not refuted.
            self._complete &= may_reach is False
            self._current = self._pop_pending()
            if answer is not None:
                return answer, False
        return None, self._current is None and self._complete

    def start(self, few: int, meter: BudgetMeter) -> bool:
        """Solve the master of all known patterns, the first few of them first; False if the budget ends."""
        master, (groups, patterns) = self.master, self._known
        master.raise_artificials(_PENALTY)
        master.add_all(groups[:few], patterns[:few])
        is_started = master.solve(meter)
        meter.spend(COLUMN_CELL * len(master.right) * len(groups))
        master.add_all(groups[few:], patterns[few:])
        is_solved = is_started and not meter.is_exhausted() and master.solve(meter)
        self._root_state = master.save_state()
        return is_solved

    def set_rows(self, meter: BudgetMeter) -> FloatArray | None:
        """Return the copies [class, node] at the root, before branching; None if that cannot reach the target."""
        # The master reaches its optimum sooner if it starts with few columns.
        few = len(self.master.right)
        self.generation.add_patterns(*(one[:few] for one in self._known))
        self.master.solve(meter)
        self.generation.add_patterns(*(one[few:] for one in self._known))
        if not self._may_reach_target(self._root, meter):
            return None
        self._root_state = self.master.save_state()
        levels = self.master.get_column_values()[self.master.first :]
        groups, patterns = self.master.list_patterns()
        means = np.zeros(self.subproblem.limits.shape)
        np.add.at(means, groups, levels[:, None] * patterns)
        return means.T

    def _pop_pending(self) -> _BranchNode | None:
        if not self._pending:
            return None
        node, state, self.generation.duals = self._pending.pop()
        self.master.restore_state(state)
        return node

    def _may_reach_target(self, node: _BranchNode, meter: BudgetMeter) -> bool | None:
        """Return whether a node of the tree may reach the target, by its own prices; None if the budget ends."""
        generation, master = self.generation, self.master
        if self._listed:
            master.restrict(self._fits(node), np.any(node.minimum > 0, axis=1), node.required)
            return master.repair(self.target - _MARGIN, meter)
        if not generation.pricing.tighten(node.minimum, node.maximum):
            return False
        self.nodes_visited += 1
        meter.spend(SUBPROBLEM_STEP)
        occupied = np.any(node.minimum > 0, axis=1)
        for group in np.flatnonzero(occupied).tolist():
            # Without a pattern of the minimum, the master might have no solution.
            if self.same_node_affinity.find_broken_rule(group, node.minimum[group]) < 0:
                master.add(group, node.minimum[group])
        master.restrict(self._fits(node), occupied, node.required)
        repaired = master.repair(-math.inf, meter)
        if not repaired:
            return None
        generation.bound, generation.ceiling, generation.converged = math.inf, self.target, False
        if not self.subproblem.fixed_copies.any() or self.target == self.subproblem.ceiling:
            # If only placed pods count, or all of them are required, most rounds would be about the perturbation.
            generation.target_bound = self.target
        generation.generate(self.target - 1, meter)
        if generation.ceiling < self.target:
            return False
        return True if generation.converged else None

    def _list_patterns(self) -> tuple[IntArray, IntArray]:
        return self._known if self._listed else self.master.list_patterns()

    def _fits(self, node: _BranchNode) -> BoolArray:
        groups, patterns = self._list_patterns()
        return np.asarray(np.all((patterns >= node.minimum[groups]) & (patterns <= node.maximum[groups]), axis=1))

    def _branch(self, node: _BranchNode) -> tuple[_BranchNode, _BranchNode] | None:
        """Return two children that cover every answer, the more likely one first; None if all is certain."""
        levels = self.master.get_column_values()[self.master.first :]
        used = np.flatnonzero(levels > _TRACE)
        groups, patterns = (one[used] for one in self._list_patterns())
        amounts = levels[used]
        uncertainties = [attraction.measure_uncertainty(groups, amounts, patterns) for attraction in self.attractions]
        most_uncertain = int(np.argmax(uncertainties)) if uncertainties else 0
        if uncertainties and uncertainties[most_uncertain] > _MIN_UNCERTAINTY:
            return self._branch_on_attraction(node, self.attractions[most_uncertain])
        value, stay_bonus = self.master.compute_prices(self.master.compute_values())
        split = choose_branching(groups, amounts, patterns, value + stay_bonus)
        if split is None:
            return None
        group, c, copies = split
        more, fewer = node.minimum.copy(), node.maximum.copy()
        more[group, c], fewer[group, c] = copies, copies - 1
        self.same_node_affinity.add_required_targets(group, more[group])
        return replace(node, minimum=more), replace(node, maximum=fewer)

    def _branch_on_attraction(self, node: _BranchNode, attraction: DomainAttraction) -> tuple[_BranchNode, _BranchNode]:
        """Either no pod arrives in the domain, or a target is there, or all of a group are in the domain."""
        without_arrivals, only_inside, required = node.maximum.copy(), node.maximum.copy(), node.required.copy()
        without_arrivals[attraction.inside, attraction.holder] = np.minimum(
            without_arrivals[attraction.inside, attraction.holder], attraction.was_running[attraction.inside]
        )
        if attraction.row >= 0:
            required[attraction.row] = self.subproblem.row_minimum[attraction.row] + 1.0
        else:
            only_inside[attraction.outside, attraction.holder] = 0
        return replace(node, maximum=only_inside, required=required), replace(node, maximum=without_arrivals)

    def _get_whole_patterns(self) -> tuple[IntArray, IntArray] | None:
        """Return the pattern that each node certainly has, if these meet every demand in whole numbers."""
        used = self.master.get_column_values()[self.master.first :] > 0.5
        groups, patterns = (one[used] for one in self._list_patterns())
        return (groups, patterns) if meets_demands_and_target(self.subproblem, groups, patterns, self.target) else None
