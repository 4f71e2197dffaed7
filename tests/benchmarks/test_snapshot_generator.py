"""Generated clusters are readable and have the shape that the benchmarks state."""

import json

from benchmarks.snapshot_generator import PODS_PER_NODE, generate_cluster, write_snapshot, write_usage
from cruise.adapters.files import load_snapshot, load_usage
from cruise.domain.cluster import ContainerRole, QosClass


def test_both_layouts_hold_the_same_cluster(tmp_path):
    cluster = generate_cluster(8)
    write_snapshot(cluster, tmp_path / "pretty.json", pretty=True)
    write_snapshot(cluster, tmp_path / "compact.json", pretty=False)
    snapshot = load_snapshot(str(tmp_path / "pretty.json"))
    assert load_snapshot(str(tmp_path / "compact.json")) == snapshot
    assert len(snapshot.nodes) == 8
    assert len(snapshot.pods) == cluster.pod_count == 8 * PODS_PER_NODE
    assert sum(len(pod.containers) for pod in snapshot.pods) == cluster.container_count
    assert {pod.qos for pod in snapshot.pods} == {QosClass.BURSTABLE}
    assert {container.role for pod in snapshot.pods for container in pod.containers} == {
        ContainerRole.MAIN,
        ContainerRole.SIDECAR,
    }
    assert {pod.workload.kind for pod in snapshot.pods if pod.workload} == {"Deployment", "StatefulSet", "DaemonSet"}
    assert all((pod.namespace, pod.workload) in snapshot.workloads for pod in snapshot.pods)


def test_the_layout_is_kubectls(tmp_path):
    write_snapshot(generate_cluster(2), tmp_path / "pretty.json")
    text = (tmp_path / "pretty.json").read_text()
    assert text == json.dumps(json.loads(text), indent=4) + "\n"


def test_usage_covers_every_container(tmp_path):
    cluster = generate_cluster(3)
    write_snapshot(cluster, tmp_path / "cluster.json")
    write_usage(cluster, tmp_path / "usage.json")
    table, _ = load_usage(str(tmp_path / "usage.json"), load_snapshot(str(tmp_path / "cluster.json")))
    assert len(table.keys) == cluster.container_count
    assert (table.cpu_peak_millicores >= table.cpu_base_millicores).all()


def test_the_same_seed_writes_the_same_bytes(tmp_path):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        write_snapshot(generate_cluster(2, seed), tmp_path / name, pretty=False)
    first, again, other = ((tmp_path / name).read_bytes() for name in "abc")
    assert first == again != other


def test_pods_have_the_bulk_and_the_containers_of_real_ones(tmp_path):
    cluster = generate_cluster(200)
    assert 1.4 < cluster.container_count / cluster.pod_count < 1.6
    write_snapshot(generate_cluster(20), tmp_path / "compact.json", pretty=False)
    items = json.loads((tmp_path / "compact.json").read_text())["items"]
    sizes = [len(json.dumps(item, separators=(",", ":"))) for item in items if item["kind"] == "Pod"]
    assert 3000 < sum(sizes) / len(sizes) < 5000
