"""Runs CP-SAT within a budget.

Code imports this only when it needs CP-SAT, because loading it takes a quarter of a second.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ortools.sat.python import cp_model

from cruise.packer.budget import BudgetMeter
from cruise.packer.problem import IntArray

# The work units of a second of CP-SAT's deterministic time.
EFFORT_UNIT = 1e9
_MIN_SECONDS = 0.001


@dataclass(frozen=True, slots=True)
class SolverOutcome:
    """The result of a CP-SAT call; `solver` has the solution if one was found."""

    solver: cp_model.CpSolver
    found: bool

    @property
    def bound(self) -> float | None:
        """Return what no solution exceeds; None if no solution was found, because the bound may be trivial then."""
        bound = float(self.solver.best_objective_bound)
        return bound if self.found and math.isfinite(bound) else None


def run_solver(
    model: cp_model.CpModel,
    meter: BudgetMeter,
    listener: cp_model.CpSolverSolutionCallback | None = None,
    *,
    as_hinted: bool = False,
) -> SolverOutcome:
    """Solve within the remaining budget; `as_hinted` only completes the hints."""
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 1
    solver.parameters.linearization_level = 2
    solver.parameters.fix_variables_to_their_hinted_value = as_hinted
    seconds = meter.get_remaining_seconds()
    if seconds < math.inf:
        solver.parameters.max_time_in_seconds = max(seconds, _MIN_SECONDS)
    if meter.work_left < math.inf:
        solver.parameters.max_deterministic_time = max(meter.work_left / EFFORT_UNIT, _MIN_SECONDS)
    try:
        status = solver.solve(model, listener)
    except IndexError:
        # OR-Tools 9.15 may lose a hint in presolve and fail (google/or-tools#5288).
        solver.parameters.cp_model_presolve = False
        status = solver.solve(model, listener)
    meter.spend(EFFORT_UNIT * float(solver.response_proto.deterministic_time))
    return SolverOutcome(solver, status in (cp_model.OPTIMAL, cp_model.FEASIBLE))


def compute_min_cover_price(
    prices: IntArray,
    least: IntArray,
    most: IntArray,
    offers: Sequence[IntArray],
    needs: Sequence[int],
    meter: BudgetMeter,
) -> float | None:
    """Return the least price of items that together cover every need; None without a bound.

    `offers` has for each need what one item of each kind offers; `least` and `most` bound the number of each kind.
    """
    model = cp_model.CpModel()
    counts = [model.new_int_var(*bounds, "") for bounds in zip(least.tolist(), most.tolist(), strict=True)]
    for offered, need in zip(offers, needs, strict=True):
        model.add(cp_model.LinearExpr.weighted_sum(counts, offered.tolist()) >= need)
    model.minimize(cp_model.LinearExpr.weighted_sum(counts, prices.tolist()))
    return run_solver(model, meter).bound
