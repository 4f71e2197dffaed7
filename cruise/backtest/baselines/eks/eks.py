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

from cruise.backtest.baselines.as_requested import provisioned_sizes
from cruise.backtest.baselines.eks.recent_use import RecentUse
from cruise.backtest.recordings.recording import Recording
from cruise.backtest.replay.options import ReplayOptions
from cruise.backtest.replay.policy import NO_CONTAINERS, ClusterView, Decision, Kill, KillReaction, ReplayPolicy, Sizes
from cruise.domain.arrays import BoolArray, Float32Array, Float64Array, Int64Array
from cruise.domain.resources import MEBIBYTE

FIRST_AFTER_SECONDS = 12 * 3600
HISTORY_DAYS = 7
EVERY_SECONDS = 3600
CPU_SHARE = 0.95
USED_OF_REQUEST = 0.87
LEAST_CHANGE = 0.10
_FLOOR_MILLICORES, _FLOOR_BYTES = 10, 16 * MEBIBYTE
_BUMP_RATIO, _BUMP_BYTES = 1.2, 100 * MEBIBYTE


class Eks(ReplayPolicy):
    """Recommendations of all workloads, applied at creation and in place."""

    name = "eks"

    def __init__(self, recording: Recording, options: ReplayOptions) -> None:
        self._provisioned = provisioned_sizes(recording)
        requested, limit = self._provisioned.memory_bytes, self._provisioned.memory_limit_bytes
        self._limit_of_request: Float64Array = limit / np.maximum(requested, 1)
        self._has_memory = recording.has_memory
        self._row_of = recording.workload_containers()
        self._recent = RecentUse(self._row_of, HISTORY_DAYS)
        self._node = options.node
        self._next_at = 0
        self._known: BoolArray = np.zeros(len(self._row_of), dtype=np.bool_)
        self._wanted = self._provisioned

    def observe(self, at: int, cpu: Float32Array, memory: Float32Array) -> None:
        """Take in the samples, and make the recommendations where they are due."""
        self._recent.add(at, cpu, memory if self._has_memory else memory[:0])
        if at >= self._next_at:
            self._next_at = at - at % EVERY_SECONDS + EVERY_SECONDS
            self._recommend(at)

    def admit(self, containers: Int64Array, view: ClusterView) -> Sizes:
        """Return what is recommended; what was provisioned where nothing is yet."""
        return self._wanted.take(containers)

    def decide(self, view: ClusterView) -> Decision:
        """Resize in place what is away from its recommendation; evict nothing."""
        now, wanted = view.sizes, self._wanted
        far = _is_far(now.cpu_millicores, wanted.cpu_millicores) | _is_far(now.memory_bytes, wanted.memory_bytes)
        resize = np.flatnonzero(self._known & far & (view.node >= 0))
        return Decision(resize, wanted.take(resize), NO_CONTAINERS)

    def killed(self, kill: Kill, view: ClusterView) -> KillReaction:
        """Grow the container at once, and remember what it needed."""
        place = np.array([kill.container], dtype=np.int64)
        now = view.sizes.take(place)
        used = max(kill.used_bytes, int(now.memory_bytes[0]))
        needed = max(int(used * _BUMP_RATIO), used + _BUMP_BYTES)
        self._recent.raise_memory(kill.container, needed)
        if not self._known[kill.container]:
            return KillReaction()
        memory = np.array([min(needed, self._node.memory_bytes)], dtype=np.int64)
        return KillReaction(Sizes(now.cpu_millicores, memory, self._limit_of(place, memory)))

    def _recommend(self, at: int) -> None:
        self._known = self._recent.known_for(at, FIRST_AFTER_SECONDS)[self._row_of]
        cpu = _request(self._recent.cpu_percentile(CPU_SHARE), _FLOOR_MILLICORES, self._node.cpu_millicores)
        memory = _request(self._recent.memory_maximum(), _FLOOR_BYTES, self._node.memory_bytes)
        given, known = self._provisioned, self._known
        cpu_now = np.where(known, cpu[self._row_of], given.cpu_millicores)
        if not self._has_memory:
            self._wanted = Sizes(cpu_now, given.memory_bytes, given.memory_limit_bytes)
            return
        memory_now = np.where(known, memory[self._row_of], given.memory_bytes)
        limits = np.where(known, self._limit_of(np.arange(len(known)), memory_now), given.memory_limit_bytes)
        self._wanted = Sizes(cpu_now, memory_now, limits)

    def _limit_of(self, containers: Int64Array, memory: Int64Array) -> Int64Array:
        limit: Int64Array = (memory * self._limit_of_request[containers]).astype(np.int64)
        return limit


def _request(used: Float64Array, least: int, most: int) -> Int64Array:
    request: Int64Array = np.clip(np.ceil(used / USED_OF_REQUEST), least, most).astype(np.int64)
    return request


def _is_far(now: Int64Array, wanted: Int64Array) -> BoolArray:
    return np.asarray(np.abs(wanted - now) >= LEAST_CHANGE * now, dtype=np.bool_)
