"""Counting bounds never exceed a proved packing, and are reached if no eviction is needed."""

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cruise.packer.answer import (
    BestKnown,
    build_alternative_packing,
    build_packing,
    compute_counting_bound,
    compute_min_evictions,
)
from cruise.packer.budget import SolveBudget
from cruise.packer.pack import pack
from cruise.packer.problem import PackingObjective
from tests.packer.drawn_problems import draw_problem
from tests.packer.problems import WITHOUT_FLEET
from tests.tiers import examples


@examples(40)
@given(st.integers(0, 2**32), st.sampled_from(WITHOUT_FLEET), st.booleans())
def test_no_proved_packing_surpasses_what_is_counted(seed, objective, headroom):
    problem = replace(draw_problem(seed, nodes=3, classes=5, ruled=False, headroom=headroom), objective=objective)
    packing = pack(problem, SolveBudget(work_units=2e7), lambda packing: None)
    key, bound = packing.planned.get_key(objective), compute_counting_bound(problem)
    assert len(key) == len(bound)
    assert all(value <= most for value, most in zip(key, bound, strict=True))
    if objective is PackingObjective.OPERATOR and (packing.pod_node >= 0).all():
        assert packing.planned.eviction_weight >= compute_min_evictions(problem)


def test_a_pod_that_fits_nowhere_costs_an_eviction_and_one_that_fits_costs_none():
    problem = replace(
        draw_problem(3, nodes=2, classes=2, ruled=False, headroom=False),
        capacities=np.array([[10, 10, 9], [10, 10, 9]]),
        demands=np.array([[6, 6, 1], [5, 5, 1]]),
        movable=np.ones(2, dtype=np.bool_),
        weights=np.array([3, 3]),
        allowed_nodes=np.ones((2, 2), dtype=np.bool_),
        pod_class=np.array([0, 1, 1, 1]),
        pod_node=np.array([-1, 0, 1, -1]),
    )
    assert compute_min_evictions(problem) == 3
    assert compute_min_evictions(replace(problem, pod_node=np.array([0, 1, 1, 0]))) == 0


def known(key, bound, most=(9, 9, 9, 9)):
    found = BestKnown(key, most)
    assert found.update_bound(key, bound)
    return found


def test_a_bound_holds_next_to_a_better_assignment_up_to_where_that_is_worse():
    for key, bound in (((5, 4, 1, 2), (6, 4, 1, 3)), ((5, 3, 2, 1), (6, 4, 9, 9))):
        one = known((4, 4, 1, 1), (6, 4, 1, 3))
        one.set_key(key)
        assert (one.key, one.bound) == (key, bound)


def test_a_bound_proved_with_another_key_holds_up_to_the_first_entry_that_differs():
    one = known((4, 4, 1, 1), (6, 5, 5, 5))
    assert one.update_bound((4, 3, 9, 9), (5, 4, 1, 1))
    assert one.bound == (5, 4, 5, 5)
    assert not one.update_bound((4, 3, 9, 9), (6, 6, 0, 0))
    assert not one.is_proved
    assert one.update_bound((4, 4, 1, 1), (4, 4, 1, 1))
    assert one.is_proved


def test_next_to_a_worse_assignment_bounds_hold_up_to_where_it_is_worse():
    problem = replace(draw_problem(7, nodes=3, classes=3), objective=PackingObjective.PAPER)
    packing = build_packing(problem, problem.pod_node, compute_counting_bound(problem))
    proved = replace(packing, bound=packing.planned.get_key(PackingObjective.PAPER))
    worse = problem.pod_node.copy()
    worse[np.flatnonzero(worse >= 0)[0]] = -1
    said = build_alternative_packing(problem, proved, worse, ())
    falls = next(
        entry for entry, value in enumerate(said.planned.get_key(PackingObjective.PAPER)) if value < proved.bound[entry]
    )
    assert said.bound == (*proved.bound[: falls + 1], *compute_counting_bound(problem)[falls + 1 :])
