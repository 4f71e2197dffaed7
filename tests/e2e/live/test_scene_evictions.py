"""Evictions in mode full by the Eviction API, within PodDisruptionBudgets and cruise's own budgets."""

from collections.abc import Sequence

from tests.controlplane.api import Json, wait_until
from tests.controlplane.manifests import budget
from tests.e2e.live.manifests import app
from tests.e2e.live.sizes import requests
from tests.e2e.live.stage import LiveStage
from tests.e2e.live.usage import ContainerUse

# Three of these are more than two cores, of which each then gets a third.
LARGE = ContainerUse(cores=0.9, mebibytes=100)
THIRD = 666


def crowded(stage: LiveStage, suffix: str, *apps: str, **more: str) -> str:
    """A node of two cores whose pods request little and use more than it has."""
    node = stage.node(suffix, cpu="2", labels={"crowd": suffix})
    for name in apps:
        stage.create(of_cpu(stage, name, suffix, **more))
    return node


def spare(stage: LiveStage, suffix: str) -> str:
    """An empty node on which the pods of a crowded one may run as well."""
    return stage.node(f"{suffix}-spare", cpu="2", labels={"crowd": suffix})


def of_cpu(stage: LiveStage, name: str, crowd: str, **annotations: str) -> Json:
    """A workload of which cruise may size the CPU alone; annotations by their name without prefix."""
    told = {f"cruise.io/{key.replace('_', '-')}": value for key, value in annotations.items()}
    told |= {"cruise.io/resources": "cpu"}
    selector = {"scene": stage.namespace, "crowd": crowd}
    return app("Deployment", stage.namespace, name, "300m", "128Mi", annotations=told, nodeSelector=selector)


def evicted(stage: LiveStage) -> list[tuple[str, int]]:
    """The evictions that cruise requested: pods, and the responses' status."""
    asked = [one for one in stage.deeds() if one[1] == "pods/eviction"]
    return [(target.partition("/")[2], code) for _, _, target, code in asked]


def gone(stage: LiveStage, pod: Json) -> bool:
    return pod["metadata"]["uid"] not in {one["metadata"]["uid"] for one in stage.pods()}


def share_the_node(pods: Sequence[Json]) -> bool:
    """Return whether each has its third of two cores at least, and all together no more than these."""
    cpus = [requests(one).cpu for one in pods]
    return len(cpus) == 3 and min(cpus) >= THIRD and sum(cpus) <= 2000


def test_no_pod_is_evicted_without_a_destination_and_then_only_one(stage: LiveStage):
    crowded(stage, "a", "one", "two", "three")
    stage.running(3)
    before = {one["metadata"]["name"]: one for one in stage.pods()}
    stage.measure(dict.fromkeys(("one", "two", "three"), LARGE))
    stage.mark()
    said = stage.once("full")
    [plan] = said["nodes"]
    assert (plan["fits"], plan["reason"], plan["evict"]) == (False, "overcommitted", [])
    assert evicted(stage) == []
    assert share_the_node(stage.pods())
    target = spare(stage, "a")
    stage.once("full")
    [(name, code)] = evicted(stage)
    assert code == 201
    wait_until(lambda: gone(stage, before[name]), "the evicted pod goes")
    [replacement] = [one for one in stage.running(3) if one["metadata"]["name"] not in before]
    assert replacement["spec"]["nodeName"] == target
    [eviction] = [one for one in stage.events() if one.resource == "pods/eviction"]
    assert eviction.request_object["deleteOptions"]["preconditions"]["uid"] == before[name]["metadata"]["uid"]
    for one in set(before) - {name}:
        assert stage.admin.read("pods", stage.namespace, one)["metadata"]["uid"] == before[one]["metadata"]["uid"]
    # Nothing is deleted but by eviction.
    assert {verb for verb, *_ in stage.deeds()} <= {"create", "patch"}


def test_mode_resize_never_evicts(stage: LiveStage):
    crowded(stage, "a", "one", "two", "three")
    stage.running(3)
    stage.measure(dict.fromkeys(("one", "two", "three"), LARGE))
    stage.mark()
    said = stage.once("resize")
    assert evicted(stage) == []
    [plan] = said["nodes"]
    assert (plan["fits"], plan["reason"], plan["evict"]) == (False, "overcommitted", [])
    assert {resource for _, resource, *_ in stage.deeds()} == {"pods/resize"}
    assert share_the_node(stage.pods())


def test_a_pod_whose_budget_allows_none_is_not_even_tried_and_others_share_what_it_leaves(stage: LiveStage):
    # Of the namespace, since a pod's own ranking keeps it only with what it was submitted with.
    never = {"metadata": {"annotations": {"cruise.io/eviction-ranking": "never"}}}
    stage.admin.patch("namespaces", None, stage.namespace, never, kind="merge")
    crowded(stage, "a", "one", "two")
    stage.create(
        of_cpu(stage, "guarded", "a", eviction_ranking="low"),
        budget(stage.namespace, "guarded", "guarded", min_available=1),
    )
    stage.running(3)
    spare(stage, "a")
    budgets = "poddisruptionbudgets.policy"
    wait_until(
        lambda: stage.admin.read(budgets, stage.namespace, "guarded")["status"].get("currentHealthy"), "the budget"
    )
    spec = stage.admin.read(budgets, stage.namespace, "guarded")["spec"]
    stage.measure(dict.fromkeys(("one", "two", "guarded"), LARGE))
    stage.mark()
    stage.once("full")
    assert evicted(stage) == []
    assert share_the_node(stage.pods())
    assert stage.admin.read(budgets, stage.namespace, "guarded")["spec"] == spec
    # With one to spare it may go.
    stage.admin.patch("deployments.apps", stage.namespace, "guarded", {"spec": {"replicas": 2}}, kind="merge")
    stage.running(2, "guarded")
    wait_until(
        lambda: stage.admin.read(budgets, stage.namespace, "guarded")["status"]["disruptionsAllowed"] == 1,
        "the budget allows one",
    )
    stage.mark()
    stage.once("full")
    assert [code for _, code in evicted(stage)] == [201]


def test_a_pod_under_two_budgets_is_unmovable(stage: LiveStage):
    crowded(stage, "a", "one", "two", eviction_ranking="never")
    stage.create(
        of_cpu(stage, "doubly", "a"),
        budget(stage.namespace, "first", "doubly", min_available=0),
        budget(stage.namespace, "second", "doubly", min_available=0),
    )
    stage.running(3)
    stage.measure(dict.fromkeys(("one", "two", "doubly"), LARGE))
    stage.mark()
    said = stage.once("full")
    assert evicted(stage) == []
    [plan] = said["nodes"]
    assert (plan["fits"], plan["reason"]) == (False, "overcommitted")


def test_the_hourly_budget_is_kept_across_restarts(stage: LiveStage):
    limited = {"max_evictions_per_hour": "1"}
    crowded(stage, "a", "one", "two", "three")
    crowded(stage, "b", "four", "five", "six")
    stage.running(6)
    for suffix in ("a", "b"):
        spare(stage, suffix)
    stage.measure(dict.fromkeys(("one", "two", "three", "four", "five", "six"), LARGE))
    stage.mark()
    stage.once("full", **limited)
    assert len(evicted(stage)) == 1
    wait_until(
        lambda: len([one for one in stage.pods() if not one["metadata"].get("deletionTimestamp")]) == 6, "replaced"
    )
    said = stage.once("full", **limited)
    assert len(evicted(stage)) == 1
    assert "hourly-eviction-budget-spent" in str(said)


def test_a_pod_that_runs_to_completion_is_evicted_only_with_ranking_low(stage: LiveStage):
    # Of the namespace, since a pod's own ranking keeps it only with what it was submitted with.
    never = {"metadata": {"annotations": {"cruise.io/eviction-ranking": "never"}}}
    stage.admin.patch("namespaces", None, stage.namespace, never, kind="merge")
    crowded(stage, "a", "one", "two")
    # An operator's object owns the pod; the API server takes any.
    owner = stage.admin.create(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": stage.namespace, "name": "run"}}
    )
    work = of_cpu(stage, "work", "a", eviction_ranking="medium")["spec"]["template"]
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "run", "uid": owner["metadata"]["uid"]}
    work["metadata"] |= {
        "namespace": stage.namespace,
        "name": "work",
        "ownerReferences": [reference | {"controller": True}],
    }
    work["spec"]["restartPolicy"] = "Never"
    stage.create({"apiVersion": "v1", "kind": "Pod", **work})
    stage.running(3)
    spare(stage, "a")
    stage.measure(dict.fromkeys(("one", "two", "work"), LARGE))
    stage.mark()
    said = stage.once("full")
    assert evicted(stage) == []
    assert {plan["node"]: plan["reason"] for plan in said["nodes"]}[f"{stage.namespace}-a"] == "overcommitted"
    # It is sized in place anyway.
    assert share_the_node(stage.pods())
    low = {"metadata": {"annotations": {"cruise.io/eviction-ranking": "low"}}}
    stage.admin.patch("pods", stage.namespace, "work", low, kind="merge")
    stage.mark()
    stage.once("full")
    assert evicted(stage) == [("work", 201)]
