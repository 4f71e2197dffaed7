"""The status of policies: what is counted, and which policies contradict each other."""

from dataclasses import replace

from cruise.decisions.scan.policy_status import PolicyProblems, find_policy_problems, summarize_policies
from cruise.domain.actions import ReasonCode, SkippedPod
from cruise.domain.annotations import UnreadableAnnotations
from cruise.domain.cluster import Workload, WorkloadRef
from cruise.domain.resources import MEBIBYTE, Resources
from cruise.domain.rightsizing_policies import PolicyConflict, PolicyStatus, RightsizingPolicy
from tests.builders import make_amounts, make_pod
from tests.decisions.pod_policy.test_policy_objects import label, policy, world

WEB = make_pod("web-1"), make_pod("web-2")
DB = make_pod("db-1", workload="StatefulSet/db")


def test_pods_are_counted_for_every_policy_that_applies_to_them():
    snapshot = world(
        replace(policy("all", "shop"), generation=3),
        policy("db", "shop", kinds=frozenset({"StatefulSet"})),
        policy("none", "blog"),
        policy("cluster"),
        pods=(*WEB, DB, make_pod("new-1", node=None), make_pod("old-1", phase="Succeeded")),
    )
    skipped = [SkippedPod("shop", "db-1", ReasonCode.NO_STATISTICS)]
    originals = {WEB[0].uid: {"app": (make_amounts(700, 512), make_amounts())}}
    now = WEB[0].containers[0].requests
    assert now.cpu_millicores is not None
    assert now.memory_bytes is not None
    saved = Resources(700 - now.cpu_millicores, 512 * MEBIBYTE - now.memory_bytes)
    found = summarize_policies(snapshot, skipped, originals)
    assert found["shop", "all"] == PolicyStatus(3, 2, 2, {"no-statistics": 1}, saved)
    assert found["shop", "db"] == PolicyStatus(0, 1, 0, {"no-statistics": 1})
    assert found["blog", "none"] == PolicyStatus(0)
    assert found["", "cluster"] == PolicyStatus(0, 2, 2, {"no-statistics": 1}, saved)


def test_equally_specific_policies_that_differ_are_shown_at_both_with_the_one_that_applies():
    first = policy("a", "shop", {"cpu-max": "1", "direction": "grow"}, names=frozenset({"web"}))
    second = policy("b", "shop", {"cpu-max": "2", "direction": "grow"}, names=frozenset({"web", "db"}))
    found = summarize_policies(world(first, second, pods=(*WEB, DB)), (), {})
    assert found["shop", "a"].conflicts == (PolicyConflict(second.title, first.title, ("cpu-max",), "Deployment/web"),)
    assert found["shop", "b"].conflicts == (PolicyConflict(first.title, first.title, ("cpu-max",), "Deployment/web"),)


def test_of_modes_the_lower_one_wins_a_conflict():
    bold, cautious = policy("a", "shop", {"mode": "full"}), policy("b", "shop", {"mode": "observe"})
    found = summarize_policies(world(bold, cautious, pods=WEB), (), {})
    [conflict] = found["shop", "a"].conflicts
    assert (conflict.policy, conflict.winner, conflict.settings) == (cautious.title, cautious.title, ("mode",))


def test_what_a_more_specific_policy_states_and_what_is_equal_are_no_conflicts():
    policies = (
        policy("web", "shop", {"cpu-max": "1"}, names=frozenset({"web"})),
        policy("x", "shop", {"cpu-max": "2", "memory-max": "1Gi"}),
        policy("y", "shop", {"cpu-max": "3", "memory-max": "1Gi"}),
        policy("z", "", {"cpu-max": "4"}),
    )
    found = summarize_policies(world(*policies, pods=WEB), (), {})
    assert [one.conflicts for one in found.values()] == [()] * len(policies)
    assert len(summarize_policies(world(*policies, pods=(*WEB, DB)), (), {})["shop", "x"].conflicts) == 1


def test_a_policy_that_cannot_be_read_says_why():
    broken = RightsizingPolicy("shop", "broken", overrides=UnreadableAnnotations("spec.mode: is wrong"))
    found = summarize_policies(world(broken, policy("all", "shop", {"mode": "off"}), pods=WEB), (), {})
    assert found["shop", "broken"].problem == "spec.mode: is wrong"
    assert found["shop", "broken"].conflicts == ()


def test_a_policy_that_selects_nothing_is_found_but_not_one_whose_workload_has_no_pods_now():
    policies = (
        policy("web", "shop", names=frozenset({"web"})),
        policy("wbe", "shop", names=frozenset({"wbe"})),
        policy("nowhere", "blog"),
        policy("nightly", "shop", names=frozenset({"nightly"}), pod_labels=label("app", "nightly")),
        policy("everything"),
        policy("elsewhere", "", namespaces=frozenset({"blog"})),
    )
    nightly = WorkloadRef("CronJob", "nightly")
    snapshot = world(*policies, pods=WEB)
    snapshot = replace(snapshot, workloads={("shop", nightly): Workload("shop", nightly)})
    unmatched = find_policy_problems(snapshot).unmatched
    assert [one.name for one in unmatched] == ["elsewhere", "nowhere", "wbe"]
    assert find_policy_problems(world(pods=WEB)) == PolicyProblems()


def test_small_changes_of_what_is_saved_are_not_worth_a_write():
    status = PolicyStatus(1, 2, 3, {"no-statistics": 1}, Resources(10_000, 4096 * MEBIBYTE))
    assert not status.differs(replace(status, saved=Resources(10_400, 4200 * MEBIBYTE)))
    assert status.differs(replace(status, saved=Resources(11_000, 4096 * MEBIBYTE)))
    assert status.differs(replace(status, saved=Resources(10_000, 3000 * MEBIBYTE)))
    assert status.differs(replace(status, sized_pods=4))
    assert status.differs(None)
