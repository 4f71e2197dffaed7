"""From usage samples to statistics: base, peaks and age of every container, in columns.

Of a pod with pod-level resources, the sums over its containers count. The sum of peaks is at least the peak of the sum,
so a request that holds all peaks at the same time holds the pod's. Bases may add up to less than the pod's own base:
what is missing is part of the headroom up to the summed peaks.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain

import numpy as np

from cruise.decisions.usage.oom_records import (
    OomKillEffects,
    SingleOomKillEffect,
    raise_by_own_kills,
    raise_by_single_kills,
)
from cruise.decisions.usage.peaks import PeakEstimates, estimate_peaks
from cruise.decisions.usage.usage_columns import (
    NEVER,
    EstimationTime,
    KnownPeaks,
    RecentUsage,
    RevisionGroups,
    RunningContainers,
    RunToCompletionColumns,
    compute_group_maxima,
    compute_row_percentiles,
)
from cruise.domain.arrays import BoolArray, Float64Array, Int64Array
from cruise.domain.cluster import POD_LEVEL, Pod
from cruise.domain.run_to_completion_operators import LASTING_KINDS, runs_to_completion
from cruise.domain.usage import STATISTIC_COLUMNS, PeakKey, Statistic, StatisticColumns, StatisticKey, StatisticsTable

CPU_BASE_SECONDS = 600
MEMORY_BASE_SECONDS = 1800
BASE_SHARE = 0.75
# Share of a window's samples that a pod needs for its own base.
MIN_SAMPLES = 0.8
# Age from which a pod can have that many samples.
OWN_SAMPLES_SECONDS = int(MIN_SAMPLES * MEMORY_BASE_SECONDS)
# Share below which a counter's growth is rounding error of large numbers, and not rounded up.
CPU_ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class BaseEstimates:
    """75th percentiles, one entry per row: NaN for rows with too few samples, or without a running pod."""

    cpu: Float64Array
    memory: Float64Array


@dataclass(frozen=True, slots=True)
class UsageEstimates:
    """What the usage up to a time shows, before it is assigned to containers and workloads.

    `is_live` indicates whether a row belongs to an existing pod that was sampled recently.
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
    running: RunningContainers,
    kills: OomKillEffects,
    time: EstimationTime,
) -> StatisticsTable:
    """Estimate the statistics of all running containers, and of all workloads with running containers or known peaks.

    A container has no row if both resources were last known longer ago than `max_age_seconds`. One with too few samples
    of its own uses the base of its workload's pods that state the same resources; it has no row if that is unknown, or
    if its samples have ceased. Containers come in the order of `running`, then workloads sorted by key.
    """
    if not known.keys:
        return StatisticsTable.from_rows([])
    oom = np.zeros(len(known.keys), dtype=np.int64)
    single: dict[int, SingleOomKillEffect] = {}
    for number, key in enumerate(known.keys) if kills.by_key or kills.single else ():
        oom[number] = kills.by_key.get(key, 0)
        if key in kills.single:
            single[number] = kills.single[key]
    without_pods = _has_no_pods(known, running)
    runs = (
        None
        if running.run_starts is None
        else find_run_to_completion_numbers(known, running, running.run_starts, without_pods)
    )
    usage = estimate_usage(recent, known, running.rows, oom, time, runs)
    indices, containers = estimate_container_statistics(usage, running.rows, running.mixed)
    parents = known.parent[recent.number[running.rows[indices]]]
    containers = raise_by_single_kills(containers, parents, single)
    numbers, workloads = estimate_workload_statistics(usage, without_pods)
    keys = [known.keys[number] for number in numbers.tolist()]
    workload_indices = [index for index, key in enumerate(keys) if not is_bare_pod_key(key)]
    workload_indices.sort(key=keys.__getitem__)
    table = StatisticsTable.from_columns(
        containers.concatenate(workloads.take(np.array(workload_indices, dtype=np.int64))),
        [running.keys[index] for index in indices.tolist()]
        + [get_workload_statistic_key(keys[index]) for index in workload_indices],
    )
    return raise_by_own_kills(table, kills.by_pod)


def estimate_usage(
    recent: RecentUsage,
    known: KnownPeaks,
    running_rows: Int64Array,
    oom: Int64Array,
    time: EstimationTime,
    runs: RunToCompletionColumns | None = None,
) -> UsageEstimates:
    """Estimate bases by row and peaks by number, of which there is at least one.

    `running_rows` are the rows of existing containers, -1 for one without; `oom` the OOM memory per number, 0 for none;
    `runs` indicates which numbers belong to pods that run to completion, None if that makes no difference.
    """
    is_live = np.zeros(len(recent.number), dtype=np.bool_)
    is_live[running_rows[running_rows >= 0]] = True
    is_live &= recent.newest_complete >= time.at - time.max_age_seconds
    peaks = estimate_peaks(recent, known, oom, time, runs)
    return UsageEstimates(time.at, recent, known, is_live, _estimate_bases(recent, is_live, time.step), peaks)


def estimate_container_statistics(
    usage: UsageEstimates, running_rows: Int64Array, mixed: RevisionGroups | None = None
) -> tuple[Int64Array, StatisticColumns]:
    """Return which running containers have statistics, as indices into `running_rows`, and the statistics."""
    recent, bases = usage.recent, usage.bases
    groups, count = usage.known.parent[recent.number], len(usage.known.keys)
    if mixed is not None:
        bases, groups, count = _separate_revisions(bases, groups, count, running_rows, mixed)
    cpu, memory = bases.cpu, bases.memory
    without_base = np.isnan(cpu) | np.isnan(memory)
    if (without_base & usage.is_live).any():
        group_bases = _max_bases_of_groups(bases, groups, count)
        cpu = np.where(np.isnan(cpu), group_bases.cpu[groups], cpu)
        memory = np.where(np.isnan(memory), group_bases.memory[groups], memory)
    # A container that was well measured until recently is better described by its earlier statistics.
    ceased = without_base & (recent.newest < usage.at)
    usable = np.append(usage.is_live & ~ceased & ~np.isnan(cpu) & ~np.isnan(memory), False)
    indices = np.flatnonzero(usable[running_rows])
    rows = running_rows[indices]
    columns = _build_columns(
        recent.newest_complete[rows],
        BaseEstimates(cpu[rows], memory[rows]),
        usage.peaks,
        recent.number[rows],
        _get_last_memory(recent, rows),
        recent.psi_known[rows],
    )
    return indices, columns


def _separate_revisions(
    bases: BaseEstimates, groups: Int64Array, count: int, running_rows: Int64Array, mixed: RevisionGroups
) -> tuple[BaseEstimates, Int64Array, int]:
    """Remove the bases of pods that are too young for their own, and make each revision a group."""
    cpu, memory, groups = bases.cpu.copy(), bases.memory.copy(), groups.copy()
    sampled = running_rows >= 0
    new_rows = running_rows[sampled & mixed.new_containers]
    cpu[new_rows] = memory[new_rows] = np.nan
    in_group = sampled & (mixed.groups >= 0)
    groups[running_rows[in_group]] = count + mixed.groups[in_group]
    return BaseEstimates(cpu, memory), groups, count + int(mixed.groups.max(initial=0)) + 1


def estimate_workload_statistics(usage: UsageEstimates, without_pods: BoolArray) -> tuple[Int64Array, StatisticColumns]:
    """Return the numbers that statistics are known for, ascending, and the statistics.

    `without_pods` marks workloads without a running pod, such as a CronJob between two runs. None of their samples is
    missing, so their statistics are not stale: the next pod is sized from the known peaks.
    """
    recent, known, bases, peaks = usage.recent, usage.known, usage.bases, usage.peaks
    count = len(known.keys)
    identity_bases = _max_bases_of_groups(bases, recent.number, count)
    workload_bases = _max_bases_of_groups(bases, known.parent[recent.number], count)
    is_workload = known.parent == np.arange(count)
    cpu = np.where(without_pods, peaks.cpu, np.where(is_workload, workload_bases.cpu, identity_bases.cpu))
    memory = np.where(without_pods, peaks.memory, np.where(is_workload, workload_bases.memory, identity_bases.memory))
    numbers = np.flatnonzero(~np.isnan(cpu) & ~np.isnan(memory))
    rows = np.flatnonzero(usage.is_live & (recent.number >= 0))
    newest, psi_known, last_memory = np.zeros(count, dtype=np.int64), np.ones(count, dtype=np.bool_), np.zeros(count)
    memory_of_rows = _get_last_memory(recent, rows)
    for groups in (recent.number[rows], known.parent[recent.number[rows]]):
        np.maximum.at(newest, groups, recent.newest_complete[rows])
        np.logical_and.at(psi_known, groups, recent.psi_known[rows])
        np.fmax.at(last_memory, groups, memory_of_rows)
    newest[without_pods] = usage.at
    columns = _build_columns(
        newest[numbers],
        BaseEstimates(cpu[numbers], memory[numbers]),
        peaks,
        numbers,
        last_memory[numbers],
        psi_known[numbers],
    )
    return numbers, columns


def get_workload_statistic_key(key: PeakKey) -> StatisticKey:
    """Return the key of the statistic for all pods of a workload, or for one identity of it."""
    return StatisticKey(key.namespace, "", key.workload, key.container, key.identity)


def is_bare_pod_key(key: PeakKey) -> bool:
    """Return whether a key belongs to a pod without a controller, which no other pod inherits from."""
    return key.workload.startswith("Pod/")


def _estimate_bases(recent: RecentUsage, is_live: BoolArray, step: int) -> BaseEstimates:
    cpu_columns = recent.columns[-(CPU_BASE_SECONDS // step) :]
    memory_columns = recent.columns[-(MEMORY_BASE_SECONDS // step) :]
    cpu, cpu_samples = compute_row_percentiles(recent.cpu_demand_millicores[:, cpu_columns], BASE_SHARE)
    memory, memory_samples = compute_row_percentiles(recent.memory_bytes[:, memory_columns], BASE_SHARE)
    cpu[~is_live | (cpu_samples < MIN_SAMPLES * len(cpu_columns))] = np.nan
    memory[~is_live | (memory_samples < MIN_SAMPLES * len(memory_columns))] = np.nan
    return BaseEstimates(cpu, memory)


def find_run_to_completion_numbers(
    known: KnownPeaks, running: RunningContainers, run_starts: Int64Array, without_pods: BoolArray
) -> RunToCompletionColumns:
    """Return which numbers belong to workloads whose pods run to completion: their pods do, or else their kind."""
    completes = without_pods & np.array([is_run_to_completion_kind(key.workload) for key in known.keys], dtype=np.bool_)
    oldest_start = np.full(len(known.keys), NEVER)
    numbers = {key: number for number, key in enumerate(known.keys) if not key.identity} if len(run_starts) else {}
    for index in np.flatnonzero(run_starts != NEVER).tolist():
        key = running.keys[index]
        number = numbers.get(PeakKey(key.namespace, key.workload, key.container, ""))
        if number is not None:
            completes[number] = True
            oldest_start[number] = min(oldest_start[number], run_starts[index])
    return RunToCompletionColumns(completes[known.parent], oldest_start[known.parent])


@lru_cache(maxsize=1 << 16)
def is_run_to_completion_kind(workload: str) -> bool:
    """Return whether the pods of a workload without any run to completion, by its kind."""
    kind = workload.partition("/")[0]
    # A bare pod is no run of anything, although Spark's executors have a pod as their controller.
    return kind != "Pod" and (runs_to_completion(kind) or kind not in LASTING_KINDS)


def _has_no_pods(known: KnownPeaks, running: RunningContainers) -> BoolArray:
    with_pods = {(key.namespace, key.workload, key.container) for key in running.keys}
    return np.array(
        [(key.namespace, key.workload, key.container) not in with_pods for key in known.keys], dtype=np.bool_
    )


def _max_bases_of_groups(bases: BaseEstimates, groups: Int64Array, count: int) -> BaseEstimates:
    return BaseEstimates(
        compute_group_maxima(bases.cpu, groups, count),
        compute_group_maxima(bases.memory, groups, count),
    )


def _get_last_memory(recent: RecentUsage, rows: Int64Array) -> Float64Array:
    """Return the newest memory sample of each row, 0 if there is none."""
    last: Float64Array = recent.memory_bytes[rows, recent.columns[-1]]
    missing = np.flatnonzero(np.isnan(last))
    if len(missing):
        newest_first = recent.memory_bytes[np.ix_(rows[missing], recent.columns[::-1])]
        position = (~np.isnan(newest_first)).argmax(axis=1)
        last[missing] = np.nan_to_num(newest_first[np.arange(len(missing)), position])
    return last


def _build_columns(
    updated_at: Int64Array,
    bases: BaseEstimates,
    peaks: PeakEstimates,
    numbers: Int64Array,
    last_memory: Float64Array,
    psi_known: BoolArray,
) -> StatisticColumns:
    cpu = _round_up(np.stack((bases.cpu, peaks.cpu[numbers], peaks.cpu_7d_max[numbers])) * (1 - CPU_ROUNDING))
    memory = _round_up(
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
        cpu_7d_max_millicores=cpu[2],
        cpu_start_millicores=np.zeros_like(updated_at),
    )


def _round_up(values: Float64Array) -> Int64Array:
    return np.ceil(np.where(np.isnan(values), 0.0, values)).astype(np.int64)


def add_pod_level_rows(statistics: StatisticsTable, pods: Iterable[Pod]) -> StatisticsTable:
    """Add a row for each pod with pod-level resources whose containers all have one."""
    found: list[tuple[StatisticKey, list[int]]] = []
    for pod in pods:
        if pod.pod_level is not None:
            rows = [
                statistics.find_row(pod.namespace, pod.name, pod.workload, one.name, pod.identity)
                for one in pod.sized_containers
            ]
            known = [row for row in rows if row is not None]
            workload = "" if pod.workload is None else str(pod.workload)
            key = StatisticKey(pod.namespace, pod.name, workload, POD_LEVEL, pod.identity)
            if known and len(known) == len(rows):
                found.append((key, known))
    if not found:
        return statistics
    columns = statistics.take(np.array(list(chain.from_iterable(rows for _, rows in found)), dtype=np.int64))
    counts = [len(rows) for _, rows in found]
    first = np.concatenate(([0], np.cumsum(counts)[:-1])).astype(np.int64)
    return statistics.join(StatisticsTable.from_columns(_sum_columns(columns, first), [key for key, _ in found]))


def sum_statistics(statistics: Sequence[Statistic]) -> Statistic:
    """Return the statistic of a pod from those of all its containers."""
    columns = StatisticColumns.from_getter(lambda name: [getattr(one, name) for one in statistics])
    key = statistics[0].key._replace(container=POD_LEVEL)
    return StatisticsTable.from_columns(_sum_columns(columns, np.zeros(1, dtype=np.int64)), [key]).get_row(0)


def _sum_columns(columns: StatisticColumns, first: Int64Array) -> StatisticColumns:
    """Sum entries by pod; each pod's begin at `first`.

    The oldest update and the shortest history count for the pod; a history of unknown length (0) is unknown. After an
    OOM kill the other containers count with their peaks.
    """
    kill, peak = columns.oom_memory_bytes, columns.memory_peak_bytes
    was_killed = np.maximum.reduceat(kill, first) > 0
    since = columns.history_since
    joined = {
        "updated_at": np.minimum.reduceat(columns.updated_at, first),
        "history_since": np.where(np.minimum.reduceat(since, first) == 0, 0, np.maximum.reduceat(since, first)),
        "oom_memory_bytes": np.where(was_killed, np.add.reduceat(np.maximum(kill, peak), first), 0),
        "rejected_percent": np.maximum.reduceat(columns.rejected_percent, first),
        "rejected_reasons": np.bitwise_or.reduceat(columns.rejected_reasons, first),
        "psi_known": np.logical_and.reduceat(columns.psi_known, first),
    }
    return StatisticColumns(
        *(
            joined[name] if name in joined else np.add.reduceat(getattr(columns, name), first)
            for name in STATISTIC_COLUMNS
        )
    )
