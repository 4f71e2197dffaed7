"""Pods of one workload and nodes for them, with overrides for each test."""

from cruise.domain.cluster import Container, Node, Pod, WorkloadRef
from cruise.domain.resources import Resources, StatedResources
from tests.builders import GIBIBYTE


def make_shop_pod(name: str, node: str | None = None, cpu: int = 500, **more: object) -> Pod:
    fields: dict[str, object] = {
        "namespace": "shop",
        "name": name,
        "uid": f"uid-{name}",
        "containers": (Container("app", requests=StatedResources(cpu, GIBIBYTE)),),
        "node": node,
        "phase": "Running" if node else "Pending",
        "owner_kind": "ReplicaSet",
        "owner_name": "web-1",
        "workload": WorkloadRef("Deployment", "web"),
        "labels": {"app": "web"},
    }
    return Pod(**(fields | more))  # type: ignore[arg-type]


def make_shop_node(name: str, cpu: int = 1000, **more: object) -> Node:
    return Node(name, Resources(cpu, 4 * GIBIBYTE), **more)  # type: ignore[arg-type]
