"""Hand-made plans, executed on simulated clusters."""

from dataclasses import replace
from datetime import timedelta

import pytest

from cruise.domain.actions import ActionResult, EvictPod, ReasonCode, ResizePod
from cruise.domain.annotations import PLACEMENT_HINT
from cruise.domain.packing_plan import PlanPhase, PlanStage
from cruise.domain.policy import Mode
from cruise.domain.reasons import PlanCondition, PlanStatusReason
from cruise.domain.scheduling import LabelSelector
from cruise.errors import ThrottledError
from cruise.interfaces.packing.descriptions import describe_plan_condition
from cruise.runtime.writing.writer import ClusterWriter
from cruise.simulation.cluster.controllers import DisruptionBudgetSpec
from tests.runtime.packing.packing_scenes import (
    FULL,
    PackingSimulation,
    make_planned_move,
    make_resized_pod,
    preemption,
    shrink,
)
from tests.simulation.faults import ClusterFaults, FaultyCluster
from tests.simulation.scenes import START, amounts, evict, node, pods, run
from tests.simulation.scenes import resize as make_resize


async def moving(**fields) -> tuple[PackingSimulation, PlanStage]:
    """Capacity for `big` if `web` moves to n2: no other pod has to move."""
    theatre = PackingSimulation(
        [
            make_resized_pod("web", 1500, priority=1),
            make_resized_pod("db", 1500, priority=1),
            make_resized_pod("big", 3000),
        ],
        [node("n1"), node("n2")],
        **fields,
    )
    run(theatre.world, 20)
    web, big = await theatre.only("web"), await theatre.only("big")
    other = "n2" if web.node == "n1" else "n1"
    return theatre, PlanStage(
        (), (make_planned_move(web, other),), (make_planned_move(web, other), make_planned_move(big, web.node))
    )


async def test_a_pod_moves_to_the_hinted_node_and_the_pending_pod_takes_its_place():
    theatre, stage = await moving()
    before = await theatre.only("web")
    plan = await theatre.to_the_end(await theatre.begin(stage))
    assert (plan.phase, plan.condition) == (PlanPhase.FINISHED, None)
    web, big = await theatre.only("web"), await theatre.only("big")
    assert (web.node, big.node) == (stage.arrivals[0].target, before.node)
    assert web.annotations[PLACEMENT_HINT] == f"{before.uid} {web.node}"
    assert await theatre.store.read_packing_plan() == plan
    assert list(await theatre.store.read_placement_hints()) == []
    [line] = await theatre.store.read_outcomes(START)
    assert isinstance(line.action, EvictPod)
    assert (line.result, line.action.reason, line.action.uid) == (
        ActionResult.DONE,
        ReasonCode.FREED_CAPACITY_FOR_PENDING_PODS,
        before.uid,
    )


@pytest.mark.parametrize("shared", ["the hour", "the workload"])
async def test_a_node_pass_leaves_a_plan_the_evictions_that_it_counts_on(shared):
    of_the_hour, replicas = (2, 2) if shared == "the hour" else (20, 3)
    policy = replace(FULL, max_evictions_per_workload=2, max_evictions_per_hour=of_the_hour)
    apps = [make_resized_pod("web", 1500, replicas=replicas), make_resized_pod("db", 1500)]
    theatre = PackingSimulation(apps, [node(f"n{number}") for number in range(6)], policy)
    run(theatre.world, 20)
    web = [pod for pod in await pods(theatre.world, "web") if not pod.terminating]
    empty = sorted({f"n{number}" for number in range(6)} - set((await theatre.where()).values()))
    moves = [make_planned_move(pod, target) for pod, target in zip(web, empty, strict=False)][:2]
    stranger = web[2] if shared == "the workload" else await theatre.only("db")
    plan = await theatre.step(await theatre.begin(*(PlanStage((), (one,), (one,)) for one in moves)))
    asked = replace(evict(stranger), reason=ReasonCode.NODE_OVER_CAPACITY, node="n9")
    writer = ClusterWriter(
        theatre.world, theatre.store, policy, audit=theatre.audit, growths=theatre.grows, exclusions=theatre.exclusions
    )
    [held] = await writer.apply_plan([asked], await theatre.world.snapshot(), theatre.world.now)
    assert (held.result, held.reason) == (ActionResult.SKIPPED, ReasonCode.PACKING_PLAN_ACTIVE)
    plan = await theatre.to_the_end(plan)
    assert (plan.phase, plan.condition) == (PlanPhase.FINISHED, None)


async def test_no_pod_is_evicted_before_the_webhook_knows_of_it():
    theatre, stage = await moving()
    plan = await theatre.begin(stage)
    plan = await theatre.step(plan)
    assert [one.replaces for one in await theatre.store.read_placement_hints()] == [stage.evictions[0].uid]
    assert theatre.world.counts.evictions == 0
    for _ in range(2):
        plan = await theatre.step(plan)
    assert theatre.world.counts.evictions == 0
    await theatre.step(plan)
    assert theatre.world.counts.evictions == 1


async def test_without_a_webhook_the_replacement_pod_is_recognized_by_its_owner():
    theatre, stage = await moving()
    theatre.steers = False
    plan = await theatre.to_the_end(await theatre.begin(stage))
    assert plan.phase is PlanPhase.FINISHED
    assert (await theatre.only("big")).node is not None


async def test_a_rescue_without_evictions_waits_until_the_shrink_is_actual():
    theatre = PackingSimulation(
        [make_resized_pod("web", 3000, priority=1), make_resized_pod("late", 2000)],
        [node("n1")],
        replace(FULL, mode=Mode.RESIZE),
    )
    run(theatre.world, 20)
    web, late = await theatre.only("web"), await theatre.only("late")
    plan = await theatre.begin(PlanStage((shrink(web, 1000),), (), (make_planned_move(late, "n1"),)))
    plan = await theatre.step(plan)
    assert (await theatre.only("late")).node is None
    plan = await theatre.to_the_end(plan)
    assert plan.phase is PlanPhase.FINISHED
    assert (await theatre.only("late")).node == "n1"
    assert theatre.world.counts.evictions == 0
    # One resize, however often it was looked whether it is actual.
    assert theatre.world.counts.resizes_requested == 1


async def test_a_pending_pod_is_shrunk_to_what_it_arrives_with():
    theatre = PackingSimulation(
        [make_resized_pod("web", 2000, priority=1), make_resized_pod("late", 4000)], [node("n1")]
    )
    run(theatre.world, 20)
    late = await theatre.only("late")
    arrival = make_planned_move(late, "n1", shrink(late, 1500).containers)
    plan = await theatre.to_the_end(await theatre.begin(PlanStage((), (), (arrival,))))
    assert plan.phase is PlanPhase.FINISHED
    bound = await theatre.only("late")
    assert (bound.uid, bound.node, bound.containers[0].requests.cpu_millicores) == (late.uid, "n1", 1500)


async def test_a_moved_pod_is_recreated_with_the_planned_sizes():
    theatre, stage = await moving()
    web = await theatre.only("web")
    arrival = replace(stage.arrivals[0], containers=shrink(web, 700).containers)
    plan = await theatre.begin(replace(stage, evictions=(arrival,), arrivals=(arrival, stage.arrivals[1])))
    plan = await theatre.to_the_end(plan)
    assert (await theatre.only("web")).containers[0].requests.cpu_millicores == 700


async def test_a_preempted_pod_is_pending_until_there_is_capacity():
    theatre = PackingSimulation(
        [make_resized_pod("low", 3000), make_resized_pod("high", 5000, priority=10)], [node("n1")]
    )
    run(theatre.world, 20)
    low, high = await theatre.only("low"), await theatre.only("high")
    arrival = make_planned_move(high, "n1", shrink(high, 3000).containers)
    plan = await theatre.to_the_end(await theatre.begin(PlanStage((), (preemption(low),), (arrival,))))
    assert plan.phase is PlanPhase.FINISHED
    assert await theatre.where() == {"high": "n1", "low": None}


async def test_a_refused_eviction_drops_the_plan():
    theatre, stage = await moving()
    faults = ClusterFaults(
        refuse=lambda action: ThrottledError("no", cause="DisruptionBudget") if isinstance(action, EvictPod) else None
    )
    theatre.port = FaultyCluster(theatre.world, faults)
    plan = await theatre.to_the_end(await theatre.begin(stage))
    assert plan.phase is PlanPhase.DROPPED
    assert "rejected" in describe_plan_condition(plan)
    assert theatre.world.counts.evictions == 0
    assert list(await theatre.store.read_placement_hints()) == []


async def test_a_budget_that_allows_nothing_now_is_waited_for():
    rule = DisruptionBudgetSpec("shop", "web", LabelSelector(), min_available=3)
    theatre, stage = await moving(budgets=(rule,))
    plan = await theatre.begin(stage)
    for _ in range(8):
        plan = await theatre.step(plan)
    assert plan.phase is PlanPhase.IN_PROGRESS
    assert "PodDisruptionBudget" in describe_plan_condition(plan)
    assert (theatre.world.counts.evictions, theatre.world.counts.evictions_refused) == (0, 0)


@pytest.mark.parametrize("change", ["pod", "node", "grown", "late"])
async def test_what_contradicts_a_plan_drops_it_whole(change):
    theatre, stage = await moving()
    plan = await theatre.begin(stage)
    match change:
        case "pod":
            stage = replace(stage, evictions=(replace(stage.evictions[0], uid="other"),))
            plan = await theatre.begin(stage)
        case "node":
            web = replace(stage.arrivals[0], target="n9")
            plan = await theatre.begin(PlanStage((), (web,), (web, stage.arrivals[1])))
        case "grown":
            db = await theatre.only("db")
            await theatre.world.perform(make_resize(db, amounts(3900, 256)))
            run(theatre.world, 20)
        case "late":
            plan = replace(plan, at=plan.at - FULL.pass_interval)
    plan = await theatre.to_the_end(plan, most_seconds=10)
    assert plan.phase is PlanPhase.DROPPED
    assert plan.condition is not None and plan.condition.code is not PlanStatusReason.FAILED
    assert theatre.world.counts.evictions == 0


async def test_a_pause_suspends_a_plan_which_then_continues():
    theatre, stage = await moving()
    plan = await theatre.begin(stage)
    await theatre.store.set_paused(True)
    for _ in range(6):
        plan = await theatre.step(plan)
    assert (plan.phase, theatre.world.counts.evictions) == (PlanPhase.IN_PROGRESS, 0)
    assert "paused" in describe_plan_condition(plan)
    await theatre.store.set_paused(False)
    assert (await theatre.to_the_end(plan)).phase is PlanPhase.FINISHED


async def test_mode_resize_carries_out_nothing_that_evicts():
    theatre, stage = await moving()
    theatre.policy = replace(FULL, mode=Mode.RESIZE)
    plan = await theatre.begin(stage)
    assert plan.phase is PlanPhase.ADVISORY
    forced = replace(plan, phase=PlanPhase.IN_PROGRESS)
    assert (await theatre.step(forced)).phase is PlanPhase.DROPPED
    assert theatre.world.counts.evictions == 0


async def test_the_budget_of_a_node_holds_for_the_whole_plan():
    theatre = PackingSimulation(
        [
            make_resized_pod("web", 1000, priority=1),
            make_resized_pod("api", 1000, priority=1),
            make_resized_pod("big", 5000),
        ],
        [node("n1", cpu=5000), node("n2", cpu=2000)],
        replace(FULL, max_evictions_per_node=1),
    )
    run(theatre.world, 20)
    web, api, big = await theatre.only("web"), await theatre.only("api"), await theatre.only("big")
    assert (web.node, api.node) == ("n1", "n1")
    leaves = (make_planned_move(web, "n2"), make_planned_move(api, "n2"))
    plan = await theatre.begin(PlanStage((), leaves, (*leaves, make_planned_move(big, "n1"))))
    for _ in range(30):
        plan = await theatre.step(plan)
    assert plan.phase is PlanPhase.IN_PROGRESS
    assert "node-eviction-budget-spent" in describe_plan_condition(plan)
    assert len(await theatre.store.read_evictions_since(START)) == 1


async def test_after_a_restart_an_unfinished_plan_is_taken_up_at_every_moment():
    """Another process finishes the plan, whatever part of it was stored last."""
    reached = 0
    for moment in range(1, 14):
        theatre, stage = await moving()
        plan = await theatre.begin(stage)
        for _ in range(moment):
            if plan.phase is PlanPhase.IN_PROGRESS:
                plan = await theatre.step(plan)
        reached += theatre.world.counts.evictions
        theatre.restart()
        found = await theatre.carrying().start()
        if found is None:
            continue
        assert (await theatre.to_the_end(found)).phase is PlanPhase.FINISHED
        assert theatre.world.counts.evictions == 1
        assert (await theatre.only("big")).node == stage.arrivals[1].target
    assert reached > 0


async def test_an_eviction_that_was_not_written_down_is_not_done_twice():
    """The process ends between the API server's answer and the store."""
    theatre, stage = await moving()
    plan = await theatre.begin(stage)
    while theatre.world.counts.evictions == 0:
        known = await theatre.store.read_packing_plan()
        plan = await theatre.step(plan)
    assert known is not None
    assert known.evicted == ()
    run(theatre.world, 10)
    assert (await theatre.to_the_end(known)).phase is PlanPhase.FINISHED
    assert theatre.world.counts.evictions == 1


async def test_a_node_pass_does_not_use_capacity_reserved_for_a_plan():
    theatre, stage = await moving()
    plan = await theatre.begin(stage)
    await theatre.step(plan)
    db = await theatre.only("db")
    of_node_passes = ClusterWriter(theatre.world, theatre.store, FULL, exclusions=theatre.exclusions)
    shrink_db = make_resize(db, amounts(1400, 256))
    [held] = await of_node_passes.apply_plan([shrink_db], await theatre.world.snapshot(), theatre.world.now)
    assert (held.result, held.reason) == (ActionResult.SKIPPED, ReasonCode.PACKING_PLAN_ACTIVE)
    assert isinstance(held.action, ResizePod)


async def test_a_pending_pod_that_may_be_misplaced_is_recreated_with_a_placement_hint():
    theatre = PackingSimulation(
        [
            make_resized_pod("web", 3000, priority=2),
            make_resized_pod("api", 1500, priority=1),
            make_resized_pod("small", 2600),
            make_resized_pod("large", 3500),
        ],
        [node("n1"), node("n2")],
    )
    run(theatre.world, 20)
    web, api = await theatre.only("web"), await theatre.only("api")
    small, large = await theatre.only("small"), await theatre.only("large")
    assert (small.node, large.node) == (None, None)
    # With both sized down, small belongs where api stays, and large where web was; small would fit there as well.
    first = PlanStage(
        (shrink(web, 400), shrink(api, 1000)),
        (),
        (
            make_planned_move(small, api.node, shrink(small, 2600).containers),
            make_planned_move(large, web.node, shrink(large, 3500).containers),
        ),
    )
    plan = await theatre.begin(first)
    plan = await theatre.step(plan)
    assert {one.replaces for one in plan.expected} == {small.uid}
    plan = await theatre.to_the_end(plan)
    assert plan.phase is PlanPhase.FINISHED
    assert (await theatre.only("small")).node == api.node
    assert (await theatre.only("large")).node == web.node
    assert (await theatre.only("small")).uid != small.uid
    assert (await theatre.only("large")).uid == large.uid
    assert [line.action.node for line in await theatre.store.read_evictions_since(START)] == [None]


async def test_a_pending_pod_that_runs_to_completion_is_not_created_anew():
    small = make_resized_pod("small", 2600)
    small = replace(small, template=replace(small.template, restart_policy="Never"))
    theatre = PackingSimulation(
        [
            make_resized_pod("web", 3000, priority=2),
            make_resized_pod("api", 1500, priority=1),
            small,
            make_resized_pod("large", 3500),
        ],
        [node("n1"), node("n2")],
    )
    run(theatre.world, 20)
    web, api = await theatre.only("web"), await theatre.only("api")
    waiting, large = await theatre.only("small"), await theatre.only("large")
    first = PlanStage(
        (shrink(web, 400), shrink(api, 1000)),
        (),
        (
            make_planned_move(waiting, api.node, shrink(waiting, 2600).containers),
            make_planned_move(large, web.node, shrink(large, 3500).containers),
        ),
    )
    plan = await theatre.step(await theatre.begin(first))
    assert waiting.uid not in {one.replaces for one in plan.expected}
    await theatre.to_the_end(plan)
    assert (await theatre.only("small")).uid == waiting.uid


async def test_a_plan_is_outdated_one_pass_after_its_look():
    theatre, stage = await moving()
    plan = await theatre.begin(stage)
    run(theatre.world, FULL.pass_interval / timedelta(seconds=1))
    plan = await theatre.step(plan)
    assert (plan.phase, plan.condition) == (PlanPhase.DROPPED, PlanCondition(PlanStatusReason.TOO_OLD))
