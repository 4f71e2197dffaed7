"""Statistics of a few containers whose last hour and earlier peaks are given minute by minute."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cruise.decisions.usage.estimation import estimate_statistics
from cruise.decisions.usage.oom_records import OomKillEffects
from cruise.decisions.usage.usage_columns import (
    NEVER,
    EstimationTime,
    KnownPeaks,
    RecentUsage,
    RevisionGroups,
    RunningContainers,
)
from cruise.domain.usage import PeakKey, StatisticKey, StatisticsTable

AT = 1_767_268_200  # 11:50
MINUTES = 60
WEB = PeakKey("shop", "Deployment/web", "app", "")


@dataclass(frozen=True)
class Measured:
    """A container with its samples of the last minutes, newest last, and its key."""

    pod: str
    cpu: Sequence[float] = ()
    memory: Sequence[float] = ()
    key: PeakKey = WEB
    live: bool = True
    psi_known: bool = True


@dataclass(frozen=True)
class Earlier:
    """The peaks of a key in the peak window."""

    cpu: float = np.nan
    memory: float = np.nan
    memory_7d_max: float = np.nan
    first_hour: int = NEVER
    cpu_7d_max: float = np.nan


@dataclass(frozen=True)
class Scene:
    """The input of an estimate; `turn` rotates the columns of the ring buffer."""

    containers: Sequence[Measured]
    earlier: Mapping[PeakKey, Earlier] = field(default_factory=dict)
    oom: Mapping[PeakKey, int] = field(default_factory=dict)
    turn: int = 0
    mixed: RevisionGroups | None = None
    run_starts: np.ndarray | None = None

    def estimate(self) -> StatisticsTable:
        keys = list(dict.fromkeys([one.key for one in self.containers] + list(self.earlier)))
        keys += [key._replace(identity="") for key in keys if key._replace(identity="") not in keys]
        keys = list(dict.fromkeys(keys))
        samples = [(last_minutes(one.cpu), last_minutes(one.memory)) for one in self.containers]
        cpu = np.array([row for row, _ in samples]).reshape(-1, MINUTES)
        memory = np.array([row for _, row in samples]).reshape(-1, MINUTES)
        newest, whole = last_of(~(np.isnan(cpu) & np.isnan(memory))), last_of(~(np.isnan(cpu) | np.isnan(memory)))
        earlier = [self.earlier.get(key, Earlier()) for key in keys]
        return estimate_statistics(
            RecentUsage(
                np.roll(cpu, self.turn, axis=1).astype(np.float32),
                np.roll(memory, self.turn, axis=1),
                (np.arange(MINUTES) + self.turn) % MINUTES,
                np.array([keys.index(one.key) for one in self.containers], dtype=np.int64),
                np.array([one.psi_known for one in self.containers], dtype=np.bool_),
                newest,
                whole,
            ),
            KnownPeaks(
                keys,
                np.array([keys.index(key._replace(identity="")) for key in keys]),
                np.array([one.cpu for one in earlier]),
                np.array([one.memory for one in earlier]),
                np.array([one.cpu_7d_max for one in earlier]),
                np.array([one.memory_7d_max for one in earlier]),
                np.array([one.first_hour for one in earlier]),
            ),
            RunningContainers(
                [
                    StatisticKey(one.key.namespace, one.pod, one.key.workload, one.key.container, one.key.identity)
                    for one in self.containers
                    if one.live
                ],
                np.array([row for row, one in enumerate(self.containers) if one.live], dtype=np.int64),
                self.mixed,
                self.run_starts,
            ),
            OomKillEffects(by_key=self.oom),
            EstimationTime(AT, step=60, max_age_seconds=900, new_workload_seconds=3600),
        )


def last_minutes(values: Sequence[float]) -> np.ndarray:
    return np.concatenate((np.full(MINUTES - len(values), np.nan), np.array(values, dtype=np.float64)))


def last_of(sampled: np.ndarray) -> np.ndarray:
    return np.array([AT - 60 * int(np.argmax(row[::-1])) if row.any() else 0 for row in sampled], dtype=np.int64)


def of_pod(table: StatisticsTable, pod: str):
    return next((table.get_row(row) for key, row in table.row_of_container.items() if key.pod == pod), None)


def of_workload(table: StatisticsTable, key: PeakKey = WEB):
    row = table.row_of_workload.get(key)
    return None if row is None else table.get_row(row)


OLD = Earlier(first_hour=AT // 3600 - 100)


def test_base_is_the_75th_percentile_of_ten_minutes_of_cpu_and_thirty_of_memory():
    cpu = [9000.0] * 50 + [10, 20, 30, 40, 50, 60, 70, 80, 90, 100]
    memory = [7e9] * 30 + [float(value) for value in range(1000, 4000, 100)]
    statistic = of_pod(Scene([Measured("a", cpu, memory)]).estimate(), "a")
    assert (statistic.cpu_base_millicores, statistic.memory_base_bytes) == (78, 3175)  # 77.5 is rounded up
    assert (statistic.cpu_peak_millicores, statistic.memory_peak_bytes) == (9000, 7_000_000_000)
    assert statistic.memory_last_bytes == 3900


@given(st.integers(0, MINUTES - 1))
def test_the_rotation_of_the_ring_buffer_changes_nothing(turn):
    containers = [
        Measured("a", [float(value) for value in range(60)], [1e6 * value for value in range(60)]),
        Measured("b", [float(value) for value in range(45)], [1e6 * value for value in range(45)]),
    ]
    straight, turned = Scene(containers).estimate(), Scene(containers, turn=turn).estimate()
    assert [straight.get_row(row) for row in range(3)] == [turned.get_row(row) for row in range(3)]


@pytest.mark.parametrize(("samples", "base"), [(8, 30), (7, 500)])
def test_a_pod_has_its_own_base_with_80_percent_of_the_samples_and_its_workloads_before(samples, base):
    old = Measured("old", [500.0] * 60, [5e6] * 60)
    young = Measured("young", [30.0] * samples, [1e6] * 24)
    table = Scene([old, young], {WEB: OLD}).estimate()
    assert of_pod(table, "young").cpu_base_millicores == base
    assert of_pod(table, "young").memory_base_bytes == 1_000_000
    assert of_workload(table).cpu_base_millicores == 500


def test_the_workloads_base_is_the_largest_of_its_live_pods():
    table = Scene(
        [
            Measured("a", [100.0] * 60, [1e6] * 60),
            Measured("b", [50.0] * 60, [2e6] * 60),
            Measured("gone", [900.0] * 60, [9e6] * 60, live=False),
        ]
    ).estimate()
    statistic = of_workload(table)
    assert (statistic.cpu_base_millicores, statistic.memory_base_bytes) == (100, 2_000_000)
    assert statistic.cpu_peak_millicores == 900  # but the peak is also that of a deleted pod
    assert of_pod(table, "gone") is None


def test_a_container_without_any_base_has_no_row():
    table = Scene([Measured("new", [100.0] * 3, [1e6] * 3)]).estimate()
    assert list(table.keys) == []


def test_peaks_are_the_largest_of_the_last_hour_and_the_hours_that_count():
    hour = Measured("a", [100.0] * 59 + [300.0], [1e6] * 60)
    earlier = Earlier(cpu=250.0, memory=3e6, cpu_7d_max=700.0, memory_7d_max=8e6, first_hour=AT // 3600 - 100)
    statistic = of_pod(Scene([hour], {WEB: earlier}).estimate(), "a")
    assert statistic.cpu_peak_millicores == 300
    assert statistic.memory_peak_bytes == 3_000_000
    assert statistic.memory_7d_max_bytes == 8_000_000
    assert statistic.cpu_7d_max_millicores == 700


def test_oom_memory_raises_the_peak_but_is_no_measurement():
    statistic = of_pod(Scene([Measured("a", [1.0] * 60, [1e6] * 60)], oom={WEB: 5_000_000}).estimate(), "a")
    assert (statistic.memory_peak_bytes, statistic.oom_memory_bytes) == (5_000_000, 5_000_000)
    assert (statistic.memory_7d_max_bytes, statistic.memory_base_bytes) == (1_000_000, 1_000_000)


def agent(node: str) -> PeakKey:
    return PeakKey("shop", "DaemonSet/agent", "agent", node)


def test_identities_are_sized_separately_and_a_new_one_has_its_workloads_peaks():
    table = Scene(
        [
            Measured("big", [800.0] * 60, [8e6] * 60, agent("n1")),
            Measured("small", [80.0] * 60, [1e6] * 60, agent("n2")),
            Measured("new", [10.0] * 20, [1e6] * 20, agent("n3")),
        ],
        {agent("n1"): OLD, agent("n2"): OLD},
        {agent("n2"): 3_000_000},
    ).estimate()
    peaks = {pod: of_pod(table, pod).cpu_peak_millicores for pod in ("big", "small", "new")}
    assert peaks == {"big": 800, "small": 80, "new": 800}
    assert {pod: of_pod(table, pod).memory_peak_bytes for pod in peaks} == {
        "big": 8_000_000,
        "small": 3_000_000,
        "new": 8_000_000,
    }
    assert of_pod(table, "new").history_since == OLD.first_hour * 3600
    assert of_workload(table, agent("")).cpu_base_millicores == 800
    assert of_workload(table, agent("n2")).cpu_base_millicores == 80
    # The new pod has enough samples for CPU (ten minutes), not for memory (thirty).
    assert of_pod(table, "new").cpu_base_millicores == 10
    assert of_pod(table, "new").memory_base_bytes == 8_000_000


@pytest.mark.parametrize(
    ("samples", "first_hour", "since"),
    [
        (60, AT // 3600 - 5, (AT // 3600 - 5) * 3600),
        (40, AT // 3600, AT - 39 * 60),  # to the minute within the last hour
        (60, AT // 3600 - 1, (AT // 3600 - 1) * 3600),  # began before the window did
        (40, AT // 3600 - 30, (AT // 3600 - 30) * 3600),
        (40, NEVER, AT - 39 * 60),  # nothing stored yet
    ],
)
def test_history_begins_with_the_first_sample(samples, first_hour, since):
    scene = Scene([Measured("a", [1.0] * samples, [1e6] * samples)], {WEB: Earlier(first_hour=first_hour)})
    assert of_pod(scene.estimate(), "a").history_since == since


def test_the_statistic_has_its_newest_sample_and_whether_pressure_is_known():
    late = Measured("late", [1.0] * 58 + [np.nan] * 2, [1e6] * 58 + [np.nan] * 2, psi_known=False)
    table = Scene([late, Measured("b", [1.0] * 60, [1e6] * 60)]).estimate()
    assert of_pod(table, "late").updated_at == AT - 120
    assert not of_pod(table, "late").psi_known
    assert of_pod(table, "b").psi_known
    assert of_workload(table).updated_at == AT
    assert not of_workload(table).psi_known


def test_a_container_missing_one_resource_becomes_stale():
    half = Measured("half", [1.0] * 58 + [np.nan] * 2, [1e6] * 60)
    assert of_pod(Scene([half]).estimate(), "half").updated_at == AT - 120
    assert of_pod(Scene([replace(half, cpu=[1.0] * 44 + [np.nan] * 16)]).estimate(), "half") is None


def test_a_container_whose_samples_ceased_has_no_own_row():
    table = Scene(
        [
            Measured("b", [1.0] * 60, [1e6] * 60),
            Measured("stopped", [9.0] * 55 + [np.nan] * 5, [9e6] * 55 + [np.nan] * 5),
            Measured("stale", [9.0] * 40 + [np.nan] * 20, [9e6] * 40 + [np.nan] * 20),
        ]
    ).estimate()
    assert of_pod(table, "stopped") is None
    assert of_pod(table, "stale") is None
    assert of_workload(table).cpu_base_millicores == 1


def test_a_bare_pod_has_no_workload_statistic():
    bare = PeakKey("shop", "Pod/lonely", "app", "")
    table = Scene([Measured("lonely", [5.0] * 60, [1e6] * 60, bare)]).estimate()
    assert of_pod(table, "lonely").cpu_base_millicores == 5
    assert dict(table.row_of_workload) == {}


def test_rounding_errors_of_counters_are_not_rounded_up():
    statistic = of_pod(Scene([Measured("a", [100.00001] * 60, [1e6] * 60)]).estimate(), "a")
    assert (statistic.cpu_base_millicores, statistic.cpu_peak_millicores) == (100, 100)


def test_without_containers_there_are_no_statistics():
    assert list(Scene([]).estimate().keys) == []


def test_a_workload_between_two_runs_is_known_by_its_peaks():
    report = PeakKey("shop", "CronJob/report", "app", "")
    table = Scene(
        [Measured("web-1", [50] * 60, [100] * 60)],
        {report: Earlier(cpu=700, memory=900, memory_7d_max=950, first_hour=AT // 3600 - 100)},
    ).estimate()
    resting = of_workload(table, report)
    assert (resting.cpu_base_millicores, resting.cpu_peak_millicores) == (700, 700)
    assert (resting.memory_base_bytes, resting.memory_peak_bytes, resting.memory_7d_max_bytes) == (900, 900, 950)
    assert resting.updated_at == AT


def test_a_workload_with_a_running_pod_without_samples_has_no_peak_based_row():
    table = Scene(
        [Measured("web-1", [50] * 60, [100] * 60), Measured("report-1", key=WEB._replace(workload="CronJob/report"))],
        {WEB._replace(workload="CronJob/report"): Earlier(cpu=700, memory=900, first_hour=AT // 3600 - 100)},
    ).estimate()
    assert of_workload(table, WEB._replace(workload="CronJob/report")) is None


def mixed(*entries: tuple[int, bool]) -> RevisionGroups:
    groups, young = zip(*entries, strict=True)
    return RevisionGroups(np.array(groups), np.array(young))


def test_a_pod_with_few_samples_takes_the_base_of_pods_that_state_the_same():
    containers = [
        Measured("old", [100.0] * 60, [1e6] * 60),
        Measured("new", [900.0] * 60, [9e6] * 60),
        Measured("next", [5.0], [5.0]),
    ]
    whole = Scene(containers, {WEB: OLD})
    assert of_pod(whole.estimate(), "next").cpu_base_millicores == 900
    apart = replace(whole, mixed=mixed((0, False), (1, False), (0, True)))
    assert of_pod(apart.estimate(), "next").cpu_base_millicores == 100
    assert of_pod(apart.estimate(), "new").cpu_base_millicores == 900
    # Peaks belong to the workload, whatever its pods state.
    assert {of_pod(apart.estimate(), name).cpu_peak_millicores for name in ("old", "new", "next")} == {900}


def test_the_first_pod_of_a_revision_has_no_base_of_another_one():
    containers = [Measured("old", [100.0] * 60, [1e6] * 60), Measured("new", [900.0], [9e6])]
    apart = Scene(containers, {WEB: OLD}, mixed=mixed((0, False), (1, True)))
    assert of_pod(apart.estimate(), "new") is None


def test_samples_of_the_pod_that_had_the_name_before_are_not_a_new_pods():
    containers = [
        Measured("db-0", [100.0] * 59 + [900.0], [1e6] * 59 + [9e6]),
        Measured("db-1", [100.0] * 60, [1e6] * 60),
    ]
    apart = Scene(containers, {WEB: OLD}, mixed=mixed((1, True), (0, False)))
    assert of_pod(apart.estimate(), "db-0") is None
    assert of_pod(apart.estimate(), "db-1").cpu_base_millicores == 100


NIGHTLY = PeakKey("shop", "CronWorkflow/nightly:train", "main", "")
NEW_SECONDS = 3600


def ended(minutes: int, **more) -> Measured:
    return Measured("run-1", [700.0] * minutes, [7e6] * minutes, NIGHTLY, live=False, **more)


def is_new(statistic) -> bool:
    return bool(statistic.history_since > AT - NEW_SECONDS)


def test_a_run_of_any_length_is_a_history_once_it_has_ended():
    no_run = np.array([], dtype=np.int64)
    for minutes in (1, 3, 59):
        statistic = of_workload(Scene([ended(minutes)], run_starts=no_run).estimate(), NIGHTLY)
        assert (statistic.cpu_peak_millicores, statistic.memory_peak_bytes) == (700, 7_000_000)
        assert not is_new(statistic)
        assert is_new(of_workload(Scene([ended(minutes)]).estimate(), NIGHTLY))


def test_the_first_run_is_no_history_of_itself_until_a_day_has_passed():
    running = Measured("run-1", [100.0] * 60, [1e6] * 60, NIGHTLY)
    for hours, new in ((1, True), (23, True), (25, False), (100, False)):
        start = AT - hours * 3600
        earlier = {NIGHTLY: Earlier(100.0, 1e6, 1e6, start // 3600)}
        statistic = of_pod(Scene([running], earlier, run_starts=np.array([start])).estimate(), "run-1")
        assert is_new(statistic) is new, hours
        # A service is new for the time of the setting.
        service = replace(running, key=WEB)
        statistic = of_pod(Scene([service], {WEB: earlier[NIGHTLY]}, run_starts=np.array([NEVER])).estimate(), "run-1")
        assert is_new(statistic) is (hours < 1)


def test_a_pod_that_was_created_after_the_first_sample_has_an_earlier_run():
    running = Measured("run-2", [100.0] * 30, [1e6] * 30, NIGHTLY)
    for first, created, new in (
        (AT - 50 * 60, AT - 30 * 60, False),  # measured in the last hour: exact to the minute
        (AT - 30 * 60, AT - 31 * 60, True),
        (AT - 5 * 3600, AT - 30 * 60, False),
        (AT - 5 * 3600, AT - 5 * 3600, True),  # within the same hour: unknown, so new
    ):
        samples = [ended((AT - first) // 60)] if first > AT - 3600 else []
        earlier = {NIGHTLY: Earlier(700.0, 7e6, 7e6, first // 3600)}
        table = Scene([running, *samples], earlier, run_starts=np.array([created])).estimate()
        assert is_new(of_workload(table, NIGHTLY)) is new, (first, created)


def test_the_peaks_of_runs_count_at_any_hour():
    earlier = {
        key: Earlier(np.nan, np.nan, 8e6, AT // 3600 - 100, cpu_7d_max=800.0)
        for key in (NIGHTLY, WEB, WEB._replace(workload="CronJob/nightly"))
    }
    table = Scene([], earlier, run_starts=np.array([], dtype=np.int64)).estimate()
    assert [key.workload for key in table.row_of_workload] == ["CronJob/nightly", "CronWorkflow/nightly:train"]
    statistic = of_workload(table, NIGHTLY)
    assert (statistic.cpu_peak_millicores, statistic.memory_peak_bytes, statistic.updated_at) == (800, 8_000_000, AT)
    assert not is_new(statistic)
