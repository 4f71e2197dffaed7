"""Expected values are from upstream where a test names a file; the rest are invariants of the replay."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cruise.backtest.baselines.vpa_recommender import DecayingHistograms, ExponentialBuckets, VpaUsageRecommender
from cruise.domain.arrays import Float64Array
from cruise.domain.resources import Resources

DAY = 86400
MIB = 1 << 20
NODE = Resources(16_000, 64 << 30)


def recommender(*row_of_container: int, step_seconds: int = 60) -> VpaUsageRecommender:
    return VpaUsageRecommender(np.array(row_of_container), NODE, step_seconds)


def feed(recommender: VpaUsageRecommender, time: int, cpu: Float64Array, memory: Float64Array) -> None:
    recommender.add(time, cpu.astype(np.float32), memory.astype(np.float32))


def test_percentiles_are_within_a_bucket_of_the_samples() -> None:
    """logic/estimator_test.go, TestPercentileEstimator."""
    cpu = DecayingHistograms(1, ExponentialBuckets.create(1000.0, 0.01, 1.05), (0.2,), DAY, 1e-4)
    memory = DecayingHistograms(1, ExponentialBuckets.create(1e12, 1e7, 1.05), (0.5,), DAY, 1e-4)
    rows, time = np.zeros(3, dtype=np.int64), np.zeros(3, dtype=np.int64)
    cpu.add(rows, np.array([1.0, 2.0, 3.0]), 1.0, time)
    memory.add(rows, np.array([1e9, 2e9, 3e9]), 1.0, time)
    assert cpu.compute_percentiles()[0, 0] == pytest.approx(1.0, rel=0.05)
    assert memory.compute_percentiles()[0, 0] == pytest.approx(2e9, rel=0.05)


def test_histograms_reach_from_a_hundredth_core_to_a_thousand_and_from_10_mb_to_1_tb() -> None:
    """model/aggregations_config.go."""
    for buckets, first, largest in (
        (ExponentialBuckets.create(1000.0, 0.01, 1.05), 0.01, 1000.0),
        (ExponentialBuckets.create(1e12, 1e7, 1.05), 1e7, 1e12),
    ):
        assert len(buckets.starts) in (176, 177)
        assert buckets.starts[1] == pytest.approx(first)
        assert buckets.starts[-2] < largest <= buckets.starts[-1]


def test_containers_of_one_name_share_a_state() -> None:
    """model/aggregate_container_state_test.go, TestAggregateStateByContainerName: app-A twice, app-B, app-C."""
    one = recommender(0, 1, 0, 2)
    feed(one, DAY, np.array([[1000.0, 5000.0, 3000.0, 5000.0]]), np.array([[2e9, 10e9, 4e9, 10e9]]))
    cpu, memory = one.recommend()
    assert cpu.target / 1150 == pytest.approx([3.0, 5.0, 5.0], rel=0.06)
    assert memory.target / 1.15 == pytest.approx([4e9, 10e9, 10e9], rel=0.06)
    assert cpu.lower.tolist() == [25] * 3
    assert cpu.upper.tolist() == [NODE.cpu_millicores] * 3


def test_a_state_is_dropped_after_eight_days() -> None:
    """model/aggregate_container_state_test.go, TestAggregateContainerStateIsExpired."""
    nothing = np.array([[np.nan]])
    one = recommender(0)
    feed(one, DAY, np.array([[1000.0]]), np.array([[1e9]]))
    feed(one, 8 * DAY, nothing, nothing)
    assert [known.tolist() for known in one.is_known()] == [[True], [True]]
    feed(one, 9 * DAY, nothing, nothing)
    assert [known.tolist() for known in one.is_known()] == [[False], [False]]
    assert [one.target.tolist() for one in one.recommend()] == [[25], [250 * MIB]]
    feed(one, 20 * DAY, np.array([[2000.0]]), np.array([[2e9]]))
    assert one.recommend()[0].target == pytest.approx([2300], rel=0.06)


def test_resources_without_samples_are_unknown() -> None:
    one = recommender(0, 1, 2)
    feed(one, DAY, np.array([[np.nan, 1000.0, 0.0]]), np.array([[np.nan, np.nan, 1e9]]))
    assert [known.tolist() for known in one.is_known()] == [[False, True, True], [False, False, True]]


def test_memory_that_was_not_recorded_is_not_known() -> None:
    one = recommender(0)
    one.add(DAY, np.array([[1000.0]], dtype=np.float32), None)
    assert [known.tolist() for known in one.is_known()] == [[True], [False]]


@given(st.lists(st.one_of(st.just(np.nan), st.floats(1, 15_000)), min_size=1, max_size=30))
def test_a_five_minute_sample_counts_as_five_one_minute_samples(used: list[float]) -> None:
    coarse, fine = recommender(0, step_seconds=300), recommender(0, step_seconds=60)
    for place, value in enumerate(used):
        time = DAY + 300 * (place + 1)
        feed(coarse, time, np.array([[value]]), np.array([[1e9]]))
        feed(fine, time, np.full((5, 1), value), np.full((5, 1), 1e9))
    expected, found = (one.recommend()[0] for one in (fine, coarse))
    assert (found.upper == expected.upper).all() and (found.lower == expected.lower).all()
    assert (found.target == expected.target).all()


def test_a_kill_raises_the_target_by_a_fifth_of_the_request() -> None:
    one = recommender(0)
    feed(one, DAY, np.array([[1000.0]]), np.array([[1e9]]))
    one.add_oom_kill(0, 2_000_000_000, DAY)
    assert one.recommend()[1].target == pytest.approx([2_400_000_000 * 1.15], rel=0.06)


def test_a_window_that_begins_with_nothing_notices_higher_use() -> None:
    one = recommender(0)
    feed(one, DAY, np.array([[1000.0], [1000.0]]), np.array([[0.0], [4e9]]))
    assert one.recommend()[1].target == pytest.approx([4e9 * 1.15], rel=0.06)


def test_a_replaced_pod_begins_a_new_window() -> None:
    """The peak before and the peak after then both count, where one window would have kept the higher alone."""
    replaced, kept = recommender(0), recommender(0)
    for one in (replaced, kept):
        feed(one, DAY, np.array([[1000.0]]), np.array([[4e9]]))
    replaced.reset(np.array([0]))
    for one in (replaced, kept):
        feed(one, DAY + 3600, np.array([[1000.0]]), np.array([[1e9]]))
    medians = [one.recommend()[1].lower for one in (kept, replaced)]
    assert medians[0] / medians[1] == pytest.approx([4.0], rel=0.06)
