"""Expected values are from upstream tests in pkg/recommender/logic: estimator_test.go and recommender_test.go."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cruise.backtest.baselines.vpa_recommender import (
    POD_MINIMUM_BYTES,
    POD_MINIMUM_MILLICORES,
    add_margin,
    apply_confidence,
    compute_confidence,
    convert_to_amount,
    recommend_from_percentiles,
)

LARGEST = 100_000_000_000_000
CPU = np.array([3140])
MEMORY = np.array([3_140_000_000])
NOTHING = np.array([0.0])


def test_no_history_widens_without_bounds() -> None:
    """TestConfidenceMultiplier, TestConfidenceMultiplierNoHistory."""
    assert apply_confidence(CPU, NOTHING, 1.0, 1.0).tolist() == [LARGEST]
    assert apply_confidence(CPU, NOTHING, 1.0, -1.0).tolist() == [0]
    assert apply_confidence(CPU, NOTHING, 0.1, 2.0).tolist() == [LARGEST]


def test_confidence_increases_with_time_and_samples() -> None:
    """TestConfidenceMultiplier: nine samples, two minutes apart."""
    confidence = compute_confidence(np.array([0]), np.array([16 * 60]), np.array([9]))
    assert confidence.tolist() == [0.00625]
    assert apply_confidence(CPU, confidence, 0.1, 2.0).tolist() == [907_460]
    assert apply_confidence(MEMORY, confidence, 0.1, 2.0).tolist() == [907_460_000_000]


def test_amounts_are_cut_off() -> None:
    """TestConfidenceMultiplierWithCustomInterval: 3.14 x 1.2^2 = 4.5216, of which upstream keeps 4.521."""
    assert apply_confidence(CPU, np.array([0.5]), 0.1, 2.0).tolist() == [4521]
    assert apply_confidence(MEMORY, np.array([0.5]), 0.1, 2.0).tolist() == [4_521_600_000]


def test_a_margin_is_added() -> None:
    """TestMarginEstimator."""
    assert add_margin(CPU, 0.1).tolist() == [3454]
    assert add_margin(MEMORY, 0.1).tolist() == [3_454_000_000]


@pytest.mark.parametrize(
    ("used", "smallest"),
    [
        (1, POD_MINIMUM_MILLICORES),
        (1, POD_MINIMUM_MILLICORES // 2),
        (1_000_000, POD_MINIMUM_BYTES),
        (1_000_000, POD_MINIMUM_BYTES // 2),
    ],
)
def test_a_minimum_holds_for_target_and_bounds(used: float, smallest: int) -> None:
    """TestMinResourcesApplied, TestMinResourcesSplitAcrossContainers: the smallest is the container's part."""
    found = recommend_from_percentiles(np.full((3, 1), float(used)), np.array([10.0]), smallest, LARGEST)
    assert [*found.lower, *found.target, *found.upper] == [smallest] * 3


def test_the_minimum_is_counted_in_mebibytes() -> None:
    """TestMinResourcesApplied: 250 MB are 250 x 1024 x 1024 bytes."""
    assert (POD_MINIMUM_MILLICORES, POD_MINIMUM_BYTES) == (25, 262_144_000)


def test_a_day_of_history_doubles_the_upper_bound() -> None:
    """recommender.go: the multipliers that its comment states for 12 h, a day and a week; 5, 30 and 60 min below."""
    used = np.full((3, 6), 100_000.0)
    history = np.array([0.5, 1.0, 7.0, 5 / 1440, 30 / 1440, 60 / 1440])
    found = recommend_from_percentiles(used, history, 0, LARGEST)
    assert found.target.tolist() == [115_000] * 6
    assert found.upper[:3] / 115_000 == pytest.approx([3, 2, 1.14], rel=0.01)
    assert found.lower[3:] / 115_000 == pytest.approx([0.6, 0.9, 0.95], abs=0.011)


def test_without_samples_the_minimum_applies() -> None:
    found = recommend_from_percentiles(np.zeros((3, 1)), NOTHING, 25, LARGEST)
    assert [*found.lower, *found.target, *found.upper] == [25] * 3


def test_no_more_is_recommended_than_may_be() -> None:
    found = recommend_from_percentiles(np.full((3, 1), 30_000.0), np.array([1.0]), 25, 16_000)
    assert [*found.lower, *found.target, *found.upper] == [16_000] * 3


@given(
    st.lists(st.floats(0, 1e13), min_size=3, max_size=3).map(sorted),
    st.floats(0, 100),
    st.integers(0, 10**9),
    st.integers(10**9, 10**14),
)
def test_the_target_is_within_its_bounds(used: list[float], days: float, smallest: int, largest: int) -> None:
    found = recommend_from_percentiles(np.array(used).reshape(3, 1), np.array([days]), smallest, largest)
    assert smallest <= found.lower[0] <= found.target[0] <= found.upper[0] <= largest


def test_nan_becomes_zero() -> None:
    assert convert_to_amount(np.array([np.nan, -1.0, np.inf, 2.9])).tolist() == [0, 0, LARGEST, 2]
