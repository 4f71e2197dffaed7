"""The packer as a whole: valid, never worse than now, reproducible, with correct bounds."""

from dataclasses import replace

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from benchmarks.unlike_clusters import ClusterDrawing, FullCluster, draw_full
from cruise.packer.answer import Packing, PackingNote, PackingNoteCode
from cruise.packer.budget import SolveBudget
from cruise.packer.greedy import pack_quickly
from cruise.packer.pack import pack
from cruise.packer.problem import AttractionRule, PackingObjective, PackingProblem, PlacementRules
from cruise.packer.verification import find_rule_violations
from tests.packer.drawn_problems import draw_problem
from tests.tiers import examples

WORK = 2e7


def packed(problem):
    reported: list[Packing] = []
    packing = pack(problem, SolveBudget(work_units=WORK), reported.append)
    return packing, reported


@examples(25)
@example(61019, True, False)
@given(st.integers(0, 2**32), st.booleans(), st.booleans())
def test_each_report_is_better_and_the_answer_obeys_every_rule(seed, ruled, headroom):
    problem = draw_problem(seed, nodes=4, classes=6, ruled=ruled, headroom=headroom)
    packing, reported = packed(problem)
    keys = [k.planned.get_key(problem.objective) for k in reported]
    assert keys == sorted(keys)
    assert packing.planned.get_key(problem.objective) == keys[-1]
    assert find_rule_violations(problem, packing.pod_node) == ()
    assert packing.planned.get_key(problem.objective) >= pack_quickly(problem).planned.get_key(problem.objective)
    for one in reported:
        assert all(value <= most for value, most in zip(one.planned.get_key(problem.objective), one.bound, strict=True))
    assert set(packing.notes) <= {PackingNote(PackingNoteCode.OTHER_ORDERS)}


@examples(10)
@given(st.integers(0, 2**32), st.booleans())
def test_the_same_work_gives_the_same_packing(seed, ruled):
    problem = draw_problem(seed, nodes=4, classes=6, ruled=ruled)
    one, two = packed(problem)[0], packed(problem)[0]
    assert (one.pod_node == two.pod_node).all()
    assert one.bound == two.bound


@examples(25)
@given(st.integers(0, 2**32), st.booleans())
def test_what_is_said_to_need_evictions_places_less_without(seed, ruled):
    problem = replace(draw_problem(seed, nodes=4, classes=6, ruled=ruled), objective=PackingObjective.OPERATOR)
    rooted, _ = packed(replace(problem, movable=np.zeros_like(problem.movable)))
    for packing in packed(problem)[1]:
        if packing.needs_evictions:
            assert (
                rooted.planned.get_key(PackingObjective.OPERATOR)[:-1]
                < packing.planned.get_key(PackingObjective.OPERATOR)[:-1]
            )


def test_a_bound_on_assignments_as_good_as_the_best_ends_with_it():
    # A better packing has one more of the higher priority and evicts one of it: then two of the lower find a place,
    # where at most one fits next to four that stay.
    problem = PackingProblem(
        resources=("cpu", "memory", "pods"),
        capacities=np.array([[700, 694, 110], [700, 1056, 110], [600, 698, 110], [600, 682, 110], [600, 903, 110]]),
        demands=np.array([[400, 500, 1], [200, 300, 1], [300, 500, 1], [200, 200, 1]]),
        headroom=np.zeros((4, 3), dtype=np.int64),
        priorities=np.array([0, 100, 0, 100]),
        movable=np.array([True, True, False, False]),
        preemptible=np.array([True, False, False, False]),
        preempt=np.array([True, True, True, False]),
        weights=np.ones(4, dtype=np.int64),
        max_on_node=np.full(4, 10),
        node_mask_of_class=np.array([2, 1, 0, 3]),
        allowed_nodes=np.array(
            [[False] * 5, [True] * 4 + [False], [True, False, True, True, False], [True, False, True, False, False]]
        ),
        pod_class=np.array([0, 0, 0, 1, 1, 1, 1, 2, 3, 3]),
        pod_node=np.array([-1, -1, -1, 0, 1, 1, 2, 3, -1, -1]),
        rules=PlacementRules(np.zeros((1, 5), dtype=np.int64), attractions=(AttractionRule((0,), 3, np.array([0])),)),
    )
    packing = pack(problem, SolveBudget(work_units=1e9), lambda _: None)
    assert packing.planned.get_key(PackingObjective.PAPER) == packing.bound == (5, 3, 2, 1)


def test_no_eviction_where_the_pending_fit_without():
    problem = replace(
        draw_problem(5, nodes=2, classes=3, ruled=False, headroom=False),
        capacities=np.array([[10, 10, 9], [10, 10, 9]]),
        demands=np.array([[4, 4, 1], [6, 6, 1], [5, 5, 1]]),
        priorities=np.array([0, 0, 0]),
        movable=np.ones(3, dtype=np.bool_),
        preemptible=np.zeros(3, dtype=np.bool_),
        preempt=np.ones(3, dtype=np.bool_),
        allowed_nodes=np.ones((2, 2), dtype=np.bool_),
        max_on_node=np.array([9, 9, 9]),
        pod_class=np.array([0, 1, 2, 2]),
        pod_node=np.array([0, -1, -1, -1]),
        rules=PlacementRules(np.zeros((1, 2), dtype=np.int64)),
        objective=PackingObjective.OPERATOR,
    )
    packing, _ = packed(problem)
    assert packing.status == "optimal"
    assert packing.planned.get_key(PackingObjective.OPERATOR) == (4, 0)
    assert packing.pod_node[0] == 0


def test_on_full_nodes_with_budgets_all_that_fits_is_placed_within_little_work():
    problem = draw_full(FullCluster(ClusterDrawing.BIMODAL, 40), 1, PackingObjective.OPERATOR)
    packing = pack(problem, SolveBudget(work_units=1e9), lambda _: None)
    assert (packing.pod_node >= 0).all()
