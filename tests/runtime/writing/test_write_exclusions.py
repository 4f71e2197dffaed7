from dataclasses import replace
from datetime import timedelta

from cruise.decisions.packing.remaining_plan import PlanDependencies
from cruise.domain.actions import ReasonCode
from cruise.runtime.writing.evictions import WriteExclusions
from tests.runtime.writing.test_pending_growth import grow
from tests.simulation.scenes import START

FIVE_MINUTES = timedelta(minutes=5)


def by_a_node_pass(name):
    return replace(grow(name), reason=ReasonCode.RIGHTSIZED)


def test_a_pod_is_excluded_until_its_cool_down_is_over():
    exclusions = WriteExclusions()
    exclusions.add_cooldown("uid-a", START + FIVE_MINUTES, START)
    a, b = by_a_node_pass("a"), by_a_node_pass("b")
    assert exclusions.explain_exclusion(a, START + timedelta(minutes=4)) is ReasonCode.COOLDOWN
    assert exclusions.explain_exclusion(a, START + FIVE_MINUTES) is None
    assert exclusions.explain_exclusion(b, START) is None


def test_nodes_and_pods_of_a_plan_are_excluded_until_it_releases_them():
    exclusions = WriteExclusions()
    a, b, elsewhere = by_a_node_pass("a"), by_a_node_pass("b"), replace(by_a_node_pass("c"), node="n2")
    exclusions.reserved = PlanDependencies(frozenset({"n2"}), frozenset({"uid-a"}))
    assert [exclusions.explain_exclusion(one, START) for one in (a, b, elsewhere)] == [
        ReasonCode.PACKING_PLAN_ACTIVE,
        None,
        ReasonCode.PACKING_PLAN_ACTIVE,
    ]
    exclusions.reserved = PlanDependencies()
    assert [exclusions.explain_exclusion(one, START) for one in (a, b, elsewhere)] == [None, None, None]


def test_only_actions_that_a_node_pass_initiates_are_excluded():
    exclusions = WriteExclusions()
    exclusions.add_cooldown("uid-a", START + FIVE_MINUTES, START)
    exclusions.reserved = PlanDependencies(frozenset({"n1"}))
    for reason in (
        ReasonCode.WITHDRAWN,
        ReasonCode.OOM_KILLED,
        ReasonCode.FREED_CAPACITY_FOR_PENDING_PODS,
        ReasonCode.REVERTED,
    ):
        assert exclusions.explain_exclusion(replace(by_a_node_pass("a"), reason=reason), START) is None
