"""From usage samples to statistics: base, peaks and age of every container, in columns."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from cruise.decisions.peaks import Peaks, estimate_peaks
from cruise.decisions.percentiles import largest_of_groups, percentile_of_rows
from cruise.decisions.statistics_table import joined_tables
from cruise.decisions.usage_columns import KnownPeaks, LiveContainers, RecentUsage
from cruise.domain.usage import (
    BoolArray,
    Float64Array,
    Int64Array,
    PeakKey,
    StatisticKey,
    StatisticsTable,
)

CPU_BASE_SECONDS = 600
MEMORY_BASE_SECONDS = 1800
BASE_SHARE = 0.75
# Of a window's samples, before a pod is judged by them alone.
ENOUGH = 0.8
# A counter's growth comes with the rounding error of large numbers: below this share it is not rounded up.
CPU_ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class _Bases:
    """75th percentiles, one entry a row: NaN for rows that have too few samples or are not of a live pod."""

    cpu: Float64Array
    memory: Float64Array


def estimate_statistics(
    recent: RecentUsage,
    known: KnownPeaks,
    live: LiveContainers,
    oom_memory: Mapping[PeakKey, int],
    at: int,
    step: int,
    max_age_seconds: int,
    new_workload_seconds: int,
) -> StatisticsTable:
    """Estimate the statistics of all live containers, and of all workloads with live containers or known peaks.

    A container whose last sample is older than `max_age_seconds` has no row. One with too few samples to be judged by
    them alone takes its workload's base, or has no row where that is not known either, or where samples have ceased.
    Containers come in the order of `live`, then workloads sorted by key.
    """
    if not known.keys:
        return StatisticsTable.of_rows([])
    is_live = np.zeros(len(recent.number), dtype=np.bool_)
    is_live[live.rows[live.rows >= 0]] = True
    is_live &= recent.newest >= at - max_age_seconds
    bases = _bases(recent, is_live, step)
    peaks = estimate_peaks(recent, known, oom_memory, at, step, new_workload_seconds)
    containers = _container_rows(recent, known, live, is_live, bases, peaks, at)
    workloads = _workload_rows(recent, known, live, is_live, bases, peaks, at)
    return joined_tables(containers, workloads)


def _bases(recent: RecentUsage, is_live: BoolArray, step: int) -> _Bases:
    cpu_columns = recent.columns[-(CPU_BASE_SECONDS // step) :]
    memory_columns = recent.columns[-(MEMORY_BASE_SECONDS // step) :]
    cpu, cpu_samples = percentile_of_rows(recent.cpu_demand_millicores[:, cpu_columns], BASE_SHARE)
    memory, memory_samples = percentile_of_rows(recent.memory_bytes[:, memory_columns], BASE_SHARE)
    cpu[~is_live | (cpu_samples < ENOUGH * len(cpu_columns))] = np.nan
    memory[~is_live | (memory_samples < ENOUGH * len(memory_columns))] = np.nan
    return _Bases(cpu, memory)


def _container_rows(
    recent: RecentUsage,
    known: KnownPeaks,
    live: LiveContainers,
    is_live: BoolArray,
    bases: _Bases,
    peaks: Peaks,
    at: int,
) -> StatisticsTable:
    parents = known.parent[recent.number]
    of_workload = _bases_of(bases, parents, len(known.keys))
    cpu = np.where(np.isnan(bases.cpu), of_workload.cpu[parents], bases.cpu)
    memory = np.where(np.isnan(bases.memory), of_workload.memory[parents], bases.memory)
    # A container that was measured well until a moment ago is better spoken for by what was known then.
    ceased = (np.isnan(bases.cpu) | np.isnan(bases.memory)) & (recent.newest < at)
    usable = np.append(is_live & ~ceased & ~np.isnan(cpu) & ~np.isnan(memory), False)
    chosen = np.flatnonzero(usable[live.rows])
    rows = live.rows[chosen]
    return _table(
        [live.keys[index] for index in chosen.tolist()],
        recent.newest[rows],
        _Bases(cpu[rows], memory[rows]),
        peaks,
        recent.number[rows],
        _last_memory(recent, rows),
        recent.psi_known[rows],
    )


def _workload_rows(
    recent: RecentUsage,
    known: KnownPeaks,
    live: LiveContainers,
    is_live: BoolArray,
    bases: _Bases,
    peaks: Peaks,
    at: int,
) -> StatisticsTable:
    count = len(known.keys)
    own = _bases_of(bases, recent.number, count)
    whole = _bases_of(bases, known.parent[recent.number], count)
    is_whole = known.parent == np.arange(count)
    resting = _resting(known, live)
    cpu = np.where(resting, peaks.cpu, np.where(is_whole, whole.cpu, own.cpu))
    memory = np.where(resting, peaks.memory, np.where(is_whole, whole.memory, own.memory))
    usable = np.flatnonzero(~np.isnan(cpu) & ~np.isnan(memory)).tolist()
    numbers = np.array(
        sorted((one for one in usable if not is_bare(known.keys[one])), key=known.keys.__getitem__), dtype=np.int64
    )
    rows = np.flatnonzero(is_live & (recent.number >= 0))
    newest, psi_known, last_memory = np.zeros(count, dtype=np.int64), np.ones(count, dtype=np.bool_), np.zeros(count)
    for groups in (recent.number[rows], known.parent[recent.number[rows]]):
        np.maximum.at(newest, groups, recent.newest[rows])
        np.logical_and.at(psi_known, groups, recent.psi_known[rows])
        np.fmax.at(last_memory, groups, _last_memory(recent, rows))
    newest[resting] = at
    return _table(
        [
            StatisticKey(key.namespace, "", key.workload, key.container, key.identity)
            for key in map(known.keys.__getitem__, numbers.tolist())
        ],
        newest[numbers],
        _Bases(cpu[numbers], memory[numbers]),
        peaks,
        numbers,
        last_memory[numbers],
        psi_known[numbers],
    )


def _resting(known: KnownPeaks, live: LiveContainers) -> BoolArray:
    """Tell which keys are of workloads without a live pod, such as a CronJob between two runs.

    No sample of theirs is missing, so nothing about them is stale: the next pod is sized from the peaks that are known.
    """
    running = {(key.namespace, key.workload, key.container) for key in live.keys}
    return np.array([(key.namespace, key.workload, key.container) not in running for key in known.keys], dtype=np.bool_)


def is_bare(key: PeakKey) -> bool:
    """Tell whether a key is of a pod without a controller, which no other pod inherits from."""
    return key.workload.startswith("Pod/")


def _bases_of(bases: _Bases, groups: Int64Array, count: int) -> _Bases:
    return _Bases(
        largest_of_groups(bases.cpu, groups, count),
        largest_of_groups(bases.memory, groups, count),
    )


def _last_memory(recent: RecentUsage, rows: Int64Array) -> Float64Array:
    """Return the newest memory sample of each row, 0 where there is none."""
    newest_first: Float64Array = recent.memory_bytes[np.ix_(rows, recent.columns[::-1])]
    place = (~np.isnan(newest_first)).argmax(axis=1)
    newest: Float64Array = np.nan_to_num(newest_first[np.arange(len(rows)), place])
    return newest


def _table(
    keys: list[StatisticKey],
    updated_at: Int64Array,
    bases: _Bases,
    peaks: Peaks,
    numbers: Int64Array,
    last_memory: Float64Array,
    psi_known: BoolArray,
) -> StatisticsTable:
    return StatisticsTable(
        keys=keys,
        updated_at=updated_at,
        history_since=peaks.history_since[numbers],
        cpu_base_millicores=_rounded_up(bases.cpu * (1 - CPU_ROUNDING)),
        cpu_peak_millicores=_rounded_up(peaks.cpu[numbers] * (1 - CPU_ROUNDING)),
        memory_base_bytes=_rounded_up(bases.memory),
        memory_peak_bytes=_rounded_up(peaks.memory[numbers]),
        memory_7d_max_bytes=_rounded_up(peaks.memory_7d_max[numbers]),
        oom_memory_bytes=peaks.oom[numbers],
        memory_last_bytes=_rounded_up(last_memory),
        psi_known=psi_known,
    )


def _rounded_up(values: Float64Array) -> Int64Array:
    return np.ceil(np.nan_to_num(values)).astype(np.int64)
