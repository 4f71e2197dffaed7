"""Random pods as kubectl prints them: containers, annotations, placement rules and states.

Nothing here imports cruise: what two checkouts are compared on depends on neither.
"""

import random
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

Json = dict[str, Any]

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
CREATED = NOW - timedelta(days=31)
HOST, ZONE, DISK = "kubernetes.io/hostname", "topology.kubernetes.io/zone", "disk"
GPU, SCRATCH = "nvidia.com/gpu", "ephemeral-storage"
MEBIBYTE = 1 << 20
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
EXISTS = ("Exists", "DoesNotExist")
ANNOTATIONS: tuple[Mapping[str, str], ...] = (
    *({"cruise.io/eviction-ranking": ranking} for ranking in ("low", "medium", "high", "never", "no-eviction")),
    *({"cruise.io/mode": mode} for mode in ("observe", "initial", "resize", "off", "sideways")),
    *({"cruise.io/resources": names} for names in ("cpu", "memory", "cpu,memory", "disk")),
    *({"cruise.io/headroom-factor": factor} for factor in ("0", "0.5", "2.5", "-1")),
    {"cruise.io/cpu-min": "150m", "cruise.io/memory-max": "300Mi"},
    {"cruise.io/cpu-max.app": "50m", "cruise.io/memory-min.proxy": "64Mi"},
    {"cruise.io/cpu-min": "2", "cruise.io/cpu-max": "1"},
    {"cruise.io/cpu-least": "1"},
    {"cruisekube.truefoundry.com/excluded": "true"},
    {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"},
    {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"},
    {"karpenter.sh/do-not-disrupt": "true"},
)
_RESIZES: tuple[Json, ...] = (
    {"type": "PodResizePending", "status": "True", "reason": "Deferred"},
    {"type": "PodResizePending", "status": "True", "reason": "Infeasible"},
    {"type": "PodResizeInProgress", "status": "True"},
    {"type": "PodResizeInProgress", "status": "True", "reason": "Error"},
)
_STATES = ("in progress", "resize", "finished", "going", "windows", "pod level", "restarts", "killed", "unreported")


def stamp(at: datetime) -> str:
    """Format a time as Kubernetes does."""
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def item(version: str, kind: str, name: str, metadata: Json | None = None, **fields: object) -> Json:
    """Return an object with a name, created long ago."""
    named: Json = {"name": name, "uid": f"uid-{kind}-{name}", "creationTimestamp": stamp(CREATED)}
    return {"apiVersion": version, "kind": kind, "metadata": named | (metadata or {}), **fields}


def lasting_containers(pod: Json) -> list[Json]:
    """Return a pod's main containers and its sidecars."""
    before = pod["spec"].get("initContainers", [])
    return [*pod["spec"]["containers"], *(one for one in before if "restartPolicy" in one)]


def read_cpu(text: str) -> int:
    """Parse millicores."""
    return int(text[:-1]) if text.endswith("m") else round(float(text) * 1000)


def read_memory(text: str) -> int:
    """Parse bytes."""
    return int(text[:-2]) * MEBIBYTE if text.endswith("Mi") else int(text)


class PodDrawing:
    """Draws pods of one cluster, which has some of the features."""

    def __init__(self, source: random.Random, features: frozenset[str]) -> None:
        self.source, self.features = source, features

    def has(self, feature: str, chance: float = 1.0) -> bool:
        """Return whether to draw a feature."""
        return feature in self.features and self.source.random() < chance

    def annotations(self, chance: float) -> Json:
        """Draw annotations, mostly valid ones."""
        return dict(self.source.choice(ANNOTATIONS)) if self.has("annotations", chance) else {}

    def spec(self, labels: Mapping[str, str]) -> Json:
        """Draw the spec of a template whose pods have these labels."""
        source = self.source
        containers = [self._container("app")]
        if source.random() < 0.3:
            containers.append(self._container("log"))
        spec: Json = {"containers": containers, "priority": source.choice([0, 0, 0, 10, 1000])}
        spec |= self._before() | self._placement(labels)
        if self.has("priority classes", 0.6):
            del spec["priority"]
            spec["priorityClassName"] = source.choice(["low", "high", "polite"])
        if self.has("overhead", 0.3):
            spec["overhead"] = {"cpu": "50m", "memory": "20Mi"}
        if self.has("never preempts", 0.4):
            spec["preemptionPolicy"] = "Never"
        return spec

    def running(self, pod: Json, node: str) -> None:
        """Bind a pod to a node with a status: running, or one of many other states."""
        source, spec = self.source, pod["spec"]
        state = source.choice(_STATES) if self.has("states", 0.4) else "no-change-needed"
        spec["nodeName"] = node
        main = spec["containers"]
        sidecars = lasting_containers(pod)[len(main) :]
        status: Json = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        if state != "unreported":
            status["containerStatuses"] = [self._report(one, state) for one in main]
            if sidecars:
                status["initContainerStatuses"] = [self._report(one, "no-change-needed") for one in sidecars]
        match state:
            case "resize":
                since = stamp(NOW - timedelta(minutes=source.choice([1, 5, 30])))
                status["conditions"].append(source.choice(_RESIZES) | {"lastTransitionTime": since})
            case "finished":
                status["phase"] = source.choice(["Succeeded", "Failed"])
            case "going":
                pod["metadata"]["deletionTimestamp"] = stamp(NOW)
            case "windows":
                spec["os"] = {"name": "windows"}
            case "pod level":
                spec["resources"] = {
                    "requests": {"cpu": "4", "memory": "4Gi"},
                    "limits": {"cpu": "5", "memory": "5Gi"},
                }
            case "restarts":
                rules = [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]
                main[-1]["resizePolicy"] = rules
        pod["status"] = status

    def pending(self, pod: Json) -> None:
        """Leave a pod pending: unschedulable, gated, or not yet scheduled."""
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        condition["lastTransitionTime"] = stamp(NOW - timedelta(minutes=self.source.choice([0, 5, 90])))
        pod["status"] = {"phase": "Pending", "conditions": [condition] if self.source.random() < 0.8 else []}
        if self.has("gates", 0.3):
            pod["spec"]["schedulingGates"] = [{"name": "example.com/wait"}]

    def _before(self) -> Json:
        found = []
        if self.has("init containers", 0.4):
            found.append(self._container("migrate"))
        if self.has("sidecars", 0.5):
            found.append(self._container("proxy") | {"restartPolicy": "Always"})
            found += [self._container("warm")] if self.source.random() < 0.5 else []
        return {"initContainers": found} if found else {}

    def _container(self, name: str) -> Json:
        source = self.source
        cpu = source.choice([None, *[10, 50, 100, 200, 400, 500, 1000] * 2, source.randint(1, 3000)])
        memory = source.choice([None, *[64, 128, 256, 320, 640, 1024] * 2, source.randint(1, 1200)])
        shape = source.choice(["requests", "requests", "memory limit", "both limits", "equal"])
        requests, limits = self._amounts(cpu, memory), {}
        if shape == "equal":
            limits = dict(requests)
        elif shape != "requests":
            cpu_limit = (cpu or 0) + source.randint(1, 1000) if shape == "both limits" else None
            limits = self._amounts(cpu_limit, (memory or 0) + source.randint(1, 1024))
        # The API server defaults a missing request to the limit.
        requests = limits | requests
        if self.has("gpus", 0.3):
            requests[GPU] = limits[GPU] = str(source.randint(1, 2))
        if self.has("scratch", 0.3):
            requests[SCRATCH] = f"{source.randint(1, 3)}Gi"
        container: Json = {"name": name, "resources": {"requests": requests, "limits": limits}}
        if self.has("ports", 0.3):
            port = {"containerPort": 80, "hostPort": source.choice([8080, 8081])}
            container["ports"] = [port | source.choice([{}, {"protocol": "UDP"}, {"hostIP": "10.0.0.1"}])]
        return container

    def _amounts(self, cpu_millicores: int | None, mebibytes: int | None) -> Json:
        """Format amounts in one of the forms that Kubernetes accepts."""
        found = {}
        if cpu_millicores is not None:
            found["cpu"] = self.source.choice([f"{cpu_millicores}m", f"{cpu_millicores / 1000:g}"])
        if mebibytes is not None:
            found["memory"] = self.source.choice([f"{mebibytes}Mi", str(mebibytes * MEBIBYTE)])
        return found

    def _report(self, container: Json, state: str) -> Json:
        resources = container["resources"]
        report: Json = {"name": container["name"], "restartCount": 0, "allocatedResources": resources["requests"]}
        report["resources"] = resources
        if state == "in progress" and "cpu" in resources["requests"]:
            earlier = resources["requests"] | {"cpu": f"{self.source.randint(1, 2000)}m"}
            report["resources"] = resources | {"requests": earlier}
            report["allocatedResources"] = self.source.choice([earlier, resources["requests"]])
        if state == "killed":
            finished = stamp(NOW - timedelta(minutes=self.source.choice([1, 5, 600])))
            ended = {"exitCode": 137, "reason": "OOMKilled", "finishedAt": finished}
            report |= {"restartCount": self.source.randint(1, 5), "lastState": {"terminated": ended}}
        return report

    def _placement(self, labels: Mapping[str, str]) -> Json:
        """Draw constraints on a pod's node and on the pods of the same node or zone."""
        source = self.source
        found: Json = {"nodeSelector": {DISK: source.choice(["ssd", "hdd"])}} if self.has("selectors", 0.3) else {}
        affinity: Json = {}
        if self.has("selectors", 0.3):
            affinity["nodeAffinity"] = {REQUIRED: {"nodeSelectorTerms": [self._node_term()]}}
        for feature, kind in (("affinity", "podAffinity"), ("anti-affinity", "podAntiAffinity")):
            if self.has(feature, 0.35):
                affinity[kind] = {REQUIRED: [self._pod_term(labels) for _ in range(source.choice([1, 1, 2]))]}
        if affinity:
            found["affinity"] = affinity
        if self.has("taints", 0.5):
            dedicated = {"key": "dedicated", "operator": "Equal", "value": "red"}
            everything = {"operator": "Exists"}
            no_schedule = {"key": "dedicated", "operator": "Exists", "effect": "NoSchedule"}
            found["tolerations"] = [source.choice([dedicated, everything, no_schedule])]
        if self.has("spread", 0.5):
            keys = source.choice([(HOST,), (ZONE,), (HOST, ZONE)])
            found["topologySpreadConstraints"] = [self._spread(labels, key) for key in keys]
        return found

    def _node_term(self) -> Json:
        choices: Sequence[Json] = (
            {"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["z1", "z3"]}]},
            {"matchExpressions": [{"key": DISK, "operator": self.source.choice(EXISTS)}]},
            {"matchExpressions": [{"key": "generation", "operator": "Gt", "values": ["1"]}]},
            {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n1"]}]},
        )
        return self.source.choice(choices)

    def _pod_term(self, labels: Mapping[str, str]) -> Json:
        term: Json = {"topologyKey": self.source.choice([HOST, ZONE, DISK]), "labelSelector": self._selector(labels)}
        selected = {"namespaceSelector": {"matchLabels": {"team": self.source.choice(["red", "blue"])}}}
        return term | self.source.choice(
            [{}, {}, {}, {"namespaceSelector": {}}, selected, {"namespaces": ["bank"]}, {"matchLabelKeys": ["tier"]}]
        )

    def _spread(self, labels: Mapping[str, str], key: str) -> Json:
        constraint: Json = {
            "maxSkew": self.source.choice([1, 1, 2]),
            "topologyKey": key,
            "whenUnsatisfiable": self.source.choice(["DoNotSchedule", "DoNotSchedule", "ScheduleAnyway"]),
            "labelSelector": self._selector(labels),
        }
        policies = {"nodeAffinityPolicy": "Ignore", "nodeTaintsPolicy": "Honor"}
        more: Json = self.source.choice([{}, {}, {"minDomains": 3}, {"matchLabelKeys": ["tier"]}, policies])
        return constraint | more

    def _selector(self, labels: Mapping[str, str]) -> Json:
        own = {"matchLabels": {"app": labels["app"]}}
        other = {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": [labels["app"]]}]}
        tier = {"matchLabels": {"tier": self.source.choice(["web", "db"])}}
        return self.source.choice([own, own, own, {"matchLabels": {"app": "w0"}}, other, tier, {}])
