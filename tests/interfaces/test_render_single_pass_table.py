"""The table of one pass."""

from dataclasses import replace
from functools import partial

import pytest

from cruise.domain.actions import ActionResult, Outcome, ReasonCode, ResizePod
from cruise.domain.policy import Mode, Policy
from cruise.domain.reasons import PlanCondition, PlanStatusReason
from cruise.domain.resources import MEBIBYTE, NOTHING_STATED, StatedResources
from cruise.domain.users import NotificationCounts
from cruise.interfaces.single_pass import SinglePassResult, render_single_pass_table
from cruise.runtime.node_pass import NodePassResult, run_node_pass
from cruise.runtime.packing.packing_pass import PackingPassResult
from cruise.runtime.ports import PassContext
from cruise.simulation.store import InMemoryStore
from tests.builders import NOW, make_container, make_pod, make_snapshot, make_statistic_for, make_table
from tests.interfaces.packing.packing_plans import PLAN
from tests.interfaces.test_render_single_pass_json import EVICTION
from tests.shown import render_to_text
from tests.shown_cluster import ReadOnlyCluster


async def passed(names: list[str]) -> NodePassResult:
    pods = [make_pod(name, containers=[make_container(cpu=1000, memory_mib=1024)]) for name in names]
    bare = make_pod("bare", workload=None)
    store = InMemoryStore()
    await store.write_statistics(make_table(*(make_statistic_for(pod) for pod in pods)))
    return await run_node_pass(
        PassContext(ReadOnlyCluster(make_snapshot([*pods, bare])), store, Policy(mode=Mode.OBSERVE), NOW)
    )


def table(done: NodePassResult, mode: Mode = Mode.OBSERVE, paused: bool = False, width: int = 140) -> str:
    return render(SinglePassResult(done, mode, paused), width)


def render(result: SinglePassResult, width: int = 140) -> str:
    return render_to_text(partial(render_single_pass_table, result), width)


async def test_each_container_shows_before_after_verdict_and_reason():
    text = table(await passed(["web-1"]))
    [row] = [line for line in text.splitlines() if "web-1" in line]
    assert "n1" in row
    assert "1,000m → 200m" in row
    assert "1,024Mi → 100Mi" in row
    assert "observed" in row
    assert "sized by its usage" in row


async def test_a_resize_of_the_limit_alone_shows_the_limit():
    done = await passed(["web-1"])
    [outcome] = done.outcomes
    assert isinstance(outcome.action, ResizePod)
    [target] = outcome.action.containers
    target = replace(target, requests=NOTHING_STATED, limits=StatedResources(None, 1200 * MEBIBYTE))
    alone = replace(outcome, action=replace(outcome.action, containers=(target,)))
    text = table(NodePassResult(done.at, done.snapshot, done.plans, [alone]))
    [row] = [line for line in text.splitlines() if "web-1" in line]
    assert "limit 1,200Mi" in row
    assert "→" not in row


async def test_skipped_pods_are_counted_by_reason():
    text = table(await passed(["web-1"]))
    [row] = [line for line in text.splitlines() if line.startswith("no-controller")]
    assert row.split()[1] == "1"
    assert "it has no controller" in row


async def test_the_headline_says_why_nothing_was_written():
    done = await passed(["web-1"])
    assert "1 node, 0 overcommitted; mode observe; 1 action: 1 observed. Nothing was written: mode" in table(done)
    assert "Nothing was written: cruise is paused." in table(done, Mode.FULL, paused=True)
    assert "Nothing was written" not in table(done, Mode.FULL)


async def test_a_refusal_says_who_refused_and_why():
    done = await passed([])
    refused = Outcome(NOW, EVICTION, ActionResult.REFUSED, ReasonCode.POD_DISRUPTION_BUDGET, "web: 0 allowed")
    text = table(NodePassResult(NOW, done.snapshot, done.plans, [refused]), Mode.FULL)
    assert "refused" in text
    assert "its PodDisruptionBudget allows no eviction now (web: 0 allowed)" in " ".join(text.split())


@pytest.mark.parametrize("width", [80, 140])
async def test_lines_keep_within_the_terminal(width):
    done = await passed([f"web-7d9f8b6c5d-{index:05d}" for index in range(5)])
    assert max(map(len, table(done, width=width).splitlines())) <= width


async def test_a_long_list_is_cut_and_says_so():
    done = await passed([f"web-{index:03d}" for index in range(4)])
    text = table(NodePassResult(done.at, done.snapshot, done.plans, list(done.outcomes) * 100))
    assert "more actions: --format json has all." in text


async def test_the_packing_pass_reports_placements_and_proofs():
    done = await passed(["web-1"])
    text = render(SinglePassResult(done, Mode.FULL, False, PackingPassResult(NOW, 2, PLAN)))
    assert "1 placed, 1 moved, 1 preempted, 1 resized; feasible in 0.25 s: better than now" in text
    assert "at most 1 more pod of priority 5 could be placed" in " ".join(text.split())
    assert "The plan is in-progress (1 of 2 stages done): waits" in text
    [row] = [line for line in text.splitlines() if line.startswith("shop/web-1 ")][-1:]
    assert row.split() == ["shop/web-1", "n1", "n2"]
    assert "pending: the cluster has no nodes" in text
    assert "Packing: 2 pending pods; 1 placed" in text
    unsolved = PackingPassResult(NOW, 1, condition=PlanCondition(PlanStatusReason.API_ERROR, detail="no order"))
    none = render(SinglePassResult(done, Mode.FULL, False, unsolved))
    assert "Packing: 1 pending pod; no order." in none


async def test_what_others_were_shown_is_a_line_only_where_there_was_something():
    done = await passed(["web-1"])

    def text(told: NotificationCounts) -> str:
        return render(SinglePassResult(done, Mode.RESIZE, False, notifications=told), 100)

    assert "Published: 1 VerticalPodAutoscaler written; 2 notifications sent, 1 dropped (see the log)." in text(
        NotificationCounts(1, 2, 1)
    )
    assert "Shown to others" not in text(NotificationCounts())
