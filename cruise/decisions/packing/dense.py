"""Problems whose pods are free of each other: solved as classes on nodes, answered pod by pod."""

from dataclasses import replace

import numpy as np

from cruise.decisions.packing.budget import Budget, Meter
from cruise.decisions.packing.classing import assignment_of, barred, instance_of, is_allowed, pod_node_of
from cruise.decisions.packing.instance import Instance, IntArray
from cruise.decisions.packing.packing import Packing, Report, figures_of, packing_of
from cruise.decisions.packing.problem import Problem
from cruise.decisions.packing.solving import solve

# Of the budget, for the problem without the two rules that a filling of a node cannot express.
_RELAXED_SHARE = 0.5


def solve_dense(problem: Problem, start: IntArray, budget: Budget, report: Report) -> Packing:
    """The best packing found within the budget, no worse than the assignment `start` of pods to nodes.

    For problems whose rules do not bind; memory grows with classes times nodes.
    """
    best = _Best(problem, start, report)
    relaxed, closed = instance_of(problem), barred(problem)
    if not closed.any() and problem.preempt.all():
        best.solve(relaxed, budget, bounds_hold=True)
        return best.packing
    with Meter(budget.deadline_seconds, budget.work_units).part(_RELAXED_SHARE) as part:
        first = Budget(part.deadline_seconds, part.work_left, budget.seed)
    best.solve(relaxed, first, bounds_hold=True)
    if not best.proved:
        left = Budget(budget.deadline_seconds, budget.work_units * (1.0 - _RELAXED_SHARE), budget.seed)
        best.solve(replace(relaxed, most=np.where(closed, 0, relaxed.most)), left, bounds_hold=False)
    return best.packing


class _Best:
    """The best packing that was allowed so far, and the least bounds."""

    def __init__(self, problem: Problem, start: IntArray, report: Report) -> None:
        self.problem, self.report = problem, report
        self.pod_node, self.key = start, figures_of(problem, start).key(problem.objective)
        everything = figures_of(problem, np.maximum(problem.pod_node, 0))
        self.most = self.bounds = everything.key(problem.objective)
        self.packing = packing_of(problem, self.pod_node, self.bounds)

    @property
    def proved(self) -> bool:
        """Whether nothing is better."""
        return self.key == self.bounds

    def solve(self, instance: Instance, budget: Budget, *, bounds_hold: bool) -> None:
        """Solve one reading of the problem; `bounds_hold` tells whether its bounds are the problem's."""

        def listen(assignment: IntArray, bounds: IntArray) -> None:
            self._learn(assignment, bounds if bounds_hold else None)

        solution = solve(instance, budget, assignment_of(self.problem, self.pod_node), listen)
        bounds = [figure for bound in solution.bounds for figure in (bound.placed, bound.stayed)]
        self._learn(solution.plan.assignment, np.array(bounds, dtype=np.int64) if bounds_hold else None)

    def _learn(self, assignment: IntArray, bounds: IntArray | None) -> None:
        pod_node = pod_node_of(self.problem, assignment)
        key = figures_of(self.problem, pod_node).key(self.problem.objective)
        better = key > self.key and is_allowed(self.problem, pod_node)
        if better:
            self.pod_node, self.key = pod_node, key
        known = self.bounds if bounds is None else self._bounds_beside(key, tuple(bounds.tolist()))
        if better or known != self.bounds:
            self.bounds = known
            self.packing = packing_of(self.problem, self.pod_node, self.bounds)
            self.report(self.packing)

    def _bounds_beside(self, key: tuple[int, ...], bounds: tuple[int, ...]) -> tuple[int, ...]:
        """What bounds beside a key that is not allowed say: nothing any more after the first entry that differs."""
        for entry, (mine, theirs) in enumerate(zip(self.key, key, strict=True)):
            if mine != theirs:
                return bounds[: entry + 1] + self.most[entry + 1 :]
        return bounds
