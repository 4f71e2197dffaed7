"""Pods under HPAs on utilization, in a node pass and at admission."""

from dataclasses import replace
from datetime import timedelta

import pytest

from cruise.decisions.admission.admission import LeaveUnchanged, MutatePod, compute_admitted_resources, decide_admission
from cruise.decisions.admission.node_index import NodeIndex
from cruise.decisions.pod_policy.eligibility import Eligibility
from cruise.decisions.sizing.node_plans import NodePlan, decide_node_plans
from cruise.domain.actions import ReasonCode
from cruise.domain.autoscalers import LimitRangeItem, UtilizationMetric, UtilizationScaling
from cruise.domain.cluster import ContainerRole, HorizontalPodAutoscaler, Pod, QosClass
from cruise.domain.policy import SEED_RULES, GuaranteedPolicy, HpaPolicy, Mode, Policy
from cruise.domain.resources import MEBIBYTE, ResourceName, StatedResources
from cruise.domain.usage import Statistic
from tests.builders import (
    NOW,
    NOW_SECONDS,
    TRACKING,
    make_amounts,
    make_container,
    make_node,
    make_pod,
    make_ref,
    make_snapshot,
    make_statistic_for,
    make_table,
    make_workload,
)

CPU, MEMORY = ResourceName
FULL = Policy(mode=Mode.FULL, rules=TRACKING)
AT_MINIMUM = UtilizationScaling((UtilizationMetric(CPU, "", 50, 50),), 2, 6, 2, 2, True)
BETWEEN = replace(AT_MINIMUM, current_replicas=3, desired_replicas=3)
TEMPLATE = {"app": make_amounts(1000, 1024)}
DAYS_AGO = NOW_SECONDS - int(timedelta(days=3).total_seconds())


def hpa(scaling: UtilizationScaling | None = AT_MINIMUM, name: str = "web") -> HorizontalPodAutoscaler:
    resources = frozenset({CPU}) if scaling is None else frozenset(one.resource for one in scaling.metrics)
    return HorizontalPodAutoscaler("shop", name, make_ref("Deployment/web"), resources, "", scaling)


def replica(name: str = "web-1", cpu: int = 1000, **more) -> Pod:
    return make_pod(name, containers=more.pop("containers", (make_container("app", cpu, 1024),)), **more)


def use(pod: Pod, cpu: int = 90, container: str = "app", **more):
    """A container that used at most `cpu` in 7 days, less in the hours that count, and 300 MiB of memory."""
    return make_statistic_for(
        pod,
        container,
        **({"cpu_base": cpu // 3, "cpu_peak": cpu // 2, "cpu_7d_max": cpu, "memory_peak_mib": 300} | more),
    )


def plan_of(pods, rows, autoscalers=(), policy=FULL, replicas=2, **more) -> NodePlan:
    workload = make_workload("Deployment/web", replicas=replicas, requests=more.pop("requests", TEMPLATE))
    snapshot = make_snapshot(pods, nodes=[make_node()], workloads=[workload], autoscalers=autoscalers, **more)
    [plan] = decide_node_plans(snapshot, make_table(*rows), policy, NOW)
    return plan


def written(plan: NodePlan, resource: ResourceName = CPU) -> dict[str, int]:
    return {
        target.container: target.requests.resources.get(resource)
        for resize in plan.resize
        for target in resize.containers
    }


def test_a_request_shrinks_to_what_the_seven_day_maximum_needs_below_the_target():
    pod = replica()
    # 90m at 45% of the request: a tenth below the target of 50%.
    assert written(plan_of([pod], [use(pod)], [hpa()])) == {"app": 200}
    assert written(plan_of([pod], [use(pod)])) == {"app": 45}


def test_a_larger_tolerance_needs_a_larger_margin_and_a_smaller_one_at_least_a_tenth():
    pod = replica()
    assert written(plan_of([pod], [use(pod)], [hpa(replace(AT_MINIMUM, tolerance=0.4))])) == {"app": 300}
    assert written(plan_of([pod], [use(pod)], [hpa(replace(AT_MINIMUM, tolerance=0.0))])) == {"app": 200}


def test_containers_share_what_a_metric_of_all_containers_needs():
    proxy = make_container("proxy", 100, 64, role=ContainerRole.SIDECAR)
    pod = replica(containers=(make_container("app", 1000, 1024), proxy))
    rows = [use(pod), use(pod, 90, "proxy", memory_peak_mib=50)]
    # The proxy needs 200m and has 100m, so the other one keeps 300m.
    assert written(plan_of([pod], rows, [hpa()])) == {"app": 300, "proxy": 100}


def test_a_metric_of_one_container_bounds_that_container_only():
    proxy = make_container("proxy", 500, 64, role=ContainerRole.SIDECAR)
    pod = replica(containers=(make_container("app", 1000, 1024), proxy))
    rows = [use(pod), use(pod, 90, "proxy", memory_peak_mib=50)]
    only_app = replace(AT_MINIMUM, metrics=(UtilizationMetric(CPU, "app", 50, 50),))
    found = written(plan_of([pod], rows, [hpa(only_app)]))
    assert found["app"] == 200 and found["proxy"] < 90


def test_of_several_metrics_each_bounds_its_resource():
    metrics = (
        UtilizationMetric(CPU, "", 50, 50),
        UtilizationMetric(CPU, "", 25, 25),
        UtilizationMetric(MEMORY, "", 80, 80),
    )
    pod = replica()
    both = hpa(replace(AT_MINIMUM, metrics=metrics))
    plan = plan_of([pod], [use(pod)], [both])
    assert (written(plan), written(plan, MEMORY)) == ({"app": 400}, {"app": 417 * MEBIBYTE})


def test_a_short_or_unknown_history_shrinks_nothing():
    pod = replica()
    for row in (use(pod, history_since=DAYS_AGO), use(pod, history_since=0), use(pod, cpu_7d_max=0)):
        assert written(plan_of([pod], [row], [hpa()])) == {"app": 1000}


def test_no_pod_shrinks_while_another_one_needs_more_than_it_requests():
    idle, hot = replica("web-1", identity="1"), replica("web-2", identity="2")
    rows = [use(idle), use(hot, 460)]
    assert written(plan_of([idle], rows[:1], [hpa()])) == {"app": 200}
    plan = plan_of([idle, hot], rows, [hpa()])
    assert {one.pod: one.containers[0].requests.cpu_millicores for one in plan.resize} == {"web-1": 1000, "web-2": 1000}
    # The metric of the other resource is its own matter.
    metrics = (*AT_MINIMUM.metrics, UtilizationMetric(MEMORY, "", 20, 20))
    plan = plan_of([idle], rows[:1], [hpa(replace(AT_MINIMUM, metrics=metrics))])
    assert (written(plan), written(plan, MEMORY)) == ({"app": 200}, {"app": 1024 * MEBIBYTE})


@pytest.mark.parametrize("policy", [FULL, Policy(mode=Mode.FULL)], ids=["tracking", "default"])
def test_requests_grow_back_after_use_above_what_they_shrank_by(policy: Policy):
    # Both bases are far below the requests: only the HPA needs more.
    cool, hot = replica("web-1", 200, identity="1"), replica("web-2", 200, identity="2")
    rows = [use(cool), use(hot, 300, cpu_base=50)]
    plan = plan_of([cool, hot], rows, [hpa()], policy)
    grown = {one.pod: one.containers[0].requests.cpu_millicores for one in plan.resize}
    assert grown["web-2"] == 667 and grown.get("web-1", 200) == 200
    assert written(plan_of([hot], [use(hot, 900, cpu_base=50)], [hpa()], policy)) == {"app": 1000}
    # Nothing grows back by what is not known, or while the HPA scales.
    unknown = written(plan_of([hot], [use(hot, 300, cpu_base=50, history_since=DAYS_AGO)], [hpa()], policy))
    assert unknown.get("app", 200) == 200
    scaling = replace(AT_MINIMUM, desired_replicas=3)
    assert written(plan_of([hot], rows[1:], [hpa(scaling)], policy, replicas=3)).get("app", 200) == 200


@pytest.mark.parametrize("policy", [FULL, Policy(mode=Mode.FULL)], ids=["tracking", "default"])
def test_above_the_minimum_only_requests_that_shrank_too_far_grow_back(policy: Policy):
    above_target = replace(AT_MINIMUM, metrics=(UtilizationMetric(CPU, "", 50, 51),))
    for scaling in (BETWEEN, above_target, replace(AT_MINIMUM, current_replicas=6, desired_replicas=6)):
        count = scaling.current_replicas

        def get_request(pod: Pod, row: Statistic, scaling=scaling, count=count, **more) -> int:
            found = written(plan_of([pod], [row], [hpa(scaling)], policy, replicas=count, **more))
            return found.get("app", pod.containers[0].requests.resources.cpu_millicores)

        shrunk, of_template = replica(cpu=200), replica(cpu=1000)
        assert get_request(shrunk, use(shrunk, 300, cpu_base=50)) == 667
        assert get_request(shrunk, use(shrunk, 900, cpu_base=50)) == 1000
        # Otherwise every change of a request would move the number of replicas.
        assert get_request(shrunk, use(shrunk, 80, cpu_base=20)) == 200
        assert get_request(shrunk, use(shrunk, 80, cpu_base=190)) == 200
        assert get_request(of_template, use(of_template, 900, cpu_base=900)) == 1000
        assert get_request(shrunk, use(shrunk, 300, cpu_base=50), requests=None) == 200


RESTORED_WITHIN = {
    "a largest request": ({"cpu-max": "500m"}, None, {}, 500),
    "no growth": ({"direction": "shrink"}, None, {}, 200),
    "a CPU limit that is kept": ({"cpu-limits": "keep"}, 400, {}, 400),
    "a LimitRange": ({}, None, {"shop": (LimitRangeItem(False, maximum=StatedResources(500, None)),)}, 500),
}


@pytest.mark.parametrize("case", RESTORED_WITHIN)
def test_requests_grow_back_within_what_else_bounds_them(case: str):
    stated, cpu_limit, limit_ranges, expected = RESTORED_WITHIN[case]
    annotations = {f"cruise.io/{name}": value for name, value in stated.items()}
    hot = replica(containers=(make_container("app", 200, 1024, cpu_limit),), annotations=annotations)
    policy = Policy(mode=Mode.FULL)
    found = written(plan_of([hot], [use(hot, 300, cpu_base=50)], [hpa()], policy, limit_ranges=limit_ranges))
    assert found.get("app", 200) == expected


def test_requests_that_rising_use_exceeds_a_little_wait_until_a_resize_is_worth_it():
    policy = Policy(mode=Mode.FULL)
    short, shorter = replica(cpu=640), replica(cpu=630)
    # 667m are needed.
    assert written(plan_of([short], [use(short, 300, cpu_base=50)], [hpa()], policy)).get("app", 640) == 640
    assert written(plan_of([shorter], [use(shorter, 300, cpu_base=50)], [hpa()], policy)) == {"app": 667}


def test_growth_ends_at_the_template():
    pod = replica(cpu=300)
    rows = [use(pod, 2000, cpu_base=1500, cpu_peak=1800)]
    assert written(plan_of([pod], rows, [hpa()])) == {"app": 1000}
    assert written(plan_of([pod], rows, [hpa()], requests=None)) == {"app": 300}


def test_at_its_maximum_and_above_its_target_growth_ends_where_pods_would_be_removed():
    metric = UtilizationMetric(CPU, "", 50, 80)
    scaling = replace(AT_MINIMUM, current_replicas=6, desired_replicas=6, metrics=(metric,))
    pod = replica()
    rows = [use(pod, 2000, cpu_base=1500, cpu_peak=1800)]
    assert written(plan_of([pod], rows, [hpa(scaling)], replicas=6)) == {"app": 1600}
    # By its base, 800m, this pod alone is at 80% as well, and another one at 60%.
    assert written(plan_of([pod], [use(pod, 2000, cpu_base=600, cpu_peak=1800)], [hpa(scaling)], replicas=6)) == {
        "app": 1200
    }


HELD = {
    "between minimum and maximum": ([hpa(BETWEEN)], FULL, 3),
    "scaling": ([hpa()], FULL, 3),
    "without a status": ([hpa(None)], FULL, 2),
    "by the setting": ([hpa()], replace(FULL, hpa=HpaPolicy.HOLD), 2),
    "by the first rules": ([hpa()], replace(FULL, rules=SEED_RULES), 2),
    "two HPAs": ([hpa(), hpa(name="other")], FULL, 2),
}


@pytest.mark.parametrize(("autoscalers", "policy", "replicas"), HELD.values(), ids=list(HELD))
def test_the_request_is_held_and_the_other_resource_sized(autoscalers, policy, replicas):
    pod = replica()
    plan = plan_of([pod], [use(pod)], autoscalers, policy, replicas)
    assert written(plan) == {"app": 1000}
    assert written(plan, MEMORY)["app"] < 1024 * MEBIBYTE


def test_the_annotation_overrides_the_setting():
    pod = replica(annotations={"cruise.io/hpa": "hold"})
    assert written(plan_of([pod], [use(pod)], [hpa()])) == {"app": 1000}
    pod = replica(annotations={"cruise.io/hpa": "within-target"})
    assert written(plan_of([pod], [use(pod)], [hpa()], replace(FULL, hpa=HpaPolicy.HOLD))) == {"app": 200}


def test_a_pod_of_which_the_hpa_cannot_compute_the_utilisation_gets_no_request():
    pod = replica(containers=(make_container("app", 1000, 1024), make_container("proxy", None, 64)))
    rows = [use(pod), use(pod, 50, "proxy", memory_peak_mib=40)]
    assert written(plan_of([pod], rows, [hpa()])) == {"app": 1000, "proxy": 0}
    assert written(plan_of([pod], rows))["proxy"] > 0


# ---- new pods ----


def create(pod: Pod, rows, scaling: UtilizationScaling | None, policy=FULL, replicas=2) -> MutatePod | LeaveUnchanged:
    workload = make_workload("Deployment/web", replicas=replicas, requests=TEMPLATE)
    snapshot = make_snapshot([], nodes=[make_node()], workloads=[workload], autoscalers=[hpa(scaling)])
    table = make_table(*[replace(row, key=row.key._replace(pod="")) for row in rows])
    eligibility = Eligibility(snapshot, table, {}, policy, NOW)
    decision = decide_admission(pod, eligibility, table, NodeIndex(snapshot.nodes), (), policy)
    if isinstance(decision, MutatePod):
        again = compute_admitted_resources(pod, decision).apply_to(
            pod, {"cruise.io/original-resources": '{"app":{"requests":{"cpu":"1","memory":"1Gi"}}}'}
        )
        repeated = decide_admission(again, eligibility, table, NodeIndex(snapshot.nodes), (), policy)
        assert isinstance(repeated, LeaveUnchanged) and repeated.reason is ReasonCode.NO_CHANGE_NEEDED
    return decision


def new_cpu(decision: MutatePod | LeaveUnchanged) -> int | None:
    assert isinstance(decision, MutatePod)
    return decision.containers[0].requests.cpu_millicores


def test_a_new_pod_at_the_minimum_gets_what_a_running_one_may_shrink_to():
    pod = replace(replica(), node=None, phase="Pending")
    assert new_cpu(create(pod, [use(pod)], AT_MINIMUM)) == 200
    assert new_cpu(create(pod, [use(pod, 2000, cpu_base=1500, cpu_peak=1800)], AT_MINIMUM)) == 1000


def test_a_new_pod_between_minimum_and_maximum_requests_as_much_as_the_others():
    pod = replace(replica(), node=None, phase="Pending")
    for average, expected in ((240, 240), (100, 200), (1000, 1000), (3000, 1000), (None, 1000)):
        metric = UtilizationMetric(CPU, "", 50, 50, average)
        found = create(pod, [use(pod)], replace(BETWEEN, metrics=(metric,)), replicas=3)
        assert new_cpu(found) == expected


def test_a_new_pod_keeps_its_template_under_hold():
    pod = replace(replica(), node=None, phase="Pending")
    assert new_cpu(create(pod, [use(pod)], AT_MINIMUM, replace(FULL, hpa=HpaPolicy.HOLD))) == 1000


@pytest.mark.parametrize(("scaling", "cpu"), [(AT_MINIMUM, 200), (BETWEEN, 1000)])
def test_the_bounds_hold_for_guaranteed_pods_as_well(scaling, cpu):
    container = make_container("app", 1000, 1024, 1000, 1024)
    pod = replica(containers=(container,), qos=QosClass.GUARANTEED)
    policy = replace(FULL, guaranteed=GuaranteedPolicy.RESIZE)
    [resize] = plan_of([pod], [use(pod)], [hpa(scaling)], policy).resize
    [target] = resize.containers
    assert target.requests == target.limits == make_amounts(cpu, 450)
    # Without an HPA it would shrink further.
    [resize] = plan_of([pod], [use(pod)], policy=policy).resize
    assert resize.containers[0].limits.cpu_millicores == 140
