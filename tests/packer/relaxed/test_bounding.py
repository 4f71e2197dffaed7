"""Bounds by prices: never beyond what some assignment reaches, tried out one by one, and whole numbers throughout."""

import math
from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cruise.packer.answer import figures_of
from cruise.packer.bounds import counted_bound
from cruise.packer.budget import Meter
from cruise.packer.problem import copies_of
from cruise.packer.relaxed.bounding import Bounds
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
