"""The metrics API for HPAs, served by the API server from custom resources."""

from datetime import UTC, datetime

from tests.controlplane.api import Api, ApiError, Json, wait_until

GROUP, VERSION = "metrics.k8s.io", "v1beta1"


def serve_metrics(admin: Api) -> None:
    """Define PodMetrics as a custom resource, and wait until they are served."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    spec = {
        "group": GROUP,
        "scope": "Namespaced",
        "names": {"plural": "pods", "singular": "podmetrics", "kind": "PodMetrics", "listKind": "PodMetricsList"},
        "versions": [{"name": VERSION, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
    }
    metadata = {
        "name": f"pods.{GROUP}",
        "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"},
    }
    admin.create(
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": metadata,
            "spec": spec,
        }
    )

    def served() -> bool:
        try:
            admin.get(f"/apis/{GROUP}/{VERSION}/namespaces/default/pods")
        except ApiError:
            return False
        return True

    wait_until(served, "PodMetrics are served")


class MetricsWriter:
    """Writes what pods use."""

    def __init__(self, admin: Api) -> None:
        self._admin = admin
        self._known: set[tuple[str, str]] = set()

    def write(self, pod: Json, use: dict[str, tuple[int, int]]) -> None:
        """Write the use of one pod by container, in millicores and MiB."""
        now = datetime.now(UTC)  # noqa: TID251 - the server's clock
        namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        document = {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": "PodMetrics",
            "metadata": {"namespace": namespace, "name": name, "labels": pod["metadata"]["labels"]},
            "timestamp": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "window": "1s",
            "containers": [
                {"name": one, "usage": {"cpu": f"{cpu}m", "memory": f"{memory}Mi"}}
                for one, (cpu, memory) in use.items()
            ],
        }
        path = f"/apis/{GROUP}/{VERSION}/namespaces/{namespace}/pods"
        if (namespace, name) not in self._known:
            self._known.add((namespace, name))
            self._admin.request("POST", path, document)
            return
        self._admin.request("PATCH", f"{path}/{name}", document, "application/merge-patch+json")
