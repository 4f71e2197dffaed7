"""What a process keeps of usage between passes."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from cruise.decisions.usage.attribution import Attribution
from cruise.decisions.usage.lessons import with_lesson
from cruise.decisions.usage.node_sums import nodes_with_news
from cruise.decisions.usage.peaks import first_hour_of_history, hourly_peaks, peak_hours
from cruise.decisions.usage.plausibility import Judgement, judge
from cruise.decisions.usage.usage_bounds import UsageBounds
from cruise.domain.arrays import BoolArray, Int64Array
from cruise.domain.headroom import Sharing
from cruise.domain.usage import OomRecord, PartitionProgress, SampleBlock, StatisticsTable, UsageAdvance
from cruise.runtime.ports import Store
from cruise.runtime.usage.peaks import PeakNumbers
from cruise.runtime.usage.refusals import Refusals
from cruise.runtime.usage.settling import Settling
from cruise.runtime.usage.windows import WINDOW_SECONDS, UsageWindows

NO_SAMPLES = SampleBlock(
    keys=(),
    times=np.empty(0, dtype=np.int64),
    cpu_demand_millicores=np.empty((0, 0), dtype=np.float32),
    memory_bytes=np.empty((0, 0)),
    psi_known=np.empty(0, dtype=np.bool_),
)


@dataclass(frozen=True, slots=True)
class FailedRead:
    """One read that was in vain: what could not be read, and why in one line."""

    partition: str
    start: int
    end: int
    why: str


class Judged(NamedTuple):
    """A block as it was judged, and what each of its containers' peaks belong to, -1 where that is not known."""

    judgement: Judgement
    numbers: Int64Array


@dataclass(slots=True)
class UsageState:
    """The last hour, the peaks, how far each partition was read, and the last statistics.

    It mirrors the store for the one process that reads usage; a process that takes over starts with a new one, which
    is filled from the store once. `failures` are those of the last pass, `settling` is what was learned of late
    samples. Samples are judged by `bounds`, if there are any.
    """

    windows: UsageWindows = field(default_factory=UsageWindows)
    peaks: PeakNumbers = field(default_factory=PeakNumbers)
    progress: dict[str, PartitionProgress] = field(default_factory=dict)
    table: StatisticsTable | None = None
    failures: Sequence[FailedRead] = ()
    bounds: UsageBounds | None = None
    refusals: Refusals = field(default_factory=Refusals)
    restored: bool = False
    settling: Settling = field(default_factory=Settling)
    revisions_seen_hour: int = 0
    """The clock hour (since the Unix epoch) in which it was noted last which revisions still run."""
    has_originals: bool = False
    lost_until: int = 0
    """Unix seconds: usage until then is missing from the database, which had it, and is read again; 0 for none."""
    evictions_lost_until: int = 0
    """Unix seconds: evictions until then are missing from the database, which had them; 0 for none."""

    async def forget(self, store: Store, at: int) -> None:
        """Start again from what the store has now, but for the last statistics: it is not at the state it had.

        What it had was read until `at` at most.
        """
        self._lose(max([self.lost_until, *(one.read_until for one in self.progress.values())]) or at)
        self.windows, self.peaks, self.progress = UsageWindows(), PeakNumbers(), {}
        self.restored = False
        await store.note_lost(self.lost_until)

    def _lose(self, until: int) -> None:
        self.lost_until = max(self.lost_until, until)
        self.evictions_lost_until = max(self.evictions_lost_until, until)

    async def note_regained(self, store: Store, partitions: Sequence[str]) -> None:
        """Note whether all that was lost has been read again, of the partitions that there are."""
        known = [self.progress[name] for name in partitions]
        gaps = (gap for one in known for gap in one.gaps if gap[2] == 1)
        behind = any(one.read_until < self.lost_until for one in known) or any(gap[0] < self.lost_until for gap in gaps)
        if self.lost_until and not behind:
            await store.note_lost(self.lost_until, regained=True)
            self.lost_until = 0

    async def statistics(self, store: Store) -> StatisticsTable:
        """Return the table of the last usage pass; until there is one, the store's, which is read once."""
        if self.table is None:
            self.table = await store.read_statistics()
        return self.table

    def latest(self) -> StatisticsTable | None:
        """Return the table of the last usage pass, None before there is one."""
        return self.table

    def share(self, sharing: Sharing, table: StatisticsTable) -> StatisticsTable:
        """Take over how headroom is shared since the table was made; return the table with it."""
        if self.table is not None:
            self.table = replace(self.table, sharing=sharing)
        return replace(table, sharing=sharing)

    def teach(self, record: OomRecord, *, shared: bool) -> None:
        """Take over what a kill taught since the table was made; a table that is not read yet will have it."""
        if self.table is not None:
            self.table = with_lesson(self.table, record, shared=shared)

    async def catch_up(
        self, store: Store, attribution: Attribution, at: int, step_seconds: int, look_ahead_seconds: int
    ) -> None:
        """Sum up the peaks anew where other hours count by now, and after a start take over what is stored.

        Raises HistoryChanged where the store is at an earlier state than it was.
        """
        if not self.restored:
            history = await store.history()
            self.evictions_lost_until = max(self.evictions_lost_until, history.lost_until)
            if not history.regained:
                self._lose(history.lost_until)
        hours, since_hour = peak_hours(at, look_ahead_seconds), first_hour_of_history(at)
        if hours != self.peaks.hours:
            earlier = self.peaks
            self.peaks = PeakNumbers.of(await store.peak_summary(hours, since_hour), hours, since_hour)
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
                self.refusals.restore(block)
        self.restored = True

    def judge(self, block: SampleBlock | None, attribution: Attribution) -> Judged:
        """Judge what was read, by itself."""
        block = block or NO_SAMPLES
        judgement = Judgement.of(block) if self.bounds is None else judge(block, self.bounds)
        return Judged(judgement, self._numbers(block, attribution))

    def nodes_with_news(self, judged: Judged) -> set[str]:
        """Return the nodes of containers that are shown above their known peaks."""
        known, numbers = self.peaks.known(), judged.numbers
        # What has no owner raises nothing.
        cpu, memory = (np.append(one, np.inf)[numbers] for one in (known.cpu_peak_millicores, known.memory_peak_bytes))
        return nodes_with_news(judged.judgement.block, cpu, memory)

    async def record(
        self,
        store: Store,
        partition: str,
        progress: PartitionProgress,
        judged: Judged,
        at: int,
    ) -> None:
        """Store what was read and how far, then take it over; samples without an owner any more are left out."""
        block, numbers = judged.judgement.block, judged.numbers
        self.refusals.add(judged.judgement)
        peaks = hourly_peaks(block, numbers, self.peaks.keys)
        young = young_part(block, numbers >= 0, at - WINDOW_SECONDS)
        before = self.progress.get(partition)
        continues = None if before is None else before.read_until
        await store.record_usage(UsageAdvance(partition, progress, peaks, young, continues))
        self.progress[partition] = progress
        self.peaks.merge(peaks)
        self.windows.append(block, numbers)

    def _numbers(self, block: SampleBlock, attribution: Attribution) -> Int64Array:
        """Return what each container's peaks belong to, -1 where that is not known."""
        numbers = np.empty(len(block.keys), dtype=np.int64)
        for index, key in enumerate(block.keys):
            number = self.windows.number_of(key)
            if number < 0:
                peak_key = attribution.peak_key(key, block.nodes[index] if block.nodes else "")
                number = -1 if peak_key is None else self.peaks.number(peak_key)
            numbers[index] = number
        return numbers


def young_part(block: SampleBlock, owned: BoolArray, after: int) -> SampleBlock | None:
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
        refused=None if block.refused is None else block.refused[np.ix_(rows, columns)],
    )
