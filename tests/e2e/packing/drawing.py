"""Random small clusters as manifests, with every kind of constraint that kube-scheduler knows.

Many share one API server: each has nodes, topology keys and namespaces of its own, and its pods select its nodes.
"""

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from cruise.decisions.scheduling.placements import PodPlacements
from cruise.decisions.scheduling.pod_affinity import SchedulerFilters
from cruise.domain.cluster import ClusterSnapshot, Pod
from cruise.kube_json.reading.snapshot import read_snapshot
from tests.controlplane.api import Json
from tests.controlplane.behaviour import SimulatedNodeSpec
from tests.controlplane.manifests import container
from tests.e2e.packing.rules import RuleDrawing
from tests.e2e.packing.storage import StorageDrawing

MARK = "packing.example/cluster"
OWNER = "packing.example/owner"
MEBIBYTE = 1 << 20
GPU, SCRATCH = "example.com/gpu", "ephemeral-storage"
# Names of priority classes, to be preceded by those of a run; "polite" never preempts.
CLASSES = {"low": 0, "mid": 10, "high": 100, "polite": 100}
# Pods of this one wait until they are created anew.
NOBODY = "nobody"
FEATURES = (
    *("taints", "node affinity", "cordons", "pod places", "gpus", "ports", "claims", "attach limits"),
    *(
        "affinity",
        "anti-affinity",
        "spread",
        "budgets",
        "unmovable",
        "namespaces",
        "init containers",
        "misplaced",
        "scratch",
    ),
)


@dataclass(slots=True)
class RandomPackingCluster:
    """One cluster: what is created, in this order; running pods name their nodes."""

    name: str
    nodes: list[SimulatedNodeSpec]
    cordoned: set[str] = field(default_factory=set)
    objects: list[Json] = field(default_factory=list)
    pods: list[Json] = field(default_factory=list)
    drawing: "Drawing | None" = None


class Drawing:
    """One cluster while it is drawn; `run` precedes the names of what all clusters of a test share."""

    def __init__(self, run: str, number: int, seed: int) -> None:
        self.run, self.name = run, f"{run}-{number}"
        self.source = random.Random(seed)
        share = self.source.choice([0.15, 0.3, 0.5])
        self.features = {feature for feature in FEATURES if self.source.random() < share}
        self.namespaces = [f"{self.name}-a", f"{self.name}-b"] if "namespaces" in self.features else [f"{self.name}-a"]
        self.zones = self.source.randint(1, 3)
        self.rules = RuleDrawing(self.source, self.features, self.name, self.namespaces)
        self.storage = StorageDrawing(self.source, self.name, self.zone_labels(), {MARK: self.name})

    def zone_labels(self) -> list[str]:
        """The values of the topology of zones."""
        return [f"z{number}" for number in range(1, self.zones + 1)]

    def has(self, feature: str, chance: float = 1.0) -> bool:
        """Return whether a feature is drawn here."""
        return feature in self.features and self.source.random() < chance

    def cluster(self) -> RandomPackingCluster:
        """Draw it whole."""
        source = self.source
        drawn = RandomPackingCluster(self.name, [], drawing=self)
        for team, namespace in zip(("red", "blue"), self.namespaces, strict=False):
            drawn.objects.append(self.marked("v1", "Namespace", {"name": namespace, "labels": {"team": team}}))
        templates = [self.template(f"app{number}") for number in range(source.randint(4, 6))]
        pods = [self.copy(template, copy) for template in templates for copy in range(source.randint(1, 4))]
        count = source.randint(3, 5)
        share = count * source.choice([0.7, 0.85, 0.95, 1.05])
        cpu = sum(_asked(pod, "cpu") for pod in pods) / share
        memory = sum(_asked(pod, "memory") for pod in pods) / share
        for number in range(1, count + 1):
            drawn.nodes.append(self.node(number, cpu, memory))
            if self.has("cordons", 0.25):
                drawn.cordoned.add(drawn.nodes[-1].name)
        drawn.objects += self.budgets(templates)
        drawn.objects += self.storage.take(
            [node.name for node in drawn.nodes], limited="attach limits" in self.features
        )
        drawn.pods = self.placed(drawn, pods)
        return drawn

    def node(self, number: int, cpu: float, memory: float) -> SimulatedNodeSpec:
        """A node with about that much room."""
        source = self.source
        labels = {
            MARK: self.name,
            self.rules.host: f"h{number}",
            self.rules.zone: source.choice(self.zone_labels()),
            "disk": source.choice(["ssd", "hdd"]),
            "generation": str(number),
        }
        if source.random() < 0.1:
            del labels[source.choice([self.rules.host, self.rules.zone, "disk"])]
        taints = []
        if self.has("taints", 0.4):
            effect = source.choice(["NoSchedule", "PreferNoSchedule", "NoExecute"])
            taints.append({"key": "dedicated", "value": source.choice(["red", "blue"]), "effect": effect})
        return SimulatedNodeSpec(
            f"{self.name}-n{number}",
            cpu=f"{max(6, int(cpu * source.uniform(0.8, 1.3) / 100)) * 100}m",
            memory=f"{max(600, int(memory * source.uniform(0.9, 1.5) / MEBIBYTE))}Mi",
            pods=source.randint(2, 4) if self.has("pod places", 0.5) else 110,
            extended=self.offered(),
            labels=labels,
            taints=taints,
        )

    def offered(self) -> dict[str, str]:
        """What a node offers besides."""
        found = {GPU: str(self.source.randint(0, 3))} if self.has("gpus", 0.8) else {}
        return found | ({SCRATCH: f"{self.source.randint(2, 9)}Gi"} if self.has("scratch", 0.9) else {})

    def template(self, app: str) -> Json:
        """A pod without its own name."""
        source = self.source
        namespace = source.choice(self.namespaces)
        labels = {"app": app, "tier": source.choice(["web", "db"]), "release": source.choice(["r1", "r2"])}
        movable = not self.has("unmovable", 0.3)
        metadata = {"name": app, "namespace": namespace, "labels": labels | ({OWNER: app} if movable else {})}
        spec: Json = {
            "containers": [self.container()],
            "nodeSelector": {MARK: self.name},
            "schedulerName": NOBODY,
            "terminationGracePeriodSeconds": 0,
            "priorityClassName": f"{self.run}-{source.choice(['low', 'low', 'mid', 'high', 'polite'])}",
            **self.rules.draw(labels, namespace),
        }
        if self.has("init containers", 0.5):
            asked = {"cpu": f"{source.randint(1, 8) * 100}m", "memory": "64Mi"}
            sidecar = {"restartPolicy": "Always"} if source.random() < 0.5 else {}
            spec["initContainers"] = [container("before", asked) | sidecar]
        return self.marked("v1", "Pod", metadata) | {"spec": spec}

    def container(self) -> Json:
        """A main container."""
        source = self.source
        asked = {"cpu": f"{source.randint(1, 6) * 100}m", "memory": f"{source.randint(1, 6) * 100}Mi"}
        if self.has("gpus", 0.4):
            asked[GPU] = str(source.randint(1, 2))
        if self.has("scratch", 0.5):
            asked[SCRATCH] = f"{source.randint(1, 3)}Gi"
        limits = {key: amount for key, amount in asked.items() if key == GPU}
        return container("app", asked, limits, **self.rules.draw_ports())

    def copy(self, template: Json, number: int) -> Json:
        """One pod of a template, with its own claims."""
        pod: Json = json.loads(json.dumps(template))
        pod["metadata"]["name"] += f"-{number}"
        if self.has("claims", 0.5):
            pod["spec"]["volumes"] = self.storage.draw_volumes(pod["metadata"]["namespace"], pod["metadata"]["name"])
        return pod

    def probe(self, number: int, pinned: bool, nodes: Sequence[SimulatedNodeSpec]) -> tuple[list[Json], Json]:
        """A single pod with a scheduling gate and preemptionPolicy Never, and the objects that it needs."""
        template = self.template(self.source.choice(["app0", "app1", "probe"]))
        template["metadata"]["name"] = "probe"
        pod = self.copy(template, number)
        spec = pod["spec"]
        spec |= {"priorityClassName": f"{self.run}-polite", "schedulingGates": [{"name": "packing.example/wait"}]}
        del spec["schedulerName"]
        if pinned:
            field_ = {"key": "metadata.name", "operator": "In", "values": [self.source.choice(nodes).name]}
            affinity = spec.setdefault("affinity", {}).setdefault("nodeAffinity", {})
            terms = affinity.setdefault("requiredDuringSchedulingIgnoredDuringExecution", {"nodeSelectorTerms": [{}]})[
                "nodeSelectorTerms"
            ]
            for term in terms:
                term["matchFields"] = [field_]
        return self.storage.take([], limited=False), pod

    def budgets(self, templates: Sequence[Json]) -> list[Json]:
        """Disruption budgets over some of the templates' pods."""
        found = []
        for template in templates:
            if self.has("budgets", 0.5):
                metadata, app = template["metadata"], template["metadata"]["name"]
                spec = {"minAvailable": self.source.randint(0, 2), "selector": {"matchLabels": {"app": app}}}
                budget = self.marked(
                    "policy/v1", "PodDisruptionBudget", {"name": app, "namespace": metadata["namespace"]}
                )
                found.append(budget | {"spec": spec})
        return found

    def marked(self, version: str, kind: str, metadata: Json) -> Json:
        """An object that bears the cluster's mark."""
        labels = {**metadata.get("labels", {}), MARK: self.name}
        return {"apiVersion": version, "kind": kind, "metadata": metadata | {"labels": labels}}

    def placed(self, drawn: RandomPackingCluster, pods: list[Json]) -> list[Json]:
        """Put most pods where kube-scheduler would, some where it would not, and leave the others pending."""
        snapshot = self.foreseen(drawn, pods)
        read = {(pod.namespace, pod.name): pod for pod in snapshot.pods}
        board = PodPlacements(replace(snapshot, pods=()))
        order = list(pods)
        self.source.shuffle(order)
        for manifest in order:
            if self.source.random() < 0.2:
                continue
            pod = read[(manifest["metadata"]["namespace"], manifest["metadata"]["name"])]
            claims = [
                snapshot.storage_and_namespaces.claims.get((pod.namespace, name)) for name in pod.constraints.claims
            ]
            if not all(claim is not None and claim.bound for claim in claims):
                continue
            node = self.choose(board, pod)
            if node is not None:
                board.add(pod, node)
                manifest["spec"]["nodeName"] = node
        return order

    def choose(self, board: PodPlacements, pod: Pod) -> str | None:
        """A node for a running pod, None where there is none."""
        scheduler, usual, odd = SchedulerFilters(board), [], []
        for name, node in board.nodes.items():
            refusals = list(scheduler.check(pod, node))
            if not refusals:
                usual.append(name)
            # No kubelet would run it without room, and a taint may drive it away.
            elif not any(text.startswith(("lacks", "holds", "has a taint", "cannot", "is out")) for text in refusals):
                odd.append(name)
        if odd and self.has("misplaced", 0.3):
            return self.source.choice(odd)
        return self.source.choice(usual) if usual else None

    def foreseen(self, drawn: RandomPackingCluster, pods: Sequence[Json]) -> ClusterSnapshot:
        """The cluster as it will be when it is set up, with all pods pending."""
        nodes = [node.manifest("2026-01-01T00:00:00Z") for node in drawn.nodes]
        for node in nodes:
            node["spec"]["unschedulable"] = node["metadata"]["name"] in drawn.cordoned
        items = [*nodes, *drawn.objects, *(class_manifest(self.run, name) for name in CLASSES), *pods]
        bound = [self.storage.as_bound(item) for item in items]
        return read_snapshot([json.dumps({"kind": "List", "items": bound}).encode()], self.name)


def class_manifest(run: str, name: str) -> Json:
    """A priority class of a run."""
    policy = "Never" if name == "polite" else "PreemptLowerPriority"
    metadata = {"name": f"{run}-{name}"}
    head = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": metadata}
    return head | {"value": CLASSES[name], "preemptionPolicy": policy}


def _asked(pod: Json, resource: str) -> float:
    amount = str(pod["spec"]["containers"][0]["resources"]["requests"][resource])
    return float(amount.removesuffix("m")) if resource == "cpu" else float(amount.removesuffix("Mi")) * MEBIBYTE
