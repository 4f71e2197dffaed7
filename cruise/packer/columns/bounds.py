"""Bounds one entry of the key by column generation, and searches for packings at the bound."""

import math

import numpy as np

from cruise.packer.budget import BudgetMeter
from cruise.packer.columns.branching import BranchAndPrice, find_domain_attractions_of_subproblem
from cruise.packer.columns.generation import (
    NO_SAME_NODE_AFFINITY_RULES,
    build_same_node_affinity_rules,
    list_patterns,
    start_column_generation,
)
from cruise.packer.columns.instance import (
    build_instance,
    convert_objective_entry,
    find_complete_levels,
    fix_running_copies,
)
from cruise.packer.columns.pod_rules import build_pod_rule_rows, find_broken_spread_rows
from cruise.packer.columns.primal_heuristics import dive_to_whole_patterns
from cruise.packer.columns.subproblem import (
    PrioritySubproblem,
    add_rows,
    build_subproblem,
    get_patterns,
    split_groups_into_nodes,
    spread_patterns,
)
from cruise.packer.problem import IntArray, PackingProblem

# Later dives round up less certain patterns.
_NOISE, _MAX_NOISE = 0.1, 0.5
# A master with more rows proves nothing in reasonable time, and its inverse needs 8 bytes per pair of rows.
_MAX_ROWS = 1_200
_LISTING_SHARE = 0.3


class ObjectiveEntryBound:
    """A bound of an entry for packings that are as good as an assignment in the entries before.

    `assignment[class, node]` are copies, and obey every rule. Nodes have no price.
    """

    def __init__(self, problem: PackingProblem, assignment: IntArray, entry: int, seed: int) -> None:
        instance = build_instance(problem)
        residual = fix_running_copies(instance, find_complete_levels(instance, assignment, entry))
        best = residual.to_residual(assignment)
        self._subproblem = build_subproblem(residual, best, entry, build_pod_rule_rows(problem))
        self._is_too_large = len(self._subproblem.classes) + len(self._subproblem.group_size) > _MAX_ROWS
        self._generator = np.random.default_rng(seed)
        self._generation = start_column_generation(
            self._subproblem, self._generator, build_same_node_affinity_rules(problem, residual, self._subproblem)
        )
        self._generation.add_patterns(*get_patterns(self._subproblem, best))
        self._tree: BranchAndPrice | None = None
        self._priced: BranchAndPrice | None = None
        self._problem, self._entry, self._residual, self._dives = problem, entry, residual, 0
        self._fixed_value = int(residual.compute_vector(best)[entry]) - self._subproblem.counted_classes

    def improve_bound(self, meter: BudgetMeter) -> int:
        """Return what no packing exceeds, as far as the budget allows to prove."""
        if not self._is_too_large:
            self._generation.generate(self._subproblem.counted_classes, meter)
        return self._convert_ceiling()

    def search_whole_patterns(self, assignment: IntArray, meter: BudgetMeter) -> IntArray | None:
        """Return an assignment near the bound, which may break rules; None if the search fails.

        The bound uses the best assignment known by now, and may be lower afterwards.
        """
        if self._is_too_large:
            return None
        generation, residual, subproblem = self._generation, self._residual, self._subproblem
        best = residual.to_residual(assignment)
        answer = int(residual.compute_vector(best)[self._entry]) - self._fixed_value
        generation.add_patterns(*get_patterns(subproblem, best))
        generation.generate(answer, meter)
        if generation.bound == math.inf:
            return None
        found = dive_to_whole_patterns(
            generation, answer, min(_NOISE * self._dives, _MAX_NOISE), self._generator, meter
        )
        self._dives += 1
        if found is None:
            return None
        return residual.to_whole(spread_patterns(subproblem, *found, residual))

    def branch(self, meter: BudgetMeter) -> tuple[IntArray | None, bool]:
        """Return an assignment that reaches the bound as far as rows tell, or whether there is none.

        It may break rules, but none that the tree branches on. The next call continues from there.
        """
        if self._is_too_large:
            return None, False
        target, residual = self._generation.ceiling, self._residual
        if self._tree is None or self._tree.target != target:
            self._tree = self._create_tree(target, meter)
        while True:
            answer, refuted = self._tree.search(meter)
            if answer is None:
                return None, refuted
            found = residual.to_whole(spread_patterns(self._tree.subproblem, *answer, residual))
            with_rows = add_rows(self._tree.subproblem, residual, find_broken_spread_rows(self._problem, found))
            if with_rows is self._tree.subproblem:
                return found, False
            self._tree = self._priced = self._create_tree_with_rows(
                with_rows, target, self._tree.master.list_patterns(used_first=True), meter
            )

    def _create_tree(self, target: int, meter: BudgetMeter) -> BranchAndPrice:
        """Return a tree for a target: of all patterns if they can be listed, else with pricing in each node."""
        by_node = split_groups_into_nodes(self._subproblem)
        with meter.get_part(_LISTING_SHARE) as part:
            listed = None if len(by_node.row_minimum) else list_patterns(self._generation, target, part)
        if listed is not None:
            groups, patterns = self._expand_to_nodes(*listed)
            known = self._list_known_patterns()
            known_count = len(known[0])
            all_patterns = np.concatenate([known[0], groups]), np.concatenate([known[1], patterns])
            tree = BranchAndPrice(
                by_node, (), NO_SAME_NODE_AFFINITY_RULES, target, self._generator, all_patterns, listed=True
            )
            if tree.start(known_count, meter):
                return tree
        if self._priced is None:
            self._priced = self._create_tree_with_rows(by_node, target, self._list_known_patterns(), meter)
        else:
            self._priced.set_target(target)
        return self._priced

    def _create_tree_with_rows(
        self, subproblem: PrioritySubproblem, target: int, known: tuple[IntArray, IntArray], meter: BudgetMeter
    ) -> BranchAndPrice:
        """Return the tree of a subproblem, with the rows that its first fractional answer breaks."""
        while True:
            attractions = find_domain_attractions_of_subproblem(self._problem, self._residual, subproblem)
            same_node_affinity = build_same_node_affinity_rules(self._problem, self._residual, subproblem)
            tree = BranchAndPrice(subproblem, attractions, same_node_affinity, target, self._generator, known)
            means = tree.set_rows(meter)
            if means is None:
                return tree
            whole = self._residual.fixed.astype(np.float64)
            whole[self._residual.origin[subproblem.classes]] += means
            with_rows = add_rows(subproblem, self._residual, find_broken_spread_rows(self._problem, whole))
            if with_rows is subproblem:
                return tree
            subproblem, known = with_rows, tree.master.list_patterns(used_first=True)

    def _list_known_patterns(self) -> tuple[IntArray, IntArray]:
        """Return the patterns behind the bound, for each node of their groups."""
        return self._expand_to_nodes(*self._generation.master.list_patterns(used_first=True))

    def _expand_to_nodes(self, groups: IntArray, patterns: IntArray) -> tuple[IntArray, IntArray]:
        """Return patterns of groups for each of their nodes."""
        sizes = self._subproblem.group_size
        copies = sizes[groups]
        node_in_group = np.arange(copies.sum()) - np.repeat(np.cumsum(copies) - copies, copies)
        first = np.cumsum(sizes) - sizes
        return np.repeat(first[groups], copies) + node_in_group, np.repeat(patterns, copies, axis=0)

    def lower_refuted_bound(self) -> int:
        """Lower the bound, which no packing reaches; return the new one."""
        self._generation.ceiling -= 1
        return self._convert_ceiling()

    def _convert_ceiling(self) -> int:
        return convert_objective_entry(self._problem, self._entry, self._fixed_value + self._generation.ceiling)
