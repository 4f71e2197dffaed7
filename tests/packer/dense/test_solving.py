import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.packing_instances import Shape, draw_pending, draw_rightsized, with_peaks
from cruise.packer.answer import Status
from cruise.packer.budget import Budget
from cruise.packer.dense.instance import Instance, plain_instance
from cruise.packer.dense.solving import solve
from tests.decisions.packing.brute_force import best_vector
from tests.packer.dense.checker import find_violations
from tests.packer.dense.instances import draw_tiny
from tests.packer.dense.plans import plan_of, vector_of
from tests.tiers import examples

# Replay: no clock, so that a slow machine finds what a fast one finds.
REPLAY = Budget(work_units=3e8, seed=7)


def bare(nodes: int, capacity: int, demands: list[int], running: list[list[int]], priority: int = 0) -> Instance:
    classes = len(demands)
    return plain_instance(
        demands=np.array(demands, dtype=np.int64)[:, None],
        priorities=np.full(classes, priority, dtype=np.int64),
        counts=np.ones(classes, dtype=np.int64),
        movable=np.ones(classes, dtype=np.bool_),
        running=np.array(running, dtype=np.int64).reshape(classes, nodes),
        most=np.ones((classes, nodes), dtype=np.int64),
        capacities=np.full((nodes, 1), capacity, dtype=np.int64),
    )


def test_tiny_instances_equal_brute_force_and_every_proof_is_true(seeds):
    for seed in seeds(1200):
        instance = draw_tiny(seed)
        solution = solve(instance, REPLAY)
        assert find_violations(instance, plan_of(instance, solution.assignment)) == (), seed
        best = best_vector(instance)
        assert vector_of(instance, solution.assignment) == best, seed
        assert solution.proved, seed
        already = vector_of(instance, instance.running) == best
        assert (solution.status is Status.ALREADY_OPTIMAL) == already, seed


def test_moving_one_pod_lets_the_third_of_the_paper_in():
    instance = bare(2, 4, [2, 2, 3], [[1, 0], [0, 1], [0, 0]])
    solution = solve(instance, REPLAY)
    assert solution.status is Status.OPTIMAL
    assert [(figures.placed, figures.stayed) for figures in vector_of(instance, solution.assignment)] == [(3, 1)]


def test_a_full_cluster_with_nothing_to_gain_is_already_optimal():
    solution = solve(bare(2, 4, [2, 3, 4], [[1, 0], [0, 1], [0, 0]]), REPLAY)
    assert solution.status is Status.ALREADY_OPTIMAL


@pytest.mark.parametrize("nodes", [0, 1])
def test_nothing_to_place_and_nowhere_to_place_it_are_answered(nodes):
    empty = bare(nodes, 4, [], [])
    assert solve(empty, REPLAY).status is Status.ALREADY_OPTIMAL
    homeless = bare(0, 4, [1], [[]])
    assert vector_of(homeless, solve(homeless, REPLAY).assignment)[0].placed == 0


@pytest.mark.parametrize(
    "shape", [Shape(16, 4, 2, 100), Shape(16, 8, 1, 95), Shape(16, 8, 4, 100), Shape(32, 4, 4, 100)]
)
def test_what_the_paper_draws_is_proved_with_the_work_of_a_second(shape):
    for seed in (1, 2):
        instance = draw_pending(shape, seed)
        solution = solve(instance, Budget(work_units=1e9))
        assert find_violations(instance, plan_of(instance, solution.assignment)) == ()
        assert solution.proved


@pytest.mark.parametrize(
    ("shape", "instance_seed", "seed"),
    [(Shape(32, 8, 4, 100), 118, 4), (Shape(32, 8, 4, 105), 109, 4), (Shape(32, 8, 1, 95), 117, 3)],
)
def test_a_phase_with_many_answers_does_not_stall(shape, instance_seed, seed):
    """Branching once circled around what the relaxed right-hand sides let in, and dives met the same dead end again."""
    solution = solve(draw_pending(shape, instance_seed), Budget(work_units=1e9, seed=seed))
    assert solution.proved


def test_shared_headroom_lets_everybody_in_where_peaks_do_not():
    for seed in (1, 2):
        instance = replace(draw_rightsized(Shape(16, 8, 1, 95), seed), stays_last=True)
        solution, peaks = solve(instance, Budget(work_units=1e9)), solve(with_peaks(instance), Budget(work_units=1e8))
        assert find_violations(instance, plan_of(instance, solution.assignment)) == ()
        assert solution.proved
        assert solution.key[0] > 1.14 * peaks.key[0]
        assert solution.key[1] == instance.running.sum()


def test_no_time_at_all_still_yields_a_whole_plan():
    instance = draw_tiny(11)
    solution = solve(instance, Budget(deadline_seconds=0.0))
    assert find_violations(instance, plan_of(instance, solution.assignment)) == ()
    assert solution.key >= solution.now


def test_the_same_seed_and_work_give_the_same_plan():
    instance = draw_tiny(5)
    first, second = solve(instance, REPLAY), solve(instance, REPLAY)
    assert np.array_equal(first.assignment, second.assignment)
    assert math.isinf(REPLAY.deadline_seconds)


@given(st.integers(0, 10**6))
@examples(60)
def test_every_plan_passes_the_checker_and_is_no_worse_than_now(seed):
    instance = draw_tiny(seed)
    for work_units in (1.0, 1e6):
        solution = solve(instance, Budget(work_units=work_units))
        assert find_violations(instance, plan_of(instance, solution.assignment)) == ()
        assert solution.key >= solution.now
        assert solution.key <= solution.bounds


@given(st.integers(0, 10**6), st.randoms(use_true_random=False))
@examples(40)
def test_the_order_of_classes_and_nodes_changes_no_proved_vector(seed, source):
    instance = draw_tiny(seed)
    classes, nodes = list(range(instance.class_count)), list(range(instance.node_count))
    source.shuffle(classes)
    source.shuffle(nodes)
    shuffled = plain_instance(
        demands=instance.demands[classes],
        priorities=instance.priorities[classes],
        counts=instance.counts[classes],
        movable=instance.movable[classes],
        running=instance.running[classes][:, nodes],
        most=instance.most[classes][:, nodes],
        capacities=instance.capacities[nodes],
    )
    one, other = solve(instance, REPLAY), solve(shuffled, REPLAY)
    assert one.proved
    assert other.proved
    assert vector_of(instance, one.assignment) == vector_of(shuffled, other.assignment)


@given(st.integers(0, 10**6))
@examples(40)
def test_one_more_node_never_places_fewer(seed):
    instance = draw_tiny(seed)
    wider = plain_instance(
        demands=instance.demands,
        priorities=instance.priorities,
        counts=instance.counts,
        movable=instance.movable,
        running=np.concatenate([instance.running, np.zeros_like(instance.running[:, :1])], axis=1),
        most=np.concatenate([instance.most, np.ones_like(instance.most[:, :1])], axis=1),
        capacities=np.concatenate([instance.capacities, instance.capacities[:1]]),
    )
    narrow, wide = solve(instance, REPLAY), solve(wider, REPLAY)
    assert narrow.proved
    assert wide.proved
    assert vector_of(wider, wide.assignment) >= vector_of(instance, narrow.assignment)
