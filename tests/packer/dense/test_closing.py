import math

import numpy as np
import pytest

from benchmarks.packing_instances import Shape, draw_pending
from cruise.packer.arrays import IntArray
from cruise.packer.budget import Budget, Meter
from cruise.packer.dense.branching import branch
from cruise.packer.dense.closing import closer_of
from cruise.packer.dense.generation import Generation, generation_of
from cruise.packer.dense.greedy import start
from cruise.packer.dense.phase import patterns_of, phase_of
from cruise.packer.dense.residual import Residual, residual_of
from cruise.packer.dense.solving import solve
from tests.packer.dense.deciding import decide_target

UNBOUNDED = Meter(math.inf, math.inf)


def stays_question(shape: Shape, seed: int, most_nodes: int) -> tuple[Residual, IntArray, Generation]:
    """The question about stays in the best plan found, with its bound, from pricing that may stop early."""
    instance = draw_pending(shape, seed)
    residual = residual_of(instance)
    best = residual.part(solve(instance, Budget(work_units=5e8)).assignment)
    phase = phase_of(residual, best, 1)
    generation = generation_of(phase, np.random.default_rng(seed))
    generation.most_nodes = most_nodes
    generation.take(*patterns_of(phase, start(residual)))
    generation.generate(0, UNBOUNDED)
    return residual, best, generation


@pytest.mark.parametrize("most_nodes", [20, 30_000])
@pytest.mark.parametrize("seed", range(1, 6))
def test_no_filling_of_a_plan_that_reaches_the_target_is_cut_off(seed, most_nodes):
    """Slack is measured against the values stored with the bound: others once proved a real plan impossible."""
    _, best, generation = stays_question(Shape(8, 4, 1, 95), seed, most_nodes)
    phase = generation.phase
    listed = closer_of(generation, np.random.default_rng(1), 200_000).enumerate(phase.answer, UNBOUNDED)
    assert listed is not None
    groups, fillings = listed
    for node, filling in enumerate(best[phase.classes].T):
        mine = fillings[groups == phase.node_group[node]]
        assert (mine >= filling).all(axis=1).any(), node


@pytest.mark.parametrize("seed", range(1, 9))
def test_branching_and_cp_sat_decide_alike(seed):
    _, _, generation = stays_question(Shape(8, 4, 1, 95), seed, 30_000)
    phase = generation.phase
    for target in {phase.answer, phase.answer + 1, generation.ceiling}:
        listed = closer_of(generation, np.random.default_rng(1)).enumerate(target, UNBOUNDED)
        if listed is None or target > generation.bound:
            continue
        one = branch(phase, *listed, target, np.random.default_rng(2), UNBOUNDED)
        other = decide_target(phase, *listed, target, UNBOUNDED)
        assert one.reachable == other.reachable
        if target == phase.answer:
            assert one.reachable


@pytest.mark.parametrize("seed", range(1, 9))
def test_a_bound_is_never_below_a_plan_however_early_pricing_stops(seed):
    for most_nodes in (5, 30_000):
        _, _, generation = stays_question(Shape(8, 4, 1, 95), seed, most_nodes)
        assert generation.bound >= generation.phase.answer - 1e-6
        assert generation.ceiling >= generation.phase.answer


def test_an_answer_is_looked_for_where_many_nodes_are_alike():
    """Trees over alike nodes were left out, and a hundred dives did not find what one of them does at once."""
    residual = residual_of(draw_pending(Shape(16, 4, 2, 100), 12))
    phase = phase_of(residual, residual.part(solve(residual.instance, Budget(work_units=1e6)).assignment), 2)
    generation = generation_of(phase, np.random.default_rng(1))
    generation.generate(0, UNBOUNDED)
    closer, target = closer_of(generation, np.random.default_rng(1)), generation.ceiling
    listed = closer.enumerate(target, UNBOUNDED)
    assert listed is not None
    assert phase.group_size.max() > 4
    assert closer.decide(*listed, target, 1.0, UNBOUNDED).reachable
