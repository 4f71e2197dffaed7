"""Reads usage forward from each partition's progress, in bounded chunks that are each stored in one transaction.

The oldest hours are read first, also at the first start, so that counters continue from chunk to chunk. There are no
statistics before the whole history is read: those of the last hour alone would shrink workloads with daily peaks.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import structlog

from cruise.decisions.usage.attribution import UsageAttribution
from cruise.decisions.usage.node_totals import reject_samples_above_node_usage
from cruise.decisions.usage.peaks import HOUR_SECONDS, get_first_history_hour
from cruise.domain.usage import PartitionCounterTail, PartitionProgress, SampleBlock
from cruise.errors import BadInputError, CruiseError, raise_single_error
from cruise.runtime.ports import StorePort, UsageSourcePort
from cruise.runtime.usage.usage_state import CheckedUsageBlock, FailedUsageRead, UsageState

log = structlog.get_logger()

T = TypeVar("T")

Gap = tuple[int, int, int]
Read = tuple[SampleBlock, PartitionCounterTail | None]

# Prometheus may not have the last scrapes of a time yet.
SETTLE_SECONDS = 30


@dataclass(frozen=True, slots=True)
class UsageReadingSettings:
    """The grid of samples, the delay after which they are read, and the size of chunks.

    With `measures_scrape_delay` the delay increases if the last steps are missing after `scrape_delay_seconds`.
    `step_seconds` divides an hour. A chunk is whole hours if its containers are few enough, between
    `shortest_chunk_seconds` and `longest_chunk_seconds`. After a cancellation the chunks in progress have
    `finish_seconds`.
    """

    step_seconds: int = 60
    scrape_delay_seconds: int = SETTLE_SECONDS
    measures_scrape_delay: bool = False
    samples_per_chunk: int = 1_000_000
    shortest_chunk_seconds: int = 900
    longest_chunk_seconds: int = 24 * HOUR_SECONDS
    partitions_at_once: int = 4
    finish_seconds: float = 5.0

    def get_last_complete_time(self, now_seconds: float) -> int:
        """Return the last grid time whose samples are expected to be complete."""
        return int(now_seconds - self.scrape_delay_seconds) // self.step_seconds * self.step_seconds

    def get_chunk_seconds(self, containers: int) -> int:
        """Return the duration of a chunk of a partition with a number of containers."""
        seconds = self.samples_per_chunk // max(1, containers) * self.step_seconds
        seconds = min(max(seconds, self.shortest_chunk_seconds), self.longest_chunk_seconds)
        unit = HOUR_SECONDS if seconds >= HOUR_SECONDS else self.step_seconds
        return seconds // unit * unit


@dataclass(frozen=True, slots=True)
class UsageReadingProgress:
    """How much of a pass is read, in container-hours, as if every pod had always existed."""

    done_container_hours: float
    total_container_hours: float


class UsageReader:
    """Reads all partitions up to the grid time `at`, for one pass."""

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
        self._semaphore = asyncio.Semaphore(reading.partitions_at_once)
        # Partitions share the peaks of workloads: concurrent writes would block on each other's rows.
        self._writing = asyncio.Lock()
        self._read_something = False
        # A part of usage that cannot be read at all must not cost a query in every pass.
        self._retries_all = at // HOUR_SECONDS != state.gaps_retried_hour
        self._failures: list[tuple[FailedUsageRead, CruiseError]] = []
        self._unrecorded: dict[str, PartitionProgress] = {}
        self._remaining_seconds: dict[str, int] = {}
        self._total_seconds = 0
        self._containers_per_partition = 0.0

    async def read(self, partitions: Sequence[str], containers: int) -> Sequence[FailedUsageRead]:
        """Read every partition as far as possible; return what failed.

        A failed chunk becomes a gap, and its partition is continued in the next pass, which retries the gap. A gap that
        failed twice is retried in the first pass of each clock hour; these reads are not among the failures.
        Raises the source's error if nothing could be read: then no gap is counted, and the next pass starts where this
        one did. Raises UnavailableError if the database is unreachable.
        """
        self._containers_per_partition = containers / max(1, len(partitions))
        known = {partition: self._get_progress(partition) for partition in partitions}
        self._remaining_seconds = {partition: self._at - one.read_until for partition, one in known.items()}
        self._total_seconds = sum(self._remaining_seconds.values())
        with raise_single_error():
            if self._is_one_step(known.values()):
                await self._finish(self._read_together(known))
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
        self._state.gaps_retried_hour = self._at // HOUR_SECONDS
        return [failure for failure, _ in self._failures]

    def _get_progress(self, partition: str) -> PartitionProgress:
        """Return the progress of a partition, without gaps that are too old to count."""
        known = self._state.progress.get(partition)
        if known is None or known.read_until < self._horizon:
            return PartitionProgress(self._horizon, self._horizon)
        step = self._reading.step_seconds
        gaps = tuple(gap for gap in align_gaps(known.gaps, step) if gap[1] > self._horizon)
        # After a change of the step, reading continues with the next time of the new grid.
        read_until = -(-known.read_until // step) * step
        return replace(known, read_from=max(known.read_from, self._horizon), read_until=read_until, gaps=gaps)

    def _is_one_step(self, known: Collection[PartitionProgress]) -> bool:
        """Tell whether all partitions have the same interval to read, short enough to be kept in memory together."""
        chunk_seconds = self._reading.get_chunk_seconds(math.ceil(self._containers_per_partition * len(known)))
        return (
            self._state.bounds is not None
            and len({one.read_until for one in known}) == 1
            and all(0 < self._at - one.read_until <= chunk_seconds for one in known)
            and not any(self._is_due(gap) for one in known for gap in one.gaps)
        )

    async def _read_together(self, known: Mapping[str, PartitionProgress]) -> None:
        """Read the new samples of all partitions, check the containers of each node together, and store them."""
        async with asyncio.TaskGroup() as group:
            reads = {
                partition: group.create_task(
                    self._read(partition, progress.read_until, self._at, progress.counter_tail)
                )
                for partition, progress in known.items()
            }
        found = {partition: read for partition, task in reads.items() if (read := task.result()) is not None}
        checked = await self._check_against_nodes(
            [self._state.reject_implausible(block, self._attribution) for block, _ in found.values()]
        )
        for (partition, (_, tail)), one in zip(found.items(), checked, strict=True):
            await self._record_chunk(partition, replace(known[partition], read_until=self._at, counter_tail=tail), one)
        for partition in known.keys() - found.keys():
            self._add_gap(partition, known[partition], self._at)

    async def _check_against_nodes(self, checked: Sequence[CheckedUsageBlock]) -> Sequence[CheckedUsageBlock]:
        """Check containers with new peaks against the total usage of their nodes, where it is known."""
        bounds = self._state.bounds
        nodes = set[str]().union(*(self._state.find_nodes_with_new_container_peaks(one) for one in checked))
        if not nodes or bounds is None:
            return checked
        first = min(int(one.checked_block.block.times[0]) for one in checked)
        try:
            node_usage = await self._source.read_node_usage(sorted(nodes), first - self._reading.step_seconds, self._at)
        except CruiseError as error:
            log.info("use of nodes not read", nodes=len(nodes), why=str(error))
            return checked
        if not node_usage.nodes:
            return checked
        checked_blocks = reject_samples_above_node_usage(
            [one.checked_block for one in checked], bounds.pods, node_usage
        )
        return [
            CheckedUsageBlock(checked_block, one.numbers)
            for checked_block, one in zip(checked_blocks, checked, strict=True)
        ]

    def _is_due(self, gap: Gap) -> bool:
        return gap[2] == 1 or self._retries_all

    async def _read_partition(self, partition: str, progress: PartitionProgress) -> None:
        # Given-up gaps that were joined may be longer than a chunk.
        due = [(*part, gap[2]) for gap in progress.gaps if self._is_due(gap) for part in self._list_chunks(*gap[:2])]
        progress = replace(progress, gaps=(*(gap for gap in progress.gaps if not self._is_due(gap)), *due))
        for gap in due:
            progress, succeeded = await self._finish(self._retry_gap(partition, progress, gap))
            if not succeeded:
                break
        for start, end in self._list_chunks(progress.read_until, self._at):
            progress, succeeded = await self._finish(self._read_chunk(partition, progress, start, end))
            if not succeeded:
                return

    async def _retry_gap(self, partition: str, progress: PartitionProgress, gap: Gap) -> tuple[PartitionProgress, bool]:
        start, end, tries = gap
        others = tuple(other for other in progress.gaps if other != gap)
        read = await self._read(partition, start, end, progress.counter_tail, is_given_up=tries > 1)
        if read is None:
            # A gap in what the database has lost is retried in every pass: nothing shrinks until it is read.
            tries = 1 if tries == 1 and start < self._state.history_lost_until else 2
            progress = replace(progress, gaps=join_gaps((*others, (start, end, tries))))
            self._unrecorded[partition] = progress
            return progress, False
        block, tail = read
        tail = tail if end == progress.read_until else progress.counter_tail
        progress = replace(progress, gaps=others, counter_tail=tail)
        await self._record(partition, progress, self._state.reject_implausible(block, self._attribution))
        return progress, True

    async def _read_chunk(
        self, partition: str, progress: PartitionProgress, start: int, end: int
    ) -> tuple[PartitionProgress, bool]:
        read = await self._read(partition, start, end, progress.counter_tail)
        if read is None:
            self._add_gap(partition, progress, end)
            return progress, False
        block, tail = read
        progress = replace(progress, read_until=end, counter_tail=tail)
        await self._record_chunk(partition, progress, self._state.reject_implausible(block, self._attribution))
        return progress, True

    async def _record_chunk(self, partition: str, progress: PartitionProgress, checked: CheckedUsageBlock) -> None:
        await self._record(partition, progress, checked)
        self._remaining_seconds[partition] = self._at - progress.read_until
        self._report_progress()

    def _add_gap(self, partition: str, progress: PartitionProgress, end: int) -> None:
        # The tail stays: it continues the counters when the gap is retried.
        gaps = join_gaps((*progress.gaps, (progress.read_until, end, 1)))
        self._unrecorded[partition] = replace(progress, read_until=end, gaps=gaps)

    async def _read(
        self, partition: str, start: int, end: int, tail: PartitionCounterTail | None, *, is_given_up: bool = False
    ) -> Read | None:
        async with self._semaphore:
            try:
                tail_at_start = tail if tail is not None and tail.at == start else None
                read = await self._source.read(partition, start, end, tail_at_start)
            except CruiseError as error:
                if is_given_up:
                    log.info("usage still not read", partition=partition, start=start, end=end, error=str(error))
                else:
                    self._failures.append((FailedUsageRead(partition, start, end, str(error)), error))
                return None
        self._read_something = True
        return read

    async def _record(self, partition: str, progress: PartitionProgress, checked: CheckedUsageBlock) -> None:
        async with self._writing:
            await self._state.record(self._store, partition, progress, checked, self._at)
        self._unrecorded.pop(partition, None)

    def _list_chunks(self, start: int, until: int) -> Iterator[tuple[int, int]]:
        length = self._reading.get_chunk_seconds(math.ceil(self._containers_per_partition))
        while start < until:
            end = min(start + length, until)
            yield start, end
            start = end

    def _report_progress(self) -> None:
        if self._on_progress is not None:
            hours = self._containers_per_partition / HOUR_SECONDS
            remaining = sum(self._remaining_seconds.values())
            self._on_progress(
                UsageReadingProgress((self._total_seconds - remaining) * hours, self._total_seconds * hours)
            )

    async def _finish(self, work: Awaitable[T]) -> T:
        """Finish a chunk that is being read, even if cancelled: otherwise it must be read again.

        It has a few seconds for that, because the next leader waits for the end of this one.
        """
        chunk = asyncio.ensure_future(work)
        try:
            return await asyncio.shield(chunk)
        except asyncio.CancelledError:
            done, _ = await asyncio.wait([chunk], timeout=self._reading.finish_seconds)
            if done:
                chunk.result()
            chunk.cancel()
            raise


def align_gaps(gaps: Sequence[Gap], step_seconds: int) -> tuple[Gap, ...]:
    """Return the parts of gaps that are on the grid of a step: nothing around them is read twice."""
    aligned = [
        (-(-start // step_seconds) * step_seconds, end // step_seconds * step_seconds, tries)
        for start, end, tries in gaps
    ]
    return tuple(gap for gap in aligned if gap[0] < gap[1])


def join_gaps(gaps: Sequence[Gap]) -> tuple[Gap, ...]:
    """Join adjacent gaps that were given up; sorted by time."""
    joined: list[Gap] = []
    for gap in sorted(gaps):
        if joined and joined[-1][1] == gap[0] and joined[-1][2] == gap[2] == 2:
            joined[-1] = (joined[-1][0], gap[1], 2)
        else:
            joined.append(gap)
    return tuple(joined)
