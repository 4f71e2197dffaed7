"""The last minutes of what kubelets told, and what of it was known at each time of a grid, as Prometheus would say."""

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from cruise.adapters.kubelets.exposition import ROOT_GROUP, Figures
from cruise.adapters.prometheus.counters import Answers
from cruise.adapters.prometheus.matrix import Matrix, SeriesName
from cruise.adapters.prometheus.scrape_times import TOLERANCE_SECONDS
from cruise.adapters.prometheus.scrapes import HOLE_SECONDS
from cruise.domain.arrays import Float64Array, Int64Array
from cruise.errors import Unavailable

# A pass comes every few minutes, and looks back over the longest hole; one that fails is made up for by the next.
KEPT_SECONDS = 900.0
# What is told as of another time than this was told by a clock that is wrong, or by a kubelet that is stuck.
MOST_APART_SECONDS = HOLE_SECONDS


@dataclass(frozen=True, slots=True)
class _Kept:
    at: float
    figures: Figures


class Readings:
    """What was read of each node, for a while."""

    def __init__(self, kept_seconds: float = KEPT_SECONDS) -> None:
        self._kept_seconds = kept_seconds
        self._of_node: dict[str, deque[_Kept]] = {}

    def add(self, node: str, figures: Figures, at: float) -> None:
        """Take over what was read of a node at a time, in Unix seconds.

        Raises Unavailable where the node tells of another time: what it used when is not known then.
        """
        taken = figures.taken_at[~np.isnan(figures.taken_at)]
        newest = float(taken.max()) if len(taken) else at
        if abs(newest - at) > MOST_APART_SECONDS:
            way = "ahead" if newest > at else "behind"
            raise Unavailable(
                f"the figures of node {node} are {abs(newest - at):.0f} s {way} of the clock here: "
                "see whether the clocks agree, and whether its kubelet still measures"
            )
        # What is from a moment later than this one is due to clocks that differ a little.
        taken_at = np.minimum(np.where(np.isnan(figures.taken_at), at, figures.taken_at), at)
        kept = self._of_node.setdefault(node, deque())
        # Names are far larger than figures, and mostly those of the minute before.
        same = bool(kept) and kept[-1].figures.series == figures.series
        series = kept[-1].figures.series if same else figures.series
        kept.append(_Kept(at, replace(figures, series=series, taken_at=taken_at)))
        while kept[0].at < at - self._kept_seconds:
            kept.popleft()

    def keep_only(self, nodes: Collection[str]) -> None:
        """Forget the nodes that are no more."""
        for node in self._of_node.keys() - set(nodes):
            del self._of_node[node]

    def read_at(self, node: str) -> float | None:
        """Return when a node was read last, None where it was not."""
        kept = self._of_node.get(node)
        return kept[-1].at if kept else None

    def known_since(self, node: str) -> float | None:
        """Return when the oldest figures that are kept of a node were taken, None where there are none."""
        kept = self._of_node.get(node)
        return float(np.nanmin(kept[0].figures.taken_at)) if kept else None

    def answers(self, nodes: Collection[str], times: Int64Array, roots: bool = False) -> Answers:
        """Return the three families of the nodes' containers, or of their root groups, at the times of a grid.

        As an instant query does, each shows the newest figure that is no older than the longest hole.
        """
        blocks = [_Node(kept, roots) for node in sorted(nodes) if (kept := self._of_node.get(node))]
        names = [name for block in blocks for name in block.series]
        nothing = np.empty((0, len(times)))

        def matrix(column: int) -> Matrix:
            return Matrix(names, np.concatenate([nothing, *(block.at(times, column) for block in blocks)]))

        cpu, waiting, memory = (matrix(column) for column in range(3))
        return Answers(_told(cpu), _told(waiting), _told(memory))

    def ages(self, nodes: Collection[str], times: Int64Array) -> Mapping[str, Float64Array]:
        """Return for nodes by how many seconds their last reading preceded each time, NaN where there was none.

        A node is left out whose containers were measured at different moments: none speaks for the others.
        """
        found = {}
        for node in nodes:
            kept = self._of_node.get(node)
            if not kept:
                continue
            taken = _Node(kept, roots=False).taken_at(times)
            if not len(taken):
                continue
            first, last = np.fmin.reduce(taken, axis=0), np.fmax.reduce(taken, axis=0)
            if not (last - first > TOLERANCE_SECONDS).any():
                found[node] = times - first
        return found

    def last_two(self, node: str) -> tuple[Figures, Figures] | None:
        """Return what was read of a node the last two times, the older first; None where it was not read twice."""
        kept = self._of_node.get(node)
        if not kept or len(kept) < 2:
            return None
        earlier, later = islice(kept, len(kept) - 2, None)
        return earlier.figures, later.figures


class _Node:
    """The readings of one node as arrays: a row a series, a column a reading."""

    def __init__(self, kept: Sequence[_Kept] | deque[_Kept], roots: bool) -> None:
        row_of: dict[SeriesName, int] = {}
        places = []
        for one in kept:
            rows = np.fromiter(
                (
                    row_of.setdefault(name, len(row_of)) if (name.id == ROOT_GROUP) is roots else -1
                    for name in one.figures.series
                ),
                np.int64,
                len(one.figures.series),
            )
            places.append(rows)
        self.series = list(row_of)
        self._taken_at, *self._columns = np.full((4, len(row_of), len(kept)), np.nan)
        for column, (one, rows) in enumerate(zip(kept, places, strict=True)):
            figures, chosen = one.figures, rows >= 0
            for into, values in zip(
                (self._taken_at, *self._columns),
                (figures.taken_at, figures.cpu_seconds, figures.cpu_waiting_seconds, figures.memory_bytes),
                strict=True,
            ):
                into[rows[chosen], column] = values[chosen]

    def at(self, times: Int64Array, column: int) -> Float64Array:
        """Return one family at the times of a grid."""
        return self._shown(self._columns[column], times)

    def taken_at(self, times: Int64Array) -> Float64Array:
        """Return when what is shown at the times of a grid was measured."""
        return self._shown(self._taken_at, times)

    def _shown(self, values: Float64Array, times: Int64Array) -> Float64Array:
        found = np.full((len(values), len(times)), np.nan)
        for place, time in enumerate(times.tolist()):
            with np.errstate(invalid="ignore"):
                seen = (self._taken_at <= time) & (self._taken_at > time - HOLE_SECONDS)
            newest = seen.shape[1] - 1 - seen[:, ::-1].argmax(axis=1)
            chosen = np.take_along_axis(values, newest[:, None], axis=1)[:, 0]
            found[:, place] = np.where(seen.any(axis=1), chosen, np.nan)
        return found


def _told(matrix: Matrix) -> Matrix:
    """Leave out the series of which nothing is told at any time."""
    told = ~np.isnan(matrix.values).all(axis=1)
    if told.all():
        return matrix
    return Matrix([matrix.series[row] for row in np.flatnonzero(told).tolist()], matrix.values[told])
