"""Series into containers: what is of one container becomes one row."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cruise.adapters.prometheus.matrix import Matrix
from cruise.domain.arrays import BoolArray, Float64Array, Int64Array
from cruise.domain.usage import ContainerKey

# The end of a runtime's id is what differs between a container and its restarted self.
SERIES_LENGTH = 24

SeriesKey = tuple[ContainerKey, str]
# Folds the values of some series and of a second one of each, a row each, and tells where they disagree.
FoldTwins = Callable[[Sequence[SeriesKey], Float64Array, Float64Array], tuple[Float64Array, BoolArray]]


def larger_of_twins(
    ids: Sequence[SeriesKey], values: Float64Array, others: Float64Array
) -> tuple[Float64Array, BoolArray]:
    """Take the larger value, and doubt none."""
    return np.fmax(values, others), np.zeros(values.shape, dtype=np.bool_)


def folded(
    matrix: Matrix, known: Mapping[ContainerKey, ContainerKey], fold_twins: FoldTwins = larger_of_twins
) -> tuple[list[SeriesKey], Float64Array, list[str], BoolArray | None]:
    """Return the series by container and id, each once, with their values, nodes, and where twins disagree, if any do.

    Keys that are `known` are taken from there, so that they are in memory once.
    """
    rows: dict[SeriesKey, int] = {}
    nodes: list[str] = []
    keep: list[int] = []
    twins: list[tuple[int, int]] = []
    for row, name in enumerate(matrix.series):
        if not (name.namespace and name.pod and name.container):
            continue
        key = ContainerKey(name.namespace, name.pod, name.container)
        place = rows.setdefault((known.get(key, key), name.id[-SERIES_LENGTH:]), len(keep))
        if place == len(keep):
            keep.append(row)
            nodes.append(name.node)
        else:
            twins.append((place, row))
            nodes[place] = nodes[place] or name.node
    values = matrix.values if len(keep) == len(matrix.series) else matrix.values[keep]
    ids, doubtful = list(rows), None
    while twins:
        # One twin of each series at a time.
        one_each = dict(reversed(twins))
        places = list(one_each)
        chosen = [ids[place] for place in places]
        values[places], disagree = fold_twins(chosen, values[places], matrix.values[list(one_each.values())])
        if disagree.any():
            doubtful = np.zeros(values.shape, dtype=np.bool_) if doubtful is None else doubtful
            doubtful[places] |= disagree
        twins = [(place, row) for place, row in twins if one_each[place] != row]
    return ids, values, nodes, doubtful


def owners_of(ids: Sequence[SeriesKey], containers: dict[ContainerKey, int]) -> Int64Array:
    """Return each series' row among the containers, to which new ones are added."""
    return np.fromiter((containers.setdefault(key, len(containers)) for key, _ in ids), np.int64, len(ids))


def by_owner(fold: np.ufunc, rows: NDArray[Any], owners: Int64Array, count: int) -> NDArray[Any]:
    """Fold the rows of each owner into one; owners without rows get NaN or False."""
    if len(owners) == count and np.array_equal(owners, np.arange(count)):
        return rows
    into = np.full((count, rows.shape[1]), False if rows.dtype == np.bool_ else np.nan)
    if len(owners):
        order = np.argsort(owners, kind="stable")
        found, starts = np.unique(owners[order], return_index=True)
        into[found] = fold.reduceat(rows[order], starts, axis=0)
    return into


def nodes_of(nodes: Sequence[str], owners: Int64Array, count: int) -> list[str]:
    """Return the node of each of `count` owners, the last that one of its series names."""
    of_container = [""] * count
    for node, owner in zip(nodes, owners.tolist(), strict=True):
        of_container[owner] = node or of_container[owner]
    return of_container
