"""The least price of nodes: no packing costs less than the bound, proved packings are optimal, and rules hold."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cruise.packer.answer import Packing
from cruise.packer.budget import BudgetMeter, SolveBudget
from cruise.packer.consolidation import drain_nodes
from cruise.packer.pack import pack
from cruise.packer.problem import (
    EvictionLimit,
    NodePrices,
    PackingObjective,
    PackingProblem,
    PlacementRules,
    compute_price,
    find_nodes_in_use,
)
from cruise.packer.verification import find_rule_violations
from tests.packer.drawn_problems import draw_problem, with_fleet
from tests.packer.every_assignment import best_key_without_faults, find_best_key, key_of
from tests.tiers import examples

WORK = 5e7


def solved(problem, work=WORK):
    return pack(problem, SolveBudget(work_units=work), lambda _: None)


def plain(nodes, classes, pod_class, pod_node, *, prices=None, movable=None, limits=(), most_evicted=None):
    """Equal nodes of 10 with pods of classes of some sizes, all of which occupy their nodes."""
    count = len(classes)
    return PackingProblem(
        resources=("cpu", "pods"),
        capacities=np.tile(np.array([10, 100]), (nodes, 1)),
        demands=np.array([[size, 1] for size in classes]),
        headroom=np.zeros((count, 2), dtype=np.int64),
        priorities=np.zeros(count, dtype=np.int64),
        movable=np.ones(count, dtype=np.bool_) if movable is None else np.array(movable),
        preemptible=np.zeros(count, dtype=np.bool_),
        preempt=np.ones(count, dtype=np.bool_),
        weights=np.ones(count, dtype=np.int64),
        max_on_node=np.full(count, 100, dtype=np.int64),
        node_mask_of_class=np.zeros(count, dtype=np.int64),
        allowed_nodes=np.ones((1, nodes), dtype=np.bool_),
        pod_class=np.array(pod_class),
        pod_node=np.array(pod_node),
        rules=PlacementRules(
            np.zeros((0, nodes), dtype=np.int64), eviction_limits=limits, max_evicted_by_node=most_evicted
        ),
        objective=PackingObjective.CONSOLIDATION,
        node_prices=NodePrices(np.array(prices or [1] * nodes), np.ones(count, dtype=np.bool_)),
    )


@examples(12)
@given(st.integers(0, 2**32))
def test_free_pods_are_packed_as_trying_everything_does(seed):
    problem = with_fleet(draw_problem(seed, nodes=3, classes=4, ruled=False), seed)
    packing, best = solved(problem), find_best_key(problem)
    key = packing.planned.get_key(problem.objective)
    assert key == key_of(problem, _copies(problem, packing.pod_node))
    assert key <= best <= packing.bound
    assert compute_price(problem, packing.pod_node) == packing.planned.price


@examples(8)
@given(st.integers(0, 2**32))
def test_ruled_pods_are_packed_within_their_rules_and_nothing_allowed_is_better_than_the_bound(seed):
    problem = with_fleet(draw_problem(seed, nodes=3, classes=3), seed)
    packing = solved(problem)
    assert find_rule_violations(problem, packing.pod_node) == ()
    assert packing.planned.get_key(problem.objective) <= best_key_without_faults(problem) <= packing.bound


@examples(25)
@given(st.integers(0, 2**32), st.integers(3, 12))
def test_consolidation_obeys_every_rule_and_never_costs_more(seed, nodes):
    problem = with_fleet(draw_problem(seed, nodes=nodes, classes=8), seed)
    start = problem.pod_node
    reported: list[Packing] = []
    packing = drain_nodes(problem, start, BudgetMeter(math.inf, 1e8), 1, reported.append)
    assert find_rule_violations(problem, packing.pod_node) == ()
    assert packing.planned.price <= packing.current.price
    assert (packing.pod_node >= 0).sum() == (start >= 0).sum()
    assert [one.planned.price for one in reported] == sorted((one.planned.price for one in reported), reverse=True)


def test_two_halves_of_a_node_share_one():
    packing = solved(plain(3, [5], [0, 0, 0], [0, 1, 2]))
    assert (packing.planned.price, packing.bound[-2]) == (2, -2)
    assert packing.planned.eviction_weight == 1


@pytest.mark.parametrize("many", [1, 2, 5])
def test_no_more_is_evicted_than_allowed_and_the_bound_respects_it(many):
    limit = EvictionLimit("evictions of the plan", np.array([0]), many)
    packing = solved(plain(6, [1], [0] * 6, list(range(6)), limits=(limit,)))
    assert packing.planned.price == 6 - many == -packing.bound[-2]


def test_a_node_of_which_less_may_be_evicted_than_occupies_it_is_kept():
    problem = plain(2, [1], [0, 0, 0], [0, 0, 1], most_evicted=np.array([1, 0]))
    assert solved(problem).planned.price == 2


def test_pods_that_are_not_moved_keep_their_node_and_a_cheaper_node_gets_the_rest():
    problem = plain(3, [1, 1], [0, 1, 1], [0, 1, 2], prices=[1, 5, 2], movable=[False, True])
    packing = solved(problem)
    assert find_nodes_in_use(problem, packing.pod_node).tolist() == [True, False, False]
    assert packing.planned.price == 1


def test_what_belongs_to_nodes_does_not_keep_them():
    problem = plain(2, [1, 1], [0, 0, 1], [0, 1, 0], movable=[False, True])
    assert problem.node_prices is not None
    of_nodes = replace(problem, node_prices=NodePrices(problem.node_prices.prices, np.array([False, True])))
    assert solved(of_nodes).current.price == 1
    assert solved(problem).planned.price == 2


def test_a_waiting_pod_is_placed_even_where_that_takes_another_node():
    packing = solved(plain(3, [8, 4], [0, 1], [0, -1]))
    assert (packing.pod_node >= 0).all()
    assert (packing.planned.price, packing.bound[-2]) == (2, -2)


def _copies(problem, pod_node):
    copies = np.zeros((problem.class_count, problem.node_count), dtype=np.int64)
    placed = pod_node >= 0
    np.add.at(copies, (problem.pod_class[placed], pod_node[placed]), 1)
    return copies
