"""The baselines `as-requested` and `oracle`.

`as-requested` never changes the provisioned requests, like a cluster without rightsizing.

`oracle` knows the recording: at every pass each container requests its largest sample until the next pass, rounded up.
No policy that sizes containers one by one, once per pass, can request less and keep every container within its request,
so its slack is the lower bound of such policies. Policies that share capacity between the pods of a node can have less:
the maximum of a sum is at most the sum of the maxima.

A pod whose node has no free capacity for an increase is evicted. The oracle has the least slack, not the fewest
changes. No container requests more than a node.
"""

import numpy as np

from cruise.backtest.recordings.recording import UsageRecording
from cruise.backtest.replay.policy import (
    NO_CONTAINERS,
    ContainerSizes,
    ReplayClusterView,
    ReplayDecision,
    ReplayOptions,
    ReplayPolicy,
)
from cruise.domain.arrays import Float32Array, Int64Array


def get_provisioned_sizes(recording: UsageRecording) -> ContainerSizes:
    """Return the provisioned sizes of the recorded containers."""
    rows = [
        (one.requests.cpu_millicores, one.requests.memory_bytes, one.memory_limit_bytes) for one in recording.containers
    ]
    return ContainerSizes(*np.array(rows, dtype=np.int64).reshape(-1, 3).T.copy())


class AsRequestedBaseline(ReplayPolicy):
    """Provisioned requests, never changed."""

    name = "as-requested"

    def __init__(self, recording: UsageRecording, options: ReplayOptions) -> None:
        self._provisioned = get_provisioned_sizes(recording)

    def admit(self, containers: Int64Array, view: ReplayClusterView) -> ContainerSizes:
        """Return the provisioned sizes."""
        return self._provisioned.select(containers)

    def decide(self, view: ReplayClusterView) -> ReplayDecision:
        """Change nothing."""
        return ReplayDecision(NO_CONTAINERS, ContainerSizes.create_zeros(0), NO_CONTAINERS)


class OracleBaseline(ReplayPolicy):
    """The least requests that no container exceeds before the next pass; no memory limits."""

    name = "oracle"

    def __init__(self, recording: UsageRecording, options: ReplayOptions) -> None:
        self._recording = recording
        self._pass_seconds = max(options.pass_seconds, recording.step_seconds)
        self._node = options.node
        self._from: int | None = None
        self._needs = ContainerSizes.create_zeros(0)

    def admit(self, containers: Int64Array, view: ReplayClusterView) -> ContainerSizes:
        """Return the largest usage in the interval that starts now."""
        return self._needs_from(view.time).select(containers)

    def decide(self, view: ReplayClusterView) -> ReplayDecision:
        """Resize the running containers to the largest usage in the interval that starts now."""
        needs = self._needs_from(view.time)
        other = (needs.cpu_millicores != view.sizes.cpu_millicores) | (needs.memory_bytes != view.sizes.memory_bytes)
        resize: Int64Array = np.flatnonzero((view.node >= 0) & other)
        return ReplayDecision(resize, needs.select(resize), NO_CONTAINERS, evict_without_capacity=True)

    def _needs_from(self, time: int) -> ContainerSizes:
        """Return the largest usage of every container after `time` until the next pass; 0 without samples."""
        if time != self._from:
            recorded = self._recording
            first = (time - recorded.start) // recorded.step_seconds + 1
            next_pass = (time // self._pass_seconds + 1) * self._pass_seconds
            end = (next_pass - recorded.start) // recorded.step_seconds + 1
            rows = slice(max(0, first), max(0, end))
            cpu = np.minimum(_largest(recorded.cpu_millicores[rows]), self._node.cpu_millicores)
            memory = np.minimum(_largest(recorded.memory_bytes[rows]), self._node.memory_bytes)
            self._needs = ContainerSizes(cpu, memory, np.zeros_like(memory))
            self._from = time
        return self._needs


def _largest(samples: Float32Array) -> Int64Array:
    """Return the largest sample of each column, rounded up; 0 without samples."""
    largest: Float32Array = np.fmax.reduce(samples, axis=0, initial=np.float32(0.0))
    rounded: Int64Array = np.ceil(largest).astype(np.int64)
    return rounded
