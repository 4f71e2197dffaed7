from dataclasses import replace
from itertools import product

import numpy as np

from cruise.packer.dense.classing import instance_of
from cruise.packer.dense.entries import entries_of, settled
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
            whole = entries_of(instance).vector(instance.running, instance.running)
            assert (residual.vector(part) == whole).all(), seed


def test_entries_come_tier_by_tier_or_stays_last():
    instance = draw_tiny(3)
    assert entries_of(instance).stays == (False, True) * len(instance.tiers())
    problem = draw_problem(next(s for s in range(99) if draw_problem(s).objective == "operator"))
    last = instance_of(problem)
    assert entries_of(last).stays == (False,) * len(last.tiers()) + (True,)


def test_tiers_are_settled_once_all_that_runs_of_them_has_to_stay():
    instance = replace(draw_tiny(3), running=np.ones_like(draw_tiny(3).running))
    tiers = range(len(instance.tiers()))
    for tier in tiers:
        assert settled(instance, instance.running, 2 * tier) == frozenset(range(tier))
        assert settled(instance, instance.running, 2 * tier + 1) == frozenset(range(tier))
        assert settled(instance, 0 * instance.running, 2 * tier + 1) == frozenset()
    assert settled(replace(instance, stays_last=True), instance.running, len(tiers)) == frozenset()
