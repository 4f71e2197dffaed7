"""What a process keeps of usage between passes."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from cruise.decisions.usage.attribution import UsageAttribution
from cruise.decisions.usage.node_totals import find_nodes_with_new_peaks
from cruise.decisions.usage.oom_records import raise_oom_memory
from cruise.decisions.usage.peaks import compute_hourly_peaks, get_first_history_hour, get_peak_hours
from cruise.decisions.usage.plausibility import (
    WINDOWS_SECONDS,
    CheckedBlock,
    RejectedSample,
    compute_rejected_percent,
    reject_implausible_samples,
)
from cruise.decisions.usage.usage_bounds import UsageBounds
from cruise.domain.records import HeadroomSharing
from cruise.domain.resources import BoolArray, Int64Array
from cruise.domain.usage import (
    ContainerKey,
    CounterTail,
    OomRecord,
    PartitionProgress,
    SampleBlock,
    SampleRejection,
    StatisticsTable,
    UsageUpdate,
)
from cruise.runtime.ports import StorePort
from cruise.runtime.usage.peak_columns import PeakColumns
from cruise.runtime.usage.sample_windows import WINDOW_SECONDS, UsageWindows

# The samples that were refused: how many and why since the process began, and when, for as long as windows reach.


class SampleRejections:
    """Few containers have any, so there is room for each from its first on."""

    def __init__(self) -> None:
        self.counts: Counter[SampleRejection] = Counter()
        self._news: dict[SampleRejection, tuple[int, RejectedSample]] = {}
        self._times: dict[ContainerKey, set[int]] = {}
        self._reasons: dict[ContainerKey, int] = {}

    def add(self, judgement: CheckedBlock) -> None:
        """Take over what was refused of a block."""
        self.counts.update(judgement.counts)
        for reason, count in judgement.counts.items():
            before, _ = self._news.get(reason, (0, None))
            self._news[reason] = (before + count, judgement.examples[reason])
        self._mark(judgement.block, judgement.reasons.tolist())

    def get_changes(self) -> dict[SampleRejection, tuple[int, RejectedSample]]:
        """Return how many were refused since the last call, and the latest of each kind."""
        news, self._news = self._news, {}
        return news

    def restore(self, block: SampleBlock) -> None:
        """Take over what had been refused of a block that was stored; why is not known any more."""
        self._mark(block, [0] * len(block.keys))

    def get_shares(self, at: int, step: int) -> dict[ContainerKey, tuple[int, int]]:
        """Return what was refused of a window up to a time, as (percent, bits of the reasons); older is forgotten."""
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

    def _mark(self, block: SampleBlock, reasons: Iterable[int]) -> None:
        if block.rejected is None:
            return
        oldest = int(block.times[-1]) - max(WINDOWS_SECONDS) if len(block.times) else 0
        young = block.times > oldest
        for row, bits in enumerate(reasons):
            marked = block.times[block.rejected[row] & young]
            if len(marked):
                key = block.keys[row]
                self._times.setdefault(key, set()).update(marked.tolist())
                self._reasons[key] = self._reasons.get(key, 0) | bits


# How late samples come, measured from what was read: after a time that is too short, the last steps are missing.

# What comes later than this does not come in time for its pass; nobody's statistics should be much older either.
MAX_DELAY_SECONDS = 300
# Of all series: so that single nodes, which may be down, do not make all others wait.
MOST_SERIES_SHARE = 0.9


@dataclass(slots=True)
class ScrapeDelay:
    """By how much longer than stated reads stay behind the present; it only grows while the process runs."""

    seconds: int = 0
    _unsettled: int = 0
    _read_until: int = 0
    _sampled_until: int = 0

    def learn(self, tails: Iterable[CounterTail | None], at: int) -> None:
        """Take over how much was missing at the end of two reads in a row: once is a scrape that was missed.

        Nothing is learned while no newer samples come: scrapes have ceased then, and waiting longer would not help.
        """
        if at <= self._read_until:
            return
        unsettled = measure_scrape_delay(tails, at)
        more = 0
        if at - unsettled > self._sampled_until:
            more = min(unsettled, self._unsettled, MAX_DELAY_SECONDS - self.seconds)
        self.seconds += more
        self._unsettled = unsettled - more
        self._read_until, self._sampled_until = at, at - unsettled


def measure_scrape_delay(tails: Iterable[CounterTail | None], at: int) -> int:
    """Return by when before `at` most series had their last scrape; those at rest do not tell."""
    changed_at = [tail.changed_at for tail in tails if tail is not None and tail.at == at]
    ages = at - np.concatenate([np.empty(0, dtype=np.int64), *changed_at])
    ages = ages[ages <= MAX_DELAY_SECONDS]
    return int(np.quantile(ages, MOST_SERIES_SHARE, method="lower")) if len(ages) else 0


NO_SAMPLES = SampleBlock(
    keys=(),
    times=np.empty(0, dtype=np.int64),
    cpu_demand_millicores=np.empty((0, 0), dtype=np.float32),
    memory_bytes=np.empty((0, 0)),
    psi_known=np.empty(0, dtype=np.bool_),
)


@dataclass(frozen=True, slots=True)
class FailedUsageRead:
    """One read that was in vain: what could not be read, and why in one line."""

    partition: str
    start: int
    end: int
    reason: str


class CheckedUsageBlock(NamedTuple):
    """A block as it was judged, and what each of its containers' peaks belong to, -1 where that is not known."""

    judgement: CheckedBlock
    numbers: Int64Array


@dataclass(slots=True)
class UsageState:
    """The last hour, the peaks, how far each partition was read, and the last statistics.

    It mirrors the store for the one process that reads usage; a process that takes over starts with a new one, which
    is filled from the store once. `failures` are those of the last pass, `settling` is what was learned of late
    samples. Samples are judged by `bounds`, if there are any.
    """

    windows: UsageWindows = field(default_factory=UsageWindows)
    peaks: PeakColumns = field(default_factory=PeakColumns)
    progress: dict[str, PartitionProgress] = field(default_factory=dict)
    table: StatisticsTable | None = None
    failures: Sequence[FailedUsageRead] = ()
    bounds: UsageBounds | None = None
    rejections: SampleRejections = field(default_factory=SampleRejections)
    restored: bool = False
    scrape_delay: ScrapeDelay = field(default_factory=ScrapeDelay)
    revisions_seen_hour: int = 0
    """The clock hour (since the Unix epoch) in which it was noted last which revisions still run."""
    has_originals: bool = False
    history_lost_until: int = 0
    """Unix seconds: usage until then is missing from the database, which had it, and is read again; 0 for none."""
    evictions_lost_until: int = 0
    """Unix seconds: evictions until then are missing from the database, which had them; 0 for none."""

    async def forget(self, store: StorePort, at: int) -> None:
        """Start again from what the store has now, but for the last statistics: it is not at the state it had.

        What it had was read until `at` at most.
        """
        self._lose(max([self.history_lost_until, *(one.read_until for one in self.progress.values())]) or at)
        self.windows, self.peaks, self.progress = UsageWindows(), PeakColumns(), {}
        self.restored = False
        await store.note_lost(self.history_lost_until)

    def _lose(self, until: int) -> None:
        self.history_lost_until = max(self.history_lost_until, until)
        self.evictions_lost_until = max(self.evictions_lost_until, until)

    async def note_regained(self, store: StorePort, partitions: Sequence[str]) -> None:
        """Note whether all that was lost has been read again, of the partitions that there are."""
        known = [self.progress[name] for name in partitions]
        gaps = (gap for one in known for gap in one.gaps if gap[2] == 1)
        behind = any(one.read_until < self.history_lost_until for one in known) or any(
            gap[0] < self.history_lost_until for gap in gaps
        )
        if self.history_lost_until and not behind:
            await store.note_lost(self.history_lost_until, regained=True)
            self.history_lost_until = 0

    async def statistics(self, store: StorePort) -> StatisticsTable:
        """Return the table of the last usage pass; until there is one, the store's, which is read once."""
        if self.table is None:
            self.table = await store.read_statistics()
        return self.table

    def latest(self) -> StatisticsTable | None:
        """Return the table of the last usage pass, None before there is one."""
        return self.table

    def average_sharing(self, sharing: HeadroomSharing, table: StatisticsTable) -> StatisticsTable:
        """Take over how headroom is shared since the table was made; return the table with it."""
        if self.table is not None:
            self.table = replace(self.table, sharing=sharing)
        return replace(table, sharing=sharing)

    def apply_oom_record(self, record: OomRecord, *, shared: bool) -> None:
        """Take over what a kill taught since the table was made; a table that is not read yet will have it."""
        if self.table is not None:
            self.table = raise_oom_memory(self.table, record, shared=shared)

    async def catch_up(
        self, store: StorePort, attribution: UsageAttribution, at: int, step_seconds: int, look_ahead_seconds: int
    ) -> None:
        """Sum up the peaks anew where other hours count by now, and after a start take over what is stored.

        Raises HistoryChangedError where the store is at an earlier state than it was.
        """
        if not self.restored:
            history = await store.history()
            self.evictions_lost_until = max(self.evictions_lost_until, history.lost_until)
            if not history.regained:
                self._lose(history.lost_until)
        hours, since_hour = get_peak_hours(at, look_ahead_seconds), get_first_history_hour(at)
        if hours != self.peaks.hours:
            earlier = self.peaks
            self.peaks = PeakColumns.get_number(await store.peak_summary(hours, since_hour), hours, since_hour)
            self.windows.renumber(lambda number: self.peaks.number(earlier.keys[number]))
        if self.restored:
            return
        self.windows = UsageWindows(step_seconds)
        self.progress = dict(await store.usage_progress())
        await self.statistics(store)
        for block in await store.recent_blocks(at - WINDOW_SECONDS):
            # A block may be from before the step was set to something else.
            if not (block.times % step_seconds).any():
                self.windows.append(block, self._numbers(block, attribution))
                self.rejections.restore(block)
        self.restored = True

    def reject_implausible(self, block: SampleBlock | None, attribution: UsageAttribution) -> CheckedUsageBlock:
        """Judge what was read, by itself."""
        block = block or NO_SAMPLES
        judgement = (
            CheckedBlock.accept_all(block) if self.bounds is None else reject_implausible_samples(block, self.bounds)
        )
        return CheckedUsageBlock(judgement, self._numbers(block, attribution))

    def find_nodes_with_new_peaks(self, judged: CheckedUsageBlock) -> set[str]:
        """Return the nodes of containers that are shown above their known peaks."""
        known, numbers = self.peaks.known(), judged.numbers
        # What has no owner raises nothing.
        cpu, memory = (np.append(one, np.inf)[numbers] for one in (known.cpu_peak_millicores, known.memory_peak_bytes))
        return find_nodes_with_new_peaks(judged.judgement.block, cpu, memory)

    async def record(
        self,
        store: StorePort,
        partition: str,
        progress: PartitionProgress,
        judged: CheckedUsageBlock,
        at: int,
    ) -> None:
        """Store what was read and how far, then take it over; samples without an owner any more are left out."""
        block, numbers = judged.judgement.block, judged.numbers
        self.rejections.add(judged.judgement)
        peaks = compute_hourly_peaks(block, numbers, self.peaks.keys)
        young = select_recent_samples(block, numbers >= 0, at - WINDOW_SECONDS)
        before = self.progress.get(partition)
        continues = None if before is None else before.read_until
        await store.record_usage(UsageUpdate(partition, progress, peaks, young, continues))
        self.progress[partition] = progress
        self.peaks.merge(peaks)
        self.windows.append(block, numbers)

    def _numbers(self, block: SampleBlock, attribution: UsageAttribution) -> Int64Array:
        """Return what each container's peaks belong to, -1 where that is not known."""
        numbers = np.empty(len(block.keys), dtype=np.int64)
        for index, key in enumerate(block.keys):
            number = self.windows.get_numbers(key)
            if number < 0:
                peak_key = attribution.get_peak_key(key, block.nodes[index] if block.nodes else "")
                number = -1 if peak_key is None else self.peaks.number(peak_key)
            numbers[index] = number
        return numbers


def select_recent_samples(block: SampleBlock, owned: BoolArray, after: int) -> SampleBlock | None:
    """Return what of a block is later than `after` and has an owner, None where there is nothing."""
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
