"""Reading usage forward: what is new since each partition's progress, in bounded chunks that are each stored whole.

The oldest hours come first, also at the first start. Counters then continue from chunk to chunk, one interval is all
that was read, and there are no statistics before the whole history is there: statistics of the last hour alone would
shrink what peaks every day.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import structlog

from cruise.decisions.usage.attribution import UsageAttribution
from cruise.decisions.usage.node_totals import check_against_node_usage
from cruise.decisions.usage.peaks import HOUR_SECONDS, get_first_history_hour
from cruise.domain.usage import CounterTail, PartitionProgress, SampleBlock
from cruise.errors import BadInputError, CruiseError, raise_single_error
from cruise.runtime.ports import StorePort, UsageSourcePort
from cruise.runtime.usage.usage_state import CheckedUsageBlock, FailedUsageRead, UsageState

log = structlog.get_logger()

T = TypeVar("T")

Gap = tuple[int, int, int]
Read = tuple[SampleBlock, CounterTail | None]

# After the fact: the last scrapes of a time may not be in yet.
SETTLE_SECONDS = 30


@dataclass(frozen=True, slots=True)
class UsageReadingSettings:
    """How usage is read: on which grid, how long after the fact, and how much at once.

    `measures_settle`: where the last steps are missing after `settle_seconds`, reads stay behind for longer.
    `step_seconds` divides an hour. A chunk is whole hours where its containers are few enough, between
    `shortest_chunk_seconds` and `longest_chunk_seconds`.
    """

    step_seconds: int = 60
    scrape_delay_seconds: int = SETTLE_SECONDS
    measures_scrape_delay: bool = False
    samples_per_chunk: int = 1_000_000
    shortest_chunk_seconds: int = 900
    longest_chunk_seconds: int = 24 * HOUR_SECONDS
    partitions_at_once: int = 4

    def get_last_complete_time(self, now_seconds: float) -> int:
        """Return the last grid time that is over for long enough to have its samples."""
        return int(now_seconds - self.scrape_delay_seconds) // self.step_seconds * self.step_seconds

    def get_chunk_seconds(self, containers: int) -> int:
        """Return how much time a chunk of a partition of so many containers spans."""
        seconds = self.samples_per_chunk // max(1, containers) * self.step_seconds
        seconds = min(max(seconds, self.shortest_chunk_seconds), self.longest_chunk_seconds)
        unit = HOUR_SECONDS if seconds >= HOUR_SECONDS else self.step_seconds
        return seconds // unit * unit


@dataclass(frozen=True, slots=True)
class UsageReadingProgress:
    """How much of what a pass has to read is read, in container-hours, each pod counted as if it had always been."""

    done_container_hours: float
    total_container_hours: float


class UsageReader:
    """One pass's reading of all partitions up to the grid time `at`."""

    def __init__(
        self,
        source: UsageSourcePort,
        store: StorePort,
        state: UsageState,
        attribution: UsageAttribution,
        reading: UsageReadingSettings,
        at: int,
        on_progress: Callable[[UsageReadingProgress], None] | None,
    ) -> None:
        self._source, self._store, self._state = source, store, state
        self._attribution, self._reading, self._at = attribution, reading, at
        self._on_progress = on_progress
        self._horizon = get_first_history_hour(at) * HOUR_SECONDS
        self._at_once = asyncio.Semaphore(reading.partitions_at_once)
        # Partitions share the peaks of workloads: two writes at once would wait for each other's rows.
        self._writing = asyncio.Lock()
        self._read_something = False
        self._failures: list[tuple[FailedUsageRead, CruiseError]] = []
        self._unrecorded: dict[str, PartitionProgress] = {}
        self._seconds_left: dict[str, int] = {}
        self._seconds_in_all = 0
        self._containers_each = 0.0

    async def read(self, partitions: Sequence[str], containers: int) -> Sequence[FailedUsageRead]:
        """Read every partition as far as it goes; return what failed.

        A failed chunk becomes a gap, and its partition waits for the next pass, which tries the gap once more and then
        goes on without it. Raises the source's error where nothing at all could be read: then no gap is counted, and
        the next pass starts where this one did. Raises Unavailable where the store is lost.
        """
        self._containers_each = containers / max(1, len(partitions))
        known = {partition: self._known_progress(partition) for partition in partitions}
        self._seconds_left = {partition: self._at - one.read_until for partition, one in known.items()}
        self._seconds_in_all = sum(self._seconds_left.values())
        with raise_single_error():
            if self._is_one_step(known.values()):
                await self._to_the_end(self._read_together(known))
            else:
                async with asyncio.TaskGroup() as group:
                    for partition, progress in known.items():
                        group.create_task(self._read_partition(partition, progress))
        if self._failures and not self._read_something:
            errors = [error for _, error in self._failures]
            raise next((error for error in errors if isinstance(error, BadInputError)), errors[0])
        for partition, progress in self._unrecorded.items():
            await self._state.record(
                self._store, partition, progress, self._state.reject_implausible(None, self._attribution), self._at
            )
        return [failure for failure, _ in self._failures]

    def _known_progress(self, partition: str) -> PartitionProgress:
        """Return how far a partition was read, without what is too old to count."""
        known = self._state.progress.get(partition)
        if known is None or known.read_until < self._horizon:
            return PartitionProgress(self._horizon, self._horizon)
        step = self._reading.step_seconds
        gaps = tuple(gap for gap in known.gaps if gap[1] > self._horizon and not (gap[0] % step or gap[1] % step))
        # Where the step was set to something else, reading goes on with the next time on the new grid.
        read_until = -(-known.read_until // step) * step
        return replace(known, read_from=max(known.read_from, self._horizon), read_until=read_until, gaps=gaps)

    def _is_one_step(self, known: Collection[PartitionProgress]) -> bool:
        """Tell whether all partitions have the same to read, and little enough to hold it at once."""
        longest = self._reading.get_chunk_seconds(math.ceil(self._containers_each * len(known)))
        return (
            self._state.bounds is not None
            and len({one.read_until for one in known}) == 1
            and all(0 < self._at - one.read_until <= longest for one in known)
            and not any(gap[2] == 1 for one in known for gap in one.gaps)
        )

    async def _read_together(self, known: Mapping[str, PartitionProgress]) -> None:
        """Read what is new of all partitions, judge the containers of each node together, and store it."""
        async with asyncio.TaskGroup() as group:
            reads = {
                partition: group.create_task(
                    self._read(partition, progress.read_until, self._at, progress.counter_tail)
                )
                for partition, progress in known.items()
            }
        found = {partition: read for partition, task in reads.items() if (read := task.result()) is not None}
        judged = await self._judged_together(
            [self._state.reject_implausible(block, self._attribution) for block, _ in found.values()]
        )
        for (partition, (_, tail)), one in zip(found.items(), judged, strict=True):
            await self._take(partition, replace(known[partition], read_until=self._at, counter_tail=tail), one)
        for partition in known.keys() - found.keys():
            self._unread(partition, known[partition], self._at)

    async def _judged_together(self, judged: Sequence[CheckedUsageBlock]) -> Sequence[CheckedUsageBlock]:
        """Judge containers that are higher than ever beside their neighbours, as far as their nodes' use is known."""
        bounds = self._state.bounds
        nodes = set[str]().union(*(self._state.find_nodes_with_new_peaks(one) for one in judged))
        if not nodes or bounds is None:
            return judged
        first = min(int(one.judgement.block.times[0]) for one in judged)
        try:
            roots = await self._source.node_use(sorted(nodes), first - self._reading.step_seconds, self._at)
        except CruiseError as error:
            log.info("use of nodes not read", nodes=len(nodes), why=str(error))
            return judged
        if not roots.nodes:
            return judged
        judgements = check_against_node_usage([one.judgement for one in judged], bounds.pods, roots)
        return [CheckedUsageBlock(judgement, one.numbers) for judgement, one in zip(judgements, judged, strict=True)]

    async def _read_partition(self, partition: str, progress: PartitionProgress) -> None:
        for gap in [gap for gap in progress.gaps if gap[2] == 1]:
            progress = await self._to_the_end(self._retry_gap(partition, progress, gap))
        for start, end in self._chunks(progress.read_until):
            progress, succeeded = await self._to_the_end(self._read_chunk(partition, progress, start, end))
            if not succeeded:
                return

    async def _retry_gap(self, partition: str, progress: PartitionProgress, gap: Gap) -> PartitionProgress:
        start, end, _ = gap
        others = tuple(other for other in progress.gaps if other != gap)
        read = await self._read(partition, start, end, progress.counter_tail)
        if read is None:
            # What the database has lost is asked for until it is there: no size may rest on a history without it.
            tries = 1 if start < self._state.history_lost_until else 2
            progress = replace(progress, gaps=join_gaps((*others, (start, end, tries))))
            self._unrecorded[partition] = progress
            return progress
        block, tail = read
        tail = tail if end == progress.read_until else progress.counter_tail
        progress = replace(progress, gaps=others, counter_tail=tail)
        await self._record(partition, progress, self._state.reject_implausible(block, self._attribution))
        return progress

    async def _read_chunk(
        self, partition: str, progress: PartitionProgress, start: int, end: int
    ) -> tuple[PartitionProgress, bool]:
        read = await self._read(partition, start, end, progress.counter_tail)
        if read is None:
            self._unread(partition, progress, end)
            return progress, False
        block, tail = read
        progress = replace(progress, read_until=end, counter_tail=tail)
        await self._take(partition, progress, self._state.reject_implausible(block, self._attribution))
        return progress, True

    async def _take(self, partition: str, progress: PartitionProgress, judged: CheckedUsageBlock) -> None:
        await self._record(partition, progress, judged)
        self._seconds_left[partition] = self._at - progress.read_until
        self._report_progress()

    def _unread(self, partition: str, progress: PartitionProgress, end: int) -> None:
        # The tail stays as it is: it continues the counters once the gap is tried again.
        gaps = join_gaps((*progress.gaps, (progress.read_until, end, 1)))
        self._unrecorded[partition] = replace(progress, read_until=end, gaps=gaps)

    async def _read(self, partition: str, start: int, end: int, tail: CounterTail | None) -> Read | None:
        async with self._at_once:
            try:
                continues = tail if tail is not None and tail.at == start else None
                read = await self._source.read(partition, start, end, continues)
            except CruiseError as error:
                self._failures.append((FailedUsageRead(partition, start, end, str(error)), error))
                return None
        self._read_something = True
        return read

    async def _record(self, partition: str, progress: PartitionProgress, judged: CheckedUsageBlock) -> None:
        async with self._writing:
            await self._state.record(self._store, partition, progress, judged, self._at)
        self._unrecorded.pop(partition, None)

    def _chunks(self, start: int) -> Iterator[tuple[int, int]]:
        length = self._reading.get_chunk_seconds(math.ceil(self._containers_each))
        while start < self._at:
            end = min(start + length, self._at)
            yield start, end
            start = end

    def _report_progress(self) -> None:
        if self._on_progress is not None:
            hours = self._containers_each / HOUR_SECONDS
            left = sum(self._seconds_left.values())
            self._on_progress(UsageReadingProgress((self._seconds_in_all - left) * hours, self._seconds_in_all * hours))

    async def _to_the_end(self, work: Awaitable[T]) -> T:
        """Finish a chunk that is being read, even when stopped: what is not stored has to be read twice."""
        chunk = asyncio.ensure_future(work)
        try:
            return await asyncio.shield(chunk)
        except asyncio.CancelledError:
            await asyncio.wait([chunk])
            chunk.result()
            raise


def join_gaps(gaps: Sequence[Gap]) -> tuple[Gap, ...]:
    """Join neighbouring gaps that stay unknown; sorted by time."""
    joined: list[Gap] = []
    for gap in sorted(gaps):
        if joined and joined[-1][1] == gap[0] and joined[-1][2] == gap[2] == 2:
            joined[-1] = (joined[-1][0], gap[1], 2)
        else:
            joined.append(gap)
    return tuple(joined)
