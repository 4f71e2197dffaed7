"""The packing pass on small simulated clusters, with a solver in this process."""

import itertools
from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from cruise.domain.actions import EvictPod, Outcome, Reason, Verdict
from cruise.domain.cluster import Snapshot, VerticalAutoscaler, WorkloadRef
from cruise.domain.halts import Halt, HaltCode
from cruise.domain.packing import PackingPlan, Phase
from cruise.domain.policy import EvictionRanking, Mode, Policy
from cruise.domain.resources import ResourceName
from cruise.errors import Unavailable
from cruise.interfaces.packing.halt_words import plan_halt_words
from cruise.packer.answer import Note, NoteCode, Packing, Status, figures_of, packing_of
from cruise.packer.faults import find_faults
from cruise.packer.problem import Problem
from cruise.runtime.packing.packing_pass import PackingPass, packing_pass
from cruise.simulation.store.store import MemoryStore
from tests.decisions.packing.shop import a_node, a_pod
from tests.runtime.packing.packing_scenes import FULL, Theatre, node, sized
from tests.simulation.scenes import NAMESPACE, START, amounts, run

LONG = timedelta(minutes=6)


class Exhaustive:
    """Every assignment of a handful of pods, in this process."""

    def __init__(self) -> None:
        self.asked: list[tuple[Problem, float]] = []

    async def pack(self, problem: Problem, seconds: float, /) -> Packing:
        self.asked.append((problem, seconds))
        places = itertools.product(range(-1, problem.node_count), repeat=problem.pod_count)
        allowed = [one for one in (np.array(place) for place in places) if not find_faults(problem, one)]
        best = max(allowed, key=lambda one: figures_of(problem, one).key(problem.objective))
        return packing_of(problem, best, figures_of(problem, best).key(problem.objective))


async def crowded(policy: Policy = FULL, **fields) -> Theatre:
    """`big` fits where `web` or `db` goes to the other one's node."""
    theatre = Theatre(
        [sized("web", 1500, priority=1), sized("db", 1500, priority=1), sized("big", 3000)],
        [node("n1"), node("n2")],
        policy,
        **fields,
    )
    run(theatre.world, LONG.total_seconds() + 10)
    return theatre


async def passed(theatre: Theatre, solver: Exhaustive | None = None, **more) -> PackingPass:
    return await packing_pass(
        theatre.world, theatre.store, solver or Exhaustive(), theatre.policy, theatre.world.now, seconds=1, **more
    )


async def test_a_plan_is_made_stored_and_carried_out():
    theatre = await crowded()
    done = await passed(theatre)
    plan = done.plan
    assert plan is not None
    assert (done.waiting, plan.phase, len(plan.proposal.placed), len(plan.proposal.moves)) == (1, Phase.UNDER_WAY, 1, 1)
    assert await theatre.store.packing() == plan
    ended = await theatre.to_the_end(plan)
    assert ended.phase is Phase.FINISHED
    assert all(place is not None for place in (await theatre.where()).values())


def sizes(*names: str) -> tuple[VerticalAutoscaler, ...]:
    return tuple(VerticalAutoscaler(NAMESPACE, name, WorkloadRef("Deployment", name), "Recreate") for name in names)


async def test_what_a_vpa_sizes_stays_and_another_goes():
    plan = (await passed(await crowded(vertical_autoscalers=sizes("web")))).plan
    assert plan is not None
    assert [one.pod.partition("-")[0] for one in plan.proposal.moves] == ["db"]
    both = (await passed(await crowded(vertical_autoscalers=sizes("web", "db")))).plan
    assert both is not None
    assert (both.proposal.moves, both.proposal.preempted, both.proposal.placed) == ((), (), ())
    assert both.proposal.unplaced


async def test_a_plan_is_dropped_once_a_vpa_takes_over_whom_it_moves():
    theatre = await crowded()
    plan = (await passed(theatre)).plan
    assert plan is not None
    for one in sizes("web", "db"):
        theatre.world.show_vertical_autoscaler(one)
    ended = await theatre.to_the_end(plan)
    assert ended.phase is Phase.DROPPED
    assert "another autoscaler sizes it" in plan_halt_words(ended)
    assert theatre.world.tally.evictions == 0


async def test_nobody_is_packed_before_a_node_pass_had_its_chance():
    theatre = Theatre([sized("big", 5000)], [node("n1")])
    run(theatre.world, 60)
    solver = Exhaustive()
    assert (await passed(theatre, solver)).why == Halt(HaltCode.NO_POD_WAITS)
    assert (await passed(theatre, solver, patience=timedelta(0))).waiting == 1
    assert len(solver.asked) == 1


async def test_observe_shows_the_plan_of_mode_full_and_writes_nothing():
    theatre = await crowded(replace(FULL, mode=Mode.OBSERVE))
    plan = (await passed(theatre)).plan
    assert plan is not None
    assert (plan.phase, len(plan.proposal.moves)) == (Phase.SHOWN, 1)
    assert "observe" in plan_halt_words(plan)
    assert await theatre.carrying().to_the_end(plan) == plan
    assert (theatre.world.tally.evictions, theatre.world.tally.resizes_asked) == (0, 0)


async def test_mode_resize_plans_no_evictions():
    theatre = await crowded(replace(FULL, mode=Mode.RESIZE))
    plan = (await passed(theatre)).plan
    assert plan is not None
    assert (plan.proposal.moves, plan.proposal.preempted, plan.phase) == ((), (), Phase.SHOWN)
    assert plan.proposal.status in (Status.ALREADY_OPTIMAL, Status.NO_IMPROVEMENT)


@pytest.mark.parametrize("mode", [Mode.OFF, Mode.INITIAL])
async def test_below_observe_and_in_mode_initial_nothing_is_planned(mode):
    theatre = await crowded(replace(FULL, mode=mode))
    solver = Exhaustive()
    done = await passed(theatre, solver)
    assert (done.plan, solver.asked, done.waiting) == (None, [], 1)


class Unproved(Exhaustive):
    """The same plans, without the proof that they take evictions."""

    async def pack(self, problem: Problem, seconds: float, /) -> Packing:
        best = await super().pack(problem, seconds)
        return packing_of(problem, best.pod_node, (*best.bound[:-1], 0))


async def test_nobody_is_evicted_before_it_is_proved_that_this_is_needed():
    solver = Unproved()
    plan = (await passed(await crowded(), solver)).plan
    assert plan is not None
    assert (plan.phase, len(plan.proposal.moves)) == (Phase.SHOWN, 1)
    assert "not proved" in plan_halt_words(plan)
    assert [bool(problem.movable.any()) for problem, _ in solver.asked] == [True, False]


async def test_without_that_proof_what_needs_no_eviction_is_done():
    theatre = await crowded()
    snapshot = await theatre.world.snapshot()
    web = next(pod for pod in snapshot.pods if pod.labels["app"] == "web")
    small = replace(web.containers[0], requests=amounts(1000, 256), allocated=None, actual=None)
    waits = replace(web, name="small", uid="small", node=None, phase="Pending", unschedulable_since=web.created_at)
    waits = replace(waits, containers=(small,))
    pods = sorted((*snapshot.pods, waits), key=lambda pod: (pod.namespace, pod.name))

    class AndOneMore:
        async def snapshot(self) -> Snapshot:
            return replace(snapshot, pods=tuple(pods))

    cluster: Any = AndOneMore()
    done = await packing_pass(cluster, theatre.store, Unproved(), theatre.policy, theatre.world.now, seconds=1)
    plan = done.plan
    assert plan is not None
    assert (plan.phase, [one.pod for one in plan.proposal.placed]) == (Phase.UNDER_WAY, ["small"])
    assert (plan.proposal.moves, plan.proposal.preempted) == ((), ())
    assert Note(NoteCode.EVICTIONS_UNPROVED) in plan.proposal.notes


async def test_switched_off_it_is_shown_only():
    plan = (await passed(await crowded(), enabled=False)).plan
    assert plan is not None
    assert plan.phase is Phase.SHOWN
    assert "switched off" in plan_halt_words(plan)


async def test_while_paused_it_is_shown_only():
    theatre = await crowded()
    await theatre.store.set_paused(True)
    plan = (await passed(theatre)).plan
    assert plan is not None
    assert (plan.phase, plan_halt_words(plan)) == (Phase.SHOWN, "paused: shown only")


async def test_a_plan_under_way_is_not_replaced():
    theatre = await crowded()
    first = (await passed(theatre)).plan
    solver = Exhaustive()
    again = await passed(theatre, solver)
    assert (again.plan, solver.asked) == (first, [])


async def test_what_is_spent_of_the_hour_is_no_longer_there():
    theatre = await crowded(replace(FULL, max_evictions_per_hour=1))
    first = (await passed(theatre)).plan
    assert first is not None
    await theatre.to_the_end(first)
    assert len(await theatre.store.evictions_since(theatre.world.now - timedelta(hours=1))) == 1
    other = await crowded(theatre.policy)
    await other.store.record_outcomes(list(await theatre.store.evictions_since(theatre.world.now - timedelta(hours=1))))
    plan = (await passed(other)).plan
    assert plan is not None
    assert (plan.proposal.moves, plan.proposal.preempted) == ((), ())


async def test_a_plan_that_the_judge_objects_to_is_dropped():
    class Wrong(Exhaustive):
        async def pack(self, problem: Problem, seconds: float, /) -> Packing:
            packing = await super().pack(problem, seconds)
            crowd = packing.pod_node.copy()
            crowd[:] = 0
            return replace(packing, pod_node=crowd)

    theatre = await crowded()
    done = await passed(theatre, Wrong())
    assert done.plan is None
    assert done.why is not None
    assert await theatre.store.packing() is None


async def test_a_solver_that_fails_drops_the_pass():
    class Failing(Exhaustive):
        async def pack(self, problem: Problem, seconds: float, /) -> Packing:
            raise Unavailable("the solver ended")

    theatre = await crowded()
    with pytest.raises(Unavailable):
        await passed(theatre, Failing())
    assert await theatre.store.packing() is None


async def test_a_mistake_in_the_solver_is_told_and_keeps_nobody_else_from_work():
    class Broken(Exhaustive):
        async def pack(self, problem: Problem, seconds: float, /) -> Packing:
            raise ZeroDivisionError

    done = await passed(await crowded(), Broken())
    assert (done.plan, done.why) == (None, Halt(HaltCode.FAILED, detail="ZeroDivisionError()"))


class Shown:
    """A cluster of which nothing but a snapshot is read."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    async def snapshot(self) -> Snapshot:
        return self._snapshot


def two_moves_from_one_node() -> Snapshot:
    """`big` fits on n1 alone, where `a` and `b` may move; one of them has room on n2, the other on n3."""
    running = [
        a_pod(name, node, cpu, workload=WorkloadRef("Deployment", name), annotations=annotations)
        for name, node, cpu, annotations in _RUNNING
    ]
    waits = a_pod("big", cpu=4000, workload=WorkloadRef("Deployment", "big"), unschedulable_since=START - LONG)
    pods = sorted((*running, waits), key=lambda pod: pod.name)
    return Snapshot(nodes=tuple(a_node(name, 4000) for name in ("n1", "n2", "n3")), pods=tuple(pods))


_STAYS = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
_RUNNING: tuple[tuple[str, str, int, dict[str, str]], ...] = (
    ("a", "n1", 1500, {}),
    ("b", "n1", 1500, {}),
    ("c", "n2", 2500, _STAYS),
    ("d", "n3", 2500, _STAYS),
)


async def planned(policy: Policy, *spent: Outcome, store: MemoryStore | None = None) -> PackingPlan:
    store = store or MemoryStore()
    await store.record_outcomes(spent)
    cluster: Any = Shown(two_moves_from_one_node())
    plan = (await packing_pass(cluster, store, Exhaustive(), policy, START, seconds=1)).plan
    assert plan is not None
    return plan


@pytest.mark.parametrize(
    ("budgets", "moves"),
    [
        ({"max_evictions_per_node": 2}, ["a", "b"]),
        ({"max_evictions_per_node": 1}, []),
        ({"max_evictions_per_node": 2, "max_evictions_per_workload": 0}, []),
        ({"max_evictions_per_node": 2, "max_evictions_per_hour": 1}, []),
    ],
)
async def test_a_plan_that_the_budgets_would_stop_is_never_begun(budgets, moves):
    plan = await planned(replace(FULL, **budgets))
    assert [one.pod for one in plan.proposal.moves] == moves
    assert plan.phase is (Phase.UNDER_WAY if moves else Phase.SHOWN)
    if not moves:
        assert [(one.pod, one.impossible) for one in plan.proposal.unplaced] == [("big", False)]


async def test_an_eviction_that_the_snapshot_does_not_show_yet_is_spent():
    ref = WorkloadRef("Deployment", "c")
    gone = EvictPod("shop", "c", "uid-c", "n1", ref, EvictionRanking.LOW, ResourceName.CPU, Reason.PACKED)
    spent = Outcome(START - timedelta(minutes=1), gone, Verdict.DONE, Reason.PACKED)
    two = replace(FULL, max_evictions_per_node=2)
    assert [one.pod for one in (await planned(two, spent)).proposal.moves] == []
    # Once it is gone from the snapshot its turn is over.
    over = replace(spent, action=replace(gone, uid="uid-before"))
    assert [one.pod for one in (await planned(two, over)).proposal.moves] == ["a", "b"]
