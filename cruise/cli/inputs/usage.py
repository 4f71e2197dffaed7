"""Statistics for one look at a cluster, read from a Prometheus server with a bar that shows how long it takes."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import numpy as np
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn

from cruise.adapters.kube.client import connect_to_kubernetes
from cruise.adapters.kubelets.client import KubeletAccess, KubeletClient
from cruise.adapters.kubelets.source import KubeletUsageSource, read_kubelets_twice
from cruise.adapters.prometheus.source import PrometheusUsageSource
from cruise.app.process import get_current_time
from cruise.app.usage_source import READING_INTERVAL, get_current_seconds
from cruise.cli.terminal import print_error, redirect_logs, show_progress, show_spinner
from cruise.decisions.oom import build_oom_records
from cruise.decisions.preflight.usage import CLUSTER_FIX, describe_cluster_series
from cruise.decisions.usage.cross_check import estimate_from_short_sample
from cruise.decisions.usage.oom_records import raise_oom_memory
from cruise.domain.cluster import ClusterSnapshot
from cruise.domain.policy import Policy
from cruise.domain.preflight import ClusterSeriesFacts
from cruise.domain.usage import HourlyPeaks, PartitionProgress, StatisticsTable, UsageUpdate
from cruise.errors import BadInputError, ThrottledError, UnavailableError
from cruise.runtime.usage.usage_pass import run_usage_pass
from cruise.runtime.usage.usage_reader import UsageReadingProgress, UsageReadingSettings
from cruise.runtime.usage.usage_state import UsageState
from cruise.settings.value_types import parse_duration
from cruise.simulation.store import InMemoryStore

if TYPE_CHECKING:
    from cruise.adapters.prometheus.settings import PrometheusSettings

HOUR_SECONDS = 3600
# A chunk that failed is read once more; what fails twice would make the report a half-truth.
_PASSES = 2


@dataclass(frozen=True, slots=True)
class RecordedCluster:
    """A cluster as it was recorded."""

    recorded: ClusterSnapshot

    async def snapshot(self) -> ClusterSnapshot:
        """Return the recording."""
        return self.recorded


def read_prometheus_usage(
    snapshot: ClusterSnapshot, prometheus: "PrometheusSettings", history: str, now: datetime | None, policy: Policy
) -> tuple[StatisticsTable, datetime, str]:
    """Read `history` of usage up to `now` (by default the clock); return statistics, time, and source in words.

    Raises BadInputError for everything that keeps the server from answering in full.
    """
    at = now or get_current_time()
    try:
        with redirect_logs():
            table, cluster = asyncio.run(_read(snapshot, prometheus, parse_duration(history), at, policy))
    except (ThrottledError, UnavailableError) as error:
        raise BadInputError(f"{error}; try again later, or give --usage") from error
    if not cluster.distinguishes_clusters:
        print_error(f"{describe_cluster_series(cluster)}; {CLUSTER_FIX}")
    if not table.keys:
        raise BadInputError(
            f"Prometheus at {prometheus.url} has no usage of this cluster's containers in the last {history}: "
            "see the label names and prometheus_matchers, and whether snapshot and server are of one cluster"
        )
    of_cluster = f" with {cluster.matchers}" if cluster.matchers else ""
    doubt = "" if cluster.distinguishes_clusters else ", which has series of other clusters that no label tells apart"
    return table, at, f"{history} of usage from Prometheus at {prometheus.url}{of_cluster}{doubt}"


async def _read(
    snapshot: ClusterSnapshot, prometheus: "PrometheusSettings", history: timedelta, now: datetime, policy: Policy
) -> tuple[StatisticsTable, ClusterSeriesFacts]:
    cluster, store, state = RecordedCluster(snapshot), InMemoryStore(), UsageState()
    reading = UsageReadingSettings(
        step_seconds=prometheus.step_seconds,
        samples_per_chunk=prometheus.max_samples_per_query,
        partitions_at_once=prometheus.concurrency,
    )
    start = int((now - history).timestamp()) // HOUR_SECONDS * HOUR_SECONDS
    source = PrometheusUsageSource(prometheus, now.timestamp)
    try:
        for partition in await source.partitions(snapshot):
            # What was read before the start is nothing: so reading goes on from there, and not from a week ago.
            await store.record_usage(UsageUpdate(partition, PartitionProgress(start, start), _NO_PEAKS, None))
        with show_usage_progress() as show:
            for _ in range(_PASSES):
                table = await run_usage_pass(cluster, source, store, state, policy, now, reading, show)
                if not state.failures:
                    break
        if not state.failures:
            lessons = build_oom_records(snapshot.oom_kills, table)
            for lesson in lessons:
                await store.record_oom(lesson)
            # What a kill teaches depends on what was used; nothing is read again for it.
            if lessons:
                table = await run_usage_pass(cluster, source, store, state, policy, now, reading)
            return table, source.cluster
    finally:
        source.close()
    failure = state.failures[0]
    raise UnavailableError(f"{failure.reason} ({len(state.failures)} of the reads failed twice)")


_NO_PEAKS = HourlyPeaks((), np.empty(0, np.int64), np.empty(0), np.empty(0))


@contextmanager
def show_usage_progress() -> Iterator[Callable[[UsageReadingProgress], None]]:
    """Show on a terminal how far the reading of usage is."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,.0f} of {task.total:,.0f} container-hours"),
        TimeRemainingColumn(),
    )
    # How much there is to read is not known at first, and the columns have no words for that.
    with show_progress("reading usage", *columns, visible=False) as update:
        yield lambda read: update(completed=read.done_container_hours, total=read.total_container_hours, visible=True)


# A glimpse of a cluster's usage, from its kubelets, for one report.

if TYPE_CHECKING:
    from cruise.settings import Settings

_STEP_SECONDS = 60


def read_kubelet_usage(snapshot: ClusterSnapshot, settings: "Settings") -> tuple[StatisticsTable, datetime, str]:
    """Read every kubelet twice, a minute apart; return statistics, time, and source in words.

    Raises BadInputError where none can be read.
    """
    nodes = len(snapshot.nodes)
    try:
        with redirect_logs(), show_spinner(f"reading {nodes:,} kubelets twice, a minute apart (a glimpse)"):
            table, at = asyncio.run(_read_from_kubelets(snapshot, settings))
    except (ThrottledError, UnavailableError) as error:
        fix = (
            ""
            if settings.kubelet_access is KubeletAccess.NODE_PROXY
            else "set kubelet_access=node-proxy outside of it, or "
        )
        raise BadInputError(
            f"{error}; nodes have to be reachable as from within the cluster: {fix}give --usage"
        ) from error
    if not table.keys:
        raise BadInputError("the kubelets tell of none of this cluster's containers; give --usage or --prometheus-url")
    return table, at, "a glimpse: two readings of the kubelets, a minute apart, which show no peaks"


async def _read_from_kubelets(snapshot: ClusterSnapshot, settings: "Settings") -> tuple[StatisticsTable, datetime]:
    async with (
        connect_to_kubernetes(settings.to_kubernetes_settings()) as client,
        aclosing(KubeletClient(settings.to_kubelet_settings(), client)) as asking,
    ):
        source = KubeletUsageSource(settings.to_kubelet_settings(), asking.read_metrics)
        partitions = await source.partitions(snapshot)
        # What is told at first was measured a little before.
        begun = (int(get_current_seconds()) // _STEP_SECONDS - 2) * _STEP_SECONDS
        await read_kubelets_twice(source, get_current_seconds, READING_INTERVAL.total_seconds())
        at = int(get_current_seconds()) // _STEP_SECONDS * _STEP_SECONDS
        blocks = [(await source.read(partition, begun, at, None))[0] for partition in partitions]
    if source.failures:
        first = next(iter(source.failures.values()))
        print_error(f"left aside, {len(source.failures):,} of {len(snapshot.nodes):,} kubelets: {first}")
    table = estimate_from_short_sample(blocks, snapshot, at)
    for lesson in build_oom_records(snapshot.oom_kills, table):
        table = raise_oom_memory(table, lesson, shared=lesson.applies_to_workload)
    return table, datetime.fromtimestamp(at, UTC)
