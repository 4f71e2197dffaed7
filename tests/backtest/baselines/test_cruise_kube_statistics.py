import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cruise.backtest.baselines.cruisekube_statistics import (
    CruiseKubeStatistics,
    CruiseKubeUsageHistory,
    HourlyReplicaCounts,
)
from cruise.domain.arrays import Float32Array, Float64Array, Int64Array
from tests.tiers import examples

DAY = 86400


def observed(cpu: Float64Array, memory: Float64Array, *, step: int = 300, every: int = 3) -> CruiseKubeStatistics:
    """Statistics of one workload of one pod at the end of intervals of 300 s."""
    history = CruiseKubeUsageHistory(np.zeros(1, dtype=np.int64), step_seconds=step, pass_seconds=300, every=every)
    rows = 300 // step
    statistics = CruiseKubeStatistics.create_empty(1)
    for number, first in enumerate(range(0, len(cpu), rows)):
        one = slice(first, first + rows)
        history.observe(cpu[one, np.newaxis].astype(np.float32), memory[one, np.newaxis].astype(np.float32))
        if number % every == 0:
            statistics = history.estimate()
    return statistics


def test_base_is_the_third_quartile_of_ten_and_of_thirty_minutes_rounded_as_the_queries_do() -> None:
    # The last 10 minutes have CPU 1.2 … 10.2: P75 lies three quarters between the 7th and the 8th of 10.
    cpu = np.array([999.0] * 5 + [value + 0.2 for value in range(1, 11)])
    memory = np.array([9e9] * 5 + [1e6 * value for value in range(100, 110)])
    statistics = observed(cpu, memory, step=60, every=1)
    assert statistics.cpu_p75_millicores.tolist() == [8.0], "7.95, rounded up"
    assert statistics.cpu_max_millicores.tolist() == [11.0]
    assert statistics.cpu_predicted_millicores[0] == 999.0, "the maximum of an hour is not rounded"
    # 15 samples: 100 … 109 MB and five of 9,000 MB; P75 is at 10.5 of 0 to 14.
    assert statistics.memory_p75_megabytes.tolist() == [9000.0]
    assert statistics.memory_max_megabytes.tolist() == [9000.0]


def test_memory_is_in_millions_of_bytes_a_half_rounded_up() -> None:
    statistics = observed(np.zeros(7), np.full(7, 100.5e6))
    assert statistics.memory_p75_megabytes.tolist() == [101.0]
    assert statistics.memory_7d_max_megabytes.tolist() == [101.0]


def test_prediction_looks_an_hour_back_and_at_the_hours_that_ended_at_this_time_on_earlier_days() -> None:
    count = 2 * 288 + 1
    cpu = np.full(count, 10.0)
    now = count - 1
    cpu[now - 12] = 5000.0  # an hour ago: just outside
    cpu[now - 288 - 12] = 4000.0  # likewise, yesterday
    cpu[now - 288 + 1] = 3000.0  # after this time yesterday: the code looks back only
    cpu[now - 288 - 11] = 500.0
    cpu[now - 11] = 400.0
    memory = np.full(count, 1e6)
    memory[5] = 77e6
    statistics = observed(cpu, memory)
    assert statistics.cpu_predicted_millicores.tolist() == [500.0]
    assert statistics.memory_predicted_megabytes.tolist() == [1.0]
    assert statistics.memory_7d_max_megabytes.tolist() == [77.0]


def test_a_gap_counts_as_nothing_while_the_week_has_a_sample() -> None:
    gap = np.full(7 * 288, np.nan)
    short = observed(np.append([80.0], gap[:9]), np.append([5e6], gap[:9]))
    assert short.known.tolist() == [True]
    assert short.cpu_p75_millicores.tolist() == [0.0]
    assert short.memory_p75_megabytes.tolist() == [0.0]
    assert short.cpu_predicted_millicores.tolist() == [80.0]
    assert observed(np.append([80.0], gap), np.append([5e6], gap)).known.tolist() == [False]


def columns_of(statistics: CruiseKubeStatistics) -> list[Float64Array]:
    return [
        statistics.cpu_p75_millicores,
        statistics.cpu_max_millicores,
        statistics.cpu_predicted_millicores,
        statistics.memory_p75_megabytes,
        statistics.memory_max_megabytes,
        statistics.memory_predicted_megabytes,
        statistics.memory_7d_max_megabytes,
    ]


def naive(time: int, times: Int64Array, cpu: Float64Array, memory: Float64Array) -> list[float]:
    """The statistics of one workload from all samples of its pods, as the queries word them."""

    def within(samples: Float64Array, seconds: int, until: int) -> Float64Array:
        chosen = samples[(times > until - seconds) & (times <= until)]
        return chosen[~np.isnan(chosen)]

    def largest(samples: Float64Array, seconds: int, ends: list[int]) -> float:
        return max((float(within(samples, seconds, end).max(initial=0.0)) for end in ends), default=0.0)

    def quartile(samples: Float64Array, seconds: int) -> float:
        window = within(samples, seconds, time)
        return float(np.quantile(window, 0.75)) if window.size else 0.0

    days = [time - day * DAY for day in range(8)]
    megabytes = [
        quartile(memory, 1800),
        largest(memory, 1800, [time]),
        largest(memory, 3600, days),
        largest(memory, 7 * DAY, [time]),
    ]
    return [
        np.ceil(round(quartile(cpu, 600), 4)),
        np.ceil(largest(cpu, 600, [time])),
        largest(cpu, 3600, days),
        *(np.floor(value / 1e6 + 0.5) for value in megabytes),
    ]


@examples(12)
@given(st.integers(0, 2**32 - 1), st.sampled_from([60, 300]))
def test_windows_kept_from_pass_to_pass_equal_those_of_all_samples(seed: int, step: int) -> None:
    random = np.random.default_rng(seed)
    workload_of_container: Int64Array = np.array([0, 1, 0, 2, 1, 0], dtype=np.int64)
    count = (9 * DAY if step == 300 else DAY + 7200) // step
    times: Int64Array = (1 + np.arange(count)) * step
    # In quarters and whole kilobytes, which float32 has exactly.
    cpu = np.floor(random.gamma(0.7, 200.0, (count, 6)) * 4) / 4
    memory = np.floor(random.gamma(0.7, 2e5, (count, 6))) * 1024
    for _ in range(30):
        first, column = int(random.integers(count)), int(random.integers(6))
        gap = slice(first, first + int(random.integers(1, 900)))
        cpu[gap, column] = memory[gap, column] = np.nan
    history = CruiseKubeUsageHistory(workload_of_container, step_seconds=step, pass_seconds=300, every=3)
    rows, looked = 300 // step, 0
    for number, first in enumerate(range(0, count, rows)):
        one = slice(first, first + rows)
        history.observe(cpu[one].astype(np.float32), memory[one].astype(np.float32))
        if number % 3:
            continue
        found = history.estimate()
        if random.random() > 0.02 and first + 3 * rows < count:
            continue
        looked += 1
        for workload in range(3):
            own = workload_of_container == workload
            with np.errstate(invalid="ignore"):
                of_pods = [np.fmax.reduce(samples[: first + rows, own], axis=1) for samples in (cpu, memory)]
            expected = naive(int(times[first + rows - 1]), times[: first + rows], *of_pods)
            assert [float(column[workload]) for column in columns_of(found)] == pytest.approx(expected)
    assert looked > 0


def test_a_workload_is_a_single_replica_if_its_median_is_one_pod() -> None:
    workload_of_container: Int64Array = np.array([0, 1, 1, 2, 2], dtype=np.int64)
    replicas = HourlyReplicaCounts(workload_of_container)
    hours = [[1, 1, 1, 0, 0], [1, 1, 1, 1, 0], [1, 1, 0, 1, 0], [1, 1, 1, 1, 1]]
    for hour, exists in enumerate(hours):
        replicas.observe(hour * 3600 + 300, np.array(exists, dtype=np.bool_))
        replicas.observe(hour * 3600 + 600, np.array([1, 0, 0, 0, 0], dtype=np.bool_))
    assert replicas.find_single_replica().tolist() == [True, False, True], "2, 2, 1, 2 and (none), 1, 1, 2"


def test_a_median_of_one_and_a_half_pods_is_one_pod() -> None:
    replicas = HourlyReplicaCounts(np.zeros(2, dtype=np.int64))
    for hour, exists in enumerate([[True, True], [True, False]]):
        replicas.observe(hour * 3600, np.array(exists))
    assert replicas.find_single_replica().tolist() == [True]


def test_a_workload_of_one_recorded_pod_needs_no_counting() -> None:
    replicas = HourlyReplicaCounts(np.arange(3, dtype=np.int64))
    assert replicas.find_single_replica().tolist() == [True, True, True]


def matrix(rows: list[list[float]]) -> Float32Array:
    return np.array(rows, dtype=np.float32)


def test_pods_of_a_workload_share_the_largest_of_their_samples() -> None:
    history = CruiseKubeUsageHistory(np.array([0, 1, 0], dtype=np.int64), step_seconds=300, pass_seconds=300, every=1)
    history.observe(matrix([[10, 7, np.nan]]), matrix([[1e6, 2e6, np.nan]]))
    history.observe(matrix([[10, 7, 30]]), matrix([[1e6, 2e6, 9e6]]))
    statistics = history.estimate()
    assert statistics.cpu_p75_millicores.tolist() == [25.0, 7.0], "of 10 and 30"
    assert statistics.memory_max_megabytes.tolist() == [9.0, 2.0]
