"""A day with a pod that two moves from one node would place, on the simulated cluster."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from cruise.domain.actions import EvictPod
from cruise.domain.packing import Budget, Go, Larger, Later, PackingPlan, Phase, Spent
from cruise.domain.policy import Mode, Policy
from cruise.domain.scheduling import Placement
from cruise.runtime.packing.packing_pass import packing_pass
from cruise.simulation.cluster.behaviour import Behaviour
from tests.runtime.packing.packing_scenes import Theatre, node, sized
from tests.runtime.packing.test_packing_pass import Exhaustive
from tests.simulation.scenes import START, container, run, template, workload

STAYS = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}

_PINNED = template(container(2500, 256), annotations=STAYS, priority=2)


def scene(policy: Policy, waiting: Sequence[Any] = (), **more: Any) -> Theatre:
    """`big`, which waits if nothing else does, fits on n1 alone, once `one` and `two` have gone to n2 and n3."""
    kept = [
        workload(name, replace(_PINNED, placement=Placement(node_selector=(("name", at),))))
        for name, at in (("c", "n2"), ("d", "n3"))
    ]
    # By their priorities `c` and `d` are placed first, and `big` last.
    apps = [sized("one", 1500, priority=1), sized("two", 1500, priority=1), *(waiting or [sized("big", 4000)])]
    nodes = [node(name, labels={"name": name}) for name in ("n1", "n2", "n3")]
    return Theatre([*kept, *apps], nodes, policy, **more)


async def planned(theatre: Theatre) -> PackingPlan:
    done = await packing_pass(theatre.world, theatre.store, Exhaustive(), theatre.policy, theatre.world.now, seconds=60)
    assert done.plan is not None, done.why
    return done.plan


async def test_over_a_day_no_plan_is_begun_that_a_budget_of_one_would_stop():
    theatre = scene(Policy(mode=Mode.FULL), behaviour=Behaviour(step_seconds=60))
    for _ in range(6):
        run(theatre.world, 4 * 3600)
        plan = await planned(theatre)
        assert (plan.phase, plan.proposal.moves) == (Phase.SHOWN, ())
        assert plan.proposal.later == Later((), (), Larger(1, 2, ((Budget.NODE, 2),)))
    assert not [one for one in await theatre.store.outcomes(START) if isinstance(one.action, EvictPod)]
    assert (await theatre.where())["big"] is None


async def test_under_a_budget_of_two_it_is_begun_and_finished():
    theatre = scene(Policy(mode=Mode.FULL, max_evictions_per_node=2))
    run(theatre.world, timedelta(minutes=6).total_seconds() + 10)
    plan = await planned(theatre)
    assert [one.pod.partition("-")[0] for one in plan.proposal.moves] == ["one", "two"]
    ended = await theatre.to_the_end(plan)
    assert (ended.phase, ended.halt) == (Phase.FINISHED, None)
    assert (await theatre.where())["big"] == "n1"


async def test_what_a_budget_leaves_to_a_second_go_is_told_and_the_next_plan_does_it():
    late = replace(template(container(2000, 256)), placement=Placement(node_selector=(("name", "n1"),)))
    theatre = scene(Policy(mode=Mode.FULL), waiting=[workload(name, late) for name in ("late", "later")])
    run(theatre.world, timedelta(minutes=6).total_seconds() + 10)
    plan = await planned(theatre)
    assert len(plan.proposal.placed) == 1
    assert plan.proposal.later == Later((Spent(Budget.NODE, ("n1",), 1),), (Go(1, 1),))
    assert (await theatre.to_the_end(plan)).phase is Phase.FINISHED
    run(theatre.world, 10)
    plan = await planned(theatre)
    assert (len(plan.proposal.placed), len(plan.proposal.moves), plan.proposal.later) == (1, 1, None)
    assert (await theatre.to_the_end(plan)).phase is Phase.FINISHED
    where = await theatre.where()
    assert (where["late"], where["later"], {where["one"], where["two"]}) == ("n1", "n1", {"n2", "n3"})
