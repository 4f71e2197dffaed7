"""Writes clusters of any size as `kubectl get … -A -o json` prints them, with a matching UsageStatistics file.

Every node has 30 pods of 1.5 containers on average: four DaemonSets, the rest Deployments of all sizes and some
StatefulSets. Pods are as large as real ones (environment, volumes, probes, statuses: 3 to 5 kB without white space).
The same seed writes the same bytes.
"""

import json
import random
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

Json = dict[str, Any]

PODS_PER_NODE = 30
UPDATED_AT = "2026-01-01T12:00:00Z"
CREATED_AT = "2025-12-01T08:30:00Z"
NODE_CPU_MILLICORES = 15_890
NODE_MEMORY_BYTES = 62 << 30

_MIB = 1 << 20
_PLACEHOLDER = re.compile(r"@(\w+)@")
_HASH_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_DAEMON_SETS = ("csi-node", "log-agent", "network-agent", "node-exporter")
_WRITE_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class GeneratorSettings:
    """One container of a workload: its name, its requests, and its typical use as shares of them."""

    name: str
    cpu_millicores: int
    memory_mib: int
    cpu_share: float
    memory_share: float
    sidecar: bool = False


@dataclass(frozen=True, slots=True)
class GeneratedWorkload:
    """A workload and the names of its pods with the nodes that they are on."""

    namespace: str
    kind: str
    name: str
    shapes: tuple[GeneratorSettings, ...]
    pods: tuple[tuple[str, str], ...]
    template_hash: str = ""

    @property
    def owner(self) -> tuple[str, str]:
        """Kind and name of the pods' direct controller."""
        if self.kind == "Deployment":
            return "ReplicaSet", f"{self.name}-{self.template_hash}"
        return self.kind, self.name


@dataclass(frozen=True, slots=True)
class GeneratedCluster:
    """A generated cluster: nodes by name, workloads by namespace and name."""

    nodes: tuple[str, ...]
    workloads: tuple[GeneratedWorkload, ...]
    seed: int
    pod_count: int = field(init=False)
    container_count: int = field(init=False)

    def __post_init__(self) -> None:
        """Count the objects once for reports."""
        pods = sum(len(workload.pods) for workload in self.workloads)
        containers = sum(len(workload.pods) * len(workload.shapes) for workload in self.workloads)
        object.__setattr__(self, "pod_count", pods)
        object.__setattr__(self, "container_count", containers)


def generate_cluster(node_count: int, seed: int = 1, pods_per_node: int = PODS_PER_NODE) -> GeneratedCluster:
    """Generate a cluster: every node has its DaemonSet pods, the other pods are distributed evenly."""
    draw = random.Random(seed)
    nodes = tuple(f"node-{index:05d}" for index in range(node_count))
    workloads = [_daemon_set(name, nodes, draw) for name in _DAEMON_SETS]
    left = node_count * (pods_per_node - len(_DAEMON_SETS))
    namespaces = [f"team-{index:03d}" for index in range(max(2, node_count // 12))]
    places = _deal(nodes, draw)
    index = 0
    while left:
        replicas = min(left, draw.choices((1, 2, 3, 5, 8, 20, 60), (10, 20, 25, 20, 12, 9, 4))[0])
        kind = "StatefulSet" if draw.random() < 0.1 else "Deployment"
        namespace = namespaces[index % len(namespaces)]
        workloads.append(_workload(namespace, kind, f"app-{index:05d}", replicas, places, draw))
        left -= replicas
        index += 1
    return GeneratedCluster(
        nodes, tuple(sorted(workloads, key=lambda workload: (workload.namespace, workload.name))), seed
    )


def _deal(nodes: tuple[str, ...], draw: random.Random) -> Iterator[str]:
    while True:
        yield from draw.sample(nodes, len(nodes))


def _letters(draw: random.Random, count: int) -> str:
    return "".join(draw.choices(_HASH_LETTERS, k=count))


def _shape(name: str, draw: random.Random, sidecar: bool = False) -> GeneratorSettings:
    cpu = draw.choice((50, 100) if sidecar else (50, 100, 250, 250, 500, 1000))
    memory = draw.choice((64, 128) if sidecar else (128, 256, 512, 1024, 2048))
    return GeneratorSettings(name, cpu, memory, draw.uniform(0.05, 0.6), draw.uniform(0.2, 0.8), sidecar)


def _daemon_set(name: str, nodes: tuple[str, ...], draw: random.Random) -> GeneratedWorkload:
    pods = sorted((f"{name}-{_letters(draw, 5)}-{node[5:]}", node) for node in nodes)
    return GeneratedWorkload("platform", "DaemonSet", name, (_shape("agent", draw),), tuple(pods))


def _workload(
    namespace: str, kind: str, name: str, replicas: int, places: Iterator[str], draw: random.Random
) -> GeneratedWorkload:
    shapes = [_shape("app", draw)]
    # Four DaemonSets have one container each; 0.577 of the others' pods need two for 1.5 on average.
    if draw.random() < 0.577:
        shapes.append(_shape("proxy", draw, sidecar=draw.random() < 0.5))
    template_hash = _letters(draw, 10)
    if kind == "StatefulSet":
        names = [f"{name}-{ordinal}" for ordinal in range(replicas)]
    else:
        suffixes = {_letters(draw, 5) for _ in range(replicas)}
        while len(suffixes) < replicas:
            suffixes.add(_letters(draw, 5))
        names = [f"{name}-{template_hash}-{suffix}" for suffix in sorted(suffixes)]
    pods = tuple((pod, next(places)) for pod in names)
    return GeneratedWorkload(namespace, kind, name, tuple(shapes), pods, template_hash)


# ---- the snapshot ----


def write_snapshot(cluster: GeneratedCluster, path: Path, pretty: bool = True) -> None:
    """Write the cluster as kubectl prints it (4 spaces), or without white space."""
    with path.open("wb") as file:
        _write_list(_objects(cluster, pretty), file, pretty)


def _write_list(items: Iterable[str], file: BinaryIO, pretty: bool) -> None:
    opening, between, closing = (
        ('{\n    "apiVersion": "v1",\n    "items": [\n        ', ",\n        ", '\n    ],\n    "kind": "List"')
        if pretty
        else ('{"apiVersion":"v1","items":[', ",", '],"kind":"List"')
    )
    tail = ',\n    "metadata": {\n        "resourceVersion": ""\n    }\n}\n' if pretty else ',"metadata":{}}\n'
    _write_joined(items, file, opening, between, closing + tail)


def _write_joined(items: Iterable[str], file: BinaryIO, opening: str, between: str, closing: str) -> None:
    parts, size, separator = [opening], 0, ""
    for item in items:
        parts += (separator, item)
        separator = between
        size += len(item)
        if size > _WRITE_BYTES:
            file.write("".join(parts).encode())
            parts, size = [], 0
    parts.append(closing)
    file.write("".join(parts).encode())


class _Template:
    """A JSON document with `@NAME@` placeholders, formatted once and filled many times."""

    def __init__(self, document: Json, pretty: bool) -> None:
        if pretty:
            text = json.dumps(document, indent=4, sort_keys=True).replace("\n", "\n        ")
        else:
            text = json.dumps(document, separators=(",", ":"), sort_keys=True)
        # A placeholder in hash signs is a number.
        self._parts = _PLACEHOLDER.split(text.replace('"#@', "@").replace('@#"', "@"))
        self._names = self._parts[1::2]

    def fill(self, **values: str) -> str:
        """Return the document with every placeholder replaced."""
        self._parts[1::2] = [values[name] for name in self._names]
        return "".join(self._parts)


def _objects(cluster: GeneratedCluster, pretty: bool) -> Iterator[str]:
    """Yield every object as text, kind by kind as kubectl does."""
    draw = random.Random(cluster.seed + 1)
    node = _Template(_node(), pretty)
    for index, name in enumerate(cluster.nodes):
        yield node.fill(NODE=name, UID=_uid(draw), A=str(index // 250), B=str(index % 250))
    for workload in cluster.workloads:
        template = _Template(_pod(workload), pretty)
        for pod, place in workload.pods:
            node_index = int(place[5:])
            yield template.fill(
                POD=pod,
                NODE=place,
                UID=_uid(draw),
                CID=f"{draw.getrandbits(256):064x}",
                A=str(node_index // 250),
                B=str(node_index % 250),
                C=str(draw.randrange(2, 250)),
            )
    for workload in cluster.workloads:
        for document in _controllers(workload):
            yield _Template(document, pretty).fill(UID=_uid(draw))
    for namespace in sorted({workload.namespace for workload in cluster.workloads}):
        metadata = {"name": namespace, "uid": "@UID@", "labels": {"kubernetes.io/metadata.name": namespace}}
        document = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata, "status": {"phase": "Active"}}
        yield _Template(document, pretty).fill(UID=_uid(draw))


def _uid(draw: random.Random) -> str:
    text = f"{draw.getrandbits(128):032x}"
    return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-9{text[17:20]}-{text[20:]}"


def _metadata(workload: GeneratedWorkload, name: str, labels: Json, owner: tuple[str, str] | None = None) -> Json:
    metadata: Json = {
        "name": name,
        "namespace": workload.namespace,
        "uid": "@UID@",
        "resourceVersion": "912345678",
        "creationTimestamp": CREATED_AT,
        "labels": labels,
        "annotations": {"prometheus.io/scrape": "true", "team/contact": "#on-call"},
    }
    if owner is not None:
        kind, owner_name = owner
        reference = {"apiVersion": "apps/v1", "kind": kind, "name": owner_name, "uid": "0ddba11-5eed-4f00-9bad-cafe"}
        metadata["ownerReferences"] = [reference | {"blockOwnerDeletion": True, "controller": True}]
    return metadata


def _labels(workload: GeneratedWorkload) -> Json:
    labels = {"app.kubernetes.io/name": workload.name, "app.kubernetes.io/part-of": workload.namespace, "tier": "web"}
    return labels | ({"pod-template-hash": workload.template_hash} if workload.kind == "Deployment" else {})


def _node() -> Json:
    offered = {
        "cpu": f"{NODE_CPU_MILLICORES}m",
        "memory": f"{NODE_MEMORY_BYTES >> 10}Ki",
        "ephemeral-storage": "95551679124",
        "hugepages-2Mi": "0",
        "pods": "110",
    }
    healthy = ("MemoryPressure", "DiskPressure", "PIDPressure")
    conditions = [_condition(name, "False", f"Kubelet has no {name}") for name in healthy]
    labels = {
        "kubernetes.io/hostname": "@NODE@",
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "node.kubernetes.io/instance-type": "standard-16",
        "topology.kubernetes.io/zone": "zone-a",
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "@NODE@", "uid": "@UID@", "creationTimestamp": CREATED_AT, "labels": labels},
        "spec": {"podCIDR": "10.@A@.@B@.0/24", "providerID": "cloud://zone-a/@NODE@"},
        "status": {
            "addresses": [{"address": "10.200.@A@.@B@", "type": "InternalIP"}],
            "allocatable": offered,
            "capacity": offered | {"cpu": "16", "memory": "65536Mi"},
            "conditions": [*conditions, _condition("Ready", "True", "kubelet is posting ready status")],
            "images": [
                {"names": [f"registry.example.org/{name}@sha256:{index:064x}"], "sizeBytes": 123456789 + index}
                for index, name in enumerate(("web", "agent", "proxy", "database", "cache", "queue", "batch", "gate"))
            ],
            "nodeInfo": {"architecture": "amd64", "kubeletVersion": "v1.34.2", "operatingSystem": "linux"},
        },
    }


def _condition(name: str, status: str, message: str | None = None) -> Json:
    condition = {"type": name, "status": status, "lastProbeTime": None, "lastTransitionTime": CREATED_AT}
    return condition | ({"message": message} if message else {})


def _resources(shape: GeneratorSettings) -> Json:
    return {
        "requests": {"cpu": f"{shape.cpu_millicores}m", "memory": f"{shape.memory_mib}Mi"},
        "limits": {"memory": f"{2 * shape.memory_mib}Mi"},
    }


def _container(workload: GeneratedWorkload, shape: GeneratorSettings) -> Json:
    env: list[Json] = [
        {"name": f"SETTING_{index}", "value": f"https://{workload.name}.{workload.namespace}.svc/v{index}?q=a%20b\\n"}
        for index in range(3)
    ]
    env.append({"name": "POD_IP", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"}}})
    probe = {"httpGet": {"path": "/healthz", "port": 8080, "scheme": "HTTP"}, "periodSeconds": 10, "timeoutSeconds": 1}
    container: Json = {
        "name": shape.name,
        "image": f"registry.example.org/{workload.name}/{shape.name}:v1.42.0",
        "imagePullPolicy": "IfNotPresent",
        "args": ["--listen=:8080", '--format={"level":"info","time":true}'],
        "env": env,
        "ports": [{"containerPort": 8080, "name": "http", "protocol": "TCP"}],
        "livenessProbe": probe | {"failureThreshold": 3},
        "resources": _resources(shape),
        "securityContext": {"allowPrivilegeEscalation": False},
        "volumeMounts": [
            {"mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "name": "kube-api-access", "readOnly": True},
            {"mountPath": "/etc/config", "name": "config"},
        ],
    }
    return container | ({"restartPolicy": "Always"} if shape.sidecar else {})


def _container_status(workload: GeneratedWorkload, shape: GeneratorSettings) -> Json:
    return {
        "name": shape.name,
        "containerID": "containerd://@CID@",
        "image": f"registry.example.org/{workload.name}/{shape.name}:v1.42.0",
        "imageID": f"registry.example.org/{workload.name}/{shape.name}@sha256:{7:064x}",
        "lastState": {},
        "ready": True,
        "restartCount": 0,
        "started": True,
        "state": {"running": {"startedAt": CREATED_AT}},
        "allocatedResources": _resources(shape)["requests"],
        "resources": _resources(shape),
    }


def _pod(workload: GeneratedWorkload) -> Json:
    main = [shape for shape in workload.shapes if not shape.sidecar]
    sidecars = [shape for shape in workload.shapes if shape.sidecar]
    token = {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}}
    tolerations = [
        {"effect": "NoExecute", "key": f"node.kubernetes.io/{key}", "operator": "Exists", "tolerationSeconds": 300}
        for key in ("not-ready", "unreachable")
    ]
    spec: Json = {
        "containers": [_container(workload, shape) for shape in main],
        "dnsPolicy": "ClusterFirst",
        "nodeName": "@NODE@",
        "preemptionPolicy": "PreemptLowerPriority",
        "priority": 0,
        "restartPolicy": "Always",
        "schedulerName": "default-scheduler",
        "serviceAccountName": workload.name,
        "terminationGracePeriodSeconds": 30,
        "tolerations": tolerations,
        "volumes": [
            {"name": "config", "configMap": {"defaultMode": 420, "name": f"{workload.name}-config"}},
            {"name": "kube-api-access", "projected": {"defaultMode": 420, "sources": [token]}},
        ],
    }
    status: Json = {
        "conditions": [
            _condition(name, "True")
            for name in ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
        ],
        "containerStatuses": [_container_status(workload, shape) for shape in main],
        "hostIP": "10.200.@A@.@B@",
        "phase": "Running",
        "podIP": "10.@A@.@B@.@C@",
        "podIPs": [{"ip": "10.@A@.@B@.@C@"}],
        "qosClass": "Burstable",
        "startTime": CREATED_AT,
    }
    if sidecars:
        spec["initContainers"] = [_container(workload, shape) for shape in sidecars]
        status["initContainerStatuses"] = [_container_status(workload, shape) for shape in sidecars]
    if workload.kind == "DaemonSet":
        field_requirement = {"key": "metadata.name", "operator": "In", "values": ["@NODE@"]}
        terms = {"nodeSelectorTerms": [{"matchFields": [field_requirement]}]}
        spec["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    metadata = _metadata(workload, "@POD@", _labels(workload), workload.owner)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}


def _controllers(workload: GeneratedWorkload) -> Iterator[Json]:
    """Yield a workload's own object and, for a Deployment, its ReplicaSet."""
    labels = _labels(workload)
    pod = _pod(workload)
    template = {"metadata": {"labels": labels}, "spec": pod["spec"] | {"nodeName": None, "affinity": None}}
    replicas = len(workload.pods)
    spec: Json = {"selector": {"matchLabels": labels}, "template": template}
    if workload.kind != "DaemonSet":
        spec["replicas"] = replicas
    metadata = _metadata(workload, workload.name, labels)
    status = {"observedGeneration": 3, "replicas": replicas, "readyReplicas": replicas}
    yield {"apiVersion": "apps/v1", "kind": workload.kind, "metadata": metadata, "spec": spec, "status": status}
    if workload.kind == "Deployment":
        kind, name = workload.owner
        owned = _metadata(workload, name, labels, (workload.kind, workload.name))
        yield {"apiVersion": "apps/v1", "kind": kind, "metadata": owned, "spec": spec, "status": status}


# ---- the usage ----


def write_usage(cluster: GeneratedCluster, path: Path, pretty: bool = False) -> None:
    """Write statistics of every container, around its workload's typical usage."""
    with path.open("wb") as file:
        opening = '{"apiVersion":"cruise.io/v1","kind":"UsageStatistics","items":[\n'
        _write_joined(_usage_items(cluster, pretty), file, opening, ",\n", "\n]}\n")


def _usage_items(cluster: GeneratedCluster, pretty: bool) -> Iterator[str]:
    draw = random.Random(cluster.seed + 2)
    names = ("CPU_BASE", "CPU_PEAK", "MEMORY_BASE", "MEMORY_PEAK", "MEMORY_MAX")
    for workload in cluster.workloads:
        for shape in workload.shapes:
            document = {
                "namespace": workload.namespace,
                "pod": "@POD@",
                "workload": f"{workload.kind}/{workload.name}",
                "container": shape.name,
                "updatedAt": UPDATED_AT,
                "cpu": {"baseMillicores": "#@CPU_BASE@#", "peakMillicores": "#@CPU_PEAK@#"},
                "memory": {
                    "baseBytes": "#@MEMORY_BASE@#",
                    "peakBytes": "#@MEMORY_PEAK@#",
                    "max7dBytes": "#@MEMORY_MAX@#",
                    "oomBytes": 0,
                },
            }
            template = _Template(document, pretty)
            for pod, _ in workload.pods:
                cpu = shape.cpu_millicores * shape.cpu_share * draw.uniform(0.5, 1.5)
                memory = shape.memory_mib * _MIB * shape.memory_share * draw.uniform(0.8, 1.2)
                peak = memory * draw.uniform(1.0, 1.4)
                amounts = (cpu, cpu * draw.uniform(1.2, 4.0), memory, peak, peak * draw.uniform(1.0, 1.2))
                values = {name: str(round(amount)) for name, amount in zip(names, amounts, strict=True)}
                yield template.fill(POD=pod, **values)
