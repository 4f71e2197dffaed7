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

from cruise.backtest.recordings.recording import Recording
from cruise.backtest.replay.options import ReplayOptions
from cruise.backtest.replay.policy import NO_CONTAINERS, ClusterView, Decision, ReplayPolicy, Sizes
from cruise.domain.arrays import Float32Array, Int64Array


class Oracle(ReplayPolicy):
    """The least requests that no container passes before the next pass; without memory limits."""

    name = "oracle"

    def __init__(self, recording: Recording, options: ReplayOptions) -> None:
        self._recording = recording
        self._pass_seconds = max(options.pass_seconds, recording.step_seconds)
        self._node = options.node
        self._from: int | None = None
        self._needs = Sizes.zeros(0)

    def admit(self, containers: Int64Array, view: ClusterView) -> Sizes:
        """Return what the containers use in the interval that begins now."""
        return self._needs_from(view.at).take(containers)

    def decide(self, view: ClusterView) -> Decision:
        """Write what each container that runs uses in the interval that begins now, where that is not what it has."""
        needs = self._needs_from(view.at)
        other = (needs.cpu_millicores != view.sizes.cpu_millicores) | (needs.memory_bytes != view.sizes.memory_bytes)
        resize: Int64Array = np.flatnonzero((view.node >= 0) & other)
        return Decision(resize, needs.take(resize), NO_CONTAINERS, evict_without_room=True)

    def _needs_from(self, at: int) -> Sizes:
        """Return the largest use of every container after `at` and up to the next pass, 0 where it has no sample."""
        if at != self._from:
            recorded = self._recording
            first = (at - recorded.start) // recorded.step_seconds + 1
            next_pass = (at // self._pass_seconds + 1) * self._pass_seconds
            end = (next_pass - recorded.start) // recorded.step_seconds + 1
            rows = slice(max(0, first), max(0, end))
            cpu = np.minimum(_largest(recorded.cpu_millicores[rows]), self._node.cpu_millicores)
            memory = np.minimum(_largest(recorded.memory_bytes[rows]), self._node.memory_bytes)
            self._needs = Sizes(cpu, memory, np.zeros_like(memory))
            self._from = at
        return self._needs


def _largest(samples: Float32Array) -> Int64Array:
    """Return the largest sample of each column, rounded up; 0 where there is none."""
    largest: Float32Array = np.fmax.reduce(samples, axis=0, initial=np.float32(0.0))
    rounded: Int64Array = np.ceil(largest).astype(np.int64)
    return rounded
