"""The baseline `cruisekube`: the open-source rightsizer, as its code does it, not as its pages say.

Source: truefoundry/cruisekube at commit 94de669 (MIT), `pkg/task/taskApplyRecommendation.go`,
`pkg/task/taskCreateStats.go`, `pkg/handlers/webhookAdmission.go`, `pkg/oom/{observer,processor}.go`; statistics and the
node's plan are in modules of their own. The commit is later than the tag v0.1.9, which resizes more often, and older
than v0.3.1, which lowers memory limits. Its tasks run at their default intervals, with writing switched on for CPU and
memory, as an operator who wants it to work sets it (by default it writes nothing).

- Every 15 minutes the statistics are made anew, every 5 minutes they are applied to every node, at once from the
  start on. Pods of workloads younger than an hour or without statistics are left alone and count with their requests;
  so are those without a CPU request whose memory request is the limit, which it takes for Guaranteed.
- In place: CPU from 1 m to 10 cores, written when it moves by 1 m; memory from 16 MB, written whenever it moves, the
  limit to 2 × max(7 days' maximum, OOM memory), but never lowered. A container whose memory request is its limit gets
  both set to that, and nothing where this is less: so what is provisioned so stays until its pod is created again.
- At admission: the prediction, truncated to millicores and megabytes; memory only where it is more than 16 MB off;
  limit at least 512 MB and 2 × the request.
- A kill sets OOM memory to the limit (in units of 2^20 where all else counts 10^6 bytes), and the pod is evicted,
  unless it was killed within 5 minutes. OOM memory replaces base and rest of memory where it is larger than the base.
  The next statistics that are made replace it: by the largest limit at a kill within 30 minutes, 0 if there was none.

Left out: pressure (PSI) and the taint on nodes with a high load, as recordings have neither.
"""

from collections import deque

import numpy as np

from cruise.backtest.baselines.as_requested import get_provisioned_sizes
from cruise.backtest.baselines.cruisekube_statistics import (
    EVICTED_FIRST,
    EVICTED_LATER,
    MEGABYTE,
    CruiseKubeDemand,
    CruiseKubeStatistics,
    CruiseKubeUsageHistory,
    ReplicaCounts,
    rank_cruisekube_evictions,
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
from cruise.domain.resources import BoolArray, Float32Array, Float64Array, Int64Array

# What CruiseKube writes: at admission, and in place. Source: truefoundry/cruisekube at 94de669, `pkg/handlers/webhookAdmission.go` (adjustResources), `pkg/task/taskApplyRecommendation.go` (applyCPURecommendation, applyMemoryRecommendation) and `pkg/task/utils/util.go`. CPU is in millicores here, where the source has cores; memory in megabytes of 1,000,000 bytes, as it has. What has no request gets none.

MIN_CPU_MILLICORES = 1.0
MAX_CPU_MILLICORES = 10_000.0
MIN_MEMORY_MEGABYTES = 16.0
MIN_ADMISSION_LIMIT_MEGABYTES = 512.0
CPU_STEP_MILLICORES = 1.0
ADMISSION_THRESHOLD_MEGABYTES = 16.0


def compute_admission_sizes(
    provisioned: ContainerSizes,
    statistics: CruiseKubeStatistics,
    oom_megabytes: Float64Array,
    keeps_requests: BoolArray,
) -> ContainerSizes:
    """Return what the webhook makes of new pods' sizes; one entry a pod, everywhere.

    `keeps_requests` is for pods of DaemonSets, of which only the memory limit is raised.
    """
    cpu = np.where(
        statistics.cpu_predicted_millicores > 0, statistics.cpu_predicted_millicores, statistics.cpu_max_millicores
    )
    written = (provisioned.cpu_millicores > 0) & ~keeps_requests
    cpu_request = np.where(written, _cut(np.maximum(cpu, MIN_CPU_MILLICORES)), provisioned.cpu_millicores)

    memory = np.where(
        statistics.memory_predicted_megabytes > 0,
        statistics.memory_predicted_megabytes,
        statistics.memory_max_megabytes,
    )
    memory = np.where(oom_megabytes > statistics.memory_max_megabytes, oom_megabytes, memory)
    past = np.maximum(statistics.memory_7d_max_megabytes, oom_megabytes)
    limit = 2 * np.where(statistics.memory_7d_max_megabytes > 0, np.maximum(past, memory), memory)
    limit_bytes = _cut(np.maximum(limit, MIN_ADMISSION_LIMIT_MEGABYTES)) * MEGABYTE
    moved = np.abs(memory - provisioned.memory_bytes / MEGABYTE) > ADMISSION_THRESHOLD_MEGABYTES
    written = moved & (provisioned.memory_bytes > 0)
    raised = np.maximum(provisioned.memory_limit_bytes // MEGABYTE * MEGABYTE, limit_bytes)
    kept = np.where(provisioned.memory_limit_bytes > 0, raised, 0)
    return ContainerSizes(
        cpu_request,
        np.where(written & ~keeps_requests, _cut(memory) * MEGABYTE, provisioned.memory_bytes),
        np.where(written, np.where(keeps_requests, kept, limit_bytes), provisioned.memory_limit_bytes),
    )


def compute_resized(
    current: ContainerSizes,
    cpu_millicores: Float64Array,
    memory_megabytes: Float64Array,
    statistics: CruiseKubeStatistics,
    oom_megabytes: Float64Array,
) -> ContainerSizes:
    """Return the sizes after an apply of what the node's plan gives, NaN being nothing; one entry a pod, everywhere."""
    cpu = np.minimum(np.maximum(cpu_millicores, MIN_CPU_MILLICORES), MAX_CPU_MILLICORES)
    moved = np.abs(cpu - current.cpu_millicores) >= CPU_STEP_MILLICORES
    cpu_request = np.where(moved & (current.cpu_millicores > 0), _rounded(cpu), current.cpu_millicores)

    now = current.memory_bytes / MEGABYTE
    limit_now = current.memory_limit_bytes / MEGABYTE
    twice = np.maximum(2 * np.maximum(statistics.memory_7d_max_megabytes, oom_megabytes), MIN_MEMORY_MEGABYTES)
    equal = current.memory_bytes == current.memory_limit_bytes
    memory = np.where(equal, twice, np.maximum(memory_megabytes, MIN_MEMORY_MEGABYTES))
    limit = np.where(twice < limit_now, np.ceil(limit_now), twice)
    moved = (np.abs(memory - now) > 0) & (current.memory_bytes > 0) & ~(equal & (twice < limit_now))
    has_limit = current.memory_limit_bytes > 0
    return ContainerSizes(
        cpu_request,
        np.where(moved, _rounded(memory) * MEGABYTE, current.memory_bytes),
        np.where(moved & has_limit, _rounded(limit) * MEGABYTE, current.memory_limit_bytes),
    )


def _cut(values: Float64Array) -> Int64Array:
    return values.astype(np.int64)


def _rounded(values: Float64Array) -> Int64Array:
    """Round as printf does; NaN, which is never written, is 0."""
    return np.rint(np.nan_to_num(values, nan=0.0)).astype(np.int64)


STATISTICS_SECONDS = 900
APPLY_SECONDS = 300
NEW_WORKLOAD_SECONDS = 3600
RECENT_STATISTICS_SECONDS = 600
OOM_COOLDOWN_SECONDS = 300
OOM_WINDOW_SECONDS = 1800
KINDS = ("Deployment", "StatefulSet", "DaemonSet")
OOM_MEBIBYTE = 1 << 20


class CruiseKubeBaseline(ReplayPolicy):
    """Statistics a workload, shared headroom a node, evictions where it does not fit, limits at twice the maximum."""

    name = "cruisekube"

    def __init__(self, recording: UsageRecording, options: ReplayOptions) -> None:
        self._provisioned = get_provisioned_sizes(recording)
        self._workload_of_container = recording.workload_containers()
        _, first_of = np.unique(self._workload_of_container, return_index=True)
        kinds = [recording.containers[first].workload.kind for first in first_of.tolist()]
        count = len(kinds)
        self._listed = np.array([kind in KINDS for kind in kinds], dtype=np.bool_)
        self._stateful = np.array([kind == "StatefulSet" for kind in kinds], dtype=np.bool_)
        self._daemon = np.array([kind == "DaemonSet" for kind in kinds], dtype=np.bool_)
        pass_seconds = max(options.pass_seconds, recording.step_seconds)
        self._every = max(1, round(STATISTICS_SECONDS / pass_seconds))
        self._history = CruiseKubeUsageHistory(
            self._workload_of_container,
            step_seconds=recording.step_seconds,
            pass_seconds=pass_seconds,
            every=self._every,
        )
        self._replicas = ReplicaCounts(self._workload_of_container)
        self._statistics = CruiseKubeStatistics.create_empty(count)
        self._made_at = np.zeros(count, dtype=np.int64)
        self._oom_megabytes = np.zeros(count)
        self._created_at = np.full(count, np.iinfo(np.int64).max)
        self._kills: deque[tuple[int, int, float]] = deque()  # time, workload, limit in megabytes
        self._killed_at = np.full(len(self._workload_of_container), np.iinfo(np.int64).min // 2)
        self._killed_creation_counts = np.full(len(self._workload_of_container), -1, dtype=np.int64)
        self._intervals = 0
        self._applied_at: int | None = None

    def observe(self, time: int, cpu: Float32Array, memory: Float32Array) -> None:
        """Keep the samples; make the statistics anew when their task is due."""
        self._history.observe(cpu, memory)
        if self._intervals % self._every == 0:
            self._make_statistics(time)
        self._intervals += 1

    def admit(self, containers: Int64Array, view: ReplayClusterView) -> ContainerSizes:
        """Return what the webhook makes of what was provisioned."""
        workloads = self._workload_of_container[containers]
        np.minimum.at(self._created_at, workloads, view.time)
        provisioned = self._provisioned.select(containers)
        statistics = self._statistics.take(workloads)
        sizes = compute_admission_sizes(
            provisioned, statistics, self._oom_megabytes[workloads], self._daemon[workloads]
        )
        seen = np.flatnonzero(self._may_touch(view.time)[workloads])
        provisioned.assign(seen, sizes.select(seen))
        return provisioned

    def decide(self, view: ReplayClusterView) -> ReplayDecision:
        """Apply the statistics to every node when that task is due."""
        self._replicas.observe(view.time, view.node >= -1)
        if self._applied_at is not None and view.time - self._applied_at < APPLY_SECONDS:
            return ReplayDecision(NO_CONTAINERS, view.sizes.select(NO_CONTAINERS), NO_CONTAINERS)
        self._applied_at = view.time

        running = view.node >= 0
        # Without CPU limits it takes for Guaranteed what has no CPU request and a memory request that is the limit.
        guaranteed = (view.sizes.cpu_millicores == 0) & (view.sizes.memory_bytes == view.sizes.memory_limit_bytes)
        touched = running & self._may_touch(view.time)[self._workload_of_container] & ~guaranteed
        pods = np.flatnonzero(touched)
        node = view.node[pods]
        reserved = _reserved(view, running & ~touched)
        cpu, memory = self._demands(pods, view, reserved)
        workloads = self._workload_of_container[pods]
        later = self._stateful[workloads] | self._replicas.find_single_replica()[workloads]
        ranking = np.where(later, EVICTED_LATER, EVICTED_FIRST)
        gone, stays = rank_cruisekube_evictions(node, ranking, self._daemon[workloads], memory, cpu)

        cpu_shares = share_cruisekube_headroom(node[stays], cpu.take(stays))
        memory_shares = share_cruisekube_headroom(node[stays], memory.take(stays))
        left, of_left = pods[stays], workloads[stays]
        current = view.sizes.select(left)
        wanted = compute_resized(
            current,
            cpu_shares.final,
            memory_shares.final,
            self._statistics.take(of_left),
            self._oom_megabytes[of_left],
        )
        moved = current.find_differences(wanted)
        return ReplayDecision(
            resize=left[moved],
            sizes=wanted.select(moved),
            evict=pods[gone],
            base=(_whole(reserved[0] + cpu_shares.base), _whole((reserved[1] + memory_shares.base) * MEGABYTE)),
            headroom=(_whole(cpu_shares.headroom), _whole(memory_shares.headroom * MEGABYTE)),
        )

    def react_to_oom_kill(self, kill: ReplayedOomKill, view: ReplayClusterView) -> ReplayedOomReaction:
        """Remember the limit, and evict the pod, unless it was killed within the cool-down or has no statistics yet."""
        container, workload = kill.container, int(self._workload_of_container[kill.container])
        if not self._listed[workload]:
            return ReplayedOomReaction()
        limit = int(view.sizes.memory_limit_bytes[container])
        if limit > 0:
            self._kills.append((kill.time, workload, float(np.floor(limit / MEGABYTE + 0.5))))
        # Only pods of StatefulSets keep their name, by which kills are remembered, when they are created again.
        creation_count = 0 if self._stateful[workload] else int(view.creation_count[container])
        same_pod = bool(self._killed_creation_counts[container] == creation_count)
        if same_pod and kill.time - self._killed_at[container] < OOM_COOLDOWN_SECONDS:
            return ReplayedOomReaction()
        self._killed_at[container], self._killed_creation_counts[container] = kill.time, creation_count
        if not self._statistics.known[workload]:
            return ReplayedOomReaction()
        self._oom_megabytes[workload] = limit / OOM_MEBIBYTE
        self._made_at[workload] = kill.time
        return ReplayedOomReaction(evict=True)

    def _may_touch(self, time: int) -> BoolArray:
        """Tell which workloads have statistics, and are no longer new."""
        return self._listed & self._statistics.known & (self._created_at <= time - NEW_WORKLOAD_SECONDS)

    def _make_statistics(self, time: int) -> None:
        made = self._history.estimate()
        recent = self._statistics.known & (self._made_at > time - RECENT_STATISTICS_SECONDS)
        anew = made.known & ~recent
        self._statistics = made.choose(anew, self._statistics)
        while self._kills and self._kills[0][0] <= time - OOM_WINDOW_SECONDS:
            self._kills.popleft()
        limits = np.zeros(len(anew))
        for _, workload, megabytes in self._kills:
            limits[workload] = max(limits[workload], megabytes)
        self._oom_megabytes[anew] = limits[anew]
        self._made_at[anew] = time

    def _demands(
        self, pods: Int64Array, view: ReplayClusterView, reserved: tuple[Float64Array, Float64Array]
    ) -> tuple[CruiseKubeDemand, CruiseKubeDemand]:
        """Return the demand for CPU and for memory of pods that it may touch."""
        workloads = self._workload_of_container[pods]
        known, oom, daemon = self._statistics.take(workloads), self._oom_megabytes[workloads], self._daemon[workloads]
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
            fit_base = np.where(daemon, np.minimum(base, requests), base)
            demands.append(CruiseKubeDemand(base, rest, fit_base, np.where(daemon, 0.0, rest), allocatable - taken))
        return demands[0], demands[1]


def _reserved(view: ReplayClusterView, untouched: BoolArray) -> tuple[Float64Array, Float64Array]:
    """Return the millicores and megabytes of each node that pods take which are left alone."""
    node, count = view.node[untouched], len(view.node_exists)
    return (
        sum_by_node(node, view.sizes.cpu_millicores[untouched], count),
        sum_by_node(node, view.sizes.memory_bytes[untouched] / MEGABYTE, count),
    )


def _whole(values: Float64Array) -> Int64Array:
    return np.rint(values).astype(np.int64)
