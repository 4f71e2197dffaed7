"""Series into containers: what is of one container becomes one row."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cruise.adapters.prometheus.matrix import Matrix
from cruise.domain.arrays import Float64Array, Int64Array
from cruise.domain.usage import ContainerKey

# The end of a runtime's id is what differs between a container and its restarted self.
SERIES_LENGTH = 24

SeriesKey = tuple[ContainerKey, str]


def folded(
    matrix: Matrix, known: Mapping[ContainerKey, ContainerKey]
) -> tuple[list[SeriesKey], Float64Array, list[str]]:
    """Return the series by container and id, each once, with their values and nodes.

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
    for place, row in twins:
        values[place] = np.fmax(values[place], matrix.values[row])
    return list(rows), values, nodes


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
