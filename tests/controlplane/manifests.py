"""Kubernetes objects for tests."""

from collections.abc import Mapping
from typing import Any, Literal

Json = dict[str, Any]
WorkloadKind = Literal["Deployment", "StatefulSet", "DaemonSet", "Job"]
APIS = {"Deployment": "apps/v1", "StatefulSet": "apps/v1", "DaemonSet": "apps/v1", "Job": "batch/v1"}


def container(
    name: str = "app", requests: Mapping[str, str] | None = None, limits: Mapping[str, str] | None = None, **more: Any
) -> Json:
    """Return a container; `more` are further fields."""
    resources = {"requests": dict(requests or {}), "limits": dict(limits or {})}
    return {"name": name, "image": "example.com/app:1", "resources": resources, **more}


def pod_template(name: str, *containers: Json, annotations: Mapping[str, str] | None = None, **spec: Any) -> Json:
    """Return a pod template, labelled `app: NAME`."""
    metadata: Json = {"labels": {"app": name}, "annotations": dict(annotations or {})}
    return {"metadata": metadata, "spec": {"containers": list(containers or (container(),)), **spec}}


def workload(
    kind: WorkloadKind,
    namespace: str,
    name: str,
    template: Json,
    replicas: int = 1,
) -> Json:
    """Return a controller whose pods are labelled `app: NAME`."""
    spec: Json = {"template": template}
    if kind == "Job":
        template["spec"].setdefault("restartPolicy", "Never")
    else:
        spec["selector"] = {"matchLabels": {"app": name}}
    if kind in ("Deployment", "StatefulSet"):
        spec["replicas"] = replicas
    if kind == "StatefulSet":
        spec["serviceName"] = name
    metadata = {"namespace": namespace, "name": name}
    return {"apiVersion": APIS[kind], "kind": kind, "metadata": metadata, "spec": spec}


def pod(namespace: str, name: str, *containers: Json, **spec: Any) -> Json:
    """Return a pod without a controller."""
    template = pod_template(name, *containers, **spec)
    template["metadata"] |= {"namespace": namespace, "name": name}
    return {"apiVersion": "v1", "kind": "Pod", **template}


def budget(namespace: str, name: str, app: str, min_available: int) -> Json:
    """Return a PodDisruptionBudget for the pods labelled `app: APP`."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"namespace": namespace, "name": name},
        "spec": {"minAvailable": min_available, "selector": {"matchLabels": {"app": app}}},
    }
