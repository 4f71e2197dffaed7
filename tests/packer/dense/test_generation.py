import math

import numpy as np
import pytest

from benchmarks.packing_instances import Shape, draw_pending, problem_of
from benchmarks.unlike_clusters import Full, Make, draw_full
from cruise.packer.arrays import IntArray
from cruise.packer.budget import Meter
from cruise.packer.dense.bounding import EntryBound
from cruise.packer.dense.classing import instance_of
from cruise.packer.dense.generation import Generation, generation_of
from cruise.packer.dense.listing import list_fillings
from cruise.packer.dense.phase import patterns_of, phase_of
from cruise.packer.dense.residual import residual_of
from cruise.packer.dense.search import Search
from cruise.packer.problem import copies_of
from cruise.packer.small import solve_small


def stays_question(seed: int, most_nodes: int) -> tuple[IntArray, Generation]:
    """The question about stays in the best packing found, with its bound, from pricing that may stop early."""
    problem = problem_of(draw_pending(Shape(8, 4, 1, 95), seed))
    found = solve_small(problem, problem.pod_node, Meter(math.inf, 5e8), 1, lambda _: None)
    residual = residual_of(instance_of(problem))
    best = residual.part(copies_of(problem, found.pod_node))
    generation = generation_of(phase_of(residual, best, 1), np.random.default_rng(seed))
    generation.most_nodes = most_nodes
    generation.take(*patterns_of(generation.phase, residual.running))
    generation.generate(0, Meter(math.inf, math.inf))
    return best, generation


@pytest.mark.parametrize("most_nodes", [20, 30_000])
@pytest.mark.parametrize("seed", range(1, 6))
def test_no_filling_of_a_plan_that_reaches_the_target_is_cut_off(seed, most_nodes):
    """Slack is measured against the values stored with the bound: others once proved a real plan impossible."""
    best, generation = stays_question(seed, most_nodes)
    phase = generation.phase
    listed = list_fillings(generation, phase.answer, Meter(math.inf, math.inf))
    assert listed is not None
    groups, fillings = listed
    for node, filling in enumerate(best[phase.classes].T):
        mine = fillings[groups == phase.node_group[node]]
        assert (mine >= filling).all(axis=1).any(), node


@pytest.mark.parametrize("seed", range(1, 9))
def test_a_bound_is_never_below_a_plan_however_early_pricing_stops(seed):
    for most_nodes in (5, 30_000):
        _, generation = stays_question(seed, most_nodes)
        assert generation.bound >= generation.phase.answer - 1e-6
        assert generation.ceiling >= generation.phase.answer


def test_a_dive_comes_to_fillings_of_every_node():
    """Once a filling that was fixed was beyond its bound in the master, whose other levels were wrong then by far."""
    problem = draw_full(Full(Make.BIMODAL, 40, 20), 1)
    meter = Meter(math.inf, math.inf)
    assignment = copies_of(problem, problem.pod_node)
    for _ in range(3):
        assignment = Search(problem, 1).anneal(assignment, 0, meter)
    question = EntryBound(problem, assignment, 1, 1)
    found = question.dive(assignment, meter)
    assert found is not None
