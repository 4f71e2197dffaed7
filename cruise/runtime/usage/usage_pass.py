"""The usage pass: reads new samples, compares some with kubelets, and estimates the statistics."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import islice

import numpy as np
import structlog

from cruise.decisions.usage.attribution import UsageAttribution
from cruise.decisions.usage.estimation import OWN_SAMPLES_SECONDS, estimate_statistics
from cruise.decisions.usage.oom_records import summarize_oom_records
from cruise.decisions.usage.plausibility import compare_counters_with_kubelet, compare_memory_with_kubelet
from cruise.decisions.usage.revisions import (
    OriginalResources,
    UpdatedRevisions,
    add_resized_pods,
    find_mixed_revisions,
    update_revisions,
)
from cruise.decisions.usage.starts import StartWindows, add_start_cpu
from cruise.decisions.usage.usage_bounds import UsageBounds
from cruise.decisions.usage.usage_columns import (
    NEVER,
    EstimationTime,
    RunningContainers,
    add_rejections,
    carry_over_earlier_statistics,
    get_container_key,
)
from cruise.domain.annotations import ORIGINAL_RESOURCES
from cruise.domain.arrays import Int64Array
from cruise.domain.cluster import ClusterSnapshot, ContainerRole, Node, Pod
from cruise.domain.original_resources import NO_REVISIONS, WorkloadRevisions
from cruise.domain.policy import Policy
from cruise.domain.preflight import CrossCheckCounts, CrossCheckResult, KubeletContainerUsage
from cruise.domain.records import RETENTION
from cruise.domain.usage import (
    NodeLoadAverage,
    NodeUsage,
    PartitionCounterTail,
    SampleBlock,
    StatisticKey,
    StatisticsTable,
)
from cruise.errors import CruiseError, DatabaseRestoredError, UnknownUsageError
from cruise.runtime.ports import SnapshotSource, StorePort, UsageSourcePort
from cruise.runtime.usage.sample_windows import UsageWindows
from cruise.runtime.usage.usage_reader import UsageReader, UsageReadingProgress, UsageReadingSettings
from cruise.runtime.usage.usage_state import UsageState


async def read_statistics_for_pods(store: StorePort, pods: Sequence[Pod]) -> StatisticsTable:
    """Return the statistics of the database, which know the template revisions of the pods. Raises UnavailableError.

    A pod that was resized, and that the webhook did not create, does not show what it was created with.
    """
    statistics = await store.read_statistics()
    if statistics.revisions is None:
        return statistics
    originals = await read_stored_original_resources(store, _list_unrecorded(pods))
    return replace(statistics, revisions=add_resized_pods(statistics.revisions, pods, originals))


async def read_stored_original_resources(store: StorePort, uids: Collection[str]) -> OriginalResources:
    """Return what those pods were created with that were resized."""
    stored = await store.read_original_sizes(uids)
    return {
        uid: {target.container: (target.requests, target.limits) for target in one.containers}
        for uid, one in stored.items()
    }


def _list_unrecorded(pods: Iterable[Pod]) -> list[str]:
    return [pod.uid for pod in pods if pod.workload is not None and ORIGINAL_RESOURCES not in pod.annotations]


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
    except UnknownUsageError as error:
        log.warning("the database has usage that was not seen stored: its state is read again", error=str(error))
        state.restart()
        raise
    except DatabaseRestoredError as error:
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
        # A container in a crash loop has thousands of kills; whether there were two, and their largest memory, count.
        summarize_oom_records(await store.read_oom_records(now - HISTORY_WINDOW, most_of_container=2)),
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
    state.table = carry_over_earlier_statistics(table, earlier, running.keys, oldest)
    state.table = replace(state.table, average_headroom_share=earlier.average_headroom_share)
    if updated:
        state.table = replace(state.table, revisions=updated.revisions)
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
    unseen = _list_unrecorded(pod for pod in snapshot.pods if pod.uid not in known.pods)
    originals: OriginalResources = await read_stored_original_resources(store, unseen) if unseen else {}
    hour = at // 3600
    refresh, state.revisions_seen_hour = hour != state.revisions_seen_hour, hour
    return update_revisions(known, snapshot.pods, originals, at, refresh=refresh)


# After this many passes without a readable node, only every twelfth pass tries.
_MAX_FAILED_PASSES, _RETRY_INTERVAL_PASSES = 3, 12


class CrossCheckedUsageSource:
    """Implements UsageSourcePort over another source; the comparison changes no samples, and is counted in `counts`.

    `ask` returns a kubelet's report; `nodes_a_pass` kubelets are read in each pass. A report is compared with the
    counters of the same pass, and with those of the next pass.
    """

    def __init__(
        self,
        source: UsageSourcePort,
        ask: Callable[[Node], Awaitable[KubeletContainerUsage]],
        nodes_a_pass: int,
        step_seconds: int,
    ) -> None:
        self._source, self._ask, self._nodes_a_pass, self._step = source, ask, nodes_a_pass, step_seconds
        self._reports: list[KubeletContainerUsage] = []
        self._earlier_reports: list[KubeletContainerUsage] = []
        self._pass_number, self._failed_passes = 0, 0
        self.pass_result = CrossCheckResult()
        self.counts = CrossCheckCounts()
        """The counts of all earlier passes."""

    async def list_partitions(self, snapshot: ClusterSnapshot) -> Sequence[str]:
        """Return the other source's partitions, and read the next kubelets."""
        found = await self._source.list_partitions(snapshot)
        self._earlier_reports, self._reports = self._reports, []
        self.counts, before, self.pass_result = self.counts.add(self.pass_result), self.pass_result, CrossCheckResult()
        occupied = {pod.node for pod in snapshot.pods}
        nodes = [node for node in snapshot.nodes if node.ready and node.name in occupied]
        self._pass_number += 1
        if nodes and (self._failed_passes < _MAX_FAILED_PASSES or self._pass_number % _RETRY_INTERVAL_PASSES == 0):
            start = self._pass_number * self._nodes_a_pass
            chosen = [nodes[(start + more) % len(nodes)] for more in range(min(self._nodes_a_pass, len(nodes)))]
            for node in chosen:
                await self._read_kubelet(node, before.unreadable_reason)
            self._failed_passes = 0 if self._reports else self._failed_passes + 1
        return found

    async def read(
        self, partition: str, start: int, end: int, tail: PartitionCounterTail | None
    ) -> tuple[SampleBlock, PartitionCounterTail | None]:
        """Return the other source's samples, and compare them."""
        block, after = await self._source.read(partition, start, end, tail)
        known = len(self.pass_result.disagreements)
        for report in (*self._reports, *self._earlier_reports):
            if after is not None:
                compare_counters_with_kubelet(report, after, self._step, self.pass_result)
        for report in (*self._reports, *self._earlier_reports):
            compare_memory_with_kubelet(report, block, self.pass_result)
        for key, one in islice(self.pass_result.disagreements.items(), known, None):
            log.warning(
                "a kubelet contradicts the usage source",
                container="/".join(key),
                node=one.node,
                resource=one.resource,
                source_value=one.prometheus_value,
                kubelet_value=one.kubelet_value,
            )
        return block, after

    async def read_node_usage(self, nodes: Collection[str], start: int, end: int) -> NodeUsage:
        """Return the other source's node usage."""
        return await self._source.read_node_usage(nodes, start, end)

    async def read_node_loads(self, at: int) -> Mapping[str, NodeLoadAverage]:
        """Return the other source's node loads."""
        return await self._source.read_node_loads(at)

    async def _read_kubelet(self, node: Node, known: str) -> None:
        self.pass_result.nodes += 1
        try:
            self._reports.append(await self._ask(node))
        except CruiseError as error:
            if str(error) != known:
                log.info("cannot read a kubelet for comparison", node=node.name, error=str(error))
            self.pass_result.unreadable_nodes += 1
            self.pass_result.unreadable_reason = str(error)
