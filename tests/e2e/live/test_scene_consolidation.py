"""Nodes drained by serve on a real control plane: within budgets, while pods are created, each pod moved once."""

import json
from collections import Counter

import pytest

from tests.controlplane.api import Json, wait_until
from tests.controlplane.manifests import budget
from tests.e2e.live.stage import LiveStage
from tests.e2e.live.test_scene_packing import STEADY, here, living, nodes_of

pytestmark = pytest.mark.usefixtures("warm_solver")

ACTING = {
    "consolidate": "act",
    "consolidation_interval": "1s",
    "consolidation_cooldown": "3s",
    "pass_interval": "6s",
    "packing_time_limit": "1s",
    "max_evictions_per_hour": "50",
}


@pytest.mark.long
def test_a_node_is_drained_under_a_budget_while_pods_are_created_and_none_moves_twice(stage: LiveStage):
    for name in ("a", "b", "c"):
        stage.node(name, cpu="4")
    stage.create(here(stage, "web", "600m", replicas=3), budget(stage.namespace, "web", "web", min_available=2))
    stage.running(3)
    assert len(set(nodes_of(stage, "web"))) == 3
    # No usage is known here, so no pod is sized.
    stage.measure({"nobody": STEADY})
    stage.mark()
    with stage.reviewing("full"), stage.serving("full", **ACTING) as serve:
        wait_until(lambda: evictions(stage), "the first pod moves")
        stage.create(here(stage, "late", "200m"))

        def look() -> Json | None:
            status, body = serve.get("/api/v1/consolidation")
            found: Json = json.loads(body)
            done = status == 200 and found["nodesAfter"] == found["nodesBefore"] == found["nodesBound"]
            return found if done else None

        found = wait_until(look, "no node can be drained any more")
        assert "none can be drained, proved" in found["message"]
        assert len(found["empty"]) >= 1
        assert 'cruise_consolidation_nodes{when="now"}' in serve.get("/metrics")[1]
    assert len(living(stage, "web")) == 3
    assert len({node for name in ("web", "late") for node in nodes_of(stage, name)}) == 1
    assert None not in nodes_of(stage, "web")
    moved = Counter(evictions(stage))
    assert set(moved.values()) == {1}
    # No node is cordoned, tainted or deleted, and no pod is bound.
    touched = {(verb, what) for verb, what, _, _ in stage.deeds() if what.startswith(("pods", "nodes"))}
    assert touched == {("create", "pods/eviction")}


def evictions(stage: LiveStage) -> list[str]:
    """The uids of the pods that cruise has evicted."""
    return [
        one.request_object["deleteOptions"]["preconditions"]["uid"]
        for one in stage.events()
        if one.resource == "pods/eviction" and one.code == 201
    ]
