"""Pods that no node holds after rightsizing: rescued without evictions, or by moving others under their budgets."""

import json

from tests.controlplane.api import Json, conditions, until
from tests.controlplane.manifests import budget
from tests.e2e.live.manifests import app
from tests.e2e.live.sizes import requests
from tests.e2e.live.stage import Stage
from tests.e2e.live.usage import Use

# Sized by themselves these leave no room for a peak; together with it they share one headroom.
STEADY = Use(cores=0.8, mebibytes=100, peak_cores=1.0)
SPIKY = Use(cores=0.5, mebibytes=100, peak_cores=1.5)


def here(stage: Stage, name: str, cpu: str, memory: str = "256Mi", **more: object) -> Json:
    """A workload that may run on every node of the scene."""
    return app("Deployment", stage.namespace, name, cpu, memory, nodeSelector={"scene": stage.namespace}, **more)


def living(stage: Stage, name: str) -> list[Json]:
    """The pods of an app that are not going."""
    return [one for one in stage.pods(name) if not one["metadata"].get("deletionTimestamp")]


def nodes_of(stage: Stage, name: str) -> list[str | None]:
    """The nodes of an app's pods, those that have none first."""
    return sorted((one["spec"].get("nodeName") for one in living(stage, name)), key=str)


def unschedulable(stage: Stage, name: str) -> Json:
    """Wait until one pod of an app cannot be scheduled."""

    def look() -> Json | None:
        told = [(one, conditions(one).get("PodScheduled", {})) for one in living(stage, name)]
        return next((one for one, told in told if told.get("reason") == "Unschedulable"), None)

    return until(look, f"a pod of {name} cannot be scheduled")


def crowd(stage: Stage) -> tuple[str, Json]:
    """A node whose three pods leave less than the peak of the one that waits, and one on which another such runs."""
    node = stage.node(cpu="4")
    for name in ("one", "two", "three"):
        stage.create(here(stage, name, "1200m"))
    stage.running(3)
    stage.node("spare", cpu="1600m")
    stage.create(here(stage, "late", "1500m", replicas=2))
    late = unschedulable(stage, "late")
    stage.running(4)
    stage.measure({"one": STEADY, "two": STEADY, "three": STEADY, "late": SPIKY})
    stage.mark()
    return node, late


def test_a_pod_is_rescued_without_evictions_by_sharing_headroom(stage: Stage):
    node, late = crowd(stage)
    said = stage.once("resize")
    plan = said["packing"]["plan"]
    assert plan is not None, said["packing"]
    assert (plan["status"], plan["phase"]) == ("optimal", "finished"), json.dumps(said)
    assert [one["pod"] for one in plan["placed"]] == [late["metadata"]["name"]]
    assert (plan["moves"], plan["preempted"]) == ([], [])
    placed = stage.admin.read("pods", stage.namespace, late["metadata"]["name"])
    assert placed["spec"]["nodeName"] == node
    assert placed["metadata"]["uid"] == late["metadata"]["uid"]
    assert requests(placed).cpu < 1500
    # Cruise never binds and never evicts: it only resizes.
    assert {(verb, resource, code) for verb, resource, _, code in stage.deeds()} == {("patch", "pods/resize", 200)}


def test_in_observe_the_rescue_is_shown_and_nothing_is_written(stage: Stage):
    crowd(stage)
    said = stage.once("observe")
    plan = said["packing"]["plan"]
    assert plan is not None, said["packing"]
    assert (plan["phase"], len(plan["placed"])) == ("shown", 1)
    assert "observe" in plan["detail"]
    assert stage.writes() == []
    assert nodes_of(stage, "late")[0] is None
