"""The best assignment so far with what bounds it, reported as it changes."""

import numpy as np

from cruise.packer.answer import Note, Packing, Report, packing_of
from cruise.packer.arrays import IntArray
from cruise.packer.bounds import Known
from cruise.packer.constrained.layout import Layout, layout_of
from cruise.packer.problem import Objective, Problem, copies_of
from cruise.packer.rules.matching import pod_node_of


class Incumbent(Known):
    """An assignment of copies with what is known of it; `relaxed` bounds what has fewer rules."""

    __slots__ = ("assignment", "layout", "notes", "relaxed", "report")

    def __init__(
        self, layout: Layout, assignment: IntArray, most: tuple[int, ...], report: Report, relaxed: tuple[int, ...]
    ) -> None:
        super().__init__(key_of(layout, assignment), most)
        self.layout, self.assignment, self.report, self.relaxed = layout, assignment, report, relaxed
        self.notes: tuple[Note, ...] = ()
        self.relax()

    def open(self, entry: int) -> bool:
        """Whether an entry of the key may still be better."""
        return self.key[entry] < self.bound[entry]

    def offer(self, assignment: IntArray) -> None:
        """Take an assignment that is better, and report it."""
        key = key_of(self.layout, assignment)
        if key > self.key:
            self.better(key)
            self.assignment = assignment
            self.relax()
            self.report(self.packing())

    def lower(self, entry: int, bound: int) -> None:
        """Take a bound of an entry if it says more than the one before."""
        lower = (*self.bound[:entry], max(bound, self.key[entry]), *self.bound[entry + 1 :])
        if self.learn(self.key, lower):
            self.report(self.packing())

    def relax(self) -> None:
        """Take the bounds of the problem with fewer rules: an entry's holds where all before are as good as there."""
        if self.relaxed:
            self.learn(self.relaxed, self.relaxed)

    def packing(self) -> Packing:
        """It in terms of pods."""
        return packing_of(
            self.layout.problem, pod_node_of(self.layout.problem, self.assignment), self.bound, self.notes
        )


def incumbent_of(problem: Problem, start: IntArray, report: Report, relaxed: tuple[int, ...] = ()) -> Incumbent:
    """An assignment of pods, or what runs now, with the bounds of any: no more is placed, or stays, than there is."""
    layout = layout_of(problem)
    bound: list[int] = []
    reachable = np.minimum(layout.counts, (layout.running + layout.most).sum(axis=1))
    for tier in _tiers(layout):
        bound.append(int(reachable[tier].sum()))
        if problem.objective is Objective.PAPER:
            bound.append(int(layout.running[tier].sum()))
    if problem.objective is Objective.FLEET:
        bound.append(-price_of_copies(problem, layout.stuck))
    if problem.objective is not Objective.PAPER:
        bound.append(0)
    incumbent = Incumbent(layout, layout.running, tuple(bound), report, relaxed)
    incumbent.offer(copies_of(problem, start))
    return incumbent


def key_of(layout: Layout, assignment: IntArray) -> tuple[int, ...]:
    """The entries of the objective's key for an assignment."""
    problem = layout.problem
    placed = assignment.sum(axis=1)
    stayed = np.minimum(assignment, layout.running).sum(axis=1)
    if problem.objective is Objective.PAPER:
        return tuple(int(copies[tier].sum()) for tier in _tiers(layout) for copies in (placed, stayed))
    evicted = int((problem.weights * (layout.running.sum(axis=1) - stayed)).sum())
    price = (-price_of_copies(problem, assignment),) if problem.objective is Objective.FLEET else ()
    return (*(int(placed[tier].sum()) for tier in _tiers(layout)), *price, -evicted)


def price_of_copies(problem: Problem, assignment: IntArray) -> int:
    """What the nodes cost that copies of classes occupy; of a problem with a fleet."""
    assert problem.fleet is not None
    used = assignment[problem.fleet.occupies].any(axis=0)
    return int(problem.fleet.prices[used].sum())


def _tiers(layout: Layout) -> list[IntArray]:
    priorities = layout.problem.priorities
    return [np.flatnonzero(priorities == priority) for priority in np.unique(priorities)[::-1].tolist()]
