"""A day with a pod that needs two evictions from one node, on the simulated cluster."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from cruise.domain.actions import EvictPod
from cruise.domain.packing_plan import (
    EvictionBudgetKind,
    LargerBudgetPlan,
    PackingPlan,
    PlanPhase,
    PlanRound,
    RemainingRounds,
    SpentBudget,
)
from cruise.domain.policy import Mode, Policy
from cruise.domain.scheduling import SchedulingConstraints
from cruise.runtime.packing.packing_pass import run_packing_pass
from cruise.runtime.ports import PassContext
from cruise.simulation.cluster.state import SimulationSettings
from tests.runtime.packing.packing_scenes import PackingSimulation, make_resized_pod
from tests.runtime.packing.test_packing_pass import Exhaustive
from tests.simulation.scenes import START, container, node, run, template, workload

STAYS = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}

_PINNED = template(container(2500, 256), annotations=STAYS, priority=2)


def scene(policy: Policy, waiting: Sequence[Any] = (), **more: Any) -> PackingSimulation:
    """`big`, pending if nothing else is, fits on n1 alone, once `one` and `two` have moved to n2 and n3."""
    kept = [
        workload(name, replace(_PINNED, placement=SchedulingConstraints(node_selector=(("name", at),))))
        for name, at in (("c", "n2"), ("d", "n3"))
    ]
    # By their priorities `c` and `d` are placed first, and `big` last.
    apps = [
        make_resized_pod("one", 1500, priority=1),
        make_resized_pod("two", 1500, priority=1),
        *(waiting or [make_resized_pod("big", 4000)]),
    ]
    nodes = [node(name, labels={"name": name}) for name in ("n1", "n2", "n3")]
    return PackingSimulation([*kept, *apps], nodes, policy, **more)


async def planned(theatre: PackingSimulation) -> PackingPlan:
    done = await run_packing_pass(
        PassContext(theatre.world, theatre.store, theatre.policy, theatre.world.now), Exhaustive(), seconds=60
    )
    assert done.plan is not None, done.condition
    return done.plan


async def test_over_a_day_no_plan_is_begun_that_a_budget_of_one_would_stop():
    theatre = scene(Policy(mode=Mode.FULL), settings=SimulationSettings(step_seconds=60))
    for _ in range(6):
        run(theatre.world, 4 * 3600)
        plan = await planned(theatre)
        assert (plan.phase, plan.proposal.moves) == (PlanPhase.ADVISORY, ())
        assert plan.proposal.remaining_rounds == RemainingRounds(
            (), (), LargerBudgetPlan(1, 2, ((EvictionBudgetKind.NODE, 2),))
        )
    assert not [one for one in await theatre.store.read_outcomes(START) if isinstance(one.action, EvictPod)]
    assert (await theatre.where())["big"] is None


async def test_under_a_budget_of_two_it_is_begun_and_finished():
    theatre = scene(Policy(mode=Mode.FULL, max_evictions_per_node=2))
    run(theatre.world, timedelta(minutes=6).total_seconds() + 10)
    plan = await planned(theatre)
    assert [one.pod.partition("-")[0] for one in plan.proposal.moves] == ["one", "two"]
    ended = await theatre.to_the_end(plan)
    assert (ended.phase, ended.condition) == (PlanPhase.FINISHED, None)
    assert (await theatre.where())["big"] == "n1"


async def test_deferred_evictions_are_reported_and_the_next_round_does_them():
    late = replace(template(container(2000, 256)), placement=SchedulingConstraints(node_selector=(("name", "n1"),)))
    theatre = scene(Policy(mode=Mode.FULL), waiting=[workload(name, late) for name in ("late", "later")])
    run(theatre.world, timedelta(minutes=6).total_seconds() + 10)
    plan = await planned(theatre)
    assert len(plan.proposal.placed) == 1
    assert plan.proposal.remaining_rounds == RemainingRounds(
        (SpentBudget(EvictionBudgetKind.NODE, ("n1",), 1),), (PlanRound(1, 1),)
    )
    assert (await theatre.to_the_end(plan)).phase is PlanPhase.FINISHED
    run(theatre.world, 10)
    plan = await planned(theatre)
    assert (len(plan.proposal.placed), len(plan.proposal.moves), plan.proposal.remaining_rounds) == (1, 1, None)
    assert (await theatre.to_the_end(plan)).phase is PlanPhase.FINISHED
    where = await theatre.where()
    assert (where["late"], where["later"], {where["one"], where["two"]}) == ("n1", "n1", {"n2", "n3"})
