"""The document of one pass: `cruise plan`'s plans, and what became of them."""

import json
from typing import Any

from cruise.domain.actions import EvictPod, Hold, Outcome, Reason, TaintNode, Verdict
from cruise.domain.halts import Halt, HaltCode
from cruise.domain.policy import EvictionRanking, Mode, Policy
from cruise.domain.resources import MEBIBYTE, ResourceName
from cruise.interfaces.once.document import once_json
from cruise.runtime.packing.packing_pass import PackingPass
from cruise.runtime.sizing.node_pass import NodePass, node_pass
from cruise.simulation.store.store import MemoryStore
from tests.builders import NOW, make_container, make_pod, make_snapshot, make_statistic_for, make_table
from tests.interfaces.packing.packing_plans import PLAN
from tests.shown_cluster import ShownCluster

POD = make_pod(containers=[make_container(cpu=1000, memory_mib=1024, memory_limit_mib=2048)])
EVICTION = EvictPod(
    "shop", "web-1", "uid", "n1", POD.workload, EvictionRanking.LOW, ResourceName.MEMORY, Reason.DOES_NOT_FIT
)


async def passed(mode: Mode = Mode.OBSERVE) -> NodePass:
    store = MemoryStore()
    await store.write_statistics(make_table(make_statistic_for(POD)))
    return await node_pass(ShownCluster(make_snapshot([POD])), store, Policy(mode=mode), NOW)


def document(done: NodePass, mode: Mode = Mode.OBSERVE, paused: bool = False) -> dict[str, Any]:
    text = once_json(done, mode, paused)
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
        "why": "rightsized",
        "verdict": "observed",
        "reason": "mode",
        "detail": "",
        "cause": "above-band",
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


def test_evictions_taints_and_waiting_pods_are_told():
    pass_ = NodePass(
        NOW,
        make_snapshot([POD]),
        [],
        [
            Outcome(NOW, EVICTION, Verdict.REFUSED, Reason.DISRUPTION_BUDGET, "budget web"),
            Outcome(NOW, TaintNode("n1", Reason.OVERLOADED), Verdict.DONE, Reason.OVERLOADED),
        ],
        [Hold("shop", "new", Reason.NO_STATISTICS)],
    )
    said = document(pass_, Mode.FULL, paused=True)
    evicted, tainted = said["outcomes"]
    assert (evicted["action"], evicted["pod"], evicted["reason"]) == ("evict", "web-1", "disruption-budget")
    assert (tainted["action"], tainted["node"], "pod" in tainted) == ("taint", "n1", False)
    assert said["waiting"] == [{"namespace": "shop", "pod": "new", "reason": "no-statistics"}]
    assert said["paused"]


async def test_the_packing_pass_is_told_with_its_plan_and_what_was_done():
    done = await passed()
    assert document(done)["packing"] is None
    [outcome] = done.outcomes
    said = json.loads(once_json(done, Mode.FULL, False, PackingPass(NOW, 2, PLAN), [outcome]))["packing"]
    assert (said["waiting"], said["plan"]["id"], len(said["outcomes"])) == (2, PLAN.id, 1)
    none = json.loads(
        once_json(done, Mode.FULL, False, PackingPass(NOW, 2, why=Halt(HaltCode.STATED, detail="no order")))
    )["packing"]
    assert none == {"waiting": 2, "why": "no order", "plan": None, "outcomes": []}
