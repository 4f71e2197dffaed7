"""What placed containers used, and the sums over their nodes."""

import numpy as np

from cruise.backtest.replay.nodes import PlacedContainers
from cruise.backtest.replay.scoring import compute_interval_usage
from tests.backtest.replay.policies import get_placements

TWO_NODES = PlacedContainers(
    get_placements(2, 0, 3), get_placements(1, 4), get_placements(0, 2), get_placements(0, 0, 1)
)


def test_samples_are_summed_by_node_and_no_sample_is_no_use():
    rows = np.array([[1, 99, 4, 7], [np.nan, 99, 5, np.nan], [3, 99, np.nan, 9]], dtype=np.float32)
    demand = compute_interval_usage(rows, TWO_NODES)
    assert demand.used.tolist() == [[4, 1, 7], [5, 0, 0], [0, 3, 9]]
    assert demand.samples.tolist() == [2, 2, 2]
    assert demand.node_sums.tolist() == [[5, 7], [5, 0], [3, 9]]
    assert demand.node_peaks.tolist() == [5, 9]


def test_sums_are_exact_where_single_precision_is_not():
    rows = np.array([[2**30 + 128, 0, 2**24 + 2, 1]], dtype=np.float32)
    assert compute_interval_usage(rows, TWO_NODES).node_sums.tolist() == [[2**30 + 128 + 2**24 + 2, 1]]


def test_no_placed_container_means_no_usage():
    nowhere = PlacedContainers(get_placements(), get_placements(), get_placements(), get_placements())
    demand = compute_interval_usage(np.ones((2, 4), dtype=np.float32), nowhere)
    assert (demand.node_sums.shape, demand.node_peaks.size) == ((2, 0), 0)
