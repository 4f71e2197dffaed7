"""Solves the linear master problem: how often each pattern is used, and what bound that proves."""

import math
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from cruise.packer.budget import PIVOT_CELL, BudgetMeter
from cruise.packer.columns.subproblem import PrioritySubproblem, compute_copy_prices
from cruise.packer.kernels.dual_simplex import LEVEL_TOLERANCE, restore_bounds
from cruise.packer.kernels.simplex import (
    AT_LOWER,
    BASIC,
    LOST,
    OPTIMAL,
    SimplexTableau,
    create_tableau,
    invert_basis,
    maximise,
    recompute_levels_and_duals,
)
from cruise.packer.problem import BoolArray, FloatArray, IntArray

T = TypeVar("T", np.int64, np.float64)

UNBOUNDED = 1e30
_REFACTOR_PIVOTS = 400
# With equal values a dual simplex cycles, so each copy is worth up to so much more.
_PERTURBATION = 1e-5
_SLACK_PERTURBATION = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class MasterState:
    """A saved basis with the costs and bounds of a master."""

    size: int
    state: IntArray
    cost: FloatArray
    upper: FloatArray
    basis: IntArray
    inverse: FloatArray
    since_refactor: int


@dataclass(slots=True)
class MasterProblem:
    """The columns so far: count variables, surpluses, artificials and slacks up to `first`, then patterns.

    `groups[k]` and `patterns[k][class]` describe column `first + k`. Every row except the convexity rows, which come
    last, requires at least its right-hand side. With a `perturbation`, no two patterns are worth the same.
    """

    subproblem: PrioritySubproblem
    tableau: SimplexTableau
    right: FloatArray
    first: int
    between: int
    convexity: int
    count_columns: IntArray
    artificials: IntArray
    slacks: IntArray
    groups: list[int] = field(default_factory=list)
    patterns: list[IntArray] = field(default_factory=list)
    seen: set[bytes] = field(default_factory=set)
    since_refactor: int = 0
    perturbation: FloatArray | None = None

    def get_column_values(self) -> FloatArray:
        """Return the value of every column."""
        t = self.tableau
        size = int(t.size[0])
        values = np.where(t.state[:size] == AT_LOWER, 0.0, t.upper[:size])
        values[t.basis] = t.level
        return values

    def compute_objective(self) -> float:
        """Return the master's value, artificials and bonuses included."""
        return float(self.tableau.cost[: self.tableau.size[0]] @ self.get_column_values())

    def compute_unmet_demand(self) -> float:
        """Return how much of the demands only artificials meet."""
        values = self.get_column_values()
        return float(values[self.artificials].sum())

    def list_patterns(self, *, used_first: bool = False) -> tuple[IntArray, IntArray]:
        """Return the groups and copies of all patterns, with `used_first` the used ones first."""
        patterns = np.array(self.patterns, dtype=np.int64).reshape(len(self.groups), len(self.subproblem.classes))
        groups = np.array(self.groups, dtype=np.int64)
        if not used_first:
            return groups, patterns
        order = np.argsort(self.get_column_values()[self.first :] <= 0, kind="stable")
        return groups[order], patterns[order]

    def perturb(self, generator: np.random.Generator) -> None:
        """Increase the values of present and future columns so that no two are the same."""
        self.perturbation = generator.uniform(0.0, _PERTURBATION, self.subproblem.limits.shape)
        self.tableau.cost[self.slacks] += generator.uniform(0.0, _SLACK_PERTURBATION, len(self.slacks))

    def add(self, group: int, pattern: IntArray) -> bool:
        """Add a column; return whether it is new."""
        key = group.to_bytes(4, "little") + pattern.tobytes()
        if key in self.seen:
            return False
        self.seen.add(key)
        subproblem, classes = self.subproblem, len(self.subproblem.classes)
        stays = np.minimum(pattern, subproblem.running[group])
        used = np.flatnonzero(pattern)
        entries = [(int(c), float(pattern[c])) for c in used]
        for need in np.flatnonzero(subproblem.sum_stays).tolist():
            total = float(stays[subproblem.sum_members[need]].sum())
            if total:
                entries.append((classes + need, total))
        rows = subproblem.row_share[:, group] @ pattern
        entries += [(self.between + k, float(rows[k])) for k in np.flatnonzero(rows).tolist()]
        entries.append((self.convexity + group, 1.0))
        perturbation = 0.0 if self.perturbation is None else float(pattern @ self.perturbation[group])
        self._append(entries, float(stays @ subproblem.fixed_copies) + perturbation, UNBOUNDED)
        self.groups.append(group)
        self.patterns.append(pattern.copy())
        return True

    def add_all(self, groups: IntArray, patterns: IntArray) -> None:
        """Add many columns without checking for duplicates."""
        subproblem, classes, count = self.subproblem, len(self.subproblem.classes), len(groups)
        stays = np.minimum(patterns, subproblem.running[groups])
        entries = np.zeros((count, len(self.right)))
        entries[:, :classes] = patterns
        for need in np.flatnonzero(subproblem.sum_stays).tolist():
            entries[:, classes + need] = stays[:, subproblem.sum_members[need]].sum(axis=1)
        entries[np.arange(count), self.convexity + groups] = 1.0
        columns, rows = np.nonzero(entries)
        first = int(self.tableau.size[0])
        start = int(self.tableau.starts[first])
        t = self.tableau
        while first + count + 1 >= len(t.cost) or start + len(rows) >= len(t.rows):
            t = self.tableau = _grow_tableau(t)
        t.rows[start : start + len(rows)] = rows
        t.values[start : start + len(rows)] = entries[columns, rows]
        added = slice(first, first + count)
        t.starts[first + 1 : first + count + 1] = start + np.cumsum(np.bincount(columns, minlength=count))
        t.cost[added], t.upper[added], t.state[added] = stays @ subproblem.fixed_copies, UNBOUNDED, AT_LOWER
        t.size[0] = first + count

    def _append(self, entries: list[tuple[int, float]], cost: float, upper: float) -> int:
        t = self.tableau
        j, start = int(t.size[0]), int(t.starts[t.size[0]])
        end = start + len(entries)
        if j + 1 >= len(t.cost) or end >= len(t.rows):
            t = self.tableau = _grow_tableau(t)
        for k, (row, value) in enumerate(entries):
            t.rows[start + k] = row
            t.values[start + k] = value
        t.starts[j + 1], t.cost[j], t.upper[j], t.state[j] = end, cost, upper, AT_LOWER
        t.size[0] = j + 1
        return j

    def solve(self, meter: BudgetMeter) -> bool:
        """Solve the master to its optimum; False if the budget ends first."""
        m = len(self.right)
        while True:
            before = int(self.tableau.pivots[0])
            state = maximise(self.tableau, _REFACTOR_PIVOTS - self.since_refactor, meter.deadline_seconds)
            pivots = int(self.tableau.pivots[0]) - before
            meter.spend(PIVOT_CELL * m * m * (pivots + 2))
            self.since_refactor += pivots
            if state == OPTIMAL:
                return self._is_within_bounds() or self.repair(-math.inf, meter) is not None
            if meter.is_exhausted() or self.since_refactor == 0:
                return False
            # A different basis may violate bounds.
            if self._refactor() and not self.repair(-math.inf, meter):
                return False

    def _is_within_bounds(self) -> bool:
        """Return whether every level is within its bounds, which rounding in pivots may violate."""
        t = self.tableau
        return bool((t.level >= -LEVEL_TOLERANCE).all() and (t.level <= t.upper[t.basis] + LEVEL_TOLERANCE).all())

    def repair(self, floor: float, meter: BudgetMeter) -> bool | None:
        """Restore the optimum after bounds were lowered; return whether it reaches `floor`, None at the deadline."""
        m = len(self.right)
        while True:
            before = int(self.tableau.pivots[0])
            state = restore_bounds(self.tableau, floor, _REFACTOR_PIVOTS - self.since_refactor, meter.deadline_seconds)
            pivots = int(self.tableau.pivots[0]) - before
            # Each pivot reads all columns.
            meter.spend(PIVOT_CELL * (m * m + int(self.tableau.starts[self.tableau.size[0]])) * (pivots + 2))
            self.since_refactor += pivots
            if state in (OPTIMAL, LOST):
                return state == OPTIMAL
            meter.spend(PIVOT_CELL * m**3 // 2)
            if meter.is_exhausted() or self.since_refactor == 0:
                return None
            self._refactor()

    def restrict(self, open_columns: BoolArray, occupied: BoolArray, row_minimums: FloatArray) -> None:
        """Use only the open patterns, one in each occupied group, with other minimums of the rows.

        The basis may violate its bounds then.
        """
        t = self.tableau
        t.upper[self.first : t.size[0]] = np.where(open_columns, UNBOUNDED, 0.0)
        t.upper[self.slacks[self.convexity :]] = np.where(occupied, 0.0, UNBOUNDED)
        rows = slice(self.between, self.convexity)
        t.right[rows] += row_minimums - self.right[rows]
        self.right[rows] = row_minimums

    def save_state(self) -> MasterState:
        """Return the state for `restore_state`."""
        t, size = self.tableau, int(self.tableau.size[0])
        return MasterState(
            size,
            t.state[:size].copy(),
            t.cost[:size].copy(),
            t.upper[:size].copy(),
            t.basis.copy(),
            t.inverse.copy(),
            self.since_refactor,
        )

    def restore_state(self, saved: MasterState) -> None:
        """Restore a saved state; columns added since are not used."""
        t = self.tableau
        t.state[saved.size : t.size[0]] = AT_LOWER
        t.state[: saved.size], t.cost[: saved.size] = saved.state, saved.cost
        t.upper[: saved.size] = saved.upper
        t.basis[:], t.inverse[:, :] = saved.basis, saved.inverse
        self.since_refactor = saved.since_refactor
        recompute_levels_and_duals(t)

    def _refactor(self) -> int:
        """Recompute the inverse; return how many columns of the basis were replaced by slacks."""
        t = self.tableau
        entries = t.starts[t.basis + 1] - t.starts[t.basis]
        self.since_refactor = 0
        return invert_basis(t, t.basis[np.argsort(entries, kind="stable")], self.slacks)

    def get_artificial_cost(self) -> float:
        """Return the cost of a unit of unmet demand; 0 without demands."""
        return float(-self.tableau.cost[self.artificials].min()) if len(self.artificials) else 0.0

    def compute_values(self) -> FloatArray:
        """Return the duals, with a sign that makes them at least 0."""
        return np.maximum(-self.tableau.duals[: self.convexity], 0.0)

    def raise_artificials(self, factor: float) -> None:
        """Increase the cost of unmet demands."""
        self.tableau.cost[self.artificials] *= factor

    def compute_bound(self, duals: FloatArray, group_bounds: FloatArray) -> float:
        """Return what no answer exceeds, from duals of at least 0 and the best pattern of each group at them."""
        subproblem, classes = self.subproblem, len(self.subproblem.classes)
        gain = subproblem.counted.astype(np.float64) - duals[:classes]
        for need in np.flatnonzero(~subproblem.sum_stays).tolist():
            gain += subproblem.sum_members[need] * duals[classes + need]
        optional = ~subproblem.required
        counts = float((subproblem.counts[optional] * np.maximum(gain[optional], 0.0)).sum())
        return float(
            counts - duals[: self.convexity] @ self.right[: self.convexity] + subproblem.group_size @ group_bounds
        )

    def compute_prices(self, duals: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the value of a copy of each class in each group at some duals, and the extra value if it stays."""
        value, stay_bonus = compute_copy_prices(self.subproblem, duals)
        return value if self.perturbation is None else value + self.perturbation, stay_bonus


def build_master_problem(subproblem: PrioritySubproblem, generator: np.random.Generator) -> MasterProblem:
    """Return a master without patterns, with a basis of artificials, surpluses and slacks.

    The right-hand sides of the simplex are relaxed a little, each by a different amount, against degeneracy; bounds use
    the true ones.
    """
    classes, groups = len(subproblem.classes), len(subproblem.group_size)
    between = classes + len(subproblem.sum_minimum)
    convexity = between + len(subproblem.row_minimum)
    m = convexity + groups
    minimums = (
        np.where(subproblem.required, subproblem.counts, 0),
        subproblem.sum_minimum,
        subproblem.row_minimum,
        subproblem.group_size,
    )
    right = np.concatenate(minimums).astype(float)
    shift = generator.uniform(1e-5, 1e-4, m)
    shift[:convexity] *= -1
    master = MasterProblem(
        subproblem=subproblem,
        tableau=create_tableau(right + shift, 4 * m + 1024, 16 * m + 16384),
        right=right,
        first=0,
        between=between,
        convexity=convexity,
        count_columns=np.full(classes, -1, dtype=np.int64),
        artificials=np.zeros(0, dtype=np.int64),
        slacks=np.zeros(m, dtype=np.int64),
    )
    t = master.tableau
    for c in np.flatnonzero(~subproblem.required).tolist():
        entries = [(c, -1.0)]
        for need in np.flatnonzero(~subproblem.sum_stays & subproblem.sum_members[:, c]).tolist():
            entries.append((classes + need, 1.0))
        master.count_columns[c] = master._append(entries, float(subproblem.counted[c]), float(subproblem.counts[c]))
    artificials = []
    for row in range(m):
        slack = master._append([(row, -1.0 if row < convexity else 1.0)], 0.0, UNBOUNDED)
        basic = slack
        master.slacks[row] = slack
        if row < convexity and (right[row] > 0 or row >= between):
            artificials.append(master._append([(row, 1.0)], -subproblem.unit, UNBOUNDED))
            basic = artificials[-1] if right[row] > 0 else slack
        t = master.tableau
        t.basis[row] = basic
        t.state[basic] = BASIC
        t.inverse[row, row] = t.values[t.starts[basic]]
    master.artificials = np.array(artificials, dtype=np.int64)
    master.first = int(t.size[0])
    return master


# The arrays of a tableau that grow with its columns.
_GROWING = ("starts", "rows", "values", "cost", "upper", "state", "helps", "losses", "shifts")


def _grow_tableau(t: SimplexTableau) -> SimplexTableau:
    return t._replace(**{name: _double(getattr(t, name)) for name in _GROWING})


def _double(array: NDArray[T]) -> NDArray[T]:
    return np.concatenate([array, np.zeros_like(array)])
