"""Whether the series of one container agree: those of replicas do within a scrape, those of an impostor do not.

Replicas of a server scrape the same counter at other moments of a step. So what one shows at a step, the other has
passed two steps later, and neither falls. A container that was restarted has two ids for a while, of which the older
counts no more. Where series disagree it cannot be told which one is right, so the steps around have no sample.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cruise.adapters.prometheus.queries import ALL_CORES, SeriesMatrix, SeriesName
from cruise.domain.arrays import BoolArray, Float64Array, Int64Array
from cruise.domain.resources import MEBIBYTE
from cruise.domain.usage import ContainerKey

# Series into containers: what is of one container becomes one row. Control groups inside that of a container (Docker in Docker, systemd) are a part of its use, and may carry its labels: they are left out. Where each processor has a series of its own, the one of all of them is read, else their sum.

# The end of a runtime's id is what differs between a container and its restarted self.
NAME_FIELDS = 24

SeriesKey = tuple[ContainerKey, str]
# Folds the values of some series and of a second one of each, a row each, and tells where they disagree.
MergeFunction = Callable[[Sequence[SeriesKey], Float64Array, Float64Array], tuple[Float64Array, BoolArray]]


def take_larger(ids: Sequence[SeriesKey], values: Float64Array, others: Float64Array) -> tuple[Float64Array, BoolArray]:
    """Take the larger value, and doubt none."""
    return np.fmax(values, others), np.zeros(values.shape, dtype=np.bool_)


def merge_series(
    matrix: SeriesMatrix, known: Mapping[ContainerKey, ContainerKey], fold_twins: MergeFunction = take_larger
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
        series = known.get(key, key), name.id[-NAME_FIELDS:]
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
        doubtful = reduce_by_container(np.logical_or, doubtful, owners, count)
    return (
        list(rows),
        reduce_by_container(np.add, values, owners, count),
        get_node_by_container(nodes, owners, count),
        doubtful,
    )


def number_containers(ids: Sequence[SeriesKey], containers: dict[ContainerKey, int]) -> Int64Array:
    """Return each series' row among the containers, to which new ones are added."""
    return np.fromiter((containers.setdefault(key, len(containers)) for key, _ in ids), np.int64, len(ids))


def reduce_by_container(fold: np.ufunc, rows: NDArray[Any], owners: Int64Array, count: int) -> NDArray[Any]:
    """Fold the rows of each owner into one; owners without rows get NaN or False."""
    if len(owners) == count and np.array_equal(owners, np.arange(count)):
        return rows
    into = np.full((count, rows.shape[1]), False if rows.dtype == np.bool_ else np.nan)
    if len(owners):
        order = np.argsort(owners, kind="stable")
        found, starts = np.unique(owners[order], return_index=True)
        into[found] = fold.reduceat(rows[order], starts, axis=0)
    return into


def get_node_by_container(nodes: Sequence[str], owners: Int64Array, count: int) -> list[str]:
    """Return the node of each of `count` owners, the last that one of its series names."""
    of_container = [""] * count
    for node, owner in zip(nodes, owners.tolist(), strict=True):
        of_container[owner] = node or of_container[owner]
    return of_container


# By how many steps replicas may be apart: one for the moment of the scrape, one for values that the target has cached.
MAX_STEPS_APART = 2
# By how many steps one may be behind while its scrapes are missed: a server repeats a value for five minutes.
MAX_STEPS_BEHIND = 7
# Which steps around a contradiction of counters are in doubt.
REJECTED_STEPS = 5
GAUGE_TOLERANCE_SHARE = 0.1
GAUGE_TOLERANCE_BYTES = 16 * MEBIBYTE
COUNTER_TOLERANCE_SECONDS = 0.01


def merge_counters(
    one: Float64Array, other: Float64Array, before: Float64Array, most_a_step: float
) -> tuple[Float64Array, BoolArray]:
    """Fold pairs of counters (a row a pair, a column a step) into one each, and tell where they disagree.

    `before` is what the fold was one step earlier, NaN where that is not known; no counter grows by more than
    `most_a_step`. The lower of two counts, unless it is behind what was seen already: of the steps of which it is not
    known yet whether both agree, the growth is then not overstated. Where it stands still beside the other there is
    none.
    """
    folded = np.fmax(one, other)
    # Where both were reset, or the one that is left, it counts from below what was seen.
    reset = (_spread(_fell(one), MAX_STEPS_APART) | np.isnan(one)) & (
        _spread(_fell(other), MAX_STEPS_APART) | np.isnan(other)
    )
    latest = before.copy()
    for step in range(folded.shape[1]):
        earlier, low, high = latest, np.fmin(one[:, step], other[:, step]), folded[:, step]
        with np.errstate(invalid="ignore"):
            kept = np.where(low >= latest, low, np.where((high >= latest) | reset[:, step], high, latest))
        kept = np.where(np.isnan(latest) | np.isnan(high), high, kept)
        latest = np.where(np.isnan(kept), latest, kept)
        # One of them was not scraped, or rests beside an impostor: what came in between is not known.
        with np.errstate(invalid="ignore"):
            folded[:, step] = np.where((low == kept) & (low == earlier) & (high > low), np.nan, kept)
    with np.errstate(invalid="ignore"):
        far_apart = (np.abs(one - other) > MAX_STEPS_BEHIND * most_a_step) & ~reset
    return folded, _in_doubt(_contradicts(one, other) | _contradicts(other, one) | far_apart)


def find_gauge_disagreements(one: Float64Array, other: Float64Array) -> BoolArray:
    """Tell where one of two gauges (a row a pair, a column a step) is beyond what the other shows around that step."""
    return _beyond(one, other) | _beyond(other, one)


def find_concurrent_ids(counters: Float64Array, owners: Int64Array, count: int) -> BoolArray | None:
    """Tell of each container at which steps two of its ids count, as (containers, steps); None where none does.

    A row of `counters` is an id's, its first column is the step before; `owners` are the rows' containers.
    """
    found: BoolArray | None = None
    for owner, rows in _several(owners):
        conflicts = _conflicts(counters[rows])
        if conflicts is not None:
            if found is None:
                found = np.zeros((count, counters.shape[1] - 1), dtype=np.bool_)
            found[owner] = conflicts
    return found


def find_overlapping_starts(counters: Float64Array, owners: Int64Array) -> BoolArray | None:
    """Tell at which steps an id was first seen while another id of its container still grew; None where none was.

    What it had counted by then is not known to be of that step.
    """
    found: BoolArray | None = None
    for _, rows in _several(owners):
        of_container = counters[rows]
        present, grew = ~np.isnan(of_container), _grew(of_container)
        first = present[:, 1:] & ~np.logical_or.accumulate(present, axis=1)[:, :-1]
        beside = first & (grew.sum(axis=0) > 0)
        if beside.any():
            if found is None:
                found = np.zeros((len(counters), counters.shape[1] - 1), dtype=np.bool_)
            found[rows] = beside
    return found


def _contradicts(one: Float64Array, other: Float64Array) -> BoolArray:
    """Tell where a counter shows less than the other did two steps before, or falls while the other does not."""
    found = np.zeros(one.shape, dtype=np.bool_)
    fresh = np.ones(one.shape, dtype=np.bool_)
    # A value that is repeated may be from before the other's: the scrape was missed.
    fresh[:, 1:] = one[:, 1:] != one[:, :-1]
    with np.errstate(invalid="ignore"):
        behind = one[:, MAX_STEPS_APART:] + COUNTER_TOLERANCE_SECONDS < other[:, :-MAX_STEPS_APART]
        found[:, MAX_STEPS_APART:] = behind & fresh[:, MAX_STEPS_APART:]
    fell, both = _fell(one), ~np.isnan(one) & ~np.isnan(other)
    near = _spread(_fell(other), MAX_STEPS_APART)
    # Both were reset: what was before is not comparable to what came after.
    reset = _spread(fell & near, 2 * MAX_STEPS_APART)
    return (found & ~reset) | (fell & both & ~near)


def _fell(counters: Float64Array) -> BoolArray:
    found = np.zeros(counters.shape, dtype=np.bool_)
    with np.errstate(invalid="ignore"):
        found[:, 1:] = counters[:, 1:] < counters[:, :-1]
    return found


def _grew(counters: Float64Array) -> BoolArray:
    with np.errstate(invalid="ignore"):
        return np.asarray(counters[:, 1:] > counters[:, :-1], dtype=np.bool_)


def _in_doubt(contradicted: BoolArray) -> BoolArray:
    return _spread(contradicted, REJECTED_STEPS) if contradicted.any() else contradicted


def _spread(marks: BoolArray, steps: int) -> BoolArray:
    """Mark the steps around each mark too."""
    spread = marks.copy()
    for shift in range(1, min(steps, marks.shape[1] - 1) + 1):
        spread[:, shift:] |= marks[:, :-shift]
        spread[:, :-shift] |= marks[:, shift:]
    return spread


def _beyond(one: Float64Array, other: Float64Array) -> BoolArray:
    low, high = other.copy(), other.copy()
    for shift in range(1, min(MAX_STEPS_APART, other.shape[1] - 1) + 1):
        low[:, shift:] = np.fmin(low[:, shift:], other[:, :-shift])
        low[:, :-shift] = np.fmin(low[:, :-shift], other[:, shift:])
        high[:, shift:] = np.fmax(high[:, shift:], other[:, :-shift])
        high[:, :-shift] = np.fmax(high[:, :-shift], other[:, shift:])
    with np.errstate(invalid="ignore"):
        over = one > high * (1 + GAUGE_TOLERANCE_SHARE) + GAUGE_TOLERANCE_BYTES
        under = one < low * (1 - GAUGE_TOLERANCE_SHARE) - GAUGE_TOLERANCE_BYTES
    return np.asarray(over | under, dtype=np.bool_)


def _several(owners: Int64Array) -> Sequence[tuple[int, Int64Array]]:
    """Return the containers that have more than one row, with their rows."""
    if not len(owners):
        return []
    several = np.flatnonzero(np.bincount(owners) > 1)
    if not len(several):
        return []
    order = np.argsort(owners, kind="stable")
    starts, ends = np.searchsorted(owners[order], several), np.searchsorted(owners[order], several, side="right")
    return [(int(one), order[start:end]) for one, start, end in zip(several, starts, ends, strict=True)]


def _conflicts(counters: Float64Array) -> BoolArray | None:
    """Tell at which steps an older id of one container goes on counting beside a newer one."""
    present, grew = ~np.isnan(counters), _grew(counters)
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
            if not _alike(*(counters[row, steps[-1] + 1] - counters[row, steps[0]] for row in (older, newer))):
                found |= both
                found[max(0, first[newer] - 1)] = True
    return found if found.any() else None


def _alike(one: float, other: float) -> bool:
    """Tell whether two counters grew by the same, as two names of one control group do."""
    return abs(one - other) <= GAUGE_TOLERANCE_SHARE * max(one, other) + 1.0
