"""The real statistics under replay: what the usage pass and its store would hold, with the containers in columns.

Windows, peaks and estimates are those of the usage pass. What is left out is what a replay does not need: a store to
write to and to read from, and keys to be looked up.
"""

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import fields
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cruise.backtest.recordings.recording import UsageRecording
from cruise.decisions.usage.estimation import (
    estimate_containers,
    estimate_usage,
    estimate_workloads,
    get_workload_statistic_key,
    is_bare_pod_key,
)
from cruise.decisions.usage.oom_records import SingleOomKill, raise_by_single_kills, summarize_single_kill
from cruise.decisions.usage.peaks import PeaksByNumber, get_first_history_hour, get_peak_hours, group_peaks_by_hour
from cruise.decisions.usage.usage_columns import NEVER, EstimationTime, RecentUsage
from cruise.domain.policy import Policy
from cruise.domain.resources import BoolArray, Float32Array, Float64Array, Int64Array
from cruise.domain.usage import ContainerKey, OomRecord, PeakKey, PeakSummary, StatisticColumns, StatisticsTable
from cruise.runtime.usage.peak_columns import PeakColumns
from cruise.runtime.usage.sample_windows import UsageWindows

# Hourly peaks of a week in columns, kept in memory.

# Seven days and the hour that runs.
RETENTION_HOURS = 7 * 24 + 1


class WeeklyPeaks:
    """The peaks of a fixed number of keys: a ring with one row an hour and one column a number.

    12 bytes for each hour of a number: bytes of memory stay exact, millicores are in single precision as samples are.
    """

    def __init__(self, numbers: int) -> None:
        self._held = np.full(RETENTION_HOURS, -1, dtype=np.int64)
        self._cpu = np.full((RETENTION_HOURS, numbers), np.nan, dtype=np.float32)
        self._memory = np.full((RETENTION_HOURS, numbers), np.nan)

    def merge(self, peaks: PeaksByNumber) -> None:
        """Raise the peaks of hours to those given; an hour takes the place of the one a week and an hour before it."""
        for hour in np.unique(peaks.hours).tolist():
            slot = hour % RETENTION_HOURS
            if self._held[slot] > hour:
                continue
            if self._held[slot] < hour:
                self._held[slot], self._cpu[slot], self._memory[slot] = hour, np.nan, np.nan
            of_hour = np.flatnonzero(peaks.hours == hour)
            numbers = peaks.numbers[of_hour]
            self._cpu[slot, numbers] = np.fmax(self._cpu[slot, numbers], peaks.cpu_demand_millicores[of_hour])
            self._memory[slot, numbers] = np.fmax(self._memory[slot, numbers], peaks.memory_bytes[of_hour])

    def get_for_hours(self, hours: Collection[int]) -> tuple[Float32Array, Float64Array]:
        """Return the CPU and memory peaks of those of some hours that are held: matrices (hours, numbers), by time."""
        slots = self._slots(np.isin(self._held, list(hours)))
        return self._cpu[slots], self._memory[slots]

    def summarize(self, keys: Sequence[PeakKey], hours: Collection[int], since_hour: int) -> PeakSummary:
        """Sum up the peaks from `since_hour` on, and over those of `hours` that are not before it.

        `keys` has the key of each number. All are in the summary, also those without a peak.
        """
        since = self._held >= since_hour
        slots = self._slots(since)
        counts = since & np.isin(self._held, list(hours))
        sampled = ~(np.isnan(self._cpu[slots]) & np.isnan(self._memory[slots]))
        # One line more, so that there is one even where nothing is held.
        first = np.vstack((sampled, np.ones_like(self._cpu[:1], dtype=np.bool_))).argmax(axis=0)
        return PeakSummary(
            keys=keys,
            cpu_peak_millicores=np.fmax.reduce(self._cpu[counts], axis=0, initial=np.nan).astype(np.float64),
            memory_peak_bytes=np.fmax.reduce(self._memory[counts], axis=0, initial=np.nan),
            memory_7d_max_bytes=np.fmax.reduce(self._memory[slots], axis=0, initial=np.nan),
            first_hour=np.append(self._held[slots], NEVER)[first],
        )

    def _slots(self, chosen: BoolArray) -> Int64Array:
        """Return chosen slots, the oldest hour first."""
        slots = np.flatnonzero(chosen)
        by_time: Int64Array = slots[np.argsort(self._held[slots])]
        return by_time


OOM_SECONDS = 7 * 86400


class ReplayedStatistics:
    """The statistics of a recording's containers as time goes by.

    Container i of the recording belongs to key `numbers[i]` of `keys`: containers of one workload share peaks. A
    recorded use of 0 bytes counts as one byte: zero all along would mean that a container's memory is not known.
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
        self._week = WeeklyPeaks(len(self.keys))
        self._peaks = PeakColumns()
        self._kills: deque[_AppliedOomKill] = deque()  # by time
        self._oom = np.zeros(len(self.keys), dtype=np.int64)
        self._single: dict[int, SingleOomKill] = {}
        self._of_containers = _LatestStatistics(len(numbers))
        self._of_workloads = _LatestStatistics(len(self.keys))
        self._table: StatisticsTable | None = None
        by_key = sorted(range(len(self.keys)), key=self.keys.__getitem__)
        self._shared = np.array([one for one in by_key if not is_bare_pod_key(self.keys[one])], dtype=np.int64)

    def observe(self, time: int, cpu: Float32Array, memory: Float32Array) -> None:
        """Take in the samples of one interval: matrices (times, containers), the last time is `time`; NaN is none."""
        times = time - self._step * np.arange(len(cpu) - 1, -1, -1)
        if self._has_memory:
            memory = np.where(memory == 0, np.float32(1), memory)
        self._count_hours(time)
        self.at = time
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
        """Take note that containers have another pod from now on, with an empty window; the peaks stay."""
        for container in containers.tolist():
            pod = self._pods[container]
            self._creation_counts[container] += 1
            # No other pod is called so: names have no spaces.
            self._pods[container] = pod._replace(pod=f"{pod.pod.split()[0]} {self._creation_counts[container]}")
        self._rows[containers] = -1
        self._of_containers.forget(containers)

    def apply_oom_kill(self, container: int, record: OomRecord, time: int) -> None:
        """Remember for 7 days what a kill taught: its own pod, and after a second kill the workload."""
        if not record.oom_memory_bytes:
            return
        number, creation_count = int(self.numbers[container]), self._creation_counts[container]
        lesson = summarize_single_kill(record.oom_memory_bytes, record.memory_limit_bytes)
        self._kills.append(_AppliedOomKill(time, number, container, creation_count, lesson))
        self._count_kills(number)
        if self._oom[number]:
            self.raise_workload_oom_memory(container, record.oom_memory_bytes)

    def share_last_oom_kill(self, container: int) -> None:
        """Let a container's last kill teach the whole workload: its pod was evicted, and comes back by another name."""
        if not self._kills or self._kills[-1].container != container:
            return
        self._kills[-1] = self._kills[-1]._replace(shared=True)
        self._count_kills(self._kills[-1].number)

    def raise_workload_oom_memory(self, container: int, oom_memory_bytes: int) -> None:
        """Let a workload's next pod learn from a kill at once, as the reactor teaches the stored statistics."""
        number, taught = int(self.numbers[container]), self._of_workloads.columns.oom_memory_bytes
        taught[number] = max(taught[number], oom_memory_bytes)
        self._table = None

    def get_for_containers(self, present: BoolArray) -> tuple[Int64Array, StatisticColumns]:
        """Estimate anew, as of the last samples; return the containers that something is known of, and what it is.

        `present` tells which containers run now. Containers without recent samples, and workloads, keep what was known
        of them; how old that is stands in `updated_at`.
        """
        self._forget_kills()
        live = np.flatnonzero(present)
        gone = np.flatnonzero(~present)
        gauged = estimate_usage(
            self._windows.get_recent(),
            self._peaks.known(),
            self._rows[live],
            self._oom,
            EstimationTime(self.at, self._step, self._max_age, self._new_workload),
        )
        chosen, containers = estimate_containers(gauged, self._rows[live])
        self._of_containers.forget(gone)
        self._of_containers.put(
            live[chosen], raise_by_single_kills(containers, self.numbers[live[chosen]], self._single)
        )
        own = self._of_containers.columns.oom_memory_bytes
        for kill in self._kills:
            if self._creation_counts[kill.container] == kill.creation_count:
                own[kill.container] = max(own[kill.container], kill.raised_memory.raised_to_bytes)
        resting = np.ones(len(self.keys), dtype=np.bool_)
        resting[self.numbers[live]] = False
        self._of_workloads.put(*estimate_workloads(gauged, resting))
        self._table = None
        known = np.flatnonzero(self._of_containers.known)
        return known, self._of_containers.columns.take(known)

    def get_for_workloads(self) -> StatisticsTable:
        """Return what was last estimated of workloads, for pods that are to be admitted; sorted by key."""
        if self._table is None:
            numbers = self._shared[self._of_workloads.known[self._shared]]
            keys = [get_workload_statistic_key(self.keys[number]) for number in numbers.tolist()]
            self._table = StatisticsTable.from_columns(self._of_workloads.columns.take(numbers), keys)
        return self._table

    def get_recent(self) -> tuple[RecentUsage, Int64Array]:
        """Return the last hour's samples, and the row that each container has there, -1 without any."""
        return self._windows.get_recent(), self._rows

    def get_peaks_of_hours(self) -> tuple[Float32Array, Float64Array]:
        """Return CPU and memory peaks of each hour that counts now, by time: matrices (hours, numbers)."""
        return self._week.get_for_hours(self._peaks.hours)

    def _count_hours(self, time: int) -> None:
        """Sum up the peaks anew where other hours count by now, as `UsageState.catch_up` does."""
        hours = get_peak_hours(time, self._look_ahead)
        if hours != self._peaks.hours:
            since_hour = get_first_history_hour(time)
            self._peaks = PeakColumns.from_summary(
                self._week.summarize(self.keys, hours, since_hour), hours, since_hour
            )

    def _find_rows(self, cpu: Float32Array, memory: Float32Array) -> None:
        """Find the rows of containers again where some were freed, and give rows to those that have samples now."""
        if self._released != self._windows.released:
            self._released = self._windows.released
            self._rows = self._windows.find_rows(self._pods)
        without = np.flatnonzero(self._rows < 0)
        sampled = ~(np.isnan(cpu[:, without]) & np.isnan(memory[:, without]))
        found = without[sampled.any(axis=0)]
        if len(found):
            self._rows[found] = self._windows.get_rows([self._pods[container] for container in found.tolist()])

    def _forget_kills(self) -> None:
        while self._kills and self._kills[0].time < self.at - OOM_SECONDS:
            self._count_kills(self._kills.popleft().number)

    def _count_kills(self, number: int) -> None:
        """Sort what is remembered of a key's kills into what all its containers learn and what only some do."""
        kills = [kill for kill in self._kills if kill.number == number]
        shared = len(kills) > 1 or any(kill.shared for kill in kills)
        self._oom[number] = max(kill.raised_memory.raised_to_bytes for kill in kills) if shared else 0
        self._single.pop(number, None)
        if kills and not shared:
            self._single[number] = kills[0].raised_memory


class _AppliedOomKill(NamedTuple):
    """What a kill taught about one of a container's pods."""

    time: int
    number: int
    container: int
    creation_count: int
    raised_memory: SingleOomKill
    shared: bool = False


class _LatestStatistics:
    """The statistics last known of each place; `known` tells where there are any."""

    def __init__(self, places: int) -> None:
        self.known = np.zeros(places, dtype=np.bool_)
        empty: dict[str, NDArray[Any]] = {
            column.name: np.zeros(places, np.bool_ if column.name == "psi_known" else np.int64)
            for column in fields(StatisticColumns)
        }
        self.columns = StatisticColumns(**empty)

    def put(self, places: Int64Array, columns: StatisticColumns) -> None:
        """Replace what is known of some places."""
        self.known[places] = True
        for column in fields(StatisticColumns):
            getattr(self.columns, column.name)[places] = getattr(columns, column.name)

    def forget(self, places: Int64Array) -> None:
        """Know nothing of some places any more."""
        self.known[places] = False
