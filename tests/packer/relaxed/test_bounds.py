"""Lagrangian bounds never exceed what some assignment reaches, and are computed in integers."""

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.large_clusters import LargeClusterShape, draw_large_cluster
from cruise.packer.answer import compute_counting_bound, compute_figures
from cruise.packer.budget import BudgetMeter, ThreadPool
from cruise.packer.problem import EvictionLimit, PackingObjective, PackingProblem, PlacementRules, count_copies
from cruise.packer.relaxed.bounds import RelaxedBounds, split_prices_by_size
from tests.packer.every_assignment import every_assignment, is_valid, keys_of
from tests.packer.problems import WITHOUT_FLEET, draw_problem
from tests.tiers import examples


def _meter():
    return BudgetMeter(math.inf, 3e7)


@examples(60)
@given(st.integers(0, 2**32), st.sampled_from(WITHOUT_FLEET))
def test_no_assignment_exceeds_a_bound_with_an_equally_good_one(seed, objective):
    problem = replace(draw_problem(seed), objective=objective)
    running = count_copies(problem, problem.pod_node)
    sound = (some[is_valid(problem, running, some)] for some in every_assignment(problem))
    keys = [tuple(key) for some in sound for key in keys_of(problem, some).tolist()]
    counted, bounds = compute_counting_bound(problem), RelaxedBounds(problem)
    for key in {max(keys), min(keys), compute_figures(problem, problem.pod_node).get_key(objective)}:
        found = bounds.compute(key, counted, _meter())
        assert all(bound <= most for bound, most in zip(found, counted, strict=True))
        for entry, bound in enumerate(found):
            beside = [other[entry] for other in keys if np.greater_equal(other[:entry], key[:entry]).all()]
            assert max(beside, default=bound) <= bound


@examples(60)
@given(st.integers(0, 2**32), st.sampled_from(WITHOUT_FLEET))
def test_no_assignment_within_limits_of_evictions_surpasses_a_bound(seed, objective):
    problem = _limited(replace(draw_problem(seed), objective=objective), seed)
    running = count_copies(problem, problem.pod_node)
    sound = (some[is_valid(problem, running, some)] for some in every_assignment(problem))
    keys = [tuple(key) for some in sound for key in keys_of(problem, some[_keeps_limits(problem, some)]).tolist()]
    counted, bounds = compute_counting_bound(problem), RelaxedBounds(problem)
    for key in {max(keys), compute_figures(problem, problem.pod_node).get_key(objective)}:
        for entry, bound in enumerate(bounds.compute(key, counted, _meter())):
            beside = [other[entry] for other in keys if np.greater_equal(other[:entry], key[:entry]).all()]
            assert max(beside, default=bound) <= bound


@pytest.mark.parametrize("count", [2, 3])
def test_threads_change_no_bound(count):
    problem = draw_large_cluster(LargeClusterShape(40), 1)
    evicted = int((problem.pod_node < 0).sum()) * 4
    with ThreadPoolExecutor(count) as pool:
        one, several = RelaxedBounds(problem), RelaxedBounds(problem, ThreadPool(count, pool.map))
        least = [
            bounds.compute_min_evicted((problem.pod_count,), evicted, BudgetMeter(math.inf, 3e8))
            for bounds in (one, several)
        ]
    assert least[0] == least[1] > 0
    assert (one.node_changes.share == several.node_changes.share).all()


def _limited(problem, seed):
    source = np.random.default_rng(seed)
    limits = tuple(
        EvictionLimit(f"limit {n}", np.flatnonzero(source.random(problem.class_count) < 0.6), int(source.integers(3)))
        for n in range(3)
    )
    return replace(problem, rules=replace(problem.rules, eviction_limits=limits))


def _keeps_limits(problem, some):
    running = count_copies(problem, problem.pod_node)
    gone = np.maximum(running - some, 0).sum(axis=-1)
    return np.all([gone[:, rule.members].sum(axis=1) <= rule.allowed for rule in problem.rules.eviction_limits], axis=0)


def test_what_may_leave_once_leaves_for_one_alone():
    # Large pods fit next to a large one, of which one may be evicted, or two small ones; those fit elsewhere.
    problem = PackingProblem(
        resources=("cpu",),
        capacities=np.array([[2], [2], [2], [2], [9]]),
        demands=np.array([[2], [1], [2]]),
        headroom=np.zeros((3, 1), dtype=np.int64),
        priorities=np.zeros(3, dtype=np.int64),
        movable=np.array([True, True, False]),
        preemptible=np.zeros(3, dtype=np.bool_),
        preempt=np.ones(3, dtype=np.bool_),
        weights=np.full(3, 2, dtype=np.int64),
        max_on_node=np.full(3, 9, dtype=np.int64),
        node_mask_of_class=np.array([0, 0, 1]),
        allowed_nodes=np.array([[True] * 5, [True] * 4 + [False]]),
        pod_class=np.array([0, 0, 1, 1, 1, 1, 2, 2]),
        pod_node=np.array([0, 1, 2, 2, 3, 3, -1, -1]),
        rules=PlacementRules(
            np.zeros((0, 5), dtype=np.int64), eviction_limits=(EvictionLimit("large", np.array([0]), 1),)
        ),
        objective=PackingObjective.OPERATOR,
    )
    assert RelaxedBounds(problem).compute_min_evicted((8,), 9, _meter()) == 3


def test_as_few_evictions_as_are_found_among_200_nodes_are_nearly_proved():
    problem = draw_large_cluster(LargeClusterShape(200), 1)
    placed = (problem.pod_count,)
    # A plan with 42 is known; counting alone gives 17.
    assert RelaxedBounds(problem).compute_min_evicted(placed, 42, BudgetMeter(math.inf, 4e9)) >= 40


@examples(20)
@given(st.integers(0, 2**32))
def test_a_price_by_size_is_a_blend_of_corners_lower_for_small_pods_and_equal_for_equal_sizes(seed):
    problem = draw_problem(seed)
    sizes = split_prices_by_size(problem)
    assert (sizes >= 0.0).all()
    # Three nets, in each of which a class is one whole or less.
    assert (sizes.sum(axis=1) <= 3.0 + 1e-9).all()
    equal = (problem.demands[:, None] == problem.demands[None]).all(axis=2)
    assert (sizes[:, None] == sizes[None]).all(axis=2)[equal].all()
