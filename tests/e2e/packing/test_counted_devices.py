"""Dynamically allocated devices: the real kube-scheduler allocates as many as plans count."""

import json
import secrets
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from cruise.decisions.packing.verification import find_plan_objections
from cruise.domain.packing_plan import PackingProposal
from cruise.domain.reasons import UnplacedPod
from cruise.kube_json.reading.snapshot import read_snapshot
from tests.controlplane.api import Api, Json, wait_until
from tests.controlplane.behaviour import SimulatedNodeSpec
from tests.controlplane.control_plane import KUBELET, ControlPlane
from tests.controlplane.kubelet import TestKubelet
from tests.controlplane.manifests import container
from tests.e2e.packing.stage import verdict
from tests.e2e.packing.test_real_scheduler import plan_for

DEVICES = "resource.k8s.io/v1"
KINDS = (
    *("nodes", "pods", "resourceclaims.resource.k8s.io", "resourceclaimtemplates.resource.k8s.io"),
    *("deviceclasses.resource.k8s.io", "resourceslices.resource.k8s.io"),
)
OFFERED = {"n1": 2, "n2": 1}


@dataclass(frozen=True)
class Scene:
    """Two nodes with devices of a driver of their own."""

    api: Api
    run: str

    @property
    def driver(self) -> str:
        return f"{self.run}.example.com"

    def pod(self, name: str, template: str, scheduler: str, **spec: object) -> Json:
        claims = [{"name": "gpu", "resourceClaimTemplateName": template}]
        head = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": self.run}}
        needy = container("app", {"cpu": "100m"}) | {"resources": {"claims": [{"name": "gpu"}]}}
        return head | {
            "spec": {
                "containers": [needy],
                "resourceClaims": claims,
                "schedulerName": scheduler,
                "nodeSelector": {"run": self.run},
                "terminationGracePeriodSeconds": 0,
                **spec,
            }
        }

    def put_up(self) -> None:
        named = [
            ("v1", "Namespace", self.run, None),
            (DEVICES, "DeviceClass", self.run, {"selectors": [self.selector()]}),
            *((DEVICES, "ResourceSlice", f"{self.run}-{node}", self.slice(node)) for node in OFFERED),
            *(
                (DEVICES, "ResourceClaimTemplate", name, self.template(count))
                for name, count in (("one", 1), ("two", 2))
            ),
        ]
        for version, kind, name, spec in named:
            metadata = {"name": name} | ({"namespace": self.run} if kind == "ResourceClaimTemplate" else {})
            manifest = {"apiVersion": version, "kind": kind, "metadata": metadata}
            self.api.create(manifest | ({"spec": spec} if spec else {}))

    def selector(self) -> Json:
        return {"cel": {"expression": f'device.driver == "{self.driver}"'}}

    def slice(self, node: str) -> Json:
        devices = [{"name": f"gpu-{number}"} for number in range(OFFERED[node])]
        name = f"{self.run}-{node}"
        pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
        return {"driver": self.driver, "nodeName": name, "pool": pool, "devices": devices}

    def template(self, count: int) -> Json:
        exact = {"deviceClassName": self.run, "allocationMode": "ExactCount", "count": count}
        return {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": exact}]}}}

    def plan(self) -> PackingProposal:
        items = []
        for resource in KINDS:
            listed = self.api.get(self.api.path(resource))
            head = {"apiVersion": listed["apiVersion"], "kind": listed["kind"].removesuffix("List")}
            items += [head | one for one in listed["items"] if self.run in json.dumps(one)]
        for pod in items:
            if pod["kind"] == "Pod" and pod["spec"]["schedulerName"] == "other":
                pod["spec"]["schedulerName"] = "default-scheduler"
        snapshot = read_snapshot([json.dumps({"kind": "List", "items": items}).encode()], self.run)
        plan = plan_for(snapshot)
        assert isinstance(plan, PackingProposal)
        assert find_plan_objections(snapshot, plan) == ()
        return plan

    def verdict_on(self, name: str) -> tuple[str | None, str]:
        """Where the scheduler has bound a pod, or why nowhere."""

        def judged() -> tuple[str | None, str] | None:
            found = verdict(self.api.read("pods", self.run, name))
            return found if any(found) else None

        found: tuple[str | None, str] = wait_until(judged, f"the scheduler has judged {name}")
        return found


@pytest.fixture
def scene(control_plane: ControlPlane) -> Iterator[Scene]:
    run = f"gpu{secrets.token_hex(2)}"
    with TestKubelet(control_plane.api(KUBELET.name), threads=1) as kubelet:
        scene = Scene(control_plane.api(), run)
        kubelet.add_nodes([SimulatedNodeSpec(f"{run}-{node}", labels={"run": run}) for node in OFFERED])
        scene.put_up()
        try:
            yield scene
        finally:
            scene.api.delete_all("pods", run, grace=0)


def test_kube_scheduler_allocates_as_many_devices_as_plans_count(scene: Scene):
    scene.api.create(scene.pod("there", "one", "default-scheduler"))
    home, _ = scene.verdict_on("there")
    free = {f"{scene.run}-{node}": count - (f"{scene.run}-{node}" == home) for node, count in OFFERED.items()}
    for name, template in (("a", "one"), ("b", "one"), ("c", "two")):
        scene.api.create(scene.pod(name, template, "other"))
    made = f"/apis/{DEVICES}/namespaces/{scene.run}/resourceclaims"
    wait_until(lambda: len(scene.api.get(made)["items"]) == 4, "claims are made for all pods")
    plan = scene.plan()
    lost: list[UnplacedPod] = list(plan.unplaced)
    assert {one.pod for one in plan.placed} | {one.pod for one in lost} == {"a", "b", "c"}
    assert not any(blocked.startswith("not-judged") for one in lost for blocked in one.blocked_by)
    assert len(plan.placed) == min(2, sum(free.values()))
    templates = {"a": "one", "b": "one", "c": "two"}
    for one in plan.placed:
        scene.api.delete("pods", scene.run, one.pod, grace=0)
        again = scene.pod(f"{one.pod}-again", templates[one.pod], "default-scheduler")
        again["spec"]["nodeSelector"] = {"kubernetes.io/hostname": one.target}
        scene.api.create(again)
        node, message = scene.verdict_on(f"{one.pod}-again")
        assert node == one.target, message
    for other in lost:
        scene.api.create(scene.pod(f"{other.pod}-again", templates[other.pod], "default-scheduler"))
        node, message = scene.verdict_on(f"{other.pod}-again")
        assert node is None, "a pod came for which the plan found no devices"
        assert "cannot allocate all claims" in message
