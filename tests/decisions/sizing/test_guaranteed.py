"""Guaranteed pods in a node pass: sized by their largest usage, with requests equal to limits."""

from dataclasses import replace
from datetime import timedelta

import pytest

from cruise.decisions.sizing.node_plans import NodePlan, decide_node_plans
from cruise.domain.actions import ReasonCode, ResizeCause
from cruise.domain.autoscalers import LimitRangeItem, ResourceQuota
from cruise.domain.cluster import Container, ContainerRole, Node, Pod, QosClass
from cruise.domain.policy import DEFAULT_RULES, GuaranteedPolicy, Mode, Policy
from cruise.domain.resources import MEBIBYTE, ResizePending, ResizeState
from tests.builders import (
    NOW,
    NOW_SECONDS,
    TRACKING,
    make_amounts,
    make_container,
    make_node,
    make_pod,
    make_snapshot,
    make_statistic_for,
    make_table,
    make_workload,
)

RESIZE = Policy(mode=Mode.FULL, rules=TRACKING, guaranteed=GuaranteedPolicy.RESIZE)
DAMPED = replace(RESIZE, rules=DEFAULT_RULES)
MONTH = NOW_SECONDS - int(timedelta(days=29).total_seconds())
WEEK = NOW_SECONDS - int(timedelta(days=7).total_seconds())


def equal(name: str = "app", cpu: int = 2000, memory_mib: int = 2048, **more) -> Container:
    return make_container(name, cpu, memory_mib, cpu, memory_mib, **more)


def guaranteed(*containers: Container, name: str = "db-0", **more) -> Pod:
    return make_pod(
        name, containers=containers or (equal(),), qos=QosClass.GUARANTEED, workload="StatefulSet/db", **more
    )


def use(pod: Pod, cpu_peak: int = 500, memory_mib: int = 1000, container: str = "app", last_mib: int = 800, **more):
    return make_statistic_for(
        pod,
        container,
        cpu_base=cpu_peak // 2,
        cpu_peak=cpu_peak,
        memory_base_mib=last_mib,
        memory_peak_mib=memory_mib,
        memory_last_mib=last_mib,
        **({"history_since": MONTH} | more),
    )


def plan_of(pods, rows, node: Node | None = None, policy=RESIZE, quotas=None, **more) -> NodePlan:
    workload = make_workload("StatefulSet/db", memory_limits={"app": 2048 * MEBIBYTE})
    snapshot = make_snapshot(pods, nodes=[node or make_node()], **{"workloads": [workload], **more})
    snapshot = replace(snapshot, quotas=quotas or {})
    [plan] = decide_node_plans(snapshot, make_table(*rows), policy, NOW)
    return plan


def sizes(plan: NodePlan) -> dict[str, tuple[int, int]]:
    """The written CPU and memory (MiB) by container; requests and limits are equal."""
    found = {}
    for resize in plan.resize:
        for target in resize.containers if resize.pod == "db-0" else ():
            assert target.requests == target.limits
            amounts = target.requests.resources
            found[target.container] = (amounts.cpu_millicores, amounts.memory_bytes // MEBIBYTE)
    return found


def test_sizes_are_the_largest_use_and_a_margin():
    pod = guaranteed()
    assert sizes(plan_of([pod], [use(pod)])) == {"app": (750, 1500)}


def test_the_largest_of_seven_days_the_present_use_and_an_oom_kill_counts():
    pod = guaranteed()
    assert sizes(plan_of([pod], [use(pod, memory_7d_max_mib=1500)])) == {"app": (750, 2048)}
    assert sizes(plan_of([pod], [use(pod, cpu_7d_max=1000)])) == {"app": (1500, 1500)}
    assert sizes(plan_of([pod], [use(pod, last_mib=1200)])) == {"app": (750, 1800)}
    # While a kill is remembered, memory does not decrease.
    assert sizes(plan_of([pod], [use(pod, oom_memory_mib=1100)])) == {"app": (750, 2048)}


def test_sizes_decrease_only_on_a_long_history_and_increase_on_any():
    pod = guaranteed()
    assert not plan_of([pod], [use(pod, history_since=WEEK)]).resize
    assert not plan_of([pod], [use(pod, history_since=0)]).resize
    assert sizes(plan_of([pod], [use(pod, cpu_peak=1900, memory_mib=2000, history_since=WEEK)])) == {
        "app": (2280, 2400)
    }


def test_a_short_history_of_one_container_does_not_hold_back_the_others():
    pod = guaranteed(equal(), equal("proxy", 400, 512, role=ContainerRole.SIDECAR))
    rows = [use(pod, history_since=WEEK), use(pod, 100, 100, "proxy", last_mib=50)]
    assert sizes(plan_of([pod], rows)) == {"app": (2000, 2048), "proxy": (150, 150)}


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ({"cruise.io/mode.proxy": "off"}, {"app": (750, 1500)}),
        ({"cruise.io/resources.app": "memory"}, {"app": (2000, 1500), "proxy": (150, 150)}),
    ],
)
def test_an_unchanged_container_keeps_the_class_too(annotations, expected):
    pod = guaranteed(equal(), equal("proxy", 400, 512, role=ContainerRole.SIDECAR), annotations=annotations)
    assert sizes(plan_of([pod], [use(pod), use(pod, 100, 100, "proxy", last_mib=50)])) == expected


@pytest.mark.parametrize(("direction", "cpu_peak", "memory_mib"), [("grow", 500, 1000), ("shrink", 1900, 2000)])
def test_a_direction_holds_for_requests_and_limits(direction, cpu_peak, memory_mib):
    pod = guaranteed(annotations={"cruise.io/direction": direction})
    for policy in (RESIZE, DAMPED):
        assert not plan_of([pod], [use(pod, cpu_peak, memory_mib)], policy=policy).resize


def test_growth_takes_free_capacity_only():
    pod, other = guaranteed(), make_pod("web-1", containers=[make_container(cpu=1500, memory_mib=1024)])
    rows = [use(pod, cpu_peak=2000), make_statistic_for(other, cpu_base=1400, cpu_peak=1500)]
    plan = plan_of([pod, other], rows, node=make_node(cpu=3700))
    # 3700 - 2000 - 1400 - 100 of headroom = 200 of the 400 that it would grow.
    assert sizes(plan)["app"][0] == 2200
    assert plan.fits
    assert not plan.evict
    full = plan_of([pod, other], rows, node=make_node(cpu=3500))
    assert full.fits
    assert sizes(full)["app"][0] == 2000


def test_on_a_node_that_does_not_fit_it_is_unchanged():
    pod = guaranteed()
    others = [make_pod(f"web-{n}", containers=[make_container(memory_mib=500)]) for n in range(4)]
    rows = [use(pod, cpu_peak=2000, memory_mib=2000), *(make_statistic_for(o, memory_base_mib=900) for o in others)]
    plan = plan_of([pod, *others], rows, node=make_node(memory_mib=5000))
    assert {eviction.pod for eviction in plan.evict} >= {"web-0"}
    assert all(eviction.pod != "db-0" for eviction in plan.evict)
    assert sizes(plan) == {"app": (2400, 2048)}


def test_it_is_evicted_only_with_a_stated_ranking():
    pod = guaranteed(equal(memory_mib=3000), annotations={"cruise.io/eviction-ranking": "low"})
    other = make_pod("web-1", annotations={"cruise.io/eviction-ranking": "never"})
    rows = [use(pod, memory_mib=2500), make_statistic_for(other, memory_base_mib=900)]
    assert [one.pod for one in plan_of([pod, other], rows, node=make_node(memory_mib=3200)).evict] == ["db-0"]


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ({"cruise.io/cpu-max": "300m"}, (500, 1500)),
        ({"cruise.io/memory-max": "500Mi"}, (750, 1000)),
        ({"cruise.io/resources": "cpu"}, (750, 2048)),
        ({"cruise.io/resources": "memory"}, (2000, 1500)),
        ({"cruise.io/cpu-min": "900m", "cruise.io/memory-min": "1600Mi"}, (900, 1600)),
        ({"cruise.io/headroom-factor": "3"}, (750, 1500)),
        ({"cruise.io/memory-limits": "never"}, (750, 2048)),
        ({"cruise.io/cpu-limits": "keep"}, (2000, 1500)),
        ({"cruise.io/cpu-limits": "remove-at-creation"}, (750, 1500)),
        ({"cruise.io/direction": "shrink"}, (750, 1500)),
    ],
)
def test_overrides_apply_but_never_below_the_largest_use(annotations, expected):
    pod = guaranteed(annotations=annotations)
    workload = make_workload(
        "StatefulSet/db", memory_limits={"app": 2048 * MEBIBYTE}, requests={"app": make_amounts(2000, 2048)}
    )
    assert sizes(plan_of([pod], [use(pod)], workloads=[workload])) == {"app": expected}


def test_a_resource_whose_resize_restarts_the_container_is_unchanged():
    pod = guaranteed(equal(memory_resize_restarts=True))
    assert sizes(plan_of([pod], [use(pod)])) == {"app": (750, 2048)}


@pytest.mark.parametrize("annotations", [{}, {"cruise.io/memory-max": "64Mi"}, {"cruise.io/memory-max": "1500Mi"}])
def test_old_kubelets_do_not_decrease_memory(annotations):
    pod = guaranteed(annotations=annotations)
    plan = plan_of([pod], [use(pod)], node=make_node(kubelet_version=(1, 33)))
    assert sizes(plan) == {"app": (750, 2048)}


def test_memory_rises_within_the_ceiling_of_limits_and_not_with_a_leak():
    pod = guaranteed(equal(memory_mib=4000))
    assert sizes(plan_of([pod], [use(pod, memory_mib=3900)])) == {"app": (750, 4096)}
    leaking = guaranteed()
    row = replace(use(leaking, memory_mib=2000, last_mib=2000), memory_base_bytes=1900 * MEBIBYTE)
    plan = plan_of([leaking], [row])
    assert sizes(plan) == {"app": (750, 2048)}
    assert [one.reason for one in plan.suspected_leaks] == [ReasonCode.MEMORY_LEAK_SUSPECTED]


def test_limit_ranges_and_quotas_hold():
    pod = guaranteed()
    ranges = {"shop": (LimitRangeItem(False, minimum=make_amounts(1000, 1500), max_cpu_ratio=1.0),)}
    assert sizes(plan_of([pod], [use(pod)], limit_ranges=ranges)) == {"app": (1000, 1500)}
    whole = {"shop": (LimitRangeItem(True, minimum=make_amounts(1000, 1500)),)}
    plan = plan_of([pod], [use(pod)], limit_ranges=whole)
    assert [(one.pod, one.reason) for one in plan.skipped] == [("db-0", ReasonCode.LIMIT_RANGE)]
    quotas = {"shop": (ResourceQuota(limits_left=make_amounts(0, 0)),)}
    assert sizes(plan_of([pod], [use(pod)], quotas=quotas)) == {"app": (750, 1500)}
    assert not plan_of([pod], [use(pod, 2000, 2000)], quotas=quotas).resize


def test_with_write_damping_growth_is_written_at_once_and_shrinks_with_the_node():
    pod = guaranteed()
    [resize] = plan_of([pod], [use(pod, 1900, 2000)], policy=DAMPED).resize
    assert resize.cause is ResizeCause.USAGE_NEAR_LIMIT
    assert resize.containers[0].requests == resize.containers[0].limits == make_amounts(2280, 2400)
    [resize] = plan_of([pod], [use(pod)], policy=DAMPED).resize
    assert resize.cause is ResizeCause.OVER_REQUESTED
    assert resize.containers[0].requests == resize.containers[0].limits == make_amounts(750, 1500)


def test_a_pending_resize_is_withdrawn_with_equal_limits():
    pending = replace(equal(cpu=3000, memory_mib=4096), allocated=make_amounts(2000, 2048))
    state = ResizeState(ResizePending.INFEASIBLE, NOW - timedelta(minutes=1))
    pod = guaranteed(replace(pending, actual_limits=make_amounts(2000, 2048)), resize=state)
    [resize] = plan_of([pod], [use(pod)]).resize
    assert resize.reason is ReasonCode.WITHDRAWN
    assert sizes(plan_of([pod], [use(pod)])) == {"app": (2000, 2048)}


def test_memory_that_equals_its_limit_alone_does_not_make_a_pod_guaranteed():
    container = make_container(cpu=1000, memory_mib=2048, memory_limit_mib=2048)
    pod = make_pod(containers=[container])
    [resize] = plan_of([pod], [use(pod)]).resize
    [target] = resize.containers
    assert target.limits.cpu_millicores is None
    assert target.requests.memory_bytes != target.limits.memory_bytes


def test_the_policy_keeps_them_by_default():
    pod = guaranteed()
    plan = plan_of([pod], [use(pod)], policy=replace(RESIZE, guaranteed=GuaranteedPolicy.KEEP))
    assert [(one.pod, one.reason) for one in plan.skipped] == [("db-0", ReasonCode.GUARANTEED)]
