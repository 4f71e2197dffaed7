"""The usage that a process keeps between passes: sample windows, peaks, progress and statistics."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from cruise.decisions.usage.attribution import UsageAttribution
from cruise.decisions.usage.node_totals import find_nodes_with_new_container_peaks
from cruise.decisions.usage.oom_records import raise_oom_memory_by_record
from cruise.decisions.usage.peaks import compute_hourly_peaks, get_first_history_hour, get_peak_hours
from cruise.decisions.usage.plausibility import (
    WINDOWS_SECONDS,
    CheckedSampleBlock,
    RejectedSample,
    compute_rejected_percent,
    reject_implausible_samples,
)
from cruise.decisions.usage.starts import StartWindows, measure_container_starts
from cruise.decisions.usage.usage_bounds import UsageBounds
from cruise.domain.arrays import BoolArray, Int64Array
from cruise.domain.records import AverageHeadroomShare
from cruise.domain.usage import (
    ContainerKey,
    OomRecord,
    PartitionCounterTail,
    PartitionProgress,
    SampleBlock,
    SampleRejectionReason,
    StatisticsTable,
    UsageUpdate,
)
from cruise.runtime.ports import StorePort
from cruise.runtime.usage.sample_windows import WINDOW_SECONDS, KnownStarts, PeakColumns, UsageWindows

# Statistics should not be older than this, so later samples are not waited for.
MAX_DELAY_SECONDS = 300
# Share of all series, so that single nodes that are down do not delay all others.
MOST_SERIES_SHARE = 0.9
NO_SAMPLES = SampleBlock(
    keys=(),
    times=np.empty(0, dtype=np.int64),
    cpu_demand_millicores=np.empty((0, 0), dtype=np.float32),
    memory_bytes=np.empty((0, 0)),
    psi_known=np.empty(0, dtype=np.bool_),
)


class RejectedSampleTracker:
    """The rejected samples: counts by reason since the process started, and times within the sample windows."""

    def __init__(self) -> None:
        self.counts: Counter[SampleRejectionReason] = Counter()
        self._changes: dict[SampleRejectionReason, tuple[int, RejectedSample]] = {}
        self._times: dict[ContainerKey, set[int]] = {}
        self._reasons: dict[ContainerKey, int] = {}

    def add(self, checked: CheckedSampleBlock) -> None:
        """Add the rejected samples of a block."""
        self.counts.update(checked.counts)
        for reason, count in checked.counts.items():
            before, _ = self._changes.get(reason, (0, None))
            self._changes[reason] = (before + count, checked.examples[reason])
        self._add_times(checked.block, checked.reasons.tolist())

    def get_changes(self) -> dict[SampleRejectionReason, tuple[int, RejectedSample]]:
        """Return how many samples were rejected since the last call, with the latest of each reason."""
        news, self._changes = self._changes, {}
        return news

    def restore(self, block: SampleBlock) -> None:
        """Add the rejected samples of a stored block; their reasons are not stored."""
        self._add_times(block, [0] * len(block.keys))

    def get_shares(self, at: int, step: int) -> dict[ContainerKey, tuple[int, int]]:
        """Return the rejected share of each container's window, as (percent, bits of the reasons); drop older times."""
        found = {}
        for key, times in list(self._times.items()):
            times = {one for one in times if one > at - max(WINDOWS_SECONDS)}
            if not times:
                del self._times[key]
                self._reasons.pop(key, None)
                continue
            self._times[key] = times
            found[key] = (compute_rejected_percent(np.fromiter(times, np.int64), at, step), self._reasons.get(key, 0))
        return found

    def _add_times(self, block: SampleBlock, reasons: Iterable[int]) -> None:
        if block.rejected is None:
            return
        oldest = int(block.times[-1]) - max(WINDOWS_SECONDS) if len(block.times) else 0
        recent = block.times > oldest
        for row, bits in enumerate(reasons):
            marked = block.times[block.rejected[row] & recent]
            if len(marked):
                key = block.keys[row]
                self._times.setdefault(key, set()).update(marked.tolist())
                self._reasons[key] = self._reasons.get(key, 0) | bits


@dataclass(slots=True)
class ScrapeDelay:
    """The delay of reads in addition to the configured one; it only increases while the process runs."""

    seconds: int = 0
    _missing_seconds: int = 0
    _read_until: int = 0
    _sampled_until: int = 0

    def learn(self, tails: Iterable[PartitionCounterTail | None], at: int) -> None:
        """Increase the delay by what was missing at the end of two consecutive reads: once may be a missed scrape.

        The delay stays while no newer samples arrive: then scrapes have stopped.
        """
        if at <= self._read_until:
            return
        missing = measure_scrape_delay(tails, at)
        more = 0
        if at - missing > self._sampled_until:
            more = min(missing, self._missing_seconds, MAX_DELAY_SECONDS - self.seconds)
        self.seconds += more
        self._missing_seconds = missing - more
        self._read_until, self._sampled_until = at, at - missing


def measure_scrape_delay(tails: Iterable[PartitionCounterTail | None], at: int) -> int:
    """Return how long before `at` most series had their last scrape; series that do not change are ignored."""
    changed_at = [tail.changed_at for tail in tails if tail is not None and tail.at == at]
    ages = at - np.concatenate([np.empty(0, dtype=np.int64), *changed_at])
    ages = ages[ages <= MAX_DELAY_SECONDS]
    return int(np.quantile(ages, MOST_SERIES_SHARE, method="lower")) if len(ages) else 0


@dataclass(frozen=True, slots=True)
class FailedUsageRead:
    """A read that failed, with its error."""

    partition: str
    start: int
    end: int
    reason: str


class CheckedUsageBlock(NamedTuple):
    """A checked block, and the peak number of each of its containers, -1 if unknown."""

    checked_block: CheckedSampleBlock
    numbers: Int64Array


@dataclass(slots=True)
class UsageState:
    """The last hour of samples, the peaks, the progress of each partition, and the last statistics.

    It mirrors the database for the one process that reads usage; a new leader starts with an empty state, which is
    filled from the database once. `failures` are those of the last pass. Samples are checked against `bounds`, if there
    are any; those within `start_windows` show the starts of the snapshot's pods.
    """

    windows: UsageWindows = field(default_factory=UsageWindows)
    peaks: PeakColumns = field(default_factory=PeakColumns)
    progress: dict[str, PartitionProgress] = field(default_factory=dict)
    table: StatisticsTable | None = None
    failures: Sequence[FailedUsageRead] = ()
    bounds: UsageBounds | None = None
    start_windows: StartWindows = field(default_factory=StartWindows)
    starts: KnownStarts = field(default_factory=KnownStarts)
    rejections: RejectedSampleTracker = field(default_factory=RejectedSampleTracker)
    restored: bool = False
    scrape_delay: ScrapeDelay = field(default_factory=ScrapeDelay)
    revisions_seen_hour: int = 0
    """The clock hour (since the Unix epoch) in which running revisions were last recorded."""
    gaps_retried_hour: int = 0
    """The clock hour (since the Unix epoch) in which gaps that failed twice were last read again."""
    history_lost_until: int = 0
    """Unix seconds: the database has lost usage until then, and it is read again; 0 for none."""
    evictions_lost_until: int = 0
    """Unix seconds: the database has lost evictions until then; 0 for none."""

    async def forget(self, store: StorePort, at: int) -> None:
        """Start again from the database, except for the last statistics: it was restored to an earlier state.

        Its usage had been read until `at` at most.
        """
        self._set_lost(max([self.history_lost_until, *(one.read_until for one in self.progress.values())]) or at)
        self.restart()
        await store.record_lost_usage(self.history_lost_until)

    def restart(self) -> None:
        """Start again from the database, except for the last statistics."""
        self.windows, self.peaks, self.progress = UsageWindows(), PeakColumns(), {}
        self.restored = False

    def _set_lost(self, until: int) -> None:
        self.history_lost_until = max(self.history_lost_until, until)
        self.evictions_lost_until = max(self.evictions_lost_until, until)

    async def record_regained_usage(self, store: StorePort, partitions: Sequence[str]) -> None:
        """Record that all lost usage has been read again, once the partitions' progress shows it."""
        known = [self.progress[name] for name in partitions]
        gaps = (gap for one in known for gap in one.gaps if gap[2] == 1)
        is_incomplete = any(one.read_until < self.history_lost_until for one in known) or any(
            gap[0] < self.history_lost_until for gap in gaps
        )
        if self.history_lost_until and not is_incomplete:
            await store.record_lost_usage(self.history_lost_until, regained=True)
            self.history_lost_until = 0

    def find_unread_since(self, partitions: Sequence[str]) -> int:
        """Return since when usage of the partitions has not been read, in Unix seconds; 0 if one never was."""
        known = [self.progress.get(name) for name in partitions]
        times = [0 if one is None else min([one.read_until, *(gap[0] for gap in one.gaps)]) for one in known]
        return min(times, default=0)

    @property
    def gap_seconds(self) -> int:
        """The duration of usage that has failed twice, of the partition that lacks most."""
        given_up = ([end - start for start, end, tries in one.gaps if tries > 1] for one in self.progress.values())
        return max(map(sum, given_up), default=0)

    async def get_statistics(self, store: StorePort) -> StatisticsTable:
        """Return the statistics of the last usage pass; before the first one, the database's, which are read once."""
        if self.table is None:
            self.table = await store.read_statistics()
        return self.table

    def get_latest_statistics(self) -> StatisticsTable | None:
        """Return the statistics of the last usage pass, None before the first one."""
        return self.table

    def set_average_headroom_share(
        self, average_share: AverageHeadroomShare, table: StatisticsTable
    ) -> StatisticsTable:
        """Set the present average share of headroom in the statistics; return the table with it."""
        if self.table is not None:
            self.table = replace(self.table, average_headroom_share=average_share)
        return replace(table, average_headroom_share=average_share)

    def apply_oom_record(self, record: OomRecord, *, shared: bool) -> None:
        """Apply a kill to the statistics; a table that is not read yet will contain it."""
        if self.table is not None:
            self.table = raise_oom_memory_by_record(self.table, record, shared=shared)

    async def restore_and_refresh(
        self, store: StorePort, attribution: UsageAttribution, at: int, step_seconds: int, look_ahead_seconds: int
    ) -> None:
        """Sum up the peaks again if other hours count now, and after a start restore the stored state.

        Raises DatabaseRestoredError if the database is at an earlier state.
        """
        if not self.restored:
            history = await store.read_epoch_and_lost_usage()
            self.evictions_lost_until = max(self.evictions_lost_until, history.lost_until)
            if not history.regained:
                self._set_lost(history.lost_until)
        hours, since_hour = get_peak_hours(at, look_ahead_seconds), get_first_history_hour(at)
        if hours != self.peaks.hours:
            earlier = self.peaks
            self.peaks = PeakColumns.from_summary(await store.read_peak_summary(hours, since_hour), hours, since_hour)
            self.windows.renumber(lambda number: self.peaks.get_or_add_number(earlier.keys[number]))
        if self.restored:
            return
        self.windows = UsageWindows(step_seconds)
        self.progress = dict(await store.read_usage_progress())
        self.starts = KnownStarts(await store.read_container_starts())
        await self.get_statistics(store)
        for block in await store.read_recent_blocks(at - WINDOW_SECONDS):
            # The step may have changed since the block was stored.
            if not (block.times % step_seconds).any():
                self.windows.append(block, self._get_peak_numbers(block, attribution))
                self.rejections.restore(block)
        self.restored = True

    def reject_implausible(self, block: SampleBlock | None, attribution: UsageAttribution) -> CheckedUsageBlock:
        """Check the samples of a block, each container by itself."""
        block = block or NO_SAMPLES
        checked_block = (
            CheckedSampleBlock.accept_all(block)
            if self.bounds is None
            else reject_implausible_samples(block, self.bounds)
        )
        return CheckedUsageBlock(checked_block, self._get_peak_numbers(block, attribution))

    def find_nodes_with_new_container_peaks(self, checked: CheckedUsageBlock) -> set[str]:
        """Return the nodes of containers whose samples exceed their known peaks."""
        known, numbers = self.peaks.get_known(), checked.numbers
        # Containers without an owner have no peaks.
        cpu, memory = (np.append(one, np.inf)[numbers] for one in (known.cpu_peak_millicores, known.memory_peak_bytes))
        return find_nodes_with_new_container_peaks(checked.checked_block.block, cpu, memory)

    async def record(
        self,
        store: StorePort,
        partition: str,
        progress: PartitionProgress,
        checked: CheckedUsageBlock,
        at: int,
    ) -> None:
        """Store a block and its progress, then apply it; samples without an owner are dropped."""
        block, numbers = checked.checked_block.block, checked.numbers
        self.rejections.add(checked.checked_block)
        peaks = compute_hourly_peaks(block, numbers, self.peaks.keys)
        recent = select_recent_samples(block, numbers >= 0, at - WINDOW_SECONDS)
        before = self.progress.get(partition)
        continues = None if before is None else before.read_until
        earlier_tail = None if before is None else before.counter_tail
        starts = measure_container_starts(
            block, self.start_windows, self.windows.step_seconds, progress.counter_tail, earlier_tail
        )
        await store.record_usage(UsageUpdate(partition, progress, peaks, recent, continues, starts))
        self.progress[partition] = progress
        self.peaks.merge(peaks)
        self.starts.merge(starts)
        self.windows.append(block, numbers)

    def _get_peak_numbers(self, block: SampleBlock, attribution: UsageAttribution) -> Int64Array:
        """Return the peak number of each container, -1 if unknown."""
        numbers = np.empty(len(block.keys), dtype=np.int64)
        for index, key in enumerate(block.keys):
            number = self.windows.get_numbers(key)
            if number < 0:
                peak_key = attribution.get_peak_key(key, block.nodes[index] if block.nodes else "")
                number = -1 if peak_key is None else self.peaks.get_or_add_number(peak_key)
            numbers[index] = number
        return numbers


def select_recent_samples(block: SampleBlock, owned: BoolArray, after: int) -> SampleBlock | None:
    """Return the samples after a time of containers with an owner, None if there are none."""
    columns = np.flatnonzero(block.times > after)
    rows = np.flatnonzero(owned)
    if not len(columns) or not len(rows):
        return None
    if len(columns) == len(block.times) and len(rows) == len(block.keys):
        return block
    chosen = rows.tolist()
    return SampleBlock(
        keys=[block.keys[row] for row in chosen],
        times=block.times[columns],
        cpu_demand_millicores=block.cpu_demand_millicores[np.ix_(rows, columns)],
        memory_bytes=block.memory_bytes[np.ix_(rows, columns)],
        psi_known=block.psi_known[rows],
        nodes=[block.nodes[row] for row in chosen] if block.nodes else (),
        rejected=None if block.rejected is None else block.rejected[np.ix_(rows, columns)],
    )
