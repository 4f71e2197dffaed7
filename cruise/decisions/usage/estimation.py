"""From usage samples to statistics: base, peaks and age of every container, in columns."""

from dataclasses import dataclass

import numpy as np

from cruise.decisions.usage.attribution import compute_group_maxima, compute_row_percentiles
from cruise.decisions.usage.oom_records import OomKillEffects, SingleOomKill, raise_by_own_kills, raise_by_single_kills
from cruise.decisions.usage.peaks import PeakEstimates, estimate_peaks
from cruise.decisions.usage.usage_columns import KnownPeaks, RecentUsage, RevisionGroups, RunningContainers
from cruise.domain.resources import BoolArray, Float64Array, Int64Array
from cruise.domain.usage import PeakKey, StatisticColumns, StatisticKey, StatisticsTable

CPU_BASE_SECONDS = 600
MEMORY_BASE_SECONDS = 1800
BASE_SHARE = 0.75
# Of a window's samples, before a pod is judged by them alone.
MIN_SAMPLES = 0.8
# So old is the youngest pod that has enough of them.
OWN_SAMPLES_SECONDS = int(MIN_SAMPLES * MEMORY_BASE_SECONDS)
# A counter's growth comes with the rounding error of large numbers: below this share it is not rounded up.
CPU_ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class BaseEstimates:
    """75th percentiles, one entry a row: NaN for rows that have too few samples or are not of a live pod."""

    cpu: Float64Array
    memory: Float64Array


@dataclass(frozen=True, slots=True)
class UsageEstimates:
    """What the usage up to a time says, before it is told whose it is.

    `is_live` has one entry a row: whether it is of a pod that exists and was sampled lately.
    """

    at: int
    recent: RecentUsage
    known: KnownPeaks
    is_live: BoolArray
    bases: BaseEstimates
    peaks: PeakEstimates


def estimate_statistics(
    recent: RecentUsage,
    known: KnownPeaks,
    live: RunningContainers,
    lessons: OomKillEffects,
    at: int,
    step: int,
    max_age_seconds: int,
    new_workload_seconds: int,
) -> StatisticsTable:
    """Estimate the statistics of all live containers, and of all workloads with live containers or known peaks.

    A container has no row where both resources were last known longer ago than `max_age_seconds`. One with too few
    samples to be judged by them alone takes its workload's base, over the pods that state the same resources, or has no
    row where that is not known either, or where samples have ceased.
    Containers come in the order of `live`, then workloads sorted by key.
    """
    if not known.keys:
        return StatisticsTable.from_rows([])
    oom = np.zeros(len(known.keys), dtype=np.int64)
    single: dict[int, SingleOomKill] = {}
    for number, key in enumerate(known.keys) if lessons.by_key or lessons.single else ():
        oom[number] = lessons.by_key.get(key, 0)
        if key in lessons.single:
            single[number] = lessons.single[key]
    gauged = estimate_usage(recent, known, live.rows, oom, at, step, max_age_seconds, new_workload_seconds)
    chosen, containers = estimate_containers(gauged, live.rows, live.mixed)
    parents = known.parent[recent.number[live.rows[chosen]]]
    containers = raise_by_single_kills(containers, parents, single)
    numbers, workloads = estimate_workloads(gauged, _resting(known, live))
    keys = [known.keys[number] for number in numbers.tolist()]
    shared = [place for place, key in enumerate(keys) if not is_bare_pod_key(key)]
    shared.sort(key=keys.__getitem__)
    table = StatisticsTable.from_columns(
        containers.concatenate(workloads.take(np.array(shared, dtype=np.int64))),
        [live.keys[index] for index in chosen.tolist()] + [get_workload_statistic_key(keys[place]) for place in shared],
    )
    return raise_by_own_kills(table, lessons.by_pod)


def estimate_usage(
    recent: RecentUsage,
    known: KnownPeaks,
    live_rows: Int64Array,
    oom: Int64Array,
    at: int,
    step: int,
    max_age_seconds: int,
    new_workload_seconds: int,
) -> UsageEstimates:
    """Find bases by row and peaks by number, of which there is at least one.

    `live_rows` has the rows of the containers that exist, -1 for one without; `oom` what kills taught, one entry a
    number, 0 where there was none.
    """
    is_live = np.zeros(len(recent.number), dtype=np.bool_)
    is_live[live_rows[live_rows >= 0]] = True
    is_live &= recent.is_complete >= at - max_age_seconds
    peaks = estimate_peaks(recent, known, oom, at, step, new_workload_seconds)
    return UsageEstimates(at, recent, known, is_live, _bases(recent, is_live, step), peaks)


def estimate_containers(
    gauged: UsageEstimates, live_rows: Int64Array, mixed: RevisionGroups | None = None
) -> tuple[Int64Array, StatisticColumns]:
    """Return which of the live containers can be judged, as places in `live_rows`, and their statistics."""
    recent, bases = gauged.recent, gauged.bases
    groups, count = gauged.known.parent[recent.number], len(gauged.known.keys)
    if mixed is not None:
        bases, groups, count = _apart(bases, groups, count, live_rows, mixed)
    cpu, memory = bases.cpu, bases.memory
    lacking = np.isnan(cpu) | np.isnan(memory)
    if (lacking & gauged.is_live).any():
        of_group = _bases_of(bases, groups, count)
        cpu = np.where(np.isnan(cpu), of_group.cpu[groups], cpu)
        memory = np.where(np.isnan(memory), of_group.memory[groups], memory)
    # A container that was measured well until a moment ago is better spoken for by what was known then.
    ceased = lacking & (recent.newest < gauged.at)
    usable = np.append(gauged.is_live & ~ceased & ~np.isnan(cpu) & ~np.isnan(memory), False)
    chosen = np.flatnonzero(usable[live_rows])
    rows = live_rows[chosen]
    columns = _columns(
        recent.is_complete[rows],
        BaseEstimates(cpu[rows], memory[rows]),
        gauged.peaks,
        recent.number[rows],
        _last_memory(recent, rows),
        recent.psi_known[rows],
    )
    return chosen, columns


def _apart(
    bases: BaseEstimates, groups: Int64Array, count: int, live_rows: Int64Array, mixed: RevisionGroups
) -> tuple[BaseEstimates, Int64Array, int]:
    """Return bases without those of pods that are too young for one of their own, and each revision as a group."""
    cpu, memory, groups = bases.cpu.copy(), bases.memory.copy(), groups.copy()
    sampled = live_rows >= 0
    young = live_rows[sampled & mixed.new_containers]
    cpu[young] = memory[young] = np.nan
    told_apart = sampled & (mixed.groups >= 0)
    groups[live_rows[told_apart]] = count + mixed.groups[told_apart]
    return BaseEstimates(cpu, memory), groups, count + int(mixed.groups.max(initial=0)) + 1


def estimate_workloads(gauged: UsageEstimates, resting: BoolArray) -> tuple[Int64Array, StatisticColumns]:
    """Return the numbers that something is known of, ascending, and their statistics.

    `resting` tells which numbers are of workloads without a live pod, such as a CronJob between two runs. No sample of
    theirs is missing, so nothing about them is stale: the next pod is sized from the peaks that are known.
    """
    recent, known, bases, peaks = gauged.recent, gauged.known, gauged.bases, gauged.peaks
    count = len(known.keys)
    own = _bases_of(bases, recent.number, count)
    whole = _bases_of(bases, known.parent[recent.number], count)
    is_whole = known.parent == np.arange(count)
    cpu = np.where(resting, peaks.cpu, np.where(is_whole, whole.cpu, own.cpu))
    memory = np.where(resting, peaks.memory, np.where(is_whole, whole.memory, own.memory))
    numbers = np.flatnonzero(~np.isnan(cpu) & ~np.isnan(memory))
    rows = np.flatnonzero(gauged.is_live & (recent.number >= 0))
    newest, psi_known, last_memory = np.zeros(count, dtype=np.int64), np.ones(count, dtype=np.bool_), np.zeros(count)
    memory_of_rows = _last_memory(recent, rows)
    for groups in (recent.number[rows], known.parent[recent.number[rows]]):
        np.maximum.at(newest, groups, recent.is_complete[rows])
        np.logical_and.at(psi_known, groups, recent.psi_known[rows])
        np.fmax.at(last_memory, groups, memory_of_rows)
    newest[resting] = gauged.at
    columns = _columns(
        newest[numbers],
        BaseEstimates(cpu[numbers], memory[numbers]),
        peaks,
        numbers,
        last_memory[numbers],
        psi_known[numbers],
    )
    return numbers, columns


def get_workload_statistic_key(key: PeakKey) -> StatisticKey:
    """Return the key of the statistic that speaks for all pods of a workload, or of one identity of it."""
    return StatisticKey(key.namespace, "", key.workload, key.container, key.identity)


def is_bare_pod_key(key: PeakKey) -> bool:
    """Tell whether a key is of a pod without a controller, which no other pod inherits from."""
    return key.workload.startswith("Pod/")


def _bases(recent: RecentUsage, is_live: BoolArray, step: int) -> BaseEstimates:
    cpu_columns = recent.columns[-(CPU_BASE_SECONDS // step) :]
    memory_columns = recent.columns[-(MEMORY_BASE_SECONDS // step) :]
    cpu, cpu_samples = compute_row_percentiles(recent.cpu_demand_millicores[:, cpu_columns], BASE_SHARE)
    memory, memory_samples = compute_row_percentiles(recent.memory_bytes[:, memory_columns], BASE_SHARE)
    cpu[~is_live | (cpu_samples < MIN_SAMPLES * len(cpu_columns))] = np.nan
    memory[~is_live | (memory_samples < MIN_SAMPLES * len(memory_columns))] = np.nan
    return BaseEstimates(cpu, memory)


def _resting(known: KnownPeaks, live: RunningContainers) -> BoolArray:
    running = {(key.namespace, key.workload, key.container) for key in live.keys}
    return np.array([(key.namespace, key.workload, key.container) not in running for key in known.keys], dtype=np.bool_)


def _bases_of(bases: BaseEstimates, groups: Int64Array, count: int) -> BaseEstimates:
    return BaseEstimates(
        compute_group_maxima(bases.cpu, groups, count),
        compute_group_maxima(bases.memory, groups, count),
    )


def _last_memory(recent: RecentUsage, rows: Int64Array) -> Float64Array:
    """Return the newest memory sample of each row, 0 where there is none."""
    last: Float64Array = recent.memory_bytes[rows, recent.columns[-1]]
    late = np.flatnonzero(np.isnan(last))
    if len(late):
        newest_first = recent.memory_bytes[np.ix_(rows[late], recent.columns[::-1])]
        place = (~np.isnan(newest_first)).argmax(axis=1)
        last[late] = np.nan_to_num(newest_first[np.arange(len(late)), place])
    return last


def _columns(
    updated_at: Int64Array,
    bases: BaseEstimates,
    peaks: PeakEstimates,
    numbers: Int64Array,
    last_memory: Float64Array,
    psi_known: BoolArray,
) -> StatisticColumns:
    cpu = _rounded_up(np.stack((bases.cpu, peaks.cpu[numbers])) * (1 - CPU_ROUNDING))
    memory = _rounded_up(
        np.stack((bases.memory, peaks.memory[numbers], peaks.memory_7d_max[numbers], last_memory)),
    )
    return StatisticColumns(
        updated_at=updated_at,
        history_since=peaks.history_since[numbers],
        cpu_base_millicores=cpu[0],
        cpu_peak_millicores=cpu[1],
        memory_base_bytes=memory[0],
        memory_peak_bytes=memory[1],
        memory_7d_max_bytes=memory[2],
        oom_memory_bytes=peaks.oom[numbers],
        memory_last_bytes=memory[3],
        rejected_percent=np.zeros_like(updated_at),
        rejected_reasons=np.zeros_like(updated_at),
        psi_known=psi_known,
    )


def _rounded_up(values: Float64Array) -> Int64Array:
    return np.ceil(np.where(np.isnan(values), 0.0, values)).astype(np.int64)
