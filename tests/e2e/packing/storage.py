"""Claims of every kind for a random cluster: bound, WaitForFirstConsumer, and without a provisioner."""

import random
from collections.abc import Mapping, Sequence

from tests.controlplane.api import Json

DRIVER = "disk.csi.example.com"
BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
KINDS = ("bound", "bound", "bound", "waiting", "waiting", "alone", "unserved", "missing", "shared", "on-many")


class StorageDrawing:
    """Draws volumes of pods, and keeps what is to be created for them until it is taken."""

    def __init__(self, source: random.Random, cluster: str, zones: Sequence[str], mark: Mapping[str, str]) -> None:
        self.source, self.cluster, self.zones, self.mark = source, cluster, zones, mark
        self.zone_key = f"{cluster}.example/zone"
        self._objects: list[Json] = [self._class("pending"), self._class("at-once")]
        self._shared: dict[tuple[str, str], str] = {}

    def draw_volumes(self, namespace: str, pod: str) -> list[Json]:
        """Return one or two volumes of a pod."""
        return [self._volume(namespace, pod, number) for number in range(self.source.choice([1, 1, 2]))]

    def take(self, nodes: Sequence[str], limited: bool) -> list[Json]:
        """Return what was drawn since, and what nodes attach."""
        objects, self._objects = self._objects, []
        for node in nodes:
            limit = {"allocatable": {"count": self.source.randint(0, 2)}} if limited else {}
            driver = {"name": DRIVER, "nodeID": node, **limit}
            objects.append(self._head("storage.k8s.io/v1", "CSINode", node, None) | {"spec": {"drivers": [driver]}})
        return objects

    def as_bound(self, item: Json) -> Json:
        """Return a claim as it is once its volume is bound; everything else as it is."""
        if item["kind"] != "PersistentVolumeClaim" or not item["spec"].get("volumeName"):
            return item
        metadata = {**item["metadata"], "annotations": {BIND_COMPLETED: "yes"}}
        return {**item, "metadata": metadata, "status": {"phase": "Bound"}}

    def _volume(self, namespace: str, pod: str, number: int) -> Json:
        name, kind = f"{pod}-v{number}", self.source.choice(KINDS)
        if kind in ("shared", "on-many"):
            claim = self._shared.get((namespace, kind))
            if claim is None:
                claim = self._shared[namespace, kind] = f"{name}-{kind}"
                self._claim(namespace, claim, bound=True, mode="ReadWriteOnce" if kind == "shared" else "ReadWriteMany")
        else:
            claim = name
            if kind in ("bound", "alone"):
                mode = "ReadWriteOncePod" if kind == "alone" else "ReadWriteOnce"
                self._claim(namespace, claim, bound=True, mode=mode)
            elif kind != "missing":
                self._claim(namespace, claim, storage_class="waits" if kind == "waiting" else "at-once")
        return {"name": f"v{number}", "persistentVolumeClaim": {"claimName": claim}}

    def _claim(
        self, namespace: str, name: str, storage_class: str = "", bound: bool = False, mode: str = "ReadWriteOnce"
    ) -> None:
        spec: Json = {
            "accessModes": [mode],
            "storageClassName": f"{self.cluster}-{storage_class}" if storage_class else "",
            "resources": {"requests": {"storage": "1Gi"}},
        }
        if bound:
            spec["volumeName"] = volume = f"{namespace}-{name}"
            self._objects.append(self._volume_manifest(volume, namespace, name, spec["accessModes"]))
        self._objects.append(self._head("v1", "PersistentVolumeClaim", name, namespace) | {"spec": spec})

    def _volume_manifest(self, name: str, namespace: str, claim: str, modes: list[str]) -> Json:
        spec: Json = {
            "capacity": {"storage": "1Gi"},
            "accessModes": modes,
            "csi": {"driver": DRIVER, "volumeHandle": name},
            "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace, "name": claim},
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": "",
        }
        if self.source.random() < 0.7:
            spec["nodeAffinity"] = {
                "required": {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": self.zone_key, "operator": "In", "values": [zone]}]}
                        for zone in self.source.sample(self.zones, self.source.choice([1, len(self.zones)]))
                    ]
                }
            }
        return self._head("v1", "PersistentVolume", name, None) | {"spec": spec}

    def _class(self, name: str) -> Json:
        made = self._head("storage.k8s.io/v1", "StorageClass", f"{self.cluster}-{name}", None)
        made |= {
            "provisioner": DRIVER,
            "volumeBindingMode": "WaitForFirstConsumer" if name == "waits" else "Immediate",
        }
        if self.source.random() < 0.6:
            zones = self.source.sample(self.zones, self.source.choice([1, len(self.zones)]))
            made["allowedTopologies"] = [{"matchLabelExpressions": [{"key": self.zone_key, "values": zones}]}]
        return made

    def _head(self, version: str, kind: str, name: str, namespace: str | None) -> Json:
        metadata: Json = {"name": name, "labels": dict(self.mark)}
        if namespace is not None:
            metadata["namespace"] = namespace
        return {"apiVersion": version, "kind": kind, "metadata": metadata}
