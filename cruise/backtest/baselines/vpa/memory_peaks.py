"""What the Vertical Pod Autoscaler remembers of a container's memory: one peak in 24 hours.

Source: kubernetes/autoscaler, tag vertical-pod-autoscaler/v1.8.1, pkg/recommender/model/container.go. A container's
windows begin with its first sample. The peak of a window weighs as much as any other however often it rises: the old
peak is taken out of the histogram when a higher one is put in, both dated at the window's end. A kill counts as a use
of 20 % more, and at least 100 MiB more, than the container requested or was seen to use.
"""

import numpy as np

from cruise.backtest.baselines.vpa.histograms import DecayingHistograms
from cruise.domain.arrays import Float64Array, Int64Array

_WINDOW_SECONDS = 86400
_NEVER = np.int64(-(1 << 62))
_BUMP_RATIO = 1.2
_BUMP_BYTES = 100 * 1024 * 1024


class MemoryPeaks:
    """The windows of C containers; their peaks go to the histogram of `row_of`, one row a container."""

    def __init__(self, histograms: DecayingHistograms, row_of: Int64Array) -> None:
        self._histograms = histograms
        self._row_of = row_of
        count = len(row_of)
        self._window_end: Int64Array = np.full(count, _NEVER, dtype=np.int64)
        self._seen_at: Int64Array = np.full(count, _NEVER, dtype=np.int64)
        self._peak: Float64Array = np.zeros(count)
        self._peak_of_kills: Float64Array = np.zeros(count)

    def start_anew(self, containers: Int64Array) -> None:
        """Begin new windows for containers whose pods were replaced; what the old ones gave stays in the histogram."""
        self._window_end[containers] = _NEVER
        self._seen_at[containers] = _NEVER
        self._peak[containers] = 0
        self._peak_of_kills[containers] = 0

    def add(self, containers: Int64Array, used_bytes: Float64Array, at: int) -> None:
        """Take in one sample of each of some containers; one older than the last is dropped."""
        valid = (used_bytes >= 0) & (at >= self._seen_at[containers])
        self._add(containers[valid], used_bytes[valid], at, self._peak)

    def add_kill(self, container: int, requested_bytes: int, at: int) -> bool:
        """Take in a kill for want of memory, and tell whether it counted: a day before the last sample is too old."""
        if at < self._seen_at[container] - _WINDOW_SECONDS:
            return False
        used = max(requested_bytes, int(self._peak[container]))
        needed = max(used + _BUMP_BYTES, int(used * _BUMP_RATIO))
        place = np.array([container], dtype=np.int64)
        self._add(place, np.array([needed], dtype=np.float64), at, self._peak_of_kills)
        return True

    def _add(self, containers: Int64Array, used: Float64Array, at: int, peaks: Float64Array) -> None:
        self._seen_at[containers] = at
        end = self._window_end[containers]
        end[end == _NEVER] = at
        within = at < end
        old = np.maximum(self._peak[containers], self._peak_of_kills[containers])
        # Upstream takes a peak of 0 for no peak at all: such a window stays as it is to its end.
        higher = within & (old != 0) & (used > old)
        self._histograms.subtract(self._row_of[containers[higher]], old[higher], 1.0, end[higher])
        end = np.where(within, end, end + (at - end) // _WINDOW_SECONDS * _WINDOW_SECONDS + _WINDOW_SECONDS)
        self._window_end[containers] = end
        opened = containers[~within]
        self._peak[opened] = 0
        self._peak_of_kills[opened] = 0
        added = higher | ~within
        if added.any():
            self._histograms.add(self._row_of[containers[added]], used[added], 1.0, end[added])
            peaks[containers[added]] = used[added]
