"""Kubernetes objects for scenes, other than plain workloads."""

from collections.abc import Mapping
from typing import Any

from tests.controlplane.api import Api, Json
from tests.controlplane.manifests import WorkloadKind, container, pod_template, workload


def app(
    kind: WorkloadKind,
    namespace: str,
    name: str,
    cpu: str,
    memory: str,
    limits: Mapping[str, str] | None = None,
    *,
    replicas: int = 1,
    node: str = "",
    annotations: Mapping[str, str] | None = None,
    **spec: Any,
) -> Json:
    """A workload of one container called app; `node` is the only one that its pods may run on."""
    if node:
        spec["nodeSelector"] = {"kubernetes.io/hostname": node}
    one = container(requests={"cpu": cpu, "memory": memory}, limits=limits)
    # No test waits for a terminating pod.
    spec.setdefault("terminationGracePeriodSeconds", 1)
    return workload(kind, namespace, name, pod_template(name, one, annotations=annotations, **spec), replicas)


def sidecar(name: str, cpu: str, memory: str) -> Json:
    """A native sidecar."""
    return container(name, requests={"cpu": cpu, "memory": memory}, restartPolicy="Always")


def autoscaler(namespace: str, deployment: str, utilisation: int = 60) -> Json:
    """An HPA on a Deployment's CPU utilisation."""
    target = {"type": "Utilization", "averageUtilization": utilisation}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"namespace": namespace, "name": deployment},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": deployment},
            "minReplicas": 1,
            "maxReplicas": 3,
            "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}],
        },
    }


def run_of_cron_job(api: Api, namespace: str, name: str, template: Json) -> Json:
    """A CronJob that is never due, returned, and one run of it."""
    template["spec"].setdefault("restartPolicy", "Never")
    job = {"spec": {"template": template}}
    made = api.create(
        {
            "apiVersion": "batch/v1",
            "kind": "CronJob",
            "metadata": {"namespace": namespace, "name": name},
            "spec": {"schedule": "0 0 1 1 *", "jobTemplate": job},
        }
    )
    next_run(api, made)
    return made


def next_run(api: Api, cron_job: Json, number: int = 29000000) -> None:
    """One run of a CronJob, as `kubectl create job --from` starts it."""
    name, namespace = cron_job["metadata"]["name"], cron_job["metadata"]["namespace"]
    owner = {"apiVersion": "batch/v1", "kind": "CronJob", "name": name, "uid": cron_job["metadata"]["uid"]}
    metadata = {
        "namespace": namespace,
        "name": f"{name}-{number}",
        "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}],
    }
    spec = cron_job["spec"]["jobTemplate"]["spec"]
    api.create({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec})
