"""The minimum number of nodes in the API, on the nodes page and in metrics."""

import pytest

from cruise.domain.autoscalers import NodeAutoscalerKind
from cruise.domain.packing_plan import AddedNodes, NodeCountChange, PackingProposal, PackingSizes
from cruise.domain.policy import Mode
from cruise.domain.reasons import PlanCondition, PlanStatusReason, ReasonDetailCode
from cruise.interfaces.http.figures import ControllerFigures
from cruise.interfaces.http.metrics import render_metrics
from cruise.interfaces.packing.nodes import describe_consolidation
from cruise.packer.answer import PackingStatus
from cruise.runtime.packing.consolidation_pass import ConsolidationPassResult
from tests.interfaces.dashboard.test_pages import browser
from tests.interfaces.http.api_scene import NOW, ApiScene, create_api_client, make_busy_scene

CHANGE = NodeCountChange(
    12,
    9,
    9,
    drained=("n3", "n2"),
    kept_by_reason=(("budget-exhausted: PodDisruptionBudget shop/web", 2),),
    nodes_after_by_lifted_constraint=(("PodDisruptionBudget shop/web", 8),),
)


def advice(change: NodeCountChange = CHANGE, **more) -> ConsolidationPassResult:
    plan = PackingProposal(PackingStatus.OPTIMAL, PackingSizes.RIGHTSIZED, (), (), (), node_count_change=change)
    return ConsolidationPassResult(NOW, plan, seconds=1.25, **more)


@pytest.fixture
async def scene() -> ApiScene:
    return await make_busy_scene()


async def test_before_the_first_look_the_api_says_so(scene):
    async with create_api_client(scene) as api:
        answer = await api.get("/consolidation")
    assert answer.status_code == 503
    assert "has not run yet" in answer.json()["error"]


async def test_the_api_has_the_nodes_what_keeps_them_and_what_would_do_without(scene):
    scene.consolidation = advice()
    async with create_api_client(scene) as api:
        found = (await api.get("/consolidation")).json()
    assert (found["nodesBefore"], found["nodesAfter"], found["nodesBound"]) == (12, 9, 9)
    assert found["drained"] == ["n3", "n2"]
    assert found["nodesAfterByLiftedConstraint"] == [{"reason": "PodDisruptionBudget shop/web", "nodes": 8}]
    assert found["keptByReason"][0]["nodes"] == 2
    assert found["reason"] is None


async def test_no_advice_is_a_reason_and_no_figures(scene):
    scene.consolidation = ConsolidationPassResult(NOW, condition=PlanCondition(PlanStatusReason.NO_STATISTICS))
    async with create_api_client(scene) as api:
        found = (await api.get("/consolidation")).json()
    assert (found["reason"], found["nodesAfter"], found["moves"]) == ("no statistics yet", None, None)
    async with browser(scene) as page:
        assert "No advice: no statistics yet." in (await page.get("/nodes")).text


async def test_the_page_of_nodes_says_how_few_would_do(scene):
    async with browser(scene) as page:
        assert "How few would do" not in (await page.get("/nodes")).text
        scene.consolidation = advice(autoscaler=NodeAutoscalerKind.KARPENTER)
        shown = (await page.get("/nodes")).text
    assert "12 nodes in use; 9 suffice after 0 moves, proved." in shown
    assert "Without PodDisruptionBudget shop/web 8 would be enough." in shown
    assert "Karpenter removes empty nodes." in shown


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (NodeCountChange(3, 3, 3), "3 nodes in use; none can be drained, proved."),
        (NodeCountChange(3, 3, 2), "3 nodes in use; no plan was found that drains one."),
        (NodeCountChange(3, 2, 1), "3 nodes in use; 2 suffice after 0 moves, at least 1 in any plan."),
        (
            NodeCountChange(1, 3, 3, added=(AddedNodes("m6.large", 2),)),
            "1 node in use; pending pods need 2 nodes of type m6.large more, proved.",
        ),
    ],
)
def test_what_is_proved_is_said(change, said):
    assert describe_consolidation(advice(change))[0] == said


def test_metrics_have_the_nodes_only_where_there_is_advice():
    def text(done: ConsolidationPassResult) -> str:
        return render_metrics("1", NOW, ControllerFigures(Mode.FULL, leader=True, consolidation=done)).decode()

    shown = text(advice())
    assert 'cruise_consolidation_nodes{when="after"} 9.0' in shown
    without = text(ConsolidationPassResult(NOW, condition=PlanCondition(PlanStatusReason.NO_STATISTICS)))
    assert "cruise_consolidation_nodes{" not in without
    assert "cruise_consolidation_timestamp_seconds" in without


async def test_the_page_of_pending_pods_says_which_nodes_would_hold_them(scene):
    added = (AddedNodes("m5.large", 2, "default"), AddedNodes("c5.large", 1))
    scene.consolidation = advice(
        NodeCountChange(1, 4, 4, added=added, pools_without_types=(("arm", ReasonDetailCode.INSTANCE_TYPE_UNKNOWN),))
    )
    async with browser(scene) as page:
        text = (await page.get("/pending")).text
    assert "need 2 nodes of type m5.large from NodePool default and 1 node of type c5.large more, proved." in text
    assert "NodePool arm is ignored: no node of its instance types was seen yet, so their sizes are unknown." in text
    scene.consolidation = advice()
    async with browser(scene) as page:
        assert "Nodes to add" not in (await page.get("/pending")).text
