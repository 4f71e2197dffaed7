"""Affinity between arriving pods: no group may consist of pods that only refer to each other."""

import math
from dataclasses import replace

import numpy as np

from cruise.packer.answer import Packing, PackingNote, PackingNoteCode
from cruise.packer.budget import BudgetMeter
from cruise.packer.exact.model import solve_exact
from cruise.packer.problem import AttractionRule, PackingObjective, PackingProblem, PlacementRules
from tests.decisions.packing.reports import ignore

ZONES = [0, 0, 1]


def placed(
    attractions: list[AttractionRule], pod_class: list[int], pod_node: list[int], zones: list[int] = ZONES
) -> int:
    """How many pods get a place where room is no matter."""
    packing = packed(attractions, pod_class, pod_node, zones)
    assert packing.planned.get_key(PackingObjective.PAPER) == packing.bound
    return int((packing.pod_node >= 0).sum())


def packed(
    attractions: list[AttractionRule],
    pod_class: list[int],
    pod_node: list[int],
    zones: list[int],
    **more: object,
) -> Packing:
    """The packing with unlimited capacity, in which no pod is evicted unless a test says so."""
    classes = max(pod_class) + 1
    problem = PackingProblem(
        resources=("cpu",),
        capacities=np.full((len(zones), 1), 100),
        demands=np.ones((classes, 1), dtype=np.int64),
        headroom=np.zeros((classes, 1), dtype=np.int64),
        priorities=np.zeros(classes, dtype=np.int64),
        movable=np.zeros(classes, dtype=np.bool_),
        preemptible=np.zeros(classes, dtype=np.bool_),
        preempt=np.ones(classes, dtype=np.bool_),
        weights=np.ones(classes, dtype=np.int64),
        max_on_node=np.full(classes, 100),
        node_mask_of_class=np.zeros(classes, dtype=np.int64),
        allowed_nodes=np.array([[zone != 9 for zone in zones]]),
        pod_class=np.array(pod_class),
        pod_node=np.array(pod_node),
        rules=PlacementRules(np.array([[-1 if zone == 9 else zone for zone in zones]]), attractions=tuple(attractions)),
    )
    problem = replace(problem, **more)  # type: ignore[arg-type]
    return solve_exact(problem, problem.pod_node, BudgetMeter(math.inf, math.inf), ignore)


def want(holder: int, *targets: int) -> AttractionRule:
    return AttractionRule((0,), holder, np.array(targets))


def test_two_classes_that_want_each_other_cannot_begin():
    assert placed([want(0, 1), want(1, 0)], [0, 1], [-1, -1]) == 0


def test_they_follow_one_that_is_there():
    assert placed([want(0, 1), want(1, 0)], [0, 1, 1], [-1, -1, 2]) == 3


def test_a_chain_of_affinities_begins_with_a_pod_without_affinity():
    assert placed([want(0, 1), want(1, 2)], [0, 1, 2], [-1, -1, -1]) == 3


def test_the_first_of_its_kind_may_begin_and_others_follow():
    assert placed([want(0, 0)], [0, 0, 0], [-1, -1, -1]) == 3


def test_a_pod_with_affinity_to_its_own_or_another_group_precedes_the_other():
    assert placed([want(0, 0, 1)], [0, 1], [-1, -1]) == 2


def test_a_first_one_that_needs_a_target_before_itself_cannot_be_first():
    assert placed([want(0, 0, 1), want(0, 2), want(2, 1)], [0, 1, 2], [-1, -1, -1], [0, 1]) == 3
    assert placed([want(0, 0, 1), want(0, 2), want(2, 0)], [0, 2, 1], [-1, -1, -1], [0, 1]) == 1


def test_a_pod_on_a_node_without_the_label_does_not_prevent_a_first_pod():
    assert placed([want(0, 0)], [0, 0], [1, -1], [0, 9]) == 2


def test_an_evicted_pod_meets_affinities_until_it_is_gone():
    # Of three in the first zone, where two fit, the running one with the least weight is evicted; another one stays.
    classes = [0, 0, 1, 2]
    anyone = [AttractionRule((0,), 0, np.array([0, 1, 2]))]
    packing = packed(
        anyone,
        classes,
        [-1, -1, 0, 1],
        [0, 1],
        capacities=np.array([[2], [1]]),
        priorities=np.array([1, 0, 1]),
        movable=np.array([True, True, False]),
        preemptible=np.array([True, True, False]),
    )
    assert packing.pod_node.tolist() == [0, 0, -1, 1]
    assert packing.planned.get_key(PackingObjective.PAPER) == packing.bound


def test_a_pod_that_could_be_evicted_and_return_ends_the_proof():
    # Two begin their group in the second zone only while the one in the first is away.
    packing = packed(
        [AttractionRule((0,), 0, np.array([0, 1]))],
        [0, 0, 1],
        [-1, -1, 0],
        [0, 1],
        movable=np.array([True, True]),
        preemptible=np.array([True, True]),
        node_mask_of_class=np.array([1, 0]),
        allowed_nodes=np.array([[True, False], [False, True]]),
    )
    assert packing.planned.priorities[0].placed == 2
    assert packing.bound == (3, 0)
    assert packing.notes == (PackingNote(PackingNoteCode.OTHER_ORDERS),)
