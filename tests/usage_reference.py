"""A simple, slow reference for statistics: one container after the other, from raw samples."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tests.cadvisor import LOOKBACK, RawSeries

HOUR = 3600
Numbers = NDArray[np.float64]
Minutes = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ReferenceUsage:
    """A container's minutes: CPU demand in millicores and memory in bytes, NaN where nothing is known."""

    cpu: Numbers
    memory: Numbers


def compute_reference_usage(series: Sequence[RawSeries], minutes: Minutes, max_cores: float) -> ReferenceUsage:
    """Sum up one container's samples; `minutes` has one before the first whose usage is wanted."""
    cpu = [at_minutes(one.times, one.cpu, minutes) for one in series]
    waiting = [None if one.waiting is None else at_minutes(one.times, one.waiting, minutes) for one in series]
    demands = []
    for row, counter in enumerate(cpu):
        beside = np.zeros(len(minutes) - 1, dtype=np.bool_)
        for other, another in enumerate(cpu):
            if other != row:
                beside |= ~np.isnan(another[:-1])
        used = compute_growth(counter, beside, 60 * max_cores)
        pressure = np.zeros(len(used))
        waited = waiting[row]
        if waited is not None:
            pressure = np.clip(np.nan_to_num(compute_growth(waited, beside, 60) / 60), 0, 1)
        demands.append(used / 60 * 1000 * (1 + pressure))
    memory = [at_minutes(one.times, one.memory, minutes)[1:] for one in series]
    nothing = np.full((1, len(minutes) - 1), np.nan)
    return ReferenceUsage(np.fmax.reduce([*nothing, *demands]), np.fmax.reduce([*nothing, *memory]))


def at_minutes(times: Numbers, values: Numbers, minutes: Minutes) -> Numbers:
    """The last value seen by each minute, NaN where there was none for five."""
    last = np.searchsorted(times, minutes, side="right") - 1
    fresh = (last >= 0) & (minutes - times[last] < LOOKBACK)
    return np.where(fresh, values[last], np.nan)


def compute_growth(counter: Numbers, restarted_beside: NDArray[np.bool_], most: float) -> Numbers:
    """What a counter counted within each minute."""
    before, now = counter[:-1], counter[1:]
    anew = (now < before) | (np.isnan(before) & restarted_beside)
    return np.where(anew, np.where(now <= most, now, np.nan), now - before)


def compute_reference_base(values: Numbers, window: int) -> float:
    """The 75th percentile of the last samples, NaN where there are not enough of them."""
    last = values[-window:]
    return float(np.nanpercentile(last, 75)) if np.count_nonzero(~np.isnan(last)) >= 0.8 * window else np.nan


def peak_minutes(minutes: Minutes, at: int, look_ahead: int) -> NDArray[np.bool_]:
    """Return which minutes count for a peak."""
    counts = (minutes > at - HOUR) & (minutes <= at)
    for hour in {at // HOUR, (at + look_ahead) // HOUR}:
        for days in range(1, 8):
            counts |= minutes // HOUR == hour - 24 * days
    return counts


def find_largest(values: Iterable[float]) -> float:
    """The largest of some numbers, NaN where there is none."""
    return max((value for value in values if not np.isnan(value)), default=np.nan)
