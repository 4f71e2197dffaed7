"""The whole controller with pods that state resources for all of their containers, on a server that resizes them."""

from typing import Any

import pytest

from tests.controlplane.api import Json, conditions, wait_until
from tests.controlplane.manifests import container, pod_template, workload
from tests.e2e.live.manifests import autoscaler
from tests.e2e.live.sizes import ObservedSize, requests, size_of
from tests.e2e.live.stage import LiveStage, list_skipped
from tests.e2e.live.usage import ContainerUse

USE = ContainerUse(cores=0.1, mebibytes=100, peak_cores=0.15, peak_mebibytes=150)
# Together with another container: a base of 0.8 and a peak of 1.0 cores.
HALF_STEADY = ContainerUse(cores=0.4, mebibytes=50, peak_cores=0.5)
HALF_SPIKY = ContainerUse(cores=0.25, mebibytes=50, peak_cores=0.75)


def whole_app(
    stage: LiveStage, name: str, cpu: str, memory: str, own: Json | None = None, replicas: int = 1, **spec: Any
) -> Json:
    """A Deployment whose pods state CPU and memory for the containers app and logs; app states its `own`."""
    containers = container("app", requests=own), container("logs")
    resources = {"requests": {"cpu": cpu, "memory": memory}}
    selector = {"scene": stage.namespace}
    spec |= {"resources": resources, "nodeSelector": selector, "terminationGracePeriodSeconds": 1}
    return workload("Deployment", stage.namespace, name, pod_template(name, *containers, **spec), replicas)


def whole_size(pod: Json) -> ObservedSize:
    """What a pod requests for all of its containers."""
    return size_of(pod["spec"]["resources"]["requests"])


def uses(*names: str, use: ContainerUse = USE) -> dict[str | tuple[str, str], ContainerUse]:
    return {(name, one): use for name in names for one in ("app", "logs")}


def unschedulable(stage: LiveStage, name: str) -> Json:
    """Wait until one pod of an app cannot be scheduled."""

    def look() -> Json | None:
        found = [one for one in stage.pods(name) if not one["metadata"].get("deletionTimestamp")]
        told = [(one, conditions(one).get("PodScheduled", {})) for one in found]
        return next((one for one, told in told if told.get("reason") == "Unschedulable"), None)

    return wait_until(look, f"a pod of {name} cannot be scheduled")


def test_they_are_resized_as_a_whole_and_created_at_their_peaks(stage: LiveStage):
    stage.node(cpu="16", memory="32Gi")
    stage.create(
        whole_app(stage, "bare", "2", "2Gi"),
        whole_app(stage, "own", "2", "2Gi", own={"cpu": "1", "memory": "1Gi"}),
        whole_app(stage, "scaled", "2", "2Gi"),
        autoscaler(stage.namespace, "scaled"),
    )
    before = {one["metadata"]["labels"]["app"]: one for one in stage.running(3)}
    stage.measure(uses("bare", "own", "scaled"))
    stage.mark()
    # Now the database has statistics, and the pods their sizes of the template.
    stage.once("observe")
    name = before["bare"]["metadata"]["name"]
    explained = " ".join(stage.command("explain", f"{stage.namespace}/{name}").out.split())
    assert "Container (pod)" in explained, explained
    said = stage.once("resize")
    assert not list_skipped(said), said
    after = {name: stage.pod(name) for name in before}
    # Bases of 200m and 200Mi, peaks of 300m and 300Mi.
    for name in ("bare", "own"):
        assert whole_size(after[name]).cpu in range(200, 331), name
        assert whole_size(after[name]).memory in range(200, 331), name
    own = requests(after["own"])
    assert own.cpu <= whole_size(after["own"]).cpu
    assert own.memory <= whole_size(after["own"]).memory
    # Its HPA has no metrics yet, so nothing is known of its target.
    assert whole_size(after["scaled"]).cpu == 2000
    assert whole_size(after["scaled"]).memory in range(200, 331)

    def actual(pod: Json) -> ObservedSize:
        return size_of((pod["status"].get("resources") or {}).get("requests"))

    wait_until(
        lambda: all(actual(stage.pod(name)) == whole_size(stage.pod(name)) for name in before), "all is in force"
    )
    for event in stage.events():
        if event.resource == "pods/resize":
            assert event.code == 200
            stated: Any = event.request_object["spec"]
            assert "resources" in stated
            assert {one["name"] for one in stated["containers"]} <= {"app"}
    with stage.reviewing("resize"):
        gone = {one["metadata"]["uid"] for one in after.values()}
        for one in ("bare", "own"):
            stage.admin.delete("pods", stage.namespace, after[one]["metadata"]["name"], grace=0)

        def created() -> list[Json] | None:
            pods = [one for name in ("bare", "own") for one in stage.pods(name) if one["metadata"]["uid"] not in gone]
            return pods if len(pods) == 2 else None

        for pod in wait_until(created, "both are replaced"):
            assert whole_size(pod) == ObservedSize(300, 300), pod["metadata"]["name"]
            assert requests(pod).cpu <= 300


@pytest.mark.usefixtures("warm_solver")
def test_a_pending_one_is_placed_by_a_plan_that_shrinks_others_as_a_whole(stage: LiveStage):
    node = stage.node(cpu="4")
    stage.create(*(whole_app(stage, name, "1200m", "256Mi") for name in ("one", "two", "three")))
    stage.running(3)
    stage.node("spare", cpu="1600m")
    stage.create(whole_app(stage, "late", "1500m", "256Mi", replicas=2))
    late = unschedulable(stage, "late")
    stage.running(4)
    stage.measure({**uses("one", "two", "three", use=HALF_STEADY), **uses("late", use=HALF_SPIKY)})
    stage.mark()
    plan = stage.once("resize")["packing"]["plan"]
    assert plan is not None
    assert [one["pod"] for one in plan["placed"]] == [late["metadata"]["name"]]
    placed = stage.admin.read("pods", stage.namespace, late["metadata"]["name"])
    assert placed["spec"]["nodeName"] == node
    assert whole_size(placed).cpu < 1500
    assert {(verb, resource, code) for verb, resource, _, code in stage.deeds()} == {("patch", "pods/resize", 200)}
