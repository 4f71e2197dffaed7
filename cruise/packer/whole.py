"""The best answer for the whole of a problem, put together from its parts' answers and judged before anyone sees it."""

from dataclasses import replace

import numpy as np

from cruise.packer.answer import Note, NoteCode, Packing, Report, figures_of, packing_of
from cruise.packer.arrays import IntArray
from cruise.packer.bounds import Known, counted_bound, least_evictions
from cruise.packer.faults import find_faults
from cruise.packer.parts import Part
from cruise.packer.problem import Objective, Problem


class Whole:
    """The best assignment of all pods so far, and what each part has proved."""

    def __init__(self, problem: Problem, parts: tuple[Part, ...], start: IntArray, report: Report) -> None:
        self.problem, self.parts, self.report = problem, parts, report
        self.notes: tuple[Note, ...] = ()
        self.known = [Known(_key(part.problem, part.assignment(start)), counted_bound(part.problem)) for part in parts]
        self.evictions = [0] * len(parts)
        self.counted = counted_bound(problem)
        self._weighs_evictions = problem.objective is not Objective.PAPER
        self.pod_node = start
        self.packing = packing_of(problem, start, self._bound())

    def proved(self, index: int) -> bool:
        """Whether nothing is better in a part."""
        return self.known[index].proved

    def assignment(self, index: int) -> IntArray:
        """The best of a part so far."""
        return self.parts[index].assignment(self.pod_node)

    def offer(self, index: int, pod_node: IntArray) -> bool:
        """Take a part's assignment over if it obeys every rule and is better; tell whether it obeys them."""
        part = self.parts[index]
        faults = find_faults(part.problem, pod_node)
        if faults:
            self.notes = (Note(NoteCode.PACKING_DROPPED, faults[0]),)
            return False
        key, known = _key(part.problem, pod_node), self.known[index]
        if key > known.key:
            if any(value < before for value, before in zip(key, known.key, strict=True)):
                self.evictions[index] = 0
            known.better(key)
            self.pod_node = part.spread_into(self.pod_node, pod_node)
            self._tell()
        return True

    def learn(self, index: int, key: tuple[int, ...], bound: tuple[int, ...]) -> None:
        """Take a bound over that was proved for a part beside an assignment of this key."""
        if self.known[index].learn(key, bound):
            self._tell()

    def evict(self, index: int, pods: int) -> None:
        """Take over how many pods of a part every plan evicts that places as many of each priority."""
        if pods > self.evictions[index]:
            self.evictions[index] = pods
            self._tell()

    def refute_rescue(self, index: int, rooted: Packing) -> None:
        """Take over what a solve with nothing movable proved: that as much is not placed without an eviction."""
        problem, mine = self.parts[index].problem, self.known[index].key
        for value, theirs, bound in zip(mine[:-1], rooted.after.key(problem.objective), rooted.bound, strict=False):
            if bound < value:
                running = problem.pod_class[problem.pod_node >= 0]
                least = int(problem.weights[running[problem.movable[running]]].min(initial=np.iinfo(np.int64).max))
                self._learn_last(index, max(-least, mine[-1]))
                return
            if not value == theirs == bound:
                return

    def count_evictions(self, index: int) -> None:
        """Where a part places all its pods, take over how little weight that can cost at least."""
        part, mine = self.parts[index], self.known[index].key
        if part.problem.objective is Objective.OPERATOR and sum(mine[:-1]) == part.problem.pod_count:
            least = least_evictions(part.problem)
            self._learn_last(index, max(-least, mine[-1]))

    def _learn_last(self, index: int, bound: int) -> None:
        known = self.known[index]
        self.learn(index, known.key, (*known.bound[:-1], bound))

    def _tell(self) -> None:
        packing = packing_of(self.problem, self.pod_node, self._bound(), self.notes)
        least_evicted = max(self._least_evicted(), packing.least_evicted)
        self.packing = replace(packing, needs_evictions=self._needs_evictions(), least_evicted=least_evicted)
        self.report(self.packing)

    def _least_evicted(self) -> int:
        """The sum over parts: a plan that places as many in all does so in each where none can place more."""
        each = 2 if self.problem.objective is Objective.PAPER else 1
        tiers = [each * len(np.unique(part.problem.priorities)) for part in self.parts]
        full = all(one.key[:count:each] == one.most[:count:each] for one, count in zip(self.known, tiers, strict=True))
        return sum(self.evictions) if full or len(self.parts) == 1 else 0

    def _needs_evictions(self) -> bool:
        """Whether each part that evicts has proved that it has to: the whole's bound may not show it."""
        evicting = [one for one in self.known if self._weighs_evictions and one.key[-1] < 0]
        return bool(evicting) and all(one.bound[-1] < 0 for one in evicting)

    def _bound(self) -> tuple[int, ...]:
        """The sum of the parts' bounds, up to the first entry that one leaves open; then what is there at most."""
        paper = self.problem.objective is Objective.PAPER
        rows = {int(priority): row for row, priority in enumerate(np.unique(self.problem.priorities)[::-1])}
        each = 2 if paper else 1
        others = range(each * len(rows), len(self.counted))
        sure, most = np.zeros(len(self.counted), np.int64), np.zeros(len(self.counted), np.int64)
        reached = np.zeros(len(self.counted), np.int64)
        for known, part in zip(self.known, self.parts, strict=True):
            tiers = np.unique(part.problem.priorities)[::-1].tolist()
            entries = [each * rows[tier] + k for tier in tiers for k in range(each)]
            entries += others
            np.add.at(sure, entries, known.bound)
            np.add.at(most, entries, known.most)
            np.add.at(reached, entries, known.key)
        bound, tight = [], True
        for entry in range(len(self.counted)):
            limit = int(sure[entry] if tight else most[entry])
            bound.append(min(limit, self.counted[entry]))
            tight = tight and sure[entry] == reached[entry]
        return tuple(bound)


def _key(problem: Problem, pod_node: IntArray) -> tuple[int, ...]:
    return figures_of(problem, pod_node).key(problem.objective)
