from dataclasses import replace

from cruise.decisions.sizing.node_plans import decide_node_plans
from cruise.decisions.sizing.planned_requests import count_node_requests_after_plan, count_requests_when_resized
from cruise.domain.cluster import ContainerRole
from cruise.domain.policy import Mode, Policy
from tests.builders import (
    NOW,
    make_amounts,
    make_container,
    make_node,
    make_pod,
    make_resources,
    make_snapshot,
    make_statistic_for,
    make_table,
)

FULL = Policy(mode=Mode.FULL)


def outlook(pods, rows, node):
    snapshot = make_snapshot(pods, nodes=[node])
    [plan] = decide_node_plans(snapshot, make_table(*rows), FULL, NOW)
    return plan, count_node_requests_after_plan(plan, {(pod.namespace, pod.name): pod for pod in snapshot.pods})


def test_resized_pods_count_what_they_get_and_others_what_they_have():
    big = make_pod("big", containers=[make_container(cpu=2000, memory_mib=4096)])
    unknown = make_pod("unknown", containers=[make_container(cpu=300, memory_mib=512)])
    plan, after = outlook([big, unknown], [make_statistic_for(big)], make_node())
    assert plan.counted == make_resources(2300, 4608)
    assert after == make_resources(200 + 300, 100 + 512)


def test_evicted_pods_count_no_more():
    pods = [make_pod(name, containers=[make_container(cpu=600, memory_mib=100)]) for name in ("a", "b")]
    rows = [
        make_statistic_for(pods[0], cpu_base=600, cpu_peak=600, memory_base_mib=100, memory_peak_mib=100),
        make_statistic_for(pods[1], cpu_base=600, cpu_peak=700, memory_base_mib=100, memory_peak_mib=100),
    ]
    plan, after = outlook(pods, rows, make_node(cpu=1000))
    assert [eviction.pod for eviction in plan.evict] == ["b"]
    assert after == make_resources(600, 100)


def test_an_init_container_remains_the_minimum():
    pod = make_pod(
        containers=[make_container("setup", cpu=900, role=ContainerRole.INIT), make_container(cpu=2000, memory_mib=128)]
    )
    _, after = outlook([pod], [make_statistic_for(pod)], make_node())
    assert after.cpu_millicores == 900


def test_what_the_kubelet_still_reports_no_longer_counts_after_the_resize():
    slow = make_pod(containers=[replace(make_container(cpu=100), actual=make_amounts(1500, 128))])
    plan, after = outlook([slow], [make_statistic_for(slow)], make_node())
    assert plan.counted.cpu_millicores == 1500
    assert after.cpu_millicores == 200


def test_containers_without_a_new_size_and_overhead_count_unchanged():
    pod = make_pod(
        containers=[make_container(cpu=100, memory_mib=64), make_container("log", cpu=30, memory_mib=32)],
        overhead=make_resources(5, 10),
    )
    assert count_requests_when_resized(pod, {"app": make_resources(70, 20)}) == make_resources(105, 62)
