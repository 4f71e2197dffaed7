"""Keeps the best assignment so far with its bound; apart from the solver, which loads OR-Tools."""

import numpy as np

from cruise.packer.answer import BestKnown, Packing, PackingNote, ReportFunction, build_packing
from cruise.packer.exact.layout import ProblemLayout, build_layout
from cruise.packer.problem import IntArray, PackingObjective, PackingProblem, count_copies
from cruise.packer.rules.preemption import match_pods_to_nodes


class Incumbent(BestKnown):
    """The best assignment of copies so far; `relaxed` is a bound of the problem with fewer rules."""

    __slots__ = ("assignment", "layout", "notes", "relaxed", "report")

    def __init__(
        self,
        layout: ProblemLayout,
        assignment: IntArray,
        most: tuple[int, ...],
        report: ReportFunction,
        relaxed: tuple[int, ...],
    ) -> None:
        super().__init__(compute_copies_key(layout, assignment), most)
        self.layout, self.assignment, self.report, self.relaxed = layout, assignment, report, relaxed
        self.notes: tuple[PackingNote, ...] = ()
        self.apply_relaxed_bound()

    def is_open(self, entry: int) -> bool:
        """Return whether an entry of the key may still be better."""
        return self.key[entry] < self.bound[entry]

    def offer(self, assignment: IntArray) -> None:
        """Use an assignment if it is better, and report it."""
        key = compute_copies_key(self.layout, assignment)
        if key > self.key:
            self.set_key(key)
            self.assignment = assignment
            self.apply_relaxed_bound()
            self.report(self.build_packing())

    def lower_bound(self, entry: int, bound: int) -> None:
        """Lower the bound of an entry."""
        lower = (*self.bound[:entry], max(bound, self.key[entry]), *self.bound[entry + 1 :])
        if self.update_bound(self.key, lower):
            self.report(self.build_packing())

    def apply_relaxed_bound(self) -> None:
        """Apply the relaxed bound, as far as the entries before are as good."""
        if self.relaxed:
            self.update_bound(self.relaxed, self.relaxed)

    def build_packing(self) -> Packing:
        """Return the packing of pods."""
        return build_packing(
            self.layout.problem, match_pods_to_nodes(self.layout.problem, self.assignment), self.bound, self.notes
        )


def build_incumbent(
    problem: PackingProblem, start: IntArray, report: ReportFunction, relaxed: tuple[int, ...] = ()
) -> Incumbent:
    """Return the incumbent of an assignment of pods, or of the running pods, bounded by the number of copies."""
    layout = build_layout(problem)
    bound: list[int] = []
    reachable = np.minimum(layout.counts, (layout.running + layout.maximum).sum(axis=1))
    for tier in _list_priority_classes(layout):
        bound.append(int(reachable[tier].sum()))
        if problem.objective is PackingObjective.PAPER:
            bound.append(int(layout.running[tier].sum()))
    if problem.objective is PackingObjective.CONSOLIDATION:
        bound.append(-compute_copies_price(problem, layout.immovable))
    if problem.objective is not PackingObjective.PAPER:
        bound.append(0)
    incumbent = Incumbent(layout, layout.running, tuple(bound), report, relaxed)
    incumbent.offer(count_copies(problem, start))
    return incumbent


def compute_copies_key(layout: ProblemLayout, assignment: IntArray) -> tuple[int, ...]:
    """Return the objective's key of an assignment of copies."""
    problem = layout.problem
    placed = assignment.sum(axis=1)
    stayed = np.minimum(assignment, layout.running).sum(axis=1)
    if problem.objective is PackingObjective.PAPER:
        return tuple(int(copies[tier].sum()) for tier in _list_priority_classes(layout) for copies in (placed, stayed))
    evicted = int((problem.weights * (layout.running.sum(axis=1) - stayed)).sum())
    price = (-compute_copies_price(problem, assignment),) if problem.objective is PackingObjective.CONSOLIDATION else ()
    return (*(int(placed[tier].sum()) for tier in _list_priority_classes(layout)), *price, -evicted)


def compute_copies_price(problem: PackingProblem, assignment: IntArray) -> int:
    """Return the price of the nodes that copies keep in use, in a problem with node prices."""
    assert problem.node_prices is not None
    used = assignment[problem.node_prices.keeps_node_in_use].any(axis=0)
    return int(problem.node_prices.prices[used].sum())


def _list_priority_classes(layout: ProblemLayout) -> list[IntArray]:
    priorities = layout.problem.priorities
    return [np.flatnonzero(priorities == priority) for priority in np.unique(priorities)[::-1].tolist()]
