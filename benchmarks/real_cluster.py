"""A thousand nodes and their pods on a real API server, without kubelets.

Resizes are never carried out: only their cost for the API server is measured.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from cruise.domain.resources import MEBIBYTE
from cruise.domain.usage import Statistic, StatisticKey, StatisticsTable
from tests.controlplane.api import Api
from tests.controlplane.behaviour import SimulatedNodeSpec
from tests.controlplane.control_plane import ControlPlane

Json = dict[str, Any]

PODS_PER_WORKLOAD = 10
NAMESPACES = 20
REQUESTS = {"cpu": "500m", "memory": "1Gi"}
LIMITS = {"memory": "4Gi"}
_THREADS = 12
_CREATED = "2026-01-01T00:00:00Z"


@contextmanager
def quiet_control_plane() -> Iterator[ControlPlane]:
    """Start a control plane with only the controllers that a namespace needs."""
    flags = ["--controllers=namespace-controller,serviceaccount-controller"]
    limits = ["--max-requests-inflight=2000", "--max-mutating-requests-inflight=1000"]
    with ControlPlane(audit_level="None", api_server_flags=limits, controller_manager_flags=flags) as plane:
        yield plane


class ObjectRecorder:
    """Stands in for an API server that keeps what is created, in memory."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str, str], Json] = {}

    def create(self, manifest: Json) -> Json:
        """Keep an object, with the metadata that the API server adds."""
        metadata = manifest["metadata"]
        version = str(len(self.objects) + 1)
        metadata |= {"uid": f"uid-{version}", "resourceVersion": version, "creationTimestamp": _CREATED}
        self.objects[manifest["kind"], metadata.get("namespace", ""), metadata["name"]] = manifest
        return manifest

    def patch(self, resource: str, namespace: str, name: str, body: Json, *, subresource: str) -> None:
        """Set the status of a pod."""
        self.objects["Pod", namespace, name][subresource] = body[subresource]


def list_objects(nodes: int, pods_per_node: int) -> list[Json]:
    """Return what `fill` creates."""
    recorder = ObjectRecorder()
    fill(recorder, nodes, pods_per_node)
    return list(recorder.objects.values())


def fill(api: Api | ObjectRecorder, nodes: int, pods_per_node: int) -> None:
    """Create nodes, Deployments with their ReplicaSets, and running pods of one size."""
    workloads = nodes * pods_per_node // PODS_PER_WORKLOAD
    _each(range(NAMESPACES), lambda number: api.create(_namespace(number)))
    _each(range(nodes), lambda number: _create_node(api, number))
    _each(range(workloads), lambda number: _create_workload(api, number))
    _each(range(nodes * pods_per_node), lambda number: _create_pod(api, number, nodes))


def statistics(nodes: int, pods_per_node: int, now: datetime) -> StatisticsTable:
    """Return statistics of every pod and workload: a fifth of the requested CPU and half of the memory are used."""
    rows = []
    for number in range(nodes * pods_per_node):
        rows.append(_statistic(number // PODS_PER_WORKLOAD, _pod_name(number), now))
        if number % PODS_PER_WORKLOAD == 0:
            rows.append(_statistic(number // PODS_PER_WORKLOAD, "", now))
    return StatisticsTable.from_rows(rows)


def _statistic(workload: int, pod: str, now: datetime) -> Statistic:
    return Statistic(
        key=StatisticKey(_namespace_of(workload), pod, f"Deployment/service-{workload:05d}", "app"),
        updated_at=int(now.timestamp()),
        history_since=int(now.timestamp()) - 7 * 86400,
        cpu_base_millicores=100 + workload % 37,
        cpu_peak_millicores=200 + workload % 53,
        memory_base_bytes=512 * MEBIBYTE,
        memory_peak_bytes=600 * MEBIBYTE,
        memory_7d_max_bytes=700 * MEBIBYTE,
        cpu_7d_max_millicores=260 + workload % 53,
    )


def _each(numbers: Sequence[int], work: Callable[[int], object]) -> None:
    with ThreadPoolExecutor(_THREADS) as threads:
        for _ in threads.map(work, numbers):
            pass


def _namespace_of(workload: int) -> str:
    return f"team-{workload % NAMESPACES:02d}"


def _pod_name(number: int) -> str:
    return f"service-{number // PODS_PER_WORKLOAD:05d}-7d9f8b6c5d-{number:06d}"


def _namespace(number: int) -> Json:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": f"team-{number:02d}"}}


def _create_node(api: Api | ObjectRecorder, number: int) -> None:
    spec = SimulatedNodeSpec(f"node-{number:05d}", cpu="32", memory="128Gi")
    api.create(spec.manifest(_CREATED))


def _create_workload(api: Api | ObjectRecorder, number: int) -> None:
    name = f"service-{number:05d}"
    labels = {"app": name}
    template = {
        "metadata": {"labels": labels},
        "spec": {"containers": [{"name": "app", "image": "example.com/app:1"}]},
    }
    spec = {"replicas": PODS_PER_WORKLOAD, "selector": {"matchLabels": labels}, "template": template}
    metadata: Json = {"namespace": _namespace_of(number), "name": name}
    made = api.create({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec})
    owned = metadata | {"name": f"{name}-7d9f8b6c5d", "ownerReferences": [_owner(made)]}
    api.create({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": owned, "spec": spec})


def _owner(made: Json) -> Json:
    metadata = made["metadata"]
    return {
        "apiVersion": made["apiVersion"],
        "kind": made["kind"],
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
    }


def _create_pod(api: Api | ObjectRecorder, number: int, nodes: int) -> None:
    workload = number // PODS_PER_WORKLOAD
    name, namespace = _pod_name(number), _namespace_of(workload)
    owner = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": f"service-{workload:05d}-7d9f8b6c5d",
        "uid": f"00000000-0000-4000-8000-{workload:012d}",
        "controller": True,
    }
    metadata = {
        "namespace": namespace,
        "name": name,
        "labels": {"app": f"service-{workload:05d}", "pod-template-hash": "7d9f8b6c5d"},
        "ownerReferences": [owner],
    }
    container = {
        "name": "app",
        "image": "example.com/app:1",
        "resources": {"requests": REQUESTS, "limits": LIMITS},
        "env": [{"name": f"SETTING_{one}", "value": "of the usual length"} for one in range(12)],
    }
    spec = {"nodeName": f"node-{number % nodes:05d}", "containers": [container]}
    api.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    running = {
        "name": "app",
        "image": "example.com/app:1",
        "imageID": "",
        "ready": True,
        "restartCount": 0,
        "started": True,
        "state": {"running": {"startedAt": _CREATED}},
        "allocatedResources": REQUESTS,
        "resources": {"requests": REQUESTS, "limits": LIMITS},
    }
    api.patch(
        "pods",
        namespace,
        name,
        {"status": {"phase": "Running", "containerStatuses": [running], "observedGeneration": 1}},
        subresource="status",
    )
