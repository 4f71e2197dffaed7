"""Workload and requests of a recorded container, from the cluster, its metrics or the pod's name."""

import pytest

from cruise.adapters.prometheus.recording import KubeStateMetrics
from cruise.backtest.recordings.prometheus import PodWorkloadsAndRequests
from cruise.domain.annotations import ORIGINAL_RESOURCES
from cruise.domain.cluster import ClusterSnapshot, ContainerRole, WorkloadRef
from cruise.domain.resources import MEBIBYTE, Resources
from cruise.domain.usage import ContainerKey
from tests.builders import make_container, make_pod, make_snapshot

SOME = Resources(100, 128 * MEBIBYTE)


def workload_of_container(
    pod: str, state: KubeStateMetrics | None = None, snapshot: ClusterSnapshot | None = None
) -> str:
    key = ContainerKey("shop", pod, "app")
    state = state or KubeStateMetrics()
    state.requests[key] = SOME
    (found,) = PodWorkloadsAndRequests.create(snapshot, state).containers([key])
    return str(found.workload)


@pytest.mark.parametrize(
    ("pod", "workload"),
    [
        ("web-7d9f8b6c5d-x2x4z", "Deployment/web"),
        ("web-api-7d9f8b6c5d-x2x4z", "Deployment/web-api"),
        ("agent-k9wtq", "DaemonSet/agent"),
        ("db-0", "StatefulSet/db"),
        ("report-29012345-k9wtq", "CronJob/report"),
        ("coredns", "Pod/coredns"),
        # Words are made of other letters than generated endings.
        ("name-with-words", "Pod/name-with-words"),
    ],
)
def test_the_workload_is_derived_from_the_name_if_nothing_else_states_it(pod: str, workload: str) -> None:
    assert workload_of_container(pod) == workload


def test_a_name_is_read_as_one_of_a_workload_that_there_is_now() -> None:
    now = make_snapshot([make_pod("agent-bcdfg", workload="Job/agent")])
    assert workload_of_container("agent-k9wtq", snapshot=now) == "Job/agent"
    assert workload_of_container("other-k9wtq", snapshot=now) == "DaemonSet/other"


def test_owners_from_metrics_precede_names() -> None:
    pods = {("shop", "db-0"): ("Cluster", "db"), ("shop", "web-7d9f8b6c5d-x2x4z"): ("ReplicaSet", "web-7d9f8b6c5d")}
    assert workload_of_container("db-0", KubeStateMetrics(pods)) == "Cluster/db"
    assert workload_of_container("web-7d9f8b6c5d-x2x4z", KubeStateMetrics(pods)) == "Deployment/web"
    above = {("shop", "ReplicaSet", "web-7d9f8b6c5d"): ("Rollout", "front")}
    assert workload_of_container("web-7d9f8b6c5d-x2x4z", KubeStateMetrics(pods, above)) == "Rollout/front"


def test_the_cluster_takes_precedence_over_metrics() -> None:
    now = make_snapshot([make_pod("db-0", workload="StatefulSet/db", containers=[make_container("app", 300, 256)])])
    state = KubeStateMetrics(
        {("shop", "db-0"): ("Cluster", "db")}, requests={ContainerKey("shop", "db-0", "app"): SOME}
    )
    (found,) = PodWorkloadsAndRequests.create(now, state).containers([ContainerKey("shop", "db-0", "app")])
    assert (found.workload, found.requests) == (WorkloadRef("StatefulSet", "db"), Resources(300, 256 * MEBIBYTE))


def test_requests_that_admission_replaced_are_the_ones_that_were_written() -> None:
    original = '{"app":{"requests":{"cpu":"1","memory":"1Gi"}}}'
    key = ContainerKey("shop", "web-1", "app")
    for annotation, asked in ((original, Resources(1000, 1024 * MEBIBYTE)), ("{", SOME), ("[]", SOME)):
        pod = make_pod("web-1", containers=[make_container()], annotations={ORIGINAL_RESOURCES: annotation})
        (found,) = PodWorkloadsAndRequests.create(make_snapshot([pod]), KubeStateMetrics()).containers([key])
        assert found.requests == asked


def test_removed_pods_have_the_largest_requests_of_their_workload() -> None:
    gone = ContainerKey("shop", "web-7d9f8b6c5d-x2x4z", "app")
    pods = [
        make_pod(
            "web-7d9f8b6c5d-bcdfg", containers=[make_container("app", 300, 64), make_container("proxy", 999, 999)]
        ),
        make_pod("web-7d9f8b6c5d-ghjkl", containers=[make_container("app", 200, 256)]),
    ]
    (found,) = PodWorkloadsAndRequests.create(make_snapshot(pods), KubeStateMetrics()).containers([gone])
    assert found.requests == Resources(300, 256 * MEBIBYTE)
    assert found.workload == WorkloadRef("Deployment", "web")


def test_what_requests_nothing_or_only_starts_a_pod_is_left_out() -> None:
    containers = [
        make_container("app", 100, None),
        make_container("free", None, None),
        make_container("migrate", 100, 100, role=ContainerRole.INIT),
    ]
    now = make_snapshot([make_pod("web-7d9f8b6c5d-bcdfg", containers=containers)])
    asked = [
        ContainerKey("shop", pod, name)
        for pod in ("web-7d9f8b6c5d-bcdfg", "web-7d9f8b6c5d-x2x4z", "stranger-0")
        for name in ("app", "free", "migrate")
    ]
    found = PodWorkloadsAndRequests.create(now, KubeStateMetrics()).containers(asked)
    assert [(one.pod, one.container) for one in found] == [
        ("web-7d9f8b6c5d-bcdfg", "app"),
        ("web-7d9f8b6c5d-x2x4z", "app"),
    ]
