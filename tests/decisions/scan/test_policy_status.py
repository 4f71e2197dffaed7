"""The status of policies: what is counted, and which policies contradict each other."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from cruise.decisions.pod_policy.policy_objects import PolicyIndex, get_specificity
from cruise.decisions.scan.policy_status import PolicyProblems, find_policy_problems, summarize_policies
from cruise.domain.actions import ReasonCode, SkippedPod
from cruise.domain.annotations import Overrides, UnreadableAnnotations
from cruise.domain.cluster import ClusterSnapshot, Pod, Workload, WorkloadRef
from cruise.domain.overrides import format_settings, parse_overrides
from cruise.domain.resources import MEBIBYTE, Resources
from cruise.domain.rightsizing_policies import PolicyConflict, PolicyStatus, RightsizingPolicy
from tests.builders import make_amounts, make_pod
from tests.decisions.pod_policy.test_policy_objects import (
    KINDS,
    LABELS,
    NAMES,
    NAMESPACES,
    label,
    policies,
    policy,
    world,
)

WEB = make_pod("web-1"), make_pod("web-2")
DB = make_pod("db-1", workload="StatefulSet/db")
STATED = "cpu-min", "cpu-max"


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


def test_a_policy_that_exceeds_the_maximum_of_the_cluster_is_told_so_and_the_clusters_own_is_not():
    policies = (
        policy("app", "shop", {"cpu-max.app": "4", "memory-max": "1Gi"}, names=frozenset({"web"})),
        policy("least", "shop", {"cpu-min": "3"}),
        policy("limit", "", {"cpu-max": "2", "memory-max": "2Gi"}),
        policy("wide", "", {"cpu-max": "8"}, kinds=frozenset({"StatefulSet"})),
    )
    found = summarize_policies(world(*policies, pods=(*WEB, DB)), (), {})
    limit = policies[2].title
    assert found["shop", "app"].conflicts == (
        PolicyConflict(limit, limit, ("cpu-max.app",), "Deployment/web", is_maximum=True),
    )
    # The StatefulSet has a larger maximum.
    assert found["shop", "least"].conflicts == (
        PolicyConflict(limit, limit, ("cpu-min",), "Deployment/web", is_maximum=True),
    )
    assert not found["", "limit"].conflicts
    assert find_policy_problems(world(*policies, pods=WEB)).conflicting == policies[:2]


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


@st.composite
def worlds(draw: st.DrawFn) -> ClusterSnapshot:
    """Policies, some of which contradict each other, and pods of few workloads, in any order."""
    found = []
    for one in draw(policies()):
        # In one order, so that the same draws give the same policies.
        names = sorted(draw(st.sets(st.sampled_from(STATED))))
        stated = {f"cruise.io/{key}": draw(st.sampled_from(("1", "2"))) for key in names}
        found.append(replace(one, overrides=parse_overrides(stated)))
    pods = [
        make_pod(
            f"pod-{number}",
            draw(st.sampled_from(tuple(NAMESPACES))),
            workload=f"{draw(st.sampled_from(KINDS))}/{draw(st.sampled_from(NAMES))}",
            labels=draw(st.sampled_from(LABELS)),
        )
        for number in range(draw(st.integers(0, 12)))
    ]
    return world(*found, pods=tuple(pods))


def count_each_pod(snapshot: ClusterSnapshot, skipped: Collection[SkippedPod]) -> dict[tuple[str, str], PolicyStatus]:
    """The plain rule: each pod is counted, and its policies are compared, by itself."""
    index, reasons = PolicyIndex(snapshot), {pod.key: pod.reason.value for pod in skipped}
    found = {}
    for one in snapshot.rightsizing_policies:
        pods = [pod for pod in snapshot.pods if one in index.find_for_pod(pod).policies]
        counts = Counter(reasons.get((pod.namespace, pod.name)) for pod in pods)
        conflicts: dict[str, PolicyConflict] = {}
        for pod in pods:
            for conflict in compare(one, index.find_for_pod(pod).policies, pod):
                conflicts.setdefault(conflict.policy, conflict)
        found[one.key] = PolicyStatus(
            one.generation,
            len({(pod.namespace, pod.workload) for pod in pods}),
            counts[None],
            {reason: number for reason, number in counts.items() if reason is not None},
            conflicts=tuple(conflicts[title] for title in sorted(conflicts)),
            problem=one.overrides.detail if isinstance(one.overrides, UnreadableAnnotations) else "",
        )
    return found


def compare(policy: RightsizingPolicy, applied: Sequence[RightsizingPolicy], pod: Pod) -> Iterator[PolicyConflict]:
    def rank(one: RightsizingPolicy) -> tuple[object, ...]:
        return one.namespace, get_specificity(one, pod.workload)

    def stated(one: RightsizingPolicy) -> Mapping[str, str]:
        return format_settings(one.overrides) if isinstance(one.overrides, Overrides) else {}

    at = applied.index(policy)
    for place, other in enumerate(applied):
        if place == at or rank(other) != rank(policy):
            continue
        decided = {name for one in applied[: min(place, at)] for name in stated(one)}
        both = stated(policy).keys() & stated(other).keys() - decided
        differing = tuple(sorted(name for name in both if stated(policy)[name] != stated(other)[name]))
        if differing:
            yield PolicyConflict(other.title, applied[min(place, at)].title, differing, str(pod.workload))
    of_cluster = [one for one in applied if not one.namespace and "cpu-max" in stated(one)]
    decided = {name for one in applied[:at] for name in stated(one)}
    if policy.namespace and of_cluster:
        limit, own = stated(of_cluster[0])["cpu-max"], stated(policy)
        above = tuple(name for name in ("cpu-max", "cpu-min") if own.get(name, "") > limit and name not in decided)
        if above:
            title = of_cluster[0].title
            yield PolicyConflict(title, title, above, str(pod.workload), is_maximum=True)


@given(worlds(), st.data())
def test_pods_counted_together_are_those_counted_one_by_one(snapshot: ClusterSnapshot, data: st.DataObject):
    reasons = st.sampled_from((ReasonCode.NO_STATISTICS, ReasonCode.STALE_STATISTICS))
    names = data.draw(st.lists(st.sampled_from(snapshot.pods), unique_by=lambda pod: pod.name)) if snapshot.pods else []
    skipped = [SkippedPod(pod.namespace, pod.name, data.draw(reasons)) for pod in names]
    assert summarize_policies(snapshot, skipped, {}) == count_each_pod(snapshot, skipped)
