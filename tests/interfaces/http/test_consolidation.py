"""With how few nodes the cluster would do: in the API, on the page of nodes, as metrics."""

import pytest

from cruise.domain.cluster import NodeAutoscaler
from cruise.domain.details import Detail
from cruise.domain.halts import Halt, HaltCode
from cruise.domain.packing import FleetChange, Ordered, Proposal, Sizes
from cruise.domain.policy import Mode
from cruise.interfaces.http.figures import ControllerFigures
from cruise.interfaces.http.metrics import metrics_text
from cruise.interfaces.packing.advice import nodes_lines
from cruise.packer.answer import Status
from cruise.runtime.packing.consolidation_pass import ConsolidationPass
from tests.interfaces.dashboard.test_pages import browser
from tests.interfaces.http.api_scene import NOW, Scene, asking, busy_scene

FLEET = FleetChange(
    12,
    9,
    9,
    emptied=("n3", "n2"),
    kept=(("budget-exhausted: PodDisruptionBudget shop/web", 2),),
    without=(("PodDisruptionBudget shop/web", 8),),
)


def advice(fleet: FleetChange = FLEET, **more) -> ConsolidationPass:
    plan = Proposal(Status.OPTIMAL, Sizes.RIGHTSIZED, (), (), (), fleet=fleet)
    return ConsolidationPass(NOW, plan, seconds=1.25, **more)


@pytest.fixture
async def scene() -> Scene:
    return await busy_scene()


async def test_before_the_first_look_the_api_says_so(scene):
    async with asking(scene) as api:
        answer = await api.get("/consolidation")
    assert answer.status_code == 503
    assert "not looked for yet" in answer.json()["error"]


async def test_the_api_has_the_nodes_what_keeps_them_and_what_would_do_without(scene):
    scene.consolidation = advice()
    async with asking(scene) as api:
        found = (await api.get("/consolidation")).json()
    assert (found["nodesBefore"], found["nodesAfter"], found["nodesBound"]) == (12, 9, 9)
    assert found["emptied"] == ["n3", "n2"]
    assert found["without"] == [{"of": "PodDisruptionBudget shop/web", "nodes": 8}]
    assert found["kept"][0]["nodes"] == 2
    assert found["why"] is None


async def test_no_advice_is_a_reason_and_no_figures(scene):
    scene.consolidation = ConsolidationPass(NOW, why=Halt(HaltCode.NO_STATISTICS))
    async with asking(scene) as api:
        found = (await api.get("/consolidation")).json()
    assert (found["why"], found["nodesAfter"], found["moves"]) == ("no statistics yet", None, None)
    async with browser(scene) as page:
        assert "No advice: no statistics yet." in (await page.get("/nodes")).text


async def test_the_page_of_nodes_says_how_few_would_do(scene):
    async with browser(scene) as page:
        assert "How few would do" not in (await page.get("/nodes")).text
        scene.consolidation = advice(autoscaler=NodeAutoscaler.KARPENTER)
        shown = (await page.get("/nodes")).text
    assert "12 nodes in use; 9 suffice after 0 moves, proved." in shown
    assert "Without PodDisruptionBudget shop/web 8 would do." in shown
    assert "Karpenter removes nodes that are empty." in shown


@pytest.mark.parametrize(
    ("fleet", "said"),
    [
        (FleetChange(3, 3, 3), "3 nodes in use; none can be spared, proved."),
        (FleetChange(3, 3, 2), "3 nodes in use; no way was found to spare one."),
        (FleetChange(3, 2, 1), "3 nodes in use; 2 suffice after 0 moves, at least 1 in any plan."),
        (
            FleetChange(1, 3, 3, added=(Ordered("m6.large", 2),)),
            "1 node in use; pending pods need 2 nodes of type m6.large more, proved.",
        ),
    ],
)
def test_what_is_proved_is_said(fleet, said):
    assert nodes_lines(advice(fleet))[0] == said


def test_metrics_have_the_nodes_only_where_there_is_advice():
    def text(done: ConsolidationPass) -> str:
        return metrics_text("1", NOW, ControllerFigures(Mode.FULL, leader=True, consolidation=done)).decode()

    shown = text(advice())
    assert 'cruise_consolidation_nodes{when="after"} 9.0' in shown
    without = text(ConsolidationPass(NOW, why=Halt(HaltCode.NO_STATISTICS)))
    assert "cruise_consolidation_nodes{" not in without
    assert "cruise_consolidation_timestamp_seconds" in without


async def test_the_page_of_pending_pods_says_which_nodes_would_hold_them(scene):
    added = (Ordered("m5.large", 2, "default"), Ordered("c5.large", 1))
    scene.consolidation = advice(FleetChange(1, 4, 4, added=added, silent=(("arm", Detail.MACHINE_UNSEEN),)))
    async with browser(scene) as page:
        text = (await page.get("/pending")).text
    assert "need 2 nodes of type m5.large from NodePool default and 1 node of type c5.large more, proved." in text
    assert "NodePool arm is left out: no machine that it may order was seen yet, so no size is known." in text
    scene.consolidation = advice()
    async with browser(scene) as page:
        assert "Nodes to add" not in (await page.get("/pending")).text
