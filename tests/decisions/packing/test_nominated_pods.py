"""Capacity that kube-scheduler reserves for a nominated pod, by the priorities of other pods."""

from typing import Any

import pytest

from cruise.interfaces.packing.unschedulable import describe_unplaced_pod
from cruise.packer.answer import PackingStatus
from cruise.packer.problem import PackingObjective
from tests.builders import Json
from tests.decisions.packing.test_truth_at_the_edges import ZONE, a_node, a_pod, on_claim, planned, said
from tests.storage_builders import make_claim_json, make_drivers_json, make_volume_json

NOMINATED = a_pod("first-1", status={"nominatedNodeName": "n1"})
BOTH = pytest.mark.parametrize("objective", [PackingObjective.PAPER, PackingObjective.OPERATOR])


@BOTH
def test_a_node_with_reserved_capacity_is_full_and_not_too_small(objective):
    plan = planned(a_node("n1"), NOMINATED, a_pod("late-1"), objective=objective)
    (late,) = plan.unplaced
    words = (
        "the only node, n1, is too full of pods that stay in any plan; "
        "1 more like it, or 200m CPU less, would be enough"
    )
    assert (describe_unplaced_pod(late), late.impossible, plan.status) == (words, True, PackingStatus.OPTIMAL)


@BOTH
def test_nothing_is_proved_for_a_higher_priority_without_reserved_capacity(objective):
    plan = planned(a_node("n1"), NOMINATED, a_pod("late-1", priority=5), objective=objective)
    assert [(one.pod, one.impossible) for one in plan.unplaced] == [("late-1", False)]
    assert (plan.status, plan.by_priority[0].maximum) == (PackingStatus.FEASIBLE, 1)


@BOTH
def test_nothing_is_proved_of_it_though_another_node_would_take_it_but_for_a_taint(objective):
    tainted = a_node("n2", cpu="4")
    tainted["spec"] = {"taints": [{"key": "dedicated", "effect": "NoSchedule"}]}
    late = a_pod("late-1", priority=5)
    late["spec"]["containers"][0]["resources"]["requests"]["memory"] = "7500Mi"
    plan = planned(a_node("n1"), tainted, NOMINATED, late, objective=objective)
    assert (plan.status, plan.by_priority[0].maximum) == (PackingStatus.FEASIBLE, 1)


@BOTH
def test_a_higher_priority_that_fits_not_even_there_is_impossible(objective):
    plan = planned(a_node("n1"), NOMINATED, a_pod("late-1", cpu="1200m", priority=5), objective=objective)
    (late,) = plan.unplaced
    assert (late.impossible, plan.status) == (True, PackingStatus.OPTIMAL)
    assert "offers less even when empty" in describe_unplaced_pod(late)


def test_no_eviction_is_proved_necessary_with_capacity_reserved_for_a_lower_priority():
    low = a_pod("low-1", "n2", priority=-5)
    plan = planned(a_node("n1"), a_node("n2"), NOMINATED, low, a_pod("late-1", priority=5))
    assert [one.pod for one in plan.preempted] == ["low-1"]
    assert plan.status is PackingStatus.FEASIBLE


@BOTH
@pytest.mark.parametrize("other", ["a-1", "z-1"])
def test_a_place_among_the_pods_of_a_node_is_kept_as_well(objective, other):
    plan = planned(a_node("n1", cpu="4", pods="1"), NOMINATED, a_pod(other), objective=objective)
    assert [(one.pod, one.target) for one in plan.placed] == [("first-1", "n1")]
    assert ([one.blocked_by for one in plan.unplaced], plan.status) == ([("pods",)], PackingStatus.OPTIMAL)


# What is nominated for n1 waits for a pod there to end; another one has to leave for the pod that wants in.
HOSTNAME = "kubernetes.io/hostname"
TWO = [a_node("n1", cpu="2", labels={"disk": "ssd", ZONE: "a"}), a_node("n2", cpu="4", labels={ZONE: "b"})]
MAY_LEAVE = a_pod("app-1", "n1", cpu="800m")


def ports(*numbers: int, cpu: str = "500m") -> list[Json]:
    listed = [{"containerPort": number, "hostPort": number} for number in numbers]
    return [{"name": "c", "ports": listed, "resources": {"requests": {"cpu": cpu}}}]


def apart(app: str) -> Json:
    term = {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": {"app": app}}}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def spread_over(key: str, app: str) -> list[Json]:
    selector = {"matchLabels": {"app": app}}
    return [{"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}]


def waits_for_n1(**spec: Any) -> Json:
    return a_pod("vip-1", cpu="500m", status={"nominatedNodeName": "n1"}, **{"priority": 10, **spec})


def wants_in(**spec: Any) -> Json:
    return a_pod("web-1", cpu="500m", **{"nodeSelector": {"disk": "ssd"}, **spec})


RULES = pytest.mark.parametrize(
    ("nominated", "other"),
    [
        ({"containers": ports(80, 443)}, {"containers": ports(443)}),
        ({"affinity": apart("web")}, {}),
        ({}, {"affinity": apart("vip")}),
        ({}, {"topologySpreadConstraints": spread_over(HOSTNAME, "vip")}),
        ({"volumes": [on_claim("data")]}, {"volumes": [on_claim("data")]}),
    ],
)
STORAGE = [
    make_claim_json("data", volume="pv-1", spec={"accessModes": ["ReadWriteOncePod"]}),
    make_volume_json(),
    make_drivers_json(ebs_csi_aws_com=9),
]


@BOTH
@RULES
def test_no_pod_is_evicted_for_one_that_the_rules_of_a_nominated_pod_keep_out(objective, nominated, other):
    holds_80 = a_pod("ending-1", "n1", containers=ports(80))
    holds_80["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    first = waits_for_n1(**{"containers": ports(80), **nominated})
    plan = planned(*TWO, *STORAGE, MAY_LEAVE, holds_80, first, wants_in(**other), objective=objective)
    assert (plan.moves, plan.preempted, plan.placed) == ((), (), ())
    obstacle = "not-judged: its rules concern shop/vip-1, which is nominated for n1"
    assert said(plan)["web-1"] == ((obstacle,), False)
    assert {line.priority: line.placed == line.maximum for line in plan.by_priority} == {0: True}


@BOTH
@RULES
def test_a_nominated_pod_that_can_be_placed_now_keeps_its_rules(objective, nominated, other):
    plan = planned(
        *TWO, *STORAGE, MAY_LEAVE, waits_for_n1(priority=0, **nominated), wants_in(**other), objective=objective
    )
    assert [(one.pod, one.target) for one in plan.placed] == [("vip-1", "n1")]
    assert (plan.moves, plan.preempted) == ((), ())


@BOTH
def test_rules_of_a_nominated_pod_of_lower_priority_exclude_no_pod(objective):
    low, high = waits_for_n1(priority=-1, containers=ports(443)), wants_in(containers=ports(443))
    plan = planned(a_node("n1", labels={"disk": "ssd"}), low, high, objective=objective)
    assert ("web-1", "n1") in [(one.pod, one.target) for one in plan.placed]


@BOTH
def test_a_nominated_pod_that_is_not_judged_keeps_its_volumes_attached(objective):
    claims = [make_claim_json(name, volume=f"pv-{name}") for name in "ab"]
    volumes = [make_volume_json(f"pv-{name}") for name in "ab"]
    ending = a_pod("ending-1", "n1", containers=ports(80))
    ending["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    first = waits_for_n1(containers=ports(80), volumes=[on_claim("a")])
    items = [*TWO, MAY_LEAVE, ending, first, wants_in(volumes=[on_claim("b")]), *claims, *volumes]
    plan = planned(*items, make_drivers_json(ebs_csi_aws_com=1), objective=objective)
    assert (plan.moves, plan.placed) == ((), ())
    assert said(plan)["web-1"][0] == ("attach-limit",)


def test_a_pod_tied_by_rules_to_a_nominated_one_is_not_moved():
    bound = a_pod("web-1", "n1", containers=ports(443, cpu="1"), labels={"app": "web"})
    first = a_pod("vip-1", cpu="500m", status={"nominatedNodeName": "n2"}, containers=ports(443))
    late = a_pod("late-1", cpu="1500m", nodeSelector={"disk": "ssd"})
    plan = planned(*TWO, bound, first, late)
    assert plan.moves == ()


@pytest.mark.parametrize(("affinity", "moves"), [({}, 1), (apart("vip"), 0)])
def test_a_host_port_on_a_node_that_a_pod_cannot_use_does_not_concern_it(affinity, moves):
    nodes = [a_node("n1", cpu="2", labels={"disk": "ssd"}), a_node("n2", labels={"disk": "hdd"}), a_node("n3")]
    first = waits_for_n1(containers=ports(443))
    other = wants_in(containers=ports(443), nodeSelector={"disk": "hdd"}, affinity=affinity)
    plan = planned(*nodes, a_pod("app-1", "n2", cpu="900m"), first, other)
    assert len(plan.moves) == moves
