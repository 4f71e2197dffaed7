"""What no packing surpasses in one entry of the key, by column generation under the rules that rows can say."""

import math

import numpy as np

from cruise.packer.arrays import IntArray
from cruise.packer.budget import Meter
from cruise.packer.dense.between import between_pods, uneven
from cruise.packer.dense.branching import of_single_nodes
from cruise.packer.dense.classing import instance_of, weighed
from cruise.packer.dense.company import NO_COMPANY, company_of
from cruise.packer.dense.dive import dive
from cruise.packer.dense.entries import settled
from cruise.packer.dense.generation import generation_of
from cruise.packer.dense.greedy import complete
from cruise.packer.dense.listing import list_fillings
from cruise.packer.dense.parting import bonds_of
from cruise.packer.dense.phase import Phase, beside, patterns_of, phase_of, spread
from cruise.packer.dense.residual import residual_of
from cruise.packer.dense.tree import Tree
from cruise.packer.faults import find_faults
from cruise.packer.problem import Problem
from cruise.packer.rules.matching import pod_node_of

# Later dives round up what is less near to whole.
_NOISE, _MOST_NOISE = 0.1, 0.5
# A master with more rows proves nothing in any reasonable time, and its inverse takes 8 bytes a pair of rows.
_MOST_ROWS = 1_200
_LISTING_SHARE = 0.3


class EntryBound:
    """A bound for packings that are as good as an assignment in the entries before.

    `assignment[class, node]` are copies, and obey every rule. Nodes have no price.
    """

    def __init__(self, problem: Problem, assignment: IntArray, entry: int, seed: int) -> None:
        instance = instance_of(problem)
        residual = residual_of(instance, settled(instance, assignment, entry))
        best = residual.part(assignment)
        self._phase = phase_of(residual, best, entry, between_pods(problem))
        self._large = len(self._phase.classes) + len(self._phase.group_size) > _MOST_ROWS
        self._generator = np.random.default_rng(seed)
        self._generation = generation_of(self._phase, self._generator, company_of(problem, residual, self._phase))
        self._generation.take(*patterns_of(self._phase, best))
        self._tree: Tree | None = None
        self._priced: Tree | None = None
        self._problem, self._entry, self._residual, self._dives = problem, entry, residual, 0
        self._besides = int(residual.vector(best)[entry]) - self._phase.answer

    def bound(self, meter: Meter) -> int:
        """What no packing surpasses, as far as the meter lets find out."""
        if not self._large:
            self._generation.generate(self._phase.answer, meter)
        return self._weighed()

    def dive(self, assignment: IntArray, meter: Meter) -> IntArray | None:
        """An assignment near the bound, which may break rules; None where the search led nowhere.

        The bound learns from another assignment that is known by now, and may be a lower one afterwards.
        """
        if self._large:
            return None
        generation, residual, phase = self._generation, self._residual, self._phase
        best = residual.part(assignment)
        answer = int(residual.vector(best)[self._entry]) - self._besides
        generation.take(*patterns_of(phase, best))
        generation.generate(answer, meter)
        if generation.bound == math.inf:
            return None
        found = dive(generation, answer, min(_NOISE * self._dives, _MOST_NOISE), self._generator, meter)
        self._dives += 1
        if found is None:
            return None
        return residual.whole(complete(residual, spread(phase, *found, residual)))

    def branch(self, meter: Meter) -> tuple[IntArray | None, bool]:
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
            found = residual.whole(spread(self._tree.phase, *answer, residual))
            more = beside(self._tree.phase, residual, uneven(self._problem, found))
            if more is self._tree.phase:
                return self._completed(found), False
            self._tree = self._priced = self._grown(more, target, self._tree.master.known(used_first=True), meter)

    def _tree_of(self, target: int, meter: Meter) -> Tree:
        """A tree for a target: of all fillings, where they can be listed, else with prices in each part."""
        single = of_single_nodes(self._phase)
        with meter.part(_LISTING_SHARE) as part:
            listed = None if len(single.row_least) else list_fillings(self._generation, target, part)
        if listed is not None:
            groups, fillings = self._of_nodes(*listed)
            known = self._known()
            few = len(known[0])
            together = np.concatenate([known[0], groups]), np.concatenate([known[1], fillings])
            tree = Tree(single, (), NO_COMPANY, target, self._generator, together, listed=True)
            if tree.begin(few, meter):
                return tree
        if self._priced is None:
            self._priced = self._grown(single, target, self._known(), meter)
        else:
            self._priced.aim(target)
        return self._priced

    def _grown(self, phase: Phase, target: int, known: tuple[IntArray, IntArray], meter: Meter) -> Tree:
        """A tree of a question, with the rows that its first answer in fractions breaks."""
        while True:
            bonds = bonds_of(self._problem, self._residual, phase)
            company = company_of(self._problem, self._residual, phase)
            tree = Tree(phase, bonds, company, target, self._generator, known)
            means = tree.means(meter)
            if means is None:
                return tree
            whole = self._residual.nailed.astype(np.float64)
            whole[self._residual.origin[phase.classes]] += means
            more = beside(phase, self._residual, uneven(self._problem, whole))
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
        whole = self._residual.whole(complete(self._residual, self._residual.part(found)))
        broken, sound = (find_faults(self._problem, pod_node_of(self._problem, one)) for one in (whole, found))
        return found if broken and not sound else whole

    def refute(self) -> int:
        """Take note that no packing reaches the bound; what is the bound then."""
        self._generation.ceiling -= 1
        return self._weighed()

    def _weighed(self) -> int:
        return weighed(self._problem, self._entry, self._besides + self._generation.ceiling)
