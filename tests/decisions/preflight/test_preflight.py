"""Each problem has a severity by mode and a fix."""

from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from cruise.decisions.preflight.preflight import decide_preflight, list_required_access
from cruise.decisions.sizing.headroom_level import ObservedRisk
from cruise.domain.annotations import Overrides, UnreadableAnnotations
from cruise.domain.autoscalers import LimitRangeItem, NodeAutoscalerKind, ResourceQuota
from cruise.domain.cluster import VerticalPodAutoscaler
from cruise.domain.heaps import HeapBound, HeapRuntime
from cruise.domain.policy import Mode
from cruise.domain.preflight import (
    AccessFacts,
    CheckItem,
    CheckLevel,
    HelmRelease,
    IgnoredExporter,
    PreflightFacts,
    PrometheusFacts,
    ServerFacts,
    StoreFacts,
    UsageFacts,
    WebhookFacts,
)
from cruise.domain.resources import MEBIBYTE, ResourceName
from cruise.domain.rightsizing_policies import RightsizingPolicy
from cruise.domain.scheduling import OVERLOADED_TAINT
from tests.builders import (
    NOW,
    make_amounts,
    make_autoscaler,
    make_budget,
    make_container,
    make_node,
    make_pod,
    make_ref,
    make_snapshot,
)

USAGE = UsageFacts(
    queried_containers=100,
    containers_with_cpu=100,
    containers_with_memory=99,
    samples_in_10_minutes=10,
    newest_at=NOW - timedelta(seconds=30),
    history_days=7,
    nodes=3,
    nodes_with_pressure=3,
    nodes_with_load=3,
)
NODES = [make_node(f"n{number}", kubelet_version=(1, 36)) for number in (1, 2, 3)]
TIGHT = make_pod(
    containers=[
        make_container(
            memory_limit_mib=256, heap=HeapBound(HeapRuntime.JVM, "-Xmx256m in args", fixed_bytes=256 * MEBIBYTE)
        )
    ]
)
WELL = PreflightFacts(
    server=ServerFacts("v1.36.3", resizes_pods=True, evicts_pods=True),
    access=AccessFacts("system:serviceaccount:cruise:cruise-serve", ()),
    snapshot=make_snapshot([make_pod()], NODES),
    prometheus=PrometheusFacts("http://prometheus:9090", is_set=True, usage=USAGE),
    store=StoreFacts("Postgres at db/cruise", is_embedded=False, revision="0003", expected_revision="0003"),
    webhook=WebhookFacts(present=True, published=True, trusts_certificate=True, expires_at=NOW + timedelta(days=20)),
)


def check(mode: Mode = Mode.FULL, **facts) -> list[CheckItem]:
    return decide_preflight(replace(WELL, **facts), mode, NOW)


def item(items: list[CheckItem], place: str) -> CheckItem:
    [found] = [one for one in items if f"{one.area}: {one.name}" == place]
    return found


def usage(**changes) -> dict[str, PrometheusFacts]:
    return {"prometheus": PrometheusFacts("http://prometheus:9090", True, replace(USAGE, **changes))}


def _policy(name: str, overrides: Overrides | UnreadableAnnotations | None = None) -> RightsizingPolicy:
    return RightsizingPolicy("shop", name, overrides=overrides or Overrides())


def in_cluster(**objects: Any) -> dict[str, Any]:
    return {"snapshot": make_snapshot([make_pod()], objects.pop("nodes", NODES), **objects)}


def beside(**parts: Any) -> dict[str, Any]:
    return {"snapshot": replace(in_cluster()["snapshot"], **parts)}


@pytest.mark.parametrize("mode", [mode for mode in Mode if mode is not Mode.OFF])
def test_where_all_is_well_every_item_is_ok(mode):
    items = check(mode)
    assert {one.level for one in items} == {CheckLevel.OK}
    assert [one.area for one in items] == sorted(
        (one.area for one in items), key=["cluster", "rights", "metrics", "database", "webhook", "objects"].index
    )


OLD = [make_node(f"n{number}", kubelet_version=(1, 32)) for number in (1, 2, 3)]
VPA = VerticalPodAutoscaler("shop", "web", make_ref("Deployment/web"), "InPlaceOrRecreate")
FIXED = LimitRangeItem(False, minimum=make_amounts(100), maximum=make_amounts(100))
RIGID = LimitRangeItem(False, max_memory_ratio=1.0)
TAINTED = replace(NODES[2], taints=(OVERLOADED_TAINT,))
O, W, R = CheckLevel.OK, CheckLevel.WARN, CheckLevel.RED  # noqa: E741 - a column each
CASES: dict[str, tuple[Any, str, tuple[CheckLevel, ...]]] = {
    "no resizes": ({"server": ServerFacts("v1.32.0", False, True)}, "cluster: resize", (W, W, R, R)),
    "all kubelets old": (in_cluster(nodes=OLD), "cluster: kubelets", (W, W, R, R)),
    "one kubelet old": (in_cluster(nodes=[*OLD[:1], *NODES[1:]]), "cluster: kubelets", (W, W, W, W)),
    "no nodes": (in_cluster(nodes=[]), "cluster: kubelets", (R, R, R, R)),
    "denied": (
        {"access": AccessFacts(None, list_required_access(Mode.FULL, "cruise")[:6])},
        "rights: RBAC",
        (R, R, R, R),
    ),
    "no answer": (
        {"prometheus": PrometheusFacts("http://x", True, problem="cannot be reached")},
        "metrics: prometheus",
        (R, R, R, R),
    ),
    "only found": ({"prometheus": PrometheusFacts("http://x", False, USAGE)}, "metrics: prometheus", (W, W, W, W)),
    "no cpu": (usage(containers_with_cpu=0), "metrics: cpu series", (R, R, R, R)),
    "other labels": (usage(containers_with_cpu=0, labels=("pod_name",)), "metrics: cpu series", (R, R, R, R)),
    "little memory": (usage(containers_with_memory=60), "metrics: memory series", (W, W, W, W)),
    "no node label": (usage(nodes_labelled=False), "metrics: node label", (W, W, W, W)),
    "late": (usage(newest_at=NOW - timedelta(minutes=5)), "metrics: freshness", (W, W, W, W)),
    "stale": (usage(newest_at=NOW - timedelta(minutes=11)), "metrics: freshness", (R, R, R, R)),
    "seldom": (usage(samples_in_10_minutes=3), "metrics: interval", (W, W, W, W)),
    "a day": (usage(history_days=1), "metrics: history", (W, W, W, W)),
    "nothing": (usage(history_days=0), "metrics: history", (R, R, R, R)),
    "no pressure": (usage(nodes_with_pressure=0), "metrics: pressure", (W, W, W, W)),
    "zero pressure": (usage(nodes_with_pressure=1, nodes_without_series=2), "metrics: pressure", (W, W, W, W)),
    "no load": (usage(nodes_with_load=1), "metrics: node load", (W, W, W, W)),
    "nothing runs": (
        usage(queried_containers=0, containers_with_cpu=0, containers_with_memory=0),
        "metrics: series",
        (W, W, W, W),
    ),
    "no database": ({"store": StoreFacts("db", False, problem="nothing listens")}, "database: postgres", (R, R, R, R)),
    "no policies": ({"access": AccessFacts("me", (), restricted_by_policy=False)}, "rights: policies", (O, W, W, W)),
    "policies": ({"access": AccessFacts("me", (), restricted_by_policy=True)}, "rights: policies", (O, O, O, O)),
    "any server": ({"store": StoreFacts("db", False, is_server_verified=False)}, "database: TLS", (W, W, W, W)),
    "embedded": ({"store": StoreFacts("under /x", True)}, "database: postgres", (O, W, W, W)),
    "older": (
        {"store": StoreFacts("db", False, revision="0002", expected_revision="0003")},
        "database: postgres",
        (W, W, W, W),
    ),
    "no webhook": ({"webhook": WebhookFacts(present=False)}, "webhook: registration", (O, R, R, R)),
    "no CA": ({"webhook": WebhookFacts(True, published=False)}, "webhook: certificate", (R, R, R, R)),
    "other CA": ({"webhook": WebhookFacts(True, True, trusts_certificate=False)}, "webhook: certificate", (R, R, R, R)),
    "unseen": ({"webhook": WebhookFacts(True, True, trusts_certificate=None)}, "webhook: certificate", (O, O, O, O)),
    "ending": (
        {"webhook": WebhookFacts(True, True, True, NOW + timedelta(days=1))},
        "webhook: certificate",
        (W, W, W, W),
    ),
    "ended": ({"webhook": WebhookFacts(True, True, True, NOW)}, "webhook: certificate", (R, R, R, R)),
    "fails closed": (
        {"webhook": WebhookFacts(True, True, True, fails_open=False)},
        "webhook: fails open",
        (R, R, R, R),
    ),
    "no choice": (in_cluster(limit_ranges={"shop": (FIXED,)}), "objects: limit ranges", (W, W, W, W)),
    "rigid": (in_cluster(limit_ranges={"shop": (RIGID,)}), "objects: limit ranges", (W, W, W, W)),
    "a rival": (beside(vertical_autoscalers=(VPA,)), "objects: VPAs", (W, W, W, W)),
    "by default a rival": (beside(vertical_autoscalers=(replace(VPA, mode=""),)), "objects: VPAs", (W, W, W, W)),
    "a quiet VPA": (beside(vertical_autoscalers=(replace(VPA, mode="Off"),)), "objects: VPAs", (O, O, O, O)),
    "cruise's own VPA": (beside(vertical_autoscalers=(replace(VPA, is_own=True),)), "objects: VPAs", (O, O, O, O)),
    "pods not known": (
        in_cluster(autoscalers=[make_autoscaler("KafkaConnect/web")]),
        "objects: targets",
        (W, W, W, W),
    ),
    "a policy object": (beside(rightsizing_policies=(_policy("a"),)), "objects: policies", (O, O, O, O)),
    "a policy that selects nothing": (
        beside(rightsizing_policies=(replace(_policy("a"), namespace="nowhere"),)),
        "objects: policies",
        (W, W, W, W),
    ),
    "a policy object that is unreadable": (
        beside(rightsizing_policies=(_policy("a", UnreadableAnnotations("spec.mode: is wrong")),)),
        "objects: policies",
        (W, W, W, W),
    ),
    "Karpenter": (beside(node_autoscaler=NodeAutoscalerKind.KARPENTER), "objects: node autoscaler", (O, O, O, O)),
    "a quota": (beside(quotas={"shop": (ResourceQuota(make_amounts(100)),)}), "objects: quotas", (O, O, O, O)),
    "a spent quota": (beside(quotas={"shop": (ResourceQuota(make_amounts(0)),)}), "objects: quotas", (W, W, W, W)),
    "a taint of an earlier mode": (in_cluster(nodes=[*NODES[:2], TAINTED]), "objects: taints", (W, W, W, O)),
    "never an eviction": (
        in_cluster(budgets=[replace(make_budget(disruptions_allowed=0), blocks_all_evictions=True)]),
        "objects: strict PDBs",
        (O, O, O, W),
    ),
    "two PDBs": (in_cluster(budgets=[make_budget("a"), make_budget("b")]), "objects: several PDBs", (O, O, O, W)),
    "an impossible load": (usage(loads={"n1": 1e6}), "metrics: node load", (W, W, W, W)),
    "all overloaded": (usage(loads={"n1": 9.0, "n2": 9.0, "n3": 1.0}), "metrics: node load", (W, W, W, W)),
    "a heap above its limit": (beside(pods=(TIGHT,)), "objects: heaps", (W, W, W, W)),
    "HPA": (in_cluster(autoscalers=[make_autoscaler()]), "objects: HPAs", (O, O, O, O)),
    "no eviction": (in_cluster(budgets=[make_budget(disruptions_allowed=0)]), "objects: PDBs", (O, O, O, W)),
    "odd": ({"unreadable": ["Pod shop/x: no spec"]}, "objects: readable", (W, W, W, W)),
    "out of sight": ({"problems": [("webhook", "looked", "forbidden")]}, "webhook: looked", (W, W, W, W)),
    "out of reach": ({"problems": [("cluster", "API server", "gone")]}, "cluster: API server", (R, R, R, R)),
}


SAYS_WHAT_TO_DO_ANYWAY = ("nothing runs", "HPA", "never an eviction", "two PDBs")


@pytest.mark.parametrize("case", CASES)
def test_each_problem_has_a_severity_by_mode_and_a_fix(case):
    facts, place, levels = CASES[case]
    for mode, level in zip((Mode.OBSERVE, Mode.INITIAL, Mode.RESIZE, Mode.FULL), levels, strict=True):
        found = item(check(mode, **facts), place)
        assert found.level is level, mode
        assert found.finding
        assert bool(found.fix) == (level is not CheckLevel.OK) or case in SAYS_WHAT_TO_DO_ANYWAY


def test_an_older_server_without_evictions_is_red_only_where_pods_are_evicted():
    server = {"server": ServerFacts("v1.36.3", True, False)}
    assert item(check(Mode.FULL, **server), "cluster: eviction").level is CheckLevel.RED
    assert not [one for one in check(Mode.RESIZE, **server) if one.name == "eviction"]


def test_a_mode_needs_all_that_the_modes_below_it_need_and_observe_only_reads():
    needs = [set(list_required_access(mode, "cruise")) for mode in (Mode.OBSERVE, Mode.INITIAL, Mode.RESIZE, Mode.FULL)]
    assert all(low <= high for low, high in pairwise(needs))
    assert {need.verb for need in needs[0]} == {"get", "list", "watch"}
    assert "create pods/eviction" in {str(need) for need in needs[3] - needs[2]}


def test_what_is_denied_is_named_with_the_files_that_grant_it():
    denied = list_required_access(Mode.FULL, "cruise")[-2:]
    found = item(check(Mode.RESIZE, access=AccessFacts("someone", denied)), "rights: RBAC")
    assert found.finding == "someone may not create pods/eviction, patch nodes"
    assert "-f deploy/rbac/observe.yaml -f deploy/rbac/initial.yaml -f deploy/rbac/resize.yaml" in found.fix


def test_many_are_counted_and_a_few_named():
    budgets = [make_budget(f"b{number}", disruptions_allowed=0) for number in range(5)]
    found = item(check(Mode.FULL, **in_cluster(budgets=budgets)), "objects: PDBs")
    assert found.finding == "5 of 5 allow no eviction now: shop/b0, shop/b1, shop/b2 and 2 more"


def test_each_other_autoscaler_is_named_with_what_it_does():
    objects = beside(
        autoscalers=(make_autoscaler("Deployment/web"),),
        vertical_autoscalers=(VPA, replace(VPA, name="quiet", mode="Off")),
        node_autoscaler=NodeAutoscalerKind.KARPENTER,
    )
    items = check(Mode.FULL, **objects)
    found = item(items, "objects: VPAs").finding
    assert found == "1 of 2 VPAs resizes pods, which cruise skips: shop/web (InPlaceOrRecreate)"
    found = item(items, "objects: HPAs").finding
    assert (
        found
        == "1 HPA on utilisation of a resource, which changes only within the target: shop/web (cpu of Deployment/web)"
    )
    assert item(items, "objects: node autoscaler").finding.startswith("Karpenter: ")


def test_a_taint_that_cruise_cannot_remove_is_reported_with_the_command():
    found = item(check(Mode.OBSERVE, **in_cluster(nodes=[*NODES[:2], TAINTED])), "objects: taints")
    assert found.fix == "kubectl taint nodes n3 cruise.io/overloaded:NoSchedule-"


def test_ignored_exporters_and_disputed_node_loads_are_reported():
    well = check(Mode.FULL, **usage(exporters=('job="kubelet"',)))
    assert item(well, "metrics: exporters") == CheckItem(
        "metrics", "exporters", CheckLevel.OK, 'containers are read from job="kubelet"'
    )
    disputed = usage(disputed_nodes=("n1",), ignored_load_exporters=(IgnoredExporter('job="payments"', "n2"),))
    found = item(check(Mode.FULL, **disputed), "metrics: node exporters")
    assert found.level is CheckLevel.WARN
    assert found.finding == ('the load of n1 is unknown: exporters disagree; loads not read: job="payments" of n2')
    assert "prometheus_node_load_matchers" in found.fix


def test_an_installation_by_helm_is_fixed_by_helm():
    facts: dict[str, Any] = {
        "access": AccessFacts(
            "cruise-serve", list_required_access(Mode.FULL, "sizes")[-1:], restricted_by_policy=False
        ),
        "prometheus": PrometheusFacts("http://found:9090", is_set=False, usage=USAGE),
        "store": StoreFacts("an embedded one", is_embedded=True),
        "webhook": WebhookFacts(present=False),
    }
    without, by_helm = check(**facts), check(**facts, release=HelmRelease("small", "sizes"))
    assert not [one for one in without if "helm" in one.fix.lower()]
    assert not [one for one in by_helm if "kubectl" in one.fix]
    command = "helm upgrade small deploy/chart --namespace sizes --reset-then-reuse-values --set "
    assert item(by_helm, "rights: RBAC").fix.startswith(f"{command}mode=full --set rbac.create=true; ")
    assert item(by_helm, "rights: policies").fix == f"{command}policies.enabled=true"
    assert item(by_helm, "webhook: registration").fix == f"{command}mode=full"
    assert "prometheus.url" in item(by_helm, "metrics: prometheus").fix
    assert "database.url" in item(by_helm, "database: postgres").fix
    assert item(by_helm, "cluster: installed").finding.startswith("by Helm: release small in sizes")


def test_an_exceeded_risk_is_a_warning_and_an_unknown_one_no_item():
    risks = {
        ResourceName.CPU: ObservedRisk(0.07, 0.3, 1000, 60),
        ResourceName.MEMORY: ObservedRisk(0.01, 1.5, 1000, 40),
    }
    items = decide_preflight(WELL, Mode.FULL, NOW, risks)
    assert item(items, "headroom: CPU risk").level is CheckLevel.OK
    above = item(items, "headroom: memory risk")
    assert above.level is CheckLevel.WARN
    assert "in 4 % of 1,000 intervals of the last 7 days, 1 % are allowed" in above.finding
    assert "cruiseheadroomriskexceeded" in above.fix
    unseen = {resource: replace(risk, intervals=0, intervals_short=0) for resource, risk in risks.items()}
    assert decide_preflight(WELL, Mode.FULL, NOW, unseen) == check()


def test_a_scale_that_may_not_be_read_is_named_with_what_to_do():
    why = 'User "cruise" cannot get resource "kafkaconnects/scale"'
    autoscaler = make_autoscaler("KafkaConnect/web")
    snapshot = replace(
        make_snapshot([make_pod()], NODES, autoscalers=[autoscaler]),
        unreadable_scales={("shop", make_ref("KafkaConnect/web")): why},
    )
    found = item(check(snapshot=snapshot), "objects: scales")
    assert found.level is CheckLevel.WARN
    assert f"1 scale cannot be read: shop/KafkaConnect/web ({why})" in found.finding
    assert "grant get on */scale" in found.fix
