"""The baseline `oracle`: it knows the recording, and requests at every pass what is used until the next one.

Each container requests the largest sample of the interval to come, rounded up. No policy that sizes containers one by
one and changes nothing between passes can ask for less and keep every container within its request; hence its slack
is the bound of what such policies can reach. A bound for a whole node lies lower still: containers that peak at
different times of one interval could share, as the sum's maximum is at most the sum of the maxima. A policy that shares
may run short of a request without starving a container, and is not bound by this.

Where a container's node has no room for its growth its pod is evicted, and finds a place at its new size at once:
the oracle is the least in slack and in nodes' requests, not in churn. No container gets more than a whole node, as a
larger one runs nowhere.
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
from cruise.domain.resources import Float32Array, Int64Array

# The baseline `as-requested`: every pod as it was provisioned, for ever, as in a cluster without rightsizing.


def get_provisioned_sizes(recording: UsageRecording) -> ContainerSizes:
    """Return what the recorded containers were provisioned with."""
    rows = [
        (one.requests.cpu_millicores, one.requests.memory_bytes, one.memory_limit_bytes) for one in recording.containers
    ]
    return ContainerSizes(*np.array(rows, dtype=np.int64).reshape(-1, 3).T.copy())


class AsRequestedBaseline(ReplayPolicy):
    """Provisioned requests at admission, and nothing ever after."""

    name = "as-requested"

    def __init__(self, recording: UsageRecording, options: ReplayOptions) -> None:
        self._provisioned = get_provisioned_sizes(recording)

    def admit(self, containers: Int64Array, view: ReplayClusterView) -> ContainerSizes:
        """Return what the containers were provisioned with."""
        return self._provisioned.select(containers)

    def decide(self, view: ReplayClusterView) -> ReplayDecision:
        """Change nothing."""
        return ReplayDecision(NO_CONTAINERS, ContainerSizes.create_zeros(0), NO_CONTAINERS)


class OracleBaseline(ReplayPolicy):
    """The least requests that no container passes before the next pass; without memory limits."""

    name = "oracle"

    def __init__(self, recording: UsageRecording, options: ReplayOptions) -> None:
        self._recording = recording
        self._pass_seconds = max(options.pass_seconds, recording.step_seconds)
        self._node = options.node
        self._from: int | None = None
        self._needs = ContainerSizes.create_zeros(0)

    def admit(self, containers: Int64Array, view: ReplayClusterView) -> ContainerSizes:
        """Return what the containers use in the interval that begins now."""
        return self._needs_from(view.time).select(containers)

    def decide(self, view: ReplayClusterView) -> ReplayDecision:
        """Write what each container that runs uses in the interval that begins now, where that is not what it has."""
        needs = self._needs_from(view.time)
        other = (needs.cpu_millicores != view.sizes.cpu_millicores) | (needs.memory_bytes != view.sizes.memory_bytes)
        resize: Int64Array = np.flatnonzero((view.node >= 0) & other)
        return ReplayDecision(resize, needs.select(resize), NO_CONTAINERS, evict_without_capacity=True)

    def _needs_from(self, time: int) -> ContainerSizes:
        """Return the largest use of every container after `time` and up to the next pass, 0 where it has no sample."""
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
    """Return the largest sample of each column, rounded up; 0 where there is none."""
    largest: Float32Array = np.fmax.reduce(samples, axis=0, initial=np.float32(0.0))
    rounded: Int64Array = np.ceil(largest).astype(np.int64)
    return rounded
