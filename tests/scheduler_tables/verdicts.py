"""The results of kube-scheduler's own test tables, and the clusters of their cases."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Json = dict[str, Any]

_ALLOWED = frozenset({"Success", "Skip"})
# What a node has of each in tables that are not about resources.
_PLENTY = {"cpu": "1000", "memory": "1Ti", "pods": "1000"}
_FIT = "NodeResourcesFit"
# Plugins that look at a claim's volume, and not whether the claim is bound.
_OF_VOLUMES = frozenset({"NodeVolumeLimits", "VolumeRestrictions", "VolumeZone"})
_NAMESPACE = "default"
# What is off unless kube-scheduler is configured, by plugin.
_CONFIGURED = (
    ("NodeAffinity", "addedNodeSelector"),
    (_FIT, "ignoredResources"),
    (_FIT, "ignoredResourceGroups"),
    ("PodTopologySpread", "defaultConstraints"),
    ("NodeVolumeLimits", "enableVolumeLimitScaling"),
)


class NotConvertible(Exception):
    """A table's case has no cluster that cruise can read; the message is the reason."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of one plugin for a pod and a node; `cluster` is a List of Kubernetes objects, both included."""

    plugin: str
    test: str
    code: str
    reasons: tuple[str, ...]
    pod: tuple[str, str]
    node: str
    cluster: Json

    @property
    def allowed(self) -> bool:
        """Return whether the pod may run on the node as far as the plugin is concerned."""
        return self.code in _ALLOWED


def read_lines(path: Path) -> Iterator[Json]:
    """Yield what was written down of each verdict."""
    with path.open() as lines:
        yield from map(json.loads, lines)


def verdict_of(line: Json) -> Verdict:
    """Make a cluster of what a verdict was about. Raises NotConvertible."""
    plugin, names = line["plugin"], _Names()
    _refuse_calls_of_tests(line)
    _refuse_configured(line)
    pod = _named(line["pod"], names, "pending")
    if pod["spec"].pop("nodeName", None) and plugin == "NodeName":
        raise NotConvertible("a pod that names a node is on it")
    nodes: list[Json] = []
    others: list[Json] = []
    for number, entry in enumerate(line.get("nodes") or [{"node": {}}]):
        node = _node(entry["node"] or {}, f"unnamed-{number}", plugin)
        nodes.append(node)
        for other in entry.get("pods", ()):
            placed = _named(other, names, "running")
            placed["spec"]["nodeName"] = node["metadata"]["name"]
            others.append(placed)
    objects = [shown for one in line.get("objects", ()) for shown in _shown(one, plugin)]
    if not any(one["kind"] == "CSINode" for one in objects):
        # Every kubelet writes one, and tests leave out what the plugin does not read.
        objects += [
            {"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": one["metadata"]} for one in nodes
        ]
    return Verdict(
        plugin=plugin,
        test=line["test"].removeprefix("TestTables/"),
        code=line["code"],
        reasons=tuple(line.get("reasons", ())),
        pod=(pod["metadata"]["namespace"], pod["metadata"]["name"]),
        node=nodes[max(0, line["on"])]["metadata"]["name"],
        cluster={"apiVersion": "v1", "kind": "List", "items": [*nodes, pod, *others, *objects]},
    )


def _refuse_calls_of_tests(line: Json) -> None:
    """Refuse answers to calls that kube-scheduler itself never makes."""
    if line["code"] == "Error" and any("ycle" in one and "not found" in one for one in line["reasons"]):
        raise NotConvertible("Filter is called without PreFilter")
    if line["plugin"] == "NodeDeclaredFeatures" and line.get("unprepared"):
        raise NotConvertible("the features that the pod requires are not in the pod")


def _refuse_configured(line: Json) -> None:
    """Refuse answers of a kube-scheduler that does not have its default configuration and feature gates."""
    settings: Mapping[str, bool] = line.get("settings", {})
    spec, plugin = line["pod"]["spec"], line["plugin"]
    for of, name in _CONFIGURED:
        if plugin == of and settings.get(name):
            raise NotConvertible(f"kube-scheduler is configured: {name}")
    spread = spec.get("topologySpreadConstraints") or ()
    concerned = {
        "enablePodLevelResources": plugin == _FIT and spec.get("resources"),
        "enableSidecarContainers": any(one.get("restartPolicy") for one in spec.get("initContainers") or ()),
        "enableNodeInclusionPolicyInPodTopologySpread": any(
            "nodeAffinityPolicy" in one or "nodeTaintsPolicy" in one for one in spread
        ),
        "enableMatchLabelKeysInPodTopologySpread": any(one.get("matchLabelKeys") for one in spread),
        "enabled": plugin == "DynamicResources",
    }
    for name, concerns in concerned.items():
        if concerns and not settings.get(name, True):
            raise NotConvertible(f"a feature is off that is on by default: {name}")


class _Names:
    """Gives a name to pods without one, and another to those with the name of another pod."""

    def __init__(self) -> None:
        self._taken: set[tuple[str, str]] = set()

    def of(self, metadata: Mapping[str, Any], otherwise: str) -> tuple[str, str]:
        """Return a pod's namespace and name."""
        namespace, stated = metadata.get("namespace") or _NAMESPACE, metadata.get("name") or otherwise
        name, number = stated, 1
        while (namespace, name) in self._taken:
            number += 1
            name = f"{stated}-{number}"
        self._taken.add((namespace, name))
        return namespace, name


def _named(pod: Json, names: _Names, otherwise: str) -> Json:
    namespace, name = names.of(pod["metadata"], otherwise)
    uid = pod["metadata"].get("uid") or _uid(namespace, name)
    spec = dict(pod["spec"])
    for kind in ("containers", "initContainers"):
        listed = enumerate(spec.get(kind) or ())
        spec[kind] = [{**one, "name": one.get("name") or f"{kind}-{number}"} for number, one in listed]
    metadata = {**pod["metadata"], "namespace": namespace, "name": name, "uid": uid}
    return {**pod, "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _uid(namespace: str, name: str) -> str:
    """Return the uid for a pod that has none in its table."""
    return f"{namespace}/{name}"


def _node(node: Json, otherwise: str, plugin: str) -> Json:
    metadata, status = node.get("metadata", {}), node.get("status", {})
    allocatable = status.get("allocatable") or {}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {**metadata, "name": metadata.get("name") or otherwise},
        "spec": node.get("spec", {}),
        "status": {
            **status,
            "allocatable": allocatable if plugin == _FIT else _PLENTY | allocatable,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def _shown(one: Json, plugin: str) -> Iterator[Json]:
    """Yield an object as an API server would show it: claims with a volume are bound, and namespaces have names."""
    match one["kind"]:
        case "Node" | "Pod":
            return
        case "Namespace":
            yield {**one, "metadata": {**one["metadata"], "name": one["metadata"].get("name") or _NAMESPACE}}
        case "PersistentVolumeClaim" if plugin == "VolumeRestrictions" and not one["spec"].get("volumeName"):
            volume = f"volume-of-{one['metadata']['name']}"
            spec = {"csi": {"driver": "driver", "volumeHandle": volume}}
            yield {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": volume}, "spec": spec}
            yield _bound({**one, "spec": {**one["spec"], "volumeName": volume}})
        case "PersistentVolumeClaim" if plugin in _OF_VOLUMES and one["spec"].get("volumeName"):
            yield _bound(one)
        case "PersistentVolumeClaim":
            yield _owned(one)
        case _:
            yield one


def _bound(claim: Json) -> Json:
    return _owned({**claim, "status": {**claim.get("status", {}), "phase": "Bound"}})


def _owned(claim: Json) -> Json:
    """Return a claim whose owner, which is a pod, has a uid."""
    metadata = claim["metadata"]
    namespace = metadata.get("namespace") or _NAMESPACE
    owners = [
        {**one, "kind": one["kind"] or "Pod", "uid": one["uid"] or _uid(namespace, one["name"])}
        for one in metadata.get("ownerReferences", ())
    ]
    return {**claim, "metadata": {**metadata, "ownerReferences": owners}}
