import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cruise.decisions.usage.peaks import compute_hourly_peaks, get_first_history_hour, get_peak_hours
from cruise.domain.usage import ContainerKey, PeakKey, SampleBlock

HOUR = 3600
AT = 1_767_268_200  # 11:50
WEB, DB = PeakKey("shop", "Deployment/web", "app", ""), PeakKey("shop", "StatefulSet/db", "app", "0")


def block(times, cpu, memory):
    rows = len(cpu)
    return SampleBlock(
        [ContainerKey("shop", f"pod-{row}", "app") for row in range(rows)],
        np.array(times, dtype=np.int64),
        np.array(cpu, dtype=np.float32),
        np.array(memory, dtype=np.float64),
        np.ones(rows, dtype=np.bool_),
    )


def test_the_hours_that_count_are_those_of_the_clock_on_the_last_seven_days():
    hour = AT // HOUR
    assert get_peak_hours(AT, 0) == {hour - 24 * days for days in range(1, 8)}


def test_the_next_hour_counts_where_the_look_ahead_reaches_it():
    hour = AT // HOUR
    assert get_peak_hours(AT, 599) == get_peak_hours(AT, 0)
    assert get_peak_hours(AT, 600) == get_peak_hours(AT, 0) | {hour + 1 - 24 * days for days in range(1, 8)}


@given(st.integers(10**9, 2 * 10**9), st.integers(0, 3600))
def test_no_hour_that_counts_is_older_than_the_history(at, look_ahead):
    assert min(get_peak_hours(at, look_ahead)) == get_first_history_hour(at)
    assert max(get_peak_hours(at, look_ahead)) < at // HOUR


def test_each_hour_has_the_largest_sample_of_the_keys_containers():
    peaks = compute_hourly_peaks(
        block(
            [3540, 3600, 3660],
            [[1, 2, 3], [5, np.nan, 1], [9, 9, 9], [np.nan, 7, np.nan]],
            [[10, 20, 30], [np.nan, np.nan, np.nan], [90, 90, 90], [np.nan, 5, np.nan]],
        ),
        np.array([0, 0, -1, 1]),
        [WEB, DB],
    )
    assert list(zip(peaks.keys, peaks.hours.tolist(), strict=True)) == [(WEB, 0), (WEB, 1), (DB, 1)]
    assert peaks.cpu_demand_millicores.tolist() == [5, 3, 7]
    assert peaks.memory_bytes.tolist() == [10, 30, 5]


def test_a_block_of_unattributed_containers_has_no_peaks():
    assert list(compute_hourly_peaks(block([60], [[1]], [[1]]), np.array([-1]), []).keys) == []


def test_a_block_without_times_has_no_peaks():
    assert list(compute_hourly_peaks(block([], np.empty((1, 0)), np.empty((1, 0))), np.array([0]), [WEB]).keys) == []
