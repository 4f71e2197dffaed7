"""The baseline `as-requested`: every pod as it was provisioned, for ever, as in a cluster without rightsizing."""

import numpy as np

from cruise.backtest.recordings.recording import Recording
from cruise.backtest.replay.options import ReplayOptions
from cruise.backtest.replay.policy import NO_CONTAINERS, ClusterView, Decision, ReplayPolicy, Sizes
from cruise.domain.arrays import Int64Array


def provisioned_sizes(recording: Recording) -> Sizes:
    """Return what the recorded containers were provisioned with."""
    rows = [
        (one.requests.cpu_millicores, one.requests.memory_bytes, one.memory_limit_bytes) for one in recording.containers
    ]
    return Sizes(*np.array(rows, dtype=np.int64).reshape(-1, 3).T.copy())


class AsRequested(ReplayPolicy):
    """Provisioned requests at admission, and nothing ever after."""

    name = "as-requested"

    def __init__(self, recording: Recording, options: ReplayOptions) -> None:
        self._provisioned = provisioned_sizes(recording)

    def admit(self, containers: Int64Array, view: ClusterView) -> Sizes:
        """Return what the containers were provisioned with."""
        return self._provisioned.take(containers)

    def decide(self, view: ClusterView) -> Decision:
        """Change nothing."""
        return Decision(NO_CONTAINERS, Sizes.zeros(0), NO_CONTAINERS)
