import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cruise.backtest.baselines.autopilot import (
    CPU_BOUNDS,
    CPU_MARGIN,
    MEMORY_BOUNDS,
    MovingWindowRecommender,
    build_cpu_signal,
    build_memory_signal,
    create_cpu_recommender,
    create_memory_recommender,
)
from cruise.domain.resources import MEBIBYTE

GIBIBYTE = 1024 * MEBIBYTE
ONLY = np.array([0])


def after_cpu(recommender: MovingWindowRecommender, millicores: list[float]) -> list[float]:
    limits = []
    for number, used in enumerate(millicores):
        recommender.observe(build_cpu_signal(300 * (number + 1), np.array([[used]], dtype=np.float32), ONLY))
        limits.append(float(recommender.recommend()[0]))
    return limits


def after_memory(recommender: MovingWindowRecommender, usage: list[float]) -> list[float]:
    limits = []
    for number, used in enumerate(usage):
        recommender.observe(build_memory_signal(300 * (number + 1), np.array([[used]], dtype=np.float32), ONLY))
        limits.append(float(recommender.recommend()[0]))
    return limits


def boundary_above(value: float, bounds: np.ndarray) -> float:
    return float(bounds[bounds > value][0])


def test_the_margin_falls_from_15_percent_for_small_limits_to_10_for_large_ones() -> None:
    limits = np.array([10.0, 1000.0, 1000 * math.sqrt(8), 8000.0, 64000.0])

    assert CPU_MARGIN.get_share(limits) == pytest.approx([0.15, 0.15, 0.125, 0.10, 0.10])


@given(used=st.floats(5, 800))
def test_constant_use_is_met_with_the_margin_and_at_most_a_bucket_upon_it(used: float) -> None:
    limit = after_cpu(create_cpu_recommender(1, 300), [used] * 30)[-1]

    assert used * 1.15 <= limit * 1.0001
    assert limit <= used * 1.15 * 1.0301


def test_constant_memory_is_met_with_the_margin() -> None:
    used = 300.0 * MEBIBYTE

    limit = after_memory(create_memory_recommender(1, 300), [used] * 30)[-1]

    assert limit == pytest.approx(1.15 * boundary_above(used, MEMORY_BOUNDS))


def test_a_limit_rises_immediately_and_falls_an_hour_after_the_statistic() -> None:
    usage = [100.0 * MEBIBYTE, 900.0 * MEBIBYTE] + [100.0 * MEBIBYTE] * 900
    limits = after_memory(create_memory_recommender(1, 300), usage)
    low, high = (1.15 * boundary_above(each, MEMORY_BOUNDS) for each in usage[:2])

    assert limits[0] == pytest.approx(low)
    assert limits[1] == pytest.approx(high)
    last = 1 + (72 * 12 - 1) + (12 - 1)  # the spike is the oldest of 72 hours, and what followed from it of one hour
    assert limits[last] == pytest.approx(high)
    assert limits[last + 1] == pytest.approx(low)


def test_memory_covers_the_highest_spike() -> None:
    usage = [1.0 * GIBIBYTE] * 20 + [3.0 * GIBIBYTE] + [1.0 * GIBIBYTE] * 13

    assert after_memory(create_memory_recommender(1, 300), usage)[-1] > 3 * GIBIBYTE


def test_cpu_is_given_the_peak_of_its_load_and_not_its_mean() -> None:
    limit = after_cpu(create_cpu_recommender(1, 300), [10.0, 300.0] * 20)[-1]

    assert limit == pytest.approx(1.15 * boundary_above(300, CPU_BOUNDS))


def test_cpu_covers_what_more_than_five_percent_of_the_load_lies_above() -> None:
    # 46 windows of 100 and one of 350: the last 350 of 4,950 units of load, 7 %, lie above 100.
    usage = [100.0] * 46 + [350.0] + [100.0] * 12

    assert after_cpu(create_cpu_recommender(1, 300), usage)[-1] > 350


def test_a_job_without_history_has_no_limit() -> None:
    recommender = create_cpu_recommender(2, 300)

    recommender.observe(build_cpu_signal(300, np.array([[50.0]], dtype=np.float32), ONLY))

    assert np.isnan(recommender.recommend()).tolist() == [False, True]
