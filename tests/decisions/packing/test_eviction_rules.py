"""Which pods may be evicted, and what PodDisruptionBudgets allow."""

from dataclasses import replace

import pytest

from cruise.decisions.packing.eviction_rules import EvictionRules, find_exceeded_disruption_budgets
from cruise.domain.autoscalers import LimitRangeItem, ResourceQuota
from cruise.domain.cluster import ClusterSnapshot, Pod, VerticalPodAutoscaler
from cruise.domain.policy import Mode, Policy
from cruise.domain.resources import StatedResources
from cruise.domain.scheduling import (
    LabelRequirement,
    LabelSelector,
    PersistentVolumeClaim,
    PodConstraints,
    SelectorOperator,
    StorageAndNamespaces,
)
from tests.builders import NOW, make_budget, make_node, make_pod, make_ref, make_snapshot, make_workload

FULL = Policy(mode=Mode.FULL)


def why(pod: Pod, snapshot: ClusterSnapshot | None = None, policy: Policy = FULL) -> str | None:
    return EvictionRules(snapshot or make_snapshot([pod]), policy, {}).explain_not_evictable(pod)


def app(name: str) -> LabelSelector:
    return LabelSelector((LabelRequirement("app", SelectorOperator.IN, (name,)),))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, None),
        ({"phase": "Succeeded"}, "it ends by itself"),
        ({"terminating": True}, "it ends by itself"),
        ({"is_mirror_pod": True}, "no controller would start it elsewhere"),
        ({"workload": None}, "no controller would start it elsewhere"),
        ({"owner_kind": "DaemonSet"}, "no controller would start it elsewhere"),
        ({"namespace": "kube-system"}, "its mode is off"),
        ({"annotations": {"cruise.io/mode": "resize"}}, "its mode is resize"),
        ({"annotations": {"cruise.io/mode": "sideways"}}, "its mode is off"),
        ({"annotations": {"cruisekube.truefoundry.com/excluded": "true"}}, "its mode is off"),
        ({"annotations": {"cruise.io/eviction-ranking": "never"}}, "its ranking is never"),
        ({"annotations": {"cruise.io/eviction-ranking": "high"}}, None),
        (
            {"annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}},
            "its annotation cluster-autoscaler.kubernetes.io/safe-to-evict",
        ),
        ({"annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}}, None),
        ({"annotations": {"karpenter.sh/do-not-disrupt": "5m"}}, "its annotation karpenter.sh/do-not-disrupt"),
        ({"annotations": {"karpenter.sh/do-not-disrupt": "false"}}, None),
        ({"constraints": PodConstraints(claims=("data",))}, "its claim data: no claims are known"),
    ],
)
def test_pods_that_may_not_be_evicted(changes, reason):
    assert why(make_pod(**changes)) == reason


def test_a_pod_on_a_node_that_is_away_would_not_end():
    pod = make_pod()
    assert (
        why(pod, make_snapshot([pod], [make_node("n1", ready=False)])) == "its node is not ready, so it would not end"
    )


@pytest.mark.parametrize(("mode", "reason"), [("Auto", "another autoscaler sizes it"), ("Off", None)])
def test_pods_that_a_vpa_sizes_are_not_moved(mode, reason):
    pod = make_pod()
    assert pod.workload is not None
    rival = VerticalPodAutoscaler("shop", "rival", pod.workload, mode)
    assert why(pod, replace(make_snapshot([pod]), vertical_autoscalers=(rival,))) == reason


def test_more_than_one_disruption_budget_forbids_what_one_allows():
    pod = make_pod(labels={"app": "web"})
    one = make_snapshot([pod], budgets=[make_budget("one")])
    two = make_snapshot([pod], budgets=[make_budget("one"), make_budget("two", selector=app("web"))])
    elsewhere = make_snapshot([pod], budgets=[make_budget("one"), make_budget("two", namespace="bank")])
    assert why(pod, one) is None
    assert why(pod, two) == "more than one disruption budget covers it"
    assert why(pod, elsewhere) is None


def test_modes_and_rankings_of_the_workload_the_namespace_and_the_store_hold_as_well():
    pod = make_pod()
    never = {"cruise.io/eviction-ranking": "never"}
    workload = make_snapshot([pod], workloads=[make_workload(annotations=never)])
    namespace = make_snapshot([pod], namespace_annotations={"shop": {"cruise.io/mode": "observe"}})
    assert why(pod, workload) == "its ranking is never"
    assert why(pod, namespace) == "its mode is observe"
    assert why(pod, policy=Policy(mode=Mode.RESIZE)) == "its mode is resize"
    paused = {("shop", make_ref("Deployment/web")): NOW}
    assert EvictionRules(make_snapshot([pod]), FULL, paused).explain_not_evictable(pod) == "its mode is observe"


def test_a_replacement_that_the_server_would_refuse_keeps_its_pod_in_place():
    pod = make_pod()
    range_above = LimitRangeItem(is_for_pod=False, minimum=StatedResources(200, None))
    ranged = replace(make_snapshot([pod]), limit_ranges={"shop": (range_above,)})
    assert why(pod, ranged) == "a LimitRange would refuse its replacement"
    for left, reason in ((99, "a ResourceQuota would refuse its replacement"), (100, None)):
        quota = replace(
            make_snapshot([pod]), quotas={"shop": (ResourceQuota(requests_left=StatedResources(left, None)),)}
        )
        assert why(pod, quota) == reason


def test_a_claim_must_be_bound_or_wait_for_its_pod():
    pod = make_pod(constraints=PodConstraints(claims=("data",)))
    for claim, reason in (
        (PersistentVolumeClaim("shop", "data"), None),
        (PersistentVolumeClaim("shop", "data", bound=False, waits_for_first_consumer=True), None),
        (PersistentVolumeClaim("shop", "data", bound=False), "its claim data is not bound"),
    ):
        snapshot = replace(make_snapshot([pod]), storage_and_namespaces=StorageAndNamespaces({("shop", "data"): claim}))
        assert why(pod, snapshot) == reason


def test_budgets_hold_over_all_evicted_pods():
    web = [make_pod(f"web-{number}", labels={"app": "web"}) for number in range(3)]
    other = make_pod("db-1", workload="Deployment/db", labels={"app": "db"})
    snapshot = make_snapshot([*web, other], budgets=[make_budget("web", selector=app("web"), disruptions_allowed=2)])
    leaving = EvictionRules(snapshot, FULL, {})
    assert find_exceeded_disruption_budgets(leaving, [*web[:2], other]) == []
    assert find_exceeded_disruption_budgets(leaving, [*web, other]) == [
        "PodDisruptionBudget shop/web allows 2, the plan evicts 3"
    ]
