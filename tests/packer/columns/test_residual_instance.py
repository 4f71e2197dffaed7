from dataclasses import replace
from itertools import product

import numpy as np

from cruise.packer.columns.instance import (
    build_instance,
    build_objective_entries,
    find_complete_levels,
    fix_running_copies,
)
from tests.packer.columns.instances import draw_tiny_instance
from tests.packer.problems import draw_problem


def fits(demands, headroom, room, floor, x) -> bool:
    shared = floor
    if len(headroom):
        shared = np.maximum(floor, headroom[x > 0].max(axis=0, initial=0))
    return bool((x @ demands + shared <= room).all())


def test_resources_that_are_left_out_forbid_nothing():
    """Each filling of a node that fits what is kept of the resources fits all of them."""
    for seed in range(150):
        instance = build_instance(draw_problem(seed))
        residual = fix_running_copies(instance)
        nailed = residual.fixed
        for node in range(instance.node_count):
            stuck = np.flatnonzero(nailed[:, node])
            floor = instance.headroom[stuck].max(axis=0, initial=0)
            room = np.maximum(instance.capacities[node] - nailed[:, node] @ instance.demands, floor)
            demands, headroom = instance.demands[residual.origin], instance.headroom[residual.origin]
            for copies in product(*(range(int(limit) + 1) for limit in residual.limits[:, node])):
                x = np.array(copies, dtype=np.int64)
                kept = fits(residual.demands, residual.headroom, residual.free_capacity[node], residual.floor[node], x)
                assert kept == fits(demands, headroom, room, floor, x), seed


def test_a_vector_of_a_part_is_that_of_the_whole_plan():
    for seed in range(60):
        instance = build_instance(draw_problem(seed))
        for nailed in (frozenset[int](), frozenset({0})):
            residual = fix_running_copies(instance, nailed)
            part = residual.to_residual(instance.running)
            assert (residual.to_whole(part) == instance.running).all(), seed
            whole = build_objective_entries(instance).compute_vector(instance.running, instance.running)
            assert (residual.compute_vector(part) == whole).all(), seed


def test_entries_are_ordered_by_tier():
    instance = draw_tiny_instance(3)
    assert build_objective_entries(instance).stays == (False, True) * len(instance.list_priorities())
    problem = draw_problem(next(s for s in range(99) if draw_problem(s).objective == "operator"))
    last = build_instance(problem)
    assert build_objective_entries(last).stays == (False,) * len(last.list_priorities()) + (True,)


def test_priorities_are_complete_once_all_their_running_pods_must_stay():
    instance = replace(draw_tiny_instance(3), running=np.ones_like(draw_tiny_instance(3).running))
    tiers = range(len(instance.list_priorities()))
    for tier in tiers:
        assert find_complete_levels(instance, instance.running, 2 * tier) == frozenset(range(tier))
        assert find_complete_levels(instance, instance.running, 2 * tier + 1) == frozenset(range(tier))
        assert find_complete_levels(instance, 0 * instance.running, 2 * tier + 1) == frozenset()
    assert find_complete_levels(replace(instance, stays_last=True), instance.running, len(tiers)) == frozenset()
