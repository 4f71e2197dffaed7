"""Fewer nodes for pods with affinity: the same assignments are valid."""

from dataclasses import replace
from itertools import product

import numpy as np

from cruise.packer.problem import AttractionRule, EvictionLimit, PackingProblem, PlacementRules
from cruise.packer.rules.by_class import restrict_to_reachable_nodes
from tests.packer.exact.tiny import check_assignment, random_problem


def attracted(seed: int) -> PackingProblem:
    """A tiny problem with one attraction more, to pods that are not all evicted."""
    draw, problem = np.random.default_rng(seed), random_problem(seed, most_pods=5)
    holder = int(draw.integers(problem.class_count))
    targets = np.array([holder] if draw.random() < 0.5 else [draw.integers(problem.class_count)])
    topologies = (0, 1) if draw.random() < 0.2 else (int(draw.integers(2)),)
    rules = problem.rules
    return replace(
        problem,
        rules=replace(
            rules,
            attractions=(*rules.attractions, AttractionRule(topologies, holder, targets)),
            eviction_limits=(*rules.eviction_limits, EvictionLimit("budget", targets, int(draw.integers(2)))),
        ),
    )


def test_every_assignment_that_obeys_stays_one(seeds):
    fewer = obeyed = 0
    for seed in seeds(120, fewest=50):
        problem = attracted(seed)
        narrow = restrict_to_reachable_nodes(problem)
        fewer += bool(
            (narrow.allowed_nodes[narrow.node_mask_of_class] != problem.allowed_nodes[problem.node_mask_of_class]).any()
        )
        for chosen in product(range(-1, problem.node_count), repeat=problem.pod_count):
            pod_node = np.array(chosen, dtype=np.int64)
            if check_assignment(problem, pod_node):
                assert check_assignment(narrow, pod_node), (seed, chosen)
                obeyed += 1
    assert fewer > 10 and obeyed


def test_what_cannot_leave_attracts_to_where_it_is():
    problem = random_problem(0)
    two, one = np.ones(2, dtype=np.int64), np.ones((2, 1), dtype=np.int64)
    followed = replace(
        problem,
        capacities=np.full((2, 1), 9),
        demands=one,
        headroom=0 * one,
        priorities=two,
        movable=np.array([True, False]),
        preemptible=two > 0,
        preempt=two > 0,
        weights=two,
        max_on_node=9 * two,
        node_mask_of_class=0 * two,
        allowed_nodes=np.ones((1, 2), dtype=np.bool_),
        pod_class=np.array([0, 1]),
        pod_node=np.array([-1, 1]),
        rules=PlacementRules(np.arange(2)[None, :], attractions=(AttractionRule((0,), 0, np.array([1])),)),
    )
    narrow = restrict_to_reachable_nodes(followed)
    assert narrow.allowed_nodes[narrow.node_mask_of_class].tolist() == [[False, True], [False, False]]


def test_arrivals_of_a_group_stay_in_the_domain_of_what_cannot_leave():
    problem = random_problem(0)
    zone = replace(
        problem,
        capacities=np.full((4, 1), 9),
        demands=np.ones((1, 1), dtype=np.int64),
        headroom=np.zeros((1, 1), dtype=np.int64),
        priorities=np.zeros(1, dtype=np.int64),
        movable=np.ones(1, dtype=np.bool_),
        preemptible=np.ones(1, dtype=np.bool_),
        preempt=np.ones(1, dtype=np.bool_),
        weights=np.ones(1, dtype=np.int64),
        max_on_node=np.full(1, 9),
        node_mask_of_class=np.zeros(1, dtype=np.int64),
        allowed_nodes=np.ones((1, 4), dtype=np.bool_),
        pod_class=np.zeros(3, dtype=np.int64),
        pod_node=np.array([0, 2, -1]),
        resources=("cpu",),
        rules=replace(
            problem.rules,
            topologies=np.array([[0, 1, 0, 1]]),
            exclusions=(),
            spreads=(),
            attractions=(AttractionRule((0,), 0, np.array([0])),),
            eviction_limits=(EvictionLimit("budget", np.array([0]), 1),),
        ),
    )
    narrow = restrict_to_reachable_nodes(zone)
    assert narrow.allowed_nodes[narrow.node_mask_of_class[0]].tolist() == [True, False, True, False]
    free = restrict_to_reachable_nodes(replace(zone, rules=replace(zone.rules, eviction_limits=())))
    assert free.allowed_nodes[free.node_mask_of_class[0]].all()
