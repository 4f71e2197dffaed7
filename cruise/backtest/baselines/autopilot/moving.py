"""Autopilot's moving-window recommender: a statistic of the job's use, a safety margin, an hour's maximum.

Source: Rzadca et al., EuroSys 2020, section 3.2.2. The paper's: the statistics, a half-life of 12 hours for CPU, a
margin of 10–15 %, less for large limits, and then the maximum of what was recommended in the last hour. Ours, where it
is silent: S_max looks back 72 hours (the paper's N is "a fixed system parameter"; 72 hours is the default window of the
maxima in its horizontal scaling), and the margin falls evenly with the logarithm of the limit, from 15 % at 1 core or
1 GiB to 10 % at 8 cores or 32 GiB.
"""

import math
from dataclasses import dataclass

import numpy as np

from cruise.backtest.baselines.autopilot.signal import CPU_BOUNDS, MEMORY_BOUNDS, Signal
from cruise.backtest.baselines.autopilot.windows import LoadPercentile, Peak, RecentMaximum, Statistic
from cruise.domain.arrays import Float64Array
from cruise.domain.resources import MEBIBYTE

CPU_HALF_LIFE_SECONDS = 12 * 3600
PEAK_SECONDS = 72 * 3600
HELD_SECONDS = 3600


@dataclass(frozen=True, slots=True)
class Margin:
    """The safety margin as a share of the limit: `most` up to `small`, `least` from `large` on."""

    small: float
    large: float
    most: float = 0.15
    least: float = 0.10

    def of(self, limits: Float64Array) -> Float64Array:
        """Return the margin of each limit; NaN stays NaN."""
        way = np.log(limits / self.small) / math.log(self.large / self.small)
        return self.most + (self.least - self.most) * np.clip(way, 0.0, 1.0)


CPU_MARGIN = Margin(1000, 8000)
MEMORY_MARGIN = Margin(1024 * MEBIBYTE, 32 * 1024 * MEBIBYTE)


class MovingWindow:
    """A statistic with the margin upon it, and the maximum of that over the last hour."""

    def __init__(self, jobs: int, statistic: Statistic, margin: Margin, held_windows: int) -> None:
        self._statistic = statistic
        self._margin = margin
        self._recent = RecentMaximum(jobs, held_windows)

    def learn(self, signal: Signal) -> None:
        """Take in a window."""
        self._statistic.add(signal)
        raw = self._statistic.values()
        self._recent.push(np.nan_to_num(raw * (1.0 + self._margin.of(raw)), nan=-np.inf))

    def recommend(self) -> Float64Array:
        """Return the limit of every job, NaN for one that has no history."""
        largest = self._recent.largest
        return np.where(np.isfinite(largest), largest, np.nan)


def cpu_recommender(jobs: int, window_seconds: int) -> MovingWindow:
    """Return the recommender of millicores: S_p95, as for serving jobs."""
    statistic = LoadPercentile(jobs, CPU_BOUNDS, CPU_HALF_LIFE_SECONDS, 0.95)
    return MovingWindow(jobs, statistic, CPU_MARGIN, windows_of(HELD_SECONDS, window_seconds))


def memory_recommender(jobs: int, window_seconds: int) -> MovingWindow:
    """Return the recommender of bytes: S_max, as for jobs with minimal tolerance of kills."""
    statistic = Peak(jobs, MEMORY_BOUNDS, windows_of(PEAK_SECONDS, window_seconds))
    return MovingWindow(jobs, statistic, MEMORY_MARGIN, windows_of(HELD_SECONDS, window_seconds))


def windows_of(seconds: int, window_seconds: int) -> int:
    """Return how many windows make up a time, at least one."""
    return max(1, -(-seconds // window_seconds))
