"""Statistics for one look at a cluster, read from a Prometheus server with a bar that shows how long it takes."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import numpy as np
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn

from cruise.adapters.prometheus.source import PrometheusSource
from cruise.app.clock import wall_clock
from cruise.cli.terminal import complain, progress, quiet_logs
from cruise.decisions.oom import learn_in_turn
from cruise.decisions.preflight.plausibility import CLUSTER_FIX, cluster_words
from cruise.domain.cluster import Snapshot
from cruise.domain.policy import Policy
from cruise.domain.preflight import ClusterFacts
from cruise.domain.usage import HourlyPeaks, PartitionProgress, StatisticsTable, UsageAdvance
from cruise.errors import BadInput, Throttled, Unavailable
from cruise.runtime.usage.reading import ReadingProgress, UsageReading
from cruise.runtime.usage.state import UsageState
from cruise.runtime.usage.usage_pass import usage_pass
from cruise.settings.forms import parse_duration
from cruise.simulation.store.store import MemoryStore

if TYPE_CHECKING:
    from cruise.adapters.prometheus.settings import PrometheusSettings

HOUR_SECONDS = 3600
# A chunk that failed is read once more; what fails twice would make the report a half-truth.
_PASSES = 2


@dataclass(frozen=True, slots=True)
class RecordedCluster:
    """A cluster as it was recorded."""

    recorded: Snapshot

    async def snapshot(self) -> Snapshot:
        """Return the recording."""
        return self.recorded


def read_usage_of(
    snapshot: Snapshot, prometheus: "PrometheusSettings", history: str, now: datetime | None, policy: Policy
) -> tuple[StatisticsTable, datetime, str]:
    """Read `history` of usage up to `now` (by default the clock); return statistics, time, and source in words.

    Raises BadInput for everything that keeps the server from answering in full.
    """
    at = now or wall_clock()
    try:
        with quiet_logs():
            table, cluster = asyncio.run(_read(snapshot, prometheus, parse_duration(history), at, policy))
    except (Throttled, Unavailable) as error:
        raise BadInput(f"{error}; try again later, or give --usage") from error
    if not cluster.told_apart:
        complain(f"{cluster_words(cluster)}; {CLUSTER_FIX}")
    if not table.keys:
        raise BadInput(
            f"Prometheus at {prometheus.url} has no usage of this cluster's containers in the last {history}: "
            "see the label names and prometheus_matchers, and whether snapshot and server are of one cluster"
        )
    of_cluster = f" with {cluster.matchers}" if cluster.matchers else ""
    doubt = "" if cluster.told_apart else ", which has series of other clusters that no label tells apart"
    return table, at, f"{history} of usage from Prometheus at {prometheus.url}{of_cluster}{doubt}"


async def _read(
    snapshot: Snapshot, prometheus: "PrometheusSettings", history: timedelta, now: datetime, policy: Policy
) -> tuple[StatisticsTable, ClusterFacts]:
    cluster, store, state = RecordedCluster(snapshot), MemoryStore(), UsageState()
    reading = UsageReading(
        step_seconds=prometheus.step_seconds,
        samples_per_chunk=prometheus.max_samples_per_query,
        partitions_at_once=prometheus.concurrency,
    )
    start = int((now - history).timestamp()) // HOUR_SECONDS * HOUR_SECONDS
    source = PrometheusSource(prometheus, now.timestamp)
    try:
        for partition in await source.partitions(snapshot):
            # What was read before the start is nothing: so reading goes on from there, and not from a week ago.
            await store.record_usage(UsageAdvance(partition, PartitionProgress(start, start), _NO_PEAKS, None))
        with usage_bar() as show:
            for _ in range(_PASSES):
                table = await usage_pass(cluster, source, store, state, policy, now, reading, show)
                if not state.failures:
                    break
        if not state.failures:
            lessons = learn_in_turn(snapshot.oom_kills, table)
            for lesson in lessons:
                await store.record_oom(lesson)
            # What a kill teaches depends on what was used; nothing is read again for it.
            if lessons:
                table = await usage_pass(cluster, source, store, state, policy, now, reading)
            return table, source.cluster
    finally:
        source.close()
    failure = state.failures[0]
    raise Unavailable(f"{failure.why} ({len(state.failures)} of the reads failed twice)")


_NO_PEAKS = HourlyPeaks((), np.empty(0, np.int64), np.empty(0), np.empty(0))


@contextmanager
def usage_bar() -> Iterator[Callable[[ReadingProgress], None]]:
    """Show on a terminal how far the reading of usage is."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,.0f} of {task.total:,.0f} container-hours"),
        TimeRemainingColumn(),
    )
    # How much there is to read is not known at first, and the columns have no words for that.
    with progress("reading usage", *columns, visible=False) as update:
        yield lambda read: update(completed=read.done_container_hours, total=read.total_container_hours, visible=True)
