"""From raw counters to usage: growth between scrapes, restarts, pressure.

What a counter grew by between two scrapes is spread evenly over the steps between them, up to five minutes; further
apart they say nothing of the steps between. `scrapes` tells which steps had one. The steps after the last scrape of a
read are not known yet: the tail keeps when that scrape was, and the next read says what they were.

The meaning of a first value depends on what was there at the scrape before:

- the same series, more than twice as high: the counter was reset, and the value is what it has counted since;
- another series of the same container: the container was restarted under a new id, and the value is what the new one
  has counted since its start;
- nothing: the counter may have run for days unseen, so the step has no usage.

In the first two cases a value that the cores could not have counted since that scrape is no usage either. Old and new
id side by side are one container: of their demands at a step the larger counts, never the sum. A read without a tail
cannot tell how old its very first values are, and takes none of them for a scrape.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cruise.adapters.prometheus.counter_rows import CounterReading, CounterRows, EarlierCounters, get_targets_of_missing
from cruise.adapters.prometheus.queries import SeriesMatrix
from cruise.adapters.prometheus.scrape_times import ScrapeTargets, find_changes, set_scrape_ages
from cruise.adapters.prometheus.series_merging import (
    SeriesKey,
    find_concurrent_ids,
    find_gauge_disagreements,
    find_overlapping_starts,
    get_node_by_container,
    merge_counters,
    merge_series,
    number_containers,
    reduce_by_container,
    take_larger,
)
from cruise.domain.arrays import BoolArray, Float64Array, Int64Array
from cruise.domain.usage import ContainerKey, CounterTail, SampleBlock

# Which steps of which containers are in doubt, since several series of one disagree.

MergedSeries = tuple[Float64Array, BoolArray]


class RejectedSteps:
    """What one read doubts; nothing where samples need not be plausible: then the larger of two series counts."""

    def __init__(self, before: EarlierCounters, counting: CounterReading) -> None:
        self.before = before
        self._counting = counting

    def check_cpu(self, ids: Sequence[SeriesKey], one: Float64Array, other: Float64Array) -> MergedSeries:
        """Fold CPU counters."""
        return self._of_counters(ids, one, other, waiting=False)

    def check_cpu_pressure(self, ids: Sequence[SeriesKey], one: Float64Array, other: Float64Array) -> MergedSeries:
        """Fold counters of the time that tasks waited."""
        return self._of_counters(ids, one, other, waiting=True)

    def check_memory(self, ids: Sequence[SeriesKey], one: Float64Array, other: Float64Array) -> MergedSeries:
        """Fold working sets: the larger counts."""
        larger, nothing = take_larger(ids, one, other)
        return larger, find_gauge_disagreements(one, other) if self._counting.fills_holes else nothing

    def _of_counters(
        self, ids: Sequence[SeriesKey], one: Float64Array, other: Float64Array, waiting: bool
    ) -> MergedSeries:
        counting = self._counting
        if not counting.fills_holes:
            return take_larger(ids, one, other)
        most = counting.step_seconds * (1.0 if waiting else counting.cores)
        return merge_counters(one, other, self.before.latest(ids, waiting), most)

    def find_unknown_starts(self, rows: CounterRows, owners: Int64Array, *use: Float64Array) -> None:
        """Take out of the use of each series what it had counted before it was seen beside another that counts."""
        if not self._counting.fills_holes:
            return
        found = find_overlapping_starts(self._counters(rows), owners)
        for row, column in zip(*np.nonzero(found), strict=True) if found is not None else ():
            for one in use:
                one[row, : rows.lead + column + 1] = np.nan

    def get_for_containers(
        self,
        rows: CounterRows,
        owners: Int64Array,
        count: int,
        of_series: Sequence[tuple[BoolArray | None, Int64Array]],
    ) -> BoolArray | None:
        """Return where containers are in doubt (containers, steps), None where none is.

        `of_series` has what is known of the series of each family, with the containers that they are of.
        """
        if not self._counting.fills_holes:
            return None
        found = [
            reduce_by_container(np.logical_or, one, series_owners, count)
            for one, series_owners in of_series
            if one is not None
        ]
        twice = find_concurrent_ids(self._counters(rows), owners, max(count, int(owners.max(initial=-1)) + 1))
        if twice is not None:
            found.append(twice[:count])
        return np.logical_or.reduce(found) if found else None

    def _counters(self, rows: CounterRows) -> Float64Array:
        return np.column_stack((rows.get_newest(rows.cpu), rows.cpu[:, rows.lead :]))


def drop_rejected_containers(tail: CounterTail, keys: Sequence[ContainerKey], doubtful: BoolArray) -> CounterTail:
    """Return a tail without the containers that are in doubt at the end: nothing continues from them."""
    dropped = {key for key, last in zip(keys, doubtful[:, -1].tolist(), strict=True) if last}
    kept = [row for row, key in enumerate(tail.keys) if key not in dropped]
    return CounterTail(
        at=tail.at,
        keys=[tail.keys[row] for row in kept],
        series=[tail.series[row] for row in kept],
        cpu_seconds=tail.cpu_seconds[kept],
        cpu_waiting_seconds=tail.cpu_waiting_seconds[kept],
        changed_at=tail.changed_at[kept],
    )


ScrapeAgesFunction = Callable[[Collection[str], int, int], Mapping[str, Float64Array]]


def get_no_scrape_ages(nodes: Collection[str], first: int, last: int) -> Mapping[str, Float64Array]:
    """Know of no node when it was scraped."""
    return {}


@dataclass(frozen=True, slots=True)
class UsageAnswers:
    """The three families of the same containers over the same grid, of the pods whose names match `pods`."""

    cpu_seconds: SeriesMatrix
    cpu_waiting_seconds: SeriesMatrix
    memory_bytes: SeriesMatrix
    pods: str = ".*"


def compute_usage(
    answers: UsageAnswers,
    times: Int64Array,
    before: EarlierCounters,
    counting: CounterReading,
    pressured_nodes: set[str],
    ages_of: ScrapeAgesFunction = get_no_scrape_ages,
    lately: dict[ContainerKey, float] | None = None,
) -> tuple[SampleBlock, CounterTail]:
    """Turn the answers into usage and the tail for the next read.

    `pressured_nodes` are the nodes on which some pressure was ever seen, and is added to: zeros from another node are
    the kernel's silence, not a measurement. `ages_of` is asked when nodes were scraped whose counters all jump, or
    stand still: by how many seconds before each time of a span. The block begins before the `times` where a scrape
    tells of steps that the read before could not know. `lately` has the share of time that containers of such nodes
    waited, which is taken to be the same where it is not known, and is brought up to date.
    """
    doubts = RejectedSteps(before, counting)
    ids, cpu, nodes, cpu_doubt = merge_series(answers.cpu_seconds, before.containers, doubts.check_cpu)
    containers: dict[ContainerKey, int] = {}
    cpu_owners = number_containers(ids, containers)
    waiting, reported, waiting_doubt = _pressure(answers.cpu_waiting_seconds, ids, len(times), doubts, pressured_nodes)
    # A pod whose pressure is not read for once is on a node that reports it.
    reported |= np.fromiter((node in pressured_nodes for node in nodes), np.bool_, len(nodes))
    memory_ids, memory, memory_nodes, memory_doubt = merge_series(
        answers.memory_bytes, before.containers, doubts.check_memory
    )
    memory_owners = number_containers(memory_ids, containers)
    block_keys = list(containers)

    missing = before.find_missing(ids, containers, answers.pods)
    owners = np.concatenate((cpu_owners, number_containers(missing, containers)))
    targets = ScrapeTargets()
    found = targets.numbers([key for key, _ in ids], nodes)
    of_rows = np.concatenate((found, get_targets_of_missing(missing, ids, found, targets)))
    memory_targets = targets.numbers([key for key, _ in memory_ids], memory_nodes)
    rows = CounterRows.create([*ids, *missing], cpu, waiting, of_rows, before, counting)
    scrapes = rows.find_scrapes((memory_targets, find_changes(memory, memory[:, 0])), len(targets), counting)
    observed = rows.find_observed(scrapes, counting)
    used, waited = rows.compute_growth(observed, scrapes, owners, len(containers), counting)
    step = counting.step_seconds
    restless = targets.nodes(rows.find_changing((used, waited), scrapes)) if counting.fills_holes else {}
    ages = ages_of(restless, int(times[0]) - rows.lead * step, int(times[-1])) if restless else {}
    if ages:
        scrapes = set_scrape_ages(scrapes, {restless[node]: known / step for node, known in ages.items()})
        observed = rows.find_observed(scrapes, counting)
        used, waited = rows.compute_growth(observed, scrapes, owners, len(containers), counting)

    count = len(block_keys)
    use = used / step * 1000
    pressure = np.clip(waited / step, 0.0, 1.0)
    demand = use * (1 + _filled(pressure, rows, restless.values(), {} if lately is None else lately))
    doubts.find_unknown_starts(rows, owners, use, demand)
    use, demand = (reduce_by_container(np.fmax, one, owners, len(containers))[:count] for one in (use, demand))
    memory_of_containers = reduce_by_container(np.fmax, memory, memory_owners, count)
    doubtful = doubts.get_for_containers(
        rows, owners, count, [(cpu_doubt, cpu_owners), (waiting_doubt, cpu_owners), (memory_doubt, memory_owners)]
    )
    if doubtful is not None:
        for one in (use, demand):
            one[:, rows.lead :][doubtful] = np.nan
            one[doubtful.any(axis=1), : rows.lead] = np.nan
        memory_of_containers[doubtful] = np.nan
    # Steps before the read that it is the first to know of.
    told = ~np.isnan(demand[:, : rows.lead]).all(axis=0)
    earlier = rows.lead - int(told.argmax()) if told.any() else 0
    block = SampleBlock(
        keys=block_keys,
        times=np.concatenate((times[0] - step * np.arange(earlier, 0, -1), times)),
        cpu_demand_millicores=demand[:, rows.lead - earlier :].astype(np.float32),
        memory_bytes=np.column_stack((np.full((count, earlier), np.nan), memory_of_containers)),
        psi_known=reduce_by_container(np.logical_or, reported[:, None], cpu_owners, count)[:, 0],
        nodes=get_node_by_container(memory_nodes, memory_owners, count),
        cpu_use_millicores=use[:, rows.lead - earlier :].astype(np.float32),
        rejected=None if doubtful is None else np.column_stack((np.zeros((count, earlier), dtype=np.bool_), doubtful)),
    )
    tail = rows.build_tail(observed, scrapes, int(times[-1]), counting)
    return block, tail if doubtful is None else drop_rejected_containers(tail, block.keys, doubtful)


def join_tails(tails: Sequence[CounterTail], at: int) -> CounterTail:
    """Return the tails of disjoint reads up to `at` as one."""
    if len(tails) == 1:
        return tails[0]
    return CounterTail(
        at=at,
        keys=[key for tail in tails for key in tail.keys],
        series=[series for tail in tails for series in tail.series],
        cpu_seconds=np.concatenate([tail.cpu_seconds for tail in tails]),
        cpu_waiting_seconds=np.concatenate([tail.cpu_waiting_seconds for tail in tails]),
        changed_at=np.concatenate([tail.changed_at for tail in tails]),
    )


def _filled(
    pressure: Float64Array, rows: CounterRows, restless: Collection[int], lately: dict[ContainerKey, float]
) -> Float64Array:
    """Return the pressure of series with what is not known of it, and note what is known of those on restless nodes."""
    unknown, assumed = np.isnan(pressure), np.zeros(len(pressure))
    if lately:
        assumed = np.fromiter((lately.get(key, np.nan) for key, _ in rows.ids), np.float64, len(rows.ids))
        # Not read now, or not the last time: then another of several servers may have shown the first value since.
        skipped = np.isnan(rows.waiting[:, rows.lead :]).all(axis=1)
        skipped |= np.isnan(rows.get_newest(rows.waiting)) & ~np.isnan(rows.get_newest(rows.cpu))
        assumed[~skipped] = np.nan
        unknown[~np.isnan(assumed)] = True
        assumed = np.nan_to_num(assumed)
    known = np.flatnonzero(np.isin(rows.targets, list(restless)) & ~unknown.all(axis=1))
    if len(known):
        medians = np.nanmedian(np.where(unknown[known], np.nan, pressure[known]), axis=1)
        lately.update(zip((rows.ids[row][0] for row in known.tolist()), medians.tolist(), strict=True))
    return np.where(unknown, assumed[:, None], pressure)


def _pressure(
    matrix: SeriesMatrix, ids: Sequence[SeriesKey], columns: int, doubts: RejectedSteps, pressured_nodes: set[str]
) -> tuple[Float64Array, BoolArray, BoolArray | None]:
    """Return the waiting counters of the series `ids`, NaN where absent, and for which of them they mean something.

    Last comes where several series of one disagree, if any do.
    """
    waiting = np.full((len(ids), columns), np.nan)
    reported = np.zeros(len(ids), dtype=np.bool_)
    waiting_ids, values, nodes, disagree = merge_series(matrix, doubts.before.containers, doubts.check_cpu_pressure)
    counted: BoolArray = np.logical_or.reduce(values > 0, axis=1)
    pressured_nodes.update(node for node, some in zip(nodes, counted, strict=True) if some and node)
    row_of = {id_: row for row, id_ in enumerate(ids)}
    places = np.fromiter((row_of.get(id_, -1) for id_ in waiting_ids), np.int64, len(waiting_ids))
    measured = counted | np.fromiter((node in pressured_nodes for node in nodes), np.bool_, len(nodes))
    found = places >= 0
    waiting[places[found]] = values[found]
    reported[places[found]] = measured[found]
    doubtful = None
    if disagree is not None:
        doubtful = np.zeros(waiting.shape, dtype=np.bool_)
        doubtful[places[found]] = disagree[found]
    return waiting, reported, doubtful
