"""One call of CP-SAT: its parameters, what of a meter it may spend, and what its answer says.

Only what has to decide something by CP-SAT imports this, and only then: loading it takes a quarter of a second.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ortools.sat.python import cp_model

from cruise.packer.arrays import IntArray
from cruise.packer.budget import Meter

# What a second of CP-SAT's deterministic time costs in work units.
EFFORT_UNIT = 1e9
_LEAST_SECONDS = 0.001


@dataclass(frozen=True, slots=True)
class Outcome:
    """Whether a solution was `found`, which `solver` then has."""

    solver: cp_model.CpSolver
    found: bool

    @property
    def bound(self) -> float | None:
        """What no solution surpasses; None where none was found: it may be no more than where counting begins."""
        bound = float(self.solver.best_objective_bound)
        return bound if self.found and math.isfinite(bound) else None


def solve(
    model: cp_model.CpModel,
    meter: Meter,
    listener: cp_model.CpSolverSolutionCallback | None = None,
    *,
    as_hinted: bool = False,
) -> Outcome:
    """Solve with all that the meter has left; `as_hinted` asks for the solution of the hints alone."""
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 1
    solver.parameters.linearization_level = 2
    solver.parameters.fix_variables_to_their_hinted_value = as_hinted
    seconds = meter.remaining_seconds()
    if seconds < math.inf:
        solver.parameters.max_time_in_seconds = max(seconds, _LEAST_SECONDS)
    if meter.work_left < math.inf:
        solver.parameters.max_deterministic_time = max(meter.work_left / EFFORT_UNIT, _LEAST_SECONDS)
    try:
        status = solver.solve(model, listener)
    except IndexError:
        # While it simplifies a model, OR-Tools 9.15 may lose a hint and itself with it (google/or-tools#5288).
        solver.parameters.cp_model_presolve = False
        status = solver.solve(model, listener)
    meter.spend(EFFORT_UNIT * float(solver.response_proto.deterministic_time))
    return Outcome(solver, status in (cp_model.OPTIMAL, cp_model.FEASIBLE))


def least_cover(
    prices: IntArray, least: IntArray, most: IntArray, offers: Sequence[IntArray], needs: Sequence[int], meter: Meter
) -> float | None:
    """What it costs at least to take so many of each kind that together they offer every need; None for no bound.

    `offers` has for each need what one of each kind offers.
    """
    model = cp_model.CpModel()
    taken = [model.new_int_var(*between, "") for between in zip(least.tolist(), most.tolist(), strict=True)]
    for offered, need in zip(offers, needs, strict=True):
        model.add(cp_model.LinearExpr.weighted_sum(taken, offered.tolist()) >= need)
    model.minimize(cp_model.LinearExpr.weighted_sum(taken, prices.tolist()))
    return solve(model, meter).bound
