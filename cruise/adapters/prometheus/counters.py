"""From raw counters to usage: growth between scrapes, restarts, pressure.

The growth of a counter between two scrapes is spread evenly over the steps between them, up to five minutes; growth
over a longer time is not used. The steps after the last scrape of a read are unknown until the next read: the tail has
the time of that scrape.

The meaning of a first value depends on the scrape before:

- the same series with more than twice the value: the counter was reset, and the value is the growth since;
- another series of the same container: the container restarted under a new id, and the value is the growth since;
- nothing: the counter may have run for days, so the step has no usage.

In the first two cases, a value that the cores could not have used since that scrape is no usage either. The old and the
new id are one container: at a step, the larger of their demands counts, never the sum. A read without a tail does not
know the age of its very first values, and takes none of them for a scrape.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cruise.adapters.prometheus.counter_rows import (
    CounterReadingOptions,
    CounterRows,
    EarlierCounters,
    get_targets_of_missing_series,
)
from cruise.adapters.prometheus.queries import SeriesMatrix
from cruise.adapters.prometheus.scrape_times import ScrapeTargetNumbers, find_value_changes, set_scrape_ages
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
from cruise.domain.usage import ContainerKey, PartitionCounterTail, SampleBlock

MergedSeries = tuple[Float64Array, BoolArray]


class RejectedStepCollector:
    """Merges the series of a read, and collects the steps at which they disagree.

    If samples need not be plausible, the larger of two series counts, and no step is rejected.
    """

    def __init__(self, before: EarlierCounters, options: CounterReadingOptions) -> None:
        self.before = before
        self._options = options

    def check_cpu(self, ids: Sequence[SeriesKey], one: Float64Array, other: Float64Array) -> MergedSeries:
        """Merge CPU counters."""
        return self._merge_counters(ids, one, other, waiting=False)

    def check_cpu_pressure(self, ids: Sequence[SeriesKey], one: Float64Array, other: Float64Array) -> MergedSeries:
        """Merge counters of the time that tasks waited."""
        return self._merge_counters(ids, one, other, waiting=True)

    def check_memory(self, ids: Sequence[SeriesKey], one: Float64Array, other: Float64Array) -> MergedSeries:
        """Merge working sets: the larger one counts."""
        larger, nothing = take_larger(ids, one, other)
        return larger, find_gauge_disagreements(one, other) if self._options.fills_holes else nothing

    def _merge_counters(
        self, ids: Sequence[SeriesKey], one: Float64Array, other: Float64Array, waiting: bool
    ) -> MergedSeries:
        options = self._options
        if not options.fills_holes:
            return take_larger(ids, one, other)
        max_per_step = options.step_seconds * (1.0 if waiting else options.cores)
        return merge_counters(one, other, self.before.get_latest(ids, waiting), max_per_step)

    def find_unknown_starts(self, rows: CounterRows, owners: Int64Array, *use: Float64Array) -> None:
        """Remove what each series had counted before it was first seen next to another id."""
        if not self._options.fills_holes:
            return
        found = find_overlapping_starts(self._join_newest(rows), owners)
        for row, column in zip(*np.nonzero(found), strict=True) if found is not None else ():
            for one in use:
                one[row, : rows.lead + column + 1] = np.nan

    def get_for_containers(
        self,
        rows: CounterRows,
        owners: Int64Array,
        count: int,
        series_rejections: Sequence[tuple[BoolArray | None, Int64Array]],
    ) -> BoolArray | None:
        """Return the rejected steps as (containers, steps), None if there are none.

        `series_rejections` has those of the series of each family, and the containers of the series.
        """
        if not self._options.fills_holes:
            return None
        found = [
            reduce_by_container(np.logical_or, one, series_owners, count)
            for one, series_owners in series_rejections
            if one is not None
        ]
        concurrent = find_concurrent_ids(self._join_newest(rows), owners, max(count, int(owners.max(initial=-1)) + 1))
        if concurrent is not None:
            found.append(concurrent[:count])
        return np.logical_or.reduce(found) if found else None

    def _join_newest(self, rows: CounterRows) -> Float64Array:
        return np.column_stack((rows.get_newest(rows.cpu), rows.cpu[:, rows.lead :]))


def drop_rejected_containers(
    tail: PartitionCounterTail, keys: Sequence[ContainerKey], rejected: BoolArray
) -> PartitionCounterTail:
    """Return the tail without containers that are rejected at the end."""
    dropped = {key for key, last in zip(keys, rejected[:, -1].tolist(), strict=True) if last}
    kept = [row for row, key in enumerate(tail.keys) if key not in dropped]
    return PartitionCounterTail(
        at=tail.at,
        keys=[tail.keys[row] for row in kept],
        series=[tail.series[row] for row in kept],
        cpu_seconds=tail.cpu_seconds[kept],
        cpu_waiting_seconds=tail.cpu_waiting_seconds[kept],
        changed_at=tail.changed_at[kept],
    )


ScrapeAgesFunction = Callable[[Collection[str], int, int], Mapping[str, Float64Array]]


def get_no_scrape_ages(nodes: Collection[str], first: int, last: int) -> Mapping[str, Float64Array]:
    """Return no scrape times."""
    return {}


@dataclass(frozen=True, slots=True)
class UsageAnswers:
    """The three families of the pods whose names match `pods`, over the same grid."""

    cpu_seconds: SeriesMatrix
    cpu_waiting_seconds: SeriesMatrix
    memory_bytes: SeriesMatrix
    pods: str = ".*"


def compute_usage(
    answers: UsageAnswers,
    times: Int64Array,
    before: EarlierCounters,
    options: CounterReadingOptions,
    pressured_nodes: set[str],
    get_ages: ScrapeAgesFunction = get_no_scrape_ages,
    recent_pressure: dict[ContainerKey, float] | None = None,
) -> tuple[SampleBlock, PartitionCounterTail]:
    """Compute the usage, and the tail for the next read.

    `pressured_nodes` are the nodes that ever showed pressure, and is updated: on other nodes, zeros mean that the
    kernel does not measure it. `get_ages` is called for nodes whose counters all jump or are unchanged, and returns by
    how many seconds the last scrape preceded each time. The block starts before `times` if a scrape completes earlier
    steps. `recent_pressure` has the share of time that containers of such nodes waited, which replaces unknown
    pressure, and is updated.
    """
    rejections = RejectedStepCollector(before, options)
    ids, cpu, nodes, cpu_rejected = merge_series(answers.cpu_seconds, before.containers, rejections.check_cpu)
    containers: dict[ContainerKey, int] = {}
    cpu_owners = number_containers(ids, containers)
    waiting, reported, waiting_rejected = _read_pressure(
        answers.cpu_waiting_seconds, ids, len(times), rejections, pressured_nodes
    )
    # The node of a pod whose pressure is skipped in this read reports pressure.
    reported |= np.fromiter((node in pressured_nodes for node in nodes), np.bool_, len(nodes))
    memory_ids, memory, memory_nodes, memory_rejected = merge_series(
        answers.memory_bytes, before.containers, rejections.check_memory
    )
    memory_owners = number_containers(memory_ids, containers)
    block_keys = list(containers)

    missing = before.find_missing(ids, containers, answers.pods)
    owners = np.concatenate((cpu_owners, number_containers(missing, containers)))
    targets = ScrapeTargetNumbers()
    found = targets.get_or_add_numbers([key for key, _ in ids], nodes)
    row_targets = np.concatenate((found, get_targets_of_missing_series(missing, ids, found, targets)))
    memory_targets = targets.get_or_add_numbers([key for key, _ in memory_ids], memory_nodes)
    rows = CounterRows.create([*ids, *missing], cpu, waiting, row_targets, before, options)
    scrapes = rows.find_scrapes((memory_targets, find_value_changes(memory, memory[:, 0])), len(targets), options)
    observed = rows.find_scraped_values(scrapes, options)
    used, waited = rows.compute_growth(observed, scrapes, owners, len(containers), options)
    step = options.step_seconds
    irregular = (
        targets.select_nodes(rows.find_irregular_targets((used, waited), scrapes)) if options.fills_holes else {}
    )
    ages = get_ages(irregular, int(times[0]) - rows.lead * step, int(times[-1])) if irregular else {}
    if ages:
        scrapes = set_scrape_ages(scrapes, {irregular[node]: known / step for node, known in ages.items()})
        observed = rows.find_scraped_values(scrapes, options)
        used, waited = rows.compute_growth(observed, scrapes, owners, len(containers), options)

    count = len(block_keys)
    use = used / step * 1000
    pressure = np.clip(waited / step, 0.0, 1.0)
    demand = use * (
        1 + _fill_unknown(pressure, rows, irregular.values(), {} if recent_pressure is None else recent_pressure)
    )
    rejections.find_unknown_starts(rows, owners, use, demand)
    use, demand = (reduce_by_container(np.fmax, one, owners, len(containers))[:count] for one in (use, demand))
    memory_of_containers = reduce_by_container(np.fmax, memory, memory_owners, count)
    rejected = rejections.get_for_containers(
        rows,
        owners,
        count,
        [(cpu_rejected, cpu_owners), (waiting_rejected, cpu_owners), (memory_rejected, memory_owners)],
    )
    if rejected is not None:
        for one in (use, demand):
            one[:, rows.lead :][rejected] = np.nan
            one[rejected.any(axis=1), : rows.lead] = np.nan
        memory_of_containers[rejected] = np.nan
    # Steps before the read that only this read could compute.
    known = ~np.isnan(demand[:, : rows.lead]).all(axis=0)
    earlier = rows.lead - int(known.argmax()) if known.any() else 0
    block = SampleBlock(
        keys=block_keys,
        times=np.concatenate((times[0] - step * np.arange(earlier, 0, -1), times)),
        cpu_demand_millicores=demand[:, rows.lead - earlier :].astype(np.float32),
        memory_bytes=np.column_stack((np.full((count, earlier), np.nan), memory_of_containers)),
        psi_known=reduce_by_container(np.logical_or, reported[:, None], cpu_owners, count)[:, 0],
        nodes=get_node_by_container(memory_nodes, memory_owners, count),
        cpu_use_millicores=use[:, rows.lead - earlier :].astype(np.float32),
        rejected=None if rejected is None else np.column_stack((np.zeros((count, earlier), dtype=np.bool_), rejected)),
    )
    tail = rows.build_tail(observed, scrapes, int(times[-1]), options)
    return block, tail if rejected is None else drop_rejected_containers(tail, block.keys, rejected)


def join_tails_of_disjoint_series(tails: Sequence[PartitionCounterTail], at: int) -> PartitionCounterTail:
    """Join the tails of disjoint reads up to `at`."""
    if len(tails) == 1:
        return tails[0]
    return PartitionCounterTail(
        at=at,
        keys=[key for tail in tails for key in tail.keys],
        series=[series for tail in tails for series in tail.series],
        cpu_seconds=np.concatenate([tail.cpu_seconds for tail in tails]),
        cpu_waiting_seconds=np.concatenate([tail.cpu_waiting_seconds for tail in tails]),
        changed_at=np.concatenate([tail.changed_at for tail in tails]),
    )


def _fill_unknown(
    pressure: Float64Array, rows: CounterRows, irregular: Collection[int], recent_pressure: dict[ContainerKey, float]
) -> Float64Array:
    """Fill unknown pressure of series, and remember the known pressure on irregular nodes."""
    unknown, assumed = np.isnan(pressure), np.zeros(len(pressure))
    if recent_pressure:
        assumed = np.fromiter((recent_pressure.get(key, np.nan) for key, _ in rows.ids), np.float64, len(rows.ids))
        # Not read now or not the last time; then another replica of the server may have shown the first value since.
        skipped = np.isnan(rows.waiting[:, rows.lead :]).all(axis=1)
        skipped |= np.isnan(rows.get_newest(rows.waiting)) & ~np.isnan(rows.get_newest(rows.cpu))
        assumed[~skipped] = np.nan
        unknown[~np.isnan(assumed)] = True
        assumed = np.nan_to_num(assumed)
    known = np.flatnonzero(np.isin(rows.targets, list(irregular)) & ~unknown.all(axis=1))
    if len(known):
        medians = np.nanmedian(np.where(unknown[known], np.nan, pressure[known]), axis=1)
        recent_pressure.update(zip((rows.ids[row][0] for row in known.tolist()), medians.tolist(), strict=True))
    return np.where(unknown, assumed[:, None], pressure)


def _read_pressure(
    matrix: SeriesMatrix,
    ids: Sequence[SeriesKey],
    columns: int,
    rejections: RejectedStepCollector,
    pressured_nodes: set[str],
) -> tuple[Float64Array, BoolArray, BoolArray | None]:
    """Return the waiting counters of the series `ids` (NaN if missing), and for which of them they are meaningful.

    The last value has the steps at which series disagree, if any do.
    """
    waiting = np.full((len(ids), columns), np.nan)
    reported = np.zeros(len(ids), dtype=np.bool_)
    waiting_ids, values, nodes, disagree = merge_series(
        matrix, rejections.before.containers, rejections.check_cpu_pressure
    )
    counted: BoolArray = np.logical_or.reduce(values > 0, axis=1)
    pressured_nodes.update(node for node, has_pressure in zip(nodes, counted, strict=True) if has_pressure and node)
    row_of = {id_: row for row, id_ in enumerate(ids)}
    indexes = np.fromiter((row_of.get(id_, -1) for id_ in waiting_ids), np.int64, len(waiting_ids))
    measured = counted | np.fromiter((node in pressured_nodes for node in nodes), np.bool_, len(nodes))
    found = indexes >= 0
    waiting[indexes[found]] = values[found]
    reported[indexes[found]] = measured[found]
    rejected = None
    if disagree is not None:
        rejected = np.zeros(waiting.shape, dtype=np.bool_)
        rejected[indexes[found]] = disagree[found]
    return waiting, reported, rejected
