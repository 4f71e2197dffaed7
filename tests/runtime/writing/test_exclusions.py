from dataclasses import replace
from datetime import timedelta

from cruise.decisions.packing.execution import Subjects
from cruise.domain.actions import Reason
from cruise.runtime.writing.exclusions import Exclusions
from tests.runtime.writing.test_grows import grow
from tests.simulation.scenes import START

FIVE_MINUTES = timedelta(minutes=5)


def by_a_node_pass(name):
    return replace(grow(name), reason=Reason.RIGHTSIZED)


def test_a_pod_is_excluded_until_its_cool_down_is_over():
    exclusions = Exclusions()
    exclusions.cool_down("uid-a", START + FIVE_MINUTES, START)
    a, b = by_a_node_pass("a"), by_a_node_pass("b")
    assert exclusions.why_excluded(a, START + timedelta(minutes=4)) is Reason.COOLING_DOWN
    assert exclusions.why_excluded(a, START + FIVE_MINUTES) is None
    assert exclusions.why_excluded(b, START) is None


def test_nodes_and_pods_of_a_plan_are_excluded_until_it_lets_them_go():
    exclusions = Exclusions()
    a, b, elsewhere = by_a_node_pass("a"), by_a_node_pass("b"), replace(by_a_node_pass("c"), node="n2")
    exclusions.reserved = Subjects(frozenset({"n2"}), frozenset({"uid-a"}))
    assert [exclusions.why_excluded(one, START) for one in (a, b, elsewhere)] == [Reason.PACKING, None, Reason.PACKING]
    exclusions.reserved = Subjects()
    assert [exclusions.why_excluded(one, START) for one in (a, b, elsewhere)] == [None, None, None]


def test_only_what_a_node_pass_does_of_its_own_accord_is_excluded():
    exclusions = Exclusions()
    exclusions.cool_down("uid-a", START + FIVE_MINUTES, START)
    exclusions.reserved = Subjects(frozenset({"n1"}))
    for reason in (Reason.WITHDRAWN, Reason.OOM_KILLED, Reason.PACKED, Reason.REVERTED):
        assert exclusions.why_excluded(replace(by_a_node_pass("a"), reason=reason), START) is None
