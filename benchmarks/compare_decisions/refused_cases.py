"""Invalid inputs that commands reject: snapshots, usage, settings, traces and options."""

import copy
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.compare_decisions.random_pods import NOW, REQUIRED, Json, item, stamp

_POD = "shop/web-1"
_LABELS = {"app": "web"}
_TERM = {"labelSelector": {"matchLabels": _LABELS}, "topologyKey": "zone"}
_CONTAINER = {"name": "app", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {}}}
_SPREAD = {**_TERM, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
_OBJECTS: dict[str, Json] = {
    "Node": item(
        *("v1", "Node", "n1"),
        spec={"taints": [{"key": "a", "effect": "NoSchedule"}]},
        status={"allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110"}, "capacity": {"cpu": "8"}},
    ),
    "Pod": item(
        *("v1", "Pod", "web-1", {"namespace": "shop", "labels": _LABELS}),
        spec={
            "nodeName": "n1",
            "containers": [_CONTAINER],
            "affinity": {"podAffinity": {REQUIRED: [_TERM]}},
            "topologySpreadConstraints": [_SPREAD],
        },
        status={"phase": "Running", "containerStatuses": [{"name": "app", "allocatedResources": {"cpu": "1"}}]},
    ),
    "Deployment": item("apps/v1", "Deployment", "web", {"namespace": "shop"}, spec={"replicas": 1}),
    "PodDisruptionBudget": item(
        "policy/v1", "PodDisruptionBudget", "web", {"namespace": "shop"}, spec={"selector": {"matchLabels": _LABELS}}
    ),
    "HorizontalPodAutoscaler": item(
        *("autoscaling/v2", "HorizontalPodAutoscaler", "web", {"namespace": "shop"}),
        spec={"scaleTargetRef": {"kind": "Deployment", "name": "web"}},
    ),
    "LimitRange": item("v1", "LimitRange", "limits", {"namespace": "shop"}, spec={"limits": [{"type": "Pod"}]}),
    "PersistentVolume": item("v1", "PersistentVolume", "pv", spec={}),
    "StorageClass": item("storage.k8s.io/v1", "StorageClass", "fast", provisioner="disk.csi.example"),
    "CSINode": item("storage.k8s.io/v1", "CSINode", "n1", spec={"drivers": [{"name": "disk.csi.example"}]}),
    "PriorityClass": item("scheduling.k8s.io/v1", "PriorityClass", "high", value=10),
}
_NO_OPERATOR = {"key": "a", "operator": "Like", "values": ["b"]}
_NO_VALUES = {"key": "a", "operator": "In", "values": []}
_BROKEN_OBJECTS: tuple[tuple[str, str, object], ...] = (
    *(("Pod", "spec.containers.0.resources.requests.cpu", text) for text in ("-1", "1x", "", "1e", True, [1])),
    *(("Pod", "spec.containers.0.resources.limits.memory", text) for text in ("1.5Gx", "-1Gi")),
    ("Pod", "spec.containers.0.resources.requests.nvidia\\com/gpu", "-1"),
    ("Pod", "spec.containers.0.name", ""),
    ("Pod", "spec.containers", [_CONTAINER, _CONTAINER]),
    ("Pod", "spec.containers", "app"),
    ("Pod", "spec.containers.0.ports", [{"containerPort": 80, "hostPort": 70_000}]),
    ("Pod", "spec.containers.0.ports", [{"containerPort": 80, "hostPort": 80, "protocol": "ICMP"}]),
    ("Pod", "spec.overhead", {"cpu": "-50m"}),
    ("Pod", "spec.priority", "high"),
    ("Pod", "spec.priorityClassName", "unheard-of"),
    ("Pod", "spec.preemptionPolicy", "Sometimes"),
    ("Pod", "spec.tolerations", [{"key": "a", "effect": "NoSleep"}]),
    ("Pod", f"spec.affinity.podAffinity.{REQUIRED}.0.topologyKey", ""),
    ("Pod", f"spec.affinity.podAffinity.{REQUIRED}.0.labelSelector", {"matchExpressions": [_NO_OPERATOR]}),
    ("Pod", f"spec.affinity.podAffinity.{REQUIRED}.0.namespaceSelector", {"matchExpressions": [_NO_VALUES]}),
    ("Pod", "spec.affinity", {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchFields": [_NO_OPERATOR]}]}}}),
    *(("Pod", f"spec.topologySpreadConstraints.0.{field}", 0) for field in ("maxSkew", "minDomains")),
    ("Pod", "spec.topologySpreadConstraints.0.topologyKey", ""),
    ("Pod", "spec.topologySpreadConstraints.0.whenUnsatisfiable", "Maybe"),
    *(("Pod", f"spec.topologySpreadConstraints.0.node{what}Policy", "Maybe") for what in ("Affinity", "Taints")),
    ("Pod", "status.containerStatuses.0.allocatedResources.cpu", "one"),
    ("Pod", "status.qosClass", "Best"),
    ("Pod", "metadata.creationTimestamp", "yesterday"),
    *((kind, "metadata.name", "") for kind in ("Pod", "Node", "Deployment")),
    *(("Node", f"status.allocatable.{name}", "-4") for name in ("cpu", "memory", "pods")),
    ("Node", "status.capacity.cpu", "many"),
    ("Node", "spec.taints.0.effect", "NoSleep"),
    ("Deployment", "spec.replicas", "two"),
    ("PodDisruptionBudget", "spec.selector", {"matchExpressions": [_NO_OPERATOR]}),
    ("HorizontalPodAutoscaler", "spec.scaleTargetRef", None),
    ("LimitRange", "spec.limits.0.min", {"cpu": "-1"}),
    ("LimitRange", "spec.limits.0.maxLimitRequestRatio", {"memory": "much"}),
    ("PersistentVolume", "spec.nodeAffinity", {"required": {"nodeSelectorTerms": [{"matchFields": [_NO_VALUES]}]}}),
    ("StorageClass", "volumeBindingMode", "Never"),
    ("CSINode", "spec.drivers.0.allocatable", {"count": -1}),
    ("PriorityClass", "preemptionPolicy", "Sometimes"),
    ("PriorityClass", "value", None),
)
_BROKEN_USAGE: tuple[tuple[str, object], ...] = (
    *(("cpu.baseMillicores", amount) for amount in (-1, float("nan"), float("inf"), 1e30, "1", None)),
    *(("memory.peakBytes", amount) for amount in (-1, 1e30)),
    *(("updatedAt", time) for time in ("2026-01-01T12:00:00", "now")),
    ("pod", "stranger-1"),
    ("container", "unknown"),
    ("workload", "web"),
    ("namespace", None),
    ("cpu", None),
)
_BROKEN_TEXTS = ("", "[]", "not JSON", "{", '{"kind":"Pod"}', '{"items":[]}', '{"kind":"List","items":[1]}', "\x00")
_BROKEN_SETTINGS = (
    'max_age = "soon"',
    "max_age = 5",
    'maxage = "5m"',
    "max_evictions_per_node = -1",
    'mode = "loud"',
    'headroom = "most"',
    "memory_risk = 2.0",
    "excluded_namespaces = [1]",
    "overload_untaint_threshold = 1.5",
    "price_core_hour = 0.02",
    'prometheus_token_file = "/a"\nprometheus_user = "b"',
    "max_age",
)
_BROKEN_OPTIONS: dict[str, tuple[str, ...]] = {
    "plan": ("--format yaml", "--mode off", "--colour", "--node n3", "--now tomorrow", "--now 2026-01-01T12:00:00"),
    "scan": ("--history 1y", "--price-gib-hour inf", "--price-gib-hour -1", "--prometheus-url http://127.0.0.1:9"),
    "explain": ("web", "shop/", "a/b/c", "shop/web-2", "shpo/web-1", f"{_POD} --format yaml", ""),
    "pack": (
        *("--time-limit -1", "--time-limit nan", "--time-limit soon", "--sizes peak", "--seed -3", "--work 0"),
        *("--now yesterday", "--format yaml", "--config /nowhere/cruise.toml"),
    ),
    "backtest": (
        *("--policy autoplot", "--policy xyz", "--policy cruise oracel", "--node-cpu 0", "--node-cpu -4"),
        *("--node-cpu many", "--node-memory 0", "--node-memory 64Gb", "--risk 0", "--risk 1", "--risk nan"),
        *("--risk low", "--seed -1", "--pod-creation late", "--half third", "--format xml", "--show-node worker-3"),
        *("--days 0", "--days 1.5", "--days 7", "--now 2026-01-01T00:00:00Z", "--snapshot cluster.json"),
        *("--prometheus-url http://127.0.0.1:9", "--html /nowhere/report.html", "--html /"),
    ),
}
_ALONE = (
    *("pla", "plan", "explain", "pack", "backtest", "backtest --trace", "backtest traces/a"),
    *("explain shop/web-1 --usage x", "plan --snapshot /nowhere.json --usage x", "plan --snapshot / --usage x"),
    *("pack --snapshot /nowhere.json", "scan --snapshot /nowhere.json", "scan --now 2026-01-01T12:00:00Z"),
    *("backtest --trace /nowhere", "backtest --prometheus-url http://127.0.0.1:9 --now yesterday"),
)
_SERIES = "series,workload,cpu_request_millicores,memory_request_bytes\n"
_BROKEN_TRACES: tuple[tuple[str, str], ...] = (
    *(("series.csv", text) for text in ("", "series\na\n", _SERIES, f"{_SERIES}a,b\n", f"{_SERIES},b,1,1\n")),
    *(
        ("series.csv", f"{_SERIES}{row}\n")
        for row in ("a,b,x,1", "a,b,1,", "a,b,1,9999999999999999", "a,b,1,1\na,b,1,1")
    ),
    *(
        ("cpu_millicores.csv", text)
        for text in ("", "a\n1\n", "t,a\n", "t,a\n0,1\n", "t,a,a\n0,1,1\n", "t,a,c\n0,1,1\n")
    ),
    *(
        ("cpu_millicores.csv", f"t,a\n0,1\n{row}\n")
        for row in ("300", "300,-1", "300,x", "0,1", "-300,1", "x,1", "\n600,1")
    ),
    *(
        ("cpu_millicores.csv", f"t,a\n{rows}\n")
        for rows in ("0,1\n7,1", "0,1\n300,1\n500,1", "0,\n300,", "0,1\n9e99,1")
    ),
    ("memory_bytes.csv", "t,a\n0,1\n600,1\n"),
)


def write_refused(directory: Path) -> Iterator[list[str]]:
    """Write invalid files, and yield the arguments of every command that rejects one."""
    files = _Files(directory)
    whole, usage = files.snapshot("whole", _OBJECTS), files.usage("whole", _usage_item())
    both = ["--snapshot", whole, "--usage", usage]
    for number, (kind, place, value) in enumerate(_BROKEN_OBJECTS):
        broken = {**_OBJECTS, kind: _changed(_OBJECTS[kind], place, value)}
        yield ["plan", "--snapshot", files.snapshot(f"snapshot-{number}", broken), "--usage", usage]
    for kind in ("Node", "Pod"):
        twice = {**_OBJECTS, "twice": _OBJECTS[kind]}
        yield ["pack", "--snapshot", files.snapshot(f"snapshot-{kind}-twice", twice)]
    for number, (place, value) in enumerate(_BROKEN_USAGE):
        broken_usage = files.usage(f"usage-{number}", _changed(_usage_item(), place, value))
        yield ["plan", "--snapshot", whole, "--usage", broken_usage]
    yield ["plan", "--snapshot", whole, "--usage", files.usage("usage-twice", _usage_item(), _usage_item())]
    yield ["plan", "--snapshot", whole, "--usage", files.usage("usage-none")]
    for number, text in enumerate((*_BROKEN_TEXTS, Path(whole).read_text()[:-40], Path(usage).read_text()[:-20])):
        broken_text = files.write(f"text-{number}.json", text)
        for command_of in (["plan"], ["scan"], ["explain", _POD]):
            yield [*command_of, "--snapshot", broken_text, "--usage", usage]
        yield ["pack", "--snapshot", whole, "--usage", broken_text]
    for number, text in enumerate(_BROKEN_SETTINGS):
        yield ["plan", *both, "--config", files.write(f"settings-{number}.toml", f"{text}\n")]
    yield ["pack", "--snapshot", whole, "--sizes", "rightsized"]
    yield ["scan", "--snapshot", whole]
    yield ["plan", *both, "--now", "2025-12-31T00:00:00Z"]
    yield from (text.split() for text in _ALONE)
    trace = files.trace("trace")
    for command, texts in _BROKEN_OPTIONS.items():
        source = ["--trace", trace] if command == "backtest" else both
        yield from ([command, *text.split(), *source] for text in texts)
    yield ["backtest", "--trace", trace, "--half", "report"]
    for number, (file, text) in enumerate(_BROKEN_TRACES):
        yield ["backtest", "--trace", files.trace(f"trace-{number}", **{file.partition(".")[0]: text})]


class _Files:
    """Writes the files of the cases."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def write(self, name: str, text: str) -> str:
        path = self._directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return str(path)

    def snapshot(self, name: str, objects: dict[str, Json]) -> str:
        return self.write(f"{name}.json", json.dumps({"kind": "List", "items": list(objects.values())}))

    def usage(self, name: str, *items: Json) -> str:
        document = {"apiVersion": "cruise.io/v1", "kind": "UsageStatistics", "items": items}
        return self.write(f"{name}-of-usage.json", json.dumps(document))

    def trace(self, name: str, **texts: str) -> str:
        samples = "t,a\n0,1\n300,2\n"
        texts = {"series": f"{_SERIES}a,b,1000,1000\n", "cpu_millicores": samples, "memory_bytes": samples} | texts
        self.write(f"{name}/series.csv", texts.pop("series"))
        for file, text in texts.items():
            (self._directory / name / f"{file}.csv.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
        return str(self._directory / name)


def _usage_item() -> Json:
    return {
        "namespace": "shop",
        "pod": "web-1",
        "workload": "Deployment/web",
        "container": "app",
        "updatedAt": stamp(NOW),
        "cpu": {"baseMillicores": 100, "peakMillicores": 200},
        "memory": {"baseBytes": 1 << 28, "peakBytes": 1 << 29, "max7dBytes": 1 << 29, "oomBytes": 0},
    }


def _changed(document: Json, place: str, value: object) -> Json:
    """Return the document with another value at a path of keys between dots; None removes it."""
    changed = copy.deepcopy(document)
    *path, last = [key.replace("\\", ".") for key in place.split(".")]
    at: Any = changed
    for key in path:
        at = at[int(key)] if isinstance(at, list) else at.setdefault(key, {})
    if value is None:
        del at[last]
    else:
        at[last] = value
    return changed
