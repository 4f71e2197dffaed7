"""What no packing surpasses in one entry of the key, by column generation under the rules that rows can say."""

import math

import numpy as np

from cruise.packer.arrays import IntArray
from cruise.packer.budget import Meter
from cruise.packer.dense.between import between_pods, uneven
from cruise.packer.dense.branching import of_single_nodes
from cruise.packer.dense.classing import instance_of, pod_node_of, weighed
from cruise.packer.dense.company import company_of
from cruise.packer.dense.dive import dive
from cruise.packer.dense.generation import generation_of
from cruise.packer.dense.greedy import complete
from cruise.packer.dense.parting import bonds_of
from cruise.packer.dense.phase import Phase, beside, patterns_of, phase_of, spread
from cruise.packer.dense.residual import residual_of
from cruise.packer.dense.tree import Tree
from cruise.packer.faults import find_faults
from cruise.packer.problem import Problem

# Later dives round up what is less near to whole.
_NOISE, _MOST_NOISE = 0.1, 0.5
# Where more nodes are alike a tree refutes nothing for long, but finds an answer soon or never.
_FEW_ALIKE, _ALIKE_SHARE = 4, 0.1


class EntryBound:
    """A bound for packings that are as good as an assignment in the entries before.

    `assignment[class, node]` are copies, and obey every rule. Nodes have no price.
    """

    def __init__(self, problem: Problem, assignment: IntArray, entry: int, seed: int) -> None:
        residual = residual_of(instance_of(problem))
        best = residual.part(assignment)
        self._phase = phase_of(residual, best, entry, between_pods(problem))
        self._generator = np.random.default_rng(seed)
        self._generation = generation_of(self._phase, self._generator, company_of(problem, residual, self._phase))
        self._generation.take(*patterns_of(self._phase, best))
        self._tree: Tree | None = None
        self._problem, self._entry, self._residual, self._dives = problem, entry, residual, 0
        self._besides = int(residual.vector(best)[entry]) - self._phase.answer

    def bound(self, meter: Meter) -> int:
        """What no packing surpasses, as far as the meter lets find out."""
        self._generation.generate(self._phase.answer, meter)
        return self._weighed()

    def dive(self, assignment: IntArray, meter: Meter) -> IntArray | None:
        """An assignment near the bound, which may break rules; None where the search led nowhere.

        The bound learns from another assignment that is known by now, and may be a lower one afterwards.
        """
        generation, residual, phase = self._generation, self._residual, self._phase
        generation.take(*patterns_of(phase, residual.part(assignment)))
        generation.generate(phase.answer, meter)
        if generation.bound == math.inf:
            return None
        found = dive(generation, phase.answer, min(_NOISE * self._dives, _MOST_NOISE), self._generator, meter)
        self._dives += 1
        if found is None:
            return None
        return residual.whole(complete(residual, spread(phase, *found, residual)))

    def branch(self, meter: Meter) -> tuple[IntArray | None, bool]:
        """An assignment that reaches the bound as far as rows say, if there is one; whether that is refuted.

        It may break rules, but none that parts the question. The next call goes on from there.
        """
        target, residual = self._generation.ceiling, self._residual
        alike = int(self._phase.group_size.max(initial=0)) > _FEW_ALIKE
        with meter.part(_ALIKE_SHARE if alike else 1.0) as part:
            if self._tree is None:
                self._tree = self._grown(of_single_nodes(self._phase), target, self._known(), part)
            elif self._tree.target != target:
                self._tree.aim(target)
            while True:
                answer, refuted = self._tree.search(part)
                if answer is None:
                    return None, refuted
                found = residual.whole(spread(self._tree.phase, *answer, residual))
                more = beside(self._tree.phase, residual, uneven(self._problem, found))
                if more is self._tree.phase:
                    return self._completed(found), False
                self._tree = self._grown(more, target, self._tree.master.known(used_first=True), part)

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
        sizes = self._phase.group_size
        groups, fillings = self._generation.master.known(used_first=True)
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
