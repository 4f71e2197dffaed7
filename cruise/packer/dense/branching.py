"""Deciding a target over listed fillings by branch and bound on their linear master, costs being all that changes."""

from dataclasses import dataclass, replace

import numpy as np

from cruise.packer.arrays import FloatArray, IntArray
from cruise.packer.budget import Meter
from cruise.packer.dense.master import Master, master_of
from cruise.packer.dense.phase import Phase
from cruise.packer.kernels.simplex import refresh

# Using an excluded filling costs so much that the master's value stays a bound whatever it is.
_PENALTY = 1000.0
# The relaxed right-hand sides let fractions of this size in where everything is whole.
_WHOLE = 1e-2
_DEEPEST = 400
_MARGIN = 1e-4


@dataclass(frozen=True, slots=True, eq=False)
class Verdict:
    """Whether the target can be reached (None: not decided in time), by how many uses of each filling."""

    reachable: bool | None
    uses: IntArray


def branch(
    phase: Phase, groups: IntArray, fillings: IntArray, target: int, generator: np.random.Generator, meter: Meter
) -> Verdict:
    """Decide whether a choice of the fillings reaches `target`, for phases with few nodes in a group.

    A part of the tree is dropped once its master's value, with relaxed right-hand sides and with penalties in place
    of exclusions, is below the target: such a value is never too low.
    """
    # Each node gets fillings of its own, so that there is something to branch on.
    copies = phase.group_size[groups]
    origin = np.repeat(np.arange(len(groups)), copies)
    turn = np.arange(len(origin)) - np.repeat(np.cumsum(copies) - copies, copies)
    single = _of_single_nodes(phase)
    first_node = np.cumsum(phase.group_size) - phase.group_size
    tree = _Tree(single, first_node[groups[origin]] + turn, fillings[origin], generator)
    pending: list[tuple[IntArray, int]] = []
    path: list[tuple[IntArray, int]] = []
    while True:
        if len(path) > _DEEPEST or not tree.master.solve(meter):
            return Verdict(None, np.zeros(0, dtype=np.int64))
        levels = tree.master.levels()
        split = None
        if tree.master.objective() >= target - _MARGIN:
            split = tree.split(levels)
            if split is None:
                uses = np.rint(levels[tree.master.first :]).astype(np.int64)
                whole = np.bincount(origin, weights=uses, minlength=len(groups)).astype(np.int64)
                return Verdict(True if tree.reaches(uses, target) else None, whole)
        if split is not None:
            first, second = split
            tree.exclude(first, 1)
            path.append((first, len(pending)))
            pending.append((second, len(path) - 1))
            continue
        if not pending:
            return Verdict(False, np.zeros(0, dtype=np.int64))
        other, depth = pending.pop()
        while len(path) > depth:
            tree.exclude(path.pop()[0], -1)
        tree.exclude(other, 1)
        path.append((other, len(pending)))


def _of_single_nodes(phase: Phase) -> Phase:
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
    """The master of all listed fillings, and how often each column is excluded now."""

    def __init__(self, phase: Phase, groups: IntArray, fillings: IntArray, generator: np.random.Generator) -> None:
        self.phase, self.groups, self.fillings = phase, groups, fillings
        self.master: Master = master_of(phase, generator)
        self.penalty = _PENALTY * phase.unit
        self.master.raise_artificials(_PENALTY)
        self.master.add_all(groups, fillings)
        self.members = [np.flatnonzero(groups == group) for group in range(len(phase.group_size))]
        size = int(self.master.tableau.size[0])
        self.cost = self.master.tableau.cost[:size].copy()
        self.excluded = np.zeros(size, dtype=np.int64)
        refresh(self.master.tableau)

    def exclude(self, columns: IntArray, by: int) -> None:
        """Exclude columns once more, or once less."""
        self.excluded[columns] += by
        self.master.tableau.cost[columns] = self.cost[columns] - self.penalty * (self.excluded[columns] > 0)

    def split(self, levels: FloatArray) -> tuple[IntArray, IntArray] | None:
        """Two sets of columns, one of which any answer leaves out; None where every filling is used whole."""
        used = levels[self.master.first :]
        open_columns = np.flatnonzero((used > _WHOLE) & (used < 1 - _WHOLE))
        if len(open_columns) == 0:
            return None
        means = np.zeros((len(self.phase.group_size), self.fillings.shape[1]))
        np.add.at(means, self.groups[open_columns], used[open_columns, None] * self.fillings[open_columns])
        part = means - np.floor(means + _WHOLE)
        part[part > 1 - _WHOLE] = 0.0
        group, c = divmod(int(np.argmax(np.minimum(part, 1.0 - part) * (part > _WHOLE))), part.shape[1])
        if part[group, c] <= _WHOLE:
            top = int(open_columns[np.argmax(used[open_columns])])
            siblings = self.members[int(self.groups[top])]
            return self._columns(siblings[siblings != top], int(self.groups[top])), self._columns(np.array([top]))
        mine = self.members[group]
        enough = self.fillings[mine, c] >= int(np.floor(means[group, c])) + 1
        return self._columns(mine[~enough], group), self._columns(mine[enough])

    def _columns(self, indices: IntArray, emptied: int | None = None) -> IntArray:
        """The columns of some fillings; with a group, leaving its node empty is excluded too."""
        columns = indices + self.master.first
        return columns if emptied is None else np.append(columns, self.master.convexity_slacks[emptied])

    def reaches(self, uses: IntArray, target: int) -> bool:
        """Tell whether whole uses meet every demand and the target, in whole numbers."""
        phase = self.phase
        chosen = np.repeat(np.arange(len(uses)), uses)
        placed = np.minimum(self.fillings[chosen].sum(axis=0), phase.counts)
        stayed = np.minimum(self.fillings[chosen], phase.running[self.groups[chosen]]).sum(axis=0)
        if (np.bincount(self.groups[chosen], minlength=len(phase.group_size)) > phase.group_size).any():
            return False
        if (placed < phase.counts)[phase.must].any():
            return False
        for need in range(len(phase.need_least)):
            figures = stayed if phase.need_stays[need] else placed
            if figures[phase.need_members[need]].sum() < phase.need_least[need]:
                return False
        return phase.value(placed, stayed) >= target
