"""The baseline `cruisekube`: the open-source rightsizer, according to its code rather than its documentation.

Source: truefoundry/cruisekube at commit 94de669 (MIT), `pkg/task/taskApplyRecommendation.go`,
`pkg/task/taskCreateStats.go`, `pkg/handlers/webhookAdmission.go`, `pkg/oom/{observer,processor}.go`, `pkg/task/utils`.
The commit is later than the tag v0.1.9, which resizes more often, and older than v0.3.1, which lowers memory limits.
Tasks run at their default intervals, with writing enabled for CPU and memory (by default it writes nothing). Memory is
in megabytes of 1,000,000 bytes, as in the source; CPU is in millicores, where the source has cores.

- The statistics are updated every 15 minutes and applied to every node every 5 minutes. Pods of workloads younger than
  an hour or without statistics are skipped and count with their requests. So are pods without a CPU request whose
  memory request equals the limit, which it takes for Guaranteed.
- In place: CPU from 1 m to 10 cores, written if it changes by 1 m; memory from 16 MB, written if it changes; the limit
  to 2 × max(7 days' maximum, OOM memory), but never lowered. If a container's memory request equals its limit, both are
  set to that amount, unless it is lower.
- At admission: the prediction, truncated to millicores and megabytes; memory only if it differs by more than 16 MB;
  limit at least 512 MB and 2 × the request. A container without a request receives none.
- A kill sets OOM memory to the limit (in units of 2^20 bytes, where everything else counts 10^6), and the pod is
  evicted unless it was killed within 5 minutes. OOM memory replaces base and rest of memory if it is larger than the
  base. The next statistics replace it: by the largest limit at a kill within 30 minutes, or 0.

Not simulated: pressure (PSI) and the taint of nodes with a high load, which recordings lack.
"""

from collections import deque

import numpy as np

from cruise.backtest.baselines.bounds import get_provisioned_sizes
from cruise.backtest.baselines.cruisekube_statistics import (
    EVICTED_FIRST,
    EVICTED_LATER,
    MEGABYTE,
    CruiseKubePodDemand,
    CruiseKubeStatistics,
    CruiseKubeUsageHistory,
    HourlyReplicaCounts,
    choose_cruisekube_evictions,
    share_cruisekube_headroom,
    sum_by_node,
)
from cruise.backtest.recordings.recording import UsageRecording
from cruise.backtest.replay.policy import (
    NO_CONTAINERS,
    ContainerSizes,
    ReplayClusterView,
    ReplayDecision,
    ReplayedOomKill,
    ReplayedOomReaction,
    ReplayOptions,
    ReplayPolicy,
)
from cruise.domain.arrays import BoolArray, Float32Array, Float64Array, Int64Array

MIN_CPU_MILLICORES = 1.0
MAX_CPU_MILLICORES = 10_000.0
MIN_MEMORY_MEGABYTES = 16.0
MIN_ADMISSION_LIMIT_MEGABYTES = 512.0
CPU_STEP_MILLICORES = 1.0
ADMISSION_THRESHOLD_MEGABYTES = 16.0
STATISTICS_SECONDS = 900
APPLY_SECONDS = 300
NEW_WORKLOAD_SECONDS = 3600
RECENT_STATISTICS_SECONDS = 600
OOM_COOLDOWN_SECONDS = 300
OOM_WINDOW_SECONDS = 1800
KINDS = ("Deployment", "StatefulSet", "DaemonSet")
OOM_MEBIBYTE = 1 << 20


def compute_admission_sizes(
    provisioned: ContainerSizes,
    statistics: CruiseKubeStatistics,
    oom_megabytes: Float64Array,
    keeps_requests: BoolArray,
) -> ContainerSizes:
    """Return the sizes after the webhook's adjustResources; every column has one entry per pod.

    `keeps_requests` is for pods of DaemonSets: only their memory limit is raised.
    """
    cpu = np.where(
        statistics.cpu_predicted_millicores > 0, statistics.cpu_predicted_millicores, statistics.cpu_max_millicores
    )
    written = (provisioned.cpu_millicores > 0) & ~keeps_requests
    cpu_request = np.where(written, _truncate(np.maximum(cpu, MIN_CPU_MILLICORES)), provisioned.cpu_millicores)

    memory = np.where(
        statistics.memory_predicted_megabytes > 0,
        statistics.memory_predicted_megabytes,
        statistics.memory_max_megabytes,
    )
    memory = np.where(oom_megabytes > statistics.memory_max_megabytes, oom_megabytes, memory)
    past = np.maximum(statistics.memory_7d_max_megabytes, oom_megabytes)
    limit = 2 * np.where(statistics.memory_7d_max_megabytes > 0, np.maximum(past, memory), memory)
    limit_bytes = _truncate(np.maximum(limit, MIN_ADMISSION_LIMIT_MEGABYTES)) * MEGABYTE
    moved = np.abs(memory - provisioned.memory_bytes / MEGABYTE) > ADMISSION_THRESHOLD_MEGABYTES
    written = moved & (provisioned.memory_bytes > 0)
    raised = np.maximum(provisioned.memory_limit_bytes // MEGABYTE * MEGABYTE, limit_bytes)
    kept_limit = np.where(provisioned.memory_limit_bytes > 0, raised, 0)
    return ContainerSizes(
        cpu_request,
        np.where(written & ~keeps_requests, _truncate(memory) * MEGABYTE, provisioned.memory_bytes),
        np.where(written, np.where(keeps_requests, kept_limit, limit_bytes), provisioned.memory_limit_bytes),
    )


def compute_sizes_after_node_plan(
    current: ContainerSizes,
    cpu_millicores: Float64Array,
    memory_megabytes: Float64Array,
    statistics: CruiseKubeStatistics,
    oom_megabytes: Float64Array,
) -> ContainerSizes:
    """Return the sizes after the node's plan is applied (NaN changes nothing); every column has one entry per pod."""
    cpu = np.minimum(np.maximum(cpu_millicores, MIN_CPU_MILLICORES), MAX_CPU_MILLICORES)
    moved = np.abs(cpu - current.cpu_millicores) >= CPU_STEP_MILLICORES
    cpu_request = np.where(moved & (current.cpu_millicores > 0), _round(cpu), current.cpu_millicores)

    now = current.memory_bytes / MEGABYTE
    limit_now = current.memory_limit_bytes / MEGABYTE
    double = np.maximum(2 * np.maximum(statistics.memory_7d_max_megabytes, oom_megabytes), MIN_MEMORY_MEGABYTES)
    limit_is_request = current.memory_bytes == current.memory_limit_bytes
    memory = np.where(limit_is_request, double, np.maximum(memory_megabytes, MIN_MEMORY_MEGABYTES))
    limit = np.where(double < limit_now, np.ceil(limit_now), double)
    moved = (np.abs(memory - now) > 0) & (current.memory_bytes > 0) & ~(limit_is_request & (double < limit_now))
    has_limit = current.memory_limit_bytes > 0
    return ContainerSizes(
        cpu_request,
        np.where(moved, _round(memory) * MEGABYTE, current.memory_bytes),
        np.where(moved & has_limit, _round(limit) * MEGABYTE, current.memory_limit_bytes),
    )


def _truncate(values: Float64Array) -> Int64Array:
    return values.astype(np.int64)


def _round(values: Float64Array) -> Int64Array:
    """Round as printf does; NaN, which is not written, becomes 0."""
    return np.rint(np.nan_to_num(values, nan=0.0)).astype(np.int64)


class CruiseKubeBaseline(ReplayPolicy):
    """Statistics per workload, headroom shared per node, evictions if a node is full, limits at twice the maximum."""

    name = "cruisekube"

    def __init__(self, recording: UsageRecording, options: ReplayOptions) -> None:
        self._provisioned = get_provisioned_sizes(recording)
        self._workload_of_container = recording.number_workload_containers()
        _, first_of = np.unique(self._workload_of_container, return_index=True)
        kinds = [recording.containers[first].workload.kind for first in first_of.tolist()]
        count = len(kinds)
        self._is_supported = np.array([kind in KINDS for kind in kinds], dtype=np.bool_)
        self._is_stateful_set = np.array([kind == "StatefulSet" for kind in kinds], dtype=np.bool_)
        self._is_daemon_set = np.array([kind == "DaemonSet" for kind in kinds], dtype=np.bool_)
        pass_seconds = max(options.pass_seconds, recording.step_seconds)
        self._passes_per_estimate = max(1, round(STATISTICS_SECONDS / pass_seconds))
        self._history = CruiseKubeUsageHistory(
            self._workload_of_container,
            step_seconds=recording.step_seconds,
            pass_seconds=pass_seconds,
            every=self._passes_per_estimate,
        )
        self._replicas = HourlyReplicaCounts(self._workload_of_container)
        self._statistics = CruiseKubeStatistics.create_empty(count)
        self._estimated_at = np.zeros(count, dtype=np.int64)
        self._oom_megabytes = np.zeros(count)
        self._created_at = np.full(count, np.iinfo(np.int64).max)
        self._kills: deque[tuple[int, int, float]] = deque()  # time, workload, limit in megabytes
        self._killed_at = np.full(len(self._workload_of_container), np.iinfo(np.int64).min // 2)
        self._killed_creation_counts = np.full(len(self._workload_of_container), -1, dtype=np.int64)
        self._intervals = 0
        self._applied_at: int | None = None

    def observe(self, time: int, cpu: Float32Array, memory: Float32Array) -> None:
        """Add the samples; update the statistics if their task is due."""
        self._history.observe(cpu, memory)
        if self._intervals % self._passes_per_estimate == 0:
            self._update_statistics(time)
        self._intervals += 1

    def admit(self, containers: Int64Array, view: ReplayClusterView) -> ContainerSizes:
        """Return the sizes after the webhook."""
        workloads = self._workload_of_container[containers]
        np.minimum.at(self._created_at, workloads, view.time)
        provisioned = self._provisioned.select(containers)
        statistics = self._statistics.take(workloads)
        sizes = compute_admission_sizes(
            provisioned, statistics, self._oom_megabytes[workloads], self._is_daemon_set[workloads]
        )
        seen = np.flatnonzero(self._find_resizable(view.time)[workloads])
        provisioned.assign(seen, sizes.select(seen))
        return provisioned

    def decide(self, view: ReplayClusterView) -> ReplayDecision:
        """Apply the statistics to every node if that task is due."""
        self._replicas.observe(view.time, view.node >= -1)
        if self._applied_at is not None and view.time - self._applied_at < APPLY_SECONDS:
            return ReplayDecision(NO_CONTAINERS, view.sizes.select(NO_CONTAINERS), NO_CONTAINERS)
        self._applied_at = view.time

        running = view.node >= 0
        # It takes pods without a CPU request whose memory request equals the limit for Guaranteed.
        guaranteed = (view.sizes.cpu_millicores == 0) & (view.sizes.memory_bytes == view.sizes.memory_limit_bytes)
        touched = running & self._find_resizable(view.time)[self._workload_of_container] & ~guaranteed
        pods = np.flatnonzero(touched)
        node = view.node[pods]
        reserved = _sum_untouched(view, running & ~touched)
        cpu, memory = self._build_demands(pods, view, reserved)
        workloads = self._workload_of_container[pods]
        later = self._is_stateful_set[workloads] | self._replicas.find_single_replica()[workloads]
        ranking = np.where(later, EVICTED_LATER, EVICTED_FIRST)
        evicted_pods, remains = choose_cruisekube_evictions(node, ranking, self._is_daemon_set[workloads], memory, cpu)

        cpu_shares = share_cruisekube_headroom(node[remains], cpu.take(remains))
        memory_shares = share_cruisekube_headroom(node[remains], memory.take(remains))
        remaining, remaining_workloads = pods[remains], workloads[remains]
        current = view.sizes.select(remaining)
        wanted = compute_sizes_after_node_plan(
            current,
            cpu_shares.final,
            memory_shares.final,
            self._statistics.take(remaining_workloads),
            self._oom_megabytes[remaining_workloads],
        )
        moved = current.find_differences(wanted)
        return ReplayDecision(
            resize=remaining[moved],
            sizes=wanted.select(moved),
            evict=pods[evicted_pods],
            base=(
                _round_to_int(reserved[0] + cpu_shares.base),
                _round_to_int((reserved[1] + memory_shares.base) * MEGABYTE),
            ),
            headroom=(_round_to_int(cpu_shares.headroom), _round_to_int(memory_shares.headroom * MEGABYTE)),
        )

    def react_to_oom_kill(self, kill: ReplayedOomKill, view: ReplayClusterView) -> ReplayedOomReaction:
        """Record the limit and evict the pod, unless it was killed within the cooldown or has no statistics."""
        container, workload = kill.container, int(self._workload_of_container[kill.container])
        if not self._is_supported[workload]:
            return ReplayedOomReaction()
        limit = int(view.sizes.memory_limit_bytes[container])
        if limit > 0:
            self._kills.append((kill.time, workload, float(np.floor(limit / MEGABYTE + 0.5))))
        # Kills are recorded by pod name, which only replacement pods of StatefulSets keep.
        creation_count = 0 if self._is_stateful_set[workload] else int(view.creation_count[container])
        same_pod = bool(self._killed_creation_counts[container] == creation_count)
        if same_pod and kill.time - self._killed_at[container] < OOM_COOLDOWN_SECONDS:
            return ReplayedOomReaction()
        self._killed_at[container], self._killed_creation_counts[container] = kill.time, creation_count
        if not self._statistics.known[workload]:
            return ReplayedOomReaction()
        self._oom_megabytes[workload] = limit / OOM_MEBIBYTE
        self._estimated_at[workload] = kill.time
        return ReplayedOomReaction(evict=True)

    def _find_resizable(self, time: int) -> BoolArray:
        """Return a mask of the workloads that have statistics and are not new."""
        return self._is_supported & self._statistics.known & (self._created_at <= time - NEW_WORKLOAD_SECONDS)

    def _update_statistics(self, time: int) -> None:
        estimated = self._history.estimate()
        recent = self._statistics.known & (self._estimated_at > time - RECENT_STATISTICS_SECONDS)
        is_updated = estimated.known & ~recent
        self._statistics = estimated.choose(is_updated, self._statistics)
        while self._kills and self._kills[0][0] <= time - OOM_WINDOW_SECONDS:
            self._kills.popleft()
        limits = np.zeros(len(is_updated))
        for _, workload, megabytes in self._kills:
            limits[workload] = max(limits[workload], megabytes)
        self._oom_megabytes[is_updated] = limits[is_updated]
        self._estimated_at[is_updated] = time

    def _build_demands(
        self, pods: Int64Array, view: ReplayClusterView, reserved: tuple[Float64Array, Float64Array]
    ) -> tuple[CruiseKubePodDemand, CruiseKubePodDemand]:
        """Return the CPU and memory demand of resizable pods."""
        workloads = self._workload_of_container[pods]
        known, oom, is_daemon_set = (
            self._statistics.take(workloads),
            self._oom_megabytes[workloads],
            self._is_daemon_set[workloads],
        )
        killed = oom > known.memory_p75_megabytes
        demands = []
        for base, rest, requests, allocatable, taken in (
            (
                known.cpu_p75_millicores,
                known.cpu_predicted_millicores - known.cpu_p75_millicores,
                view.sizes.cpu_millicores[pods].astype(np.float64),
                float(view.allocatable.cpu_millicores),
                reserved[0],
            ),
            (
                np.where(killed, oom, known.memory_p75_megabytes),
                np.where(killed, 0.0, known.memory_predicted_megabytes - known.memory_p75_megabytes),
                view.sizes.memory_bytes[pods] / MEGABYTE,
                view.allocatable.memory_bytes / MEGABYTE,
                reserved[1],
            ),
        ):
            fit_base = np.where(is_daemon_set, np.minimum(base, requests), base)
            demands.append(
                CruiseKubePodDemand(base, rest, fit_base, np.where(is_daemon_set, 0.0, rest), allocatable - taken)
            )
        return demands[0], demands[1]


def _sum_untouched(view: ReplayClusterView, untouched: BoolArray) -> tuple[Float64Array, Float64Array]:
    """Return the millicores and megabytes that skipped pods request on each node."""
    node, count = view.node[untouched], len(view.node_exists)
    return (
        sum_by_node(node, view.sizes.cpu_millicores[untouched], count),
        sum_by_node(node, view.sizes.memory_bytes[untouched] / MEGABYTE, count),
    )


def _round_to_int(values: Float64Array) -> Int64Array:
    return np.rint(values).astype(np.int64)
