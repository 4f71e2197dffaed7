"""Ejection search: valid, never worse than now, reproducible, and complete where capacity is left."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given

from benchmarks.large_clusters import LargeClusterShape, draw_large_cluster
from benchmarks.unlike_clusters import ClusterDrawing, FullCluster, draw_full
from cruise.packer.answer import Packing, compute_figures
from cruise.packer.budget import BudgetMeter
from cruise.packer.greedy import pack_quickly
from cruise.packer.large.solving import place_by_ejection_and_gathering, solve_by_ejection
from cruise.packer.problem import PackingObjective
from cruise.packer.verification import find_rule_violations
from tests.packer.drawn_problems import draw_problem, problems
from tests.packer.problems import WITHOUT_FLEET
from tests.tiers import examples


def solved(problem):
    reported: list[Packing] = []
    packing = solve_by_ejection(problem, problem.pod_node, BudgetMeter(math.inf, math.inf), reported.append)
    for k in (*reported, packing):
        assert find_rule_violations(problem, k.pod_node) == ()
    return packing


# In these two a copy came back home to a node where another of its class had arrived, one more than the node may hold.
@examples(300)
@given(problems())
@example(draw_problem(3791972129, 6, 5, True, True))
@example(draw_problem(1242556253, 2, 9, True, False))
# In this one a pod that had a place by then was placed once more as a pending one.
@example(draw_problem(636816, 5, 5, True, True))
# In this one a pod that never preempts got room from which another moved to where something was preempted.
@example(draw_problem(26306, 3, 7, True, True))
def test_every_rule_is_obeyed_and_nothing_gets_worse(problem):
    packing = solved(problem)
    now = compute_figures(problem, problem.pod_node)
    assert packing.planned.get_key(problem.objective) >= now.get_key(problem.objective)
    assert packing.planned.get_key(problem.objective) <= packing.bound
    assert (solved(problem).pod_node == packing.pod_node).all()


@pytest.mark.parametrize("objective", WITHOUT_FLEET)
@pytest.mark.parametrize("seed", range(3))
def test_a_nearly_full_cluster_takes_all_that_wait(objective, seed):
    problem = draw_large_cluster(LargeClusterShape(30), seed, objective)
    assert (problem.pod_node < 0).any()
    packing = solved(problem)
    assert (packing.pod_node >= 0).all()


@pytest.mark.parametrize(("nodes", "seed"), [(60, 1), (100, 2)])
def test_preempted_pods_are_placed_if_there_is_capacity_for_all(nodes, seed):
    problem = draw_large_cluster(LargeClusterShape(nodes, priorities=4), seed, PackingObjective.PAPER)
    problem = replace(problem, preemptible=problem.movable)
    quick = pack_quickly(problem).pod_node
    assert (quick < 0).any()
    packing = solve_by_ejection(problem, quick, BudgetMeter(math.inf, 5e8), lambda _: None)
    assert (packing.pod_node >= 0).all()


# As many moves as the simple way of `benchmarks/ejection_heuristic.py` needs.
@pytest.mark.parametrize(
    ("full", "work", "most"),
    [
        (FullCluster(ClusterDrawing.BIMODAL, 200, priorities=4), 3e9, 260),
        (FullCluster(ClusterDrawing.BIMODAL, 40), math.inf, 28),
    ],
    ids=str,
)
def test_once_all_have_a_place_moves_that_need_not_be_are_undone(full, work, most):
    problem = draw_full(full, 1, PackingObjective.OPERATOR)
    packing = solve_by_ejection(problem, problem.pod_node, BudgetMeter(math.inf, work), lambda _: None)
    assert (packing.pod_node >= 0).all()
    moved = (problem.pod_node >= 0) & (packing.pod_node != problem.pod_node)
    assert moved.sum() <= most


def test_one_eviction_fewer_is_allowed_and_kept_to():
    problem = draw_large_cluster(LargeClusterShape(30), 1)
    limits = tuple(replace(limit, allowed=0) for limit in problem.rules.eviction_limits)
    packing = solved(replace(problem, rules=replace(problem.rules, eviction_limits=limits)))
    ran = problem.pod_node >= 0
    assert (packing.pod_node[ran] == problem.pod_node[ran]).all()


def test_nothing_is_evicted_where_what_waits_fits_once_it_is_sorted():
    problem = draw_large_cluster(LargeClusterShape(10, usage_percent=80), 2)
    last = problem.pod_class == problem.class_count - 1
    packing = solved(replace(problem, pod_node=np.where(last, -1, problem.pod_node)))
    assert packing.planned.get_key(PackingObjective.OPERATOR) == packing.bound


def test_many_small_pods_leave_a_node_for_one_as_large_as_they_are():
    # Four nodes, half full of pods of size 1; one that waits takes all but a sixth of a node.
    one = draw_large_cluster(LargeClusterShape(4), 1)
    problem = replace(
        one,
        capacities=np.full((4, 3), 60),
        demands=np.array([[1, 1, 1], [50, 50, 1]]),
        **{
            name: getattr(one, name)[:2]
            for name in ("headroom", "priorities", "weights", "max_on_node", "node_mask_of_class")
        },
        movable=np.array([True, True]),
        preemptible=np.array([False, False]),
        preempt=np.array([True, True]),
        pod_class=np.array([0] * 120 + [1]),
        pod_node=np.array([*np.arange(120) % 4, -1]),
        rules=replace(one.rules, eviction_limits=()),
    )
    packing = solved(problem)
    assert (packing.pod_node >= 0).all()
    assert (packing.pod_node[:120] != problem.pod_node[:120]).sum() == 20


def _each_keeps_one(waiting: int):
    """Six nodes of eight pods, none smaller than 30, that each have 1 free, and a pod that waits."""
    one = draw_large_cluster(LargeClusterShape(6), 1)
    sizes = np.random.default_rng(1).integers(30, 60, 48)
    filled = sizes.reshape(6, 8).sum(axis=1) + 1
    arrays = {
        name: getattr(one, name)[:1].repeat(49)
        for name in ("priorities", "weights", "max_on_node", "node_mask_of_class")
    }
    return replace(
        one,
        **arrays,
        capacities=np.stack([filled, filled, np.full(6, 9)], axis=1),
        demands=np.array([[size, size, 1] for size in (*sizes, waiting)]),
        headroom=np.zeros((49, 3), dtype=np.int64),
        movable=np.ones(49, dtype=np.bool_),
        preemptible=np.zeros(49, dtype=np.bool_),
        preempt=np.ones(49, dtype=np.bool_),
        pod_class=np.arange(49),
        pod_node=np.array([*np.arange(48) // 8, -1]),
        rules=replace(one.rules, eviction_limits=()),
    )


def test_reserved_capacity_of_all_nodes_is_gathered_on_one_by_exchanges():
    problem = _each_keeps_one(6)
    packing = place_by_ejection_and_gathering(
        problem, problem.pod_node, BudgetMeter(math.inf, math.inf), lambda _: None
    )
    assert find_rule_violations(problem, packing.pod_node) == ()
    assert (packing.pod_node >= 0).all()


def test_exchanges_that_gather_too_little_are_taken_back():
    problem = _each_keeps_one(7)
    packing = place_by_ejection_and_gathering(
        problem, problem.pod_node, BudgetMeter(math.inf, math.inf), lambda _: None
    )
    assert packing.pod_node.tolist() == problem.pod_node.tolist()


def test_an_overcommitted_cluster_reserves_no_more_capacity_than_one_pod_needs():
    problem = draw_large_cluster(LargeClusterShape(40, usage_percent=101), 1)
    packing = place_by_ejection_and_gathering(
        problem, problem.pod_node, BudgetMeter(math.inf, math.inf), lambda _: None
    )
    waiting = problem.demands[problem.pod_class[packing.pod_node < 0]]
    placed = problem.demands[problem.pod_class[packing.pod_node >= 0]]
    kept = (problem.capacities.sum(axis=0) - placed.sum(axis=0))[:2]
    assert len(waiting)
    assert not (waiting[:, :2] <= kept).all(axis=1).any()
