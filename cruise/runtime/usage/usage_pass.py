"""The usage pass: reads new samples, and estimates the statistics."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import numpy as np
import structlog

from cruise.decisions.usage.attribution import UsageAttribution
from cruise.decisions.usage.estimation import OWN_SAMPLES_SECONDS, estimate_statistics
from cruise.decisions.usage.oom_records import summarize_oom_records
from cruise.decisions.usage.revisions import OriginalResources, UpdatedRevisions, find_mixed_revisions, update_revisions
from cruise.decisions.usage.starts import StartWindows, add_start_cpu
from cruise.decisions.usage.usage_bounds import UsageBounds
from cruise.decisions.usage.usage_columns import (
    NEVER,
    EstimationTime,
    RunningContainers,
    add_earlier_rows,
    add_rejections,
    get_container_key,
)
from cruise.domain.arrays import Int64Array
from cruise.domain.cluster import ClusterSnapshot, ContainerRole, Pod
from cruise.domain.original_resources import NO_REVISIONS, WorkloadRevisions
from cruise.domain.policy import Policy
from cruise.domain.records import RETENTION
from cruise.domain.usage import StatisticKey, StatisticsTable
from cruise.errors import HistoryChangedError
from cruise.runtime.ports import SnapshotSource, StorePort, UsageSourcePort
from cruise.runtime.usage.sample_windows import UsageWindows
from cruise.runtime.usage.stored_statistics import read_original_resources
from cruise.runtime.usage.usage_reader import UsageReader, UsageReadingProgress, UsageReadingSettings
from cruise.runtime.usage.usage_state import UsageState

log = structlog.get_logger()

HISTORY_WINDOW = timedelta(days=7)
DEFAULT_READING = UsageReadingSettings()


async def run_usage_pass(
    cluster: SnapshotSource,
    source: UsageSourcePort,
    store: StorePort,
    state: UsageState,
    policy: Policy,
    now: datetime,
    reading: UsageReadingSettings = DEFAULT_READING,
    on_progress: Callable[[UsageReadingProgress], None] | None = None,
) -> StatisticsTable:
    """Read new samples, estimate the statistics of the last complete minute, store and return them.

    The first pass reads the whole history and may take long; if cancelled, the next pass continues. Statistics are
    estimated once every partition is read; until then the earlier ones are returned. Containers without recent samples
    keep their earlier row. Raises what `UsageReader.read` and the cluster raise.
    """
    snapshot = await cluster.snapshot()
    at = max(reading.get_last_complete_time(now.timestamp() - state.scrape_delay.seconds), state.windows.head)
    attribution = UsageAttribution.from_snapshot(snapshot)
    if policy.rules.plausibility_checks:
        state.bounds = UsageBounds.create(snapshot, int(now.timestamp()), state.bounds)
    partitions = await source.list_partitions(snapshot)
    containers = sum(len(pod.containers) for pod in snapshot.pods)
    reader = UsageReader(source, store, state, attribution, reading, at, on_progress)
    try:
        await state.restore_and_refresh(
            store, attribution, at, reading.step_seconds, int(policy.look_ahead.total_seconds())
        )
        state.start_windows = StartWindows.from_snapshot(snapshot, state.find_unread_since(partitions))
        state.failures = await reader.read(partitions, containers)
    except HistoryChangedError as error:
        log.warning(
            "the database was restored to an earlier state: usage is read again, nothing shrinks", error=str(error)
        )
        await state.forget(store, at)
        raise
    for failure in state.failures:
        log.warning(
            "usage not read", partition=failure.partition, start=failure.start, end=failure.end, error=failure.reason
        )
    for rejection, (count, one) in state.rejections.get_changes().items():
        log.warning(
            "samples rejected", reason=rejection.value, samples=count, example="/".join(one.container), at=one.at
        )
    incomplete = [name for name in partitions if name not in state.progress or state.progress[name].read_until < at]
    if incomplete:
        log.info("usage history incomplete", partitions=len(incomplete))
        return await state.get_statistics(store)
    await state.record_regained_usage(store, partitions)
    if reading.measures_scrape_delay:
        state.scrape_delay.learn((progress.counter_tail for progress in state.progress.values()), at)
    state.windows.advance(at)
    earlier = await state.get_statistics(store)
    updated = await _update_revisions(store, state, snapshot, earlier, at) if policy.rules.template_revisions else None
    running = list_running_containers(
        snapshot,
        state.windows,
        updated.revisions if updated else None,
        at,
        counts_runs=policy.rules.run_histories,
    )
    table = await asyncio.to_thread(
        estimate_statistics,
        state.windows.get_recent(),
        state.peaks.get_known(),
        running,
        summarize_oom_records(await store.read_oom_records(now - HISTORY_WINDOW)),
        EstimationTime(
            at,
            reading.step_seconds,
            int(policy.max_age.total_seconds()),
            int(policy.new_workload_age.total_seconds()),
        ),
    )
    table = add_start_cpu(table, state.starts.estimate(at))
    table = add_rejections(table, earlier, state.rejections.get_shares(at, reading.step_seconds), running.keys)
    await store.write_statistics(replace(table, revisions=updated.changed) if updated else table)
    oldest = at - int(RETENTION.statistics.total_seconds())
    state.table = add_earlier_rows(table, earlier, running.keys, oldest)
    state.table = replace(state.table, sharing=earlier.sharing)
    if updated:
        state.table, state.has_originals = replace(state.table, revisions=updated.revisions), True
    log.info("usage pass", containers=len(table.row_of_container), workloads=len(table.row_of_workload))
    return state.table


def list_running_containers(
    snapshot: ClusterSnapshot,
    windows: UsageWindows,
    revisions: WorkloadRevisions | None = None,
    at: int = 0,
    *,
    counts_runs: bool = True,
) -> RunningContainers:
    """Return the containers of all pods that run on nodes, in the snapshot's order, without init containers.

    A pod without a node has no usage, and its workload does not lack its samples. Workloads with several `revisions`
    are distinguished as of `at`. With `counts_runs`, pods that run to completion have a history by their runs.
    """
    pods = [pod for pod in snapshot.pods if pod.node is not None and not pod.is_finished]
    keys = [
        StatisticKey(pod.namespace, pod.name, str(pod.workload) if pod.workload else "", container.name, pod.identity)
        for pod in pods
        for container in pod.containers
        if container.role is not ContainerRole.INIT
    ]
    rows = windows.find_rows([get_container_key(key) for key in keys]) if keys else np.empty(0, np.int64)
    mixed = find_mixed_revisions(pods, revisions, at, OWN_SAMPLES_SECONDS) if revisions else None
    return RunningContainers(keys, rows, mixed, _list_run_starts(pods) if counts_runs else None)


def _list_run_starts(pods: Sequence[Pod]) -> Int64Array:
    """Return the creation of each sized container's pod if it runs to completion, else NEVER; 0 if unknown."""
    return np.array(
        [
            (int(pod.created_at.timestamp()) if pod.created_at is not None else 0) if pod.runs_to_completion else NEVER
            for pod in pods
            for container in pod.containers
            if container.role is not ContainerRole.INIT
        ],
        dtype=np.int64,
    )


async def _update_revisions(
    store: StorePort, state: UsageState, snapshot: ClusterSnapshot, earlier: StatisticsTable, at: int
) -> UpdatedRevisions:
    """Update the revisions from the pods; the database has the original sizes of pods that are new to this process.

    A pod may have been resized before the first usage pass that observes it.
    """
    known = earlier.revisions or NO_REVISIONS
    unseen = None
    if state.has_originals:
        unseen = [pod.uid for pod in snapshot.pods if pod.workload is not None and pod.uid not in known.pods]
    originals: OriginalResources = {}
    if unseen is None or unseen:
        originals = await read_original_resources(store, unseen)
    hour = at // 3600
    refresh, state.revisions_seen_hour = hour != state.revisions_seen_hour, hour
    return update_revisions(known, snapshot.pods, originals, at, refresh=refresh)
