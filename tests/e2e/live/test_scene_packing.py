"""Pods that fit no node after rightsizing are placed without evictions, or by moving other pods."""

import json

import pytest

from tests.controlplane.api import Json, conditions, wait_until
from tests.controlplane.manifests import budget
from tests.e2e.live.manifests import app
from tests.e2e.live.sizes import requests
from tests.e2e.live.stage import LiveStage
from tests.e2e.live.usage import ContainerUse

pytestmark = pytest.mark.usefixtures("warm_solver")

# Sized by themselves these leave no room for a peak; together with it they share one headroom.
STEADY = ContainerUse(cores=0.8, mebibytes=100, peak_cores=1.0)
SPIKY = ContainerUse(cores=0.5, mebibytes=100, peak_cores=1.5)


def here(stage: LiveStage, name: str, cpu: str, memory: str = "256Mi", replicas: int = 1) -> Json:
    """A workload that may run on every node of the scene."""
    return app(
        "Deployment", stage.namespace, name, cpu, memory, replicas=replicas, nodeSelector={"scene": stage.namespace}
    )


def living(stage: LiveStage, name: str) -> list[Json]:
    """The pods of an app that are not going."""
    return [one for one in stage.pods(name) if not one["metadata"].get("deletionTimestamp")]


def nodes_of(stage: LiveStage, name: str) -> list[str | None]:
    """The nodes of an app's pods, those that have none first."""
    return sorted((one["spec"].get("nodeName") for one in living(stage, name)), key=str)


def unschedulable(stage: LiveStage, name: str) -> Json:
    """Wait until one pod of an app cannot be scheduled."""

    def look() -> Json | None:
        told = [(one, conditions(one).get("PodScheduled", {})) for one in living(stage, name)]
        return next((one for one, told in told if told.get("reason") == "Unschedulable"), None)

    return wait_until(look, f"a pod of {name} cannot be scheduled")


def crowd(stage: LiveStage) -> tuple[str, Json]:
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


def test_a_pod_is_rescued_without_evictions_by_sharing_headroom(stage: LiveStage):
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


def test_in_observe_the_rescue_is_shown_and_nothing_is_written(stage: LiveStage):
    crowd(stage)
    said = stage.once("observe")
    plan = said["packing"]["plan"]
    assert plan is not None, said["packing"]
    assert (plan["phase"], len(plan["placed"])) == ("advisory", 1)
    assert "observe" in plan["detail"]
    assert stage.writes() == []
    assert nodes_of(stage, "late")[0] is None


def split(stage: LiveStage, replicas: int = 2) -> tuple[str, str]:
    """Two nodes with a pod each, on both of which something large would fit if either were on the other's."""
    first, second = stage.node("a", cpu="4"), stage.node("b", cpu="4")
    stage.create(here(stage, "web", "1500m", replicas=replicas), budget(stage.namespace, "web", "web", min_available=1))
    stage.running(replicas)
    assert nodes_of(stage, "web") == [first, second]
    budgets = "poddisruptionbudgets.policy"
    wait_until(
        lambda: stage.admin.read(budgets, stage.namespace, "web")["status"].get("disruptionsAllowed"), "the budget"
    )
    stage.create(here(stage, "big", "3000m"))
    unschedulable(stage, "big")
    # No usage is known here, so no pod is sized.
    stage.measure({"nobody": STEADY})
    stage.mark()
    return first, second


def test_a_pod_moves_within_its_disruption_budget_to_the_hinted_node(stage: LiveStage):
    split(stage)
    with stage.reviewing("full"):
        said = stage.once("full")
    plan = said["packing"]["plan"]
    assert plan is not None, said["packing"]
    assert (plan["phase"], plan["detail"]) == ("finished", ""), json.dumps(plan)
    [move], [placed] = plan["moves"], plan["placed"]
    assert (move["from"], placed["node"]) == (placed["node"], move["from"])
    assert nodes_of(stage, "web") == [move["to"], move["to"]]
    assert nodes_of(stage, "big") == [placed["node"]]
    [moved] = [one for one in living(stage, "web") if "cruise.io/steered" in one["metadata"].get("annotations", {})]
    [preferred] = moved["spec"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert (preferred["weight"], preferred["preference"]["matchFields"][0]["values"]) == (100, [move["to"]])
    # One eviction, with the uid as its fence, and no binding of cruise's own.
    [eviction] = [one for one in stage.events() if one.verb == "create" and one.resource == "pods/eviction"]
    assert (eviction.code, eviction.target) == (201, f"{stage.namespace}/{move['pod']}")
    assert eviction.request_object["deleteOptions"]["preconditions"]["uid"]
    assert [one for one in stage.events() if one.resource == "pods/binding"] == []


def test_mode_resize_evicts_no_pod_for_it(stage: LiveStage):
    split(stage)
    said = stage.once("resize")
    assert said["packing"]["plan"]["moves"] == []
    assert stage.deeds() == []
    assert nodes_of(stage, "big") == [None]


def test_serve_packs_by_itself_and_reports_it(stage: LiveStage):
    split(stage)
    # A plan that is older than an interval is dropped, however slow the machine is.
    with stage.reviewing("full"), stage.serving("full", pass_interval="30s") as serve:
        wait_until(lambda: nodes_of(stage, "big")[0], "the pod is bound")

        def look() -> Json | None:
            found: Json | None = json.loads(serve.get("/api/v1/packing")[1])["plan"]
            return found if found is not None and found["phase"] == "finished" else None

        plan = wait_until(look, "the plan is finished")
        assert (plan["stage"], len(plan["stages"]), len(plan["moves"])) == (1, 1, 1)
        wait_until(lambda: "cruise_packing_placed_pods_total 1.0" in serve.get("/metrics")[1], "the metrics tell of it")
        assert 'cruise_packing_plans_total{outcome="finished",proof="optimal"} 1.0' in serve.get("/metrics")[1]
        lines = json.loads(serve.get("/api/v1/audit")[1])["items"]
    assert [(line["action"], line["purpose"], line["result"]) for line in lines] == [
        ("evict", "freed-capacity-for-pending-pods", "done")
    ]
