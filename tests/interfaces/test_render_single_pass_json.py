"""The JSON of one pass: the plans as in `cruise plan`, and their outcomes."""

import json
from typing import Any

from cruise.domain.actions import ActionResult, EvictPod, Outcome, ReasonCode, SkippedPod, TaintNode
from cruise.domain.policy import EvictionRanking, Mode, Policy
from cruise.domain.reasons import PlanCondition, PlanStatusReason
from cruise.domain.resources import MEBIBYTE, ResourceName
from cruise.interfaces.single_pass import SinglePassResult, render_single_pass_json
from cruise.runtime.node_pass import NodePassResult, run_node_pass
from cruise.runtime.packing.packing_pass import PackingPassResult
from cruise.runtime.ports import PassContext
from cruise.simulation.store import InMemoryStore
from tests.builders import NOW, make_container, make_pod, make_snapshot, make_statistic_for, make_table
from tests.interfaces.packing.packing_plans import PLAN
from tests.shown_cluster import ReadOnlyCluster

POD = make_pod(containers=[make_container(cpu=1000, memory_mib=1024, memory_limit_mib=2048)])
EVICTION = EvictPod(
    "shop", "web-1", "uid", "n1", POD.workload, EvictionRanking.LOW, ResourceName.MEMORY, ReasonCode.NODE_OVER_CAPACITY
)


async def passed(mode: Mode = Mode.OBSERVE) -> NodePassResult:
    store = InMemoryStore()
    await store.write_statistics(make_table(make_statistic_for(POD)))
    return await run_node_pass(PassContext(ReadOnlyCluster(make_snapshot([POD])), store, Policy(mode=mode), NOW))


def document(done: NodePassResult, mode: Mode = Mode.OBSERVE, paused: bool = False) -> dict[str, Any]:
    text = render_single_pass_json(SinglePassResult(done, mode, paused))
    assert text.endswith(b"\n")
    said: dict[str, Any] = json.loads(text)
    return said


async def test_a_resize_has_sizes_before_and_after_and_how_it_ended():
    [outcome] = document(await passed())["outcomes"]
    assert outcome == {
        "action": "resize",
        "node": "n1",
        "namespace": "shop",
        "pod": "web-1",
        "purpose": "rightsized",
        "result": "observed",
        "reason": "mode-forbids",
        "detail": "",
        "cause": "over-requested",
        "containers": [
            {
                "container": "app",
                "before": {
                    "cpuMillicores": 1000,
                    "memoryBytes": 1024 * MEBIBYTE,
                    "cpuLimitMillicores": None,
                    "memoryLimitBytes": 2048 * MEBIBYTE,
                },
                "after": {
                    "cpuMillicores": 200,
                    "memoryBytes": 100 * MEBIBYTE,
                    "cpuLimitMillicores": None,
                    "memoryLimitBytes": 200 * MEBIBYTE,
                },
            }
        ],
    }


async def test_the_plans_are_those_of_cruise_plan():
    said = document(await passed())
    assert (said["at"], said["mode"], said["paused"]) == ("2026-01-01T12:00:00Z", "observe", False)
    [node] = said["nodes"]
    assert set(node) == {"node", "fits", "reason", "available", "evict", "targets", "resize", "hold"}


def test_evictions_taints_and_pending_pods_are_reported():
    pass_ = NodePassResult(
        NOW,
        make_snapshot([POD]),
        [],
        [
            Outcome(NOW, EVICTION, ActionResult.REFUSED, ReasonCode.POD_DISRUPTION_BUDGET, "budget web"),
            Outcome(NOW, TaintNode("n1", ReasonCode.OVERLOADED), ActionResult.DONE, ReasonCode.OVERLOADED),
        ],
        [SkippedPod("shop", "new", ReasonCode.NO_STATISTICS)],
    )
    said = document(pass_, Mode.FULL, paused=True)
    evicted, tainted = said["outcomes"]
    assert (evicted["action"], evicted["pod"], evicted["reason"]) == ("evict", "web-1", "pod-disruption-budget")
    assert (tainted["action"], tainted["node"], "pod" in tainted) == ("taint", "n1", False)
    assert said["pending"] == [{"namespace": "shop", "pod": "new", "reason": "no-statistics"}]
    assert said["paused"]


async def test_the_packing_pass_is_reported_with_its_plan_and_its_actions():
    done = await passed()
    assert document(done)["packing"] is None
    [outcome] = done.outcomes
    result = SinglePassResult(done, Mode.FULL, False, PackingPassResult(NOW, 2, PLAN), [outcome])
    said = json.loads(render_single_pass_json(result))["packing"]
    assert (said["pending"], said["plan"]["id"], len(said["outcomes"])) == (2, PLAN.id, 1)
    unsolved = PackingPassResult(NOW, 2, condition=PlanCondition(PlanStatusReason.API_ERROR, detail="no order"))
    none = json.loads(render_single_pass_json(SinglePassResult(done, Mode.FULL, False, unsolved)))["packing"]
    assert none == {"pending": 2, "reason": "no order", "plan": None, "outcomes": []}
