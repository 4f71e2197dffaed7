"""The controller packs after node passes, and continues the plan of an earlier leader."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import timedelta

import pytest

from cruise.app.serve.activity import ServeActivity
from cruise.app.serve.controller import Controller
from cruise.app.serve.controller_options import ControllerOptions, PackingSettings
from cruise.domain.packing_plan import PackingPlan, PlanPhase
from cruise.domain.policy import ConsolidationMode, Mode
from cruise.domain.reasons import PlanCondition, PlanStatusReason
from cruise.errors import UnavailableError
from cruise.packer.answer import Packing
from cruise.packer.problem import PackingProblem
from cruise.runtime.usage.usage_reader import UsageReadingSettings
from cruise.simulation.usage_source import SimulatedUsageSource
from tests.runtime.packing.packing_scenes import FULL, PackingSimulation, make_resized_pod
from tests.runtime.packing.test_packing_pass import Exhaustive, crowded
from tests.simulation.scenes import node, run

PACE = 200.0
HOUR = timedelta(hours=1)


def controller_of(
    theatre: PackingSimulation,
    activity: ServeActivity | None = None,
    solver: Exhaustive | None = None,
    packs: PackingSettings | None = None,
) -> Controller:
    return Controller(
        theatre.world,
        SimulatedUsageSource(theatre.world),
        theatre.store,
        theatre.policy,
        lambda: theatre.world.now,
        UsageReadingSettings(scrape_delay_seconds=0),
        ControllerOptions(
            clock_speed=PACE,
            packing=packs or PackingSettings(solver or Exhaustive(), seconds=1),
            activity=activity or ServeActivity(),
        ),
    )


@asynccontextmanager
async def time_passing(theatre: PackingSimulation) -> AsyncIterator[None]:
    """Simulated time, a second at a time, with a webhook that gives placement hints."""

    async def pass_by() -> None:
        while True:
            theatre.expected.replace(await theatre.store.read_placement_hints())
            run(theatre.world, 1)
            await asyncio.sleep(1 / PACE)

    passing = asyncio.ensure_future(pass_by())
    try:
        yield
    finally:
        passing.cancel()
        with suppress(asyncio.CancelledError):
            await passing


async def ended(theatre: PackingSimulation) -> PackingPlan:
    async with asyncio.timeout(120):
        while True:
            plan = await theatre.store.read_packing_plan()
            if plan is not None and plan.phase is not PlanPhase.IN_PROGRESS:
                return plan
            await asyncio.sleep(0.05)


async def test_pods_that_still_wait_after_a_node_pass_are_packed():
    theatre = await crowded()
    controller = controller_of(theatre)
    async with time_passing(theatre):
        assert await controller.pack() is None
        await controller.rightsize()
        done = await controller.pack()
    assert done is not None
    assert done.plan is not None
    assert (done.waiting, done.plan.phase) == (1, PlanPhase.FINISHED)
    figures = controller.activity.packing_figures
    assert (figures.plans, figures.placed, figures.pending) == ({("finished", "optimal"): 1}, 1, 1)
    assert all((await theatre.where()).values())


async def test_a_new_leader_takes_up_what_the_former_one_has_begun():
    theatre = await crowded()
    first = controller_of(theatre)
    async with time_passing(theatre):
        await first.rightsize()
        packing = asyncio.ensure_future(first.pack())
        async with asyncio.timeout(120):
            while not theatre.world.counts.evictions:
                await asyncio.sleep(0.01)
        packing.cancel()
        await asyncio.gather(packing, return_exceptions=True)
        left = await theatre.store.read_packing_plan()
        assert left is not None
        assert left.phase is PlanPhase.IN_PROGRESS
        stop = asyncio.Event()
        second = asyncio.ensure_future(controller_of(theatre).run(stop))
        plan = await ended(theatre)
        stop.set()
        await second
    assert (plan.id, plan.phase, theatre.world.counts.evictions) == (left.id, PlanPhase.FINISHED, 1)


async def test_the_job_packs_by_itself_and_reports_the_result():
    theatre = await crowded(replace(FULL, mode=Mode.OBSERVE))
    activity = ServeActivity()
    controller = controller_of(theatre, activity)
    stop = asyncio.Event()
    async with time_passing(theatre):
        running = asyncio.ensure_future(controller.run(stop))
        plan = await ended(theatre)
        stop.set()
        await running
    assert plan.phase is PlanPhase.ADVISORY
    assert activity.jobs["packing"].failures == 0
    assert (theatre.world.counts.evictions, theatre.world.counts.resizes_requested) == (0, 0)


async def test_a_solver_that_fails_is_tried_again_after_the_next_node_pass_and_not_before():
    class Failing(Exhaustive):
        async def pack(self, problem: PackingProblem, seconds: float, /) -> Packing:
            self.asked.append((problem, seconds))
            raise UnavailableError("the solver ended")

    theatre = await crowded()
    solver = Failing()
    activity = ServeActivity()
    controller = controller_of(theatre, activity, solver)
    stop = asyncio.Event()
    async with time_passing(theatre):
        running = asyncio.ensure_future(controller.run(stop))
        async with asyncio.timeout(120):
            while len(solver.asked) < 2:
                await asyncio.sleep(0.05)
        stop.set()
        await running
    passes = activity.jobs["node pass"].runs
    # The last pass may have been ended before it was counted.
    assert len(solver.asked) <= passes + 1
    assert activity.jobs["packing"].error == "the solver ended"


async def test_fewer_nodes_are_looked_for_at_intervals_and_nothing_is_moved():
    theatre = PackingSimulation([make_resized_pod("web", 500, replicas=2)], [node("n1"), node("n2")])
    run(theatre.world, 60)
    controller = controller_of(theatre, packs=PackingSettings(Exhaustive(), 1, consolidation=ConsolidationMode.ADVISE))
    await controller.refresh_statistics()
    found = await controller.consolidate()
    assert found is not None and found.node_count_change is not None
    assert (found.node_count_change.nodes_before, found.node_count_change.nodes_after) == (2, 1)
    assert controller.activity.build_figures(Mode.FULL, leader=True, lag_seconds=0.0).consolidation is found
    assert theatre.world.counts.evictions == 0


async def test_advice_goes_where_the_world_refuses_to_be_looked_at():
    class Failing(Exhaustive):
        async def pack(self, problem: PackingProblem, seconds: float, /) -> Packing:
            raise UnavailableError("the packing process cannot be started")

    theatre = PackingSimulation([make_resized_pod("web", 500, replicas=2)], [node("n1"), node("n2")])
    run(theatre.world, 60)
    controller = controller_of(theatre, packs=PackingSettings(Failing(), 1, consolidation=ConsolidationMode.ADVISE))
    await controller.refresh_statistics()
    with pytest.raises(UnavailableError):
        await controller.consolidate()
    assert controller.activity.consolidation is not None
    assert controller.activity.consolidation.condition == PlanCondition(
        PlanStatusReason.API_ERROR, detail="the packing process cannot be started"
    )


async def test_nothing_is_looked_for_where_that_is_switched_off():
    theatre, solver = (
        PackingSimulation([make_resized_pod("web", 500, replicas=2)], [node("n1"), node("n2")]),
        Exhaustive(),
    )
    controller = controller_of(theatre, packs=PackingSettings(solver, 1, consolidation=ConsolidationMode.OFF))
    await controller.refresh_statistics()
    assert await controller.consolidate() is None
    assert solver.asked == []


async def test_nodes_are_emptied_part_by_part_within_the_budgets_and_no_pod_moves_twice():
    theatre = PackingSimulation(
        [make_resized_pod("web", 500, replicas=2), make_resized_pod("db", 500, replicas=2)],
        [node("n1"), node("n2"), node("n3")],
        replace(FULL, max_evictions_per_node=1),
    )
    run(theatre.world, 60)
    packs = PackingSettings(
        Exhaustive(),
        1,
        consolidation=ConsolidationMode.ACT,
        consolidation_cooldown=timedelta(seconds=50),
        consolidation_interval=HOUR,
    )
    controller = controller_of(theatre, packs=packs)
    moved: list[str] = []
    async with time_passing(theatre):
        await controller.refresh_statistics()
        await controller.rightsize()
        for _ in range(8):
            done = await controller.consolidate()
            assert done is not None and done.plan is not None
            if done.started is None:
                break
            sources = [one.source for one in done.started.proposal.moves]
            assert len(sources) == len(set(sources)), "one eviction a node"
            moved += [one.uid for one in done.started.proposal.moves]
            ended_plan = await controller.pack()
            assert ended_plan is not None and ended_plan.plan is not None
            assert ended_plan.plan.phase is PlanPhase.FINISHED
    where = await theatre.where()
    assert len(set(where.values())) == 1, where
    assert len(where) == 4
    assert len(moved) == len(set(moved)) == theatre.world.counts.evictions
    assert done is not None
    assert len(done.empty_nodes) == 2
    assert done.waiting_reason == PlanCondition(PlanStatusReason.NO_NODE_REMOVABLE)


async def test_nothing_moves_where_it_is_only_advised_or_pods_are_young():
    for consolidate, why in (
        (ConsolidationMode.ADVISE, None),
        (ConsolidationMode.ACT, PlanCondition(PlanStatusReason.NO_POD_MOVED)),
    ):
        theatre = PackingSimulation([make_resized_pod("web", 500, replicas=2)], [node("n1"), node("n2")])
        run(theatre.world, 60)
        controller = controller_of(theatre, packs=PackingSettings(Exhaustive(), 1, consolidation=consolidate))
        await controller.refresh_statistics()
        done = await controller.consolidate()
        assert done is not None and done.node_count_change is not None
        assert (done.node_count_change.nodes_after, done.started, done.waiting_reason) == (1, None, why)
        assert await theatre.store.read_packing_plan() is None
