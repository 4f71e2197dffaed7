from itertools import product

import numpy as np
import pytest

from cruise.decisions.packing.kernels.listing import enumerate_fillings
from cruise.decisions.packing.kernels.pricing import EXACT, fill_all
from cruise.decisions.packing.kernels.shelf import shelf_of


def draw(seed: int):
    draws = np.random.default_rng(seed)
    classes, resources = int(draws.integers(1, 6)), int(draws.integers(1, 4))
    demands = draws.integers(0, 6, (classes, resources))
    demands[:, 0] += 1
    room = draws.integers(4, 14, (1, resources))
    counts = draws.integers(1, 4, classes)
    limits = np.minimum(draws.integers(0, 4, (1, classes)), counts)
    running = np.minimum(draws.integers(0, 2, (1, classes)), limits)
    value, bonus = draws.uniform(0, 1, classes), draws.uniform(0, 0.5, classes) * draws.integers(0, 2, classes)
    return demands, room, counts, limits, running, value, bonus


def every_filling(demands, room, counts, limits, running, value, bonus):
    for copies in product(*(range(limit + 1) for limit in limits[0])):
        x = np.array(copies)
        stays = np.minimum(x, running[0])
        others = np.where(bonus > 0, counts - running[0], counts)
        if (x @ demands <= room[0]).all() and (x - np.where(bonus > 0, stays, 0) <= others).all():
            yield x, float(x @ value + stays @ bonus)


@pytest.mark.parametrize("seed", range(150))
def test_pricing_finds_the_best_filling(seed):
    demands, room, counts, limits, running, value, bonus = drawn = draw(seed)
    best = max(worth for _, worth in every_filling(*drawn))
    shelf = shelf_of(demands, demands[:0], room, np.zeros_like(room), limits, running, 4)
    bounds = np.zeros(1)
    found = fill_all(shelf, value, bonus, counts, np.ones(1, np.int64), np.zeros(1), bounds, 4, 10**6, np.inf)
    assert bounds[0] == pytest.approx(best)
    worths = [x @ value + np.minimum(x, running[0]) @ bonus for x in shelf.found[:found]]
    assert max(worths, default=0.0) == pytest.approx(best)


@pytest.mark.parametrize("seed", range(150))
def test_a_search_that_stops_early_still_bounds_the_best_filling(seed):
    demands, room, counts, limits, running, value, bonus = drawn = draw(seed)
    best = max(worth for _, worth in every_filling(*drawn))
    shelf = shelf_of(demands, demands[:0], room, np.zeros_like(room), limits, running, 4)
    bounds = np.zeros(1)
    fill_all(shelf, value, bonus, counts, np.ones(1, np.int64), np.zeros(1), bounds, 4, 1, np.inf)
    assert bounds[0] >= best - 1e-9


@pytest.mark.parametrize("seed", range(150))
def test_listing_covers_every_filling_worth_enough(seed):
    demands, room, counts, limits, running, value, bonus = drawn = draw(seed)
    worthy = [(x, worth) for x, worth in every_filling(*drawn)]
    least = 0.7 * max(worth for _, worth in worthy)
    shelf = shelf_of(demands, demands[:0], room, np.zeros_like(room), limits, running, 5000)
    written, outcome = enumerate_fillings(shelf, 0, value, bonus, counts, least, 0, 10**7, np.inf)
    assert outcome == EXACT
    for x, worth in worthy:
        if worth >= least + 1e-9:
            assert (shelf.found[:written] >= x).all(axis=1).any()
