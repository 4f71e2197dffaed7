"""Random small clusters with matching usage: every kind of workload, pod, node and rule that decisions depend on.

Each cluster has some of the features, so that rules interact and plans still exist. The same seed gives the same
cluster.
"""

import copy
import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from benchmarks.compare_decisions.random_pods import (
    CREATED,
    DISK,
    GPU,
    HOST,
    MEBIBYTE,
    NOW,
    REQUIRED,
    SCRATCH,
    ZONE,
    Json,
    PodDrawing,
    item,
    lasting_containers,
    read_cpu,
    read_memory,
    stamp,
)
from benchmarks.compare_decisions.random_surroundings import DRIVER, classes, draw_claim, draw_guards, draw_namespaces
from benchmarks.compare_decisions.random_usage import draw_usage

FEATURES = (
    *("annotations", "states", "init containers", "sidecars", "overhead", "gpus", "scratch", "ports", "gates"),
    *("taints", "selectors", "cordons", "pod places", "affinity", "anti-affinity", "spread", "misplaced"),
    *("priority classes", "never preempts", "namespaces", "unmovable", "claims", "attach limits"),
    *("budgets", "autoscalers", "limit ranges", "quotas", "gaps in usage"),
)
_KINDS = ("Deployment", "Deployment", "Deployment", "StatefulSet", "DaemonSet", "Job", "CronJob")
_MIRROR = "kubernetes.io/config.mirror"


@dataclass(frozen=True, slots=True)
class RandomCluster:
    """The objects of a snapshot and the items of its usage file."""

    items: list[Json]
    usage: list[Json]


def draw_cluster(seed: int) -> RandomCluster:
    """Draw a cluster of 2 to 5 nodes and 2 to 9 workloads."""
    return _Drawing(random.Random(seed)).cluster()


@dataclass(slots=True)
class _Room:
    """The free capacity of a node, and its taints."""

    cpu_millicores: int
    memory_bytes: int
    pods: int
    taints: Sequence[Json]

    def holds(self, pod: Json) -> bool:
        cpu, memory = requested(pod)
        return cpu <= self.cpu_millicores and memory <= self.memory_bytes and self.pods > 0

    def take(self, pod: Json) -> None:
        cpu, memory = requested(pod)
        self.cpu_millicores -= cpu
        self.memory_bytes -= memory
        self.pods -= 1


def requested(pod: Json) -> tuple[int, int]:
    """Return the millicores and bytes that a pod's main containers and sidecars request."""
    requests = [one["resources"]["requests"] for one in lasting_containers(pod)]
    cpu = sum(read_cpu(one.get("cpu", "0")) for one in requests)
    return cpu, sum(read_memory(one.get("memory", "0")) for one in requests)


class _Drawing:
    """Draws one cluster."""

    def __init__(self, source: random.Random) -> None:
        self.source = source
        share = source.choice([0.05, 0.15, 0.3, 0.5])
        self.drawing = PodDrawing(source, frozenset([one for one in FEATURES if source.random() < share]))
        self.has = self.drawing.has
        self.names = [f"n{number}" for number in range(1, source.randint(2, 5) + 1)]
        self.namespaces = ["shop", "bank", "kube-system"] if self.has("namespaces") else ["shop"]
        self.items = classes()
        self.workload_of_app: dict[str, str] = {}
        self.pods: list[Json] = []

    def cluster(self) -> RandomCluster:
        source = self.source
        self.items += draw_namespaces(self.drawing, self.namespaces)
        for number in range(source.randint(2, 9)):
            self._add_workload(f"w{number}")
        rooms = self._add_nodes()
        order = [*self.pods]
        source.shuffle(order)
        if source.random() < 0.5:
            # Pods of lower priority or smaller pods come first, so that the others do not fit.
            order.sort(key=source.choice([lambda pod: pod["spec"].get("priority", 0), requested]))
        waiting = source.choice([0.03, 0.15, 0.3])
        for pod in order:
            self._place(pod, rooms, waiting)
        usage = draw_usage(self.drawing, self.pods, self.workload_of_app)
        return RandomCluster([*self.items, *self.pods], usage)

    def _add_workload(self, name: str) -> None:
        source, kind = self.source, self.source.choice(_KINDS)
        if self.has("unmovable", 0.3):
            kind = source.choice(["Pod", "Node"])
        namespace = source.choice(self.namespaces)
        labels = {"app": name, "tier": source.choice(["web", "db"])}
        copies = len(self.names) if kind == "DaemonSet" else source.randint(1, 4)
        annotations = self.drawing.annotations(0.6) | ({_MIRROR: "x"} if kind == "Node" else {})
        metadata: Json = {"namespace": namespace, "labels": labels, "annotations": annotations}
        if kind != "Pod":
            owner = self._add_controllers(namespace, kind, name, copies) if kind != "Node" else ("Node", "n1")
            metadata["ownerReferences"] = [_reference(*owner)]
            labels |= {"pod-template-hash": "5c4d8f7b9"} if owner[0] == "ReplicaSet" else {}
        template = item("v1", "Pod", name, metadata, spec=self.drawing.spec(labels))
        for ordinal in range(copies):
            self._add_pod(template, kind, f"{name}-{ordinal}", ordinal)

    def _add_controllers(self, namespace: str, kind: str, name: str, copies: int) -> tuple[str, str]:
        """Add a workload and its intermediate controller; return the pods' controller."""
        source, version = self.source, "batch/v1" if kind in ("Job", "CronJob") else "apps/v1"
        # A workload is new for half an hour.
        born = NOW - timedelta(minutes=source.choice([20, 30])) if source.random() < 0.1 else CREATED
        metadata = {"namespace": namespace, "annotations": self.drawing.annotations(0.2)}
        replicas = source.choice([copies, copies, copies, 1, 3])
        count = "parallelism" if kind == "Job" else "replicas"
        workload = item(version, kind, name, metadata | {"creationTimestamp": stamp(born)}, spec={count: replicas})
        self.items += [workload, *draw_guards(self.drawing, namespace, kind, name)]
        self.workload_of_app[name] = f"{kind}/{name}"
        if kind not in ("Deployment", "CronJob"):
            return kind, name
        owner = ("ReplicaSet" if kind == "Deployment" else "Job", f"{name}-5c4d8f7b9")
        owned = {"namespace": namespace, "ownerReferences": [_reference(kind, name)]}
        self.items.append(item(version, *owner, owned))
        return owner

    def _add_pod(self, template: Json, kind: str, name: str, ordinal: int) -> None:
        pod = copy.deepcopy(template)
        pod["metadata"] |= {"name": name, "uid": f"uid-{name}"}
        if kind == "DaemonSet":
            here = {"key": "metadata.name", "operator": "In", "values": [self.names[ordinal]]}
            pod["spec"]["affinity"] = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchFields": [here]}]}}}
            pod["pinned"] = self.names[ordinal]
        elif self.has("claims", 0.4):
            pod["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": f"data-{name}"}}]
            self.items += draw_claim(self.drawing, pod["metadata"]["namespace"], f"data-{name}")
        self.pods.append(pod)

    def _add_nodes(self) -> dict[str, _Room]:
        """Add nodes with slightly more, or less, capacity than the pods request."""
        source = self.source
        share = len(self.names) * source.choice([0.8, 0.9, 0.95, 1.05])
        amounts = [requested(pod) for pod in self.pods]
        cpu, memory = sum(one[0] for one in amounts) / share, sum(one[1] for one in amounts) / share
        rooms = {}
        for name in self.names:
            effect = source.choice(["NoSchedule", "PreferNoSchedule", "NoExecute"])
            dedicated = {"key": "dedicated", "value": source.choice(["red", "blue"]), "effect": effect}
            overloaded = {"key": "cruise.io/overloaded", "value": "true", "effect": "NoSchedule"}
            rooms[name] = _Room(
                int(cpu * source.uniform(0.8, 1.3)) // 100 * 100 + 100,
                int(memory * source.uniform(0.9, 1.5)) + 64 * MEBIBYTE,
                source.randint(2, 5) if self.has("pod places", 0.5) else 110,
                [source.choice([dedicated, dedicated, overloaded])] if self.has("taints", 0.4) else [],
            )
            self.items.append(self._node(name, rooms[name]))
            if "claims" in self.drawing.features:
                limit = {"allocatable": {"count": source.randint(0, 2)}} if self.has("attach limits") else {}
                driver = {"name": DRIVER, "nodeID": name, **limit}
                self.items.append(item("storage.k8s.io/v1", "CSINode", name, spec={"drivers": [driver]}))
        return rooms

    def _node(self, name: str, room: _Room) -> Json:
        source = self.source
        labels = {HOST: name, ZONE: f"z{source.randint(1, 3)}", DISK: source.choice(["ssd", "hdd"])}
        labels["generation"] = name[1:]
        if source.random() < 0.1:
            del labels[source.choice([HOST, ZONE, DISK])]
        offered = {"cpu": f"{room.cpu_millicores}m", "memory": str(room.memory_bytes), "pods": str(room.pods)}
        offered |= {GPU: str(source.randint(0, 3))} if self.has("gpus", 0.8) else {}
        offered |= {SCRATCH: f"{source.randint(2, 9)}Gi"} if self.has("scratch", 0.9) else {}
        version = source.choice(["v1.34.1", "v1.34.1", "v1.36.0", "v1.33.2", "v1.32.0", "?"])
        ready = {"type": "Ready", "status": "False" if self.has("cordons", 0.2) else "True"}
        spec = {"taints": room.taints, "unschedulable": self.has("cordons", 0.25)}
        status = {"allocatable": offered, "capacity": offered, "conditions": [ready]}
        status["nodeInfo"] = {"kubeletVersion": version}
        return item("v1", "Node", name, {"labels": labels}, spec=spec, status=status)

    def _place(self, pod: Json, rooms: dict[str, _Room], waiting: float) -> None:
        """Bind a pod to a node that it fits on, rarely against a taint, or leave it pending."""
        names = [pod.pop("pinned")] if "pinned" in pod else self.names
        tolerates = "tolerations" in pod["spec"] or self.has("misplaced", 0.3)
        open_nodes = [name for name in names if rooms[name].holds(pod) and (tolerates or not rooms[name].taints)]
        if _MIRROR in pod["metadata"]["annotations"] or (open_nodes and self.source.random() >= waiting):
            node = self.source.choice(open_nodes or names)
            rooms[node].take(pod)
            self.drawing.running(pod, node)
        else:
            self.drawing.pending(pod)


def _reference(kind: str, name: str) -> Json:
    return {"kind": kind, "name": name, "uid": f"uid-{kind}-{name}", "controller": True}
