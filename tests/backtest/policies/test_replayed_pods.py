"""Pods made from a view's columns."""

import numpy as np

from cruise.backtest.policies.replayed_pods import ReplayedPods, get_container_sizes
from cruise.backtest.replay.nodes import format_node_name
from cruise.backtest.replay.policy import NO_CONTAINERS
from cruise.domain.annotations import ORIGINAL_RESOURCES
from cruise.domain.cluster import WorkloadRef
from cruise.domain.resources import MEBIBYTE, StatedResources
from cruise.simulation.cluster.state import convert_to_datetime
from tests.backtest.replayed import START, make_recording, make_view


def test_a_created_pod_has_provisioned_requests():
    pod = ReplayedPods(make_recording("web")).get_created(0, convert_to_datetime(START))
    [container] = pod.containers
    assert (pod.node, pod.phase, pod.created_at) == (None, "Pending", convert_to_datetime(START))
    assert container.requests == StatedResources(500, 512 * MEBIBYTE)
    assert container.limits == StatedResources(None, 1024 * MEBIBYTE)
    assert get_container_sizes([pod]).memory_limit_bytes.tolist() == [1024 * MEBIBYTE]


def test_a_running_pod_has_the_present_sizes_and_a_new_uid():
    pods = ReplayedPods(make_recording("web"))
    one, other = (
        pods.get_pod(0, make_view([3], cpu=70, limit=0, creation_count=[creation_count])) for creation_count in (1, 2)
    )
    assert (one.node, one.phase, one.containers[0].requests.cpu_millicores) == ("node-003", "Running", 70)
    assert one.containers[0].limits == StatedResources(None, None)
    assert one.uid != other.uid


def test_without_recorded_memory_only_cpu_is_sized():
    pod = ReplayedPods(make_recording("web", has_memory=False)).get_created(0, convert_to_datetime(START))
    assert pod.annotations == {"cruise.io/resources": "cpu"}


def test_pods_sized_at_admission_are_recognised():
    pods = ReplayedPods(make_recording("web", "web"))
    pods.record_admission(1, True)
    view = make_view([0, 0])
    assert [ORIGINAL_RESOURCES in pods.get_pod(container, view).annotations for container in (0, 1)] == [False, True]


def test_a_snapshot_has_all_existing_pods_sorted_and_the_replicas_of_the_recording():
    pods = ReplayedPods(make_recording("web", "api", "web", "gone"))
    snapshot = pods.build_snapshot(make_view([1, -1, 0, -2]))
    assert [(pod.name, pod.node) for pod in snapshot.pods] == [
        ("pod-0", "node-001"),
        ("pod-1", None),
        ("pod-2", "node-000"),
    ]
    assert [node.name for node in snapshot.nodes] == [format_node_name(0), format_node_name(1)]
    assert snapshot.workloads["shop", WorkloadRef("Deployment", "web")].replicas == 2
    assert pods.build_snapshot(make_view([0, 0, 0, 0]), NO_CONTAINERS).pods == ()


def test_around_a_pod_are_its_node_and_its_workload():
    pods = ReplayedPods(make_recording("web", "api", "web", "db", "web"))
    view = make_view([0, 0, 1, 1, -2])
    around = pods.get_pods_around("shop", WorkloadRef("Deployment", "web"), "node-000", view)
    assert np.array_equal(around, [0, 1, 2])
    assert pods.get_pods_around("shop", None, "node-001", view).tolist() == [2, 3]
