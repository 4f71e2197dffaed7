"""One call of CP-SAT: its parameters, what of a meter it may spend, and what its answer says.

Only what has to decide something by CP-SAT imports this, and only then: loading it takes a quarter of a second.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ortools.sat.python import cp_model

from cruise.packer.kernels.compilation import read_monotonic_seconds
from cruise.packer.problem import IntArray

# How long a solve may go on: until a moment of the monotonic clock, or for an amount of work that repeats exactly.

# What one unit of work stands for, in the counters that kernels return; about a nanosecond each on a current core.
ANNEALING_STEP = 100
PRICING_STEP = 20
PIVOT_CELL = 1
# For each class of a filling that is listed; for each row of a column.
LISTED_CELL, COLUMN_CELL = 10, 10
# For each part of a tree that prices are found for, whatever they take.
SUBPROBLEM_STEP = 1_000_000


@dataclass(frozen=True, slots=True)
class ThreadPool:
    """Where calls go that share nothing: `each(function, arguments)` is like `map`, on up to `count` threads."""

    count: int
    map: Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]


SINGLE_THREAD = ThreadPool(1, map)


@dataclass(frozen=True, slots=True)
class SolveBudget:
    """A deadline on the clock of `time.monotonic` (infinite for replay), work units, and the seed of every draw.

    What divides well is divided among `threads`; that changes no answer within work units.
    """

    deadline_seconds: float = math.inf
    work_units: float = math.inf
    seed: int = 1
    threads: ThreadPool = SINGLE_THREAD


@dataclass(slots=True)
class BudgetMeter:
    """The work that is left of a budget, spent by the solver as it goes."""

    deadline_seconds: float
    work_left: float
    threads: ThreadPool = SINGLE_THREAD

    def is_exhausted(self) -> bool:
        """Tell whether the deadline or the work has run out."""
        return self.work_left <= 0 or (
            self.deadline_seconds < math.inf and read_monotonic_seconds() > self.deadline_seconds
        )

    @contextmanager
    def get_part(self, share: float) -> Iterator["BudgetMeter"]:
        """A meter for a share of what is left, whose work is taken off here in the end."""
        deadline = self.deadline_seconds
        if deadline < math.inf:
            now = read_monotonic_seconds()
            deadline = now + (deadline - now) * share
        part = BudgetMeter(deadline, self.work_left * share, self.threads)
        begun = part.work_left
        yield part
        if begun < math.inf:
            # What a part overdrew is not taken from what comes after it.
            self.spend(min(begun - part.work_left, begun))

    def get_remaining_seconds(self) -> float:
        """Seconds to the deadline; infinite in replay."""
        return self.deadline_seconds - read_monotonic_seconds() if self.deadline_seconds < math.inf else math.inf

    def spend(self, units: float) -> None:
        """Take work off what is left."""
        self.work_left -= units


# What a second of CP-SAT's deterministic time costs in work units.
EFFORT_UNIT = 1e9
_LEAST_SECONDS = 0.001


@dataclass(frozen=True, slots=True)
class SolverOutcome:
    """Whether a solution was `found`, which `solver` then has."""

    solver: cp_model.CpSolver
    found: bool

    @property
    def bound(self) -> float | None:
        """What no solution surpasses; None where none was found: it may be no more than where counting begins."""
        bound = float(self.solver.best_objective_bound)
        return bound if self.found and math.isfinite(bound) else None


def run_solver(
    model: cp_model.CpModel,
    meter: BudgetMeter,
    listener: cp_model.CpSolverSolutionCallback | None = None,
    *,
    as_hinted: bool = False,
) -> SolverOutcome:
    """Solve with all that the meter has left; `as_hinted` asks for the solution of the hints alone."""
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 1
    solver.parameters.linearization_level = 2
    solver.parameters.fix_variables_to_their_hinted_value = as_hinted
    seconds = meter.get_remaining_seconds()
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
    return SolverOutcome(solver, status in (cp_model.OPTIMAL, cp_model.FEASIBLE))


def compute_min_cover(
    prices: IntArray,
    least: IntArray,
    most: IntArray,
    offers: Sequence[IntArray],
    needs: Sequence[int],
    meter: BudgetMeter,
) -> float | None:
    """What it costs at least to take so many of each kind that together they offer every need; None for no bound.

    `offers` has for each need what one of each kind offers.
    """
    model = cp_model.CpModel()
    taken = [model.new_int_var(*between, "") for between in zip(least.tolist(), most.tolist(), strict=True)]
    for offered, need in zip(offers, needs, strict=True):
        model.add(cp_model.LinearExpr.weighted_sum(taken, offered.tolist()) >= need)
    model.minimize(cp_model.LinearExpr.weighted_sum(taken, prices.tolist()))
    return run_solver(model, meter).bound
