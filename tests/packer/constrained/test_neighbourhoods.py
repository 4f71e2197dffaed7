"""Improving large packings a few nodes at a time: what is found obeys, repeats exactly, and is better."""

import math
from dataclasses import replace

import numpy as np

from cruise.packer.arrays import IntArray
from cruise.packer.budget import Meter
from cruise.packer.constrained.incumbent import Incumbent, incumbent_of
from cruise.packer.constrained.layout import layout_of
from cruise.packer.constrained.neighbourhoods import improve
from cruise.packer.faults import find_faults
from cruise.packer.problem import Attraction, EvictionLimit, Exclusion, Objective, Problem, Rules, Spread
from tests.decisions.packing.reports import ignore


def scattered(seed: int, objective: Objective, nodes: int = 24, classes: int = 30) -> Problem:
    """Pods placed one after the other wherever they fit and no rule is broken, the last ones left pending."""
    draw = np.random.default_rng(seed)
    pod_class = np.repeat(np.arange(classes), draw.integers(2, 7, classes))
    pods = len(pod_class)
    demands = draw.integers(100, 900, (classes, 2))
    capacity = demands[pod_class].sum(axis=0) // nodes
    zones = np.arange(nodes) % 3
    kinds = draw.random(classes)
    rules = Rules(
        np.stack([np.arange(nodes), zones]),
        tuple(Exclusion(0, c, np.array([c])) for c in np.flatnonzero(kinds < 0.3).tolist()),
        tuple(Attraction((1,), c, np.array([c])) for c in np.flatnonzero(kinds > 0.9).tolist()),
        tuple(
            Spread(1, c, np.array([c]), 1, 1, np.ones(nodes, dtype=np.bool_))
            for c in np.flatnonzero((kinds > 0.4) & (kinds < 0.5)).tolist()
        ),
        tuple(EvictionLimit(f"limit {c}", np.array([c]), 1) for c in range(0, classes, 2)),
    )
    problem = Problem(
        resources=("cpu", "memory"),
        capacities=np.tile(np.ceil(capacity * 1.05).astype(np.int64), (nodes, 1)),
        demands=demands,
        headroom=np.zeros((classes, 2), dtype=np.int64),
        priorities=draw.integers(0, 2, classes) * 100,
        movable=draw.random(classes) < 0.9,
        preemptible=np.ones(classes, dtype=np.bool_),
        preempt=np.ones(classes, dtype=np.bool_),
        weights=np.ones(classes, dtype=np.int64),
        most_on_node=np.full(classes, pods),
        sites=np.zeros(classes, dtype=np.int64),
        admits=np.ones((1, nodes), dtype=np.bool_),
        pod_class=pod_class,
        pod_node=np.full(pods, -1, dtype=np.int64),
        rules=rules,
        objective=objective,
    )
    return replace(problem, pod_node=_placed_in_turn(problem, draw.permutation(pods)))


def _placed_in_turn(problem: Problem, order: IntArray) -> IntArray:
    pod_node = problem.pod_node.copy()
    free = problem.capacities.copy()
    for pod in order.tolist():
        need = problem.demands[problem.pod_class[pod]]
        for node in np.argsort(-free.min(axis=1), kind="stable").tolist():
            pod_node[pod] = node
            if (free[node] >= need).all() and not find_faults(problem, pod_node):
                free[node] -= need
                break
            pod_node[pod] = -1
    return pod_node


def improved(problem: Problem, work_units: float) -> Incumbent:
    layout = layout_of(problem)
    incumbent = incumbent_of(layout, layout.running, ignore)
    improve(incumbent, np.random.default_rng(1), Meter(math.inf, work_units), math.inf)
    return incumbent


def test_places_more_and_breaks_no_rule():
    gained = 0
    for seed, objective in enumerate((Objective.PAPER, Objective.OPERATOR)):
        problem = scattered(seed, objective)
        packing = improved(problem, 2e8).packing()
        assert packing.after.key(objective) > packing.now.key(objective)
        assert find_faults(problem, packing.pod_node) == ()
        gained += sum(tier.placed for tier in packing.after.tiers) - sum(tier.placed for tier in packing.now.tiers)
    assert gained >= 2


def test_repeats_exactly_for_the_same_work():
    problem = scattered(3, Objective.OPERATOR)
    first, second = improved(problem, 5e7), improved(problem, 5e7)
    assert (first.assignment == second.assignment).all()


def test_stops_when_nothing_can_be_gained():
    problem = scattered(4, Objective.OPERATOR)
    running = problem.pod_node >= 0
    content = replace(problem, pod_class=problem.pod_class[running], pod_node=problem.pod_node[running])
    assert improved(content, math.inf).proved
