from itertools import product

import numpy as np

from cruise.packer.dense.classing import instance_of
from cruise.packer.dense.entries import entries_of, key_of, most_possible
from cruise.packer.dense.residual import residual_of
from tests.packer.dense.instances import draw_tiny
from tests.packer.problems import draw_problem


def fits(demands, headroom, room, floor, x) -> bool:
    shared = floor
    if len(headroom):
        shared = np.maximum(floor, headroom[x > 0].max(axis=0, initial=0))
    return bool((x @ demands + shared <= room).all())


def test_resources_that_are_left_out_forbid_nothing():
    """Each filling of a node that fits what is kept of the resources fits all of them."""
    for seed in range(150):
        instance = instance_of(draw_problem(seed))
        residual = residual_of(instance)
        nailed = residual.nailed
        for node in range(instance.node_count):
            stuck = np.flatnonzero(nailed[:, node])
            floor = instance.headroom[stuck].max(axis=0, initial=0)
            room = np.maximum(instance.capacities[node] - nailed[:, node] @ instance.demands, floor)
            demands, headroom = instance.demands[residual.origin], instance.headroom[residual.origin]
            for copies in product(*(range(int(limit) + 1) for limit in residual.limits[:, node])):
                x = np.array(copies, dtype=np.int64)
                kept = fits(residual.demands, residual.headroom, residual.room[node], residual.floor[node], x)
                assert kept == fits(demands, headroom, room, floor, x), seed


def test_a_vector_of_a_part_is_that_of_the_whole_plan():
    for seed in range(60):
        instance = instance_of(draw_problem(seed))
        for nailed in (frozenset[int](), frozenset({0})):
            residual = residual_of(instance, nailed)
            part = residual.part(instance.running)
            assert (residual.whole(part) == instance.running).all(), seed
            assert tuple(residual.vector(part).tolist()) == key_of(instance, instance.running), seed
            assert residual.keeps(part), seed


def test_entries_come_tier_by_tier_or_stays_last():
    instance = draw_tiny(3)
    entries, tiers = entries_of(instance), len(instance.tiers())
    assert entries.stays == (False, True) * tiers
    assert entries.blocks == tuple((2 * tier, 2 * tier + 1) for tier in range(tiers))
    problem = draw_problem(next(s for s in range(99) if draw_problem(s).objective == "operator"))
    last = instance_of(problem)
    assert entries_of(last).stays == (False,) * len(last.tiers()) + (True,)
    assert entries_of(last).blocks[-1] == (len(last.tiers()) - 1, len(last.tiers()))
    assert key_of(last, last.running) <= tuple(most_possible(last).tolist())
