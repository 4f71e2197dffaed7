"""What no packing surpasses in one entry of the key, by column generation under the rules that rows can say."""

import math

import numpy as np

from cruise.packer.budget import BudgetMeter
from cruise.packer.columns.affinity import NO_NODE_AFFINITY_RULES, build_node_affinity_rules
from cruise.packer.columns.branching import BranchAndPrice, find_domain_attractions_of_subproblem
from cruise.packer.columns.diving import complete_greedily, dive_to_whole_patterns
from cruise.packer.columns.generation import list_patterns, start_column_generation
from cruise.packer.columns.instance import build_instance, build_residual, convert_entry, find_complete_levels
from cruise.packer.columns.pod_rules import build_pod_rule_rows, find_broken_spread_rows
from cruise.packer.columns.subproblem import (
    PrioritySubproblem,
    add_rows,
    build_subproblem,
    get_patterns,
    split_groups_into_nodes,
    spread_patterns,
)
from cruise.packer.problem import IntArray, PackingProblem
from cruise.packer.rules.preemption import match_pods_to_nodes
from cruise.packer.verification import find_rule_violations

# Later dives round up what is less near to whole.
_NOISE, _MOST_NOISE = 0.1, 0.5
# A master with more rows proves nothing in any reasonable time, and its inverse takes 8 bytes a pair of rows.
_MOST_ROWS = 1_200
_LISTING_SHARE = 0.3


class EntryBound:
    """A bound for packings that are as good as an assignment in the entries before.

    `assignment[class, node]` are copies, and obey every rule. Nodes have no price.
    """

    def __init__(self, problem: PackingProblem, assignment: IntArray, entry: int, seed: int) -> None:
        instance = build_instance(problem)
        residual = build_residual(instance, find_complete_levels(instance, assignment, entry))
        best = residual.to_residual(assignment)
        self._phase = build_subproblem(residual, best, entry, build_pod_rule_rows(problem))
        self._large = len(self._phase.classes) + len(self._phase.group_size) > _MOST_ROWS
        self._generator = np.random.default_rng(seed)
        self._generation = start_column_generation(
            self._phase, self._generator, build_node_affinity_rules(problem, residual, self._phase)
        )
        self._generation.take(*get_patterns(self._phase, best))
        self._tree: BranchAndPrice | None = None
        self._priced: BranchAndPrice | None = None
        self._problem, self._entry, self._residual, self._dives = problem, entry, residual, 0
        self._besides = int(residual.vector(best)[entry]) - self._phase.counted_classes

    def improve_bound(self, meter: BudgetMeter) -> int:
        """What no packing surpasses, as far as the meter lets find out."""
        if not self._large:
            self._generation.generate(self._phase.counted_classes, meter)
        return self._weighed()

    def search_whole_patterns(self, assignment: IntArray, meter: BudgetMeter) -> IntArray | None:
        """An assignment near the bound, which may break rules; None where the search led nowhere.

        The bound learns from another assignment that is known by now, and may be a lower one afterwards.
        """
        if self._large:
            return None
        generation, residual, phase = self._generation, self._residual, self._phase
        best = residual.to_residual(assignment)
        answer = int(residual.vector(best)[self._entry]) - self._besides
        generation.take(*get_patterns(phase, best))
        generation.generate(answer, meter)
        if generation.bound == math.inf:
            return None
        found = dive_to_whole_patterns(
            generation, answer, min(_NOISE * self._dives, _MOST_NOISE), self._generator, meter
        )
        self._dives += 1
        if found is None:
            return None
        return residual.to_whole(complete_greedily(residual, spread_patterns(phase, *found, residual)))

    def branch(self, meter: BudgetMeter) -> tuple[IntArray | None, bool]:
        """An assignment that reaches the bound as far as rows say, if there is one; whether that is refuted.

        It may break rules, but none that parts the question. The next call goes on from there.
        """
        if self._large:
            return None, False
        target, residual = self._generation.ceiling, self._residual
        if self._tree is None or self._tree.target != target:
            self._tree = self._tree_of(target, meter)
        while True:
            answer, refuted = self._tree.search(meter)
            if answer is None:
                return None, refuted
            found = residual.to_whole(spread_patterns(self._tree.subproblem, *answer, residual))
            more = add_rows(self._tree.subproblem, residual, find_broken_spread_rows(self._problem, found))
            if more is self._tree.subproblem:
                return self._completed(found), False
            self._tree = self._priced = self._grown(more, target, self._tree.master.known(used_first=True), meter)

    def _tree_of(self, target: int, meter: BudgetMeter) -> BranchAndPrice:
        """A tree for a target: of all fillings, where they can be listed, else with prices in each part."""
        single = split_groups_into_nodes(self._phase)
        with meter.get_part(_LISTING_SHARE) as part:
            listed = None if len(single.row_least) else list_patterns(self._generation, target, part)
        if listed is not None:
            groups, fillings = self._of_nodes(*listed)
            known = self._known()
            few = len(known[0])
            together = np.concatenate([known[0], groups]), np.concatenate([known[1], fillings])
            tree = BranchAndPrice(single, (), NO_NODE_AFFINITY_RULES, target, self._generator, together, listed=True)
            if tree.start(few, meter):
                return tree
        if self._priced is None:
            self._priced = self._grown(single, target, self._known(), meter)
        else:
            self._priced.set_target(target)
        return self._priced

    def _grown(
        self, phase: PrioritySubproblem, target: int, known: tuple[IntArray, IntArray], meter: BudgetMeter
    ) -> BranchAndPrice:
        """A tree of a question, with the rows that its first answer in fractions breaks."""
        while True:
            bonds = find_domain_attractions_of_subproblem(self._problem, self._residual, phase)
            company = build_node_affinity_rules(self._problem, self._residual, phase)
            tree = BranchAndPrice(phase, bonds, company, target, self._generator, known)
            means = tree.set_rows(meter)
            if means is None:
                return tree
            whole = self._residual.fixed.astype(np.float64)
            whole[self._residual.origin[phase.classes]] += means
            more = add_rows(phase, self._residual, find_broken_spread_rows(self._problem, whole))
            if more is phase:
                return tree
            phase, known = more, tree.master.known(used_first=True)

    def _known(self) -> tuple[IntArray, IntArray]:
        """The fillings that the bound was made of, for each node of their groups."""
        return self._of_nodes(*self._generation.master.known(used_first=True))

    def _of_nodes(self, groups: IntArray, fillings: IntArray) -> tuple[IntArray, IntArray]:
        """Fillings of groups for each of their nodes."""
        sizes = self._phase.group_size
        copies = sizes[groups]
        turn = np.arange(copies.sum()) - np.repeat(np.cumsum(copies) - copies, copies)
        first = np.cumsum(sizes) - sizes
        return np.repeat(first[groups], copies) + turn, np.repeat(fillings, copies, axis=0)

    def _completed(self, found: IntArray) -> IntArray:
        """An assignment with all besides that has room, or itself where only that breaks rules."""
        whole = self._residual.to_whole(complete_greedily(self._residual, self._residual.to_residual(found)))
        broken, sound = (
            find_rule_violations(self._problem, match_pods_to_nodes(self._problem, one)) for one in (whole, found)
        )
        return found if broken and not sound else whole

    def refute(self) -> int:
        """Take note that no packing reaches the bound; what is the bound then."""
        self._generation.ceiling -= 1
        return self._weighed()

    def _weighed(self) -> int:
        return convert_entry(self._problem, self._entry, self._besides + self._generation.ceiling)
