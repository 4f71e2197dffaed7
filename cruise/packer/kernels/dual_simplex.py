"""Implements the dual simplex: pivots that restore bounds that were lowered."""

from cruise.packer.kernels.compilation import compile_inline, compile_without_allocation, read_monotonic_seconds
from cruise.packer.kernels.simplex import (
    AT_LOWER,
    AT_UPPER,
    BASIC,
    CHECK_EVERY,
    INTERRUPTED,
    LOST,
    MAX_DRIFT,
    OPTIMAL,
    PIVOT_TOLERANCE,
    SimplexTableau,
    compute_direction,
    compute_gain_of_column,
    compute_reduced_cost,
    pivot_into_basis,
    recompute_levels_and_duals,
)

LEVEL_TOLERANCE = 1e-6
# How far losses may exceed the least for a larger pivot.
_LOSS_SLACK = 1e-9


@compile_inline
def _objective(t: SimplexTableau) -> float:
    value = 0.0
    for i in range(len(t.basis)):
        value += t.cost[t.basis[i]] * t.level[i]
    for j in range(t.size[0]):
        if t.state[j] == AT_UPPER:
            value += t.cost[j] * t.upper[j]
    return value


@compile_inline
def _compute_row_length(t: SimplexTableau, i: int) -> None:
    """Compute the squared length of a row of the inverse, in four sums that a processor adds in parallel."""
    m = len(t.basis)
    a = b = c = d = 0.0
    for k in range(0, m - 3, 4):
        a += t.inverse[i, k] * t.inverse[i, k]
        b += t.inverse[i, k + 1] * t.inverse[i, k + 1]
        c += t.inverse[i, k + 2] * t.inverse[i, k + 2]
        d += t.inverse[i, k + 3] * t.inverse[i, k + 3]
    for k in range(m - m % 4, m):
        a += t.inverse[i, k] * t.inverse[i, k]
    t.norms[i] = a + b + c + d


@compile_inline
def _find_most_violated(t: SimplexTableau) -> tuple[int, float]:
    """The row whose column is furthest beyond a bound, and how far, less than 0 below the lower one; -1 for none.

    Distances are measured along the steepest edge, which takes far fewer pivots.
    """
    row, beyond, steepest = -1, 0.0, 0.0
    for i in range(len(t.basis)):
        over = t.level[i] - t.upper[t.basis[i]]
        by = over if over > 0.0 else min(t.level[i], 0.0)
        if abs(by) > LEVEL_TOLERANCE and by * by > steepest * t.norms[i]:
            row, beyond, steepest = i, by, by * by / t.norms[i]
    return row, beyond


@compile_inline
def _choose_entering(t: SimplexTableau, row: int, sign: float) -> tuple[int, float, float]:
    """The column that brings back the one of a row at the least loss, that loss a unit, and the pivot; -1 for none.

    Of those that lose as good as the least the one with the largest pivot.
    """
    reach = 1e300
    for j in range(t.size[0]):
        t.helps[j] = 0.0
        if t.state[j] == BASIC or t.upper[j] <= 0.0:
            continue
        alpha = 0.0
        for k in range(t.starts[j], t.starts[j + 1]):
            alpha += t.inverse[row, t.rows[k]] * t.values[k]
        helps = sign * alpha if t.state[j] == AT_LOWER else -sign * alpha
        if helps > PIVOT_TOLERANCE:
            t.helps[j], t.losses[j] = helps, max(-compute_gain_of_column(t, j), 0.0)
            reach = min(reach, (t.losses[j] + _LOSS_SLACK) / helps)
    best, pivot = -1, 0.0
    for j in range(t.size[0]):
        if t.helps[j] > pivot and t.losses[j] <= reach * t.helps[j]:
            best, pivot = j, t.helps[j]
    return best, t.losses[best] / pivot if best >= 0 else 0.0, pivot


@compile_inline
def _suspend_column(t: SimplexTableau, j: int) -> None:
    """Keep a column from gaining for the time being."""
    if compute_gain_of_column(t, j) > 0.0:
        gain = compute_reduced_cost(t, j)
        t.cost[j] -= gain
        t.shifts[j] += gain


@compile_inline
def _exchange_columns(t: SimplexTableau, row: int, beyond: float, j: int) -> None:
    """Exchange the column of a row that exceeds a bound for column j; it stays at the bound."""
    gain = compute_reduced_cost(t, j)
    step = beyond / t.direction[row]
    for i in range(len(t.basis)):
        t.level[i] -= step * t.direction[i]
    t.pivots[0] += 1
    old, start = t.basis[row], t.upper[j] if t.state[j] == AT_UPPER else 0.0
    t.state[old] = AT_UPPER if beyond > 0.0 and t.upper[old] > 0.0 else AT_LOWER
    pivot_into_basis(t, j, row, gain)
    t.level[row] = start + step
    for i in range(len(t.basis)):
        if t.direction[i] != 0.0:
            _compute_row_length(t, i)


@compile_inline
def _pivot_until_feasible(t: SimplexTableau, floor: float, most_pivots: int, deadline: float) -> int:
    objective = _objective(t)
    for turn in range(most_pivots):
        if objective < floor:
            return LOST
        if turn % CHECK_EVERY == 0 and read_monotonic_seconds() > deadline:
            return INTERRUPTED
        row, beyond = _find_most_violated(t)
        if row < 0:
            return OPTIMAL
        j, loss, pivot = _choose_entering(t, row, 1.0 if beyond > 0.0 else -1.0)
        if j < 0:
            return LOST
        _suspend_column(t, j)
        compute_direction(t, j)
        if abs(pivot - abs(t.direction[row])) > MAX_DRIFT * pivot:
            return INTERRUPTED
        objective -= loss * abs(beyond)
        _exchange_columns(t, row, beyond, j)
    return INTERRUPTED


@compile_without_allocation
def restore_bounds(t: SimplexTableau, floor: float, most_pivots: int, deadline: float) -> int:
    """Pivot until every column keeps its bounds again, after some were lowered; what gains now may gain afterwards.

    `OPTIMAL`, `LOST` where nothing within the bounds is worth as much as `floor`, or `INTERRUPTED`.
    """
    recompute_levels_and_duals(t)
    # With columns that gain it would cycle.
    for j in range(t.size[0]):
        t.shifts[j] = 0.0
        _suspend_column(t, j)
    for i in range(len(t.basis)):
        _compute_row_length(t, i)
    state = _pivot_until_feasible(t, floor, most_pivots, deadline)
    for j in range(t.size[0]):
        t.cost[j] += t.shifts[j]
    return state
