"""The linear master of a phase: which fillings to use how often, and what that proves."""

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
    recompute,
)
from cruise.packer.problem import BoolArray, FloatArray, IntArray

T = TypeVar("T", np.int64, np.float64)

UNBOUNDED = 1e30
_REFACTOR_PIVOTS = 400
# Where fillings are worth the same a dual simplex goes in circles: each copy is worth up to so much more.
_TILT = 1e-5
_SLACK_TILT = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class MasterState:
    """A master's basis, costs and bounds, to come back to."""

    size: int
    state: IntArray
    cost: FloatArray
    upper: FloatArray
    basis: IntArray
    inverse: FloatArray
    since_refactor: int


@dataclass(slots=True)
class MasterProblem:
    """The columns so far: count variables, surpluses, artificials and slacks up to `first`, fillings from there.

    `groups[k]` and `fillings[k, class]` describe filling column `first + k`. Every row but the convexity rows, which
    come last, asks for at least its right-hand side. With a `tilt` no two fillings are worth the same.
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

    def levels(self) -> FloatArray:
        """The value of every column."""
        t = self.tableau
        size = int(t.size[0])
        values = np.where(t.state[:size] == AT_LOWER, 0.0, t.upper[:size])
        values[t.basis] = t.level
        return values

    def objective(self) -> float:
        """The master's value, artificials and bonuses included."""
        return float(self.tableau.cost[: self.tableau.size[0]] @ self.levels())

    def artificial(self) -> float:
        """How much of the demands only artificials meet."""
        values = self.levels()
        return float(values[self.artificials].sum())

    def known(self, *, used_first: bool = False) -> tuple[IntArray, IntArray]:
        """The groups and copies of all fillings, those that are used first if that is asked for."""
        fillings = np.array(self.patterns, dtype=np.int64).reshape(len(self.groups), len(self.subproblem.classes))
        groups = np.array(self.groups, dtype=np.int64)
        if not used_first:
            return groups, fillings
        order = np.argsort(self.levels()[self.first :] <= 0, kind="stable")
        return groups[order], fillings[order]

    def perturb(self, generator: np.random.Generator) -> None:
        """Let no two columns be worth the same, of those that there are and of fillings to come; none is worth less."""
        self.perturbation = generator.uniform(0.0, _TILT, self.subproblem.limits.shape)
        self.tableau.cost[self.slacks] += generator.uniform(0.0, _SLACK_TILT, len(self.slacks))

    def add(self, group: int, filling: IntArray) -> bool:
        """Add a column, unless it is there already."""
        key = group.to_bytes(4, "little") + filling.tobytes()
        if key in self.seen:
            return False
        self.seen.add(key)
        phase, classes = self.subproblem, len(self.subproblem.classes)
        stays = np.minimum(filling, phase.running[group])
        used = np.flatnonzero(filling)
        entries = [(int(c), float(filling[c])) for c in used]
        for need in np.flatnonzero(phase.sum_stays).tolist():
            total = float(stays[phase.sum_members[need]].sum())
            if total:
                entries.append((classes + need, total))
        between = phase.row_share[:, group] @ filling
        entries += [(self.between + k, float(between[k])) for k in np.flatnonzero(between).tolist()]
        entries.append((self.convexity + group, 1.0))
        tilt = 0.0 if self.perturbation is None else float(filling @ self.perturbation[group])
        self._append(entries, float(stays @ phase.fixed_copies) + tilt, UNBOUNDED)
        self.groups.append(group)
        self.patterns.append(filling.copy())
        return True

    def add_all(self, groups: IntArray, fillings: IntArray) -> None:
        """Add many columns at once, to a master that never looks up which fillings it has."""
        phase, classes, count = self.subproblem, len(self.subproblem.classes), len(groups)
        stays = np.minimum(fillings, phase.running[groups])
        entries = np.zeros((count, len(self.right)))
        entries[:, :classes] = fillings
        for need in np.flatnonzero(phase.sum_stays).tolist():
            entries[:, classes + need] = stays[:, phase.sum_members[need]].sum(axis=1)
        entries[np.arange(count), self.convexity + groups] = 1.0
        columns, rows = np.nonzero(entries)
        first = int(self.tableau.size[0])
        start = int(self.tableau.starts[first])
        t = self.tableau
        while first + count + 1 >= len(t.cost) or start + len(rows) >= len(t.rows):
            t = self.tableau = _grown(t)
        t.rows[start : start + len(rows)] = rows
        t.values[start : start + len(rows)] = entries[columns, rows]
        added = slice(first, first + count)
        t.starts[first + 1 : first + count + 1] = start + np.cumsum(np.bincount(columns, minlength=count))
        t.cost[added], t.upper[added], t.state[added] = stays @ phase.fixed_copies, UNBOUNDED, AT_LOWER
        t.size[0] = first + count

    def _append(self, entries: list[tuple[int, float]], cost: float, upper: float) -> int:
        t = self.tableau
        j, start = int(t.size[0]), int(t.starts[t.size[0]])
        end = start + len(entries)
        if j + 1 >= len(t.cost) or end >= len(t.rows):
            t = self.tableau = _grown(t)
        for k, (row, value) in enumerate(entries):
            t.rows[start + k] = row
            t.values[start + k] = value
        t.starts[j + 1], t.cost[j], t.upper[j], t.state[j] = end, cost, upper, AT_LOWER
        t.size[0] = j + 1
        return j

    def solve(self, meter: BudgetMeter) -> bool:
        """Bring the master to its optimum; False when the budget ended first."""
        m = len(self.right)
        while True:
            before = int(self.tableau.pivots[0])
            state = maximise(self.tableau, _REFACTOR_PIVOTS - self.since_refactor, meter.deadline_seconds)
            pivots = int(self.tableau.pivots[0]) - before
            meter.spend(PIVOT_CELL * m * m * (pivots + 2))
            self.since_refactor += pivots
            if state == OPTIMAL:
                return self._within() or self.repair(-math.inf, meter) is not None
            if meter.is_exhausted() or self.since_refactor == 0:
                return False
            # With other columns in the basis it may keep its bounds no longer.
            if self._refactor() and not self.repair(-math.inf, meter):
                return False

    def _within(self) -> bool:
        """Whether every level is within its bounds: what pivots round may leave some beyond them."""
        t = self.tableau
        return bool((t.level >= -LEVEL_TOLERANCE).all() and (t.level <= t.upper[t.basis] + LEVEL_TOLERANCE).all())

    def repair(self, floor: float, meter: BudgetMeter) -> bool | None:
        """Bring a master whose bounds were lowered to its optimum again: whether that is at least `floor`.

        None when the budget ended first.
        """
        m = len(self.right)
        while True:
            before = int(self.tableau.pivots[0])
            state = restore_bounds(self.tableau, floor, _REFACTOR_PIVOTS - self.since_refactor, meter.deadline_seconds)
            pivots = int(self.tableau.pivots[0]) - before
            # Each pivot looks at all columns.
            meter.spend(PIVOT_CELL * (m * m + int(self.tableau.starts[self.tableau.size[0]])) * (pivots + 2))
            self.since_refactor += pivots
            if state in (OPTIMAL, LOST):
                return state == OPTIMAL
            meter.spend(PIVOT_CELL * m**3 // 2)
            if meter.is_exhausted() or self.since_refactor == 0:
                return None
            self._refactor()

    def restrict(self, open_columns: BoolArray, occupied: BoolArray, asked: FloatArray) -> None:
        """Use the open fillings alone, one in each occupied group, and ask for other sums in the rows between nodes.

        The basis may keep its bounds no longer.
        """
        t = self.tableau
        t.upper[self.first : t.size[0]] = np.where(open_columns, UNBOUNDED, 0.0)
        t.upper[self.slacks[self.convexity :]] = np.where(occupied, 0.0, UNBOUNDED)
        rows = slice(self.between, self.convexity)
        t.right[rows] += asked - self.right[rows]
        self.right[rows] = asked

    def save_state(self) -> MasterState:
        """What `return_to` comes back to."""
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

    def restore_state(self, stand: MasterState) -> None:
        """Be as at a stand, but for columns that came since, which are not used."""
        t = self.tableau
        t.state[stand.size : t.size[0]] = AT_LOWER
        t.state[: stand.size], t.cost[: stand.size] = stand.state, stand.cost
        t.upper[: stand.size] = stand.upper
        t.basis[:], t.inverse[:, :] = stand.basis, stand.inverse
        self.since_refactor = stand.since_refactor
        recompute(t)

    def _refactor(self) -> int:
        """Compute the inverse anew; how many columns of the basis gave way to slacks."""
        t = self.tableau
        entries = t.starts[t.basis + 1] - t.starts[t.basis]
        self.since_refactor = 0
        return invert_basis(t, t.basis[np.argsort(entries, kind="stable")], self.slacks)

    def get_most_expensive(self) -> float:
        """What a unit of an unmet demand costs; 0 where there are no demands."""
        return float(-self.tableau.cost[self.artificials].min()) if len(self.artificials) else 0.0

    def compute_values(self) -> FloatArray:
        """What one unit less of each demand would be worth: the duals, turned to be at least 0."""
        return np.maximum(-self.tableau.duals[: self.convexity], 0.0)

    def raise_artificials(self, factor: float) -> None:
        """Make unmet demands dearer."""
        self.tableau.cost[self.artificials] *= factor

    def bound(self, duals: FloatArray, group_bounds: FloatArray) -> float:
        """What no answer can surpass, from duals of at least 0 and the most valuable filling of each group at them."""
        phase, classes = self.subproblem, len(self.subproblem.classes)
        gain = phase.counted.astype(np.float64) - duals[:classes]
        for need in np.flatnonzero(~phase.sum_stays).tolist():
            gain += phase.sum_members[need] * duals[classes + need]
        optional = ~phase.required
        counts = float((phase.counts[optional] * np.maximum(gain[optional], 0.0)).sum())
        return float(counts - duals[: self.convexity] @ self.right[: self.convexity] + phase.group_size @ group_bounds)

    def prices(self, duals: FloatArray) -> tuple[FloatArray, FloatArray]:
        """What a copy of each class is worth in each group at some duals, and what it is worth more where it stays."""
        value, stay_bonus = compute_copy_prices(self.subproblem, duals)
        return value if self.perturbation is None else value + self.perturbation, stay_bonus


def build_master_problem(phase: PrioritySubproblem, generator: np.random.Generator) -> MasterProblem:
    """A master without fillings, with a basis of artificials, surpluses and slacks.

    The right-hand sides that the simplex sees are relaxed a little, each by another amount, against degeneracy; bounds
    are computed from the true ones.
    """
    classes, groups = len(phase.classes), len(phase.group_size)
    between = classes + len(phase.sum_minimum)
    convexity = between + len(phase.row_least)
    m = convexity + groups
    asked = np.where(phase.required, phase.counts, 0), phase.sum_minimum, phase.row_least, phase.group_size
    right = np.concatenate(asked).astype(float)
    shift = generator.uniform(1e-5, 1e-4, m)
    shift[:convexity] *= -1
    master = MasterProblem(
        subproblem=phase,
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
    for c in np.flatnonzero(~phase.required).tolist():
        entries = [(c, -1.0)]
        for need in np.flatnonzero(~phase.sum_stays & phase.sum_members[:, c]).tolist():
            entries.append((classes + need, 1.0))
        master.count_columns[c] = master._append(entries, float(phase.counted[c]), float(phase.counts[c]))
    artificials = []
    for row in range(m):
        slack = master._append([(row, -1.0 if row < convexity else 1.0)], 0.0, UNBOUNDED)
        basic = slack
        master.slacks[row] = slack
        if row < convexity and (right[row] > 0 or row >= between):
            artificials.append(master._append([(row, 1.0)], -phase.unit, UNBOUNDED))
            basic = artificials[-1] if right[row] > 0 else slack
        t = master.tableau
        t.basis[row] = basic
        t.state[basic] = BASIC
        t.inverse[row, row] = t.values[t.starts[basic]]
    master.artificials = np.array(artificials, dtype=np.int64)
    master.first = int(t.size[0])
    return master


def _grown(t: SimplexTableau) -> SimplexTableau:
    return t._replace(
        starts=_longer(t.starts),
        rows=_longer(t.rows),
        values=_longer(t.values),
        cost=_longer(t.cost),
        upper=_longer(t.upper),
        state=_longer(t.state),
        helps=_longer(t.helps),
        losses=_longer(t.losses),
        shifts=_longer(t.shifts),
    )


def _longer(array: NDArray[T]) -> NDArray[T]:
    return np.concatenate([array, np.zeros_like(array)])
