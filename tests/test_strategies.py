"""The random clusters are valid, and reach the states for which the invariants are stated."""

from collections import Counter

import pytest
from hypothesis import given, settings

from cruise.domain.cluster import ContainerRole
from cruise.domain.pod_resources import count_pod_requests, get_qos_class
from cruise.domain.resources import NO_RESOURCES
from tests.strategies import DrawnClusterValues, clusters


@given(clusters())
def test_a_cluster_could_exist(cluster: DrawnClusterValues):
    snapshot, statistics = cluster
    names = [(pod.namespace, pod.name) for pod in snapshot.pods]
    assert names == sorted(set(names))
    assert len({pod.uid for pod in snapshot.pods}) == len(names)
    nodes = {node.name: node for node in snapshot.nodes}
    for pod in snapshot.pods:
        assert pod.node is None or pod.node in nodes
        assert pod.qos is get_qos_class(pod)
        assert pod.workload is None or (pod.namespace, pod.workload) in snapshot.workloads
        for container in pod.containers:
            for name in ("cpu_millicores", "memory_bytes"):
                request, limit = getattr(container.requests, name), getattr(container.limits, name)
                assert limit is None or (request is not None and request <= limit)
    for node in snapshot.nodes:
        held = [count_pod_requests(pod) for pod in snapshot.pods if pod.node == node.name]
        assert sum(held, start=NO_RESOURCES).fits_in(node.allocatable)
    containers = {(pod.namespace, pod.name, container.name) for pod in snapshot.pods for container in pod.containers}
    for key in statistics.keys:
        assert not key.pod or (key.namespace, key.pod, key.container) in containers


@pytest.mark.beyond_core
def test_clusters_reach_the_states_that_need_care():
    seen: Counter[str] = Counter()

    @settings(max_examples=400, database=None, derandomize=True)
    @given(clusters())
    def look(cluster: DrawnClusterValues) -> None:
        for pod in cluster.snapshot.pods:
            seen[pod.qos] += 1
            seen[pod.owner_kind or "bare"] += 1
            seen["terminal"] += pod.is_finished
            seen["terminating"] += pod.terminating
            seen["pending"] += pod.node is None
            seen["resize"] += pod.resize.pending is not None
            seen["overhead"] += pod.overhead != NO_RESOURCES
            seen["annotated"] += bool(pod.annotations)
            seen.update(container.role for container in pod.containers)
            seen["under way"] += any(
                container.role is not ContainerRole.INIT and container.actual not in (container.requests, None)
                for container in pod.containers
            )
        seen["several nodes"] += len(cluster.snapshot.nodes) > 1
        seen["limit range"] += bool(cluster.snapshot.limit_ranges)
        seen["budget"] += bool(cluster.snapshot.budgets)
        seen["autoscaler"] += bool(cluster.snapshot.autoscalers)
        seen["statistics of workloads"] += any(not key.pod for key in cluster.statistics.keys)

    look()
    rare = {
        *("Guaranteed", "Burstable", "BestEffort", "ReplicaSet", "StatefulSet", "DaemonSet", "Job", "bare", "Node"),
        *("terminal", "terminating", "pending", "resize", "overhead", "annotated", "main", "sidecar", "init"),
        *("under way", "several nodes", "limit range", "budget", "autoscaler", "statistics of workloads"),
    }
    assert {state for state in rare if seen[state] < 5} == set()
