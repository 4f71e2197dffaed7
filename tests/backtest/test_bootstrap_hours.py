"""Hours drawn in blocks, and how long blocks are for what a series remembers."""

import numpy as np
import pytest

from cruise.backtest.comparison import bootstrap_hours, compute_block_length, compute_small_sample_factor


def remembering(hours, share, seed=0):
    noise = np.random.default_rng(seed).normal(size=hours)
    found = np.zeros(hours)
    for at in range(1, hours):
        found[at] = share * found[at - 1] + noise[at]
    return found


def test_as_many_hours_are_drawn_as_wanted():
    weights = bootstrap_hours(np.random.default_rng(0), 10, 7, 3, 50)
    assert weights.shape == (50, 10)
    assert (weights.sum(axis=1) == 7).all()


def test_a_block_continues_at_the_start():
    weights = bootstrap_hours(np.random.default_rng(0), 5, 3, 3, 200)
    drawn = {tuple(np.flatnonzero(row).tolist()) for row in weights}
    assert drawn == {(0, 1, 2), (1, 2, 3), (2, 3, 4), (0, 3, 4), (0, 1, 4)}


def test_every_hour_counts_the_same_on_average():
    weights = bootstrap_hours(np.random.default_rng(0), 12, 12, 4, 20_000)
    assert weights.mean(axis=0) == pytest.approx(np.ones(12), abs=0.03)


def test_what_remembers_longer_has_longer_blocks():
    lengths = [compute_block_length(remembering(720, share)) for share in (0.0, 0.5, 0.9)]
    assert lengths == sorted(lengths)
    assert lengths[0] <= 3
    assert lengths[2] >= 10


def test_three_blocks_are_left_at_least():
    assert compute_block_length(np.arange(30.0)) <= 10
    assert compute_block_length(np.arange(4.0)) == 1


def test_what_never_changes_needs_no_blocks():
    assert compute_block_length(np.zeros(100)) == 1
    assert compute_block_length(np.full(100, 0.1)) == 1


@pytest.mark.parametrize(("blocks", "quantile"), [(3, 4.303), (5, 2.776), (11, 2.228), (31, 2.042)])
def test_few_blocks_widen_by_students_t(blocks, quantile):
    assert compute_small_sample_factor(blocks, 0.95) * 1.959964 == pytest.approx(quantile, rel=0.04)


def test_fewer_than_three_blocks_are_taken_as_three():
    assert compute_small_sample_factor(1, 0.95) == compute_small_sample_factor(3, 0.95)
