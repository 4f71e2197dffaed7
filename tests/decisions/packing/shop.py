"""Pods of one workload, each with what a test says of it."""

from cruise.domain.cluster import Container, Pod, WorkloadRef
from cruise.domain.resources import Amounts
from tests.builders import GIBIBYTE


def a_pod(name: str, node: str | None = None, cpu: int = 500, **more: object) -> Pod:
    fields: dict[str, object] = {
        "namespace": "shop",
        "name": name,
        "uid": f"uid-{name}",
        "containers": (Container("app", requests=Amounts(cpu, GIBIBYTE)),),
        "node": node,
        "phase": "Running" if node else "Pending",
        "owner_kind": "ReplicaSet",
        "owner_name": "web-1",
        "workload": WorkloadRef("Deployment", "web"),
        "labels": {"app": "web"},
    }
    return Pod(**(fields | more))  # type: ignore[arg-type]
