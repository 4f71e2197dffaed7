import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cruise.backtest.baselines.autopilot import (
    GrowingWeight,
    LoadPercentile,
    PeakOverWindows,
    RecentMaximum,
    WindowStatistic,
    WindowUsageSignal,
)

BOUNDS = np.array([1.0, 2.0, 5.0, 10.0, 20.0])
HALF_LIFE = 600
JOBS = 2

# Windows of samples (job, bucket); some windows are empty.
windows = st.lists(
    st.lists(st.tuples(st.integers(0, JOBS - 1), st.integers(0, len(BOUNDS) - 1)), max_size=6), min_size=1, max_size=25
)
Window = list[tuple[int, int]]


def signal(time: int, window: Window) -> WindowUsageSignal:
    pairs = np.array(window, dtype=np.int64).reshape(-1, 2)
    return WindowUsageSignal(time, pairs[:, 0], pairs[:, 1])


def fed(statistic: WindowStatistic, history: list[Window], step: int = 300) -> WindowStatistic:
    for number, window in enumerate(history):
        statistic.add(signal(step * (number + 1), window))
    return statistic


def plain_load_percentile(history: list[Window], job: int, share: float, step: int = 300) -> float:
    loads = np.zeros(len(BOUNDS))
    for age, window in enumerate(reversed(history)):
        for each, bucket in window:
            if each == job:
                loads[bucket] += 2 ** (-age * step / HALF_LIFE) * BOUNDS[bucket]
    if loads.sum() == 0:
        return float("nan")
    covered = np.cumsum(loads) >= share * loads.sum() * (1 - 1e-12)
    return float(BOUNDS[np.argmax(covered)])


def test_the_papers_example_of_load_against_time() -> None:
    # Figure 2: load 1 in nine instants and 10 in the tenth; the 90th percentile by time is 1, by load it is 10.
    statistic = LoadPercentile(1, BOUNDS, float("inf"), 0.90)

    fed(statistic, [[(0, 0)]] * 9 + [[(0, 3)]])

    assert statistic.get_values().tolist() == [10]


def test_half_of_a_load_is_served_where_half_of_its_area_lies_below() -> None:
    statistic = LoadPercentile(1, BOUNDS, float("inf"), 0.50)

    fed(statistic, [[(0, 0)]] * 10 + [[(0, 3)]])  # 10 units of load at 1, 10 units at 10

    assert statistic.get_values().tolist() == [1]


def test_a_sample_weighs_half_after_a_half_life() -> None:
    # The load 5 at age 0 against 10 · 2^-1 = 5 at age one half-life: the median of load stands at the first.
    even = LoadPercentile(1, BOUNDS, HALF_LIFE, 0.50)
    even.add(signal(0, [(0, 3)]))
    even.add(signal(HALF_LIFE, [(0, 2)]))
    before = LoadPercentile(1, BOUNDS, HALF_LIFE, 0.50)
    before.add(signal(0, [(0, 3)]))
    before.add(signal(HALF_LIFE - 60, [(0, 2)]))

    assert even.get_values().tolist() == [5]
    assert before.get_values().tolist() == [10]


def test_the_peak_is_forgotten_after_its_windows_and_kept_while_a_job_rests() -> None:
    peak = PeakOverWindows(1, BOUNDS, 3)
    seen = []
    for window in [[(0, 4)], [(0, 1)], [(0, 2)], [(0, 1)], [(0, 0)], [(0, 0)], [], [], []]:
        peak.add(signal(0, window))
        seen.append(float(peak.get_values()[0]))

    assert seen == [20, 20, 20, 5, 5, 2, 1, 1, 1]


def test_a_job_without_history_has_no_statistic() -> None:
    history: list[Window] = [[(0, 1)]]

    for statistic in (LoadPercentile(2, BOUNDS, 1, 0.9), PeakOverWindows(2, BOUNDS, 3)):
        assert np.isnan(fed(statistic, history).get_values()).tolist() == [False, True]


@given(windows, st.sampled_from([0.5, 0.6, 0.9, 0.95, 0.98]))
def test_the_percentile_kept_up_is_that_of_all_history(history: list[Window], share: float) -> None:
    statistic = LoadPercentile(JOBS, BOUNDS, HALF_LIFE, share)

    for count in range(1, len(history) + 1):
        statistic.add(signal(300 * count, history[count - 1]))
        plain = [plain_load_percentile(history[:count], job, share) for job in range(JOBS)]
        np.testing.assert_array_equal(statistic.get_values(), plain)


@given(st.lists(st.lists(st.integers(-3, 3), min_size=2, max_size=2), min_size=1, max_size=20), st.integers(1, 5))
def test_the_recent_maximum_is_that_of_the_last_windows(numbers: list[list[int]], length: int) -> None:
    recent = RecentMaximum(2, length)

    for count in range(1, len(numbers) + 1):
        recent.push(np.array(numbers[count - 1], dtype=np.float64))
        assert recent.largest.tolist() == np.max(numbers[max(0, count - length) : count], axis=0).tolist()


@given(windows, st.integers(0, 24), st.integers(0, JOBS - 1))
def test_more_usage_never_lowers_a_statistic(history: list[Window], place: int, job: int) -> None:
    place %= len(history)
    more = [
        [
            (each, min(bucket + 1, len(BOUNDS) - 1) if number == place and each == job else bucket)
            for each, bucket in window
        ]
        for number, window in enumerate(history)
    ]

    for kind in (
        lambda: LoadPercentile(JOBS, BOUNDS, HALF_LIFE, 0.9),
        lambda: PeakOverWindows(JOBS, BOUNDS, 12),
    ):
        less_used, more_used = fed(kind(), history).get_values(), fed(kind(), more).get_values()
        assert (np.isnan(less_used) | (more_used >= less_used * (1 - 1e-9))).all()


def test_sums_are_scaled_down_before_weights_overflow() -> None:
    # 1,000 half-lives apart, the first sample is as good as forgotten, and nothing is infinite.
    statistic = LoadPercentile(1, BOUNDS, HALF_LIFE, 0.95)
    statistic.add(signal(0, [(0, 4)]))
    statistic.add(signal(1000 * HALF_LIFE, [(0, 1)]))

    assert statistic.get_values().tolist() == [2]


def test_a_weight_doubles_with_every_half_life() -> None:
    weight = GrowingWeight(HALF_LIFE)

    assert [weight.get_weight(time) for time in (0, 300, 600, 1200)] == [
        (1.0, 1.0),
        (pytest.approx(2**0.5), 1.0),
        (2.0, 1.0),
        (4.0, 1.0),
    ]
