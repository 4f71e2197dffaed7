from dataclasses import replace
from datetime import timedelta

import pytest

from cruise.domain.actions import Action, ActionResult, Outcome, ReasonCode, ResizePod, TaintNode
from cruise.domain.annotations import ORIGINAL_RESOURCES, ORIGINAL_RESOURCES_SIGNATURE
from cruise.domain.autoscalers import ResourceQuota
from cruise.domain.cluster import ClusterSnapshot, Container, Pod, Workload, WorkloadRef
from cruise.domain.original_resources import format_original_resources, sign_original_resources
from cruise.domain.policy import Mode, Policy
from cruise.domain.resources import NO_RESOURCES
from cruise.runtime.writing.evictions import PendingGrowths, WriteExclusions
from cruise.runtime.writing.guards import DecidedActions, WriteGuards
from tests.simulation.scenes import START, amounts, evict, node, resize, resources

FULL = Policy(mode=Mode.FULL, max_evictions_per_node=2, max_evictions_per_workload=1, max_evictions_per_hour=5)
WEB, DB = WorkloadRef("Deployment", "web"), WorkloadRef("StatefulSet", "db")


def pod(name: str, cpu: int = 1000, workload=WEB, on: str | None = "n1", **fields) -> Pod:
    container = Container("app", requests=amounts(cpu, 128))
    return replace(Pod("shop", name, f"uid-{name}", (container,), node=on, workload=workload), **fields)


def grow(one: Pod, by: int, **fields) -> ResizePod:
    now = one.containers[0].requests.cpu_millicores or 0
    return replace(resize(one, amounts(now + by, 128)), growth=resources(by, 0), **fields)


def guards(*actions, pods=(), policy=FULL, growths=None, workloads=None, exclusions=None, **options) -> WriteGuards:
    snapshot = ClusterSnapshot((node("n1"), node("n2")), tuple(pods), workloads=workloads or {})
    growths = growths or PendingGrowths()
    decided = DecidedActions(actions, snapshot, START, **options)
    return WriteGuards(decided, policy, growths, exclusions or WriteExclusions())


def done(action, minutes: int = 0) -> Outcome:
    return Outcome(START + timedelta(minutes=minutes), action, ActionResult.DONE, action.reason)


# ---- mode ----


@pytest.mark.parametrize("mode", Mode)
def test_modes_stop_short_of_actions(mode):
    one = pod("a")
    actions: list[Action] = [resize(one), evict(one), TaintNode("n1", ReasonCode.OVERLOADED)]
    policy = replace(FULL, mode=mode)
    allowed = [not guards(pods=[one], policy=policy).is_forbidden_by_mode(action) for action in actions]
    assert allowed == [mode >= Mode.RESIZE, mode >= Mode.FULL, mode >= Mode.FULL]
    asked = guards(pods=[one], policy=policy, user_requested=True)
    assert not any(asked.is_forbidden_by_mode(action) for action in actions)


# ---- room ----


def test_free_capacity_is_what_the_node_does_not_count():
    a, b, elsewhere, pending = pod("a"), pod("b", 2000), pod("c", 4000, on="n2"), pod("d", 4000, on=None)
    one, other = grow(a, 1000), grow(a, 1001)
    guard = guards(one, other, pods=[a, b, elsewhere, pending])
    assert guard.has_capacity(one)
    assert not guard.has_capacity(other)
    # A pod that waits for a node takes no room yet, and a shrink none at all.
    assert guard.has_capacity(grow(pending, 9000, node=None))
    assert guard.has_capacity(resize(a, amounts(1, 1)))


def test_taken_capacity_is_unavailable_until_it_is_released():
    a, b = pod("a"), pod("b")
    first, second = grow(a, 1500), grow(b, 1500)
    grows = PendingGrowths()
    mine, others = guards(first, pods=[a, b], growths=grows), guards(second, pods=[a, b], growths=grows)
    give_back = mine.consume(first)
    # It may be retried by the action that took it, and no other has it.
    assert mine.has_capacity(first)
    assert not others.has_capacity(second)
    give_back()
    assert others.has_capacity(second)


def test_a_plan_whose_snapshot_shows_a_grow_counts_it_once():
    a, b = pod("a"), pod("b")
    first, grows = grow(a, 1500), PendingGrowths()
    guards(first, pods=[a, b], growths=grows).consume(first)
    later = replace(a, containers=(replace(a.containers[0], requests=first.containers[0].requests),))
    assert guards(grow(b, 500), pods=[later, b], growths=grows).has_capacity(grow(b, 500))
    assert not guards(grow(b, 501), pods=[later, b], growths=grows).has_capacity(grow(b, 501))


def test_a_shrink_leaves_no_trace_and_a_grow_of_another_stops_stale_ones():
    a = pod("a")
    grows = PendingGrowths()
    shrink, bigger = resize(a, amounts(500, 128)), grow(a, 500, reason=ReasonCode.OOM_KILLED)
    mine, others = guards(shrink, pods=[a], growths=grows), guards(bigger, pods=[a], growths=grows)
    mine.consume(shrink)
    assert not others.is_resized_by_other(bigger)
    others.consume(bigger)
    assert mine.is_resized_by_other(shrink)
    assert not others.is_resized_by_other(bigger)


# ---- the pod as it is now ----


def test_what_is_read_anew():
    a = pod("a")
    guard = guards(pods=[a])
    assert not guard.requires_fresh_read(resize(a))
    assert not guard.requires_fresh_read(TaintNode("n1", ReasonCode.OVERLOADED))
    for action in (
        evict(a),
        grow(a, 1),
        replace(resize(a), node=None),
        replace(resize(a), reason=ReasonCode.WITHDRAWN),
        replace(resize(a), reason=ReasonCode.OOM_KILLED),
        replace(resize(a), reason=ReasonCode.REVERTED),
    ):
        assert guard.requires_fresh_read(action)


@pytest.mark.parametrize(
    ("now", "reason"),
    [
        (None, ReasonCode.NOT_FOUND),
        (pod("a", uid="another"), ReasonCode.NOT_FOUND),
        (pod("a", terminating=True), ReasonCode.NOT_FOUND),
        (pod("a", phase="Failed"), ReasonCode.NOT_FOUND),
        (pod("a", on="n2"), ReasonCode.CHANGED),
        (pod("a", 999), ReasonCode.CHANGED),
        (pod("a"), None),
    ],
)
def test_why_a_pod_is_not_what_was_decided_on(now, reason):
    action = evict(pod("a"))
    assert guards(action, pods=[pod("a")]).explain_change(action, now) is reason


def test_original_sizes_are_what_was_requested_unless_the_webhook_signed_others():
    text = format_original_resources({"app": (amounts(300, 300), amounts(None, 600))})
    plain, noted = pod("a"), pod("b", annotations={ORIGINAL_RESOURCES: text})
    signature = {ORIGINAL_RESOURCES_SIGNATURE: sign_original_resources(noted, text, b"key")}
    signed = replace(pod("c"), annotations={**noted.annotations, **signature})
    actions: list[Action] = [
        resize(plain),
        resize(noted),
        resize(signed),
        evict(plain),
        resize(pod("unknown")),
        replace(resize(plain), uid="another"),
        replace(resize(plain), reason=ReasonCode.REVERTED),
    ]
    originals = guards(*actions, pods=[plain, noted, signed]).original_sizes(actions, [b"newer", b"key"])
    assert [(one.pod_uid, one.at) for one in originals] == [(one.uid, START) for one in (plain, noted, signed)]
    assert [one.containers[0].requests for one in originals] == [amounts(1000, 128)] * 2 + [amounts(300, 300)]
    assert originals[2].containers[0].limits == amounts(None, 600)


def test_original_sizes_are_the_templates_where_the_store_has_forgotten_that_the_pod_was_resized():
    shrunk = replace(pod("a", 40), workload=WorkloadRef("Deployment", "web"))
    owner = Workload(
        shrunk.namespace,
        WorkloadRef("Deployment", "web"),
        requests={"app": amounts(1000, None)},
        memory_limits={"app": 512 * 2**20},
    )
    action = resize(shrunk)
    snapshot_of = guards(action, pods=[shrunk], workloads={(owner.namespace, owner.ref): owner})
    [original] = snapshot_of.original_sizes([action], [])
    # What the template does not state was a default when the pod was created.
    assert original.containers[0].requests == amounts(1000, 128)
    assert original.containers[0].limits.memory_bytes == 512 * 2**20


@pytest.mark.parametrize(
    ("action", "held"),
    [
        (resize(pod("a"), amounts(900, 128)), True),
        (replace(resize(pod("a"), amounts(900, 256)), growth=resources(0, 128)), True),
        (replace(resize(pod("a"), amounts(1100, 128)), growth=resources(100, 0)), False),
        (replace(resize(pod("a"), amounts(900, 128)), reason=ReasonCode.FREED_CAPACITY_FOR_PENDING_PODS), True),
        (replace(resize(pod("a"), amounts(900, 128)), reason=ReasonCode.REVERTED), False),
        (evict(pod("a")), True),
        (replace(evict(pod("a")), reason=ReasonCode.OOM_KILLED), False),
        (TaintNode("n1", ReasonCode.OVERLOADED), False),
    ],
)
def test_what_rests_on_usage_that_the_database_lost_is_held(action, held):
    exclusions = WriteExclusions()
    exclusions.history_incomplete = lambda: True
    kept = guards(action, pods=[pod("a")], exclusions=exclusions).explain_exclusion(action)
    assert kept is (ReasonCode.HISTORY_INCOMPLETE if held else None)


# ---- budgets ----


def test_evictions_of_the_hour_and_of_a_node():
    pods = [pod(f"p{number}", workload=WorkloadRef("Deployment", f"w{number}")) for number in range(6)]
    action = evict(pods[5])
    guard = guards(action, pods=pods)
    assert guard.find_exceeded_budget(action, []) is None
    assert guard.find_exceeded_budget(action, [done(evict(one)) for one in pods[:1]]) is None
    assert (
        guard.find_exceeded_budget(action, [done(evict(one)) for one in pods[:2]])
        is ReasonCode.NODE_EVICTION_BUDGET_SPENT
    )
    assert (
        guard.find_exceeded_budget(action, [done(evict(one), -30) for one in pods[:5]])
        is ReasonCode.HOURLY_EVICTION_BUDGET_SPENT
    )
    guard.refusing_nodes.add("n1")
    assert guard.find_exceeded_budget(action, []) is ReasonCode.POD_DISRUPTION_BUDGET


def test_a_killed_pod_does_not_wait_for_others_of_its_node():
    pods = [pod(f"p{number}", workload=WorkloadRef("Deployment", f"w{number}")) for number in range(6)]
    killed = replace(evict(pods[5]), reason=ReasonCode.OOM_KILLED)
    spent = [done(evict(one)) for one in pods[:4]]
    assert guards(killed, pods=pods).find_exceeded_budget(killed, spent) is None
    for policy, reason in (
        (replace(FULL, max_evictions_per_node=0), ReasonCode.NODE_EVICTION_BUDGET_SPENT),
        (replace(FULL, max_evictions_per_hour=4), ReasonCode.HOURLY_EVICTION_BUDGET_SPENT),
    ):
        assert guards(killed, pods=pods, policy=policy).find_exceeded_budget(killed, spent) is reason
    same = replace(killed, workload=pods[0].workload)
    budget = guards(same, pods=pods).find_exceeded_budget(same, spent)
    assert budget is ReasonCode.WORKLOAD_EVICTION_BUDGET_SPENT
    # It counts for others, which are evicted only to relieve the node.
    after = [done(killed), done(replace(killed, uid=pods[4].uid, workload=pods[4].workload))]
    other = evict(pods[0])
    assert guards(other, pods=pods).find_exceeded_budget(other, after) is ReasonCode.NODE_EVICTION_BUDGET_SPENT


def test_evictions_that_the_snapshot_shows_already_are_over():
    gone = [evict(pod(f"gone-{number}", workload=DB)) for number in range(3)]
    one = pod("a")
    guard = guards(evict(one), pods=[one, pod("leaving", workload=DB, terminating=True)])
    assert guard.find_exceeded_budget(evict(one), [done(line, -10) for line in gone]) is None
    # One that came after the snapshot is not.
    assert (
        guard.find_exceeded_budget(evict(one), [done(line, 1) for line in gone])
        is ReasonCode.NODE_EVICTION_BUDGET_SPENT
    )


def test_no_eviction_where_an_evicted_pod_came_back_unsized():
    before, after = START - timedelta(minutes=20), START - timedelta(minutes=5)
    one, evicted = pod("a", workload=DB, created_at=before), evict(pod("gone"))
    spent = [done(evicted, -10)]

    def judged(**fields) -> ReasonCode | None:
        back = replace(pod("back", created_at=after), **fields)
        return guards(evict(one), pods=[one, back]).find_exceeded_budget(evict(one), spent)

    assert judged() is ReasonCode.REPLACEMENT_NOT_RESIZED
    for fields in (
        {"annotations": {ORIGINAL_RESOURCES: "{}"}},
        {"node": "n2"},
        {"workload": DB},
        {"created_at": before},
    ):
        assert judged(**fields) is None


def test_a_workload_is_disrupted_once_at_a_time():
    first, second = pod("a"), pod("b")
    action = evict(second)
    assert guards(action, pods=[first, second]).find_exceeded_budget(action, []) is None
    for other in (replace(first, terminating=True), replace(first, phase="Pending"), replace(first, ready=False)):
        assert (
            guards(action, pods=[other, second]).find_exceeded_budget(action, [])
            is ReasonCode.WORKLOAD_EVICTION_BUDGET_SPENT
        )
    # What does not serve loses nothing by its own eviction.
    ailing = replace(second, ready=False)
    assert guards(evict(ailing), pods=[first, ailing]).find_exceeded_budget(evict(ailing), []) is None
    # Evicted by another client, and still running in the snapshot.
    assert (
        guards(action, pods=[first, second]).find_exceeded_budget(action, [done(evict(first), -1)])
        is ReasonCode.WORKLOAD_EVICTION_BUDGET_SPENT
    )
    bare = [replace(one, workload=None) for one in (replace(first, phase="Pending"), second)]
    assert guards(evict(bare[1]), pods=bare).find_exceeded_budget(evict(bare[1]), []) is None


def test_a_namespace_with_a_quota_loses_one_pod_at_a_time_to_what_does_not_fit():
    first, second = pod("a"), pod("b", workload=DB, on="n2")
    action, spent = evict(second), [done(evict(first))]
    quotas = {"shop": (ResourceQuota(amounts(1000, None)),)}
    for counted, held in ((quotas, ReasonCode.QUOTA_EXCEEDED), ({"bank": quotas["shop"]}, None)):
        snapshot = ClusterSnapshot((node("n1"), node("n2")), (first, second), quotas=counted)
        guard = WriteGuards(DecidedActions([action], snapshot, START), FULL, PendingGrowths(), WriteExclusions())
        assert guard.find_exceeded_budget(action, []) is None
        assert guard.find_exceeded_budget(action, spent) is held
        # A plan was made with all its moves in view, and a kill does not wait.
        assert guard.find_exceeded_budget(replace(action, reason=ReasonCode.OOM_KILLED), spent) is None


def test_a_shrink_is_the_part_of_a_resize_that_needs_no_free_capacity():
    one = pod("a", 2000)
    both = replace(resize(one, amounts(100, 4000)), growth=resources(0, 3872))
    part = guards(both, pods=[one]).remove_growth(both)
    assert part is not None
    assert (part.growth, part.containers[0].requests) == (NO_RESOURCES, amounts(100, 128))
    whole = replace(both, reason=ReasonCode.OOM_KILLED)
    assert guards(whole, pods=[one]).remove_growth(whole) is None
