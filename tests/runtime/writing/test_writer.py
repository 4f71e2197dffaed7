"""Every guard before a write, on small simulated clusters."""

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from cruise.domain.actions import (
    Action,
    ActionResult,
    ContainerTarget,
    Outcome,
    ReasonCode,
    ResizePod,
    TaintNode,
    UntaintNode,
)
from cruise.domain.autoscalers import LimitRangeItem
from cruise.domain.cluster import ContainerRole, Pod
from cruise.domain.pod_resources import get_spec_targets
from cruise.domain.policy import Mode, Policy
from cruise.domain.reasons import ReasonDetailCode
from cruise.domain.resources import NO_RESOURCES, NOTHING_STATED, ResizePending, Resources, StatedResources
from cruise.domain.scheduling import OVERLOADED_TAINT, LabelRequirement, LabelSelector, SelectorOperator
from cruise.errors import UnavailableError
from cruise.runtime.writing.api_answers import WriteTimeouts
from cruise.runtime.writing.writer import ClusterWriter, compute_concurrent_writes
from cruise.simulation.cluster.cluster import SimulatedCluster
from cruise.simulation.cluster.controllers import DisruptionBudgetSpec
from cruise.simulation.cluster.state import SimulationSettings
from cruise.simulation.store import InMemoryStore
from tests.simulation.faults import ClusterFaults, FaultyCluster
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


def sized(
    pod: Pod, cpu: int, mebibytes: int, growth: Resources = NO_RESOURCES, reason=ReasonCode.RIGHTSIZED
) -> ResizePod:
    target = ContainerTarget("app", ContainerRole.MAIN, amounts(cpu, mebibytes), NOTHING_STATED)
    return replace(resize(pod), containers=(target,), growth=growth, reason=reason)


async def applied(
    world: SimulatedCluster | FaultyCluster,
    actions: Sequence[Action],
    policy=FULL,
    store: InMemoryStore | None = None,
    snapshot=None,
    *,
    writing: dict[str, Any] | None = None,
    **options: Any,
) -> list[Outcome]:
    store = InMemoryStore() if store is None else store
    now = world.cluster.now if isinstance(world, FaultyCluster) else world.now
    return await ClusterWriter(world, store, policy, **(writing or {})).apply_plan(
        actions, snapshot or await world.snapshot(), now, **options
    )


def told(outcomes: Sequence[Outcome]) -> list[tuple[ActionResult, ReasonCode]]:
    return [(outcome.result, outcome.reason) for outcome in outcomes]


async def requests_of(world: SimulatedCluster, name: str) -> StatedResources:
    pod = await world.read_pod("shop", name)
    assert pod is not None
    return pod.containers[0].requests


class Lost(InMemoryStore):
    """A store that can be read but not written to while it is `lost`."""

    lost = False

    async def record_outcomes(self, outcomes: Sequence[Outcome], completed: Collection[int] = ()) -> None:
        if self.lost:
            raise UnavailableError("the database is gone")
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
    store = InMemoryStore()
    actions: list[Action] = [sized(first, 100, 100), evict(second), TaintNode("n1", ReasonCode.OVERLOADED)]
    outcomes = await applied(world, actions, replace(FULL, mode=mode), store)
    forbidden = (ActionResult.OBSERVED, ReasonCode.MODE_FORBIDS)
    assert told(outcomes) == [
        (ActionResult.DONE, ReasonCode.RIGHTSIZED) if resizes else forbidden,
        (ActionResult.DONE, ReasonCode.NODE_OVER_CAPACITY) if evicts else forbidden,
        (ActionResult.DONE, ReasonCode.OVERLOADED) if evicts else forbidden,
    ]
    assert (world.counts.resizes_requested, world.counts.evictions) == (int(resizes), int(evicts))
    # Observations are repeated in every pass: they are not in the audit.
    audited = [outcome.result for outcome in await store.read_outcomes(START)]
    assert audited == [ActionResult.DONE] * (resizes + 2 * evicts)


async def test_a_pause_stops_every_write():
    world = cluster(workload(replicas=2))
    first, second = await pods(world)
    store = InMemoryStore()
    await store.set_paused(True)
    outcomes = await applied(world, [sized(first, 100, 100), evict(second)], store=store)
    assert told(outcomes) == [(ActionResult.OBSERVED, ReasonCode.PAUSED)] * 2
    assert await store.read_outcomes(START) == []
    await store.set_paused(False)
    assert told(await applied(world, [sized(first, 100, 100)], store=store)) == [
        (ActionResult.DONE, ReasonCode.RIGHTSIZED)
    ]


async def test_a_pause_in_the_middle_of_a_plan_stops_the_rest_with_all_under_way_answered():
    world = FaultyCluster(cluster(workload(replicas=12)), ClusterFaults(write_seconds=0.02))
    store = InMemoryStore()
    actions = [sized(pod, 100, 100) for pod in await pods(world.cluster)]

    async def pause_after_the_first() -> None:
        while not world.faults.sent:
            await asyncio.sleep(0)
        await store.set_paused(True)

    outcomes, _ = await asyncio.gather(
        applied(world, actions, store=store, writing={"concurrent": 2, "timeouts": WriteTimeouts(poll=0.005)}),
        pause_after_the_first(),
    )
    done = [outcome for outcome in outcomes if outcome.result is ActionResult.DONE]
    assert 2 <= len(done) < len(actions)
    assert set(told(outcomes)) == {
        (ActionResult.DONE, ReasonCode.RIGHTSIZED),
        (ActionResult.OBSERVED, ReasonCode.PAUSED),
    }
    assert [outcome.action for outcome in done] == world.faults.sent
    # What was done is in the audit, what was not will come again.
    assert {outcome.action for outcome in await store.read_outcomes(START)} == {one.action for one in done}


# ---- re-validation ----


async def test_a_pod_that_is_gone_or_another_is_left():
    world = cluster(workload())
    pod = await only_pod(world)
    before = await world.snapshot()
    another = replace(sized(pod, 100, 100), uid="another")
    missing = replace(sized(pod, 100, 100), pod="missing")
    # The server itself reports another uid.
    assert told(await applied(world, [another, missing])) == [
        (ActionResult.SKIPPED, ReasonCode.CHANGED),
        (ActionResult.SKIPPED, ReasonCode.NOT_FOUND),
    ]
    await world.perform(evict(pod))
    grow = sized(pod, 600, 600, resources(100, 88))
    assert (
        told(await applied(world, [grow, evict(pod)], snapshot=before))
        == [(ActionResult.SKIPPED, ReasonCode.NOT_FOUND)] * 2
    )


async def test_a_pod_whose_sizes_changed_since_is_left():
    world = cluster(workload())
    pod = await only_pod(world)
    before = await world.snapshot()
    await world.perform(sized(pod, 300, 300))
    grow = sized(pod, 600, 600, resources(100, 88))
    outcomes = await applied(world, [grow, evict(pod)], snapshot=before)
    assert told(outcomes) == [(ActionResult.SKIPPED, ReasonCode.CHANGED)] * 2


async def test_a_pure_shrink_is_not_read_anew():
    world = FaultyCluster(cluster(workload(replicas=2)), ClusterFaults())
    first, second = await pods(world.cluster)
    grow = sized(second, 600, 600, resources(100, 88))
    assert (
        told(await applied(world, [sized(first, 100, 100), grow])) == [(ActionResult.DONE, ReasonCode.RIGHTSIZED)] * 2
    )
    assert world.faults.read == [("shop", second.name)]


async def test_a_pod_that_was_bound_since_is_left():
    world = cluster(workload(pod=template(container(cpu=9000))))
    pending = await only_pod(world)
    assert pending.node is None
    snapshot = await world.snapshot()
    elsewhere = replace(snapshot, pods=(replace(pending, node="n1"),))
    outcomes = await applied(world, [sized(pending, 100, 100)], snapshot=elsewhere)
    assert told(outcomes) == [(ActionResult.SKIPPED, ReasonCode.CHANGED)]


# ---- room for grows ----


async def test_a_grow_waits_until_a_shrink_is_actual():
    # 3000 of 4000m are counted. `a` gives back 2000, `b` wants 1500 more: not before the kubelet is done.
    world = cluster([workload("a", template(container(2500))), workload("b", template(container(500)))])
    a, b = await only_pod(world, "a"), await only_pod(world, "b")
    shrink, grow = sized(a, 500, 512), sized(b, 2000, 512, resources(1500, 0))
    assert told(await applied(world, [shrink, grow])) == [
        (ActionResult.DONE, ReasonCode.RIGHTSIZED),
        (ActionResult.SKIPPED, ReasonCode.WAITING_FOR_CAPACITY),
    ]
    run(world, 30)
    assert told(await applied(world, [grow])) == [(ActionResult.DONE, ReasonCode.RIGHTSIZED)]


async def test_growing_pods_get_free_capacity_in_order():
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
    assert [outcome.result for outcome in outcomes] == [ActionResult.DONE, ActionResult.SKIPPED, ActionResult.DONE]


async def test_growth_of_memory_needs_no_free_cpu():
    world = cluster(workload(pod=template(container(4000, 512))), [node(cpu=4000)])
    pod = await only_pod(world)
    snapshot = await world.snapshot()
    smaller = replace(snapshot, nodes=(replace(snapshot.nodes[0], allocatable=resources(3900, 8192)),))
    assert told(await applied(world, [sized(pod, 4000, 1024, resources(0, 512))], snapshot=smaller)) == [
        (ActionResult.DONE, ReasonCode.RIGHTSIZED)
    ]


async def test_two_pods_that_wait_for_each_others_capacity_release_what_they_can():
    # The node is full. `a` wants memory for CPU, `b` CPU for memory: neither grow has room before the other's shrink.
    world = cluster(
        [workload("a", template(container(3000, 1000))), workload("b", template(container(1000, 7192)))],
    )
    a, b = await only_pod(world, "a"), await only_pod(world, "b")
    crossing = [
        sized(a, 1000, 4000, resources(0, 3000)),
        sized(b, 3000, 2000, resources(2000, 0)),
    ]
    store = InMemoryStore()
    first = await applied(world, crossing, store=store)
    assert told(first) == [(ActionResult.DONE, ReasonCode.RIGHTSIZED)] * 2
    assert {outcome.detail for outcome in first} == {ReasonDetailCode.GROWTH_PENDING}
    assert (await requests_of(world, a.name), await requests_of(world, b.name)) == (
        amounts(1000, 1000),
        amounts(1000, 2000),
    )
    # The audit has what was written, not what was wanted.
    written = [o.action for o in await store.read_outcomes(START)]
    assert [one.containers[0].requests for one in written if isinstance(one, ResizePod)] == [
        amounts(1000, 2000),
        amounts(1000, 1000),
    ]
    run(world, 30)
    a, b = await only_pod(world, "a"), await only_pod(world, "b")
    second = [sized(a, 1000, 4000, resources(0, 3000)), sized(b, 3000, 2000, resources(2000, 0))]
    assert told(await applied(world, second)) == [(ActionResult.DONE, ReasonCode.RIGHTSIZED)] * 2
    run(world, 30)
    [figure] = world.get_node_usage()
    assert figure.requested == resources(4000, 6000)


async def test_the_part_that_shrinks_has_to_be_worth_a_patch_and_inside_the_limit_range():
    full = [workload("a", template(container(3000, 8192)))]
    barely = sized(await only_pod(cluster(full)), 2995, 9000, resources(0, 808))
    assert told(await applied(cluster(full), [barely])) == [(ActionResult.SKIPPED, ReasonCode.WAITING_FOR_CAPACITY)]
    ranges = {"shop": (LimitRangeItem(False, maximum=amounts(None, 9000)),)}
    bounded = cluster(full, limit_ranges=ranges)
    enough = sized(await only_pod(bounded), 1000, 9000, resources(0, 808))
    # Without a limit in the target the server would refuse the part as it would the whole.
    without = replace(enough, containers=(replace(enough.containers[0], limits=NOTHING_STATED),))
    assert told(await applied(bounded, [without])) == [(ActionResult.SKIPPED, ReasonCode.WAITING_FOR_CAPACITY)]


async def test_a_reaction_to_an_oom_kill_is_applied_completely_or_not():
    world = cluster(workload(pod=template(container(3000, 8192))))
    pod = await only_pod(world)
    whole = sized(pod, 1000, 9000, resources(0, 808), ReasonCode.OOM_KILLED)
    assert told(await applied(world, [whole])) == [(ActionResult.SKIPPED, ReasonCode.WAITING_FOR_CAPACITY)]


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
    assert sum(outcome.result is ActionResult.DONE for outcome in outcomes) == len(on)
    assert {o.reason for o in outcomes if o.result is ActionResult.SKIPPED} <= {ReasonCode.NODE_EVICTION_BUDGET_SPENT}
    assert len(everyone) > len(on)


async def test_evictions_are_budgeted_by_workload_one_at_a_time():
    world = cluster([workload("a", replicas=2), workload("b", replicas=1)])
    a1, a2, b1 = [*await pods(world, "a"), *await pods(world, "b")]
    policy = replace(FULL, max_evictions_per_workload=1)
    assert told(await applied(world, [evict(a1), evict(a2), evict(b1)], policy)) == [
        (ActionResult.DONE, ReasonCode.NODE_OVER_CAPACITY),
        (ActionResult.SKIPPED, ReasonCode.WORKLOAD_EVICTION_BUDGET_SPENT),
        (ActionResult.DONE, ReasonCode.NODE_OVER_CAPACITY),
    ]
    # While the first is on its way out, or its successor not yet running, the workload is disrupted.
    assert told(await applied(world, [evict(a2)], policy)) == [
        (ActionResult.SKIPPED, ReasonCode.WORKLOAD_EVICTION_BUDGET_SPENT)
    ]
    run(world, 90)
    assert told(await applied(world, [evict(a2)], policy)) == [(ActionResult.DONE, ReasonCode.NODE_OVER_CAPACITY)]


async def test_evictions_are_budgeted_by_the_hour_over_restarts():
    world = cluster(workload(replicas=5, pod=template(container(100, 100))))
    store, policy = InMemoryStore(), replace(FULL, max_evictions_per_hour=2)
    everyone = await pods(world)
    first = await applied(world, [evict(pod) for pod in everyone[:3]], policy, store)
    assert told(first)[-1] == (ActionResult.SKIPPED, ReasonCode.HOURLY_EVICTION_BUDGET_SPENT)
    run(world, 59 * 60)
    assert told(await applied(world, [evict(everyone[3])], policy, store)) == [
        (ActionResult.SKIPPED, ReasonCode.HOURLY_EVICTION_BUDGET_SPENT)
    ]
    run(world, 2 * 60)
    assert told(await applied(world, [evict(everyone[3])], policy, store)) == [
        (ActionResult.DONE, ReasonCode.NODE_OVER_CAPACITY)
    ]


async def test_resizes_and_taints_have_no_budget():
    world = cluster(workload(replicas=2))
    nothing = replace(FULL, max_evictions_per_node=0, max_evictions_per_workload=0, max_evictions_per_hour=0)
    actions: list[Action] = [
        *(sized(pod, 100, 100) for pod in await pods(world)),
        TaintNode("n1", ReasonCode.OVERLOADED),
    ]
    assert {outcome.result for outcome in await applied(world, actions, nothing)} == {ActionResult.DONE}


# ---- what the world refuses ----


def budget(name: str, **bounds: int) -> DisruptionBudgetSpec:
    return DisruptionBudgetSpec(
        "shop", name, LabelSelector((LabelRequirement("app", SelectorOperator.IN, (name,)),)), **bounds
    )


async def test_a_node_is_skipped_after_a_disruption_budget_refused():
    world = cluster([workload("a", replicas=2), workload("b")], budgets=[budget("a", min_available=2)])
    a, b = (await pods(world, "a"))[0], await only_pod(world, "b")
    store = InMemoryStore()
    outcomes = await applied(world, [evict(a), evict(b)], store=store)
    # With `a` the node does not fit: were `b` to go as well, it might be in vain.
    assert told(outcomes) == [
        (ActionResult.REFUSED, ReasonCode.POD_DISRUPTION_BUDGET),
        (ActionResult.SKIPPED, ReasonCode.POD_DISRUPTION_BUDGET),
    ]
    assert "disruption budget a" in outcomes[0].detail
    assert await store.read_evictions_since(START) == []
    assert told(await applied(world, [evict(b)])) == [(ActionResult.DONE, ReasonCode.NODE_OVER_CAPACITY)]


async def test_nothing_grows_on_account_of_a_pod_that_had_to_stay():
    everywhere = [workload("a", replicas=2), workload("b"), workload("c")]
    world = cluster(everywhere, budgets=[budget("a", min_available=2)])
    a, b, c = (await pods(world, "a"))[0], await only_pod(world, "b"), await only_pod(world, "c")
    crossing = sized(c, 600, 100, resources(100, 0))
    outcomes = await applied(world, [evict(a), sized(b, 600, 512, resources(100, 0)), crossing])
    # The node has room, and yet does not hold what its pods need. What shrinks may shrink.
    assert told(outcomes)[1:] == [
        (ActionResult.SKIPPED, ReasonCode.WAITING_FOR_CAPACITY),
        (ActionResult.DONE, ReasonCode.RIGHTSIZED),
    ]
    assert await requests_of(world, c.name) == amounts(500, 100)


async def test_what_an_evicted_pod_leaves_is_not_handed_out_in_the_same_pass():
    world = cluster([workload("a", template(container(3500))), workload("b", template(container(500)))])
    a, b = await only_pod(world, "a"), await only_pod(world, "b")
    outcomes = await applied(world, [evict(a), sized(b, 600, 512, resources(100, 0))])
    assert told(outcomes) == [
        (ActionResult.DONE, ReasonCode.NODE_OVER_CAPACITY),
        (ActionResult.SKIPPED, ReasonCode.WAITING_FOR_CAPACITY),
    ]


async def test_a_resize_that_the_server_refuses_is_remembered():
    world = cluster(workload(pod=template(container(500, 512, amounts(None, 1024)))))
    pod = await only_pod(world)
    store = InMemoryStore()
    over_its_limit = sized(pod, 500, 2000, resources(0, 1488))
    [outcome] = await applied(world, [over_its_limit], store=store)
    assert told([outcome]) == [(ActionResult.REFUSED, ReasonCode.RESIZE_REFUSED)]
    known = (await store.read_refused_resizes())[pod.uid]
    assert (known.containers, known.reason, known.at) == (
        over_its_limit.containers,
        ReasonCode.RESIZE_REFUSED,
        world.now,
    )


async def test_a_resize_over_the_node_counts_as_infeasible():
    world = cluster(workload(), settings=SimulationSettings(step_seconds=1, server_version=(1, 36)))
    pod = await only_pod(world)
    snapshot = await world.snapshot()
    larger = replace(snapshot, nodes=(replace(snapshot.nodes[0], allocatable=resources(64000, 8192)),))
    store = InMemoryStore()
    [outcome] = await applied(world, [sized(pod, 9000, 512, resources(8500, 0))], store=store, snapshot=larger)
    assert outcome.result is ActionResult.REFUSED
    assert (await store.read_refused_resizes())[pod.uid].reason is ReasonCode.RESIZE_INFEASIBLE


@pytest.mark.parametrize(
    ("cpu", "state", "why"),
    [
        (9000, ResizePending.INFEASIBLE, ReasonCode.RESIZE_INFEASIBLE),
        (3900, ResizePending.DEFERRED, ReasonCode.RESIZE_DEFERRED),
    ],
)
async def test_a_withdrawal_remembers_the_refused_target(cpu, state, why):
    world = cluster([workload("a"), workload("b")])
    pod = await only_pod(world, "a")
    await world.perform(sized(pod, cpu, 512))
    run(world, 10)
    waiting = await only_pod(world, "a")
    assert waiting.resize.pending is state
    store = InMemoryStore()
    back = sized(waiting, 500, 512, reason=ReasonCode.WITHDRAWN)
    assert told(await applied(world, [back], store=store)) == [(ActionResult.DONE, ReasonCode.WITHDRAWN)]
    known = (await store.read_refused_resizes())[pod.uid]
    assert (known.containers, known.reason) == (get_spec_targets(waiting), why)
    assert known.containers[0].requests.cpu_millicores == cpu
    # What the other pod left, and for what the node cannot do all that it has.
    deferred = state is ResizePending.DEFERRED
    assert known.free_capacity == (resources(3500, 8192 - 512) if deferred else resources(4000, 8192))


async def test_a_taint_on_a_node_that_is_gone_is_held():
    world = cluster(workload())
    outcomes = await applied(world, [TaintNode("n9", ReasonCode.OVERLOADED), UntaintNode("n1", ReasonCode.LOAD_NORMAL)])
    assert told(outcomes) == [(ActionResult.SKIPPED, ReasonCode.NOT_FOUND), (ActionResult.DONE, ReasonCode.LOAD_NORMAL)]
    [there] = (await world.snapshot()).nodes
    assert OVERLOADED_TAINT not in there.taints


# ---- out of reach ----


@pytest.mark.parametrize("done_all_the_same", [False, True])
async def test_what_was_done_before_the_cluster_was_lost_is_in_the_audit(done_all_the_same):
    faults = ClusterFaults(answered_writes=2, all_the_same=done_all_the_same)
    world, store = FaultyCluster(cluster(workload(replicas=3)), faults), InMemoryStore()
    first, second, third = await pods(world.cluster)
    with pytest.raises(UnavailableError):
        await applied(world, [sized(first, 100, 100), evict(second), evict(third)], store=store)
    audited = [(one.result, one.action) for one in await store.read_outcomes(START)]
    # The last one had no response: it may have been done.
    assert audited == [
        (ActionResult.FAILED, evict(third)),
        (ActionResult.DONE, evict(second)),
        (ActionResult.DONE, sized(first, 100, 100)),
    ]
    # It counts against the budgets, as any eviction that was begun.
    assert {o.action for o in await store.read_evictions_since(START)} == {evict(second), evict(third)}


async def test_a_store_that_is_lost_ends_the_pass_before_the_next_eviction():
    world, store = cluster(workload(replicas=3)), Lost()
    store.lost = True
    with pytest.raises(UnavailableError):
        await applied(world, [evict(pod) for pod in await pods(world)], store=store)
    assert world.counts.evictions == 1


async def test_nothing_to_do_writes_nothing():
    store = Lost()
    store.lost = True
    assert await applied(cluster(workload()), [], store=store) == []


async def test_the_audit_has_time_reason_and_action():
    world, store = cluster(workload()), InMemoryStore()
    run(world, 5)
    pod = await only_pod(world)
    [outcome] = await applied(world, [evict(pod)], store=store)
    assert outcome == Outcome(
        START + timedelta(seconds=5), evict(pod), ActionResult.DONE, ReasonCode.NODE_OVER_CAPACITY
    )
    assert list(await store.read_outcomes(START)) == [outcome]


@pytest.mark.parametrize(("per_second", "at_once"), [(0.5, 1), (4, 1), (50, 10), (100, 16), (10_000, 16)])
def test_no_more_is_under_way_than_a_slow_client_sends_at_once(per_second: float, at_once: int) -> None:
    assert compute_concurrent_writes(per_second) == at_once
