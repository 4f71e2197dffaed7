"""Implements a bounded primal simplex with an explicit inverse, for a few hundred rows and changing columns."""

from typing import NamedTuple

import numpy as np

from cruise.packer.kernels.compilation import compile_inline, compile_without_allocation, read_monotonic_seconds
from cruise.packer.problem import FloatArray, IntArray

AT_LOWER, AT_UPPER, BASIC = 0, 1, 2
OPTIMAL, INTERRUPTED, UNBOUNDED, LOST = 0, 1, 2, 3
REDUCED_COST_TOLERANCE = 1e-7
PIVOT_TOLERANCE = 1e-7
# How far levels may exceed their bounds for a larger pivot.
_SLACK = 1e-7
# Relative difference between a pivot by column and by row beyond which the inverse is unusable.
MAX_DRIFT = 1e-5
_CANDIDATES = 32
CHECK_EVERY = 32


class SimplexTableau(NamedTuple):
    """A maximisation over columns with bounds 0 and `upper`, every row an equation.

    Column j's entries are `rows[starts[j]:starts[j + 1]]` and `values` there; `size[0]` columns are in use.
    `basis[row]` is a column, `level[row]` its value, `inverse` that of the basis, `duals` its prices; `state[j]` tells
    where column j stands. `candidates` are columns worth a look; `helps[j]` is a pivot, `losses[j]` what it costs.
    """

    starts: IntArray
    rows: IntArray
    values: FloatArray
    cost: FloatArray
    upper: FloatArray
    state: IntArray
    size: IntArray
    right: FloatArray
    basis: IntArray
    level: FloatArray
    inverse: FloatArray
    duals: FloatArray
    direction: FloatArray
    norms: FloatArray
    candidates: IntArray
    helps: FloatArray
    losses: FloatArray
    shifts: FloatArray
    pivots: IntArray


@compile_inline
def compute_reduced_cost(t: SimplexTableau, j: int) -> float:
    """Return what a unit of column j would add at the present duals."""
    value = t.cost[j]
    for k in range(t.starts[j], t.starts[j + 1]):
        value -= t.duals[t.rows[k]] * t.values[k]
    return float(value)


@compile_inline
def compute_gain_of_column(t: SimplexTableau, j: int) -> float:
    """Return how much the objective gains by moving column j off its bound; 0 for a fixed column."""
    if t.state[j] == BASIC or t.upper[j] <= 0.0:
        return 0.0
    d = compute_reduced_cost(t, j)
    return float(d if t.state[j] == AT_LOWER else -d)


@compile_without_allocation
def recompute_levels_and_duals(t: SimplexTableau) -> None:
    """Recompute levels and duals from the inverse, after a change of columns, costs or bounds."""
    m = len(t.basis)
    for i in range(m):
        t.direction[i] = t.right[i]
        t.duals[i] = 0.0
    for j in range(t.size[0]):
        if t.state[j] == AT_UPPER:
            for k in range(t.starts[j], t.starts[j + 1]):
                t.direction[t.rows[k]] -= t.upper[j] * t.values[k]
    for i in range(m):
        total, c = 0.0, t.cost[t.basis[i]]
        for k in range(m):
            total += t.inverse[i, k] * t.direction[k]
            t.duals[k] += c * t.inverse[i, k]
        t.level[i] = total


@compile_inline
def _choose_entering(t: SimplexTableau, held: int) -> tuple[int, int]:
    """Return the best candidate column, which are collected again once used up; -1 if no column gains."""
    best, best_pull = -1, REDUCED_COST_TOLERANCE
    kept = 0
    for k in range(held):
        j = t.candidates[k]
        pull = compute_gain_of_column(t, j)
        if pull > REDUCED_COST_TOLERANCE:
            t.candidates[kept] = j
            kept += 1
            if pull > best_pull:
                best, best_pull = j, pull
    if best >= 0:
        return best, kept
    # Collect: of all columns, the first ones that exceed half of the best so far are kept.
    kept = 0
    for j in range(t.size[0]):
        pull = compute_gain_of_column(t, j)
        if pull > REDUCED_COST_TOLERANCE:
            if pull > best_pull:
                best, best_pull = j, pull
            if kept < _CANDIDATES:
                t.candidates[kept] = j
                kept += 1
            elif pull > 0.5 * best_pull:
                t.candidates[j % _CANDIDATES] = j
    return best, kept


@compile_inline
def _compute_range(t: SimplexTableau, i: int, d: float) -> float:
    """Return how far the column of a row may move; 1e300 if nothing bounds it, or it hardly moves."""
    if d > PIVOT_TOLERANCE:
        return float(max(t.level[i], 0.0))
    if d < -PIVOT_TOLERANCE and t.upper[t.basis[i]] < 1e30:
        return float(max(t.upper[t.basis[i]] - t.level[i], 0.0))
    return 1e300


@compile_inline
def _choose_leaving(t: SimplexTableau, sign: float, most: float) -> tuple[int, float]:
    """The row whose column first meets a bound while the entering one moves, and how far; -1 for its own bound.

    Of those that meet it as good as together the one with the largest pivot: small ones make a basis singular.
    """
    reach = most
    for i in range(len(t.basis)):
        d = sign * t.direction[i]
        room = _compute_range(t, i, d)
        if room < 1e300:
            reach = min(reach, (room + _SLACK) / abs(d))
    row, step, pivot = -1, most, 0.0
    for i in range(len(t.basis)):
        d = sign * t.direction[i]
        room = _compute_range(t, i, d)
        if room <= reach * abs(d) and abs(d) > pivot:
            row, step, pivot = i, room / abs(d), abs(d)
    return (row, step) if step <= most else (-1, most)


@compile_inline
def compute_direction(t: SimplexTableau, j: int) -> None:
    """Compute how the basic columns change with column j."""
    for i in range(len(t.basis)):
        total = 0.0
        for k in range(t.starts[j], t.starts[j + 1]):
            total += t.inverse[i, t.rows[k]] * t.values[k]
        t.direction[i] = total


@compile_inline
def pivot_into_basis(t: SimplexTableau, j: int, row: int, gain: float) -> None:
    """Exchange the basic column of a row for column j."""
    m = len(t.basis)
    scale = 1.0 / t.direction[row]
    for k in range(m):
        t.inverse[row, k] *= scale
        t.duals[k] += gain * t.inverse[row, k]
    for i in range(m):
        d = t.direction[i]
        if i != row and d != 0.0:
            for k in range(m):
                t.inverse[i, k] -= d * t.inverse[row, k]
    t.basis[row] = j
    t.state[j] = BASIC


@compile_without_allocation
def invert_basis(t: SimplexTableau, columns: IntArray, slacks: IntArray) -> int:
    """Compute the inverse of some columns; return how many were dependent and replaced by slacks."""
    m, dropped = len(t.basis), 0
    for i in range(m):
        t.basis[i] = -1
        for k in range(m):
            t.inverse[i, k] = 1.0 if i == k else 0.0
    for j in columns:
        compute_direction(t, j)
        row, pivot = -1, PIVOT_TOLERANCE
        for i in range(m):
            if t.basis[i] < 0 and abs(t.direction[i]) > pivot:
                row, pivot = i, abs(t.direction[i])
        if row >= 0:
            pivot_into_basis(t, j, row, 0.0)
        else:
            t.state[j] = AT_LOWER
            dropped += 1
    for i in range(m):
        if t.basis[i] < 0:
            compute_direction(t, slacks[i])
            pivot_into_basis(t, slacks[i], i, 0.0)
    return dropped


@compile_without_allocation
def maximise(t: SimplexTableau, most_pivots: int, deadline: float) -> int:
    """Pivot until no column gains; return `OPTIMAL`, or `INTERRUPTED` by the number of pivots or the deadline."""
    recompute_levels_and_duals(t)
    m = len(t.basis)
    held = 0
    for turn in range(most_pivots):
        if turn % CHECK_EVERY == 0 and read_monotonic_seconds() > deadline:
            return INTERRUPTED
        j, held = _choose_entering(t, held)
        if j < 0:
            return OPTIMAL
        gain = compute_reduced_cost(t, j)
        rising = t.state[j] == AT_LOWER
        sign = 1.0 if rising else -1.0
        compute_direction(t, j)
        row, step = _choose_leaving(t, sign, t.upper[j])
        if row < 0 and step > 1e29:
            return UNBOUNDED
        for i in range(m):
            t.level[i] -= sign * step * t.direction[i]
        t.pivots[0] += 1
        if row < 0:
            t.state[j] = AT_UPPER if rising else AT_LOWER
            continue
        old = t.basis[row]
        t.state[old] = AT_LOWER if sign * t.direction[row] > 0.0 else AT_UPPER
        pivot_into_basis(t, j, row, gain)
        t.level[row] = step if rising else t.upper[j] - step
    return INTERRUPTED


@compile_without_allocation
def raise_best_column_values(
    t: SimplexTableau, prices: FloatArray, first: int, first_convexity: int, best: FloatArray
) -> None:
    """For each convexity row, raise `best` to the largest value at other prices of an open column from `first` on."""
    for j in range(first, t.size[0]):
        if t.upper[j] <= 0.0:
            continue
        value, group = t.cost[j], -1
        for k in range(t.starts[j], t.starts[j + 1]):
            row = t.rows[k]
            if row >= first_convexity:
                group = row - first_convexity
            else:
                value += prices[row] * t.values[k]
        if group >= 0:
            best[group] = max(best[group], value)


def create_tableau(right: FloatArray, columns: int, entries: int) -> SimplexTableau:
    """Return an empty tableau with space for some columns and entries."""
    m = len(right)
    return SimplexTableau(
        starts=np.zeros(columns + 1, np.int64),
        rows=np.zeros(entries, np.int64),
        values=np.zeros(entries),
        cost=np.zeros(columns),
        upper=np.zeros(columns),
        state=np.zeros(columns, np.int64),
        size=np.zeros(1, np.int64),
        right=right,
        basis=np.zeros(m, np.int64),
        level=np.zeros(m),
        inverse=np.zeros((m, m)),
        duals=np.zeros(m),
        direction=np.zeros(m),
        norms=np.zeros(m),
        candidates=np.zeros(_CANDIDATES, np.int64),
        helps=np.zeros(columns),
        losses=np.zeros(columns),
        shifts=np.zeros(columns),
        pivots=np.zeros(1, np.int64),
    )
