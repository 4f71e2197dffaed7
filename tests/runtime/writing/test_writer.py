"""Every guard that stands before a write, on small simulated clusters."""

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from cruise.domain.actions import Action, ContainerTarget, Outcome, Reason, ResizePod, TaintNode, UntaintNode, Verdict
from cruise.domain.cluster import ContainerRole, LimitRangeItem, Pod, ResizePending
from cruise.domain.details import Detail
from cruise.domain.policy import Mode, Policy
from cruise.domain.resources import NO_AMOUNTS, NO_RESOURCES, Amounts, Resources
from cruise.domain.scheduling import OVERLOADED, LabelSelector, Operator, Requirement
from cruise.domain.sizes import spec_targets
from cruise.errors import Unavailable
from cruise.runtime.writing.waits import WriteWaits
from cruise.runtime.writing.writer import Writer, writes_at_once
from cruise.simulation.cluster.behaviour import Behaviour
from cruise.simulation.cluster.cluster import SimulatedCluster
from cruise.simulation.cluster.evictions import BudgetRule
from cruise.simulation.store.store import MemoryStore
from tests.simulation.faults import Faults, FaultyCluster
from tests.simulation.scenes import (
    START,
    amounts,
    cluster,
    container,
    evict,
    node,
    only_pod,
    pods,
    resize,
    resources,
    run,
    template,
    workload,
)

FULL = Policy(mode=Mode.FULL, max_evictions_per_node=9, max_evictions_per_workload=9, max_evictions_per_hour=99)


def sized(pod: Pod, cpu: int, mebibytes: int, growth: Resources = NO_RESOURCES, reason=Reason.RIGHTSIZED) -> ResizePod:
    target = ContainerTarget("app", ContainerRole.MAIN, amounts(cpu, mebibytes), NO_AMOUNTS)
    return replace(resize(pod), containers=(target,), growth=growth, reason=reason)


async def applied(
    world: SimulatedCluster | FaultyCluster,
    actions: Sequence[Action],
    policy=FULL,
    store: MemoryStore | None = None,
    snapshot=None,
    *,
    writing: dict[str, Any] | None = None,
    **options: Any,
) -> list[Outcome]:
    store = MemoryStore() if store is None else store
    now = world.cluster.now if isinstance(world, FaultyCluster) else world.now
    return await Writer(world, store, policy, **(writing or {})).apply(
        actions, snapshot or await world.snapshot(), now, **options
    )


def told(outcomes: Sequence[Outcome]) -> list[tuple[Verdict, Reason]]:
    return [(outcome.verdict, outcome.reason) for outcome in outcomes]


async def requests_of(world: SimulatedCluster, name: str) -> Amounts:
    pod = await world.pod("shop", name)
    assert pod is not None
    return pod.containers[0].requests


class Lost(MemoryStore):
    """A store that can be read but not written to while it is `lost`."""

    lost = False

    async def record_outcomes(self, outcomes: Sequence[Outcome], completed: Collection[int] = ()) -> None:
        if self.lost:
            raise Unavailable("the database is gone")
        await super().record_outcomes(outcomes, completed)


# ---- mode and pause ----


@pytest.mark.parametrize(
    ("mode", "resizes", "evicts"),
    [
        (Mode.OFF, False, False),
        (Mode.OBSERVE, False, False),
        (Mode.INITIAL, False, False),
        (Mode.RESIZE, True, False),
        (Mode.FULL, True, True),
    ],
)
async def test_the_mode_decides_what_is_written(mode, resizes, evicts):
    world = cluster(workload(replicas=2))
    first, second = await pods(world)
    store = MemoryStore()
    actions: list[Action] = [sized(first, 100, 100), evict(second), TaintNode("n1", Reason.OVERLOADED)]
    outcomes = await applied(world, actions, replace(FULL, mode=mode), store)
    forbidden = (Verdict.OBSERVED, Reason.MODE)
    assert told(outcomes) == [
        (Verdict.DONE, Reason.RIGHTSIZED) if resizes else forbidden,
        (Verdict.DONE, Reason.DOES_NOT_FIT) if evicts else forbidden,
        (Verdict.DONE, Reason.OVERLOADED) if evicts else forbidden,
    ]
    assert (world.tally.resizes_asked, world.tally.evictions) == (int(resizes), int(evicts))
    # What was only observed comes again with every pass: it is no line of the audit.
    audited = [outcome.verdict for outcome in await store.outcomes(START)]
    assert audited == [Verdict.DONE] * (resizes + 2 * evicts)


async def test_a_pause_stops_every_write():
    world = cluster(workload(replicas=2))
    first, second = await pods(world)
    store = MemoryStore()
    await store.set_paused(True)
    outcomes = await applied(world, [sized(first, 100, 100), evict(second)], store=store)
    assert told(outcomes) == [(Verdict.OBSERVED, Reason.PAUSED)] * 2
    assert await store.outcomes(START) == []
    await store.set_paused(False)
    assert told(await applied(world, [sized(first, 100, 100)], store=store)) == [(Verdict.DONE, Reason.RIGHTSIZED)]


async def test_a_pause_in_the_middle_of_a_plan_stops_the_rest_with_all_under_way_answered():
    world = FaultyCluster(cluster(workload(replicas=12)), Faults(write_seconds=0.02))
    store = MemoryStore()
    actions = [sized(pod, 100, 100) for pod in await pods(world.cluster)]

    async def pause_after_the_first() -> None:
        while not world.faults.sent:
            await asyncio.sleep(0)
        await store.set_paused(True)

    outcomes, _ = await asyncio.gather(
        applied(world, actions, store=store, writing={"at_once": 2, "waits": WriteWaits(poll=0.005)}),
        pause_after_the_first(),
    )
    done = [outcome for outcome in outcomes if outcome.verdict is Verdict.DONE]
    assert 2 <= len(done) < len(actions)
    assert set(told(outcomes)) == {(Verdict.DONE, Reason.RIGHTSIZED), (Verdict.OBSERVED, Reason.PAUSED)}
    assert [outcome.action for outcome in done] == world.faults.sent
    # What was done is in the audit, what was not will come again.
    assert {outcome.action for outcome in await store.outcomes(START)} == {one.action for one in done}


# ---- re-validation ----


async def test_a_pod_that_is_gone_or_another_is_left():
    world = cluster(workload())
    pod = await only_pod(world)
    before = await world.snapshot()
    another = replace(sized(pod, 100, 100), uid="another")
    missing = replace(sized(pod, 100, 100), pod="missing")
    # The server itself tells of another uid.
    assert told(await applied(world, [another, missing])) == [
        (Verdict.HELD, Reason.CHANGED_SINCE),
        (Verdict.HELD, Reason.GONE),
    ]
    await world.perform(evict(pod))
    grow = sized(pod, 600, 600, resources(100, 88))
    assert told(await applied(world, [grow, evict(pod)], snapshot=before)) == [(Verdict.HELD, Reason.GONE)] * 2


async def test_a_pod_whose_sizes_changed_since_is_left():
    world = cluster(workload())
    pod = await only_pod(world)
    before = await world.snapshot()
    await world.perform(sized(pod, 300, 300))
    grow = sized(pod, 600, 600, resources(100, 88))
    outcomes = await applied(world, [grow, evict(pod)], snapshot=before)
    assert told(outcomes) == [(Verdict.HELD, Reason.CHANGED_SINCE)] * 2


async def test_a_pure_shrink_is_not_read_anew():
    world = FaultyCluster(cluster(workload(replicas=2)), Faults())
    first, second = await pods(world.cluster)
    grow = sized(second, 600, 600, resources(100, 88))
    assert told(await applied(world, [sized(first, 100, 100), grow])) == [(Verdict.DONE, Reason.RIGHTSIZED)] * 2
    assert world.faults.read == [("shop", second.name)]


async def test_a_pod_that_was_bound_since_is_left():
    world = cluster(workload(pod=template(container(cpu=9000))))
    pending = await only_pod(world)
    assert pending.node is None
    snapshot = await world.snapshot()
    elsewhere = replace(snapshot, pods=(replace(pending, node="n1"),))
    outcomes = await applied(world, [sized(pending, 100, 100)], snapshot=elsewhere)
    assert told(outcomes) == [(Verdict.HELD, Reason.CHANGED_SINCE)]


# ---- room for grows ----


async def test_a_grow_waits_until_a_shrink_is_actual():
    # 3000 of 4000m are counted. `a` gives back 2000, `b` wants 1500 more: not before the kubelet is done.
    world = cluster([workload("a", template(container(2500))), workload("b", template(container(500)))])
    a, b = await only_pod(world, "a"), await only_pod(world, "b")
    shrink, grow = sized(a, 500, 512), sized(b, 2000, 512, resources(1500, 0))
    assert told(await applied(world, [shrink, grow])) == [
        (Verdict.DONE, Reason.RIGHTSIZED),
        (Verdict.HELD, Reason.WAITING_FOR_ROOM),
    ]
    run(world, 30)
    assert told(await applied(world, [grow])) == [(Verdict.DONE, Reason.RIGHTSIZED)]


async def test_grows_share_the_room_in_their_order():
    world = cluster([workload(name, template(container(1000))) for name in "abc"])
    [a], [b], [c] = [await pods(world, name) for name in "abc"]
    outcomes = await applied(
        world,
        [
            sized(a, 1600, 512, resources(600, 0)),
            sized(b, 1500, 512, resources(500, 0)),
            sized(c, 1400, 512, resources(400, 0)),
        ],
    )
    assert [outcome.verdict for outcome in outcomes] == [Verdict.DONE, Verdict.HELD, Verdict.DONE]


async def test_a_grow_of_memory_needs_no_room_for_cpu():
    world = cluster(workload(pod=template(container(4000, 512))), [node(cpu=4000)])
    pod = await only_pod(world)
    snapshot = await world.snapshot()
    smaller = replace(snapshot, nodes=(replace(snapshot.nodes[0], allocatable=resources(3900, 8192)),))
    assert told(await applied(world, [sized(pod, 4000, 1024, resources(0, 512))], snapshot=smaller)) == [
        (Verdict.DONE, Reason.RIGHTSIZED)
    ]


async def test_two_pods_that_wait_for_each_others_room_give_back_what_they_can():
    # The node is full. `a` wants memory for CPU, `b` CPU for memory: neither grow has room before the other's shrink.
    world = cluster(
        [workload("a", template(container(3000, 1000))), workload("b", template(container(1000, 7192)))],
    )
    a, b = await only_pod(world, "a"), await only_pod(world, "b")
    crossing = [
        sized(a, 1000, 4000, resources(0, 3000)),
        sized(b, 3000, 2000, resources(2000, 0)),
    ]
    store = MemoryStore()
    first = await applied(world, crossing, store=store)
    assert told(first) == [(Verdict.DONE, Reason.RIGHTSIZED)] * 2
    assert {outcome.detail for outcome in first} == {Detail.GROWTH_WAITS}
    assert (await requests_of(world, a.name), await requests_of(world, b.name)) == (
        amounts(1000, 1000),
        amounts(1000, 2000),
    )
    # The audit has what was written, not what was wanted.
    written = [o.action for o in await store.outcomes(START)]
    assert [one.containers[0].requests for one in written if isinstance(one, ResizePod)] == [
        amounts(1000, 2000),
        amounts(1000, 1000),
    ]
    run(world, 30)
    a, b = await only_pod(world, "a"), await only_pod(world, "b")
    second = [sized(a, 1000, 4000, resources(0, 3000)), sized(b, 3000, 2000, resources(2000, 0))]
    assert told(await applied(world, second)) == [(Verdict.DONE, Reason.RIGHTSIZED)] * 2
    run(world, 30)
    [figure] = world.node_figures()
    assert figure.requested == resources(4000, 6000)


async def test_the_part_that_shrinks_has_to_be_worth_a_patch_and_inside_the_limit_range():
    full = [workload("a", template(container(3000, 8192)))]
    barely = sized(await only_pod(cluster(full)), 2995, 9000, resources(0, 808))
    assert told(await applied(cluster(full), [barely])) == [(Verdict.HELD, Reason.WAITING_FOR_ROOM)]
    ranges = {"shop": (LimitRangeItem(False, maximum=amounts(None, 9000)),)}
    bounded = cluster(full, limit_ranges=ranges)
    enough = sized(await only_pod(bounded), 1000, 9000, resources(0, 808))
    # Without a limit in the target the server would refuse the part as it would the whole.
    without = replace(enough, containers=(replace(enough.containers[0], limits=NO_AMOUNTS),))
    assert told(await applied(bounded, [without])) == [(Verdict.HELD, Reason.WAITING_FOR_ROOM)]


async def test_a_reaction_to_a_kill_is_taken_whole_or_not_at_all():
    world = cluster(workload(pod=template(container(3000, 8192))))
    pod = await only_pod(world)
    whole = sized(pod, 1000, 9000, resources(0, 808), Reason.OOM_KILLED)
    assert told(await applied(world, [whole])) == [(Verdict.HELD, Reason.WAITING_FOR_ROOM)]


# ---- budgets ----


async def test_evictions_are_budgeted_by_node():
    world = cluster(
        [workload(name, template(container(100))) for name in ("a", "b", "c")],
        nodes=[node("n1"), node("n2", labels={"x": "y"})],
    )
    everyone = await pods(world)
    on: dict[str | None, int] = {}
    for pod in everyone:
        on[pod.node] = on.get(pod.node, 0) + 1
    outcomes = await applied(world, [evict(pod) for pod in everyone], replace(FULL, max_evictions_per_node=1))
    assert sum(outcome.verdict is Verdict.DONE for outcome in outcomes) == len(on)
    assert {o.reason for o in outcomes if o.verdict is Verdict.HELD} <= {Reason.BUDGET_NODE}
    assert len(everyone) > len(on)


async def test_evictions_are_budgeted_by_workload_one_at_a_time():
    world = cluster([workload("a", replicas=2), workload("b", replicas=1)])
    a1, a2, b1 = [*await pods(world, "a"), *await pods(world, "b")]
    policy = replace(FULL, max_evictions_per_workload=1)
    assert told(await applied(world, [evict(a1), evict(a2), evict(b1)], policy)) == [
        (Verdict.DONE, Reason.DOES_NOT_FIT),
        (Verdict.HELD, Reason.BUDGET_WORKLOAD),
        (Verdict.DONE, Reason.DOES_NOT_FIT),
    ]
    # While the first is on its way out, or its successor not yet running, the workload is disrupted.
    assert told(await applied(world, [evict(a2)], policy)) == [(Verdict.HELD, Reason.BUDGET_WORKLOAD)]
    run(world, 90)
    assert told(await applied(world, [evict(a2)], policy)) == [(Verdict.DONE, Reason.DOES_NOT_FIT)]


async def test_evictions_are_budgeted_by_the_hour_over_restarts():
    world = cluster(workload(replicas=5, pod=template(container(100, 100))))
    store, policy = MemoryStore(), replace(FULL, max_evictions_per_hour=2)
    everyone = await pods(world)
    first = await applied(world, [evict(pod) for pod in everyone[:3]], policy, store)
    assert told(first)[-1] == (Verdict.HELD, Reason.BUDGET_HOUR)
    run(world, 59 * 60)
    assert told(await applied(world, [evict(everyone[3])], policy, store)) == [(Verdict.HELD, Reason.BUDGET_HOUR)]
    run(world, 2 * 60)
    assert told(await applied(world, [evict(everyone[3])], policy, store)) == [(Verdict.DONE, Reason.DOES_NOT_FIT)]


async def test_resizes_and_taints_have_no_budget():
    world = cluster(workload(replicas=2))
    nothing = replace(FULL, max_evictions_per_node=0, max_evictions_per_workload=0, max_evictions_per_hour=0)
    actions: list[Action] = [*(sized(pod, 100, 100) for pod in await pods(world)), TaintNode("n1", Reason.OVERLOADED)]
    assert {outcome.verdict for outcome in await applied(world, actions, nothing)} == {Verdict.DONE}


# ---- what the world refuses ----


def budget(name: str, **bounds: int) -> BudgetRule:
    return BudgetRule("shop", name, LabelSelector((Requirement("app", Operator.IN, (name,)),)), **bounds)


async def test_a_disruption_budget_refuses_and_its_node_is_left_in_peace():
    world = cluster([workload("a", replicas=2), workload("b")], budgets=[budget("a", min_available=2)])
    a, b = (await pods(world, "a"))[0], await only_pod(world, "b")
    store = MemoryStore()
    outcomes = await applied(world, [evict(a), evict(b)], store=store)
    # With `a` the node does not fit: were `b` to go as well, it might be in vain.
    assert told(outcomes) == [
        (Verdict.REFUSED, Reason.DISRUPTION_BUDGET),
        (Verdict.HELD, Reason.DISRUPTION_BUDGET),
    ]
    assert "disruption budget a" in outcomes[0].detail
    assert await store.evictions_since(START) == []
    assert told(await applied(world, [evict(b)])) == [(Verdict.DONE, Reason.DOES_NOT_FIT)]


async def test_nothing_grows_on_account_of_a_pod_that_had_to_stay():
    everywhere = [workload("a", replicas=2), workload("b"), workload("c")]
    world = cluster(everywhere, budgets=[budget("a", min_available=2)])
    a, b, c = (await pods(world, "a"))[0], await only_pod(world, "b"), await only_pod(world, "c")
    crossing = sized(c, 600, 100, resources(100, 0))
    outcomes = await applied(world, [evict(a), sized(b, 600, 512, resources(100, 0)), crossing])
    # The node has room, and yet does not hold what its pods need. What shrinks may shrink.
    assert told(outcomes)[1:] == [(Verdict.HELD, Reason.WAITING_FOR_ROOM), (Verdict.DONE, Reason.RIGHTSIZED)]
    assert await requests_of(world, c.name) == amounts(500, 100)


async def test_what_an_evicted_pod_leaves_is_not_handed_out_in_the_same_pass():
    world = cluster([workload("a", template(container(3500))), workload("b", template(container(500)))])
    a, b = await only_pod(world, "a"), await only_pod(world, "b")
    outcomes = await applied(world, [evict(a), sized(b, 600, 512, resources(100, 0))])
    assert told(outcomes) == [(Verdict.DONE, Reason.DOES_NOT_FIT), (Verdict.HELD, Reason.WAITING_FOR_ROOM)]


async def test_a_resize_that_the_server_refuses_is_remembered():
    world = cluster(workload(pod=template(container(500, 512, amounts(None, 1024)))))
    pod = await only_pod(world)
    store = MemoryStore()
    over_its_limit = sized(pod, 500, 2000, resources(0, 1488))
    [outcome] = await applied(world, [over_its_limit], store=store)
    assert told([outcome]) == [(Verdict.REFUSED, Reason.REFUSED)]
    known = (await store.refused_targets())[pod.uid]
    assert (known.containers, known.reason, known.at) == (over_its_limit.containers, Reason.REFUSED, world.now)


async def test_a_resize_over_the_node_counts_as_infeasible():
    world = cluster(workload(), behaviour=Behaviour(step_seconds=1, server_version=(1, 36)))
    pod = await only_pod(world)
    snapshot = await world.snapshot()
    larger = replace(snapshot, nodes=(replace(snapshot.nodes[0], allocatable=resources(64000, 8192)),))
    store = MemoryStore()
    [outcome] = await applied(world, [sized(pod, 9000, 512, resources(8500, 0))], store=store, snapshot=larger)
    assert outcome.verdict is Verdict.REFUSED
    assert (await store.refused_targets())[pod.uid].reason is Reason.RESIZE_INFEASIBLE


@pytest.mark.parametrize(
    ("cpu", "state", "why"),
    [
        (9000, ResizePending.INFEASIBLE, Reason.RESIZE_INFEASIBLE),
        (3900, ResizePending.DEFERRED, Reason.RESIZE_DEFERRED),
    ],
)
async def test_a_withdrawal_remembers_the_refused_target(cpu, state, why):
    world = cluster([workload("a"), workload("b")])
    pod = await only_pod(world, "a")
    await world.perform(sized(pod, cpu, 512))
    run(world, 10)
    waiting = await only_pod(world, "a")
    assert waiting.resize.pending is state
    store = MemoryStore()
    back = sized(waiting, 500, 512, reason=Reason.WITHDRAWN)
    assert told(await applied(world, [back], store=store)) == [(Verdict.DONE, Reason.WITHDRAWN)]
    known = (await store.refused_targets())[pod.uid]
    assert (known.containers, known.reason) == (spec_targets(waiting), why)
    assert known.containers[0].requests.cpu_millicores == cpu
    # What the other pod left, and for what the node cannot do all that it has.
    deferred = state is ResizePending.DEFERRED
    assert known.room == (resources(3500, 8192 - 512) if deferred else resources(4000, 8192))


async def test_a_taint_on_a_node_that_is_gone_is_held():
    world = cluster(workload())
    outcomes = await applied(world, [TaintNode("n9", Reason.OVERLOADED), UntaintNode("n1", Reason.LOAD_FELL)])
    assert told(outcomes) == [(Verdict.HELD, Reason.GONE), (Verdict.DONE, Reason.LOAD_FELL)]
    [there] = (await world.snapshot()).nodes
    assert OVERLOADED not in there.taints


# ---- out of reach ----


@pytest.mark.parametrize("done_all_the_same", [False, True])
async def test_what_was_done_before_the_cluster_was_lost_is_in_the_audit(done_all_the_same):
    faults = Faults(answered_writes=2, all_the_same=done_all_the_same)
    world, store = FaultyCluster(cluster(workload(replicas=3)), faults), MemoryStore()
    first, second, third = await pods(world.cluster)
    with pytest.raises(Unavailable):
        await applied(world, [sized(first, 100, 100), evict(second), evict(third)], store=store)
    audited = [(one.verdict, one.action) for one in await store.outcomes(START)]
    # Nobody answered the last one: it may have been done.
    assert audited == [
        (Verdict.FAILED, evict(third)),
        (Verdict.DONE, evict(second)),
        (Verdict.DONE, sized(first, 100, 100)),
    ]
    # It counts against the budgets, as any eviction that was begun.
    assert {o.action for o in await store.evictions_since(START)} == {evict(second), evict(third)}


async def test_a_store_that_is_lost_ends_the_pass_before_the_next_eviction():
    world, store = cluster(workload(replicas=3)), Lost()
    store.lost = True
    with pytest.raises(Unavailable):
        await applied(world, [evict(pod) for pod in await pods(world)], store=store)
    assert world.tally.evictions == 1


async def test_nothing_to_do_writes_nothing():
    store = Lost()
    store.lost = True
    assert await applied(cluster(workload()), [], store=store) == []


async def test_the_audit_has_time_reason_and_action():
    world, store = cluster(workload()), MemoryStore()
    run(world, 5)
    pod = await only_pod(world)
    [outcome] = await applied(world, [evict(pod)], store=store)
    assert outcome == Outcome(START + timedelta(seconds=5), evict(pod), Verdict.DONE, Reason.DOES_NOT_FIT)
    assert list(await store.outcomes(START)) == [outcome]


@pytest.mark.parametrize(("per_second", "at_once"), [(0.5, 1), (4, 1), (50, 10), (100, 16), (10_000, 16)])
def test_no_more_is_under_way_than_a_slow_client_sends_at_once(per_second: float, at_once: int) -> None:
    assert writes_at_once(per_second) == at_once
