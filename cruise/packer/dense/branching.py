"""Deciding a target over listed fillings by branch and bound on their linear master."""

from dataclasses import dataclass, replace

import numpy as np

from cruise.packer.arrays import FloatArray, IntArray
from cruise.packer.budget import COLUMN_CELL, Meter
from cruise.packer.dense.master import Master, Stand, master_of
from cruise.packer.dense.phase import Phase

# An unmet demand costs so much more than it can gain.
_PENALTY = 1000.0
# The relaxed right-hand sides let fractions of this size in where everything is whole.
_WHOLE = 1e-2
_TRACE = 1e-7
# What nothing asks for is split as well, after all that something does.
_LEAST_PRICE = 1e-3
_MARGIN = 1e-4
# Fillings are turned into columns so many at a time.
_AT_ONCE = 5_000
# Of the bases that are kept to come back to, 8 bytes each.
_MOST_CELLS = 30_000_000


@dataclass(frozen=True, slots=True, eq=False)
class Verdict:
    """Whether the target can be reached (None: not decided in time), by how many uses of each filling."""

    reachable: bool | None
    uses: IntArray


_UNDECIDED = Verdict(None, np.zeros(0, dtype=np.int64))


def branch(
    phase: Phase,
    groups: IntArray,
    fillings: IntArray,
    target: int,
    generator: np.random.Generator,
    meter: Meter,
    known: int = 0,
) -> Verdict:
    """Decide whether a choice of the fillings reaches `target`, for phases with few nodes in a group.

    The first `known` fillings make a good master alone.

    A part of the tree is dropped once its master, with relaxed right-hand sides, has no value as high as the target.
    """
    # Each node gets fillings of its own, so that there is something to branch on.
    copies = phase.group_size[groups]
    origin = np.repeat(np.arange(len(groups)), copies)
    turn = np.arange(len(origin)) - np.repeat(np.cumsum(copies) - copies, copies)
    single = of_single_nodes(phase)
    first_node = np.cumsum(phase.group_size) - phase.group_size
    tree = _Tree(single, first_node[groups[origin]] + turn, fillings[origin], generator)
    if not tree.begin(int(copies[:known].sum()), meter):
        return _UNDECIDED
    reached: bool | None = tree.master.objective() >= target - _MARGIN
    pending: list[tuple[Stand, IntArray]] = []
    while reached is not None and len(pending) * len(tree.master.right) ** 2 < _MOST_CELLS:
        split = None
        if reached:
            levels = tree.master.levels()
            split = tree.split(levels)
            if split is None:
                uses = np.rint(levels[tree.master.first :]).astype(np.int64)
                whole = np.bincount(origin, weights=uses, minlength=len(groups)).astype(np.int64)
                chosen = np.repeat(np.arange(len(uses)), uses)
                if reaches(tree.phase, tree.groups[chosen], tree.fillings[chosen], target):
                    return Verdict(True, whole)
                split = tree.settle(levels)
                if split is None:
                    return Verdict(None, whole)
        if split is not None:
            excluded, otherwise = split
            pending.append((tree.master.stand(), otherwise))
        elif pending:
            stand, excluded = pending.pop()
            tree.master.return_to(stand)
        else:
            return Verdict(False, np.zeros(0, dtype=np.int64))
        tree.master.tableau.upper[excluded] = 0.0
        reached = tree.master.repair(target - _MARGIN, meter)
    return _UNDECIDED


def of_single_nodes(phase: Phase) -> Phase:
    """The same question with each node as a group, in the order of the groups."""
    spread = np.repeat(np.arange(len(phase.group_size)), phase.group_size)
    return replace(
        phase,
        node_group=np.argsort(np.argsort(phase.node_group, kind="stable"), kind="stable"),
        group_size=np.ones(len(spread), dtype=np.int64),
        room=phase.room[spread],
        floor=phase.floor[spread],
        limits=phase.limits[spread],
        running=phase.running[spread],
        row_share=phase.row_share[:, spread],
    )


class _Tree:
    """The master of all listed fillings, and ways to split what it leaves uncertain."""

    def __init__(self, phase: Phase, groups: IntArray, fillings: IntArray, generator: np.random.Generator) -> None:
        self.phase, self.groups, self.fillings = phase, groups, fillings
        self.master: Master = master_of(phase, generator)
        self.master.raise_artificials(_PENALTY)
        self.members = [np.flatnonzero(groups == group) for group in range(len(phase.group_size))]

    def begin(self, known: int, meter: Meter) -> bool:
        """Solve the master of the first fillings, then that of all; False when the budget ended."""
        self.master.add_all(self.groups[:known], self.fillings[:known])
        begun = self.master.solve(meter)
        for first in range(known, len(self.groups), _AT_ONCE):
            if meter.over():
                return False
            meter.spend(COLUMN_CELL * len(self.master.right) * min(_AT_ONCE, len(self.groups) - first))
            self.master.add_all(self.groups[first : first + _AT_ONCE], self.fillings[first : first + _AT_ONCE])
        return begun and self.master.solve(meter)

    def split(self, levels: FloatArray) -> tuple[IntArray, IntArray] | None:
        """Two sets of columns, one of which any answer leaves out; None where every node's filling is certain.

        By how many copies of a class a node has: with a share of one on the average, or with the same in all.
        """
        used = levels[self.master.first :]
        columns = np.flatnonzero(used > _TRACE)
        mine, amounts, fillings = self.groups[columns], used[columns], self.fillings[columns]
        split = uncertain(mine, amounts, fillings, self._prices())
        if split is None:
            return None
        group, c, least = split
        members = self.members[group]
        enough = self.fillings[members, c] >= least
        return self._columns(members[~enough], group), self._columns(members[enough])

    def _prices(self) -> FloatArray:
        """What a copy that stays is worth in each group, of each class."""
        value, stay_bonus = self.master.prices(self.master.worths())
        return value + stay_bonus

    def settle(self, levels: FloatArray) -> tuple[IntArray, IntArray] | None:
        """Two sets of columns by whether a node has the filling that it uses most; None where all use one alone."""
        used = levels[self.master.first :]
        shares = np.where(used > 0.5, 1.0 - used, used)
        top = int(np.argmax(shares))
        if shares[top] <= _TRACE:
            return None
        mine = self.members[int(self.groups[top])]
        top = int(mine[np.argmax(used[mine])])
        return self._columns(mine[mine != top], int(self.groups[top])), self._columns(np.array([top]))

    def _columns(self, indices: IntArray, emptied: int | None = None) -> IntArray:
        """The columns of some fillings; with a group, leaving its node empty is excluded too."""
        columns = indices + self.master.first
        return columns if emptied is None else np.append(columns, self.master.slacks[self.master.convexity + emptied])


def uncertain(
    groups: IntArray, amounts: FloatArray, fillings: IntArray, prices: FloatArray
) -> tuple[int, int, int] | None:
    """A group, a class and so many of its copies that the group may have or not; None where all is certain.

    Of the uncertain ones the dearest, at `prices[group, class]`. `amounts[k]` tells how much a group uses of a filling.
    """
    means = np.zeros(prices.shape)
    np.add.at(means, groups, amounts[:, None] * fillings)
    least = np.floor(means + _WHOLE).astype(np.int64) + 1
    part = np.minimum(means - least + 1.0, least - means)
    if part.max(initial=0.0) <= _WHOLE:
        more = fillings >= least[groups]
        above, below = np.zeros_like(means), np.zeros_like(means)
        np.add.at(above, groups, amounts[:, None] * more)
        np.add.at(below, groups, amounts[:, None] * ~more)
        part = np.minimum(above, below)
    # What is worth most first: of two that are as uncertain it decides about more.
    weight = np.where(part > _WHOLE, part * (_LEAST_PRICE + np.maximum(prices, 0.0)), 0.0)
    if not weight.any():
        return None
    group, c = divmod(int(np.argmax(weight)), part.shape[1])
    return group, c, int(least[group, c])


def reaches(phase: Phase, groups: IntArray, fillings: IntArray, target: int) -> bool:
    """Tell whether one filling a node meets every demand and the target, in whole numbers."""
    placed = np.minimum(fillings.sum(axis=0), phase.counts)
    stayed = np.minimum(fillings, phase.running[groups]).sum(axis=0)
    if (np.bincount(groups, minlength=len(phase.group_size)) > phase.group_size).any():
        return False
    if (placed < phase.counts)[phase.must].any():
        return False
    for need in range(len(phase.need_least)):
        figures = stayed if phase.need_stays[need] else placed
        if figures[phase.need_members[need]].sum() < phase.need_least[need]:
            return False
    return phase.value(placed, stayed) >= target
