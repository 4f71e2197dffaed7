"""The best answer for the whole of a problem, put together from its parts' answers and judged before anyone sees it."""

from dataclasses import replace

import numpy as np

from cruise.packer.answer import Note, NoteCode, Packing, Report, figures_of, packing_of
from cruise.packer.arrays import IntArray
from cruise.packer.bounds import Known, counted_bound, least_evictions
from cruise.packer.faults import find_faults
from cruise.packer.parts import Part
from cruise.packer.problem import Objective, Problem

_OTHER_ORDERS = Note(NoteCode.OTHER_ORDERS)


class Piece:
    """A part of a problem with the best assignment of its pods so far, and what it has proved."""

    def __init__(self, part: Part, whole: "Whole", start: IntArray) -> None:
        self.part, self.problem, self._whole = part, part.problem, whole
        self.pod_node = part.assignment(start)
        self.known = Known(self._key_of(self.pod_node), counted_bound(part.problem))
        self.evictions = 0

    @property
    def proved(self) -> bool:
        """Whether nothing is better."""
        return self.known.proved

    def offer(self, pod_node: IntArray) -> bool:
        """Take an assignment over if it obeys every rule and is better; tell whether it obeys them."""
        faults = find_faults(self.problem, pod_node)
        if faults:
            self._whole.notes = (Note(NoteCode.PACKING_DROPPED, faults[0]),)
            return False
        key = self._key_of(pod_node)
        if key > self.known.key:
            if any(value < before for value, before in zip(key, self.known.key, strict=True)):
                self.evictions = 0
            self.known.better(key)
            self.pod_node = pod_node
            self._whole.change(self.part, pod_node)
        return True

    def take(self, packing: Packing) -> None:
        """Take an answer's assignment over, and none of its bound."""
        self.offer(packing.pod_node)

    def learn(self, packing: Packing) -> None:
        """Take an answer's assignment over, and the bound that was proved beside it."""
        if self.offer(packing.pod_node):
            if _OTHER_ORDERS in packing.notes:
                self._whole.notes = tuple(dict.fromkeys((*self._whole.notes, _OTHER_ORDERS)))
            self.bound(self._key_of(packing.pod_node), packing.bound)

    def learn_relaxed(self, packing: Packing) -> None:
        """Learn from an answer to the part without its rules, which may break them."""
        if not find_faults(self.problem, packing.pod_node):
            self.offer(packing.pod_node)
        self.bound(packing.after.key(self.problem.objective), packing.bound)

    def bound(self, key: tuple[int, ...], bound: tuple[int, ...]) -> None:
        """Take a bound over that was proved beside an assignment of this key."""
        if self.known.learn(key, bound):
            self._whole.tell()

    def evict(self, pods: int) -> None:
        """Take over how many pods every plan evicts that places as many of each priority."""
        if pods > self.evictions:
            self.evictions = pods
            self._whole.tell()

    def refute_rescue(self, rooted: Packing) -> None:
        """Take over what a solve with nothing movable proved: that as much is not placed without an eviction."""
        problem, mine = self.problem, self.known.key
        for value, theirs, bound in zip(mine[:-1], rooted.after.key(problem.objective), rooted.bound, strict=False):
            if bound < value:
                running = problem.pod_class[problem.pod_node >= 0]
                least = int(problem.weights[running[problem.movable[running]]].min(initial=np.iinfo(np.int64).max))
                self._bound_last(-least)
                return
            if not value == theirs == bound:
                return

    def count_evictions(self) -> None:
        """Where all pods have a place, take over how little weight that can cost at least."""
        if self.problem.objective is Objective.OPERATOR and sum(self.known.key[:-1]) == self.problem.pod_count:
            self._bound_last(-least_evictions(self.problem))

    def _bound_last(self, bound: int) -> None:
        key = self.known.key
        self.bound(key, (*self.known.bound[:-1], max(bound, key[-1])))

    def _key_of(self, pod_node: IntArray) -> tuple[int, ...]:
        return figures_of(self.problem, pod_node).key(self.problem.objective)


class Whole:
    """The best assignment of all pods so far, in pieces that have nothing to do with each other."""

    def __init__(self, problem: Problem, parts: tuple[Part, ...], start: IntArray, report: Report) -> None:
        self.problem, self.report = problem, report
        self.notes: tuple[Note, ...] = ()
        self.pieces = [Piece(part, self, start) for part in parts]
        self.counted = counted_bound(problem)
        self._weighs_evictions = problem.objective is not Objective.PAPER
        self.pod_node = start
        self.packing = packing_of(problem, start, self._bound())

    def change(self, part: Part, pod_node: IntArray) -> None:
        """Take a better assignment of a part over."""
        self.pod_node = part.spread_into(self.pod_node, pod_node)
        self.tell()

    def tell(self) -> None:
        """Report what is better by now, the assignment or what is known of it."""
        packing = packing_of(self.problem, self.pod_node, self._bound(), self.notes)
        least_evicted = max(self._least_evicted(), packing.least_evicted)
        self.packing = replace(packing, needs_evictions=self._needs_evictions(), least_evicted=least_evicted)
        self.report(self.packing)

    def _least_evicted(self) -> int:
        """The sum over parts: a plan that places as many in all does so in each where none can place more."""
        each = 2 if self.problem.objective is Objective.PAPER else 1
        full = True
        for piece in self.pieces:
            count = each * len(np.unique(piece.problem.priorities))
            full &= piece.known.key[:count:each] == piece.known.most[:count:each]
        return sum(piece.evictions for piece in self.pieces) if full or len(self.pieces) == 1 else 0

    def _needs_evictions(self) -> bool:
        """Whether each part that evicts has proved that it has to: the whole's bound may not show it."""
        evicting = [one.known for one in self.pieces if self._weighs_evictions and one.known.key[-1] < 0]
        return bool(evicting) and all(one.bound[-1] < 0 for one in evicting)

    def _bound(self) -> tuple[int, ...]:
        """The sum of the parts' bounds; where one of several leaves an entry open, behind it what there is at most."""
        paper = self.problem.objective is Objective.PAPER
        rows = {int(priority): row for row, priority in enumerate(np.unique(self.problem.priorities)[::-1])}
        each = 2 if paper else 1
        others = range(each * len(rows), len(self.counted))
        sure, most = np.zeros(len(self.counted), np.int64), np.zeros(len(self.counted), np.int64)
        reached = np.zeros(len(self.counted), np.int64)
        for piece in self.pieces:
            known, tiers = piece.known, np.unique(piece.problem.priorities)[::-1].tolist()
            entries = [each * rows[tier] + k for tier in tiers for k in range(each)]
            entries += others
            np.add.at(sure, entries, known.bound)
            np.add.at(most, entries, known.most)
            np.add.at(reached, entries, known.key)
        bound, tight = [], True
        for entry in range(len(self.counted)):
            limit = int(sure[entry] if tight else most[entry])
            bound.append(min(limit, self.counted[entry]))
            # Of several parts one may be worse in this entry, and better in those behind.
            tight = tight and (len(self.pieces) == 1 or sure[entry] == reached[entry])
        return tuple(bound)
