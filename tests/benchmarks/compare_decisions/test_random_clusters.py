"""Random clusters are readable, reproducible, and contain all inputs of the decisions."""

import json

from benchmarks.compare_decisions.random_clusters import draw_cluster
from cruise.adapters.files import load_snapshot, load_usage
from cruise.domain.cluster import ClusterSnapshot, ContainerRole, Pod

SEEDS = range(60)


def test_the_same_seed_draws_the_same_cluster():
    assert draw_cluster(7) == draw_cluster(7) != draw_cluster(8)


def test_every_cluster_is_read_and_together_they_have_every_feature(tmp_path):
    pods: list[Pod] = []
    snapshots: list[ClusterSnapshot] = []
    for seed in SEEDS:
        cluster = draw_cluster(seed)
        (tmp_path / "cluster.json").write_text(json.dumps({"kind": "List", "items": cluster.items}))
        document = {"apiVersion": "cruise.io/v1", "kind": "UsageStatistics", "items": cluster.usage}
        (tmp_path / "usage.json").write_text(json.dumps(document))
        snapshot = load_snapshot(str(tmp_path / "cluster.json"))
        table, _ = load_usage(str(tmp_path / "usage.json"), snapshot)
        assert len(table.keys) == len(cluster.usage) > 0
        snapshots.append(snapshot)
        pods += snapshot.pods
    assert {container.role for pod in pods for container in pod.containers} == set(ContainerRole) - {
        # The role of what a pod as a whole gets, and of no container.
        ContainerRole.POD
    }
    kinds = {"Deployment", "StatefulSet", "DaemonSet", "Job", "CronJob"}
    assert {pod.workload.kind for pod in pods if pod.workload} == kinds
    assert 0.05 < sum(pod.node is None for pod in pods) / len(pods) < 0.5
    for name in ("affinity", "anti_affinity", "spread", "host_ports", "claims"):
        assert any(getattr(pod.constraints, name) for pod in pods), name
    for name in (
        "annotations",
        "extended_requests",
        "is_mirror_pod",
        "runs_on_windows",
        "terminating",
        "scheduling_gated",
    ):
        assert any(getattr(pod, name) for pod in pods), name
    for name in ("budgets", "autoscalers", "limit_ranges", "namespace_annotations", "oom_kills"):
        assert any(getattr(snapshot, name) for snapshot in snapshots), name
    assert any(node.taints for snapshot in snapshots for node in snapshot.nodes)
    assert any(snapshot.storage_and_namespaces.attach_limits for snapshot in snapshots)
