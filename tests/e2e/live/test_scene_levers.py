"""Evictions that must not be sent: for a tenant's annotations, and for a plan that budgets would stop."""

from tests.controlplane.api import Json
from tests.e2e.live.manifests import app
from tests.e2e.live.sizes import ObservedSize, requests
from tests.e2e.live.stage import LiveStage
from tests.e2e.live.usage import ContainerUse

LEVERS = {"cruise.io/eviction-ranking": "never", "cruise.io/memory-min": "9Gi"}
STAYS = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
NEIGHBOURS = tuple(f"neighbour-{number}" for number in range(5))


def evictions(stage: LiveStage) -> list[int]:
    """The responses to all evictions that cruise requested."""
    return [code for _, resource, _, code in stage.deeds() if resource == "pods/eviction"]


def anywhere(stage: LiveStage, name: str, cpu: str, memory: str, **annotations: str) -> Json:
    """A workload that may run on any of the scene's nodes."""
    selector = {"scene": stage.namespace}
    return app("Deployment", stage.namespace, name, cpu, memory, annotations=annotations, nodeSelector=selector)


def test_a_tenants_annotations_cost_no_neighbour_an_eviction_or_a_resize_below_its_base(stage: LiveStage):
    stage.node("a", cpu="8", memory="16Gi")
    stage.create(anywhere(stage, "tenant", "100m", "64Mi", **LEVERS))
    stage.create(*(anywhere(stage, name, "100m", "3Gi") for name in NEIGHBOURS))
    stage.running(6)
    # There is somewhere to go, so nothing but the rule keeps them.
    stage.node("b", cpu="8", memory="16Gi")
    stage.measure(
        dict.fromkeys(NEIGHBOURS, ContainerUse(cores=0.1, mebibytes=3000))
        | {"tenant": ContainerUse(cores=0.1, mebibytes=48)}
    )
    stage.mark()
    for _ in range(2):
        stage.once("full")
    assert evictions(stage) == []
    sizes = {one["metadata"]["labels"]["app"]: requests(one).memory for one in stage.pods()}
    assert all(sizes[name] >= 3000 for name in NEIGHBOURS)
    # What is free is the tenant's, and no more.
    assert 64 < sizes["tenant"] <= 16 * 1024 - 5 * 3000
    # The first design had pods go for it.
    stage.once("full", rules="seeds")
    assert evictions(stage) != []


def test_a_plan_of_two_moves_from_one_node_is_not_begun_under_a_budget_of_one(stage: LiveStage, warm_solver: bool):
    assert warm_solver
    first = stage.node("a")
    stage.create(*(anywhere(stage, name, "1500m", "64Mi") for name in ("one", "two")))
    stage.running(2)
    for name in ("b", "c"):
        node = stage.node(name)
        stage.create(app("Deployment", stage.namespace, f"on-{name}", "2500m", "64Mi", node=node, annotations=STAYS))
    stage.running(4)
    stage.create(anywhere(stage, "big", "4", "64Mi"))
    stage.pending("big")
    stage.measure({"nobody": ContainerUse(cores=0.1, mebibytes=10)})
    stage.mark()
    with stage.reviewing("full"):
        said = stage.once("full")["packing"]
        assert evictions(stage) == []
        assert (said["plan"]["moves"], said["plan"]["phase"]) == ([], "advisory")
        [left] = said["plan"]["unplaced"]
        assert not left["impossible"]
        # With a budget that carries it out it is begun, and finished.
        plan = stage.once("full", max_evictions_per_node="2")["packing"]["plan"]
    assert (plan["phase"], len(plan["moves"])) == ("finished", 2)
    assert evictions(stage) == [201, 201]
    [big] = [one for one in stage.pods("big") if not one["metadata"].get("deletionTimestamp")]
    assert big["spec"]["nodeName"] == first
    assert requests(big) == ObservedSize(4000, 64)
