"""The baseline `oracle`: it knows the recording, and asks at every pass for what is used until the next one.

Each container requests the largest sample of the interval to come, rounded up. No policy that sizes containers one by
one and changes nothing between passes can ask for less and keep every container within its request; hence its slack
is the bound of what such policies can reach. A bound for a whole node lies lower still: containers that peak at
different times of one interval could share, as the sum's maximum is at most the sum of the maxima. Who shares may
run short of a request without being starved, and is not bound by this.

Where a container's node has no room for its growth its pod is evicted, and finds a place at its new size at once:
the oracle is the least in slack and in nodes' requests, not in churn. Nobody gets more than a whole node, as who asks
for more runs nowhere.
"""

import numpy as np

from cruise.backtest.recordings.recording import Recording
from cruise.backtest.replay.sizing import NOBODY, Decision, Fleet, Kill, KillReaction, Sizes
from cruise.backtest.replay.terms import Terms
from cruise.domain.arrays import Float32Array, Int64Array


class Oracle:
    """The least requests that no container passes before the next pass; without memory limits."""

    def __init__(self, recording: Recording, terms: Terms) -> None:
        """Keep the recording: this policy alone may look ahead."""
        self._recording = recording
        self._pass_seconds = max(terms.pass_seconds, recording.step_seconds)
        self._node = terms.node
        self._from: int | None = None
        self._needs = Sizes(NOBODY, NOBODY, NOBODY)

    @property
    def name(self) -> str:
        """The name in tables."""
        return "oracle"

    def observe(self, at: int, cpu: Float32Array, memory: Float32Array) -> None:
        """Learn nothing from the past."""

    def admit(self, containers: Int64Array, fleet: Fleet) -> Sizes:
        """Return what the containers use in the interval that begins now."""
        return self._needs_from(fleet.at).take(containers)

    def decide(self, fleet: Fleet) -> Decision:
        """Write what each container that runs uses in the interval that begins now, where that is not what it has."""
        needs = self._needs_from(fleet.at)
        other = (needs.cpu_millicores != fleet.sizes.cpu_millicores) | (needs.memory_bytes != fleet.sizes.memory_bytes)
        resize: Int64Array = np.flatnonzero((fleet.node >= 0) & other)
        return Decision(resize, needs.take(resize), NOBODY, evict_without_room=True)

    def killed(self, kill: Kill, fleet: Fleet) -> KillReaction:
        """Do nothing: within its requests nobody is killed, but who uses more than a whole node."""
        return KillReaction()

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
