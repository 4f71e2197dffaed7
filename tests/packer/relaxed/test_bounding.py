"""Bounds by prices: never beyond what some assignment reaches, tried out one by one, and whole numbers throughout."""

import math
from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.large_clusters import Crowd, draw_crowd
from cruise.packer.answer import figures_of
from cruise.packer.bounds import counted_bound
from cruise.packer.budget import Meter
from cruise.packer.problem import copies_of
from cruise.packer.relaxed.bounding import Bounds
from cruise.packer.relaxed.sizes import by_size
from tests.packer.every_assignment import every_assignment, is_sound, keys_of
from tests.packer.problems import WITHOUT_FLEET, draw_problem
from tests.tiers import examples


def _meter():
    return Meter(math.inf, 3e7)


@examples(60)
@given(st.integers(0, 2**32), st.sampled_from(WITHOUT_FLEET))
def test_no_assignment_surpasses_a_bound_beside_what_it_is_as_good_as(seed, objective):
    problem = replace(draw_problem(seed), objective=objective)
    running = copies_of(problem, problem.pod_node)
    sound = (some[is_sound(problem, running, some)] for some in every_assignment(problem))
    keys = [tuple(key) for some in sound for key in keys_of(problem, some).tolist()]
    counted, bounds = counted_bound(problem), Bounds(problem)
    for key in {max(keys), min(keys), figures_of(problem, problem.pod_node).key(objective)}:
        found = bounds.of(key, counted, _meter())
        assert all(bound <= most for bound, most in zip(found, counted, strict=True))
        for entry, bound in enumerate(found):
            beside = [other[entry] for other in keys if np.greater_equal(other[:entry], key[:entry]).all()]
            assert max(beside, default=bound) <= bound


def test_as_few_evictions_as_are_found_among_200_nodes_are_nearly_proved():
    problem = draw_crowd(Crowd(200), 1)
    placed = (problem.pod_count,)
    # A plan with 42 is known; counting alone gives 17.
    assert Bounds(problem).least_evicted(placed, 42, Meter(math.inf, 4e9)) >= 40


@examples(20)
@given(st.integers(0, 2**32))
def test_a_price_by_size_is_a_blend_of_corners_less_for_what_is_small_and_alike_for_equal_sizes(seed):
    problem = draw_problem(seed)
    sizes = by_size(problem)
    assert (sizes >= 0.0).all()
    # Three nets, in each of which a class is one whole or less.
    assert (sizes.sum(axis=1) <= 3.0 + 1e-9).all()
    equal = (problem.demands[:, None] == problem.demands[None]).all(axis=2)
    assert (sizes[:, None] == sizes[None]).all(axis=2)[equal].all()
