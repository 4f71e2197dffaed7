"""An evicted pod satisfies the affinity of a pod that arrives earlier, unless they exclude each other."""

from dataclasses import replace

import numpy as np

from cruise.packer.problem import AttractionRule, ExclusionRule, PackingProblem, PlacementRules
from cruise.packer.rules.by_class import build_rules_by_class
from cruise.packer.rules.preemption import LeavingPods
from tests.packer.test_verification import PLAIN, TOPOLOGIES, classes

NEAR = AttractionRule((1,), 1, classes(0, 1))


def gives_company(problem: PackingProblem, home: int = -1) -> list[bool]:
    """Where one of class 1 may follow what runs on the first node, alone in its zone."""
    leavers = LeavingPods(problem, build_rules_by_class(problem))
    return [leavers.find_supporting_targets(NEAR, 1, node, home) for node in range(3)]


def test_it_does_in_its_domain():
    assert gives_company(PLAIN) == [True, False, False]


def test_it_does_not_if_a_rule_separates_the_two():
    rules = PlacementRules(TOPOLOGIES, exclusions=(ExclusionRule(1, 0, classes(1)),))
    assert gives_company(replace(PLAIN, rules=rules)) == [False, False, False]


def test_it_does_not_where_the_node_holds_one_of_the_two_alone():
    assert gives_company(replace(PLAIN, capacities=np.array([[7], [10], [10]]))) == [False, False, False]


def test_no_pod_is_its_own_affinity_peer():
    problem = replace(PLAIN, pod_class=np.array([1, 0, 1, 2]))
    assert gives_company(problem) == [True, False, False]
    assert gives_company(problem, home=0) == [False, False, False]
