"""Series into containers: what is of one container becomes one row.

Control groups inside that of a container (Docker in Docker, systemd) are a part of its use, and may carry its labels:
they are left out. Where each processor has a series of its own, the one of all of them is read, else their sum.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cruise.adapters.prometheus.matrix import ALL_CORES, Matrix, SeriesName
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
    cores: dict[SeriesKey, SeriesKey] = {}
    for row, name in _own_groups(matrix.series):
        key = ContainerKey(name.namespace, name.pod, name.container)
        series = known.get(key, key), name.id[-SERIES_LENGTH:]
        if _is_core(name):
            whole, series = series, (series[0], f"{series[1]} {name.core}")
            cores[series] = whole
        place = rows.setdefault(series, len(keep))
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
    return _with_cores_summed(ids, values, nodes, doubtful, cores) if cores else (ids, values, nodes, doubtful)


def _own_groups(series: Sequence[SeriesName]) -> Iterator[tuple[int, SeriesName]]:
    """Yield the rows of containers' own control groups; of a group's processors only where none has all of them."""
    ids: dict[ContainerKey, set[str]] = {}
    whole: set[SeriesKey] = set()
    several = False
    for name in series:
        key = ContainerKey(name.namespace, name.pod, name.container)
        of_container = ids.setdefault(key, set())
        several = several or bool(of_container) or _is_core(name)
        of_container.add(name.id)
        if not _is_core(name):
            whole.add((key, name.id))
    for row, name in enumerate(series):
        if not (name.namespace and name.pod and name.container):
            continue
        if several:
            key = ContainerKey(name.namespace, name.pod, name.container)
            if _is_nested(name.id, ids[key]) or (_is_core(name) and (key, name.id) in whole):
                continue
        yield row, name


def _is_nested(id_: str, ids: Collection[str]) -> bool:
    """Tell whether another of the control groups contains this one."""
    if len(ids) < 2:
        return False
    parent = id_.rpartition("/")[0]
    while parent:
        if parent in ids:
            return True
        parent = parent.rpartition("/")[0]
    return False


def _is_core(name: SeriesName) -> bool:
    return name.core not in ("", ALL_CORES)


def _with_cores_summed(
    ids: Sequence[SeriesKey],
    values: Float64Array,
    nodes: Sequence[str],
    doubtful: BoolArray | None,
    cores: Mapping[SeriesKey, SeriesKey],
) -> tuple[list[SeriesKey], Float64Array, list[str], BoolArray | None]:
    """Put the processors of each control group into one row; where one of them has no value, their sum has none."""
    rows: dict[SeriesKey, int] = {}
    owners = np.fromiter((rows.setdefault(cores.get(id_, id_), len(rows)) for id_ in ids), np.int64, len(ids))
    count = len(rows)
    if doubtful is not None:
        doubtful = by_owner(np.logical_or, doubtful, owners, count)
    return list(rows), by_owner(np.add, values, owners, count), nodes_of(nodes, owners, count), doubtful


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
