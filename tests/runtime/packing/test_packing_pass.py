"""The packing pass on small simulated clusters, with a solver in this process."""

import itertools
from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from cruise.domain.actions import ActionResult, EvictPod, Outcome, ReasonCode
from cruise.domain.cluster import ClusterSnapshot, VerticalPodAutoscaler, WorkloadRef
from cruise.domain.packing_plan import PackingPlan, PlanPhase
from cruise.domain.policy import EvictionRanking, Mode, Policy
from cruise.domain.reasons import PlanCondition, PlanStatusReason
from cruise.domain.resources import ResourceName
from cruise.errors import UnavailableError
from cruise.interfaces.packing.descriptions import describe_plan_condition
from cruise.packer.answer import Packing, PackingNote, PackingNoteCode, PackingStatus, build_packing, compute_figures
from cruise.packer.problem import PackingProblem
from cruise.packer.verification import find_rule_violations
from cruise.runtime.packing.packing_pass import PackingPassResult, run_packing_pass
from cruise.runtime.ports import PassContext
from cruise.simulation.store import InMemoryStore
from tests.decisions.packing.shop import make_shop_node, make_shop_pod
from tests.runtime.packing.packing_scenes import FULL, PackingSimulation, make_resized_pod
from tests.simulation.scenes import NAMESPACE, START, amounts, node, run

LONG = timedelta(minutes=6)


class Exhaustive:
    """Every assignment of a handful of pods, in this process."""

    def __init__(self) -> None:
        self.asked: list[tuple[PackingProblem, float]] = []

    async def pack(self, problem: PackingProblem, seconds: float, /) -> Packing:
        self.asked.append((problem, seconds))
        places = itertools.product(range(-1, problem.node_count), repeat=problem.pod_count)
        allowed = [one for one in (np.array(place) for place in places) if not find_rule_violations(problem, one)]
        best = max(allowed, key=lambda one: compute_figures(problem, one).get_key(problem.objective))
        return build_packing(problem, best, compute_figures(problem, best).get_key(problem.objective))


async def crowded(policy: Policy = FULL, **fields) -> PackingSimulation:
    """`big` fits if `web` or `db` moves to the other one's node."""
    theatre = PackingSimulation(
        [
            make_resized_pod("web", 1500, priority=1),
            make_resized_pod("db", 1500, priority=1),
            make_resized_pod("big", 3000),
        ],
        [node("n1"), node("n2")],
        policy,
        **fields,
    )
    run(theatre.world, LONG.total_seconds() + 10)
    return theatre


async def passed(theatre: PackingSimulation, solver: Exhaustive | None = None, **more) -> PackingPassResult:
    return await run_packing_pass(
        PassContext(theatre.world, theatre.store, theatre.policy, theatre.world.now),
        solver or Exhaustive(),
        seconds=1,
        **more,
    )


async def test_a_plan_is_made_stored_and_carried_out():
    theatre = await crowded()
    done = await passed(theatre)
    plan = done.plan
    assert plan is not None
    assert (done.waiting, plan.phase, len(plan.proposal.placed), len(plan.proposal.moves)) == (
        1,
        PlanPhase.IN_PROGRESS,
        1,
        1,
    )
    assert await theatre.store.read_packing_plan() == plan
    ended = await theatre.to_the_end(plan)
    assert ended.phase is PlanPhase.FINISHED
    assert all(place is not None for place in (await theatre.where()).values())


def sizes(*names: str) -> tuple[VerticalPodAutoscaler, ...]:
    return tuple(VerticalPodAutoscaler(NAMESPACE, name, WorkloadRef("Deployment", name), "Recreate") for name in names)


async def test_a_pod_that_a_vpa_sizes_is_not_evicted_and_another_is():
    plan = (await passed(await crowded(vertical_autoscalers=sizes("web")))).plan
    assert plan is not None
    assert [one.pod.partition("-")[0] for one in plan.proposal.moves] == ["db"]
    both = (await passed(await crowded(vertical_autoscalers=sizes("web", "db")))).plan
    assert both is not None
    assert (both.proposal.moves, both.proposal.preempted, both.proposal.placed) == ((), (), ())
    assert both.proposal.unplaced


async def test_a_plan_is_dropped_once_a_vpa_sizes_a_pod_that_it_moves():
    theatre = await crowded()
    plan = (await passed(theatre)).plan
    assert plan is not None
    for one in sizes("web", "db"):
        theatre.world.add_vertical_pod_autoscaler(one)
    ended = await theatre.to_the_end(plan)
    assert ended.phase is PlanPhase.DROPPED
    assert "another autoscaler sizes it" in describe_plan_condition(ended)
    assert theatre.world.counts.evictions == 0


async def test_no_pod_is_packed_before_a_node_pass_ran():
    theatre = PackingSimulation([make_resized_pod("big", 5000)], [node("n1")])
    run(theatre.world, 60)
    solver = Exhaustive()
    assert (await passed(theatre, solver)).condition == PlanCondition(PlanStatusReason.NO_PENDING_PODS)
    assert (await passed(theatre, solver, min_pending=timedelta(0))).waiting == 1
    assert len(solver.asked) == 1


async def test_observe_shows_the_plan_of_mode_full_and_writes_nothing():
    theatre = await crowded(replace(FULL, mode=Mode.OBSERVE))
    plan = (await passed(theatre)).plan
    assert plan is not None
    assert (plan.phase, len(plan.proposal.moves)) == (PlanPhase.ADVISORY, 1)
    assert "observe" in describe_plan_condition(plan)
    assert await theatre.carrying().run(plan) == plan
    assert (theatre.world.counts.evictions, theatre.world.counts.resizes_requested) == (0, 0)


async def test_mode_resize_plans_no_evictions():
    theatre = await crowded(replace(FULL, mode=Mode.RESIZE))
    plan = (await passed(theatre)).plan
    assert plan is not None
    assert (plan.proposal.moves, plan.proposal.preempted, plan.phase) == ((), (), PlanPhase.ADVISORY)
    assert plan.proposal.status in (PackingStatus.ALREADY_OPTIMAL, PackingStatus.NO_IMPROVEMENT)


@pytest.mark.parametrize("mode", [Mode.OFF, Mode.INITIAL])
async def test_below_observe_and_in_mode_initial_nothing_is_planned(mode):
    theatre = await crowded(replace(FULL, mode=mode))
    solver = Exhaustive()
    done = await passed(theatre, solver)
    assert (done.plan, solver.asked, done.waiting) == (None, [], 1)


class Unproved(Exhaustive):
    """The same plans, without the proof that they take evictions."""

    async def pack(self, problem: PackingProblem, seconds: float, /) -> Packing:
        best = await super().pack(problem, seconds)
        return build_packing(problem, best.pod_node, (*best.bound[:-1], 0))


async def test_no_pod_is_evicted_before_the_need_is_proved():
    solver = Unproved()
    plan = (await passed(await crowded(), solver)).plan
    assert plan is not None
    assert (plan.phase, len(plan.proposal.moves)) == (PlanPhase.ADVISORY, 1)
    assert "not proved" in describe_plan_condition(plan)
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
        async def snapshot(self) -> ClusterSnapshot:
            return replace(snapshot, pods=tuple(pods))

    cluster: Any = AndOneMore()
    done = await run_packing_pass(
        PassContext(cluster, theatre.store, theatre.policy, theatre.world.now), Unproved(), seconds=1
    )
    plan = done.plan
    assert plan is not None
    assert (plan.phase, [one.pod for one in plan.proposal.placed]) == (PlanPhase.IN_PROGRESS, ["small"])
    assert (plan.proposal.moves, plan.proposal.preempted) == ((), ())
    assert PackingNote(PackingNoteCode.EVICTIONS_NOT_PROVED) in plan.proposal.notes


async def test_switched_off_it_is_shown_only():
    plan = (await passed(await crowded(), enabled=False)).plan
    assert plan is not None
    assert plan.phase is PlanPhase.ADVISORY
    assert "switched off" in describe_plan_condition(plan)


async def test_while_paused_it_is_shown_only():
    theatre = await crowded()
    await theatre.store.set_paused(True)
    plan = (await passed(theatre)).plan
    assert plan is not None
    assert (plan.phase, describe_plan_condition(plan)) == (PlanPhase.ADVISORY, "paused: shown only")


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
    assert len(await theatre.store.read_evictions_since(theatre.world.now - timedelta(hours=1))) == 1
    other = await crowded(theatre.policy)
    await other.store.record_outcomes(
        list(await theatre.store.read_evictions_since(theatre.world.now - timedelta(hours=1)))
    )
    plan = (await passed(other)).plan
    assert plan is not None
    assert (plan.proposal.moves, plan.proposal.preempted) == ((), ())


async def test_a_plan_that_the_judge_objects_to_is_dropped():
    class Wrong(Exhaustive):
        async def pack(self, problem: PackingProblem, seconds: float, /) -> Packing:
            packing = await super().pack(problem, seconds)
            crowd = packing.pod_node.copy()
            crowd[:] = 0
            return replace(packing, pod_node=crowd)

    theatre = await crowded()
    done = await passed(theatre, Wrong())
    assert done.plan is None
    assert done.condition is not None
    assert await theatre.store.read_packing_plan() is None


async def test_a_solver_that_fails_drops_the_pass():
    class Failing(Exhaustive):
        async def pack(self, problem: PackingProblem, seconds: float, /) -> Packing:
            raise UnavailableError("the solver ended")

    theatre = await crowded()
    with pytest.raises(UnavailableError):
        await passed(theatre, Failing())
    assert await theatre.store.read_packing_plan() is None


async def test_a_solver_error_is_reported_and_does_not_stop_the_other_passes():
    class Broken(Exhaustive):
        async def pack(self, problem: PackingProblem, seconds: float, /) -> Packing:
            raise ZeroDivisionError

    done = await passed(await crowded(), Broken())
    assert (done.plan, done.condition) == (None, PlanCondition(PlanStatusReason.FAILED, detail="ZeroDivisionError()"))


class Shown:
    """A cluster of which nothing but a snapshot is read."""

    def __init__(self, snapshot: ClusterSnapshot) -> None:
        self._snapshot = snapshot

    async def snapshot(self) -> ClusterSnapshot:
        return self._snapshot


def two_moves_from_one_node() -> ClusterSnapshot:
    """`big` fits on n1 alone, where `a` and `b` may move; one of them has room on n2, the other on n3."""
    running = [
        make_shop_pod(name, node, cpu, workload=WorkloadRef("Deployment", name), annotations=annotations)
        for name, node, cpu, annotations in _RUNNING
    ]
    waits = make_shop_pod("big", cpu=4000, workload=WorkloadRef("Deployment", "big"), unschedulable_since=START - LONG)
    pods = sorted((*running, waits), key=lambda pod: pod.name)
    return ClusterSnapshot(nodes=tuple(make_shop_node(name, 4000) for name in ("n1", "n2", "n3")), pods=tuple(pods))


_STAYS = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
_RUNNING: tuple[tuple[str, str, int, dict[str, str]], ...] = (
    ("a", "n1", 1500, {}),
    ("b", "n1", 1500, {}),
    ("c", "n2", 2500, _STAYS),
    ("d", "n3", 2500, _STAYS),
)


async def planned(policy: Policy, *spent: Outcome, store: InMemoryStore | None = None) -> PackingPlan:
    store = store or InMemoryStore()
    await store.record_outcomes(spent)
    cluster: Any = Shown(two_moves_from_one_node())
    plan = (await run_packing_pass(PassContext(cluster, store, policy, START), Exhaustive(), seconds=1)).plan
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
    assert plan.phase is (PlanPhase.IN_PROGRESS if moves else PlanPhase.ADVISORY)
    if not moves:
        assert [(one.pod, one.impossible) for one in plan.proposal.unplaced] == [("big", False)]


async def test_an_eviction_that_the_snapshot_does_not_show_yet_is_spent():
    ref = WorkloadRef("Deployment", "c")
    gone = EvictPod(
        "shop",
        "c",
        "uid-c",
        "n1",
        ref,
        EvictionRanking.LOW,
        ResourceName.CPU,
        ReasonCode.FREED_CAPACITY_FOR_PENDING_PODS,
    )
    spent = Outcome(START - timedelta(minutes=1), gone, ActionResult.DONE, ReasonCode.FREED_CAPACITY_FOR_PENDING_PODS)
    two = replace(FULL, max_evictions_per_node=2)
    assert [one.pod for one in (await planned(two, spent)).proposal.moves] == []
    # Once it is not in the snapshot it is no longer waited for.
    over = replace(spent, action=replace(gone, uid="uid-before"))
    assert [one.pod for one in (await planned(two, over)).proposal.moves] == ["a", "b"]
