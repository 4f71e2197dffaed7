import math

import numpy as np
import pytest

from cruise.packer.kernels.dual_simplex import restore_bounds
from cruise.packer.kernels.simplex import (
    AT_LOWER,
    AT_UPPER,
    BASIC,
    LOST,
    OPTIMAL,
    SimplexTableau,
    create_tableau,
    invert_basis,
    maximise,
    recompute_levels_and_duals,
)

ROWS, COLUMNS, MOST_PIVOTS = 6, 14, 1_000


def tableau_of(seed: int) -> SimplexTableau:
    """A random maximisation under rows that are at most something, all slacks in the basis."""
    draws = np.random.default_rng(seed)
    right = draws.uniform(2.0, 9.0, ROWS)
    t = create_tableau(right, COLUMNS + ROWS + 1, (COLUMNS + 1) * ROWS + 1)
    for j in range(COLUMNS + ROWS):
        rows = np.flatnonzero(draws.random(ROWS) < 0.5) if j < COLUMNS else np.array([j - COLUMNS])
        start = int(t.starts[j])
        t.rows[start : start + len(rows)] = rows
        t.values[start : start + len(rows)] = draws.uniform(0.5, 3.0, len(rows)) if j < COLUMNS else 1.0
        t.starts[j + 1] = start + len(rows)
        t.cost[j] = draws.uniform(0.5, 4.0) if j < COLUMNS else 0.0
        t.upper[j] = draws.uniform(0.5, 3.0) if j < COLUMNS else 1e30
    t.size[0] = COLUMNS + ROWS
    t.basis[:] = np.arange(COLUMNS, COLUMNS + ROWS)
    t.state[t.basis] = BASIC
    t.inverse[:, :] = np.eye(ROWS)
    return t


def value_of(t: SimplexTableau) -> float:
    recompute_levels_and_duals(t)
    levels = np.where(t.state == BASIC, 0.0, np.where(t.state == AT_UPPER, t.upper, 0.0))
    levels[t.basis] = t.level
    return float(levels[: t.size[0]] @ t.cost[: t.size[0]])


@pytest.mark.parametrize("seed", range(40))
def test_repairing_lowered_bounds_gives_the_same_result_as_solving_anew(seed):
    t, anew = tableau_of(seed), tableau_of(seed)
    assert maximise(t, MOST_PIVOTS, math.inf) == OPTIMAL
    lowered = np.random.default_rng(seed).choice(COLUMNS, 5, replace=False)
    t.upper[lowered[t.state[lowered] == BASIC]] = 0.0
    anew.upper[:] = t.upper
    assert maximise(anew, MOST_PIVOTS, math.inf) == OPTIMAL
    best = value_of(anew)
    kept = t._replace(**{name: getattr(t, name).copy() for name in t._fields})
    assert restore_bounds(kept, best - 1e-6, MOST_PIVOTS, math.inf) == OPTIMAL
    assert value_of(kept) == pytest.approx(best)
    assert restore_bounds(t, best + 1e-3, MOST_PIVOTS, math.inf) == LOST


@pytest.mark.parametrize("seed", range(20))
def test_columns_that_gain_are_worth_as_much_after_repairing(seed):
    t, anew = tableau_of(seed), tableau_of(seed)
    assert maximise(t, MOST_PIVOTS, math.inf) == OPTIMAL
    t.upper[t.basis[t.basis < COLUMNS][:2]] = 0.0
    costs = np.random.default_rng(seed).uniform(0.5, 4.0, COLUMNS)
    t.cost[:COLUMNS] = anew.cost[:COLUMNS] = costs
    anew.upper[:] = t.upper
    assert restore_bounds(t, -math.inf, MOST_PIVOTS, math.inf) == OPTIMAL
    assert t.cost[:COLUMNS] == pytest.approx(costs)
    assert (t.level >= -1e-6).all() and (t.level <= t.upper[t.basis] + 1e-6).all()
    assert maximise(t, MOST_PIVOTS, math.inf) == maximise(anew, MOST_PIVOTS, math.inf) == OPTIMAL
    assert value_of(t) == pytest.approx(value_of(anew))


def test_what_depends_on_other_columns_leaves_the_basis_for_a_slack():
    t = tableau_of(1)
    t.rows[:2], t.values[:2], t.starts[1:3] = [0, 0], [1.0, 2.0], [1, 2]
    slacks = np.arange(COLUMNS, COLUMNS + ROWS)
    t.state[:2] = BASIC
    assert invert_basis(t, np.array([0, 1, *slacks[2:]]), slacks) == 1
    assert t.state[:2].tolist() == [BASIC, AT_LOWER]
    assert sorted(t.basis.tolist()) == [0, *slacks[1:].tolist()]
