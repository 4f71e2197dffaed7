from itertools import product
from typing import NamedTuple

import numpy as np
import pytest

from cruise.packer.kernels.knapsack import list_patterns_of_node
from cruise.packer.kernels.knapsack_items import create_knapsack_items
from cruise.packer.kernels.same_node_affinity_patterns import build_group_copy_bounds, price_patterns


class Node(NamedTuple):
    """One node as knapsack items, and the values of copies."""

    demands: np.ndarray
    headroom: np.ndarray
    room: np.ndarray
    floor: np.ndarray
    limits: np.ndarray
    running: np.ndarray
    counts: np.ndarray
    value: np.ndarray
    bonus: np.ndarray

    def shelf(self, patterns: int):
        return create_knapsack_items(*self[:6], patterns)

    def filled(self, shelf, most_nodes: int) -> tuple[int, float]:
        """How many fillings are found, and the bound of any."""
        classes, bounds = len(self.demands), np.zeros(1)
        none = np.zeros(0, np.int64), np.zeros((0, classes), np.bool_), np.zeros((0, 1), np.int64)
        prices = self.value[None, :], self.bonus, self.counts, np.ones(1, np.int64), np.zeros(1), bounds
        return price_patterns(shelf, build_group_copy_bounds(shelf, *none), *prices, 4, most_nodes, np.inf), float(
            bounds[0]
        )

    def worth(self, x) -> float:
        return float(x @ self.value + np.minimum(x, self.running[0]) @ self.bonus)


def draw(seed: int) -> Node:
    draws = np.random.default_rng(seed)
    classes, resources = int(draws.integers(1, 6)), int(draws.integers(1, 4))
    demands = draws.integers(0, 6, (classes, resources))
    demands[:, 0] += 1
    room = draws.integers(4, 14, (1, resources))
    counts = draws.integers(1, 4, classes)
    limits = np.minimum(draws.integers(0, 4, (1, classes)), counts)
    running = np.minimum(draws.integers(0, 2, (1, classes)), limits)
    value, bonus = draws.uniform(0, 1, classes), draws.uniform(0, 0.5, classes) * draws.integers(0, 2, classes)
    headroom, floor = draws.integers(0, 5, (classes, resources)), draws.integers(0, 3, (1, resources))
    if seed % 2:
        headroom, floor = headroom[:0], np.zeros_like(floor)
    return Node(demands, headroom, room, floor, limits, running, counts, value, bonus)


def every_filling(node: Node):
    for copies in product(*(range(limit + 1) for limit in node.limits[0])):
        x = np.array(copies)
        stays = np.minimum(x, node.running[0])
        others = np.where(node.bonus > 0, node.counts - node.running[0], node.counts)
        shared = node.floor[0]
        if len(node.headroom):
            shared = np.maximum(shared, node.headroom[x > 0].max(axis=0, initial=0))
        fits = (x @ node.demands + shared <= node.room[0]).all()
        if fits and (x - np.where(node.bonus > 0, stays, 0) <= others).all():
            yield x


def test_pricing_finds_the_best_filling():
    for seed in range(200):
        node = draw(seed)
        best = max((node.worth(x) for x in every_filling(node)), default=0.0)
        shelf = node.shelf(8)
        found, bound = node.filled(shelf, 10**6)
        assert bound == pytest.approx(best), seed
        assert max((node.worth(x) for x in shelf.found[:found]), default=0.0) == pytest.approx(best), seed


def test_a_search_that_stops_early_still_bounds_the_best_filling():
    for seed in range(200):
        node = draw(seed)
        best = max((node.worth(x) for x in every_filling(node)), default=0.0)
        assert node.filled(node.shelf(8), 1)[1] >= best - 1e-9, seed


def test_listing_covers_every_filling_worth_enough():
    for seed in range(200):
        node = draw(seed)
        worthy = list(every_filling(node))
        least = 0.7 * max((node.worth(x) for x in worthy), default=0.0)
        shelf = node.shelf(5000)
        listed = list_patterns_of_node(shelf, 0, node.value, node.bonus, node.counts, least, 0, 10**7)
        assert listed >= 0, seed
        fillings = shelf.found[:listed]
        assert {tuple(x) for x in fillings.tolist()} <= {tuple(x) for x in np.array(worthy).tolist()}, seed
        for x in worthy:
            if node.worth(x) >= least + 1e-9:
                assert (fillings >= x).all(axis=1).any(), seed


def test_listing_ends_when_space_or_time_runs_out():
    node = draw(4)
    arguments = (0, node.value, node.bonus, node.counts, 0.0, 0)
    assert list_patterns_of_node(node.shelf(5000), *arguments, 10**7) > 1
    assert list_patterns_of_node(node.shelf(1), *arguments, 10**7) == -1
    assert list_patterns_of_node(node.shelf(5000), *arguments, 0) == -1
