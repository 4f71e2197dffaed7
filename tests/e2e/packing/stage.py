"""Many random clusters on one API server, and the decisions of its scheduler."""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from cruise.domain.cluster import ClusterSnapshot
from cruise.domain.packing_plan import PackingProposal
from cruise.kube_json.reading.snapshot import read_snapshot
from tests.controlplane.api import Api, ApiError, Json, conditions, wait_until
from tests.controlplane.kubelet import TestKubelet
from tests.e2e.packing.drawing import CLASSES, MARK, OWNER, RandomPackingCluster, class_manifest
from tests.e2e.packing.storage import DRIVER

T = TypeVar("T")

KINDS = (
    *("nodes", "namespaces", "pods", "persistentvolumes", "persistentvolumeclaims"),
    *("poddisruptionbudgets.policy", "storageclasses.storage.k8s.io", "csinodes.storage.k8s.io"),
)
PRIORITY_CLASSES = "priorityclasses.scheduling.k8s.io"
_AT_ONCE = 4
PodName = tuple[str, str]
"""Namespace and name."""


class PackingCluster:
    """Drawn clusters for as long as a `with` of their kubelet lasts; `run` precedes what they share."""

    def __init__(self, api: Api, kubelet: TestKubelet, run: str, clusters: Sequence[RandomPackingCluster]) -> None:
        self.api, self.run, self.clusters = api, run, clusters
        self._kubelet = kubelet
        self._threads = ThreadPoolExecutor(_AT_ONCE)

    def put_up(self) -> None:
        """Create everything, and wait until claims are bound, budgets are counted and running pods run."""
        self._kubelet.add_nodes([node for cluster in self.clusters for node in cluster.nodes])
        self.each(
            [name for cluster in self.clusters for name in cluster.cordoned],
            lambda name: self.api.patch("nodes", None, name, {"spec": {"unschedulable": True}}),
        )
        driver = {"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": DRIVER}}
        # Without attaching there are no leftovers of it on nodes that pods have left.
        self.api.apply(driver | {"spec": {"attachRequired": False}})
        for name in CLASSES:
            self.api.create(class_manifest(self.run, name))
        self.create([one for cluster in self.clusters for one in cluster.objects])
        self.each([pod for cluster in self.clusters for pod in cluster.pods], self.api.create)
        wait_until(self._settled, "claims are bound, budgets counted and pods run")

    def create(self, objects: Sequence[Json]) -> None:
        """Create objects, those first that others refer to: a claim that is ahead of its volume waits long for it."""
        for kinds in (("Namespace",), ("PersistentVolume",), ()):
            self.each([one for one in objects if _turn(one["kind"]) == kinds], self.api.create)

    def take_down(self) -> None:
        """Delete what is not of a node; namespaces go in their own time."""
        namespaces = [
            one["metadata"]["name"]
            for cluster in self.clusters
            for one in cluster.objects
            if one["kind"] == "Namespace"
        ]
        self.each(namespaces, lambda name: self.api.delete_all("pods", name, grace=0))
        self.each(namespaces, lambda name: self.forget("namespaces", None, name))
        for resource in ("persistentvolumes", "storageclasses.storage.k8s.io", "csinodes.storage.k8s.io"):
            self.api.request("DELETE", f"{self.api.path(resource)}?labelSelector={MARK}")
        for name in CLASSES:
            self.forget(PRIORITY_CLASSES, None, f"{self.run}-{name}")
        self._threads.shutdown()

    def each(self, things: Iterable[T], work: Callable[[T], object]) -> None:
        """Do something to each of many things, some at a time."""
        for _ in self._threads.map(work, things):
            pass

    def forget(self, resource: str, namespace: str | None, name: str) -> None:
        """Delete an object at once, if it is still there."""
        try:
            self.api.delete(resource, namespace, name, grace=0)
        except ApiError as error:
            if error.status != 404:
                raise

    def remove_pods(self, pods: Sequence[PodName]) -> None:
        """Delete pods, and wait until they no longer exist."""
        self.each(pods, lambda pod: self.forget("pods", *pod))
        gone = set(pods)
        wait_until(lambda: not gone & self.pods().keys(), f"{len(pods)} pods are gone")

    def pods(self) -> dict[PodName, Json]:
        """All pods of the clusters as they are now."""
        found = self.api.items("pods", labels=MARK)
        return {(pod["metadata"]["namespace"], pod["metadata"]["name"]): pod for pod in found}

    def staying(self, plans: Iterable[PackingProposal]) -> dict[PodName, str]:
        """The nodes of the running pods that plans leave where they are."""
        leaving = {(one.namespace, one.pod) for plan in plans for stage in plan.stages for one in stage.evictions}
        running = {name: pod["spec"].get("nodeName") for name, pod in self.pods().items()}
        return {name: node for name, node in running.items() if node and name not in leaving}

    def places(self, names: Iterable[PodName]) -> dict[PodName, str | None]:
        """The nodes of some pods, None for one that no longer exists."""
        pods = self.pods()
        return {name: pods[name]["spec"].get("nodeName") if name in pods else None for name in names}

    def snapshots(self) -> dict[str, ClusterSnapshot]:
        """Each cluster as kubectl would print it, its pods being those of controllers that create them again."""
        items: defaultdict[str, list[Json]] = defaultdict(list)
        for resource in KINDS:
            listed = self.api.get(self.api.path(resource) + f"?labelSelector={MARK}")
            head = {"apiVersion": listed["apiVersion"], "kind": listed["kind"].removesuffix("List")}
            for one in listed["items"]:
                items[one["metadata"]["labels"][MARK]].append(owned(head | one))
        listed = self.api.items(PRIORITY_CLASSES)
        classes = [{"kind": "PriorityClass", **one} for one in listed]
        return {
            cluster.name: read_snapshot(
                [json.dumps({"kind": "List", "items": items[cluster.name] + classes}).encode()], cluster.name
            )
            for cluster in self.clusters
        }

    def provision(self) -> None:
        """Make a volume for each claim for which the scheduler has chosen a node, as the driver would."""
        for claim in self.api.items("persistentvolumeclaims", labels=MARK):
            metadata, spec = claim["metadata"], claim["spec"]
            chosen = metadata.get("annotations", {}).get("volume.kubernetes.io/selected-node")
            if chosen and not spec.get("volumeName"):
                name = f"pvc-{metadata['uid']}"
                volume = {
                    "apiVersion": "v1",
                    "kind": "PersistentVolume",
                    "metadata": {"name": name, "labels": {MARK: metadata["labels"][MARK]}},
                    "spec": {
                        "capacity": {"storage": "1Gi"},
                        "accessModes": spec["accessModes"],
                        "csi": {"driver": DRIVER, "volumeHandle": name},
                        "storageClassName": spec["storageClassName"],
                        "claimRef": {
                            "apiVersion": "v1",
                            "kind": "PersistentVolumeClaim",
                            **{key: metadata[key] for key in ("namespace", "name", "uid")},
                        },
                    },
                }
                try:
                    self.api.create(volume)
                except ApiError as error:
                    if error.reason != "AlreadyExists":
                        raise

    def _settled(self) -> bool:
        claims = self.api.items("persistentvolumeclaims", labels=MARK)
        if any(one["spec"].get("volumeName") and one["status"]["phase"] != "Bound" for one in claims):
            return False
        running = [pod for pod in self.pods().values() if pod["spec"].get("nodeName")]
        if any(pod["status"]["phase"] != "Running" for pod in running):
            return False
        for budget in self.api.items("poddisruptionbudgets.policy", labels=MARK):
            namespace, app = budget["metadata"]["namespace"], budget["metadata"]["name"]
            ready = sum(_is(pod, namespace, app) and _is_ready(pod) for pod in running)
            if budget.get("status", {}).get("currentHealthy") != ready:
                return False
        return True


def owned(item: Json) -> Json:
    """Give a pod that bears its owner's name that owner; the scheduler asks for none, and nothing interferes.

    What waits for nobody is the default scheduler's once it is created anew.
    """
    if item["kind"] != "Pod":
        return item
    item = {**item, "spec": {key: value for key, value in item["spec"].items() if key != "schedulerName"}}
    owner = item["metadata"]["labels"].get(OWNER)
    if owner is None:
        return item
    reference = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": owner, "controller": True}
    return {**item, "metadata": {**item["metadata"], "ownerReferences": [reference]}}


def verdict(pod: Json) -> tuple[str | None, str]:
    """The node that a pod is bound to, or the scheduler's message if it is not bound."""
    node = pod["spec"].get("nodeName")
    scheduled: Mapping[str, str] = conditions(pod).get("PodScheduled", {})
    refused = scheduled.get("reason") == "Unschedulable"
    return node, scheduled.get("message", "") if refused and not node else ""


def _turn(kind: str) -> tuple[str, ...]:
    return (kind,) if kind in ("Namespace", "PersistentVolume") else ()


def _is(pod: Json, namespace: str, app: str) -> bool:
    metadata = pod["metadata"]
    return (metadata["namespace"], metadata["labels"].get("app")) == (namespace, app)


def _is_ready(pod: Json) -> bool:
    return conditions(pod).get("Ready", {}).get("status") == "True"
