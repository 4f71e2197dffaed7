"""Dynamically allocated devices, as kubectl prints them: counted if a claim needs nothing else."""

from typing import Any

import pytest

from cruise.packer.answer import PackingStatus
from tests.builders import Json
from tests.decisions.packing.test_truth_at_the_edges import a_node, a_pod, placed, planned, said

GPUS = "gpu.example.com"
ASKS_ONE: Json = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}}


def a_device_object(kind: str, name: str, spec: Json, **more: Json) -> Json:
    return {
        "kind": kind,
        "apiVersion": "resource.k8s.io/v1",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": spec,
        **more,
    }


def a_slice(node: str, devices: list[Json], driver: str = GPUS) -> Json:
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    return a_device_object(
        "ResourceSlice", f"{node}-{driver}", {"driver": driver, "pool": pool, "nodeName": node, "devices": devices}
    )


def a_class(*expressions: str) -> Json:
    return a_device_object("DeviceClass", "gpu", {"selectors": [{"cel": {"expression": one}} for one in expressions]})


def some_devices(count: int, **parts: Any) -> list[Json]:
    return [{"name": f"gpu-{number}", "attributes": {"model": {"string": "x"}}, **parts} for number in range(count)]


def a_pod_with_device(name: str, node: str = "", **more: Any) -> Json:
    made = {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": f"{name}-gpu"}]} if node else None
    claims = [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]
    return a_pod(name, node, status=made, resourceClaims=claims, **more)


def its_claim(name: str, node: str) -> Json:
    taken = {"devices": {"results": [{"request": "gpu", "driver": GPUS, "pool": node, "device": "gpu-0"}]}}
    return a_device_object("ResourceClaim", f"{name}-gpu", ASKS_ONE, status={"allocation": taken})


TEMPLATE = a_device_object("ResourceClaimTemplate", "one-gpu", {"spec": ASKS_ONE})


def test_devices_that_only_need_counting_are_counted():
    nodes = [a_node("n1", cpu="4"), a_node("n2", cpu="4")]
    devices = [a_class(f'device.driver == "{GPUS}"'), a_slice("n1", some_devices(2)), a_slice("n2", []), TEMPLATE]
    there = [a_pod_with_device("web-1", "n1"), its_claim("web-1", "n1")]
    plan = planned(*nodes, *devices, *there, a_pod_with_device("web-2"), a_pod_with_device("web-3"))
    assert list(placed(plan).values()) == ["n1"]
    assert [blocked for blocked, _ in said(plan).values()] == [(f"device:{GPUS}",)]
    assert plan.status is PackingStatus.OPTIMAL


def test_a_pod_with_a_device_may_move_to_another_one():
    nodes = [a_node("n1", cpu="1"), a_node("n2", cpu="1"), a_node("n3", cpu="1")]
    devices = [a_class(f"device.driver == '{GPUS}'"), *(a_slice(n, some_devices(1)) for n in ("n1", "n2")), TEMPLATE]
    there = [a_pod_with_device("web-1", "n1"), its_claim("web-1", "n1"), a_pod("large-1", "n3", cpu="900m")]
    late = a_pod("late-1", nodeSelector={"kubernetes.io/hostname": "n1"})
    plan = planned(*nodes, *devices, *there, late)
    assert [(one.pod, one.target) for one in plan.moves] == [("web-1", "n2")]


@pytest.mark.parametrize(
    ("changed", "template"),
    [
        ([a_class(f"device.driver == '{GPUS}' && device.attributes['x'].y == 1"), a_slice("n1", some_devices(2))], {}),
        ([a_class(f"device.driver == '{GPUS}'")], {}),
        ([a_class(), a_slice("n1", some_devices(2))], {}),
        ([a_class(f"device.driver == '{GPUS}'"), a_slice("n1", some_devices(2, taints=[{"key": "x"}]))], {}),
        ([a_class(f"device.driver == '{GPUS}'"), a_slice("n1", some_devices(2, consumesCounters=[{}]))], {}),
        ([a_class(f"device.driver == '{GPUS}'"), a_slice("n1", some_devices(2))], {"allocationMode": "All"}),
        ([a_class(f"device.driver == '{GPUS}'"), a_slice("n1", some_devices(2))], {"selectors": [{}]}),
        ([a_class(f"device.driver == '{GPUS}'"), a_slice("n1", some_devices(2))], {"deviceClassName": "other"}),
    ],
)
def test_devices_that_need_more_than_counting_are_not_judged(changed, template):
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu", **template}}
    spec = {"spec": {"devices": {"requests": [request]}}}
    made = a_device_object("ResourceClaimTemplate", "one-gpu", spec)
    plan = planned(a_node("n1", cpu="4"), made, *changed, a_pod_with_device("web-1"))
    assert said(plan) == {"web-1": (("not-judged: device gpu",), False)}


def test_devices_of_a_claim_that_is_not_judged_are_taken_all_the_same():
    devices = [a_class(f'device.driver == "{GPUS}"'), a_slice("n1", some_devices(1)), TEMPLATE]
    named = a_pod("old-1", "n1", resourceClaims=[{"name": "gpu", "resourceClaimName": "old-1-gpu"}])
    plan = planned(a_node("n1", cpu="4"), *devices, named, its_claim("old-1", "n1"), a_pod_with_device("web-1"))
    assert said(plan)["web-1"][0][0] == f"device:{GPUS}"


def test_a_resource_replaced_by_devices_is_not_checked():
    asked = a_class(f'device.driver == "{GPUS}"')
    asked["spec"]["extendedResourceName"] = "example.com/gpu"
    pod = a_pod("web-1")
    pod["spec"]["containers"][0]["resources"]["requests"]["example.com/gpu"] = "1"
    plan = planned(a_node("n1", cpu="4"), asked, a_slice("n1", some_devices(1)), pod)
    assert said(plan) == {"web-1": (("not-judged: device example.com/gpu",), False)}
