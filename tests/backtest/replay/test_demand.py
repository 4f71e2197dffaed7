"""What placed containers used, and the sums over their nodes."""

import numpy as np

from cruise.backtest.replay.demand import demand_of
from cruise.backtest.replay.pods import Places
from tests.backtest.replay.policies import places

TWO_NODES = Places(places(2, 0, 3), places(1, 4), places(0, 2), places(0, 0, 1))


def test_samples_are_summed_by_node_and_no_sample_is_no_use():
    rows = np.array([[1, 99, 4, 7], [np.nan, 99, 5, np.nan], [3, 99, np.nan, 9]], dtype=np.float32)
    demand = demand_of(rows, TWO_NODES)
    assert demand.used.tolist() == [[4, 1, 7], [5, 0, 0], [0, 3, 9]]
    assert demand.samples.tolist() == [2, 2, 2]
    assert demand.sums.tolist() == [[5, 7], [5, 0], [3, 9]]
    assert demand.peaks.tolist() == [5, 9]


def test_sums_are_exact_where_single_precision_is_not():
    rows = np.array([[2**30 + 128, 0, 2**24 + 2, 1]], dtype=np.float32)
    assert demand_of(rows, TWO_NODES).sums.tolist() == [[2**30 + 128 + 2**24 + 2, 1]]


def test_nobody_placed_uses_nothing():
    nowhere = Places(places(), places(), places(), places())
    demand = demand_of(np.ones((2, 4), dtype=np.float32), nowhere)
    assert (demand.sums.shape, demand.peaks.size) == ((2, 0), 0)
