"""Filters and score as array functions."""

import numpy as np
import pytest

from cruise.domain.resources import MEBIBYTE, Resources
from cruise.simulation.cluster.kube_scheduler import (
    find_nodes_with_capacity,
    get_scored_requests,
    score_least_allocated,
)


@pytest.mark.parametrize(
    ("need", "wanted"),
    [
        (Resources(500, 100), [True, False, False, False]),
        (Resources(0, 100), [True, False, True, False]),
        (Resources(500, 0), [True, True, False, False]),
        (Resources(0, 0), [True, True, True, False]),
    ],
)
def test_a_pod_without_a_request_fits_despite_a_shortage(need: Resources, wanted: list[bool]):
    pods_left = np.array([1, 1, 1, 0])
    cpu, memory = np.array([500, 900, -100, 900]), np.array([100, 99, 900, 900])
    assert find_nodes_with_capacity(pods_left, cpu, memory, need).tolist() == wanted


def test_the_score_is_the_mean_free_share_and_never_negative():
    scores = score_least_allocated(1000, np.array([0, 250, 999, 2000]), 4000, np.array([0, 1000, 4000, 4000]))
    assert scores.tolist() == [100, 75, 0, 0]


def test_scores_count_a_default_for_missing_requests():
    assert get_scored_requests(Resources()) == Resources(100, 200 * MEBIBYTE)
    assert get_scored_requests(Resources(5, 7)) == Resources(5, 7)
