"""The statistics of a replay: the windows, peaks and estimates of the usage pass, without a database."""

from collections import deque
from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

from cruise.backtest.recordings.recording import UsageRecording
from cruise.decisions.sizing.headroom import HourlyMaxima
from cruise.decisions.usage.estimation import (
    estimate_container_statistics,
    estimate_usage,
    estimate_workload_statistics,
    get_workload_statistic_key,
    is_bare_pod_key,
    is_run_to_completion_kind,
)
from cruise.decisions.usage.oom_records import SingleOomKillEffect, raise_by_single_kills, summarize_single_kill
from cruise.decisions.usage.peaks import HourlyPeakRows, get_first_history_hour, get_peak_hours, group_peaks_by_hour
from cruise.decisions.usage.usage_columns import NEVER, EstimationTime, RecentUsage, RunToCompletionColumns
from cruise.domain.arrays import BoolArray, Float32Array, Float64Array, Int64Array
from cruise.domain.policy import Policy
from cruise.domain.resources import ResourceName
from cruise.domain.run_to_completion_operators import runs_to_completion
from cruise.domain.usage import (
    STATISTIC_COLUMNS,
    ContainerKey,
    OomRecord,
    PeakKey,
    PeakSummary,
    StatisticColumns,
    StatisticsTable,
)
from cruise.runtime.usage.sample_windows import PeakColumns, UsageWindows

# Seven days and the present hour.
RETENTION_HOURS = 7 * 24 + 1
OOM_SECONDS = 7 * 86400


class HourlyPeakRing:
    """The hourly peaks of a fixed number of keys over a week: a ring with one row per hour and one column per key.

    An hour of a key takes 12 bytes: memory is exact, CPU in single precision like samples.
    """

    def __init__(self, numbers: int) -> None:
        self._hours = np.full(RETENTION_HOURS, -1, dtype=np.int64)
        self._cpu = np.full((RETENTION_HOURS, numbers), np.nan, dtype=np.float32)
        self._memory = np.full((RETENTION_HOURS, numbers), np.nan)

    def merge(self, peaks: HourlyPeakRows) -> None:
        """Raise peaks to those given; a new hour replaces the oldest one."""
        for hour in np.unique(peaks.hours).tolist():
            slot = hour % RETENTION_HOURS
            if self._hours[slot] > hour:
                continue
            if self._hours[slot] < hour:
                self._hours[slot], self._cpu[slot], self._memory[slot] = hour, np.nan, np.nan
            rows = np.flatnonzero(peaks.hours == hour)
            numbers = peaks.numbers[rows]
            self._cpu[slot, numbers] = np.fmax(self._cpu[slot, numbers], peaks.cpu_demand_millicores[rows])
            self._memory[slot, numbers] = np.fmax(self._memory[slot, numbers], peaks.memory_bytes[rows])

    def get_for_hours(self, hours: Collection[int]) -> tuple[Float32Array, Float64Array]:
        """Return the stored CPU and memory peaks of some hours: matrices (hours, numbers), in order of time."""
        slots = self._find_slots(hours)
        return self._cpu[slots], self._memory[slots]

    def summarize(self, keys: Sequence[PeakKey], hours: Collection[int], since_hour: int) -> PeakSummary:
        """Summarize the peaks since `since_hour`; the peaks of the summary are those of `hours`.

        `keys` has the key of each number; the summary has all of them.
        """
        slots = np.flatnonzero(self._hours >= since_hour)
        slots = slots[np.argsort(self._hours[slots])]
        counted = self._find_slots([hour for hour in hours if hour >= since_hour])
        sampled = ~(np.isnan(self._cpu[slots]) & np.isnan(self._memory[slots]))
        # One more row, so that the matrix is never empty.
        first = np.vstack((sampled, np.ones_like(self._cpu[:1], dtype=np.bool_))).argmax(axis=0)
        return PeakSummary(
            keys=keys,
            cpu_peak_millicores=np.fmax.reduce(self._cpu[counted], axis=0, initial=np.nan).astype(np.float64),
            memory_peak_bytes=np.fmax.reduce(self._memory[counted], axis=0, initial=np.nan),
            cpu_7d_max_millicores=np.fmax.reduce(self._cpu[slots], axis=0, initial=np.nan).astype(np.float64),
            memory_7d_max_bytes=np.fmax.reduce(self._memory[slots], axis=0, initial=np.nan),
            first_hour=np.append(self._hours[slots], NEVER)[first],
        )

    def _find_slots(self, hours: Collection[int]) -> Int64Array:
        """Return the slots of the hours that are stored, the oldest first."""
        by_time = np.array(sorted(hours), dtype=np.int64)
        slots = by_time % RETENTION_HOURS
        return np.asarray(slots[self._hours[slots] == by_time])


class _ReplayedRuns:
    """Which workloads of a recording run to completion, by their kinds, and since when their pods run.

    A recorded pod was created when the interval began in which its first sample lies.
    """

    def __init__(self, keys: Sequence[PeakKey], numbers: Int64Array) -> None:
        self._numbers = numbers
        kinds = [key.workload.partition("/")[0] for key in keys]
        self._with_pods = np.array([runs_to_completion(kind) for kind in kinds], dtype=np.bool_)
        self._without_pods = np.array([is_run_to_completion_kind(key.workload) for key in keys], dtype=np.bool_)
        self._completing = np.flatnonzero(self._with_pods[numbers])
        self._starts = np.full(len(numbers), NEVER)

    def observe(self, began: int, cpu: Float32Array, memory: Float32Array) -> None:
        """Add the samples of an interval that `began` then: matrices (times, containers)."""
        at = self._completing
        has_sample = ~(np.isnan(cpu[:, at]) & np.isnan(memory[:, at])).all(axis=0)
        self._starts[at[has_sample & (self._starts[at] == NEVER)]] = began

    def forget(self, containers: Int64Array) -> None:
        """Forget the starts of pods that were replaced."""
        self._starts[containers] = NEVER

    def find(self, present: BoolArray, is_idle: BoolArray) -> RunToCompletionColumns:
        """Return the runs while the containers of a mask are present; `is_idle` marks workloads without any."""
        self._starts[~present] = NEVER
        running = self._completing[present[self._completing]]
        oldest_start = np.full(len(is_idle), NEVER)
        np.minimum.at(oldest_start, self._numbers[running], self._starts[running])
        return RunToCompletionColumns(np.where(is_idle, self._without_pods, self._with_pods), oldest_start)


class ReplayedStatistics:
    """The statistics of a recording's containers, updated interval by interval.

    Container i of the recording belongs to key `numbers[i]` of `keys`: containers of one workload share peaks. A
    recorded usage of 0 bytes counts as one byte, because 0 means unknown.
    """

    def __init__(self, recording: UsageRecording, policy: Policy) -> None:
        self._step = recording.step_seconds
        self._has_memory = recording.has_memory
        self._look_ahead = int(policy.look_ahead.total_seconds())
        self._max_age = int(policy.max_age.total_seconds())
        self._new_workload = int(policy.new_workload_age.total_seconds())
        number_by_key: dict[PeakKey, int] = {}
        numbers = [
            number_by_key.setdefault(PeakKey(one.namespace, str(one.workload), one.container, ""), len(number_by_key))
            for one in recording.containers
        ]
        self.keys = list(number_by_key)
        self.numbers = np.array(numbers, dtype=np.int64)
        self.at = 0
        self._pods = [ContainerKey(one.namespace, one.pod, one.container) for one in recording.containers]
        self._creation_counts = [0] * len(numbers)
        self._rows = np.full(len(numbers), -1, dtype=np.int64)
        self._released = 0
        self._windows = UsageWindows(self._step, least_rows=max(1, len(numbers)))
        self._week = HourlyPeakRing(len(self.keys))
        self._peaks = PeakColumns()
        self._maxima: HourlyMaxima | None = None
        self._kills: deque[_AppliedOomKill] = deque()  # by time
        self._oom = np.zeros(len(self.keys), dtype=np.int64)
        self._single: dict[int, SingleOomKillEffect] = {}
        self._of_containers = _LatestStatistics(len(numbers))
        self._of_workloads = _LatestStatistics(len(self.keys))
        self._table: StatisticsTable | None = None
        self._runs = _ReplayedRuns(self.keys, self.numbers) if policy.rules.run_histories else None
        by_key = sorted(range(len(self.keys)), key=self.keys.__getitem__)
        self._shared = np.array([one for one in by_key if not is_bare_pod_key(self.keys[one])], dtype=np.int64)

    def observe(self, time: int, cpu: Float32Array, memory: Float32Array) -> None:
        """Add the samples of one interval: matrices (times, containers) up to `time`; NaN is no sample."""
        times = time - self._step * np.arange(len(cpu) - 1, -1, -1)
        if self._has_memory:
            memory = np.where(memory == 0, np.float32(1), memory)
        self._count_hours(time)
        self.at = time
        if self._runs is not None:
            self._runs.observe(int(times[0]) - self._step, cpu, memory)
        peaks = group_peaks_by_hour(times, cpu.T, memory.T, self.numbers)
        self._week.merge(peaks)
        self._peaks.merge_numbered(peaks)
        self._windows.advance(time)
        self._find_rows(cpu, memory)
        placed = np.flatnonzero(self._rows >= 0)
        self._windows.put(
            self._rows[placed],
            self.numbers[placed],
            times,
            cpu.T[placed],
            memory.T[placed].astype(np.float64),
            np.ones(len(placed), dtype=np.bool_),
        )

    def reset_replaced(self, containers: Int64Array) -> None:
        """Give containers a new pod, with an empty window; the workload's peaks remain."""
        for container in containers.tolist():
            pod = self._pods[container]
            self._creation_counts[container] += 1
            # A unique name: names of pods have no spaces.
            self._pods[container] = pod._replace(pod=f"{pod.pod.split()[0]} {self._creation_counts[container]}")
        self._rows[containers] = -1
        self._of_containers.forget(containers)
        if self._runs is not None:
            self._runs.forget(containers)

    def apply_oom_kill(self, container: int, record: OomRecord, time: int) -> None:
        """Raise the OOM memory of the killed pod for 7 days; after a second kill that of its workload."""
        if not record.oom_memory_bytes:
            return
        number, creation_count = int(self.numbers[container]), self._creation_counts[container]
        raised_bytes = summarize_single_kill(record.oom_memory_bytes, record.memory_limit_bytes)
        self._kills.append(_AppliedOomKill(time, number, container, creation_count, raised_bytes))
        self._count_kills(number)
        if self._oom[number]:
            self.raise_workload_oom_memory(container, record.oom_memory_bytes)

    def share_last_oom_kill(self, container: int) -> None:
        """Raise the OOM memory of the workload for a container's last kill, because its pod is evicted."""
        if not self._kills or self._kills[-1].container != container:
            return
        self._kills[-1] = self._kills[-1]._replace(shared=True)
        self._count_kills(self._kills[-1].number)

    def raise_workload_oom_memory(self, container: int, oom_memory_bytes: int) -> None:
        """Raise a workload's OOM memory immediately, as the OOM reactor does in the stored statistics."""
        number, stored = int(self.numbers[container]), self._of_workloads.columns.oom_memory_bytes
        stored[number] = max(stored[number], oom_memory_bytes)
        self._table = None

    def get_for_containers(self, present: BoolArray) -> tuple[Int64Array, StatisticColumns]:
        """Estimate from the samples so far; return the containers with statistics, and the statistics.

        `present` is a mask of the running containers. Containers without recent samples, and workloads, keep their
        earlier statistics; `updated_at` is their age.
        """
        self._forget_kills()
        live = np.flatnonzero(present)
        is_idle = np.ones(len(self.keys), dtype=np.bool_)
        is_idle[self.numbers[live]] = False
        usage = estimate_usage(
            self._windows.get_recent(),
            self._peaks.get_known(),
            self._rows[live],
            self._oom,
            EstimationTime(self.at, self._step, self._max_age, self._new_workload),
            None if self._runs is None else self._runs.find(present, is_idle),
        )
        chosen, containers = estimate_container_statistics(usage, self._rows[live])
        self._of_containers.forget(np.flatnonzero(~present))
        self._of_containers.put(
            live[chosen], raise_by_single_kills(containers, self.numbers[live[chosen]], self._single)
        )
        own = self._of_containers.columns.oom_memory_bytes
        for kill in self._kills:
            if self._creation_counts[kill.container] == kill.creation_count:
                own[kill.container] = max(own[kill.container], kill.raised_memory.raised_to_bytes)
        self._of_workloads.put(*estimate_workload_statistics(usage, is_idle))
        self._table = None
        known = np.flatnonzero(self._of_containers.known)
        return known, self._of_containers.columns.take(known)

    def get_for_workloads(self) -> StatisticsTable:
        """Return the latest statistics of workloads, for admission; sorted by key."""
        if self._table is None:
            numbers = self._shared[self._of_workloads.known[self._shared]]
            keys = [get_workload_statistic_key(self.keys[number]) for number in numbers.tolist()]
            self._table = StatisticsTable.from_columns(self._of_workloads.columns.take(numbers), keys)
        return self._table

    def get_recent(self) -> tuple[RecentUsage, Int64Array]:
        """Return the samples of the last hour, and each container's row in them, -1 without samples."""
        return self._windows.get_recent(), self._rows

    def get_maxima(self) -> HourlyMaxima:
        """Return the peaks of each hour that counts, in order of time; the keys are the numbers."""
        if self._maxima is None:
            cpu, memory = self._week.get_for_hours(self._peaks.hours)
            self._maxima = HourlyMaxima({ResourceName.CPU: cpu, ResourceName.MEMORY: memory})
        return self._maxima

    def _count_hours(self, time: int) -> None:
        """Summarize the peaks again if other hours are relevant now, as `UsageState` does."""
        hours = get_peak_hours(time, self._look_ahead)
        if hours != self._peaks.hours:
            since_hour = get_first_history_hour(time)
            self._maxima = None
            self._peaks = PeakColumns.from_summary(
                self._week.summarize(self.keys, hours, since_hour), hours, since_hour
            )

    def _find_rows(self, cpu: Float32Array, memory: Float32Array) -> None:
        """Update the rows of containers after rows were released, and assign rows to containers with new samples."""
        if self._released != self._windows.released:
            self._released = self._windows.released
            self._rows = self._windows.find_rows(self._pods)
        missing = np.flatnonzero(self._rows < 0)
        sampled = ~(np.isnan(cpu[:, missing]) & np.isnan(memory[:, missing]))
        new = missing[sampled.any(axis=0)]
        if len(new):
            self._rows[new] = self._windows.get_rows([self._pods[container] for container in new.tolist()])

    def _forget_kills(self) -> None:
        while self._kills and self._kills[0].time < self.at - OOM_SECONDS:
            self._count_kills(self._kills.popleft().number)

    def _count_kills(self, number: int) -> None:
        """Update the OOM memory of a key: of its workload after several or shared kills, else of one pod."""
        kills = [kill for kill in self._kills if kill.number == number]
        shared = len(kills) > 1 or any(kill.shared for kill in kills)
        self._oom[number] = max(kill.raised_memory.raised_to_bytes for kill in kills) if shared else 0
        self._single.pop(number, None)
        if kills and not shared:
            self._single[number] = kills[0].raised_memory


class _AppliedOomKill(NamedTuple):
    """The OOM memory of one of a container's pods after a kill."""

    time: int
    number: int
    container: int
    creation_count: int
    raised_memory: SingleOomKillEffect
    shared: bool = False


class _LatestStatistics:
    """The latest statistics of a fixed number of entries; `known` is a mask of those that have any."""

    def __init__(self, places: int) -> None:
        self.known = np.zeros(places, dtype=np.bool_)
        self.columns = StatisticColumns.from_getter(lambda _: [0] * places)

    def put(self, places: Int64Array, columns: StatisticColumns) -> None:
        """Replace the statistics of some entries."""
        self.known[places] = True
        for name in STATISTIC_COLUMNS:
            getattr(self.columns, name)[places] = getattr(columns, name)

    def forget(self, places: Int64Array) -> None:
        """Remove the statistics of some entries."""
        self.known[places] = False
