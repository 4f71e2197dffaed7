"""Merges the series of each container into one row, and finds series that contradict each other.

Replicas of a server scrape the same counter at other moments of a step: a value that one shows at a step, the other has
passed two steps later, and neither decreases. A forged series does not behave like that. A restarted container has two
ids for a while, and the older one stops counting. If series disagree, it is unknown which one is right, so the steps
around have no sample.

Control groups inside that of a container (Docker in Docker, systemd) are part of its usage and may have its labels:
they are left out. If each processor has its own series, the total is read if there is one, else their sum.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cruise.adapters.prometheus.queries import ALL_CORES, SeriesLabelValues, SeriesMatrix
from cruise.domain.arrays import BoolArray, Float64Array, Int64Array
from cruise.domain.resources import MEBIBYTE
from cruise.domain.usage import ContainerKey

# The end of a runtime's id differs after a restart.
ID_LENGTH = 24

SeriesKey = tuple[ContainerKey, str]
# Merges series with a duplicate of each, one row per series, and reports where they disagree.
MergeFunction = Callable[[Sequence[SeriesKey], Float64Array, Float64Array], tuple[Float64Array, BoolArray]]


def take_larger(ids: Sequence[SeriesKey], values: Float64Array, others: Float64Array) -> tuple[Float64Array, BoolArray]:
    """Return the larger values, and no disagreement."""
    return np.fmax(values, others), np.zeros(values.shape, dtype=np.bool_)


def merge_series(
    matrix: SeriesMatrix, known: Mapping[ContainerKey, ContainerKey], merge_duplicates: MergeFunction = take_larger
) -> tuple[list[SeriesKey], Float64Array, list[str], BoolArray | None]:
    """Return the series by container and id, their values and nodes, and where duplicates disagree (None: nowhere).

    Keys that are in `known` are taken from there, so that each is in memory once.
    """
    rows: dict[SeriesKey, int] = {}
    nodes: list[str] = []
    keep: list[int] = []
    duplicates: list[tuple[int, int]] = []
    cores: dict[SeriesKey, SeriesKey] = {}
    for row, name in _select_container_groups(matrix.series):
        key = ContainerKey(name.namespace, name.pod, name.container)
        series = known.get(key, key), name.id[-ID_LENGTH:]
        if _is_core(name):
            total, series = series, (series[0], f"{series[1]} {name.core}")
            cores[series] = total
        index = rows.setdefault(series, len(keep))
        if index == len(keep):
            keep.append(row)
            nodes.append(name.node)
        else:
            duplicates.append((index, row))
            nodes[index] = nodes[index] or name.node
    values = matrix.values if len(keep) == len(matrix.series) else matrix.values[keep]
    ids, rejected = list(rows), None
    while duplicates:
        # One duplicate of each series at a time.
        next_duplicates = dict(reversed(duplicates))
        indexes = list(next_duplicates)
        chosen = [ids[index] for index in indexes]
        values[indexes], disagree = merge_duplicates(
            chosen, values[indexes], matrix.values[list(next_duplicates.values())]
        )
        if disagree.any():
            rejected = np.zeros(values.shape, dtype=np.bool_) if rejected is None else rejected
            rejected[indexes] |= disagree
        duplicates = [(index, row) for index, row in duplicates if next_duplicates[index] != row]
    return _sum_cores(ids, values, nodes, rejected, cores) if cores else (ids, values, nodes, rejected)


def _select_container_groups(series: Sequence[SeriesLabelValues]) -> Iterator[tuple[int, SeriesLabelValues]]:
    """Yield the rows of containers' own control groups; of single processors only if there is no total."""
    ids: dict[ContainerKey, set[str]] = {}
    total: set[SeriesKey] = set()
    needs_check = False
    for name in series:
        key = ContainerKey(name.namespace, name.pod, name.container)
        container_ids = ids.setdefault(key, set())
        needs_check = needs_check or bool(container_ids) or _is_core(name)
        container_ids.add(name.id)
        if not _is_core(name):
            total.add((key, name.id))
    for row, name in enumerate(series):
        if not (name.namespace and name.pod and name.container):
            continue
        if needs_check:
            key = ContainerKey(name.namespace, name.pod, name.container)
            if _is_nested(name.id, ids[key]) or (_is_core(name) and (key, name.id) in total):
                continue
        yield row, name


def _is_nested(id_: str, ids: Collection[str]) -> bool:
    """Return whether one of the other control groups contains this one."""
    if len(ids) < 2:
        return False
    parent = id_.rpartition("/")[0]
    while parent:
        if parent in ids:
            return True
        parent = parent.rpartition("/")[0]
    return False


def _is_core(name: SeriesLabelValues) -> bool:
    return name.core not in ("", ALL_CORES)


def _sum_cores(
    ids: Sequence[SeriesKey],
    values: Float64Array,
    nodes: Sequence[str],
    rejected: BoolArray | None,
    cores: Mapping[SeriesKey, SeriesKey],
) -> tuple[list[SeriesKey], Float64Array, list[str], BoolArray | None]:
    """Sum the processors of each control group; if one has no value, the sum has none."""
    rows: dict[SeriesKey, int] = {}
    owners = np.fromiter((rows.setdefault(cores.get(id_, id_), len(rows)) for id_ in ids), np.int64, len(ids))
    count = len(rows)
    if rejected is not None:
        rejected = reduce_by_container(np.logical_or, rejected, owners, count)
    return (
        list(rows),
        reduce_by_container(np.add, values, owners, count),
        get_node_by_container(nodes, owners, count),
        rejected,
    )


def number_containers(ids: Sequence[SeriesKey], containers: dict[ContainerKey, int]) -> Int64Array:
    """Return the row of each series' container; new containers are added."""
    return np.fromiter((containers.setdefault(key, len(containers)) for key, _ in ids), np.int64, len(ids))


def reduce_by_container(operation: np.ufunc, rows: NDArray[Any], owners: Int64Array, count: int) -> NDArray[Any]:
    """Reduce the rows of each owner to one; owners without rows get NaN or False."""
    if len(owners) == count and np.array_equal(owners, np.arange(count)):
        return rows
    result = np.full((count, rows.shape[1]), False if rows.dtype == np.bool_ else np.nan)
    if len(owners):
        order = np.argsort(owners, kind="stable")
        found, starts = np.unique(owners[order], return_index=True)
        result[found] = operation.reduceat(rows[order], starts, axis=0)
    return result


def get_node_by_container(nodes: Sequence[str], owners: Int64Array, count: int) -> list[str]:
    """Return the node of each of `count` owners: the last that one of its series names."""
    result = [""] * count
    for node, owner in zip(nodes, owners.tolist(), strict=True):
        result[owner] = node or result[owner]
    return result


# How many steps replicas may differ: one for the time of the scrape, one for values that the target caches.
MAX_REPLICA_OFFSET = 2
# How many steps a replica may lag while it misses scrapes: a server repeats a value for five minutes.
MAX_REPLICA_LAG = 7
# How many steps around a contradiction of counters are rejected.
REJECTED_STEPS = 5
GAUGE_TOLERANCE_SHARE = 0.1
GAUGE_TOLERANCE_BYTES = 16 * MEBIBYTE
COUNTER_TOLERANCE_SECONDS = 0.01


def merge_counters(
    one: Float64Array, other: Float64Array, before: Float64Array, max_per_step: float
) -> tuple[Float64Array, BoolArray]:
    """Merge pairs of counters (one row per pair, one column per step), and tell where they disagree.

    `before` has the merged values one step earlier, NaN if unknown; no counter grows by more than `max_per_step`. The
    lower of two values counts, unless it is below what was seen already, so that growth is not overstated while it is
    unknown whether both agree. Where the lower one is unchanged, there is no value.
    """
    merged = np.fmax(one, other)
    # If both were reset (or the only one left was), the counter starts below what was seen.
    reset = (_spread(_find_falls(one), MAX_REPLICA_OFFSET) | np.isnan(one)) & (
        _spread(_find_falls(other), MAX_REPLICA_OFFSET) | np.isnan(other)
    )
    latest = before.copy()
    for step in range(merged.shape[1]):
        earlier, low, high = latest, np.fmin(one[:, step], other[:, step]), merged[:, step]
        with np.errstate(invalid="ignore"):
            chosen = np.where(low >= latest, low, np.where((high >= latest) | reset[:, step], high, latest))
        chosen = np.where(np.isnan(latest) | np.isnan(high), high, chosen)
        latest = np.where(np.isnan(chosen), latest, chosen)
        # One of them was not scraped, or is unchanged next to a forged one: the growth in between is unknown.
        with np.errstate(invalid="ignore"):
            merged[:, step] = np.where((low == chosen) & (low == earlier) & (high > low), np.nan, chosen)
    with np.errstate(invalid="ignore"):
        far_apart = (np.abs(one - other) > MAX_REPLICA_LAG * max_per_step) & ~reset
    return merged, _spread_rejections(_find_contradictions(one, other) | _find_contradictions(other, one) | far_apart)


def find_gauge_disagreements(one: Float64Array, other: Float64Array) -> BoolArray:
    """Return where one of two gauges is outside what the other shows around that step."""
    return _find_outliers(one, other) | _find_outliers(other, one)


def find_concurrent_ids(counters: Float64Array, owners: Int64Array, count: int) -> BoolArray | None:
    """Return for each container at which steps two of its ids count, as (containers, steps); None if none does.

    Each row of `counters` is an id, its first column the step before; `owners` are the rows' containers.
    """
    found: BoolArray | None = None
    for owner, rows in _group_duplicates(owners):
        conflicts = _find_conflicts(counters[rows])
        if conflicts is not None:
            if found is None:
                found = np.zeros((count, counters.shape[1] - 1), dtype=np.bool_)
            found[owner] = conflicts
    return found


def find_overlapping_starts(counters: Float64Array, owners: Int64Array) -> BoolArray | None:
    """Return at which steps an id was first seen while another id of its container grew; None if none was.

    What it had counted by then may be from earlier steps.
    """
    found: BoolArray | None = None
    for _, rows in _group_duplicates(owners):
        values = counters[rows]
        present, grew = ~np.isnan(values), _find_growth(values)
        first = present[:, 1:] & ~np.logical_or.accumulate(present, axis=1)[:, :-1]
        overlapping = first & (grew.sum(axis=0) > 0)
        if overlapping.any():
            if found is None:
                found = np.zeros((len(counters), counters.shape[1] - 1), dtype=np.bool_)
            found[rows] = overlapping
    return found


def _find_contradictions(one: Float64Array, other: Float64Array) -> BoolArray:
    """Return where a counter is below the other's value two steps before, or falls while the other does not."""
    found = np.zeros(one.shape, dtype=np.bool_)
    fresh = np.ones(one.shape, dtype=np.bool_)
    # A repeated value may be older than the other's, because a scrape was missed.
    fresh[:, 1:] = one[:, 1:] != one[:, :-1]
    with np.errstate(invalid="ignore"):
        behind = one[:, MAX_REPLICA_OFFSET:] + COUNTER_TOLERANCE_SECONDS < other[:, :-MAX_REPLICA_OFFSET]
        found[:, MAX_REPLICA_OFFSET:] = behind & fresh[:, MAX_REPLICA_OFFSET:]
    fell, both = _find_falls(one), ~np.isnan(one) & ~np.isnan(other)
    near = _spread(_find_falls(other), MAX_REPLICA_OFFSET)
    # Both were reset: values before and after are not comparable.
    reset = _spread(fell & near, 2 * MAX_REPLICA_OFFSET)
    return (found & ~reset) | (fell & both & ~near)


def _find_falls(counters: Float64Array) -> BoolArray:
    found = np.zeros(counters.shape, dtype=np.bool_)
    with np.errstate(invalid="ignore"):
        found[:, 1:] = counters[:, 1:] < counters[:, :-1]
    return found


def _find_growth(counters: Float64Array) -> BoolArray:
    with np.errstate(invalid="ignore"):
        return np.asarray(counters[:, 1:] > counters[:, :-1], dtype=np.bool_)


def _spread_rejections(contradicted: BoolArray) -> BoolArray:
    return _spread(contradicted, REJECTED_STEPS) if contradicted.any() else contradicted


def _spread(marks: BoolArray, steps: int) -> BoolArray:
    """Mark the steps around each mark too."""
    spread = marks.copy()
    for shift in range(1, min(steps, marks.shape[1] - 1) + 1):
        spread[:, shift:] |= marks[:, :-shift]
        spread[:, :-shift] |= marks[:, shift:]
    return spread


def _find_outliers(one: Float64Array, other: Float64Array) -> BoolArray:
    low, high = other.copy(), other.copy()
    for shift in range(1, min(MAX_REPLICA_OFFSET, other.shape[1] - 1) + 1):
        low[:, shift:] = np.fmin(low[:, shift:], other[:, :-shift])
        low[:, :-shift] = np.fmin(low[:, :-shift], other[:, shift:])
        high[:, shift:] = np.fmax(high[:, shift:], other[:, :-shift])
        high[:, :-shift] = np.fmax(high[:, :-shift], other[:, shift:])
    with np.errstate(invalid="ignore"):
        over = one > high * (1 + GAUGE_TOLERANCE_SHARE) + GAUGE_TOLERANCE_BYTES
        under = one < low * (1 - GAUGE_TOLERANCE_SHARE) - GAUGE_TOLERANCE_BYTES
    return np.asarray(over | under, dtype=np.bool_)


def _group_duplicates(owners: Int64Array) -> Sequence[tuple[int, Int64Array]]:
    """Return the containers with more than one row, and their rows."""
    if not len(owners):
        return []
    duplicated = np.flatnonzero(np.bincount(owners) > 1)
    if not len(duplicated):
        return []
    order = np.argsort(owners, kind="stable")
    starts, ends = np.searchsorted(owners[order], duplicated), np.searchsorted(owners[order], duplicated, side="right")
    return [(int(one), order[start:end]) for one, start, end in zip(duplicated, starts, ends, strict=True)]


def _find_conflicts(counters: Float64Array) -> BoolArray | None:
    """Return at which steps an older id of one container continues to count next to a newer one."""
    present, grew = ~np.isnan(counters), _find_growth(counters)
    rows = np.flatnonzero(present.any(axis=1))
    first = present.argmax(axis=1)
    found = np.zeros(counters.shape[1] - 1, dtype=np.bool_)
    for place, newer in enumerate(sorted(rows.tolist(), key=lambda row: int(first[row]))):
        for older in sorted(rows.tolist(), key=lambda row: int(first[row]))[:place]:
            both = present[older, 1:] & present[newer, 1:]
            both[: max(0, first[newer])] = False
            counts = both & grew[older]
            if not counts.any() or (first[older] == first[newer] and not (both & grew[newer]).any()):
                continue
            steps = np.flatnonzero(both)
            if not _grew_alike(*(counters[row, steps[-1] + 1] - counters[row, steps[0]] for row in (older, newer))):
                found |= both
                found[max(0, first[newer] - 1)] = True
    return found if found.any() else None


def _grew_alike(one: float, other: float) -> bool:
    """Return whether two counters grew by the same amount, like two names of one control group."""
    return abs(one - other) <= GAUGE_TOLERANCE_SHARE * max(one, other) + 1.0
