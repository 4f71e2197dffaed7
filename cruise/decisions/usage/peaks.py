"""Peaks: the largest samples of the last hour and of the clock hours that count, and the start of their history."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cruise.decisions.usage.usage_columns import (
    NEVER,
    EstimationTime,
    KnownPeaks,
    RecentUsage,
    RunToCompletionColumns,
    compute_group_maxima,
)
from cruise.domain.arrays import BoolArray, Float64Array, Int64Array
from cruise.domain.usage import HourlyPeaks, PeakKey, SampleBlock

HOUR_SECONDS = 3600
# A pod that runs to completion is sized by its own first run after this time.
FIRST_RUN_SECONDS = 24 * HOUR_SECONDS


@dataclass(frozen=True, slots=True)
class PeakEstimates:
    """Peaks and start of history at one time, one entry per number."""

    cpu: Float64Array
    memory: Float64Array
    cpu_7d_max: Float64Array
    memory_7d_max: Float64Array
    history_since: Int64Array
    oom: Int64Array


def get_peak_hours(at: int, look_ahead_seconds: int) -> frozenset[int]:
    """Return the hours whose peaks count at a time, as hours since the Unix epoch.

    They are the present clock hour on each of the previous 7 days, and the next one if the look-ahead reaches into it.
    A sample belongs to the hour of its time stamp.
    """
    reached = {at // HOUR_SECONDS, (at + look_ahead_seconds) // HOUR_SECONDS}
    return frozenset(hour - 24 * days for hour in reached for days in range(1, 8))


def get_first_history_hour(at: int) -> int:
    """Return the clock hour 7 days ago, the oldest that counts; it is read as a whole."""
    return at // HOUR_SECONDS - 7 * 24


@dataclass(frozen=True, slots=True)
class HourlyPeakRows:
    """Largest samples of clock hours, one row per (number, hour), sorted by both; NaN if a resource had no sample."""

    numbers: Int64Array
    hours: Int64Array
    cpu_demand_millicores: Float64Array
    memory_bytes: Float64Array


def group_peaks_by_hour(
    times: Int64Array, cpu: NDArray[np.floating], memory: NDArray[np.floating], numbers: Int64Array
) -> HourlyPeakRows:
    """Return the largest samples of each clock hour for the numbers of some containers, -1 for none.

    The matrices have one row per container and one column per time.
    """
    hours, starts = np.unique(times // HOUR_SECONDS, return_index=True)
    known = np.flatnonzero(numbers >= 0)
    if not len(known):
        nothing = np.empty(0)
        return HourlyPeakRows(nothing.astype(np.int64), nothing.astype(np.int64), nothing, nothing)
    order = known[np.argsort(numbers[known], kind="stable")]
    found, firsts = np.unique(numbers[order], return_index=True)

    def largest(samples: NDArray[np.floating]) -> Float64Array:
        by_hour = np.fmax.reduceat(samples[order], starts, axis=1)
        peaks: Float64Array = np.fmax.reduceat(by_hour, firsts, axis=0).ravel().astype(np.float64)
        return peaks

    largest_cpu, largest_memory = largest(cpu), largest(memory)
    sampled = np.flatnonzero(~(np.isnan(largest_cpu) & np.isnan(largest_memory)))
    return HourlyPeakRows(
        found[sampled // len(hours)], hours[sampled % len(hours)], largest_cpu[sampled], largest_memory[sampled]
    )


def compute_hourly_peaks(block: SampleBlock, numbers: Int64Array, keys: Sequence[PeakKey]) -> HourlyPeaks:
    """Return the largest samples of each clock hour of a block, by the number of its containers.

    `keys` holds the key of each number; containers with number -1 are omitted. Sorted by number and hour.
    """
    peaks = group_peaks_by_hour(block.times, block.cpu_demand_millicores, block.memory_bytes, numbers)
    return HourlyPeaks(
        keys=[keys[number] for number in peaks.numbers.tolist()],
        hours=peaks.hours,
        cpu_demand_millicores=peaks.cpu_demand_millicores,
        memory_bytes=peaks.memory_bytes,
    )


def estimate_peaks(
    recent: RecentUsage,
    known: KnownPeaks,
    oom: Int64Array,
    time: EstimationTime,
    runs: RunToCompletionColumns | None = None,
) -> PeakEstimates:
    """Combine the last hour with the hours of the peak window; a new identity inherits from its workload.

    `oom` is the OOM memory per number, 0 for none. For `runs` all hours of seven days count: their usage depends on
    their own progress, not on the hour of the day.
    """
    count, parent = len(known.keys), known.parent
    cpu_last_hour = np.fmax.reduce(recent.cpu_demand_millicores, axis=1, initial=np.nan).astype(np.float64)
    memory_last_hour = np.fmax.reduce(recent.memory_bytes, axis=1, initial=np.nan)
    memory_last_hour = compute_group_maxima(memory_last_hour, recent.number, count)
    cpu_last_hour = compute_group_maxima(cpu_last_hour, recent.number, count)
    cpu_peak, memory_peak = known.cpu_peak_millicores, known.memory_peak_bytes
    if runs is not None:
        cpu_peak = np.where(runs.runs_to_completion, known.cpu_7d_max_millicores, cpu_peak)
        memory_peak = np.where(runs.runs_to_completion, known.memory_7d_max_bytes, memory_peak)
    cpu = np.fmax(cpu_peak, cpu_last_hour)
    cpu_7d_max = np.fmax(known.cpu_7d_max_millicores, cpu_last_hour)
    memory = np.fmax(memory_peak, memory_last_hour)
    memory_7d_max = np.fmax(known.memory_7d_max_bytes, memory_last_hour)
    first_sample, is_exact = _find_first_samples(recent, known, time.at, time.step)
    first_sample_of_workload = first_sample.copy()
    np.minimum.at(first_sample_of_workload, parent, first_sample)
    # Until an identity has its own history, it uses that of its workload.
    inherits = (first_sample > time.at - time.new_workload_seconds) & (parent != np.arange(count))
    for values in (cpu, memory, cpu_7d_max, memory_7d_max):
        np.fmax.at(values, parent, values.copy())
        values[inherits] = values[parent[inherits]]
    # A kill of one identity does not apply to its workload; one of the workload applies to every identity.
    oom = np.maximum(oom, oom[parent])
    history_since = first_sample_of_workload[parent]
    if runs is not None:
        latest_first_sample = first_sample + np.where(is_exact, time.step, HOUR_SECONDS)
        history_since = _shift_history_of_runs(history_since, latest_first_sample[parent], runs, time)
    return PeakEstimates(cpu, np.fmax(memory, oom), cpu_7d_max, memory_7d_max, history_since, oom)


def _shift_history_of_runs(
    history_since: Int64Array, latest_first_sample: Int64Array, runs: RunToCompletionColumns, time: EstimationTime
) -> Int64Array:
    """Return the start of history, for pods that run to completion by runs instead of by age.

    Once a pod that was sampled has ended, the workload is not new, however short the run was: an ended one is known if
    none runs, or if the first sample is older than the oldest one that runs. Until then its usage so far says little
    about the rest of the run, and only a whole day does.
    """
    has_ended = runs.oldest_start > latest_first_sample
    after_run = np.minimum(history_since, time.at - time.new_workload_seconds)
    in_first_run = np.minimum(history_since + max(0, FIRST_RUN_SECONDS - time.new_workload_seconds), time.at)
    shifted = np.where(has_ended, after_run, in_first_run)
    return np.where(runs.runs_to_completion & (history_since != NEVER), shifted, history_since)


def _find_first_samples(recent: RecentUsage, known: KnownPeaks, at: int, step: int) -> tuple[Int64Array, BoolArray]:
    """Return the time of each number's first sample: exact to the step in the last hour, else to the hour."""
    columns = recent.columns
    oldest = at - step * (len(columns) - 1)
    # Histories that began before the last hour need no search through single samples.
    may_begin_in_hour = known.first_hour >= oldest // HOUR_SECONDS
    rows = np.flatnonzero((recent.number >= 0) & may_begin_in_hour[recent.number])
    cells = np.ix_(rows, columns)
    sampled = ~(np.isnan(recent.cpu_demand_millicores[cells]) & np.isnan(recent.memory_bytes[cells]))
    first = np.where(sampled.any(axis=1), oldest + step * sampled.argmax(axis=1), NEVER)
    first_in_hour = np.full(len(known.keys), NEVER)
    np.minimum.at(first_in_hour, recent.number[rows], first)
    by_hour = np.where(known.first_hour == NEVER, first_in_hour, known.first_hour * HOUR_SECONDS)
    # A sample in the oldest column may not have been the first.
    exact = may_begin_in_hour & (first_in_hour > oldest) & (first_in_hour != NEVER)
    return np.where(exact, first_in_hour, by_hour), exact
