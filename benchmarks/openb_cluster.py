"""The openb trace as a cluster: nodes and pods with GPUs, without usage, in the order of arrival."""

import csv
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cruise.domain.cluster import ClusterSnapshot, Container, Node, Pod, Workload, WorkloadRef
from cruise.domain.resources import MEBIBYTE, Resources, StatedResources

# Thousandths of GPUs: half of the trace's pods request a part of one.
GPU = "openb.example/gpu-milli"
MILLI = 1000
NAMESPACE = "openb"
# The trace has QoS classes and no priorities.
PRIORITIES = {"LS": 3000, "Guaranteed": 2000, "Burstable": 1000, "BE": 0}
OPENB = Path(__file__).parents[2] / "shared" / "data" / "openb"
_BEGUN = datetime(2023, 1, 1, tzinfo=UTC)
_NODES, _PODS = "openb_node_list_all_node.csv", "openb_pod_list_default.csv"


@dataclass(frozen=True, slots=True)
class Openb:
    """A cluster without pods, and the arriving pods in order, all pending."""

    nodes: tuple[Node, ...]
    arrivals: tuple[Pod, ...]

    def snapshot(self, where: dict[str, str | None]) -> ClusterSnapshot:
        """Return the cluster with these pods, by name: each on its node, or pending (None)."""
        pods = [
            replace(pod, node=where[pod.name], phase="Running" if where[pod.name] else "Pending")
            for pod in self.arrivals
            if pod.name in where
        ]
        workloads = {(NAMESPACE, pod.workload): Workload(NAMESPACE, pod.workload) for pod in pods if pod.workload}
        return ClusterSnapshot(
            nodes=tuple(sorted(self.nodes, key=lambda node: node.name)),
            pods=tuple(sorted(pods, key=lambda pod: pod.name)),
            workloads=workloads,
        )


def read_openb(directory: Path = OPENB) -> Openb:
    """Read the two lists of the trace. Raises FileNotFoundError."""
    nodes = tuple(_node(row) for row in _rows(directory / _NODES))
    rows = sorted(_rows(directory / _PODS), key=lambda row: (int(row["creation_time"]), row["name"]))
    return Openb(nodes, tuple(_pod(row) for row in rows))


def _rows(path: Path) -> Iterator[dict[str, str]]:
    with path.open(newline="") as file:
        yield from csv.DictReader(file)


def _node(row: dict[str, str]) -> Node:
    gpus = int(row["gpu"])
    return Node(
        name=row["sn"],
        allocatable=Resources(int(row["cpu_milli"]), int(row["memory_mib"]) * MEBIBYTE),
        allocatable_extended={GPU: gpus * MILLI} if gpus else {},
        labels={"kubernetes.io/hostname": row["sn"], "gpu-model": row["model"]},
        kubelet_version=(1, 34),
    )


def _pod(row: dict[str, str]) -> Pod:
    gpu = int(row["num_gpu"]) * int(row["gpu_milli"] or 0)
    requests = StatedResources(int(row["cpu_milli"]), int(row["memory_mib"]) * MEBIBYTE)
    # Pods with equal requests have one owner, like the replicas of a workload.
    owner = f"{row['qos'].lower()}-{row['cpu_milli']}-{row['memory_mib']}-{gpu}"
    return Pod(
        namespace=NAMESPACE,
        name=row["name"],
        uid=row["name"],
        containers=(Container("main", requests=requests),),
        workload=WorkloadRef("ReplicaSet", owner),
        owner_kind="ReplicaSet",
        owner_name=owner,
        phase="Pending",
        priority=PRIORITIES[row["qos"]],
        created_at=_BEGUN + timedelta(seconds=int(row["creation_time"])),
        extended_requests=((GPU, gpu),) if gpu else (),
    )
