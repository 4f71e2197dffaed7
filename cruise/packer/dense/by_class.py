"""Problems whose pods are free of each other: solved as classes on nodes, answered pod by pod."""

from dataclasses import replace

import numpy as np

from cruise.packer.answer import Note, NoteCode, Packing, Report, figures_of, packing_of
from cruise.packer.arrays import IntArray
from cruise.packer.bounds import Known
from cruise.packer.budget import Budget, Meter
from cruise.packer.dense.certificate import Solution
from cruise.packer.dense.classing import barred, instance_of, is_allowed, pod_node_of, weighed
from cruise.packer.dense.instance import Instance
from cruise.packer.dense.solving import solve
from cruise.packer.problem import Objective, Problem, copies_of

# Of what is left, for plans without evictions, and for plans without the two rules that no filling of a node expresses.
_STILL_SHARE, _RELAXED_SHARE = 0.3, 0.5


def solve_dense(problem: Problem, start: IntArray, budget: Budget, report: Report) -> Packing:
    """The best packing found within the budget, no worse than the assignment `start` of pods to nodes.

    For problems whose rules do not bind; memory grows with classes times nodes.
    """
    best, meter = _Best(problem, start, report), Meter(budget.deadline_seconds, budget.work_units)
    relaxed, closed = instance_of(problem), barred(problem)
    strict = replace(relaxed, most=np.where(closed, 0, relaxed.most))
    if not relaxed.running[relaxed.movable].any():
        # Where no copy can go, what is short stays so, and none is preempted.
        best.solve(strict, _share(meter, 1.0, budget.seed), bounds_hold=True)
        return best.packing
    if problem.objective is Objective.OPERATOR:
        still = replace(strict, movable=np.zeros_like(strict.movable))
        best.refute(best.solve(still, _share(meter, _STILL_SHARE, budget.seed), bounds_hold=False))
        if best.proved:
            return best.packing
    if not closed.any() and problem.preempt.all():
        best.solve(relaxed, _share(meter, 1.0, budget.seed), bounds_hold=True)
    else:
        best.solve(relaxed, _share(meter, _RELAXED_SHARE, budget.seed), bounds_hold=True)
        if not best.proved:
            best.solve(strict, _share(meter, 1.0, budget.seed), bounds_hold=False)
    return best.packing


def _share(meter: Meter, share: float, seed: int) -> Budget:
    """A budget of a share of what is left; its work is taken off in advance."""
    with meter.part(share) as part:
        budget = Budget(part.deadline_seconds, part.work_left, seed)
        part.work_left = 0.0
    return budget


class _Best:
    """The best packing that was allowed so far, and the least bounds."""

    def __init__(self, problem: Problem, start: IntArray, report: Report) -> None:
        self.problem, self.report = problem, report
        self.pod_node = start
        everything = figures_of(problem, np.where(problem.pod_node < 0, 0, problem.pod_node))
        objective = problem.objective
        self.known = Known(figures_of(problem, start).key(objective), everything.key(objective))
        self.still: Solution | None = None
        self.packing = packing_of(problem, self.pod_node, self.known.bound)

    @property
    def proved(self) -> bool:
        """Whether nothing is better."""
        return self.known.proved

    def solve(self, instance: Instance, budget: Budget, *, bounds_hold: bool) -> Solution:
        """Solve one reading of the problem; `bounds_hold` tells whether its bounds are the problem's."""

        def listen(assignment: IntArray, bounds: IntArray) -> None:
            self._learn(assignment, bounds if bounds_hold else None)

        incumbent = copies_of(self.problem, self.pod_node)
        solution = solve(instance, budget, incumbent if self._obeys(instance, incumbent) else None, listen)
        bounds = np.array(solution.bounds, dtype=np.int64)
        self._learn(solution.assignment, bounds if bounds_hold else None)
        return solution

    def refute(self, still: Solution) -> None:
        """Keep what was found out about plans without evictions."""
        self.still = still
        self.packing = replace(self.packing, notes=self._notes())

    def _obeys(self, instance: Instance, assignment: IntArray) -> bool:
        stuck = ~instance.movable
        return bool((assignment[stuck] >= instance.running[stuck]).all())

    def _learn(self, assignment: IntArray, bounds: IntArray | None) -> None:
        pod_node = pod_node_of(self.problem, assignment)
        key = figures_of(self.problem, pod_node).key(self.problem.objective)
        news = key > self.known.key and is_allowed(self.problem, pod_node)
        if news:
            self.pod_node = pod_node
            self.known.better(key)
        if bounds is not None:
            named = [weighed(self.problem, entry, bound) for entry, bound in enumerate(bounds.tolist())]
            news |= self.known.learn(key, named)
        if news:
            self.packing = packing_of(self.problem, self.pod_node, self.known.bound, self._notes())
            self.report(self.packing)

    def _notes(self) -> tuple[Note, ...]:
        """Tell that evictions were proved to be needed, if they were."""
        if self.still is None:
            return ()
        for mine, key, bound in zip(self.known.key[:-1], self.still.key, self.still.bounds, strict=False):
            if not mine == key == bound:
                return (Note(NoteCode.EVICTIONS_NEEDED),) if bound < mine else ()
        return ()
