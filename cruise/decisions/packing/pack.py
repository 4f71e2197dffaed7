"""The packer: a whole packing at once, then the best that the budget allows, by whichever way fits the problem."""

from typing import TYPE_CHECKING

from cruise.decisions.packing.instance import IntArray
from cruise.decisions.packing.large.bounds import counted_bound
from cruise.decisions.packing.large.obeying import find_faults
from cruise.decisions.packing.large.quick import quick_assignment
from cruise.decisions.packing.packing import Packing, Report, figures_of, packing_of
from cruise.decisions.packing.problem import Problem

if TYPE_CHECKING:
    from cruise.decisions.packing.budget import Budget


def quick_packing(problem: Problem) -> Packing:
    """A whole feasible packing without compiled code, never worse than what runs now: milliseconds for small ones."""
    return _checked(problem, quick_assignment(problem))


def pack(problem: Problem, budget: "Budget", report: Report) -> Packing:
    """The best packing found within the budget, never worse than what runs now; each better one is reported."""
    quick = quick_packing(problem)
    report(quick)
    return quick


def _checked(problem: Problem, pod_node: IntArray) -> Packing:
    """The packing of an assignment that obeys every rule and is no worse than now; else what runs now."""
    faults = find_faults(problem, pod_node)
    now, after = figures_of(problem, problem.pod_node), figures_of(problem, pod_node)
    bound = counted_bound(problem)
    if faults:
        return packing_of(problem, problem.pod_node.copy(), bound, (f"a packing was dropped: {faults[0]}",))
    worse = after.key(problem.objective) < now.key(problem.objective)
    return packing_of(problem, problem.pod_node.copy() if worse else pod_node, bound)
