"""Statistics under replay equal those of the usage pass over simulated ports, value by value."""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime

import numpy as np
import pytest

from cruise.backtest.policies.statistics import ReplayedStatistics
from cruise.backtest.recordings.recording import RecordedContainer, UsageRecording
from cruise.domain.policy import Policy
from cruise.domain.usage import ContainerKey, OomRecord, StatisticColumns, StatisticsTable
from cruise.runtime.usage.usage_pass import run_usage_pass
from cruise.runtime.usage.usage_reader import UsageReadingSettings
from cruise.runtime.usage.usage_state import UsageState
from cruise.simulation.demand.trace import SHIPPED_TRACE, read_trace
from cruise.simulation.store import InMemoryStore
from tests.builders import make_container, make_pod, make_ref, make_resources, make_snapshot
from tests.recorded_usage import RecordedUsage
from tests.shown_cluster import ReadOnlyCluster

HOUR = 3600
START = 1_767_268_200 // HOUR * HOUR - 600
POLICY = Policy()
FIGURES = [column.name for column in fields(StatisticColumns)]


def recorded(step: int, length: int, workloads: Sequence[str]) -> UsageRecording:
    """The first series of the shipped trace, repeated at other levels until they are long enough."""
    trace = read_trace(SHIPPED_TRACE)
    assert trace.memory_bytes is not None
    count = len(workloads)
    rng = np.random.default_rng(7)
    cpu, memory = trace.cpu_millicores[:count, :: step // 60].T, trace.memory_bytes[:count, :: step // 60].T
    repeated = -(-length // len(cpu))
    levels = rng.uniform(0.5, 1.5, (repeated, 1, count))
    return UsageRecording(
        name="nezha",
        containers=[
            RecordedContainer("shop", f"pod-{place}", "app", make_ref(workload), make_resources(500, 512))
            for place, workload in enumerate(workloads)
        ],
        start=START,
        step_seconds=step,
        cpu_millicores=(cpu * levels).reshape(-1, count)[:length].astype(np.float32),
        memory_bytes=(memory * levels).reshape(-1, count)[:length].astype(np.float32),
    )


@dataclass
class Both:
    """A recording given to the usage pass and to its replay alike, interval by interval."""

    recording: UsageRecording
    interval: int
    present: np.ndarray = field(init=False)
    at: int = 0
    told: int = 0  # samples so far

    def __post_init__(self) -> None:
        count = len(self.recording.containers)
        self.present = np.ones(count, dtype=np.bool_)
        self.births = [0] * count
        self.created: dict[ContainerKey, datetime] = {}
        self.samples: dict[ContainerKey, dict[int, tuple[float, float]]] = {}
        self.replayed = ReplayedStatistics(self.recording, POLICY)
        self.source = RecordedUsage({}, self._of(0), self._of(1), step=self.recording.step_seconds)
        self.cluster = ReadOnlyCluster(make_snapshot())
        self.store, self.state = InMemoryStore(), UsageState()

    def key(self, place: int) -> ContainerKey:
        return ContainerKey("shop", f"pod-{place}-{self.births[place]}", "app")

    def replace_pod(self, place: int) -> None:
        self.births[place] += 1
        self.replayed.reset_replaced(np.array([place]))

    async def kill(self, place: int, oom_memory_bytes: int) -> None:
        record = OomRecord(
            "shop", self.key(place).pod, f"{place}", str(self.recording.containers[place].workload), "app", "", None,
            datetime.fromtimestamp(self.at, UTC), None, None, None, oom_memory_bytes,
        )  # fmt: skip
        self.replayed.apply_oom_kill(place, record, self.at)
        await self.store.record_oom_kill(record)

    def observe(self) -> None:
        """Tell both the samples of one more interval."""
        count = self.interval // self.recording.step_seconds
        cpu = np.where(self.present, self.recording.cpu_millicores[self.told : self.told + count], np.nan)
        memory = np.where(self.present, self.recording.memory_bytes[self.told : self.told + count], np.nan)
        self.at = self.recording.start + (self.told + count - 1) * self.recording.step_seconds
        began = datetime.fromtimestamp(self.at - count * self.recording.step_seconds, UTC)
        keys = [self.key(place) for place in np.flatnonzero(self.present).tolist()]
        self.created = {key: self.created.get(key, began) for key in keys}
        for place in np.flatnonzero(self.present).tolist():
            of_pod = self.samples.setdefault(self.key(place), {})
            for line in range(count):
                time = self.recording.start + (self.told + line) * self.recording.step_seconds
                of_pod[time] = (float(cpu[line, place]), float(memory[line, place]))
        self.told += count
        self.replayed.observe(self.at, cpu, memory)

    async def compare(self) -> int:
        """Run both passes; return how many rows there are."""
        pods = [
            make_pod(
                self.key(place).pod,
                workload=one.workload,
                containers=[make_container("app")],
                created_at=self.created[self.key(place)],
            )
            for place, one in enumerate(self.recording.containers)
            if self.present[place]
        ]
        self.cluster.shown = make_snapshot(pods=pods)
        self.source.containers = {"all": list(self.samples)}
        reading = UsageReadingSettings(
            step_seconds=self.recording.step_seconds, scrape_delay_seconds=0, samples_per_chunk=10**7
        )
        now = datetime.fromtimestamp(self.at, UTC)
        expected = await run_usage_pass(self.cluster, self.source, self.store, self.state, POLICY, now, reading)
        places, columns = self.replayed.get_for_containers(self.present)
        rows = [expected.row_of_container[self.key(place)] for place in places.tolist()]
        assert len(rows) == len(expected.row_of_container), datetime.fromtimestamp(self.at, UTC)
        self.assert_equal(columns, expected, rows)
        workloads = self.replayed.get_for_workloads()
        assert workloads.row_of_workload.keys() == expected.row_of_workload.keys()
        self.assert_equal(workloads, expected, [expected.row_of_workload[key] for key in workloads.row_of_workload])
        return len(rows) + len(workloads.keys)

    def assert_equal(self, columns: StatisticColumns, expected: StatisticsTable, rows: Sequence[int]) -> None:
        for name in FIGURES:
            np.testing.assert_array_equal(
                getattr(columns, name), getattr(expected, name)[rows], f"{name} at {self.at - self.recording.start}"
            )

    def _of(self, figure: int):
        def told(key: ContainerKey, times: np.ndarray) -> np.ndarray:
            of_pod = self.samples.get(key, {})
            return np.array([of_pod.get(time, (np.nan, np.nan))[figure] for time in times.tolist()])

        return told


async def test_minutes_with_arrivals_departures_gaps_and_kills():
    workloads = ["Deployment/web", "Deployment/web", "Deployment/db", "Pod/bare", "Job/once", "Deployment/late"]
    recording = recorded(60, 420, workloads)
    recording.cpu_millicores[100:104, 0] = np.nan  # a few samples missing of one resource
    recording.memory_bytes[130:160, 1] = np.nan  # its base is not known any more, then
    for missing in (recording.cpu_millicores, recording.memory_bytes):
        missing[150:157, 2] = np.nan
        missing[200:290, 0] = np.nan  # longer than a window
    both = Both(recording, 300)
    both.present[[4, 5]] = False
    found = set()
    for number in range(84):
        if number == 10:
            both.present[5] = True
        both.present[4] = 20 <= number < 26
        if number == 30:
            both.replace_pod(1)
        if number == 50:
            both.present[2] = False
        if number == 54:  # takes the row that the first container had, which comes back later
            both.replace_pod(5)
        if number in (40, 41):
            await both.kill(2, 600_000_000 - number)
        both.observe()
        found.add(await both.compare())
    assert max(found) == 10  # there were rows to compare, in several states
    assert len(found) >= 4


async def test_five_minute_steps_over_more_than_a_week():
    recording = recorded(300, 9 * 288, ["Deployment/web", "Deployment/web", "Deployment/db", "CronJob/report"])
    recording.cpu_millicores[1000:1300, 2] = np.nan
    recording.memory_bytes[1000:1300, 2] = np.nan
    both = Both(recording, 300)
    found = set()
    for number in range(9 * 288):
        # The report runs on the first day and, much later, again.
        both.present[3] = number < 200 or number >= 2500
        both.present[1] = number % 700 < 600
        if number == 100:
            await both.kill(0, 900_000_000)
        both.observe()
        if number % 8 == 0:
            found.add(await both.compare())
    assert len(found) >= 3


@pytest.mark.parametrize("shuffled", ["cpu_millicores", "memory_bytes"])
def test_later_samples_do_not_change_statistics(shuffled):
    recording = recorded(60, 120, ["Deployment/web", "Deployment/db"])
    future = getattr(recording, shuffled).copy()
    future[60:] = np.random.default_rng(1).permutation(future[60:])
    known = []
    for one in (recording, replace(recording, **{shuffled: future})):
        both = Both(one, 300)
        for _ in range(12):
            both.observe()
        known.append(both.replayed.get_for_containers(both.present))
    np.testing.assert_array_equal(known[0][0], [0, 1])
    for name in FIGURES:
        np.testing.assert_array_equal(getattr(known[0][1], name), getattr(known[1][1], name))


def test_headroom_models_see_the_hours_that_count_one_by_one():
    recording = recorded(300, 343, ["Deployment/web", "Deployment/web", "Deployment/db"])
    both = Both(recording, 300)
    for _ in range(343):
        both.observe()
    cpu, memory = both.replayed.get_maxima().peaks.values()
    times = recording.start + 300 * np.arange(343)
    yesterday = times // HOUR == both.at // HOUR - 24
    assert cpu.shape == memory.shape == (1, 2)
    np.testing.assert_array_equal(
        cpu[0], [recording.cpu_millicores[yesterday, :2].max(), recording.cpu_millicores[yesterday, 2].max()]
    )
    recent, rows = both.replayed.get_recent()
    np.testing.assert_array_equal(
        recent.cpu_demand_millicores[np.ix_(rows, recent.columns)], recording.cpu_millicores[-12:].T
    )


def test_a_recorded_use_of_no_bytes_counts_as_one_byte_where_memory_was_recorded():
    recording = recorded(60, 120, ["Deployment/web", "Deployment/db"])
    recording.memory_bytes[:, 1] = 0
    for has_memory, largest in ((True, 1), (False, 0)):
        statistics = ReplayedStatistics(replace(recording, has_memory=has_memory), POLICY)
        for first in range(0, 120, 5):
            rows = slice(first, first + 5)
            statistics.observe(
                START + 60 * (first + 4),
                recording.cpu_millicores[rows],
                recording.memory_bytes[rows].astype(np.float32),
            )
        _, known = statistics.get_for_containers(np.ones(2, dtype=np.bool_))
        assert known.memory_7d_max_bytes.tolist()[1] == largest
