"""The baseline `as-requested`: every pod as it was provisioned, for ever, as in a cluster that nobody rightsizes."""

import numpy as np

from cruise.backtest.recordings.recording import Recording
from cruise.backtest.replay.sizing import NOBODY, Decision, Fleet, Kill, KillReaction, Sizes
from cruise.backtest.replay.terms import Terms
from cruise.domain.arrays import Float32Array, Int64Array


def provisioned_sizes(recording: Recording) -> Sizes:
    """Return what the recorded containers were provisioned with."""
    cpu = np.array([container.requests.cpu_millicores for container in recording.containers], dtype=np.int64)
    memory = np.array([container.requests.memory_bytes for container in recording.containers], dtype=np.int64)
    limits = np.array([container.memory_limit_bytes for container in recording.containers], dtype=np.int64)
    return Sizes(cpu, memory, limits)


class AsRequested:
    """Provisioned requests at admission, and nothing ever after."""

    def __init__(self, recording: Recording, terms: Terms) -> None:
        """Keep what was provisioned."""
        self._provisioned = provisioned_sizes(recording)
        self._nothing = Decision(NOBODY, self._provisioned.take(NOBODY), NOBODY)

    @property
    def name(self) -> str:
        """The name in tables."""
        return "as-requested"

    def observe(self, at: int, cpu: Float32Array, memory: Float32Array) -> None:
        """Learn nothing."""

    def admit(self, containers: Int64Array, fleet: Fleet) -> Sizes:
        """Return what the containers were provisioned with."""
        return self._provisioned.take(containers)

    def decide(self, fleet: Fleet) -> Decision:
        """Change nothing."""
        return self._nothing

    def killed(self, kill: Kill, fleet: Fleet) -> KillReaction:
        """Do nothing: the kubelet restarts the container as it was."""
        return KillReaction()
