"""VPA's admission controller, built once from its Go module, with a real API server, VPAs and workloads."""

import os
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml

from benchmarks.bench_webhook import WebhookProcess
from benchmarks.real_cluster import quiet_control_plane
from benchmarks.vpa_module import MODULE, built, go
from benchmarks.webhook_servers import SERVER_CORE
from benchmarks.webhook_world import HASH, NAMESPACES
from cruise.adapters.webhook_tls.certificates import make_key_pair
from tests.controlplane.api import Api, ApiError, wait_until
from tests.postgres_servers import free_port

Json = dict[str, Any]

PATH = "/"
_CRDS = "deploy/vpa-v1-crd-gen.yaml"
_KIND = "verticalpodautoscalers.autoscaling.k8s.io"


def binary() -> Path:
    """Return the program."""
    return built("vpa-admission-controller", ("build", "-buildvcs=false"), f"{MODULE}/pkg/admission-controller")


@contextmanager
def vpa_admission(directory: Path, workloads: int) -> Iterator[WebhookProcess]:
    """Run the controller on one core, with a VPA and a recommendation for each of the first workloads."""
    program, port = binary(), free_port()
    now = datetime.now(UTC)  # noqa: TID251 - certificates are checked by the real time
    pair, authority = make_key_pair(["localhost", "127.0.0.1"], now, timedelta(hours=1))
    files = {"tls.crt": pair.certificate, "tls.key": pair.key, "ca.crt": authority}
    for name, content in files.items():
        (directory / name).write_bytes(content)
    with quiet_control_plane() as plane:
        _fill(plane.api(), workloads)
        command = [
            *("taskset", "-c", str(SERVER_CORE), str(program)),
            f"--kubeconfig={plane.kubeconfig()}",
            "--register-webhook=false",
            f"--client-ca-file={directory / 'ca.crt'}",
            f"--tls-cert-file={directory / 'tls.crt'}",
            f"--tls-private-key={directory / 'tls.key'}",
            f"--port={port}",
            f"--address=127.0.0.1:{free_port()}",
            "--v=0",
        ]
        log = (directory / "vpa.log").open("wb")
        environment = {**os.environ, "GOMAXPROCS": "1", "NAMESPACE": "default"}
        with log, subprocess.Popen(command, stdout=log, stderr=log, env=environment) as process:
            try:
                yield WebhookProcess(port, process.pid)
            finally:
                process.kill()


def _fill(api: Api, workloads: int) -> None:
    definitions = Path(go("list", "-m", "-f", "{{.Dir}}", MODULE)) / _CRDS
    for definition in yaml.safe_load_all(definitions.read_text()):
        api.create(definition)
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda number: api.create(_named("v1", "Namespace", f"ns-{number}")), range(NAMESPACES)))
        wait_until(lambda: _is_served(api), "VPAs are served")
        list(threads.map(lambda number: _create(api, number), range(workloads)))


def _is_served(api: Api) -> bool:
    try:
        api.items(_KIND, "default")
    except (ApiError, KeyError, StopIteration):
        return False
    return True


def _create(api: Api, number: int) -> None:
    namespace, name = f"ns-{number % NAMESPACES}", f"web-{number}"
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "app", "image": "x"}]}}
    spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
    made = api.create({**_named("apps/v1", "Deployment", name, namespace), "spec": spec})
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name, "uid": made["metadata"]["uid"]}
    owned = _named("apps/v1", "ReplicaSet", f"{name}-{HASH}", namespace)
    owned["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
    api.create({**owned, "spec": spec})
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
    wanted = {"targetRef": target, "updatePolicy": {"updateMode": "Initial"}}
    api.create({**_named("autoscaling.k8s.io/v1", "VerticalPodAutoscaler", name, namespace), "spec": wanted})
    amounts = {"cpu": f"{300 + number}m", "memory": "300Mi"}
    bounds = ("target", "lowerBound", "upperBound", "uncappedTarget")
    of_containers = [{"containerName": one, **dict.fromkeys(bounds, amounts)} for one in ("app", "proxy")]
    status = {"status": {"recommendation": {"containerRecommendations": of_containers}}}
    content = "application/merge-patch+json"
    api.request("PATCH", f"{api.path(_KIND, namespace, name)}/status", status, content)


def _named(version: str, kind: str, name: str, namespace: str | None = None) -> Json:
    metadata = {"name": name} | ({"namespace": namespace} if namespace is not None else {})
    return {"apiVersion": version, "kind": kind, "metadata": metadata}
