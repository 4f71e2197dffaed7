"""Savings compared with the requests before cruise, and what pods without requests use."""

from dataclasses import replace

from cruise.decisions.scan.waste import RealizedSavings, estimate_waste, list_pod_requests, sum_realized_savings
from cruise.domain.cluster import QosClass
from cruise.interfaces.coverage import describe_best_effort_pods
from tests.builders import (
    make_amounts,
    make_container,
    make_pod,
    make_resources,
    make_snapshot,
    make_statistic_for,
    make_table,
)

NOTHING = make_amounts(None, None)


def test_pods_count_from_their_original_sizes_where_these_are_known():
    pods = [
        make_pod("small", containers=[make_container(cpu=100, memory_mib=128)]),
        make_pod("larger", containers=[make_container(cpu=300, memory_mib=512)]),
        make_pod("unknown", containers=[make_container(cpu=900, memory_mib=900)]),
        make_pod("waiting", node=None),
    ]
    before = {pod.uid: {"app": (make_amounts(200, 256), NOTHING)} for pod in pods if pod.name != "unknown"}
    pods.append(replace(pods[0], namespace="other", uid="elsewhere"))
    before["elsewhere"] = before[pods[0].uid]
    by_namespace = sum_realized_savings(make_snapshot(pods), before)
    assert by_namespace["other"] == RealizedSavings(1, make_resources(200, 256), make_resources(100, 128))
    found = by_namespace[pods[0].namespace]
    assert found == RealizedSavings(2, make_resources(400, 512), make_resources(400, 640))
    assert found.saved == make_resources(0, -128)


def test_containers_without_an_original_size_count_as_they_are():
    pod = make_pod(containers=[make_container("app", cpu=100), make_container("added", cpu=50)])
    [found] = sum_realized_savings(make_snapshot([pod]), {pod.uid: {"app": (make_amounts(400, 128), NOTHING)}}).values()
    assert (found.before.cpu_millicores, found.now.cpu_millicores) == (450, 150)


def test_what_pods_without_requests_use_is_summed_up():
    idle = make_pod("idle", containers=[make_container("app", None, None)], qos=QosClass.BEST_EFFORT)
    busy = replace(idle, name="busy", uid="busy")
    stated = make_pod("stated")
    rows = [make_statistic_for(pod, cpu_base=70, memory_base_mib=90) for pod in (idle, busy, stated)]
    snapshot = make_snapshot([idle, busy, stated])
    _, totals = estimate_waste(snapshot, make_table(*rows), (), list_pod_requests(snapshot, ()))
    assert (totals.best_effort_pods, totals.used_without_requests) == (2, make_resources(140, 180))
    assert describe_best_effort_pods(totals) == (
        "2 pods without requests use 0.14 cores and 0.18 GiB, which kube-scheduler does not count"
    )
    assert not describe_best_effort_pods(replace(totals, best_effort_pods=0))
