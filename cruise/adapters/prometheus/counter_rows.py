"""Raw counters in rows, with those of the previous read in front: which values scrapes saw, and the growth."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from cruise.adapters.prometheus.scrape_times import (
    MAX_GAP_SECONDS,
    ScrapesByStep,
    ScrapeTargetNumbers,
    find_counter_decreases,
    find_scrapes,
    find_value_changes,
)
from cruise.adapters.prometheus.series_merging import SeriesKey, reduce_by_container
from cruise.domain.arrays import BoolArray, Float64Array, Int64Array
from cruise.domain.usage import ContainerKey, PartitionCounterTail

# In steps; over a shorter time, the duration of a scrape matters.
MIN_SCRAPE_INTERVAL = 0.1


@dataclass(frozen=True, slots=True)
class GrowthSpreadingOptions:
    """How growth is spread: over at most `spread_steps`; after `idle_steps` a counter is known to be unchanged.

    `falls_are_resets`: any lower value means a reset; else only a value below half of the previous one.
    """

    spread_steps: int
    idle_steps: int
    falls_are_resets: bool


def compute_growth_by_step(
    counters: Float64Array,
    observed: BoolArray,
    ages: Float64Array,
    absent_at: Int64Array,
    max_per_step: float,
    spreading: GrowthSpreadingOptions,
) -> Float64Array:
    """Return the growth of counters in each step, NaN if unknown; one row per series, one column per step.

    Only `observed` values count, and growth between two of them is spread evenly. `ages` are the steps by which scrapes
    preceded their columns. `absent_at` is the column of a scrape at which the container ran without this series, -1 if
    unknown: then the first value is the growth since.
    """
    width = counters.shape[1]
    places = np.arange(width)
    last = np.maximum.accumulate(np.where(observed, places, -1), axis=1)
    previous = np.column_stack((np.full(len(counters), -1), last[:, :-1]))
    is_first = observed & (previous < 0) & (absent_at >= 0)[:, None]
    apart = places - np.where(is_first, absent_at[:, None], previous)
    between = apart - np.where(is_first, 0.0, ages - np.take_along_axis(ages, np.maximum(previous, 0), axis=1))
    earlier = np.where(previous >= 0, np.take_along_axis(counters, np.maximum(previous, 0), axis=1), np.nan)
    fell = counters < earlier
    restarted = is_first | (fell if spreading.falls_are_resets else fell & (2 * counters < earlier))
    growth = np.where(restarted, np.where(counters <= max_per_step * between, counters, np.nan), counters - earlier)
    growth[fell & ~restarted] = np.nan
    unknown = (
        ~observed
        | (between < MIN_SCRAPE_INTERVAL)
        | (apart > np.where(growth == 0, spreading.idle_steps, spreading.spread_steps))
    )
    growth[unknown] = np.nan
    following = np.minimum.accumulate(np.where(observed, places, width)[:, ::-1], axis=1)[:, ::-1]
    spread = np.take_along_axis(growth / np.where(unknown, 1.0, between), np.minimum(following, width - 1), axis=1)
    spread[(following == width) | ((last < 0) & (places <= absent_at[:, None]))] = np.nan
    return spread


# If all counters of a node grow faster or slower by this factor, its scrape times are read.
JUMP_SECONDS = 1.05


@dataclass(frozen=True, slots=True)
class CounterReadingOptions:
    """How counters are read: the step, the cores that one container can use, and whether holes are filled.

    With `fills_holes`, several series of one container must also agree. Without it, every step counts as scraped and
    stands for itself, as in CruiseKube.
    """

    step_seconds: int
    cores: float
    fills_holes: bool = True

    @property
    def max_gap_steps(self) -> int:
        """How many steps may lie between two scrapes."""
        return max(1, MAX_GAP_SECONDS // self.step_seconds) if self.fills_holes else 1

    @property
    def spreading(self) -> GrowthSpreadingOptions:
        """How growth is spread; a target is known to be idle one step after the longest gap."""
        return GrowthSpreadingOptions(
            self.max_gap_steps, self.max_gap_steps + self.fills_holes, falls_are_resets=not self.fills_holes
        )


@dataclass(frozen=True, slots=True)
class EarlierCounters:
    """The counters of the previous read, indexed; `containers` maps each key to itself."""

    tail: PartitionCounterTail | None = None
    rows: Mapping[SeriesKey, int] = field(default_factory=dict)
    containers: Mapping[ContainerKey, ContainerKey] = field(default_factory=dict)

    @staticmethod
    def create(tail: PartitionCounterTail | None) -> "EarlierCounters":
        """Index a tail."""
        if tail is None:
            return EarlierCounters()
        rows = {id_: row for row, id_ in enumerate(zip(tail.keys, tail.series, strict=True))}
        return EarlierCounters(tail, rows, {key: key for key in tail.keys})

    def get_latest(self, ids: Sequence[SeriesKey], waiting: bool) -> Float64Array:
        """Return the CPU or waiting counter of each series, NaN if it was missing."""
        if self.tail is None:
            return np.full(len(ids), np.nan)
        counters = self.tail.cpu_waiting_seconds if waiting else self.tail.cpu_seconds
        rows = np.fromiter((self.rows.get(id_, -1) for id_ in ids), np.int64, len(ids))
        return np.where(rows >= 0, np.append(counters, np.nan)[rows], np.nan)

    def find_missing(
        self, ids: Sequence[SeriesKey], containers: Mapping[ContainerKey, int], pods: str
    ) -> list[SeriesKey]:
        """Return the earlier series of matching pods that are not among the `ids`."""
        present = set(ids)
        if len(present) == len(self.rows) and all(id_ in self.rows for id_ in ids):
            return []
        selects = re.compile(pods).fullmatch
        return [id_ for id_ in self.rows if id_ not in present and (id_[0] in containers or selects(id_[0].pod))]


@dataclass(frozen=True, slots=True)
class CounterRows:
    """One row per series; the first `lead` columns precede the read, with the value of each series' last scrape.

    `targets` are what is scraped together with a series. `last_changes` is the column of its last change before the
    read, relative to the read's first column; the largest integer if there is none. Without `has_scrape_times`, the
    value in front is of a scrape at an unknown time.
    """

    ids: Sequence[SeriesKey]
    targets: Int64Array
    cpu: Float64Array
    waiting: Float64Array
    lead: int
    last_changes: Int64Array
    has_scrape_times: BoolArray

    @staticmethod
    def create(
        ids: Sequence[SeriesKey],
        cpu: Float64Array,
        waiting: Float64Array,
        targets: Int64Array,
        before: EarlierCounters,
        options: CounterReadingOptions,
    ) -> "CounterRows":
        """Join the counters of a read to those of the previous one; the last `ids` may be missing in this read."""
        tail, count = before.tail, len(ids)
        places = np.fromiter((before.rows.get(id_, -1) for id_ in ids), np.int64, count)
        known = np.flatnonzero(places >= 0)
        last_moves = np.full(count, np.iinfo(np.int64).max)
        ages = np.zeros(len(known), dtype=np.int64)
        has_time = np.ones(count, dtype=np.bool_)
        if tail is not None and options.fills_holes:
            changed_at = tail.changed_at[places[known]]
            ages = (tail.at - np.abs(changed_at)) // options.step_seconds
            has_time[known] = (changed_at >= 0) | (ages > options.max_gap_steps)
        last_moves[known] = -1 - ages
        # A counter that is unchanged for longer was scraped up to the end.
        ages[(ages > options.max_gap_steps) | ~has_time[known]] = 0
        lead = 0 if tail is None else 1 + int(ages.max(initial=0))
        rows = [np.full((count, lead + cpu.shape[1]), np.nan) for _ in range(2)]
        for row, values in zip(rows, (cpu, waiting), strict=True):
            row[: len(values), lead:] = values
        if tail is not None:
            rows[0][known, lead - 1 - ages] = tail.cpu_seconds[places[known]]
            rows[1][known, lead - 1 - ages] = tail.cpu_waiting_seconds[places[known]]
        return CounterRows(ids, targets, rows[0], rows[1], lead, last_moves, has_time)

    def find_scrapes(
        self, memory: tuple[Int64Array, BoolArray], targets: int, options: CounterReadingOptions
    ) -> ScrapesByStep:
        """Return where targets were scraped; `memory` has the target of each memory series, and where it changed."""
        lead, columns = self.lead, self.cpu.shape[1] - self.lead
        if not options.fills_holes:
            always, ages = np.ones((targets, columns), dtype=np.bool_), np.zeros((targets, lead + columns))
            return ScrapesByStep(always, np.tile(np.arange(columns), (targets, 1)), ages)
        cpu, waiting = self.cpu[:, lead:], self.waiting[:, lead:]
        moves = find_value_changes(cpu, self._get_before(self.cpu)) | find_value_changes(
            waiting, self._get_before(self.waiting)
        )
        last_moves = np.full(targets, np.iinfo(np.int64).min)
        known = self.last_changes < 0
        np.maximum.at(last_moves, self.targets[known], self.last_changes[known])
        last_moves[last_moves == np.iinfo(np.int64).min] = 0
        families = [(self.targets, moves & ~self._find_backward_steps()), memory]
        return find_scrapes(families, last_moves, options.max_gap_steps, lead)

    def find_scraped_values(self, scrapes: ScrapesByStep, options: CounterReadingOptions) -> BoolArray:
        """Return which values scrapes saw."""
        seen = ~np.isnan(self.cpu)
        if options.fills_holes:
            seen[:, self.lead :] &= scrapes.scraped[self.targets] & ~self._find_backward_steps()
            seen[~self.has_scrape_times, : self.lead] = False
        return seen

    def find_irregular_targets(self, growths: Sequence[Float64Array], scrapes: ScrapesByStep) -> BoolArray:
        """Return which targets may have irregular scrapes: one is missing, or all counters jump together."""
        # The first step of a read without a tail is unknown for all targets.
        scraped = np.logical_and.reduce(scrapes.scraped[:, 0 if self.lead else 1 :], axis=1)
        growth = np.concatenate(growths)
        earlier, later = growth[:, :-1], growth[:, 1:]
        grows = (earlier > 0) & (later > 0)
        targets, count = np.tile(self.targets, len(growths)), len(scraped)
        faster = reduce_by_container(np.logical_and, ~grows | (later > JUMP_SECONDS * earlier), targets, count)
        slower = reduce_by_container(np.logical_and, ~grows | (earlier > JUMP_SECONDS * later), targets, count)
        together = (faster | slower) & reduce_by_container(np.logical_or, grows, targets, count)
        return np.asarray(~scraped | together.any(axis=1), dtype=np.bool_)

    def get_newest(self, counters: Float64Array) -> Float64Array:
        """Return the value of each series before the read, NaN if there is none."""
        found: Float64Array = np.fmax.reduce(counters[:, : self.lead], axis=1, initial=np.nan)
        return found

    def _get_before(self, counters: Float64Array) -> Float64Array:
        # A read without a tail does not know the age of its first values.
        return self.get_newest(counters) if self.lead else counters[:, 0]

    def _find_backward_steps(self) -> BoolArray:
        return find_counter_decreases(self.cpu[:, self.lead :], self._get_before(self.cpu))

    def compute_growth(
        self,
        observed: BoolArray,
        scrapes: ScrapesByStep,
        owners: Int64Array,
        containers: int,
        options: CounterReadingOptions,
    ) -> tuple[Float64Array, Float64Array]:
        """Return the seconds used and waited in each step, NaN if unknown."""
        step, spreading, ages = options.step_seconds, options.spreading, scrapes.ages[self.targets]
        ran = reduce_by_container(np.logical_or, observed, owners, containers)
        absent_before = self._find_absent_scrape(observed, scrapes, ran, owners)
        used = compute_growth_by_step(self.cpu, observed, ages, absent_before, options.cores * step, spreading)
        with_pressure = observed & ~np.isnan(self.waiting)
        # A counter that was not read while its container ran did not start only now.
        absent_at = np.where(absent_before >= 0, self._find_absent_scrape(with_pressure, scrapes, ran, owners), -1)
        return used, compute_growth_by_step(self.waiting, with_pressure, ages, absent_at, step, spreading)

    def build_tail(
        self, observed: BoolArray, scrapes: ScrapesByStep, at: int, options: CounterReadingOptions
    ) -> PartitionCounterTail:
        """Return the tail for the next read: the value and the time of each series' last scrape."""
        end = observed.shape[1] - 1
        present, known = ~np.isnan(self.cpu[:, -1]), observed.any(axis=1)
        last = end - np.where(known, observed[:, ::-1].argmax(axis=1), 0)
        is_kept = present | (known & (end - last <= options.max_gap_steps) & options.fills_holes)
        changed = np.where(present, np.minimum(last, scrapes.last_change[self.targets, -1] + self.lead), last)
        changed_at = (at - (end - changed) * options.step_seconds) * np.where(known, 1, -1)
        rows = np.flatnonzero(is_kept)
        return PartitionCounterTail(
            at=at,
            keys=[self.ids[row][0] for row in rows.tolist()],
            series=[self.ids[row][1] for row in rows.tolist()],
            cpu_seconds=self.cpu[rows, last[rows]],
            cpu_waiting_seconds=self.waiting[rows, last[rows]],
            changed_at=changed_at[rows],
        )

    def _find_absent_scrape(
        self, observed: BoolArray, scrapes: ScrapesByStep, ran: BoolArray, owners: Int64Array
    ) -> Int64Array:
        """Return for each new series the column of the scrape before it, if its container ran; else -1."""
        absent_at = np.full(len(observed), -1)
        first = observed.argmax(axis=1)
        rows = np.flatnonzero(observed.any(axis=1) & (first >= max(1, self.lead)))
        if len(rows):
            scraped = np.zeros((len(scrapes.scraped), observed.shape[1]), dtype=np.bool_)
            scraped[:, self.lead :] = scrapes.scraped
            before, columns = np.nonzero(observed[:, : self.lead])
            scraped[self.targets[before], columns] = True
            last = np.maximum.accumulate(np.where(scraped, np.arange(scraped.shape[1]), -1), axis=1)
            column = last[self.targets[rows], first[rows] - 1]
            absent_at[rows] = np.where((column >= 0) & ran[owners[rows], np.maximum(column, 0)], column, -1)
        return absent_at


def get_targets_of_missing_series(
    missing: Sequence[SeriesKey], ids: Sequence[SeriesKey], found: Int64Array, targets: ScrapeTargetNumbers
) -> Int64Array:
    """Return the targets of missing series: those of their containers' other series, else new ones."""
    if not missing:
        return np.empty(0, dtype=np.int64)
    target_of_container = {key: target for (key, _), target in zip(ids, found.tolist(), strict=True)}
    own_targets = targets.get_or_add_numbers([key for key, _ in missing], [""] * len(missing))
    return np.array(
        [target_of_container.get(key, target) for (key, _), target in zip(missing, own_targets.tolist(), strict=True)],
        dtype=np.int64,
    )
