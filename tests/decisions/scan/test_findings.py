from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cruise.decisions.scan.findings import (
    LEAST_MILLICORES,
    LEAST_RATIO,
    ScanFindings,
    SlowStart,
    find_scan_findings,
    find_slow_starts,
)
from cruise.decisions.scan.pending_pods import SchedulingObstacle
from cruise.decisions.scan.risks import ContainerRiskKind, UserRemedy
from cruise.domain.actions import ReasonCode
from cruise.domain.cluster import ContainerRole, OomKill
from cruise.domain.heaps import HeapBound, HeapRuntime
from cruise.domain.policy import HeapBoundPolicy, Mode, Policy
from cruise.domain.prices import ResourcePrices
from cruise.domain.resources import MEBIBYTE
from cruise.domain.scheduling import SchedulingConstraints, Taint, TaintEffect, Toleration
from cruise.domain.startup_boosts import find_startup_boosts
from cruise.runtime.admission import PodAdmitter
from tests.builders import (
    LONG_AGO,
    NOW,
    NOW_SECONDS,
    make_autoscaler,
    make_container,
    make_node,
    make_pod,
    make_ref,
    make_resources,
    make_snapshot,
    make_statistic,
    make_statistic_for,
    make_table,
    make_workload,
)

PRICES = ResourcePrices(0.01, 0.001)
AMPLE: dict[str, Any] = {"cpu": 500, "memory_mib": 512}


def scanned(pods, *rows, nodes=None, kills=(), policy=None, **more) -> ScanFindings:
    snapshot = replace(make_snapshot(pods, nodes=nodes or [make_node()], **more), oom_kills=tuple(kills))
    return find_scan_findings(snapshot, make_table(*rows), policy or Policy(), PRICES, NOW)


def kinds(findings: ScanFindings) -> list[ContainerRiskKind]:
    return [risk.kind for risk in findings.risks]


def kill(pod, at=NOW, limit=256 * MEBIBYTE) -> OomKill:
    return OomKill(pod.namespace, pod.name, pod.uid, "app", pod.workload, "", pod.node, at, limit, None)


# ---- risks ----


def test_a_container_with_enough_memory_is_at_no_risk():
    pod = make_pod(containers=[make_container(**AMPLE, cpu_limit=2000, memory_limit_mib=1024)])
    assert kinds(scanned([pod], make_statistic_for(pod))) == []


def test_a_kill_in_the_status_is_first_with_its_limit_and_time():
    pod = make_pod(containers=[make_container(**AMPLE, memory_limit_mib=101, restart_count=4)])
    findings = scanned([pod], make_statistic_for(pod), kills=[kill(pod, NOW - timedelta(hours=2)), kill(pod)])
    assert kinds(findings) == [ContainerRiskKind.OOM_KILLED, ContainerRiskKind.MEMORY_NEAR_LIMIT]
    risk = findings.risks[0]
    assert (risk.observed, risk.killed_at, risk.restarts) == (256 * MEBIBYTE, NOW, 4)


def test_a_kill_that_only_statistics_show_counts():
    pod = make_pod(containers=[make_container(**AMPLE)])
    findings = scanned([pod], make_statistic_for(pod, oom_memory_mib=300))
    assert kinds(findings) == [ContainerRiskKind.OOM_KILLED]
    assert findings.risks[0].observed == 300 * MEBIBYTE


def ended(name="report-1", days=0, **more):
    return make_pod(
        name,
        workload="CronJob/report",
        owner_kind="Job",
        phase="Failed",
        restart_policy="Never",
        created_at=NOW - timedelta(days=days, hours=1),
        containers=[make_container(**AMPLE, memory_limit_mib=256)],
        **more,
    )


def kill_of_ended(pod, **more) -> OomKill:
    return replace(kill(pod, pod.created_at + timedelta(hours=1)), runs_to_completion=True, **more)


def test_a_kill_of_a_finished_pod_is_a_risk_of_its_workload():
    pods = [ended("report-1", days=1), ended("report-2")]
    [risk] = scanned(pods, kills=[kill_of_ended(pod) for pod in pods]).risks
    assert (risk.kind, risk.workload, risk.container) == (ContainerRiskKind.OOM_KILLED, "CronJob/report", "app")
    assert (risk.worst_pod, risk.affected_pods, risk.total_pods, risk.observed) == ("report-2", 2, 2, 256 * MEBIBYTE)


def test_a_kill_of_a_deleted_pod_is_a_risk():
    [risk] = scanned([], kills=[kill_of_ended(ended())]).risks
    assert (risk.workload, risk.worst_pod) == ("CronJob/report", "report-1")


def test_the_last_run_of_a_workload_is_a_risk_however_long_ago_it_was_killed():
    old = ended("report-1", days=20)
    assert kinds(scanned([old], kills=[kill_of_ended(old)])) == [ContainerRiskKind.OOM_KILLED]
    newer = ended("report-2", days=1)
    assert kinds(scanned([old, newer], kills=[kill_of_ended(old)])) == []


def test_a_running_container_is_at_risk_for_seven_days_after_its_last_kill():
    pod = make_pod(containers=[make_container(**AMPLE)])
    recent, old = (kill(pod, NOW - timedelta(days=days)) for days in (6, 8))
    assert kinds(scanned([pod], kills=[old, recent])) == [ContainerRiskKind.OOM_KILLED]
    assert kinds(scanned([pod], kills=[old])) == []


def test_a_kill_in_statistics_of_a_workload_without_pods_is_a_risk():
    row = make_statistic("", workload="CronJob/report", oom_memory_mib=300)
    known = make_workload("CronJob/report")
    [risk] = scanned([], row, workloads=[known]).risks
    assert (risk.kind, risk.workload, risk.worst_pod) == (ContainerRiskKind.OOM_KILLED, "CronJob/report", "")
    # A deleted workload, and one with running pods without a kill, are not.
    assert scanned([], row, workloads=[]).risks == ()


def test_a_killed_init_container_must_be_fixed_by_its_owner():
    migrate = make_container("migrate", role=ContainerRole.INIT, memory_limit_mib=64, restart_count=3)
    pod = make_pod(containers=[migrate, make_container(**AMPLE)])
    killed = replace(kill(pod), container="migrate", role=ContainerRole.INIT, restarts=3)
    [risk] = scanned([pod], make_statistic_for(pod), kills=[killed]).risks
    assert (risk.kind, risk.container, risk.restarts) == (ContainerRiskKind.OOM_KILLED, "migrate", 3)
    assert risk.remedy is UserRemedy.SIZE_INIT_CONTAINER


@pytest.mark.parametrize(("limit", "remedy"), [(255, None), (256, UserRemedy.RAISE_TEMPLATE_LIMIT)])
def test_a_kill_at_the_ceiling_must_be_fixed_by_the_owner(limit, remedy):
    pod = make_pod(containers=[make_container(**AMPLE, memory_limit_mib=limit)])
    states = make_workload(memory_limits={"app": 128 * MEBIBYTE})
    [risk] = scanned([pod], kills=[kill(pod)], workloads=[states]).risks[:1]
    assert risk.remedy is remedy
    cron_job = make_workload("CronJob/report", memory_limits={"app": 128 * MEBIBYTE})
    killed = kill_of_ended(ended(), memory_limit_bytes=limit * MEBIBYTE)
    [risk] = scanned([], kills=[killed], workloads=[cron_job]).risks
    assert risk.remedy is (remedy or UserRemedy.SIZE_TEMPLATE)


def test_the_remedy_of_a_kill_depends_on_what_created_the_pod():
    bare = replace(kill_of_ended(ended()), workload=None)
    [risk] = scanned([], kills=[bare]).risks
    assert risk.remedy is UserRemedy.SIZE_MANIFEST
    of_operator = replace(kill_of_ended(ended()), workload=make_ref("SparkApplication/report"))
    [risk] = scanned([], kills=[of_operator], workloads=[]).risks
    assert risk.remedy is UserRemedy.SIZE_OWNER


@pytest.mark.parametrize(("largest", "at_risk"), [(899, False), (900, True), (1200, True)])
def test_memory_near_the_limit_is_from_nine_tenths_on(largest, at_risk):
    pod = make_pod(containers=[make_container(cpu=500, memory_mib=512, memory_limit_mib=1000)])
    findings = scanned([pod], make_statistic_for(pod, memory_7d_max_mib=largest))
    assert kinds(findings) == ([ContainerRiskKind.MEMORY_NEAR_LIMIT] if at_risk else [])


def test_memory_in_use_above_the_request_is_at_risk():
    pod = make_pod(containers=[make_container(cpu=500, memory_mib=60)])
    [risk] = scanned([pod], make_statistic_for(pod, memory_base_mib=64)).risks
    assert risk.kind is ContainerRiskKind.MEMORY_UNDER_REQUESTED
    assert (risk.observed, risk.allowed) == (64 * MEBIBYTE, 60 * MEBIBYTE)


def test_a_request_below_use_is_no_risk_if_the_nodes_pods_request_enough_together():
    low, high = (
        make_pod(name, containers=[make_container(cpu=500, memory_mib=mib)]) for name, mib in (("a", 60), ("b", 70))
    )
    rows = [make_statistic_for(pod, memory_base_mib=64) for pod in (low, high)]
    assert kinds(scanned([low, high], *rows)) == []
    [risk] = scanned([low, high], rows[0], make_statistic_for(high, memory_base_mib=67)).risks
    assert (risk.kind, risk.worst_pod) == (ContainerRiskKind.MEMORY_UNDER_REQUESTED, "a")
    elsewhere = replace(high, node="n2")
    found = scanned([low, elsewhere], *rows, nodes=[make_node("n1"), make_node("n2")])
    assert kinds(found) == [ContainerRiskKind.MEMORY_UNDER_REQUESTED]


def test_cpu_below_use_on_a_full_node_is_no_risk_if_its_pods_request_enough_together():
    pods = [
        make_pod(name, containers=[make_container(cpu=cpu, memory_mib=512)]) for name, cpu in (("a", 300), ("b", 900))
    ]
    rows = [make_statistic_for(pod, cpu_base=base, cpu_peak=950) for pod, base in zip(pods, (500, 600), strict=True)]
    full = scanned(pods, *rows, nodes=[make_node(cpu=1000)])
    assert full.full_nodes == ("n1",) and kinds(full) == []


@pytest.mark.parametrize("node", [make_node(cpu=0), make_node(cpu=800, ready=False)])
def test_a_node_without_a_working_kubelet_is_not_among_the_overcommitted(node):
    pods = [make_pod(name, containers=[make_container(cpu=600)]) for name in ("a", "b")]
    assert scanned(pods, *(make_statistic_for(pod) for pod in pods), nodes=[node]).full_nodes == ()


@pytest.mark.parametrize(
    ("node", "starved"),
    [
        (make_node(cpu=1000), [ContainerRiskKind.CPU_STARVED]),
        (make_node(cpu=1000, ready=False), []),
        (make_node(cpu=0), []),
    ],
)
def test_use_on_a_node_without_a_working_kubelet_starves_no_pod(node, starved):
    pods = [make_pod(name, containers=[make_container(cpu=600, memory_mib=512)]) for name in ("a", "b")]
    rows = [make_statistic_for(pod, cpu_base=700, cpu_peak=700) for pod in pods]
    found = scanned(pods, *rows, nodes=[node])
    assert sorted(set(kinds(found))) == starved


def test_demand_above_the_cpu_limit_is_throttled():
    pod = make_pod(containers=[make_container(**AMPLE, cpu_limit=600)])
    [risk] = scanned([pod], make_statistic_for(pod, cpu_peak=900)).risks
    assert (risk.kind, risk.observed, risk.allowed) == (ContainerRiskKind.CPU_THROTTLED, 900, 600)


def test_cpu_use_above_the_request_starves_only_on_a_full_node():
    pod = make_pod(containers=[make_container(cpu=300, memory_mib=512)])
    row = make_statistic_for(pod, cpu_base=900, cpu_peak=950)
    assert kinds(scanned([pod], row)) == []
    full = scanned([pod], row, nodes=[make_node(cpu=800)])
    assert kinds(full) == [ContainerRiskKind.CPU_STARVED]
    assert full.full_nodes == ("n1",)


def test_missing_requests_are_named_but_not_where_nothing_is_managed():
    pod = make_pod(containers=[make_container(cpu=None, memory_mib=64)])
    system = make_pod("proxy", namespace="kube-system", containers=[make_container(cpu=None, memory_mib=None)])
    [risk] = scanned([pod, system]).risks
    assert (risk.kind, risk.missing, risk.namespace) == (ContainerRiskKind.NO_REQUESTS, ("CPU",), "shop")


def test_risks_of_a_workload_are_one_finding_with_its_worst_pod():
    pods = [make_pod(f"web-{index}", containers=[make_container(**AMPLE, memory_limit_mib=100)]) for index in range(4)]
    rows = [
        make_statistic_for(pod, memory_peak_mib=80, memory_7d_max_mib=largest)
        for pod, largest in zip(pods, (95, 99, 92, 10), strict=True)
    ]
    [risk] = scanned(pods, *rows).risks
    assert (risk.affected_pods, risk.total_pods, risk.worst_pod, risk.observed) == (3, 4, "web-1", 99 * MEBIBYTE)


def test_stale_statistics_and_finished_pods_show_no_risk():
    pod = make_pod(containers=[make_container(cpu=500, memory_mib=60)])
    stale = make_statistic_for(pod, memory_base_mib=64, updated_at=NOW_SECONDS - 3600)
    assert kinds(scanned([pod], stale)) == []
    fresh = make_statistic_for(pod, memory_base_mib=64)
    assert kinds(scanned([replace(pod, phase="Succeeded")], fresh)) == []
    assert kinds(scanned([replace(pod, terminating=True)], fresh)) == []


def test_kinds_are_ordered_by_severity():
    worst = make_pod("a", containers=[make_container(cpu=None, memory_mib=10, cpu_limit=1, memory_limit_mib=20)])
    findings = scanned([worst], make_statistic_for(worst, oom_memory_mib=20))
    order = list(ContainerRiskKind)
    assert kinds(findings) == sorted(kinds(findings), key=order.index)
    assert kinds(findings)[0] is ContainerRiskKind.OOM_KILLED
    assert len(findings.risks) == 5


# ---- waste ----


def test_reclaimable_is_what_is_requested_beyond_the_target():
    pod = make_pod(containers=[make_container(cpu=1000, memory_mib=1124)])
    findings = scanned([pod], make_statistic_for(pod, cpu_base=50, cpu_peak=200))
    [row] = findings.workloads
    assert row.requested == make_resources(1000, 1124)
    assert row.target == make_resources(200, 100)
    assert row.reclaimable == make_resources(800, 1024)
    assert row.share == pytest.approx((0.2 + 1 / 16) / 2)
    assert findings.totals.reclaimable == row.reclaimable
    assert findings.totals.used == make_resources(50, 64)
    assert PRICES.compute_monthly_cost(row.reclaimable) == pytest.approx(730 * (0.8 * 0.01 + 1.0 * 0.001))


def test_targets_do_not_depend_on_the_mode():
    pod = make_pod(containers=[make_container(cpu=1000)])
    for mode in (Mode.OBSERVE, Mode.FULL):
        findings = scanned([pod], make_statistic_for(pod), policy=Policy(mode=mode))
        assert findings.workloads[0].target.cpu_millicores == 200


def test_a_skipped_pod_keeps_its_sizes_and_has_a_reason():
    pod = make_pod(containers=[make_container(cpu=1000)])
    autoscaled = [make_autoscaler("Deployment/web")]
    findings = scanned([pod], make_statistic_for(pod), autoscalers=autoscaled)
    assert findings.workloads[0].target.cpu_millicores == 1000
    held = scanned([pod])
    assert (held.workloads[0].skipped_pods, held.workloads[0].skip_reason) == (1, ReasonCode.NO_STATISTICS)
    assert held.skipped == {ReasonCode.NO_STATISTICS: 1}
    assert held.totals.reclaimable == make_resources()


def test_workloads_are_sorted_by_share_of_the_cluster_and_growth_is_negative():
    big = make_pod("big", workload="Deployment/big", containers=[make_container(cpu=2000, memory_mib=100)])
    small = make_pod("small", workload="Deployment/small", containers=[make_container(cpu=300, memory_mib=100)])
    short = make_pod("short", workload="Deployment/short", containers=[make_container(cpu=20, memory_mib=100)])
    findings = scanned([big, small, short], *(make_statistic_for(pod) for pod in (big, small, short)))
    assert [row.workload for row in findings.workloads] == ["Deployment/big", "Deployment/small", "Deployment/short"]
    assert findings.workloads[-1].reclaimable.cpu_millicores < 0
    assert findings.totals.reclaimable.cpu_millicores == sum(
        row.reclaimable.cpu_millicores for row in findings.workloads
    )


def test_init_containers_set_a_minimum_of_the_target():
    pod = make_pod(
        containers=[
            make_container("setup", cpu=600, memory_mib=10, role=ContainerRole.INIT),
            make_container(cpu=1000, memory_mib=100),
        ]
    )
    [row] = scanned([pod], make_statistic_for(pod)).workloads
    assert row.target.cpu_millicores == 600


# ---- pending ----


def test_a_pending_pod_reports_which_nodes_lack_what():
    running = [
        make_pod("full", node="n1", containers=[make_container(cpu=3900, memory_mib=100)]),
        make_pod("tight", node="n2", containers=[make_container(cpu=3900, memory_mib=16300)]),
    ]
    nodes = [
        make_node("n1"),
        make_node("n2"),
        make_node("n3", unschedulable=True),
        make_node("n4", taints=(Taint("gpu", "yes", TaintEffect.NO_SCHEDULE),)),
        make_node("n5", labels={"zone": "b"}),
        make_node("n6", allocatable_pods=0),
    ]
    waiting = make_pod("wait", node=None, containers=[make_container(cpu=500, memory_mib=500)], unschedulable_since=NOW)
    zoned = replace(waiting, name="zoned", placement=SchedulingConstraints(node_selector=(("zone", "b"),)))
    first, second = scanned([*running, waiting, zoned], nodes=nodes).pending
    assert first.obstacles == {
        SchedulingObstacle.CORDONED: 1,
        SchedulingObstacle.TAINTS: 1,
        SchedulingObstacle.PODS: 1,
        SchedulingObstacle.CPU: 2,
        SchedulingObstacle.MEMORY: 1,
    }
    assert (first.nodes, first.schedulable_now, first.since) == (6, 1, NOW)
    assert second.obstacles == {SchedulingObstacle.CORDONED: 1, SchedulingObstacle.PLACEMENT: 4}
    assert second.schedulable_now == 1


def test_a_cordon_excludes_pods_without_a_toleration():
    anywhere = SchedulingConstraints(tolerations=(Toleration(exists=True),))
    web = make_pod("web", node=None, containers=[make_container(cpu=500)], unschedulable_since=NOW, placement=anywhere)
    plain = replace(web, name="plain", placement=SchedulingConstraints())
    nodes = [make_node("n1", unschedulable=True)]
    found = scanned([web, plain], nodes=nodes).pending
    assert {one.pod: one.schedulable_now for one in found} == {"web": 1, "plain": 0}


def test_decreasing_other_pods_frees_capacity_without_an_eviction():
    idle = make_pod("idle", containers=[make_container(cpu=3800, memory_mib=1024)])
    waiting = make_pod("wait", node=None, workload="Job/batch", containers=[make_container(cpu=1000, memory_mib=64)])
    [pending] = scanned([idle, waiting], make_statistic_for(idle)).pending
    assert (pending.schedulable_now, pending.schedulable_after_sizing, pending.best_node) == (0, 1, "n1")
    assert pending.reclaimed_on_best_node == make_resources(3600, 924)
    assert pending.workload == "Job/batch"


def test_no_capacity_is_reported_on_a_node_that_needs_an_eviction():
    pods = [
        make_pod(name, containers=[make_container(cpu=500, memory_mib=100)], workload=f"Deployment/{name}")
        for name in ("a", "b")
    ]
    rows = [make_statistic_for(pod, cpu_base=300, cpu_peak=600) for pod in pods]
    waiting = make_pod("wait", node=None, containers=[make_container(cpu=300, memory_mib=64)])
    [pending] = scanned([*pods, waiting], *rows, nodes=[make_node(cpu=800)]).pending
    assert pending.schedulable_after_sizing == 0


def test_extended_resources_of_other_pods_count():
    holder = make_pod("holder", extended_requests=(("nvidia.com/gpu", 1),))
    waiting = make_pod("wait", node=None, extended_requests=(("nvidia.com/gpu", 1),))
    one, two = (make_node(allocatable_extended={"nvidia.com/gpu": count}) for count in (1, 2))
    assert scanned([holder, waiting], nodes=[one]).pending[0].obstacles == {SchedulingObstacle.EXTENDED: 1}
    assert scanned([holder, waiting], nodes=[two]).pending[0].schedulable_now == 1


def test_a_toleration_allows_a_tainted_node():
    taint = Taint("gpu", "yes", TaintEffect.NO_SCHEDULE)
    waiting = make_pod(
        "wait", node=None, placement=SchedulingConstraints(tolerations=(Toleration("gpu", exists=True),))
    )
    assert scanned([waiting], nodes=[make_node(taints=(taint,))]).pending[0].schedulable_now == 1


def test_pending_pods_are_sorted_by_priority_and_finished_ones_are_omitted():
    pods = [
        make_pod("low", node=None),
        make_pod("high", node=None, priority=1000),
        make_pod("done", node=None, phase="Failed"),
        make_pod("gated", node=None, scheduling_gated=True),
    ]
    pending = scanned(pods).pending
    assert [(one.pod, one.scheduling_gated) for one in pending] == [("high", False), ("gated", True), ("low", False)]


# ---- the basis ----


def test_the_basis_counts_what_is_known():
    pods = [make_pod("a"), make_pod("b"), make_pod("c"), make_pod("d", phase="Succeeded")]
    rows = [
        make_statistic_for(pods[0], psi_known=False),
        make_statistic_for(pods[1], updated_at=NOW_SECONDS - 10 * 3600),
    ]
    basis = scanned(pods, *rows).basis
    assert (basis.nodes, basis.pods, basis.containers, basis.known, basis.pressure_known) == (1, 3, 3, 1, 0)
    assert basis.history_since == LONG_AGO
    assert basis.updated_at == NOW


def test_a_workloads_statistic_applies_to_all_its_pods():
    pods = [make_pod("a"), make_pod("b")]
    row = make_statistic(pod="", workload=str(make_ref("Deployment/web")))
    assert scanned(pods, row).basis.known == 2


def test_an_empty_cluster_has_no_findings():
    findings = find_scan_findings(make_snapshot([], nodes=[]), make_table(), Policy(), PRICES, NOW)
    assert (findings.risks, findings.workloads, findings.pending) == ((), (), ())
    assert findings.totals.reclaimable == make_resources()


def test_a_stated_heap_above_its_limit_is_at_risk_unless_settings_ignore_heaps():
    heap = HeapBound(HeapRuntime.JVM, "-Xmx1g in args", fixed_bytes=1024 * MEBIBYTE)
    pod = make_pod(containers=[make_container(**AMPLE, memory_limit_mib=1024, heap=heap)])
    findings = scanned([pod], make_statistic_for(pod))
    assert kinds(findings) == [ContainerRiskKind.HEAP_ABOVE_LIMIT]
    [risk] = findings.risks
    assert (risk.heap, risk.observed, risk.allowed) == (heap.source, heap.compute_memory(0, 0), 1024 * MEBIBYTE)
    ignoring = Policy(heap_bounds=HeapBoundPolicy.IGNORE)
    assert kinds(scanned([pod], make_statistic_for(pod), policy=ignoring)) == []


@pytest.mark.parametrize(
    "heap",
    [
        HeapBound(HeapRuntime.JVM, "-Xmx512m in args", fixed_bytes=512 * MEBIBYTE),
        HeapBound(HeapRuntime.JVM, "a default", limit_share=1.0, is_stated=False),
        HeapBound(HeapRuntime.JVM, "a Secret", fixed_bytes=2048 * MEBIBYTE, is_known=False),
        HeapBound(HeapRuntime.GO, "(the memory limit) in GOMEMLIMIT", limit_share=1.0),
    ],
)
def test_other_heaps_are_at_no_risk(heap):
    pod = make_pod(containers=[make_container(**AMPLE, memory_limit_mib=1024, heap=heap)])
    assert kinds(scanned([pod], make_statistic_for(pod))) == []


FULL = Policy(mode=Mode.FULL)


def make_cluster(annotations=None, pods=2, **more):
    running = [
        make_pod(f"web-{number}", containers=(make_container(cpu=300),), annotations=annotations or {})
        for number in range(pods)
    ]
    return make_snapshot(running, nodes=(make_node(),), workloads=[make_workload()], **more)


def find(snapshot=None, policy=FULL, **statistic):
    values = {"cpu_base": 50, "cpu_peak": 400, "cpu_start": 1500} | statistic
    return find_slow_starts(snapshot or make_cluster(), make_table(make_statistic("", **values)), policy, NOW)


def test_a_workload_whose_starts_need_far_more_is_found():
    assert find() == (SlowStart("shop", "Deployment/web", "app", 2, 1500, 400),)


OTHERS = {
    "little more": find(cpu_start=450),
    "unknown": find(cpu_start=0),
    "stale": find(updated_at=NOW_SECONDS - 3600),
    "no pods": find(make_cluster(pods=0)),
    "stated": find(make_cluster({"cruise.io/startup-cpu": "2x"})),
    "switched off": find(make_cluster({"cruise.io/startup-cpu": "off"})),
    "not sized": find(make_cluster({"cruise.io/mode": "off"})),
    "HPA": find(make_cluster(autoscalers=(make_autoscaler(),))),
}


@pytest.mark.parametrize("found", OTHERS.values(), ids=OTHERS)
def test_others_are_not_listed(found):
    assert found == ()


@given(st.integers(0, 4000), st.integers(10, 2000))
def test_the_scan_says_what_admission_does(start, peak):
    table = make_table(make_statistic("", cpu_base=10, cpu_peak=peak, cpu_start=start))
    snapshot = make_cluster()
    found = find_slow_starts(snapshot, table, FULL, NOW)
    pod = replace(snapshot.pods[0], node=None, name="")
    learn = make_cluster({"cruise.io/startup-cpu": "learn"})
    created, _ = PodAdmitter(learn, table, {}, FULL, NOW).admit(
        replace(pod, annotations={"cruise.io/startup-cpu": "learn"})
    )
    boosts = find_startup_boosts(created)
    assert [(one.boosted, one.settled) for one in found] == [
        (one.boosted_request, one.request)
        for one in boosts
        if one.boosted_request >= LEAST_RATIO * one.request and one.boosted_request - one.request >= LEAST_MILLICORES
    ]
