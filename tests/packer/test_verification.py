"""The verification of assignments: each rule broken alone, and cases that only look like violations."""

from dataclasses import replace

import numpy as np
import pytest

from cruise.packer.problem import (
    AttractionRule,
    EvictionLimit,
    ExclusionRule,
    PackingObjective,
    PackingProblem,
    PlacementRules,
    SpreadRule,
)
from cruise.packer.verification import find_rule_violations


def classes(*numbers: int) -> np.ndarray:
    return np.array(numbers, dtype=np.int64)


# Three classes of one pod of 4 each, and one more of the first; two zones of a node, and a node without a zone.
TOPOLOGIES = np.array([[0, 1, 2], [0, 1, -1]])
PLAIN = PackingProblem(
    resources=("cpu",),
    capacities=np.array([[10], [10], [10]]),
    demands=np.array([[4], [4], [4]]),
    headroom=np.zeros((3, 1), dtype=np.int64),
    priorities=np.zeros(3, dtype=np.int64),
    movable=np.ones(3, dtype=np.bool_),
    preemptible=np.ones(3, dtype=np.bool_),
    preempt=np.ones(3, dtype=np.bool_),
    weights=np.ones(3, dtype=np.int64),
    max_on_node=np.full(3, 9, dtype=np.int64),
    node_mask_of_class=np.zeros(3, dtype=np.int64),
    allowed_nodes=np.ones((1, 3), dtype=np.bool_),
    pod_class=np.array([0, 0, 1, 2]),
    pod_node=np.array([0, -1, -1, -1]),
    rules=PlacementRules(TOPOLOGIES),
    objective=PackingObjective.OPERATOR,
)


def ruled(*, pod_node: list[int] | None = None, **rules: object) -> PackingProblem:
    problem = replace(PLAIN, rules=PlacementRules(TOPOLOGIES, **rules))  # type: ignore[arg-type]
    return problem if pod_node is None else replace(problem, pod_node=np.array(pod_node))


# Two that come first in the second zone, and one that then finds another's company in the first.
SEVERAL = replace(PLAIN, pod_class=np.array([1, 1, 1, 2]), pod_node=np.full(4, -1))
EVERYWHERE = np.ones(3, dtype=np.bool_)
SELF = AttractionRule((1,), 1, classes(1, 2))
BESIDE = np.array([0, -1, -1, 1])


@pytest.mark.parametrize(
    ("problem", "pod_node"),
    [
        (replace(PLAIN, movable=np.zeros(3, dtype=np.bool_)), [1, -1, -1, -1]),
        (replace(PLAIN, preemptible=np.zeros(3, dtype=np.bool_)), [-1, -1, -1, -1]),
        (replace(PLAIN, allowed_nodes=np.array([[True, False, True]])), [0, 1, -1, -1]),
        (replace(PLAIN, max_on_node=np.full(3, 1)), [0, 0, -1, -1]),
        (replace(PLAIN, preempt=np.array([True, False, True])), [-1, -1, 0, -1]),
        (PLAIN, [0, 0, 0, -1]),
        (replace(PLAIN, headroom=np.array([[1], [3], [1]])), [0, -1, 0, -1]),
        (ruled(eviction_limits=(EvictionLimit("none", classes(0), 0),)), [1, -1, -1, -1]),
        (ruled(max_evicted_by_node=np.array([0, 9, 9])), [1, -1, -1, -1]),
        (ruled(exclusions=(ExclusionRule(0, 0, classes(0)),)), [0, 0, -1, -1]),
        (ruled(exclusions=(ExclusionRule(1, 1, classes(0)),)), [0, -1, 0, -1]),
        (ruled(exclusions=(ExclusionRule(1, 0, classes(1)),)), [0, -1, 0, -1]),
        (ruled(attractions=(AttractionRule((1,), 1, classes(0)),)), [0, -1, 1, -1]),
        (ruled(attractions=(AttractionRule((1,), 1, classes(2)),)), [0, -1, 1, -1]),
        (ruled(attractions=(AttractionRule((1,), 1, classes(2)), AttractionRule((1,), 2, classes(1)))), [0, -1, 1, 1]),
        (ruled(attractions=(SELF,)), [0, -1, 2, -1]),
        (ruled(pod_node=[0, -1, -1, 0], attractions=(SELF,)), [0, -1, 1, 0]),
        # The first one is kept away in the end by a target elsewhere, whichever came before.
        (ruled(attractions=(SELF,)), [0, -1, 1, 0]),
        # Once that one has left, the other is alone.
        (replace(ruled(attractions=(SELF,)), pod_class=np.array([1, 1, 1, 2]), pod_node=BESIDE), [-1, 0, -1, 1]),
        (ruled(spreads=(SpreadRule(1, 0, classes(0), 1, 0, EVERYWHERE),)), [0, 0, -1, -1]),
        (ruled(spreads=(SpreadRule(1, 1, classes(1), 1, 0, EVERYWHERE),)), [0, -1, 2, -1]),
    ],
)
def test_a_breach_is_found(problem, pod_node):
    assert len(find_rule_violations(problem, np.array(pod_node))) == 1


@pytest.mark.parametrize(
    ("problem", "pod_node"),
    [
        (PLAIN, [0, 0, 1, 2]),
        (replace(PLAIN, capacities=np.array([[3], [10], [10]])), [0, 1, 1, -1]),
        (ruled(exclusions=(ExclusionRule(1, 1, classes(0)),)), [0, -1, 2, -1]),
        (ruled(attractions=(AttractionRule((1,), 1, classes(0)),)), [0, -1, 0, -1]),
        (ruled(attractions=(SELF,)), [0, -1, 1, -1]),
        # Who is in no domain does not keep the first one away.
        (ruled(pod_node=[0, -1, -1, 2], attractions=(SELF,)), [0, -1, 1, 2]),
        (ruled(attractions=(SELF,)), [0, -1, 1, 1]),
        # Who leaves kept company until then, though another target is elsewhere.
        (replace(ruled(attractions=(SELF,)), pod_class=np.array([1, 1, 1, 2]), pod_node=BESIDE), [-1, 0, 0, 1]),
        (ruled(spreads=(SpreadRule(1, 0, classes(0), 1, 0, EVERYWHERE),)), [0, 1, -1, -1]),
        (ruled(eviction_limits=(EvictionLimit("one", classes(0), 1),)), [1, -1, -1, -1]),
    ],
)
def test_an_assignment_that_obeys_every_rule_has_no_violations(problem, pod_node):
    assert find_rule_violations(problem, np.array(pod_node)) == ()


def test_the_pod_that_has_to_be_first_may_be_any():
    problem = replace(SEVERAL, rules=PlacementRules(TOPOLOGIES, attractions=(SELF,)))
    for alone in range(3):
        pod_node = np.array([1, 1, 1, 0])
        pod_node[alone] = 0
        assert find_rule_violations(problem, pod_node) == ()
