"""Autopilot's moving-window recommender: a statistic by the class of the job, a safety margin, an hour's maximum.

Source: Rzadca et al., EuroSys 2020, section 3.2.2. The paper's: the statistics and which class gets which, half-lives
of 12 hours for CPU and 48 hours for memory, a margin of 10–15 %, less for large limits, and then the maximum of what
was recommended in the last hour. Ours, where it is silent: S_max looks back 72 hours (the paper's N is "a fixed system
parameter"; 72 hours is the default window of the maxima in its horizontal scaling), and the margin falls evenly with
the logarithm of the limit, from 15 % at 1 core or 1 GiB to 10 % at 8 cores or 32 GiB.
"""

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from cruise.backtest.baselines.autopilot.signal import CPU_BOUNDS, MEMORY_BOUNDS, Signal
from cruise.backtest.baselines.autopilot.windows import DecayedMean, LoadPercentile, Peak, RecentMaximum, Statistic
from cruise.domain.arrays import Float64Array
from cruise.domain.resources import MEBIBYTE

CPU_HALF_LIFE_SECONDS = 12 * 3600
MEMORY_HALF_LIFE_SECONDS = 48 * 3600
PEAK_SECONDS = 72 * 3600
HELD_SECONDS = 3600


class JobClass(StrEnum):
    """How a job bears being short of CPU: batch jobs by S_avg, serving jobs by S_p95 or S_p90."""

    BATCH = "batch"
    SERVING = "serving"
    SERVING_LATENCY_TOLERANT = "serving-latency-tolerant"


class OomTolerance(StrEnum):
    """How a job bears being killed: S_max, S_p98, or the larger of S_p60 and half of S_max."""

    MINIMAL = "minimal"
    LOW = "low"
    INTERMEDIATE = "intermediate"


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
        """Start with no history."""
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


class PartialPeak:
    """The larger of S_p60 and half of S_max, which covers short spikes in part."""

    def __init__(self, percentile: LoadPercentile, peak: Peak) -> None:
        """Join the two."""
        self._percentile = percentile
        self._peak = peak

    def add(self, signal: Signal) -> None:
        """Take in a window."""
        self._percentile.add(signal)
        self._peak.add(signal)

    def values(self) -> Float64Array:
        """Return the larger of the two."""
        return np.maximum(self._percentile.values(), 0.5 * self._peak.values())


def cpu_recommender(jobs: int, job_class: JobClass, window_seconds: int) -> MovingWindow:
    """Return the recommender of millicores for jobs of a class."""
    statistic: Statistic
    match job_class:
        case JobClass.BATCH:
            statistic = DecayedMean(jobs, CPU_BOUNDS, CPU_HALF_LIFE_SECONDS)
        case JobClass.SERVING:
            statistic = LoadPercentile(jobs, CPU_BOUNDS, CPU_HALF_LIFE_SECONDS, 0.95)
        case JobClass.SERVING_LATENCY_TOLERANT:
            statistic = LoadPercentile(jobs, CPU_BOUNDS, CPU_HALF_LIFE_SECONDS, 0.90)
    return MovingWindow(jobs, statistic, CPU_MARGIN, windows_of(HELD_SECONDS, window_seconds))


def memory_recommender(jobs: int, tolerance: OomTolerance, window_seconds: int) -> MovingWindow:
    """Return the recommender of bytes for jobs of a tolerance."""
    statistic: Statistic
    match tolerance:
        case OomTolerance.MINIMAL:
            statistic = Peak(jobs, MEMORY_BOUNDS, windows_of(PEAK_SECONDS, window_seconds))
        case OomTolerance.LOW:
            statistic = LoadPercentile(jobs, MEMORY_BOUNDS, MEMORY_HALF_LIFE_SECONDS, 0.98)
        case OomTolerance.INTERMEDIATE:
            statistic = PartialPeak(
                LoadPercentile(jobs, MEMORY_BOUNDS, MEMORY_HALF_LIFE_SECONDS, 0.60),
                Peak(jobs, MEMORY_BOUNDS, windows_of(PEAK_SECONDS, window_seconds)),
            )
    return MovingWindow(jobs, statistic, MEMORY_MARGIN, windows_of(HELD_SECONDS, window_seconds))


def windows_of(seconds: int, window_seconds: int) -> int:
    """Return how many windows make up a time, at least one."""
    return max(1, -(-seconds // window_seconds))
