"""The baseline `eks`: resource optimization of Amazon EKS Auto Mode, in mode Apply with the profile Balanced.

Its code is not public, and it was a preview in November 2026. Documented in "Rightsize workloads with resource
optimization" of the Amazon EKS user guide and in its announcements:

- It recommends requests for each container of a Deployment or StatefulSet after about 12 hours of history.
- CPU: the request at which the 95th percentile of usage is about 87 % of it, that is 15 % above the percentile.
- Running pods are resized in place, requests and limits, and are not evicted: an increase without free capacity is
  deferred.
- New pods are created with the recommendation. The QoS class and the pod template do not change.
- It reacts to out-of-memory kills; the amount is not documented.

Assumed:

- History is seven days, of all pods of a workload together. With twelve hours bitbrains has twelve times the kills, and
  azure2017 four times the resizes.
- Memory: the largest usage of those days plus the same 15 %. After a kill, immediately and for as long: 20 % and at
  least 100 MiB above the request or the usage, which is VPA's rule.
- Limits keep their provisioned proportion to requests.
- Recommendations are updated every hour, and written if CPU or memory changes by a tenth.
- No request is below 10 m and 16 MiB, or above a node.
"""

import numpy as np

from cruise.backtest.baselines.bounds import get_provisioned_sizes
from cruise.backtest.baselines.vpa_recommender import ExponentialBuckets
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
from cruise.domain.resources import MEBIBYTE

_SPAN_SECONDS = 12 * 3600
_MILLICORES = ExponentialBuckets.create(1e6, 1.0, 1.05)
WARM_UP_SECONDS = 12 * 3600
HISTORY_DAYS = 7
INTERVAL_SECONDS = 3600
CPU_SHARE = 0.95
TARGET_UTILIZATION = 0.87
MIN_CHANGE = 0.10
_FLOOR_MILLICORES, _FLOOR_BYTES = 10, 16 * MEBIBYTE
_BUMP_RATIO, _BUMP_BYTES = 1.2, 100 * MEBIBYTE


class WorkloadUsageHistory:
    """The CPU histograms and memory maxima of workloads, in spans of twelve hours; the current span counts too."""

    def __init__(self, row_of_container: Int64Array, days: int) -> None:
        """Start without history; `row_of_container` has each container's workload."""
        self._row_of_container = row_of_container
        self._rows = int(row_of_container.max(initial=-1)) + 1
        self._span_count = days * 86400 // _SPAN_SECONDS + 1
        self._span: int | None = None
        self._ends: Float64Array = np.append(_MILLICORES.starts[1:], _MILLICORES.starts[-1])
        self._counts: Int64Array = np.zeros((self._span_count, self._rows, len(self._ends)), dtype=np.int32)
        self._largest: Float64Array = np.zeros((self._span_count, self._rows))
        self._first: Int64Array = np.full(self._rows, -1, dtype=np.int64)

    def add(self, time: int, cpu: Float32Array, memory: Float32Array) -> None:
        """Add the samples of the interval that ends at `time`: matrices (times, containers), NaN is no sample."""
        place = self._get_slot(time)
        used = ~np.isnan(cpu)
        rows = np.broadcast_to(self._row_of_container, cpu.shape)[used]
        self._first[rows[self._first[rows] < 0]] = time
        np.add.at(self._counts[place], (rows, _MILLICORES.find(cpu[used].astype(np.float64))), 1)
        if len(memory):
            np.maximum.at(self._largest[place], self._row_of_container, np.nan_to_num(memory.max(axis=0, initial=0.0)))

    def raise_memory(self, container: int, needed_bytes: int) -> None:
        """Count an amount as used in the current span."""
        place = 0 if self._span is None else self._span % self._span_count
        row = self._row_of_container[container]
        self._largest[place, row] = max(self._largest[place, row], needed_bytes)

    def get_known_for(self, time: int, seconds: int) -> BoolArray:
        """Return a mask of the rows whose first sample is at least so old."""
        return np.asarray((self._first >= 0) & (time - self._first >= seconds), dtype=np.bool_)

    def get_cpu_percentile(self, share: float) -> Float64Array:
        """Return the end of the bucket of each row's percentile; 0 without samples."""
        sums = self._counts.sum(axis=0).cumsum(axis=1)
        below = np.count_nonzero(sums < share * sums[:, -1:], axis=1)
        return np.where(sums[:, -1] > 0, self._ends[np.minimum(below, len(self._ends) - 1)], 0.0)

    def get_memory_maximum(self) -> Float64Array:
        """Return the largest usage of a container of each row; 0 without samples."""
        return np.asarray(self._largest.max(axis=0), dtype=np.float64)

    def _get_slot(self, time: int) -> int:
        """Return the slot of the span that an interval belongs to, and clear the slots of expired spans."""
        span = (time - 1) // _SPAN_SECONDS
        for new in range(max(span - self._span_count, span if self._span is None else self._span) + 1, span + 1):
            self._counts[new % self._span_count] = 0
            self._largest[new % self._span_count] = 0
        self._span = span
        return span % self._span_count


class EksBaseline(ReplayPolicy):
    """Recommendations of all workloads, applied at creation and in place."""

    name = "eks"

    def __init__(self, recording: UsageRecording, options: ReplayOptions) -> None:
        self._provisioned = get_provisioned_sizes(recording)
        requested, limit = self._provisioned.memory_bytes, self._provisioned.memory_limit_bytes
        self._limit_of_request: Float64Array = limit / np.maximum(requested, 1)
        self._has_memory = recording.has_memory
        self._row_of_container = recording.number_workload_containers()
        self._recent = WorkloadUsageHistory(self._row_of_container, HISTORY_DAYS)
        self._node = options.node
        self._next_recommendation = 0
        self._known: BoolArray = np.zeros(len(self._row_of_container), dtype=np.bool_)
        self._targets = self._provisioned

    def observe(self, time: int, cpu: Float32Array, memory: Float32Array) -> None:
        """Add the samples, and update the recommendations if they are due."""
        self._recent.add(time, cpu, memory if self._has_memory else memory[:0])
        if time >= self._next_recommendation:
            self._next_recommendation = time - time % INTERVAL_SECONDS + INTERVAL_SECONDS
            self._recommend(time)

    def admit(self, containers: Int64Array, view: ReplayClusterView) -> ContainerSizes:
        """Return the recommendations, else the provisioned sizes."""
        return self._targets.select(containers)

    def decide(self, view: ReplayClusterView) -> ReplayDecision:
        """Resize containers that differ from their recommendation in place; evict none."""
        now, targets = view.sizes, self._targets
        differs = _exceeds_threshold(now.cpu_millicores, targets.cpu_millicores) | _exceeds_threshold(
            now.memory_bytes, targets.memory_bytes
        )
        resize = np.flatnonzero(self._known & differs & (view.node >= 0))
        return ReplayDecision(resize, targets.select(resize), NO_CONTAINERS)

    def react_to_oom_kill(self, kill: ReplayedOomKill, view: ReplayClusterView) -> ReplayedOomReaction:
        """Increase the container's memory immediately, and count the amount as used."""
        place = np.array([kill.container], dtype=np.int64)
        now = view.sizes.select(place)
        used = max(kill.used_bytes, int(now.memory_bytes[0]))
        needed = max(int(used * _BUMP_RATIO), used + _BUMP_BYTES)
        self._recent.raise_memory(kill.container, needed)
        if not self._known[kill.container]:
            return ReplayedOomReaction()
        memory = np.array([min(needed, self._node.memory_bytes)], dtype=np.int64)
        return ReplayedOomReaction(ContainerSizes(now.cpu_millicores, memory, self._compute_limit(place, memory)))

    def _recommend(self, time: int) -> None:
        self._known = self._recent.get_known_for(time, WARM_UP_SECONDS)[self._row_of_container]
        cpu = _request(self._recent.get_cpu_percentile(CPU_SHARE), _FLOOR_MILLICORES, self._node.cpu_millicores)
        memory = _request(self._recent.get_memory_maximum(), _FLOOR_BYTES, self._node.memory_bytes)
        provisioned, known = self._provisioned, self._known
        cpu_now = np.where(known, cpu[self._row_of_container], provisioned.cpu_millicores)
        if not self._has_memory:
            self._targets = ContainerSizes(cpu_now, provisioned.memory_bytes, provisioned.memory_limit_bytes)
            return
        memory_now = np.where(known, memory[self._row_of_container], provisioned.memory_bytes)
        limits = np.where(known, self._compute_limit(np.arange(len(known)), memory_now), provisioned.memory_limit_bytes)
        self._targets = ContainerSizes(cpu_now, memory_now, limits)

    def _compute_limit(self, containers: Int64Array, memory: Int64Array) -> Int64Array:
        limit: Int64Array = (memory * self._limit_of_request[containers]).astype(np.int64)
        return limit


def _request(used: Float64Array, minimum: int, maximum: int) -> Int64Array:
    request: Int64Array = np.clip(np.ceil(used / TARGET_UTILIZATION), minimum, maximum).astype(np.int64)
    return request


def _exceeds_threshold(now: Int64Array, targets: Int64Array) -> BoolArray:
    return np.asarray(np.abs(targets - now) >= MIN_CHANGE * now, dtype=np.bool_)
