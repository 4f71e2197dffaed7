"""The metrics API for HPAs: an extension API server that the API server aggregates, as metrics-server is."""

import json
import tempfile
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from tests.client_certificates import ClientAuthority
from tests.controlplane.api import Api, ApiError, Json, wait_until
from tests.http_server import HttpAnswer, ReceivedHttpRequest, answering

GROUP, VERSION = "metrics.k8s.io", "v1beta1"
NAMESPACE, SERVICE = "kube-system", "metrics-server"
_ROOT = f"/apis/{GROUP}/{VERSION}"
_JSON = {"Content-Type": "application/json"}


class PodMetrics:
    """What pods use, by namespace and name."""

    def __init__(self) -> None:
        self._documents: dict[tuple[str, str], Json] = {}

    def write(self, pod: Json, use: dict[str, tuple[int, int]]) -> None:
        """Record the use of one pod by container, in millicores and MiB."""
        now = datetime.now(UTC)  # noqa: TID251 - the server's clock
        namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        self._documents[namespace, name] = {
            "metadata": {"namespace": namespace, "name": name, "labels": pod["metadata"]["labels"]},
            "timestamp": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "window": "1s",
            "containers": [
                {"name": one, "usage": {"cpu": f"{cpu}m", "memory": f"{memory}Mi"}}
                for one, (cpu, memory) in use.items()
            ],
        }

    def respond(self, request: ReceivedHttpRequest) -> HttpAnswer:
        """Answer the discovery of the group, and lists of a namespace's pods by labels."""
        address = urlsplit(request.path)
        if address.path == _ROOT:
            resource = {"name": "pods", "singularName": "", "namespaced": True, "kind": "PodMetrics", "verbs": ["list"]}
            group = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": f"{GROUP}/{VERSION}"}
            return _answer(group | {"resources": [resource]})
        parts = address.path.removeprefix(f"{_ROOT}/").split("/")
        if not address.path.startswith(_ROOT) or len(parts) != 3 or (parts[0], parts[2]) != ("namespaces", "pods"):
            return HttpAnswer(404)
        wanted = dict(
            term.split("=", 1) for text in parse_qs(address.query).get("labelSelector", ()) for term in text.split(",")
        )
        items = [
            one
            for (namespace, _), one in self._documents.copy().items()
            if namespace == parts[1] and wanted.items() <= one["metadata"]["labels"].items()
        ]
        return _answer({"kind": "PodMetricsList", "apiVersion": f"{GROUP}/{VERSION}", "metadata": {}, "items": items})


@contextmanager
def serve_metrics(admin: Api) -> Iterator[PodMetrics]:
    """Register an extension API server as an APIService, and wait until the API server finds it available."""
    metrics = PodMetrics()
    with tempfile.TemporaryDirectory() as directory:
        authority = ClientAuthority(Path(directory), "metrics")
        files = authority.server(f"{SERVICE}.{NAMESPACE}.svc", "127.0.0.1")
        both = Path(directory) / "both.pem"
        both.write_bytes(files.key.read_bytes() + files.certificate.read_bytes())
        with answering(metrics.respond, both) as address:
            _register(admin, urlsplit(address).port or 0, authority.file.read_bytes())
            yield metrics


def _register(admin: Api, port: int, ca: bytes) -> None:
    # The API server reaches no cluster addresses here. It takes the host of an ExternalName as it is.
    service = {"type": "ExternalName", "externalName": "localhost"}
    metadata = {"name": SERVICE, "namespace": NAMESPACE}
    admin.create({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": service})
    spec = {
        "group": GROUP,
        "version": VERSION,
        "groupPriorityMinimum": 100,
        "versionPriority": 100,
        "service": metadata | {"port": port},
        "caBundle": b64encode(ca).decode(),
    }
    api_service = {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "spec": spec}
    admin.create(api_service | {"metadata": {"name": f"{VERSION}.{GROUP}"}})

    def is_available() -> bool:
        try:
            admin.get(f"{_ROOT}/namespaces/default/pods")
        except ApiError:
            return False
        return True

    wait_until(is_available, "the aggregated metrics API is available")


def _answer(document: Json) -> HttpAnswer:
    return HttpAnswer(body=json.dumps(document).encode(), headers=_JSON)
