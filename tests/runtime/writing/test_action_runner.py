"""Plans under failures: concurrent actions, throttling, rejections, pauses and cancellation."""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from cruise.domain.actions import Action, ActionResult, EvictPod, Outcome, ReasonCode, ResizePod, TaintNode
from cruise.domain.annotations import ORIGINAL_RESOURCES
from cruise.domain.cluster import Pod
from cruise.domain.pod_resources import get_spec_targets
from cruise.domain.policy import Mode, Policy
from cruise.domain.resources import NO_RESOURCES
from cruise.domain.scheduling import LabelRequirement, LabelSelector, SelectorOperator
from cruise.errors import CruiseError, RefusedError, ThrottledError, UnavailableError
from cruise.runtime.writing.api_answers import WriteTimeouts
from cruise.runtime.writing.audit import AuditQueue
from cruise.runtime.writing.evictions import EvictionLock, PendingGrowths
from cruise.runtime.writing.writer import ClusterWriter
from cruise.simulation.cluster.cluster import SimulatedCluster
from cruise.simulation.cluster.controllers import DisruptionBudgetSpec
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
from tests.tiers import examples

FULL = Policy(mode=Mode.FULL, max_evictions_per_node=9, max_evictions_per_workload=9, max_evictions_per_hour=99)
FAST = 0.005
WAITS = WriteTimeouts(poll=FAST, first_delay=0.001)


def shrink(pod: Pod, cpu: int = 100) -> ResizePod:
    return resize(pod, amounts(cpu, 100))


def grow(pod: Pod, by: int) -> ResizePod:
    now = pod.containers[0].requests
    wanted = replace(now, cpu_millicores=(now.cpu_millicores or 0) + by)
    return replace(resize(pod, wanted), growth=resources(by, 0))


async def applied(
    world: FaultyCluster,
    actions: Sequence[Action],
    store=None,
    policy=FULL,
    *,
    concurrent=16,
    timeouts=WAITS,
    **options,
) -> list[Outcome]:
    writer = ClusterWriter(
        world, InMemoryStore() if store is None else store, policy, concurrent=concurrent, timeouts=timeouts
    )
    return await writer.apply_plan(actions, await world.snapshot(), world.cluster.now, **options)


def told(outcomes: Sequence[Outcome]) -> list[tuple[ActionResult, ReasonCode]]:
    return [(outcome.result, outcome.reason) for outcome in outcomes]


def many(replicas: int = 40, **faults) -> FaultyCluster:
    big = node(cpu=400_000, mebibytes=800_000, allocatable_pods=1000)
    return FaultyCluster(cluster(workload(replicas=replicas), [big]), ClusterFaults(**faults))


# ---- many at once ----


@pytest.mark.parametrize(("concurrent", "most"), [(1, 1), (4, 4), (16, 16), (100, 40)])
async def test_so_many_are_under_way_together_and_no_more(concurrent, most):
    # Longer than it takes to begin them all on a busy machine.
    world = many(write_seconds=0.005 * concurrent)
    outcomes = await applied(world, [shrink(pod) for pod in await pods(world.cluster)], concurrent=concurrent)
    assert set(told(outcomes)) == {(ActionResult.DONE, ReasonCode.RIGHTSIZED)}
    assert world.faults.max_in_progress == most


async def test_outcomes_are_in_the_order_of_their_actions():
    world = many(write_seconds=0.0005)
    actions = [shrink(pod) for pod in await pods(world.cluster)]
    assert [outcome.action for outcome in await applied(world, actions)] == actions


class Recording(FaultyCluster):
    """Notes when each write begins and ends."""

    def __init__(self, inner: SimulatedCluster, faults: ClusterFaults) -> None:
        super().__init__(inner, faults)
        self.events: list[tuple[str, Action]] = []

    async def perform(self, action: Action) -> None:
        self.events.append(("begins", action))
        try:
            await super().perform(action)
        finally:
            self.events.append(("ends", action))


def phase(action: Action) -> int:
    if isinstance(action, EvictPod):
        return 1
    return 2 if isinstance(action, ResizePod) and action.growth != NO_RESOURCES else 0


@given(
    kinds=st.lists(st.tuples(st.sampled_from(["shrink", "grow", "evict", "taint"]), st.integers(0, 11)), max_size=16),
    concurrent=st.integers(1, 6),
)
@examples(40)
async def test_shrinks_end_before_evictions_begin_and_those_before_grows(kinds, concurrent):
    nodes = [node(f"n{number}", cpu=6000) for number in range(3)]
    world = Recording(cluster(workload(replicas=12), nodes), ClusterFaults(write_seconds=0.0001))
    there = await pods(world.cluster)
    make: dict[str, Callable[[Pod], Action]] = {
        "shrink": shrink,
        "grow": lambda pod: grow(pod, 50),
        "evict": evict,
        "taint": lambda pod: TaintNode(pod.node or "", ReasonCode.OVERLOADED),
    }
    actions = [make[kind](there[index]) for kind, index in kinds]
    outcomes = await applied(world, actions, concurrent=concurrent)
    assert [outcome.action for outcome in outcomes] == actions
    under_way: list[Action] = []
    latest = 0
    for event, action in world.events:
        if event == "ends":
            under_way.remove(action)
            continue
        assert phase(action) >= latest
        latest = phase(action)
        assert all(phase(other) == latest for other in under_way)
        if phase(action) == 1:
            assert under_way == []
        if phase(action) == 2:
            assert isinstance(action, ResizePod)
            assert all(isinstance(other, ResizePod) and other.node != action.node for other in under_way)
        under_way.append(action)
        assert len(under_way) <= concurrent
    for figure in world.cluster.get_node_usage():
        assert figure.requested.fits_in(figure.allocatable)


async def test_the_store_is_not_read_for_every_action():
    class Counting(InMemoryStore):
        def __init__(self) -> None:
            super().__init__()
            self.asked: Counter[str] = Counter()

        async def is_paused(self) -> bool:
            self.asked["paused"] += 1
            return await super().is_paused()

        async def record_original_sizes(self, originals) -> None:
            self.asked["originals"] += 1
            await super().record_original_sizes(originals)

        async def record_outcomes(self, outcomes, completed: Collection[int] = ()) -> None:
            self.asked["record"] += 1
            await super().record_outcomes(outcomes, completed)

    world, store = many(400), Counting()
    actions = [shrink(pod) for pod in await pods(world.cluster)]
    outcomes = await ClusterWriter(world, store, FULL).apply_plan(actions, await world.snapshot(), START)
    assert {outcome.result for outcome in outcomes} == {ActionResult.DONE}
    assert store.asked["originals"] == 1
    # Once before the first write, and then by the clock.
    assert store.asked["paused"] + store.asked["record"] < 40
    assert len(await store.read_outcomes(START)) == 400


# ---- a pause, and a store that cannot read it ----


async def test_nothing_is_written_by_an_answer_that_is_too_old():
    class Slow(InMemoryStore):
        answers = 0

        async def is_paused(self) -> bool:
            self.answers += 1
            if self.answers > 1:
                await hold.wait()
            return await super().is_paused()

    hold = asyncio.Event()
    world, store = many(write_seconds=0.002), Slow()
    actions = [shrink(pod) for pod in await pods(world.cluster)]
    plan = asyncio.ensure_future(applied(world, actions, store, concurrent=2))
    while store.answers < 2:
        await asyncio.sleep(FAST)
    # Longer than the first answer is used, and a write takes.
    await asyncio.sleep(20 * FAST)
    sent = len(world.faults.sent)
    await asyncio.sleep(5 * FAST)
    assert len(world.faults.sent) == sent < len(actions)
    await store.set_paused(True)
    hold.set()
    outcomes = await plan
    assert len(world.faults.sent) == sent
    assert Counter(told(outcomes))[ActionResult.OBSERVED, ReasonCode.PAUSED] == len(actions) - sent


async def test_writes_that_wait_for_the_rate_limit_when_cruise_is_paused_are_not_sent():
    class Waiting(FaultyCluster):
        waiting = 0

        async def wait_for_write_turn(self) -> None:
            self.waiting += 1
            await turn.wait()

    turn = asyncio.Event()
    world, store = Waiting(many(3).cluster, ClusterFaults()), InMemoryStore()
    first, second, third = await pods(world.cluster)
    plan = asyncio.ensure_future(applied(world, [shrink(first), shrink(second), evict(third)], store))
    while world.waiting < 2:
        await asyncio.sleep(FAST)
    await store.set_paused(True)
    # Longer than the last answer of the database is used.
    await asyncio.sleep(20 * FAST)
    turn.set()
    assert set(told(await plan)) == {(ActionResult.OBSERVED, ReasonCode.PAUSED)}
    assert world.faults.sent == []
    assert await store.read_open_intents() == []


async def test_if_the_store_cannot_report_pauses_nothing_is_written():
    class Lost(InMemoryStore):
        async def is_paused(self) -> bool:
            if world.faults.sent:
                raise UnavailableError("the database is gone")
            return False

    world, store = many(write_seconds=0.002), Lost()
    actions = [shrink(pod) for pod in await pods(world.cluster)]
    with pytest.raises(UnavailableError, match="paused is not known"):
        await applied(world, actions, store, concurrent=2)
    assert 0 < len(world.faults.sent) < len(actions)
    assert world.faults.in_progress == 0
    # What was done is in the audit.
    assert [o.result for o in await store.read_outcomes(START)] == [ActionResult.DONE] * len(world.faults.sent)


async def test_user_actions_are_carried_out_in_any_mode_and_while_paused():
    world, store = many(3), InMemoryStore()
    await store.set_paused(True)
    actions = [shrink(pod) for pod in await pods(world.cluster)]
    outcomes = await applied(world, actions, store, Policy(mode=Mode.OFF), user_requested=True)
    assert set(told(outcomes)) == {(ActionResult.DONE, ReasonCode.RIGHTSIZED)}


# ---- cancelled, or out of reach ----


async def test_a_cancelled_plan_sends_nothing_more_and_audits_what_was_under_way():
    world, store = many(write_seconds=0.01), InMemoryStore()
    actions = [shrink(pod) for pod in await pods(world.cluster)]
    plan = asyncio.ensure_future(applied(world, actions, store, concurrent=4))
    while len(world.faults.sent) <= 4:
        await asyncio.sleep(0.001)
    world.faults.answering = answering = asyncio.Event()
    while world.faults.in_progress < 4:
        await asyncio.sleep(0.001)
    sent = len(world.faults.sent)
    plan.cancel()
    await asyncio.sleep(0.01)
    answering.set()
    with pytest.raises(asyncio.CancelledError):
        await plan
    assert world.faults.in_progress == 0
    assert len(world.faults.sent) == sent
    audited = await store.read_outcomes(START)
    assert {one.result for one in audited} == {ActionResult.DONE}
    assert {one.action for one in audited} == set(world.faults.sent)
    resized = [pod for pod in await pods(world.cluster) if pod.containers[0].requests.cpu_millicores == 100]
    assert len(resized) == sent


async def test_what_is_not_answered_after_a_cancellation_is_audited_as_failed():
    timeouts = replace(WAITS, response=0.01)
    world, store = many(write_seconds=60), InMemoryStore()
    actions = [shrink(pod) for pod in await pods(world.cluster)]
    plan = asyncio.ensure_future(applied(world, actions, store, concurrent=4, timeouts=timeouts))
    while world.faults.in_progress < 4:
        await asyncio.sleep(0.001)
    plan.cancel()
    with pytest.raises(asyncio.CancelledError):
        await plan
    audited = await store.read_outcomes(START)
    assert [one.result for one in audited] == [ActionResult.FAILED] * 4
    assert {one.detail for one in audited} == {"given up before it was answered: it may have been done"}


async def test_a_cancellation_is_not_hidden_by_a_store_that_is_lost_and_nothing_of_the_audit_either():
    class Lost(InMemoryStore):
        lost = False

        async def record_outcomes(self, outcomes, completed: Collection[int] = ()) -> None:
            if self.lost:
                raise UnavailableError("the database is gone")
            await super().record_outcomes(outcomes, completed)

    world, store, audit = many(write_seconds=0.01), Lost(), AuditQueue()
    writer = ClusterWriter(world, store, FULL, audit=audit)
    actions = [shrink(pod) for pod in await pods(world.cluster)]
    plan = asyncio.ensure_future(writer.apply_plan(actions, await world.snapshot(), START))
    while not world.faults.sent:
        await asyncio.sleep(0.001)
    store.lost = True
    plan.cancel()
    with pytest.raises(asyncio.CancelledError):
        await plan
    assert len(audit.unrecorded) == len(world.faults.sent)
    store.lost = False
    await writer.apply_plan([], await world.snapshot(), START)
    assert {one.action for one in await store.read_outcomes(START)} == set(world.faults.sent)


async def test_a_cancelled_plan_does_not_wait_for_a_store_that_does_not_answer():
    class Silent(InMemoryStore):
        is_silent = False

        async def record_outcomes(self, outcomes, completed: Collection[int] = ()) -> None:
            if self.is_silent:
                await asyncio.Event().wait()
            await super().record_outcomes(outcomes, completed)

    world, store, audit = many(write_seconds=0.01), Silent(), AuditQueue()
    writer = ClusterWriter(world, store, FULL, audit=audit, timeouts=WriteTimeouts(pause_check=0.01))
    actions = [shrink(pod) for pod in await pods(world.cluster)]
    plan = asyncio.ensure_future(writer.apply_plan(actions, await world.snapshot(), START))
    while not world.faults.sent:
        await asyncio.sleep(0.001)
    store.is_silent = True
    plan.cancel()
    async with asyncio.timeout(60):
        with pytest.raises(asyncio.CancelledError):
            await plan
    assert len(audit.unrecorded) == len(world.faults.sent)


async def test_a_cancellation_is_not_hidden_by_a_cluster_that_is_lost_at_the_same_time():
    def lost(action: Action) -> CruiseError:
        plan.cancel()
        return UnavailableError("no answer")

    world, store = many(2, refuse=lost), InMemoryStore()
    plan = asyncio.ensure_future(
        applied(world, [shrink(pod) for pod in await pods(world.cluster)], store, concurrent=1)
    )
    with pytest.raises(asyncio.CancelledError):
        await plan
    assert [one.result for one in await store.read_outcomes(START)] == [ActionResult.FAILED]


@pytest.mark.parametrize("all_the_same", [False, True])
async def test_a_cluster_that_is_lost_in_mid_plan_ends_the_pass_with_all_audited(all_the_same):
    world, store = many(write_seconds=0.001, answered_writes=10, all_the_same=all_the_same), InMemoryStore()
    with pytest.raises(UnavailableError):
        await applied(world, [shrink(pod) for pod in await pods(world.cluster)], store, concurrent=4)
    audited = Counter(one.result for one in await store.read_outcomes(START))
    assert audited[ActionResult.DONE] == 10
    assert 1 <= audited[ActionResult.FAILED] <= 4
    assert audited.total() == len(world.faults.sent)


# ---- too many requests ----


async def test_a_storm_of_429_slows_down_and_loses_nothing():
    storm = [ThrottledError("too many requests", 0.001) for _ in range(30)]
    world = many(write_seconds=0.0005, refuse=lambda action: storm.pop() if storm else None)
    store = InMemoryStore()
    actions = [shrink(pod) for pod in await pods(world.cluster)]
    outcomes = await applied(world, actions, store)
    done = Counter(told(outcomes))
    # One that met the storm again and again is left to the next pass; all others went through.
    assert done[ActionResult.DONE, ReasonCode.RIGHTSIZED] >= len(actions) - 30 // 5
    assert done[ActionResult.REFUSED, ReasonCode.THROTTLED] + done[ActionResult.DONE, ReasonCode.RIGHTSIZED] == len(
        actions
    )
    assert len(world.faults.sent) <= len(actions) + 30


async def test_a_server_that_only_answers_429_is_retried_a_few_times():
    world, store = many(400, refuse=lambda action: ThrottledError("too many requests", 0.01)), InMemoryStore()
    actions = [shrink(pod) for pod in await pods(world.cluster)]
    outcomes = await applied(world, actions, store, timeouts=replace(WAITS, max_total_delay=0.05))
    assert {outcome.reason for outcome in outcomes} == {ReasonCode.THROTTLED}
    # The first wave, and then one at a time.
    assert len(world.faults.sent) <= 16 + 12
    # The audit has those that were tried.
    assert len(await store.read_outcomes(START)) < 16 + 12


async def test_an_overloaded_server_is_no_disruption_budget():
    storm = [ThrottledError("too many requests", 0.001) for _ in range(2)]
    world = many(2, refuse=lambda action: storm.pop() if storm else None)
    outcomes = await applied(world, [evict(pod) for pod in await pods(world.cluster)])
    assert told(outcomes) == [(ActionResult.DONE, ReasonCode.NODE_OVER_CAPACITY)] * 2
    for refusal in (ThrottledError("budget", None), ThrottledError("budget", 10, "DisruptionBudget")):
        world = many(2, refuse=lambda action, refusal=refusal: refusal)
        outcomes = await applied(world, [evict(pod) for pod in await pods(world.cluster)])
        assert told(outcomes) == [
            (ActionResult.REFUSED, ReasonCode.POD_DISRUPTION_BUDGET),
            (ActionResult.SKIPPED, ReasonCode.POD_DISRUPTION_BUDGET),
        ]
        assert len(world.faults.sent) == 1


# ---- refusals by cause ----


@pytest.mark.parametrize(
    ("cause", "reason", "remembered_as"),
    [
        ("NodeCapacity", ReasonCode.RESIZE_INFEASIBLE, ReasonCode.RESIZE_INFEASIBLE),
        ("QuotaExceeded", ReasonCode.QUOTA_EXCEEDED, None),
        ("LimitRange", ReasonCode.RESIZE_REFUSED, ReasonCode.RESIZE_REFUSED),
        ("QosClassChange", ReasonCode.RESIZE_REFUSED, ReasonCode.RESIZE_REFUSED),
        ("FieldValueInvalid", ReasonCode.RESIZE_REFUSED, ReasonCode.RESIZE_REFUSED),
        ("AdmissionDenied", ReasonCode.RESIZE_REFUSED, ReasonCode.RESIZE_REFUSED),
        ("Forbidden", ReasonCode.FORBIDDEN, None),
        ("Unauthorized", ReasonCode.FORBIDDEN, None),
    ],
)
async def test_what_a_refused_resize_teaches(cause, reason, remembered_as):
    world, store = many(1, refuse=lambda action: RefusedError("no", cause)), InMemoryStore()
    [pod] = await pods(world.cluster)
    assert told(await applied(world, [shrink(pod)], store)) == [(ActionResult.REFUSED, reason)]
    remembered = (await store.read_refused_resizes()).get(pod.uid)
    assert (remembered and remembered.reason) == remembered_as
    if remembered is not None:
        assert remembered.containers == shrink(pod).containers


async def test_what_is_forbidden_is_audited_once_and_tried_no_more():
    def refuse(action: Action) -> CruiseError | None:
        return RefusedError("cannot patch pods/resize", "Forbidden") if isinstance(action, ResizePod) else None

    world, store = many(60, write_seconds=0.001, refuse=refuse), InMemoryStore()
    first, *others = await pods(world.cluster)
    actions: list[Action] = [shrink(pod) for pod in others]
    actions += [evict(first), grow(others[0], 5)]
    with capture_logs() as logs:
        outcomes = await applied(world, actions, store)
    by_reason = Counter(told(outcomes))
    assert by_reason[ActionResult.REFUSED, ReasonCode.FORBIDDEN] == 1
    assert by_reason[ActionResult.SKIPPED, ReasonCode.FORBIDDEN] == len(actions) - 2
    # Another verb may be permitted.
    assert by_reason[ActionResult.DONE, ReasonCode.NODE_OVER_CAPACITY] == 1
    assert len(world.faults.sent) <= 16 + 1
    assert [line["event"] for line in logs].count("not permitted") == 1
    assert len(await store.read_outcomes(START)) == 2


async def test_a_pod_with_two_disruption_budgets_is_not_evicted_and_no_other_is_evicted_in_vain():
    of_a = LabelSelector((LabelRequirement("app", SelectorOperator.IN, ("a",)),))
    two = [DisruptionBudgetSpec("shop", name, of_a, max_unavailable=1) for name in ("one", "other")]
    world = FaultyCluster(cluster([workload("a"), workload("b")], budgets=two), ClusterFaults())
    a, b = await pods(world.cluster)
    assert told(await applied(world, [evict(a), evict(b)])) == [
        (ActionResult.REFUSED, ReasonCode.NOT_EVICTABLE),
        (ActionResult.SKIPPED, ReasonCode.POD_DISRUPTION_BUDGET),
    ]


async def test_an_admission_webhook_that_fails_holds_up_its_own_objects_alone():
    broken = ThrottledError("failed calling webhook", None, "WebhookFailed")
    world = many(90, refuse=lambda action: broken)
    actions = [shrink(pod) for pod in await pods(world.cluster)]
    outcomes = await applied(world, actions)
    assert {outcome.reason for outcome in outcomes} == {ReasonCode.THROTTLED}
    # If nothing else is due, not everything is tried.
    assert 50 <= len(world.faults.sent) <= 50 + 16
    world.faults.refuse = lambda action: broken if action in actions[::2] else None
    outcomes = await applied(world, actions)
    assert Counter(told(outcomes)) == {
        (ActionResult.REFUSED, ReasonCode.THROTTLED): 45,
        (ActionResult.DONE, ReasonCode.RIGHTSIZED): 45,
    }


async def test_an_eviction_that_a_budget_refuses_for_good_is_audited_as_such():
    world = many(1, refuse=lambda action: RefusedError("disruptionsAllowed is negative", "DisruptionBudget"))
    assert told(await applied(world, [evict(pod) for pod in await pods(world.cluster)])) == [
        (ActionResult.REFUSED, ReasonCode.POD_DISRUPTION_BUDGET)
    ]


# ---- audit lines ----


async def test_a_skip_is_audited_when_it_changes_and_not_at_every_pass():
    world, store, audit = many(2), InMemoryStore(), AuditQueue()
    actions = [evict(pod) for pod in await pods(world.cluster)]
    none = replace(FULL, max_evictions_per_hour=0)

    async def one_pass(policy: Policy, minutes: int) -> int:
        now = START + timedelta(minutes=minutes)
        before = len(await store.read_outcomes(START))
        await ClusterWriter(world, store, policy, audit=audit).apply_plan(actions, await world.snapshot(), now)
        return len(await store.read_outcomes(START)) - before

    assert [await one_pass(none, 5 * turn) for turn in range(5)] == [2, 0, 0, 0, 0]
    assert await one_pass(replace(FULL, max_evictions_per_node=0), 25) == 2
    # Alternating results are continued within the hour.
    assert await one_pass(none, 30) == 0
    # After an hour of other things it is worth a line again.
    assert await one_pass(none, 95) == 2
    assert await one_pass(FULL, 100) == 2
    counts = [
        (line.reason, line.count) for line in await store.read_outcomes(START) if line.result is ActionResult.SKIPPED
    ]
    assert sorted(counts) == sorted(
        [
            (ReasonCode.HOURLY_EVICTION_BUDGET_SPENT, 6),
            (ReasonCode.NODE_EVICTION_BUDGET_SPENT, 1),
            (ReasonCode.HOURLY_EVICTION_BUDGET_SPENT, 1),
        ]
        * 2
    )


# ---- two plans at the same time ----


async def test_two_plans_together_spend_one_budget():
    policy = replace(FULL, max_evictions_per_hour=3)
    world, store, turns = many(12, write_seconds=0.001, read_seconds=0.001), InMemoryStore(), EvictionLock()
    there = await pods(world.cluster)
    snapshot = await world.snapshot()
    plans = [[evict(pod) for pod in there[:6]], [evict(pod) for pod in there[6:]]]
    ended = await asyncio.gather(
        *(ClusterWriter(world, store, policy, evictions=turns).apply_plan(plan, snapshot, START) for plan in plans),
    )
    assert Counter(outcome.result for outcomes in ended for outcome in outcomes)[ActionResult.DONE] == 3
    assert len(await store.read_evictions_since(START)) == 3


async def test_two_plans_together_disrupt_a_workload_once():
    policy = replace(FULL, max_evictions_per_workload=1)
    world, store = many(4, write_seconds=0.001), InMemoryStore()
    writer = ClusterWriter(world, store, policy)
    first, *_, last = await pods(world.cluster)
    snapshot = await world.snapshot()
    await writer.apply_plan([evict(first)], snapshot, START)
    # Decided before the first was seen to go, and carried out by another pass later.
    later = START + timedelta(seconds=20)
    outcomes = await writer.apply_plan([evict(last)], snapshot, later)
    assert told(outcomes) == [(ActionResult.SKIPPED, ReasonCode.WORKLOAD_EVICTION_BUDGET_SPENT)]


async def test_two_plans_together_use_the_free_capacity_of_a_node_once():
    world = FaultyCluster(
        cluster([workload(name, template(container(1500))) for name in "ab"], [node(cpu=4000)]),
        ClusterFaults(read_seconds=0.001, write_seconds=0.001),
    )
    store, grows, snapshot = InMemoryStore(), PendingGrowths(), await world.snapshot()
    a, b = await pods(world.cluster)
    ended = await asyncio.gather(
        *(
            ClusterWriter(world, store, FULL, growths=grows).apply_plan([grow(pod, 800)], snapshot, START)
            for pod in (a, b)
        )
    )
    assert sorted(told([*ended[0], *ended[1]])) == [
        (ActionResult.DONE, ReasonCode.RIGHTSIZED),
        (ActionResult.SKIPPED, ReasonCode.WAITING_FOR_CAPACITY),
    ]
    # A pass that has seen the grow counts it once.
    run(world.cluster, 30)
    c = await only_pod(world.cluster, "b" if ended[0][0].result is ActionResult.DONE else "a")
    fresh = await world.snapshot()
    assert told(await ClusterWriter(world, store, FULL, growths=grows).apply_plan([grow(c, 200)], fresh, START)) == [
        (ActionResult.DONE, ReasonCode.RIGHTSIZED)
    ]


async def test_a_stale_shrink_does_not_undo_what_another_plan_grew():
    world, grows = many(2), PendingGrowths()
    one, other = (ClusterWriter(world, InMemoryStore(), FULL, growths=grows) for _ in range(2))
    pod, _ = await pods(world.cluster)
    stale = await world.snapshot()
    whole = replace(grow(pod, 300), reason=ReasonCode.OOM_KILLED)
    assert told(await one.apply_plan([whole], stale, START)) == [(ActionResult.DONE, ReasonCode.OOM_KILLED)]
    assert told(await other.apply_plan([shrink(pod)], stale, START)) == [(ActionResult.SKIPPED, ReasonCode.CHANGED)]
    seen = await world.snapshot()
    assert told(await other.apply_plan([shrink(pod)], seen, START)) == [(ActionResult.DONE, ReasonCode.RIGHTSIZED)]


# ---- the way back ----


async def test_original_sizes_are_remembered_before_the_first_resize_alone():
    annotated = workload("noted", template(annotations={ORIGINAL_RESOURCES: "{}"}))
    world = FaultyCluster(cluster([workload("plain"), annotated]), ClusterFaults())
    store = InMemoryStore()
    plain, noted = await only_pod(world.cluster, "plain"), await only_pod(world.cluster, "noted")
    await applied(world, [shrink(plain), shrink(noted)], store)
    originals = await store.read_original_sizes([plain.uid, noted.uid])
    # An unsigned annotation is not cruise's record.
    assert {uid: one.containers for uid, one in originals.items()} == {
        plain.uid: get_spec_targets(plain),
        noted.uid: get_spec_targets(noted),
    }
    original = originals[plain.uid]
    assert original.at == START
    run(world.cluster, 60)
    [again] = [pod for pod in await pods(world.cluster) if pod.uid == plain.uid]
    await applied(world, [shrink(again, 50)], store)
    kept = (await store.read_original_sizes([plain.uid]))[plain.uid]
    assert (kept.containers, kept.at) == (original.containers, START + timedelta(seconds=60))


@pytest.mark.parametrize("mode", [Mode.OBSERVE, Mode.INITIAL])
async def test_where_nothing_may_be_written_nothing_is_remembered(mode):
    world, store = many(1), InMemoryStore()
    uids = [pod.uid for pod in await pods(world.cluster)]
    await applied(world, [shrink(pod) for pod in await pods(world.cluster)], store, Policy(mode=mode))
    assert await store.read_original_sizes(uids) == {}
    await store.set_paused(True)
    await applied(world, [shrink(pod) for pod in await pods(world.cluster)], store)
    assert await store.read_original_sizes(uids) == {}
    assert world.faults.sent == []


@given(
    steps=st.lists(st.integers(-400, 900), min_size=6, max_size=6),
    storm=st.lists(st.sampled_from(["", "429", "409", "403", "422"]), max_size=12),
)
@examples(40)
async def test_whatever_the_server_answers_no_node_is_overfilled_and_every_write_is_audited(steps, storm):
    errors = {
        "429": lambda: ThrottledError("slow", 0.0),
        "409": lambda: RefusedError("changed", "Conflict"),
        "403": lambda: RefusedError("quota", "QuotaExceeded"),
        "422": lambda: RefusedError("invalid", "FieldValueInvalid"),
    }
    answers = [errors[name]() if name else None for name in storm]
    world = FaultyCluster(
        cluster(workload(replicas=6, pod=template(container(600))), [node("n1", 2400), node("n2", 2400)]),
        ClusterFaults(refuse=lambda action: answers.pop() if answers else None),
    )
    there = await pods(world.cluster)
    actions = [
        grow(pod, by) if by > 0 else replace(grow(pod, by), growth=NO_RESOURCES)
        for pod, by in zip(there, steps, strict=True)
    ]
    store = InMemoryStore()
    outcomes = await applied(world, actions, store, concurrent=3)
    run(world.cluster, 30)
    for figure in world.cluster.get_node_usage():
        assert figure.requested.fits_in(figure.allocatable)
    done = Counter(one.action for one in outcomes if one.result is ActionResult.DONE)
    audited = Counter(one.action for one in await store.read_outcomes(START) if one.result is ActionResult.DONE)
    assert done == audited
