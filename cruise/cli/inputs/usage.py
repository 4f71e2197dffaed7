"""Usage statistics for one report, from Prometheus or from a short sample of the kubelets."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import numpy as np
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn

from cruise.adapters.kube.client import connect_to_kubernetes
from cruise.adapters.kubelets.client import KubeletAccessMode, KubeletClient
from cruise.adapters.kubelets.source import KubeletUsageSource, read_kubelets_twice
from cruise.adapters.prometheus.source import PrometheusUsageSource
from cruise.app.process import get_current_time
from cruise.app.usage_source import READING_INTERVAL, get_current_seconds
from cruise.cli.terminal import print_error, show_progress, show_spinner, suppress_logs
from cruise.decisions.oom import build_oom_records
from cruise.decisions.preflight.usage import CLUSTER_FIX, describe_cluster_series
from cruise.decisions.usage.oom_records import raise_oom_memory_by_record
from cruise.decisions.usage.plausibility import estimate_from_short_sample
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
# A failed chunk is read again once; a second failure ends the command.
_PASSES = 2


@dataclass(frozen=True, slots=True)
class RecordedCluster:
    """A recorded cluster as a source of snapshots."""

    recording: ClusterSnapshot

    async def snapshot(self) -> ClusterSnapshot:
        """Return the recording."""
        return self.recording


def read_prometheus_usage(
    snapshot: ClusterSnapshot, prometheus: "PrometheusSettings", history: str, now: datetime | None, policy: Policy
) -> tuple[StatisticsTable, datetime, str]:
    """Read `history` of usage until `now` (default: the clock); return statistics, time and source in words.

    BadInputError if the server does not answer completely.
    """
    at = now or get_current_time()
    try:
        with suppress_logs():
            table, cluster = asyncio.run(_read(snapshot, prometheus, parse_duration(history), at, policy))
    except (ThrottledError, UnavailableError) as error:
        raise BadInputError(f"{error}; try again later, or add --usage") from error
    if not cluster.distinguishes_clusters:
        print_error(f"{describe_cluster_series(cluster)}; {CLUSTER_FIX}")
    if not table.keys:
        raise BadInputError(
            f"Prometheus at {prometheus.url} has no usage of this cluster's containers in the last {history}: "
            "check the label names and prometheus_matchers, and that snapshot and server belong to one cluster"
        )
    selection = f" with {cluster.matchers}" if cluster.matchers else ""
    warning = (
        "" if cluster.distinguishes_clusters else ", which also has other clusters' series without a distinct label"
    )
    return table, at, f"{history} of usage from Prometheus at {prometheus.url}{selection}{warning}"


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
        for partition in await source.list_partitions(snapshot):
            # Reading starts here instead of a week ago.
            await store.record_usage(UsageUpdate(partition, PartitionProgress(start, start), _NO_PEAKS, None))
        with show_usage_progress() as show:
            for _ in range(_PASSES):
                table = await run_usage_pass(cluster, source, store, state, policy, now, reading, show)
                if not state.failures:
                    break
        if not state.failures:
            oom_records = build_oom_records(snapshot.oom_kills, table)
            for record in oom_records:
                await store.record_oom_kill(record)
            # The OOM memory depends on usage; this pass reads nothing again.
            if oom_records:
                table = await run_usage_pass(cluster, source, store, state, policy, now, reading)
            return table, source.cluster
    finally:
        source.close()
    failure = state.failures[0]
    raise UnavailableError(f"{failure.reason} ({len(state.failures)} of the reads failed twice)")


_NO_PEAKS = HourlyPeaks((), np.empty(0, np.int64), np.empty(0), np.empty(0))


@contextmanager
def show_usage_progress() -> Iterator[Callable[[UsageReadingProgress], None]]:
    """Show the progress of reading usage on a terminal."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,.0f} of {task.total:,.0f} container-hours"),
        TimeRemainingColumn(),
    )
    # Hidden until the total is known.
    with show_progress("reading usage", *columns, visible=False) as update:
        yield lambda read: update(completed=read.done_container_hours, total=read.total_container_hours, visible=True)


# A short sample from the kubelets.

if TYPE_CHECKING:
    from cruise.settings import Settings

_STEP_SECONDS = 60


def read_kubelet_usage(snapshot: ClusterSnapshot, settings: "Settings") -> tuple[StatisticsTable, datetime, str]:
    """Read every kubelet twice, a minute apart; return statistics, time and source in words.

    BadInputError if none can be read.
    """
    nodes = len(snapshot.nodes)
    try:
        with suppress_logs(), show_spinner(f"reading {nodes:,} kubelets twice, a minute apart (short sample)"):
            table, at = asyncio.run(_read_from_kubelets(snapshot, settings))
    except (ThrottledError, UnavailableError) as error:
        fix = (
            ""
            if settings.kubelet_access is KubeletAccessMode.NODE_PROXY
            else "set kubelet_access=node-proxy outside of it, or "
        )
        raise BadInputError(f"{error}; nodes must be reachable as from within the cluster: {fix}add --usage") from error
    if not table.keys:
        raise BadInputError("the kubelets report none of this cluster's containers; add --usage or --prometheus-url")
    return table, at, "a short sample: two readings of the kubelets, a minute apart, without peaks"


async def _read_from_kubelets(snapshot: ClusterSnapshot, settings: "Settings") -> tuple[StatisticsTable, datetime]:
    async with (
        connect_to_kubernetes(settings.to_kubernetes_settings()) as client,
        aclosing(KubeletClient(settings.to_kubelet_settings(), client)) as kubelets,
    ):
        source = KubeletUsageSource(settings.to_kubelet_settings(), kubelets.read_metrics)
        partitions = await source.list_partitions(snapshot)
        # The first reading was measured a little earlier.
        start = (int(get_current_seconds()) // _STEP_SECONDS - 2) * _STEP_SECONDS
        await read_kubelets_twice(source, get_current_seconds, READING_INTERVAL.total_seconds())
        at = int(get_current_seconds()) // _STEP_SECONDS * _STEP_SECONDS
        blocks = [(await source.read(partition, start, at, None))[0] for partition in partitions]
    if source.failures:
        first = next(iter(source.failures.values()))
        print_error(f"skipped {len(source.failures):,} of {len(snapshot.nodes):,} kubelets: {first}")
    table = estimate_from_short_sample(blocks, snapshot, at)
    for record in build_oom_records(snapshot.oom_kills, table):
        table = raise_oom_memory_by_record(table, record, shared=record.applies_to_workload)
    return table, datetime.fromtimestamp(at, UTC)
