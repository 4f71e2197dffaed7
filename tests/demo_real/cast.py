"""The nodes and workloads of the demo, and the actual usage of their pods."""

from collections.abc import Iterator, Mapping

from tests.controlplane.api import Json
from tests.controlplane.behaviour import SimulatedNodeSpec
from tests.controlplane.manifests import budget, container, pod_template, workload
from tests.e2e.live.manifests import app, autoscaler, sidecar
from tests.e2e.live.sizes import containers_of, requests
from tests.e2e.live.usage import ContainerUse

NAMESPACE = "shop"
CORES = 8
NODES = tuple(SimulatedNodeSpec(f"node-{number}", str(CORES), "32Gi") for number in range(1, 7))
CROWDED = "node-6"
TOO_LARGE = "importer"
KILLED = "worker"

USES: Mapping[tuple[str, str], ContainerUse] = {
    ("web", "app"): ContainerUse(0.30, 400, 0.70, 520, waiting=0.05),
    ("api", "app"): ContainerUse(0.25, 300, 0.60, 420),
    ("worker", "app"): ContainerUse(0.50, 700, 0.90, 900),
    ("db", "app"): ContainerUse(0.60, 1800, 1.10, 2200),
    ("cache", "app"): ContainerUse(0.15, 1200, 0.30, 1400),
    ("agent", "app"): ContainerUse(0.04, 60, 0.08, 80),
    ("cart", "app"): ContainerUse(0.20, 250, 0.50, 300),
    ("cart", "proxy"): ContainerUse(0.03, 40, 0.06, 50),
    ("scaled", "app"): ContainerUse(0.30, 300, 0.50, 350),
    ("exact", "app"): ContainerUse(0.10, 100),
    ("crunch", "app"): ContainerUse(1.50, 500, 1.70, 600, waiting=0.2),
    (TOO_LARGE, "app"): ContainerUse(0.40, 600, 0.80, 900),
}


def workloads() -> Iterator[Json]:
    """The requests of users, usually far above the usage."""
    ns = NAMESPACE
    yield app("Deployment", ns, "web", "1500m", "2Gi", {"memory": "2Gi"}, replicas=12)
    yield app("Deployment", ns, "api", "1200m", "1Gi", replicas=8)
    yield app("Deployment", ns, "worker", "1", "1Gi", {"memory": "1Gi"}, replicas=6)
    yield app("StatefulSet", ns, "db", "2", "6Gi", replicas=3)
    yield budget(ns, "db", "db", min_available=3)
    yield app("StatefulSet", ns, "cache", "1", "2Gi", replicas=2)
    yield app("DaemonSet", ns, "agent", "400m", "256Mi")
    yield app("Deployment", ns, "cart", "1", "1Gi", replicas=3, initContainers=[sidecar("proxy", "300m", "256Mi")])
    yield app("Deployment", ns, "scaled", "500m", "1Gi", replicas=1)
    yield autoscaler(ns, "scaled")
    yield app("Deployment", ns, "exact", "200m", "128Mi", {"cpu": "200m", "memory": "128Mi"})
    yield app("Deployment", ns, "crunch", "300m", "512Mi", replicas=6, affinity=_rather(CROWDED))


def create_late_workloads() -> Iterator[Json]:
    """Who finds no room: pods of whom nothing is known yet, and one that no node could ever hold."""
    yield app("Deployment", NAMESPACE, "late", "2", "1Gi", replicas=3)
    yield workload(
        "Deployment",
        NAMESPACE,
        TOO_LARGE,
        pod_template(TOO_LARGE, container(requests={"cpu": str(CORES + 2), "memory": "2Gi"})),
    )


def compute_asked_millicores() -> dict[tuple[str, str], int]:
    """Return the requests of users, by workload and container, of one pod each."""
    return {
        (one["metadata"]["name"], container): requests(one["spec"]["template"], container).cpu
        for one in (*workloads(), *create_late_workloads())
        if "template" in one["spec"]
        for container in containers_of(one["spec"]["template"])
    }


def _rather(node: str) -> Json:
    """An affinity that crowds one node."""
    here = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "preference": here}]}}
