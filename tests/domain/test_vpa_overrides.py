"""VerticalPodAutoscalers in mode Off state bounds; the nearest statement applies, as with annotations."""

import json
from dataclasses import replace

import pytest

from cruise.decisions.pod_policy.eligibility import Eligibility
from cruise.decisions.sizing.node_plans import decide_node_plans
from cruise.domain.actions import ReasonCode
from cruise.domain.annotations import EffectivePolicy, OverrideSource, UnreadableAnnotations
from cruise.domain.autoscalers import VpaContainerPolicy
from cruise.domain.cluster import VerticalPodAutoscaler
from cruise.domain.overrides import SettingSource, resolve_overrides
from cruise.domain.policy import Mode, Policy
from cruise.domain.resources import ResourceName
from cruise.domain.vpa_overrides import read_vpa_overrides
from cruise.kube_json.reading.snapshot import read_snapshot
from tests.builders import (
    NOW,
    make_amounts,
    make_list_json,
    make_metadata,
    make_pod,
    make_ref,
    make_snapshot,
    make_statistic_for,
    make_table,
    make_workload,
)

WEB = make_ref("Deployment/web")
ALL = VpaContainerPolicy(minimum=make_amounts(300), maximum=make_amounts(None, 90))


def vertical(
    *rules: VpaContainerPolicy, mode: str = "Off", is_own: bool = False, is_published: bool = False
) -> VerticalPodAutoscaler:
    return VerticalPodAutoscaler("shop", "sizes", WEB, mode, is_own, rules=rules, is_published=is_published)


def resolution(
    one: VerticalPodAutoscaler, workload: dict[str, str] | None = None, namespace: dict[str, str] | None = None
):
    snapshot = make_snapshot(
        [make_pod()],
        workloads=[make_workload(annotations=workload or {})],
        namespace_annotations={"shop": namespace or {}},
    )
    snapshot = replace(snapshot, vertical_autoscalers=(one,))
    return resolve_overrides({}, "shop", WEB, snapshot, {}, Mode.FULL, read_vpa_overrides(snapshot), ())


def policy(one: VerticalPodAutoscaler, **annotations: dict[str, str]) -> EffectivePolicy:
    found = resolution(one, **annotations).effective_policy
    assert isinstance(found, EffectivePolicy)
    return found


@pytest.mark.parametrize("one", [vertical(ALL), vertical(ALL, mode="Auto", is_own=True)])
def test_bounds_hold_where_the_vpa_sizes_nothing(one):
    bounds = policy(one).get_for_container("app").bounds
    assert (bounds.minimum, bounds.maximum) == (make_amounts(300), make_amounts(None, 90))


@pytest.mark.parametrize(
    "one", [vertical(ALL, mode="Initial"), vertical(ALL, mode=""), vertical(ALL, is_published=True)]
)
def test_of_one_that_sizes_pods_or_is_cruise_s_own_work_nothing_is_taken(one):
    assert policy(one).get_for_container("app").bounds.minimum == make_amounts()


def test_a_container_s_own_rule_precedes_the_rule_for_all():
    found = policy(vertical(ALL, VpaContainerPolicy("app", minimum=make_amounts(50))))
    assert found.get_for_container("app").bounds.minimum == make_amounts(50)
    assert found.get_for_container("logs").bounds.minimum == make_amounts(300)


def test_annotations_of_the_workload_are_nearer_and_those_of_the_namespace_farther():
    assert policy(vertical(ALL), workload={"cruise.io/cpu-min": "1"}).bounds.minimum == make_amounts(1000)
    assert policy(vertical(ALL), namespace={"cruise.io/cpu-min": "1"}).bounds.minimum == make_amounts(300)


def test_a_minimum_is_what_a_tenant_asks():
    administered = policy(vertical(ALL)).set_by_administrator
    assert administered is not None
    assert administered.bounds.minimum == make_amounts()


def test_uncontrolled_pods_are_skipped():
    assert policy(vertical(VpaContainerPolicy(controlled_resources=frozenset({ResourceName.CPU})))).resources == {
        ResourceName.CPU
    }
    assert policy(vertical(VpaContainerPolicy(controlled_resources=frozenset()))).mode is Mode.OFF
    assert policy(vertical(VpaContainerPolicy(is_off=True))).mode is Mode.OFF


def test_mode_off_of_one_container_leaves_the_others_sized():
    found = policy(vertical(ALL, VpaContainerPolicy("proxy", is_off=True)))
    assert found.mode is Mode.FULL
    assert found.get_for_container("proxy").mode is Mode.OFF
    assert found.get_for_container("app").mode is Mode.FULL


def test_mode_off_of_all_others_leaves_one_sized():
    found = policy(vertical(VpaContainerPolicy(is_off=True), VpaContainerPolicy("app", minimum=make_amounts(50))))
    assert found.get_for_container("app").resources == frozenset(ResourceName)
    assert not found.get_for_container("proxy").resources


def test_what_is_controlled_is_stated_for_each_container():
    cpu, memory = ({one} for one in ResourceName)
    found = policy(
        vertical(
            VpaContainerPolicy(controlled_resources=frozenset(cpu)),
            VpaContainerPolicy("app", controlled_resources=frozenset(memory)),
            VpaContainerPolicy("logs"),
        )
    )
    resources = {name: found.get_for_container(name).resources for name in ("app", "logs", "other")}
    assert resources == {"app": memory, "logs": cpu | memory, "other": cpu}


def test_bounds_that_contradict_each_other_leave_the_pods_alone_and_say_where():
    found = resolution(
        vertical(VpaContainerPolicy("app", minimum=make_amounts(2), maximum=make_amounts(1)))
    ).effective_policy
    assert found == UnreadableAnnotations("VPA sizes: minAllowed of app is above maxAllowed")


def test_a_statement_names_the_vpa():
    [held] = [one for one in resolution(vertical(ALL)).statements if one.setting == "memory-max"]
    assert (held.source, held.value, held.is_effective) == (
        SettingSource(OverrideSource.VERTICAL_POD_AUTOSCALER, "sizes"),
        "90Mi",
        True,
    )


def test_a_plan_keeps_to_the_maximum():
    pod = make_pod()
    snapshot = replace(
        make_snapshot([pod]), vertical_autoscalers=(vertical(VpaContainerPolicy(maximum=make_amounts(120, 80))),)
    )
    statistics = make_table(
        make_statistic_for(pod, cpu_base=400, cpu_peak=900, memory_base_mib=100, memory_peak_mib=300)
    )
    [plan] = decide_node_plans(snapshot, statistics, Policy(mode=Mode.FULL), NOW)
    [target] = plan.targets
    assert (target.cpu_millicores, target.memory_bytes) == (120, 80 << 20)


def test_the_objects_are_read_as_kubectl_prints_them():
    policies = [
        {"containerName": "*", "minAllowed": {"cpu": "300m"}, "maxAllowed": {"memory": "90Mi"}},
        {"containerName": "app", "mode": "Off", "controlledResources": ["cpu"]},
    ]
    document = {
        "apiVersion": "autoscaling.k8s.io/v1",
        "kind": "VerticalPodAutoscaler",
        "metadata": make_metadata("sizes", labels={"app.kubernetes.io/managed-by": "cruise"}),
        "spec": {
            "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "updatePolicy": {"updateMode": "Off"},
            "resourcePolicy": {"containerPolicies": policies},
        },
    }
    [found] = read_snapshot([json.dumps(make_list_json(document)).encode()], "cluster.json").vertical_autoscalers
    assert found.rules == (
        ALL,
        VpaContainerPolicy("app", is_off=True, controlled_resources=frozenset({ResourceName.CPU})),
    )
    assert found.is_published


@pytest.mark.parametrize(("value", "reason"), [("enforce", ReasonCode.MODE_OFF), ("ignore", None)])
def test_a_pod_that_krr_enforcer_sizes_is_skipped(value, reason):
    pod = make_pod(annotations={"admission.robusta.dev/krr-mutation-mode": value})
    table = make_table(make_statistic_for(pod))
    judged = Eligibility(make_snapshot([pod]), table, {}, Policy(mode=Mode.FULL), NOW).check(pod)
    assert getattr(judged, "reason", None) == reason
