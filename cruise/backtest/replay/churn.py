"""How often sizes were written into running pods and taken back, and pods evicted and killed."""

import numpy as np

from cruise.domain.arrays import Int64Array

REVERSAL_SECONDS = 86400


class Churn:
    """Counts with one entry a container.

    A resize is a reversal if one of its resources goes the other way than it last went, no longer than 24 hours ago,
    in the same pod. `moves` are those of the evictions that consolidation made.
    """

    def __init__(self, containers: int) -> None:
        self.resizes: Int64Array = np.zeros(containers, dtype=np.int64)
        self.evictions: Int64Array = np.zeros(containers, dtype=np.int64)
        self.kills: Int64Array = np.zeros(containers, dtype=np.int64)
        self.moves: Int64Array = np.zeros(containers, dtype=np.int64)
        self.reversals = 0
        self._went: Int64Array = np.zeros((2, containers), dtype=np.int64)
        self._went_at: Int64Array = np.zeros((2, containers), dtype=np.int64)

    def resized(self, containers: Int64Array, cpu_change: Int64Array, memory_change: Int64Array, at: int) -> None:
        """Take note of resizes done, each container once."""
        self.resizes[containers] += 1
        reversed_now = np.zeros(len(containers), dtype=np.bool_)
        for went, went_at, change in zip(self._went, self._went_at, (cpu_change, memory_change), strict=True):
            moved = change != 0
            way, where = np.sign(change[moved]), containers[moved]
            reversed_now[moved] |= (went[where] == -way) & (at - went_at[where] <= REVERSAL_SECONDS)
            went[where], went_at[where] = way, at
        self.reversals += int(np.count_nonzero(reversed_now))

    def born(self, containers: Int64Array) -> None:
        """Forget which way the sizes of replaced pods went."""
        self._went[:, containers] = 0
