"""The baseline `eks`: resource optimisation of Amazon EKS Auto Mode, in mode Apply with the profile Balanced.

Its code is not public, and it was a preview when this was written (November 2026). Documented, in "Rightsize workloads
with resource optimization" of the Amazon EKS user guide and in what was published with it:

- A recommendation for each container of a Deployment or StatefulSet, from about 12 hours of history on.
- CPU: the request at which the 95th percentile of use is about 87 % of it, that is 15 % above the percentile.
- Running pods are resized in place, requests and limits, and not replaced for it: a growth that has no room waits.
- New pods are created with what is recommended. The QoS class stays; the pod template is not changed.
- It reacts to kills for want of memory; by how much is not said.

Assumed, where nothing is documented, or nothing that could be read here:

- History goes back seven days, of all pods of a workload together. With twelve hours in place of them bitbrains is
  killed twelve times as often, and azure2017 is written to four times as often.
- Memory: the largest use of those days and the same 15 %. After a kill, at once and for as long: 20 % and at least
  100 MiB above what was requested or used, which is VPA's rule.
- Limits keep the proportion to requests that pods were provisioned with.
- Recommendations are made anew every hour, and are written where one of the two moves by a tenth.
- No request is below 10 m and 16 MiB, or above a node.
"""

import numpy as np

from cruise.backtest.baselines.as_requested import get_provisioned_sizes
from cruise.backtest.baselines.vpa_histograms import ExponentialBuckets
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
from cruise.domain.resources import MEBIBYTE, BoolArray, Float32Array, Float64Array, Int64Array

# What the containers of each workload used lately: percentiles of CPU, the maximum of memory. Samples are kept in spans of twelve hours of the clock. The one that has begun counts beside the whole ones before it.

_SPAN_SECONDS = 12 * 3600
_MILLICORES = ExponentialBuckets.create(1e6, 1.0, 1.05)


class WorkloadUsageHistory:
    """The samples of R rows, by span; samples of several containers may belong to one row."""

    def __init__(self, row_of_container: Int64Array, days: int) -> None:
        """Expect the row of each container."""
        self._row_of_container = row_of_container
        self._rows = int(row_of_container.max(initial=-1)) + 1
        self._kept = days * 86400 // _SPAN_SECONDS + 1
        self._span: int | None = None
        self._ends: Float64Array = np.append(_MILLICORES.starts[1:], _MILLICORES.starts[-1])
        self._counts: Int64Array = np.zeros((self._kept, self._rows, len(self._ends)), dtype=np.int32)
        self._largest: Float64Array = np.zeros((self._kept, self._rows))
        self._first: Int64Array = np.full(self._rows, -1, dtype=np.int64)

    def add(self, time: int, cpu: Float32Array, memory: Float32Array) -> None:
        """Take in the samples of an interval that ends at `time`; matrices (times, containers), NaN is none."""
        place = self._turn_to(time)
        used = ~np.isnan(cpu)
        rows = np.broadcast_to(self._row_of_container, cpu.shape)[used]
        self._first[rows[self._first[rows] < 0]] = time
        np.add.at(self._counts[place], (rows, _MILLICORES.find(cpu[used].astype(np.float64))), 1)
        if len(memory):
            np.maximum.at(self._largest[place], self._row_of_container, np.nan_to_num(memory.max(axis=0, initial=0.0)))

    def raise_memory(self, container: int, needed_bytes: int) -> None:
        """Count an amount as used in this span."""
        place = 0 if self._span is None else self._span % self._kept
        row = self._row_of_container[container]
        self._largest[place, row] = max(self._largest[place, row], needed_bytes)

    def get_known_for(self, time: int, seconds: int) -> BoolArray:
        """Tell which rows were first seen so long ago."""
        return np.asarray((self._first >= 0) & (time - self._first >= seconds), dtype=np.bool_)

    def get_cpu_percentile(self, share: float) -> Float64Array:
        """Return the end of the bucket below which that share of each row's samples lies; 0 for a row without any."""
        sums = self._counts.sum(axis=0).cumsum(axis=1)
        below = np.count_nonzero(sums < share * sums[:, -1:], axis=1)
        return np.where(sums[:, -1] > 0, self._ends[np.minimum(below, len(self._ends) - 1)], 0.0)

    def get_memory_maximum(self) -> Float64Array:
        """Return the most that a container of each row used; 0 for a row without samples."""
        return np.asarray(self._largest.max(axis=0), dtype=np.float64)

    def _turn_to(self, time: int) -> int:
        """Return the place of the span that an interval belongs to, and empty those that have become too old."""
        span = (time - 1) // _SPAN_SECONDS
        for new in range(max(span - self._kept, span if self._span is None else self._span) + 1, span + 1):
            self._counts[new % self._kept] = 0
            self._largest[new % self._kept] = 0
        self._span = span
        return span % self._kept


WARM_UP_SECONDS = 12 * 3600
HISTORY_DAYS = 7
INTERVAL_SECONDS = 3600
CPU_SHARE = 0.95
TARGET_UTILIZATION = 0.87
MIN_CHANGE = 0.10
_FLOOR_MILLICORES, _FLOOR_BYTES = 10, 16 * MEBIBYTE
_BUMP_RATIO, _BUMP_BYTES = 1.2, 100 * MEBIBYTE


class EksBaseline(ReplayPolicy):
    """Recommendations of all workloads, applied at creation and in place."""

    name = "eks"

    def __init__(self, recording: UsageRecording, options: ReplayOptions) -> None:
        self._provisioned = get_provisioned_sizes(recording)
        requested, limit = self._provisioned.memory_bytes, self._provisioned.memory_limit_bytes
        self._limit_of_request: Float64Array = limit / np.maximum(requested, 1)
        self._has_memory = recording.has_memory
        self._row_of_container = recording.workload_containers()
        self._recent = WorkloadUsageHistory(self._row_of_container, HISTORY_DAYS)
        self._node = options.node
        self._next_at = 0
        self._known: BoolArray = np.zeros(len(self._row_of_container), dtype=np.bool_)
        self._wanted = self._provisioned

    def observe(self, time: int, cpu: Float32Array, memory: Float32Array) -> None:
        """Take in the samples, and make the recommendations where they are due."""
        self._recent.add(time, cpu, memory if self._has_memory else memory[:0])
        if time >= self._next_at:
            self._next_at = time - time % INTERVAL_SECONDS + INTERVAL_SECONDS
            self._recommend(time)

    def admit(self, containers: Int64Array, view: ReplayClusterView) -> ContainerSizes:
        """Return what is recommended; what was provisioned where nothing is yet."""
        return self._wanted.select(containers)

    def decide(self, view: ReplayClusterView) -> ReplayDecision:
        """Resize in place what is away from its recommendation; evict nothing."""
        now, wanted = view.sizes, self._wanted
        far = _is_far(now.cpu_millicores, wanted.cpu_millicores) | _is_far(now.memory_bytes, wanted.memory_bytes)
        resize = np.flatnonzero(self._known & far & (view.node >= 0))
        return ReplayDecision(resize, wanted.select(resize), NO_CONTAINERS)

    def react_to_oom_kill(self, kill: ReplayedOomKill, view: ReplayClusterView) -> ReplayedOomReaction:
        """Grow the container at once, and remember what it needed."""
        place = np.array([kill.container], dtype=np.int64)
        now = view.sizes.select(place)
        used = max(kill.used_bytes, int(now.memory_bytes[0]))
        needed = max(int(used * _BUMP_RATIO), used + _BUMP_BYTES)
        self._recent.raise_memory(kill.container, needed)
        if not self._known[kill.container]:
            return ReplayedOomReaction()
        memory = np.array([min(needed, self._node.memory_bytes)], dtype=np.int64)
        return ReplayedOomReaction(ContainerSizes(now.cpu_millicores, memory, self._limit_of(place, memory)))

    def _recommend(self, time: int) -> None:
        self._known = self._recent.get_known_for(time, WARM_UP_SECONDS)[self._row_of_container]
        cpu = _request(self._recent.get_cpu_percentile(CPU_SHARE), _FLOOR_MILLICORES, self._node.cpu_millicores)
        memory = _request(self._recent.get_memory_maximum(), _FLOOR_BYTES, self._node.memory_bytes)
        given, known = self._provisioned, self._known
        cpu_now = np.where(known, cpu[self._row_of_container], given.cpu_millicores)
        if not self._has_memory:
            self._wanted = ContainerSizes(cpu_now, given.memory_bytes, given.memory_limit_bytes)
            return
        memory_now = np.where(known, memory[self._row_of_container], given.memory_bytes)
        limits = np.where(known, self._limit_of(np.arange(len(known)), memory_now), given.memory_limit_bytes)
        self._wanted = ContainerSizes(cpu_now, memory_now, limits)

    def _limit_of(self, containers: Int64Array, memory: Int64Array) -> Int64Array:
        limit: Int64Array = (memory * self._limit_of_request[containers]).astype(np.int64)
        return limit


def _request(used: Float64Array, least: int, most: int) -> Int64Array:
    request: Int64Array = np.clip(np.ceil(used / TARGET_UTILIZATION), least, most).astype(np.int64)
    return request


def _is_far(now: Int64Array, wanted: Int64Array) -> BoolArray:
    return np.asarray(np.abs(wanted - now) >= MIN_CHANGE * now, dtype=np.bool_)
