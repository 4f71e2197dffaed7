"""A cluster of 1,000 nodes and 20,000 workloads, and the review of a new pod of each."""

import json
import random
from typing import Any

from cruise.domain.cluster import WorkloadRef
from cruise.domain.policy import Mode, Policy
from cruise.kube_json.objects.owners import OwnerIndex
from cruise.runtime.admission import PodAdmitter
from tests.builders import NOW, make_node, make_snapshot, make_statistic, make_table, make_workload

WORKLOADS = 20_000
NODES = 1_000
NAMESPACES = 50
HASH = "7d9f8b6c5d"
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"

Json = dict[str, Any]


def make_webhook_cluster(workloads: int = WORKLOADS, nodes: int = NODES) -> tuple[PodAdmitter, OwnerIndex]:
    """The inputs of the webhook's decisions."""
    names = [(f"ns-{index % NAMESPACES}", f"web-{index}") for index in range(workloads)]
    table = make_table(
        *(
            make_statistic("", namespace, f"Deployment/{name}", container, cpu_peak=300 + index % 400)
            for index, (namespace, name) in enumerate(names)
            for container in ("app", "proxy")
        )
    )
    snapshot = make_snapshot(
        [],
        nodes=[make_node(f"n-{index}") for index in range(nodes)],
        workloads=[make_workload(f"Deployment/{name}", namespace) for namespace, name in names],
    )
    owners = OwnerIndex(
        {(namespace, "ReplicaSet", f"{name}-{HASH}"): WorkloadRef("Deployment", name) for namespace, name in names}
    )
    return PodAdmitter(snapshot, table, {}, Policy(mode=Mode.INITIAL), NOW), owners


def make_reviews(count: int = WORKLOADS) -> list[bytes]:
    """Return one review per workload, in random order, like kube-apiserver's: about 6 kB."""
    generator = random.Random(1)
    reviews = [_encoded(_review(index, generator)) for index in range(count)]
    generator.shuffle(reviews)
    return reviews


def make_kinds(count: int, workloads: int, *, resized: bool = False) -> list[bytes]:
    """Return reviews of so many kinds of pods, each a new revision of one of the first workloads.

    Revisions differ in a label, and with `resized` also in a request.
    """
    generator = random.Random(2)
    reviews = []
    for index in range(count):
        review = _review(index % workloads, generator)
        review["request"]["object"]["metadata"]["labels"]["revision"] = str(index)
        if resized:
            requests = review["request"]["object"]["spec"]["containers"][0]["resources"]["requests"]
            requests["memory"] = f"{(512 << 10) + index}Ki"
        reviews.append(_encoded(review))
    return reviews


def _encoded(review: Json) -> bytes:
    return json.dumps(review, separators=(",", ":")).encode()


def _review(index: int, generator: random.Random) -> Json:
    namespace = f"ns-{index % NAMESPACES}"
    pod_kind = {"group": "", "version": "v1", "kind": "Pod"}
    pod_resource = {"group": "", "version": "v1", "resource": "pods"}
    uid = f"{generator.getrandbits(32):08x}-6393-11e8-b7cc-42010a800002"
    user = "system:serviceaccount:kube-system:replicaset-controller"
    groups = ["system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"]
    return {
        "kind": "AdmissionReview",
        "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": uid,
            "kind": pod_kind,
            "resource": pod_resource,
            "requestKind": pod_kind,
            "requestResource": pod_resource,
            "namespace": namespace,
            "operation": "CREATE",
            "userInfo": {"username": user, "uid": uid, "groups": groups},
            "object": _pod(f"web-{index}", namespace, "".join(generator.choices(_LETTERS, k=5))),
            "oldObject": None,
            "dryRun": False,
            "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
        },
    }


def _pod(name: str, namespace: str, suffix: str) -> Json:
    owner = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": f"{name}-{HASH}",
        "uid": "2f0bbd2b-6d2b-4ac8-9d8a-1e4a1d7a8b11",
        "controller": True,
        "blockOwnerDeletion": True,
    }
    managed = {
        "manager": "kube-controller-manager",
        "operation": "Update",
        "apiVersion": "v1",
        "time": "2026-01-01T00:00:00Z",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:metadata": {"f:labels": {".": {}, "f:app": {}, "f:pod-template-hash": {}}}},
    }
    sources = [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
    ]
    tolerated = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {
            "generateName": f"{name}-{HASH}-",
            "namespace": namespace,
            "creationTimestamp": None,
            "labels": {"app": name, "pod-template-hash": HASH, "team": "shop"},
            "annotations": {"prometheus.io/scrape": "true"},
            "ownerReferences": [owner],
            "managedFields": [managed],
        },
        "spec": {
            # Each pod has a volume for its token, mounted into every container.
            "volumes": [{"name": f"kube-api-access-{suffix}", "projected": {"sources": sources, "defaultMode": 420}}],
            "containers": [_container("app", suffix, "500m", "512Mi"), _container("proxy", suffix, "100m", "64Mi")],
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 30,
            "dnsPolicy": "ClusterFirst",
            "serviceAccountName": "default",
            "serviceAccount": "default",
            "securityContext": {},
            "schedulerName": "default-scheduler",
            "tolerations": [
                {"key": "node.kubernetes.io/not-ready", **tolerated},
                {"key": "node.kubernetes.io/unreachable", **tolerated},
            ],
            "priority": 0,
            "enableServiceLinks": True,
            "preemptionPolicy": "PreemptLowerPriority",
        },
        "status": {},
    }


def _container(name: str, suffix: str, cpu: str, memory: str) -> Json:
    probe = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
    return {
        "name": name,
        "image": f"registry.example/shop/{name}:1.2.3",
        "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
        "env": [{"name": f"SETTING_{index}", "value": f"what setting {index} of it is"} for index in range(19)],
        "resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": cpu, "memory": memory}},
        "volumeMounts": [
            {
                "name": f"kube-api-access-{suffix}",
                "readOnly": True,
                "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
            },
            {"name": "config", "mountPath": "/etc/app"},
        ],
        "livenessProbe": {"httpGet": {"path": "/healthz", "port": 8080, "scheme": "HTTP"}, **probe},
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "IfNotPresent",
    }
