"""Temporary obstacles: the real kube-scheduler rejects the pod, and plans evict nothing for it."""

import json
import secrets
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from cruise.decisions.packing.verification import find_plan_objections
from cruise.domain.packing_plan import PackingProposal
from cruise.kube_json.reading.snapshot import read_snapshot
from tests.controlplane.api import Api, Json, wait_until
from tests.controlplane.behaviour import KubeletBehaviour, SimulatedNodeSpec
from tests.controlplane.control_plane import KUBELET, ControlPlane
from tests.controlplane.kubelet import TestKubelet
from tests.controlplane.manifests import container
from tests.controlplane.manifests import pod as pod_manifest
from tests.e2e.packing.stage import verdict
from tests.e2e.packing.test_real_scheduler import plan_for

STORAGE = "storage.k8s.io/v1"
KINDS = (
    *("nodes", "namespaces", "pods", "persistentvolumes", "persistentvolumeclaims"),
    *(f"{name}.storage.k8s.io" for name in ("storageclasses", "csinodes", "csidrivers", "csistoragecapacities")),
    *("volumeattachments.storage.k8s.io", "priorityclasses.scheduling.k8s.io"),
)
CREATED = ("volumeattachments", "persistentvolumes", "storageclasses", "csinodes", "csidrivers")
OF_STORAGE = frozenset(CREATED) - {"persistentvolumes"}


@dataclass(frozen=True)
class Scene:
    """Two nodes of 4 cores, `ssd` and the other one; everything bears the run's name."""

    api: Api
    kubelet: TestKubelet
    run: str

    @property
    def driver(self) -> str:
        return f"{self.run}.example.com"

    @property
    def ssd(self) -> str:
        return f"{self.run}-ssd"

    def create(
        self, version: str, kind: str, name: str, body: Json, namespaced: bool = False, **metadata: object
    ) -> None:
        head: Json = {"name": name, **metadata} | ({"namespace": self.run} if namespaced else {})
        self.api.create({"apiVersion": version, "kind": kind, "metadata": head, **body})

    def pod(self, name: str, cpu: str, ports: tuple[int, ...] = (), **spec: object) -> None:
        listed = [{"containerPort": port, "hostPort": port} for port in ports]
        made = pod_manifest(self.run, name, container(requests={"cpu": cpu}, ports=listed), **spec)
        made["spec"].setdefault("nodeSelector", {"disk": self.run})
        self.api.create(made)

    def volume(self, name: str) -> None:
        """A volume of the driver that is anywhere, and a claim that is bound to it."""
        claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": self.run, "name": name}
        spec: Json = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": ""}
        own = {"csi": {"driver": self.driver, "volumeHandle": name}, "claimRef": claim}
        self.create("v1", "PersistentVolume", f"{self.run}-{name}", {"spec": {**spec, **own}})
        wanted: Json = {"accessModes": ["ReadWriteOnce"], "storageClassName": "", "volumeName": f"{self.run}-{name}"}
        wanted |= {"resources": {"requests": {"storage": "1Gi"}}}
        self.create("v1", "PersistentVolumeClaim", name, {"spec": wanted}, namespaced=True)
        wait_until(
            lambda: self.api.read("persistentvolumeclaims", self.run, name)["status"]["phase"] == "Bound", "it is bound"
        )

    def attaches(self, count: int) -> None:
        for node in (self.ssd, f"{self.run}-other"):
            drivers = [{"name": self.driver, "nodeID": node, "allocatable": {"count": count}}]
            self.create(STORAGE, "CSINode", node, {"spec": {"drivers": drivers}})

    def plan(self) -> PackingProposal:
        """The plan for what is there now; a pod called `app` is one that a controller would create again."""
        items = []
        for resource in KINDS:
            listed = self.api.get(self.api.path(resource))
            head = {"apiVersion": listed["apiVersion"], "kind": listed["kind"].removesuffix("List")}
            mine = [one for one in listed["items"] if self.run in json.dumps(one) or "value" in one]
            items += [head | one for one in mine]
        for item in items:
            if item["kind"] == "Pod" and item["metadata"]["name"] == "app":
                owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "app", "uid": "app", "controller": True}
                item["metadata"]["ownerReferences"] = [owner]
        snapshot = read_snapshot([json.dumps({"kind": "List", "items": items}).encode()], self.run)
        plan = plan_for(snapshot)
        assert isinstance(plan, PackingProposal), plan
        assert find_plan_objections(snapshot, plan) == ()
        return plan

    def waits_for(self, name: str, words: str) -> None:
        """Wait until the scheduler refuses a pod with these words."""
        wait_until(lambda: words in verdict(self.api.read("pods", self.run, name))[1], f"{name} is refused: {words}")

    def comes(self, name: str) -> str:
        """Wait until a pod is bound; return its node."""
        node: str = wait_until(lambda: verdict(self.api.read("pods", self.run, name))[0], f"{name} is bound")
        return node


def moves(plan: PackingProposal) -> list[str]:
    return [one.pod for one in (*plan.moves, *plan.preempted)]


@pytest.fixture
def scene(control_plane: ControlPlane) -> Iterator[Scene]:
    run = f"moment{secrets.token_hex(2)}"
    with TestKubelet(control_plane.api(KUBELET.name), threads=1) as kubelet:
        scene = Scene(control_plane.api(), kubelet, run)
        kubelet.add_nodes(
            [SimulatedNodeSpec(scene.ssd, labels={"run": run, "disk": run}), SimulatedNodeSpec(f"{run}-other")]
        )
        scene.create("v1", "Namespace", run, {})
        try:
            yield scene
        finally:
            scene.api.delete_all("pods", run, grace=0)
            for plural in CREATED:
                resource = f"{plural}.storage.k8s.io" if plural in OF_STORAGE else plural
                for one in scene.api.items(resource):
                    if run in one["metadata"]["name"] or run in json.dumps(one.get("spec", {})):
                        scene.api.delete(resource, None, one["metadata"]["name"], grace=0)


def test_a_volume_that_is_left_attached_counts(scene: Scene):
    for name in ("old", "data"):
        scene.volume(name)
    scene.attaches(1)
    source = {"persistentVolumeName": f"{scene.run}-old"}
    attachment = {"attacher": scene.driver, "nodeName": scene.ssd, "source": source}
    scene.create(STORAGE, "VolumeAttachment", f"{scene.run}-old", {"spec": attachment})
    scene.pod("app", "3")
    assert scene.comes("app") == scene.ssd
    scene.pod("web", "2", volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}])
    scene.waits_for("web", "node(s)")
    plan = scene.plan()
    assert (moves(plan), plan.placed, [one.blocked_by for one in plan.unplaced]) == ([], (), [("attach-limit",)])
    # What was planned before: in vain.
    scene.api.delete("pods", scene.run, "app", grace=0)
    scene.waits_for("web", "exceed max volume count")
    scene.api.delete("volumeattachments.storage.k8s.io", None, f"{scene.run}-old")
    assert scene.comes("web") == scene.ssd


def test_a_nominated_pod_keeps_its_host_ports(scene: Scene):
    for name, value in (("low", -10), ("high", 10)):
        scene.create("scheduling.k8s.io/v1", "PriorityClass", f"{scene.run}-{name}", {"value": value})
    scene.kubelet.behave(KubeletBehaviour(termination_seconds=45), scene.run, "ending")
    scene.pod("ending", "1", (80,), priorityClassName=f"{scene.run}-low", terminationGracePeriodSeconds=60)
    scene.pod("app", "1500m")
    assert {scene.comes("ending"), scene.comes("app")} == {scene.ssd}
    scene.pod("vip", "1", (80, 443), priorityClassName=f"{scene.run}-high")
    wait_until(
        lambda: scene.api.read("pods", scene.run, "vip")["status"].get("nominatedNodeName") == scene.ssd,
        "vip is nominated",
    )
    scene.pod("web", "1", (443,))
    scene.waits_for("web", "node(s)")
    plan = scene.plan()
    assert (moves(plan), plan.placed) == ([], ())
    assert [one.blocked_by[0] for one in plan.unplaced if one.pod == "web"] == [
        f"not-judged: its rules concern {scene.run}/vip, which is nominated for {scene.ssd}"
    ]
    scene.api.delete("pods", scene.run, "app", grace=0)
    scene.waits_for("web", "didn't have free ports")
    assert scene.comes("vip") == scene.ssd


def test_a_claim_with_a_chosen_node_still_needs_free_storage(scene: Scene):
    spec = {"provisioner": scene.driver, "volumeBindingMode": "WaitForFirstConsumer"}
    scene.create(STORAGE, "StorageClass", scene.run, spec)
    scene.create(STORAGE, "CSIDriver", scene.driver, {"spec": {"storageCapacity": True, "attachRequired": False}})
    scene.attaches(9)
    topology = {"matchLabels": {"kubernetes.io/hostname": scene.ssd}}
    room = {"storageClassName": scene.run, "nodeTopology": topology, "capacity": "1Mi"}
    scene.create(STORAGE, "CSIStorageCapacity", f"{scene.run}-room", room, namespaced=True)
    wanted: Json = {"accessModes": ["ReadWriteOnce"], "storageClassName": scene.run}
    wanted |= {"resources": {"requests": {"storage": "1Gi"}}}
    chosen = {"volume.kubernetes.io/selected-node": scene.ssd}
    scene.create("v1", "PersistentVolumeClaim", "data", {"spec": wanted}, namespaced=True, annotations=chosen)
    scene.pod("web", "1", volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}])
    scene.waits_for("web", "did not have enough free storage")
    plan = scene.plan()
    assert (plan.placed, [one.blocked_by for one in plan.unplaced]) == ((), [("volume",)])


def test_namespaces_without_a_label_are_not_what_the_selector_says(scene: Scene):
    scene.api.patch("namespaces", None, scene.run, {"metadata": {"labels": {"team": "a"}}})
    scene.pod("app", "100m")
    assert scene.comes("app") == scene.ssd
    term = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {"app": "app"}},
        "namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["a"]}]},
    }
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    scene.pod("web", "100m", affinity={"podAntiAffinity": required})
    # According to the selector the two may share a node.
    scene.waits_for("web", "didn't match pod anti-affinity rules")
    plan = scene.plan()
    assert (moves(plan), plan.placed) == ([], ())
    assert [one.blocked_by[0].partition(":")[0] for one in plan.unplaced] == ["not-judged"]


def test_a_claim_that_the_pod_does_not_own_serves_it_not(scene: Scene):
    scene.volume("web-data")
    scene.attaches(9)
    template = {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}
    scene.pod("app", "3")
    assert scene.comes("app") == scene.ssd
    scene.pod("web", "2", volumes=[{"name": "data", "ephemeral": {"volumeClaimTemplate": template}}])
    scene.waits_for("web", "was not created for pod")
    plan = scene.plan()
    assert (moves(plan), plan.placed, [one.blocked_by for one in plan.unplaced]) == ([], (), [("volume",)])
