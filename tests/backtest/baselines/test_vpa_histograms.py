"""Expected values are from the upstream tests that each test names; the rest are invariants."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cruise.backtest.baselines.vpa_recommender import DecayingHistograms, ExponentialBuckets
from cruise.domain.arrays import Float64Array, Int64Array

HOUR = 3600
DAY = 86400
START = 1_234_567_890
EPSILON = 1e-15
EVERY_TENTH = tuple(tenth / 10 for tenth in range(11))


@dataclass(frozen=True, slots=True)
class LinearBuckets:
    """Buckets of one size, which only upstream's tests use."""

    starts: Float64Array
    size: float

    def find(self, values: Float64Array) -> Int64Array:
        return np.clip((values / self.size).astype(np.int64), 0, len(self.starts) - 1)


TENTHS = LinearBuckets(np.arange(11) / 10, 0.1)
UNITS = LinearBuckets(np.arange(11, dtype=np.float64), 1.0)


def linear(shares: tuple[float, ...], buckets: LinearBuckets = UNITS) -> DecayingHistograms:
    return DecayingHistograms(1, buckets, shares, HOUR, EPSILON)


def add(histograms: DecayingHistograms, value: float, weight: float, time: int, row: int = 0) -> None:
    histograms.add(np.array([row]), np.array([value]), weight, np.array([time]))


def test_an_exponential_scheme_has_upstreams_buckets() -> None:
    """histogram_options_test.go, TestExponentialHistogramOptions."""
    buckets = ExponentialBuckets.create(500.0, 40.0, 1.5)
    assert buckets.starts.tolist() == [0.0, 40.0, 100.0, 190.0, 325.0, 527.5]
    assert buckets.find(np.array([-1.0, 39.99, 40.0, 100.0, 900.0])).tolist() == [0, 0, 1, 2, 5]


def test_an_empty_histogram_has_percentiles_of_zero() -> None:
    """histogram_test.go, TestPercentilesEmptyHistogram; decaying_histogram_test.go, …EmptyDecayingHistogram."""
    assert linear((-0.5, 0.0, 0.5, 1.0, 1.5)).compute_percentiles().tolist() == [[0.0]] * 5


@pytest.mark.parametrize("time", [0, START])
def test_percentiles_are_the_ends_of_buckets(time: int) -> None:
    """histogram_test.go, TestPercentiles; decaying_histogram_test.go, TestNoDecay."""
    histograms = linear(EVERY_TENTH)
    for value in range(1, 5):
        add(histograms, value, value, time)
    assert histograms.compute_percentiles()[:, 0].tolist() == [2, 2, 3, 3, 4, 4, 4, 5, 5, 5, 5]


def test_shares_out_of_bounds_give_the_extremes() -> None:
    """histogram_test.go, TestPercentileOutOfBounds."""
    histograms = linear((-0.1, 1.1), TENTHS)
    add(histograms, 0.1, 0.1, 0)
    add(histograms, 0.2, 0.2, 0)
    assert histograms.compute_percentiles()[:, 0] == pytest.approx([0.2, 0.3], rel=EPSILON)
    add(histograms, 0.0, 0.1, 0)
    add(histograms, 1.0, 0.2, 0)
    assert histograms.compute_percentiles()[:, 0] == pytest.approx([0.1, 1.0], rel=EPSILON)


def test_a_bucket_below_epsilon_is_empty() -> None:
    """histogram_test.go, TestEmptyHistogram."""
    histograms = linear((0.5,), TENTHS)
    one, value, time = np.array([0]), np.array([0.1]), np.array([0])
    assert histograms.empty.tolist() == [True]
    histograms.add(one, value, EPSILON * 2.5, time)
    assert histograms.empty.tolist() == [False]
    histograms.subtract(one, value, EPSILON, time)
    assert histograms.empty.tolist() == [False]
    histograms.subtract(one, value, EPSILON, time)
    assert histograms.empty.tolist() == [True]
    assert histograms.compute_percentiles().tolist() == [[0.0]]


def test_a_weight_below_epsilon_does_not_change_a_histogram() -> None:
    """histogram_test.go, TestNonEmptyOnEpsilonAddition."""
    histograms = linear((0.0, 1.0), TENTHS)
    add(histograms, 9.9, EPSILON * 3, 0)
    add(histograms, 0.1, EPSILON * 0.3, 0)
    add(histograms, 999.9, EPSILON * 0.3, 0)
    assert histograms.empty.tolist() == [False]
    assert histograms.compute_percentiles()[:, 0] == pytest.approx([1.0, 1.0])


def test_twenty_half_lives_outweigh_a_thousandfold() -> None:
    """decaying_histogram_test.go, TestSimpleDecay."""
    histograms = linear((0.999, 1.0))
    add(histograms, 2, 1000, START)
    add(histograms, 1, 1, START + 20 * HOUR)
    assert histograms.compute_percentiles()[:, 0].tolist() == [2, 3]


def test_samples_older_than_a_hundred_half_lives_have_no_weight() -> None:
    """decaying_histogram_test.go, TestLongtermDecay."""
    histograms = linear((1.0,))
    add(histograms, 2, 1, START)
    add(histograms, 1, 1, START + 101 * HOUR)
    assert histograms.compute_percentiles().tolist() == [[2]]


def test_percentiles_of_samples_that_decay() -> None:
    """decaying_histogram_test.go, TestDecayingHistogramPercentiles."""
    histograms = linear((0.00, 0.02, 0.03, 0.10, 0.11, 0.34, 0.35, 1.00))
    for value in range(1, 5):
        add(histograms, value, value, START + (value - 1) * HOUR)
    assert histograms.compute_percentiles()[:, 0].tolist() == [2, 2, 3, 3, 4, 4, 5, 5]


def test_one_row_takes_samples_of_several_containers_as_upstream_merges_them() -> None:
    """decaying_histogram_test.go, TestDecayingHistogramMerge: the order of samples does not matter."""
    shares = tuple(share / 50 for share in range(51))
    one_by_one, together = linear(shares), linear(shares)
    samples = [(1, START), (2, START + HOUR), (2, START + 2 * HOUR), (3, START + HOUR)]
    for value, time in samples:
        add(one_by_one, value, 1, time)
    values = np.array([value for value, _ in reversed(samples)], dtype=np.float64)
    together.add(np.zeros(4, dtype=np.int64), values, 1, np.array([time for _, time in reversed(samples)]))
    assert together.compute_percentiles().tolist() == one_by_one.compute_percentiles().tolist()


Sample = tuple[int, float, int]


@given(
    st.lists(st.tuples(st.integers(0, 2), st.floats(0, 30), st.integers(0, 90 * DAY)), max_size=40),
    st.lists(st.integers(1, 6), max_size=40),
)
def test_rows_do_not_know_of_each_other(samples: list[Sample], batches: list[int]) -> None:
    """A matrix of histograms fed in batches answers as histograms on their own that are fed one by one."""
    buckets = ExponentialBuckets.create(1000.0, 0.01, 1.05)
    shares = (0.5031, 0.9037, 0.9511)  # no share at which equal weights tie, and rounding decides
    samples.sort(key=lambda sample: sample[2])
    matrix = DecayingHistograms(3, buckets, shares, DAY, 1e-4)
    alone = [DecayingHistograms(1, buckets, shares, DAY, 1e-4) for _ in range(3)]
    rest = samples
    for size in [*batches, len(samples)]:
        batch, rest = rest[:size], rest[size:]
        if batch:
            rows, values, times = (np.array(column) for column in zip(*batch, strict=True))
            matrix.add(rows, values.astype(np.float64), 0.1, times)
            matrix.compute_percentiles()
    for row, value, time in samples:
        add(alone[row], value, 0.1, time)
    expected = np.concatenate([one.compute_percentiles() for one in alone], axis=1)
    assert matrix.compute_percentiles().tolist() == expected.tolist()


@given(st.lists(st.floats(0, 900), min_size=1, max_size=30), st.floats(0, 1))
def test_a_percentile_is_not_below_the_samples_it_covers(values: list[float], share: float) -> None:
    buckets = ExponentialBuckets.create(1000.0, 0.01, 1.05)
    histograms = DecayingHistograms(1, buckets, (share,), DAY, 1e-4)
    histograms.add(np.zeros(len(values), dtype=np.int64), np.array(values), 0.1, np.full(len(values), START))
    found = histograms.compute_percentiles()[0, 0]
    covered = sorted(values)[max(0, int(np.ceil(share * len(values) - 1e-6)) - 1)]
    assert covered <= found * (1 + 1e-9)
    assert found <= max(covered, 0.01) * 1.05 + 0.01


@given(st.lists(st.tuples(st.floats(0, 900), st.integers(0, 8 * DAY)), min_size=1, max_size=20))
def test_subtracting_samples_undoes_adding_them(samples: list[tuple[float, int]]) -> None:
    histograms = DecayingHistograms(2, ExponentialBuckets.create(1000.0, 0.01, 1.05), (0.1, 0.5, 0.9), DAY, 1e-4)
    values, times = np.array([value for value, _ in samples]), np.array([time for _, time in samples])
    rows = np.zeros(len(samples), dtype=np.int64)
    histograms.add(rows, values, 1.0, times)
    histograms.subtract(rows, values, 1.0, times)
    assert histograms.empty.all()
    assert not histograms.compute_percentiles().any()
    histograms.clear(np.array([0]))
    add(histograms, 5.0, 1.0, DAY)
    assert (histograms.compute_percentiles()[:, 0] >= 5.0).all()
