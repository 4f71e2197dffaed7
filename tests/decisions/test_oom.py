"""Records of OOM kills, and reactions to them."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from cruise.decisions.oom import (
    OomContext,
    build_oom_record,
    build_oom_record_from_statistics,
    build_oom_records,
    decide_oom_reaction,
)
from cruise.decisions.pod_policy.eligibility import Eligibility
from cruise.decisions.usage.estimation import sum_statistics
from cruise.domain.actions import ContainerTarget, EvictPod, ReasonCode, RefusedResize, ResizePod, SkippedPod
from cruise.domain.annotations import ORIGINAL_RESOURCES
from cruise.domain.autoscalers import LimitRangeItem, UtilizationMetric, UtilizationScaling
from cruise.domain.cluster import POD_LEVEL, ContainerRole, OomKill, Pod, QosClass
from cruise.domain.policy import (
    SEED_RULES,
    EvictionRanking,
    GuaranteedPolicy,
    MemoryLimitPolicy,
    Mode,
    OomReaction,
    Policy,
)
from cruise.domain.reasons import ReasonDetailCode
from cruise.domain.resources import MEBIBYTE, ResizePending, ResizeState, ResourceName, Resources
from cruise.domain.usage import OomRecord
from tests.builders import (
    NOW,
    NOW_SECONDS,
    make_amounts,
    make_autoscaler,
    make_container,
    make_node,
    make_pod,
    make_pod_level,
    make_ref,
    make_resources,
    make_snapshot,
    make_statistic_for,
    make_table,
    make_workload,
)

FULL = Policy(mode=Mode.FULL)
SEEDED = replace(FULL, rules=SEED_RULES)
AMPLE = make_resources(1000, 8192)


def pod_of(memory_mib=200, limit_mib: int | None = 256, **fields) -> Pod:
    return make_pod(containers=[make_container(memory_mib=memory_mib, memory_limit_mib=limit_mib)], **fields)


def kill_of(pod: Pod, limit_mib: int | None = 256, last_mib: int | None = 250, container="app") -> OomKill:
    return OomKill(
        namespace=pod.namespace,
        pod=pod.name,
        pod_uid=pod.uid,
        container=container,
        workload=pod.workload,
        identity=pod.identity,
        node=pod.node,
        finished_at=NOW,
        memory_limit_bytes=None if limit_mib is None else limit_mib * MEBIBYTE,
        memory_request_bytes=200 * MEBIBYTE,
        last_working_set_bytes=None if last_mib is None else last_mib * MEBIBYTE,
    )


def react(
    pod: Pod,
    record: OomRecord | None = None,
    *,
    free_capacity: Resources = AMPLE,
    last_seen: Pod | str | None = "same",
    policy=FULL,
    version=(1, 34),
    node_known: bool = True,
    ranges=(),
    refused: RefusedResize | None = None,
    last: datetime | None = None,
    statistic=None,
    swaps: bool = False,
    **snapshot,
) -> ResizePod | EvictPod | SkippedPod:
    """React to a kill of `app` at 256 MiB, with a 7-day maximum of 240 MiB known."""
    rows = [
        make_statistic_for(pod, c.name, **({"memory_base_mib": 100, "memory_peak_mib": 240} | (statistic or {})))
        for c in pod.containers
    ]
    node = make_node(kubelet_version=version, memory_swaps=swaps)
    whole = make_snapshot([pod], nodes=[node], **snapshot)
    scene = OomContext(
        node if node_known else None, free_capacity, {row.key.container: row for row in rows}, ranges, refused, last
    )
    eligibility = Eligibility(whole, make_table(*rows), {}, policy, NOW)
    found = pod if last_seen == "same" else last_seen
    assert not isinstance(found, str)
    return decide_oom_reaction(
        record or build_oom_record(kill_of(pod), rows[0]), found, scene, eligibility, policy, NOW
    )


def grown(pod: Pod, *more, **fields) -> ContainerTarget:
    decision = react(pod, *more, **fields)
    assert isinstance(decision, ResizePod), decision
    assert decision.reason is ReasonCode.OOM_KILLED
    assert (decision.uid, decision.node) == (pod.uid, pod.node)
    [target] = decision.containers
    return target


def held(pod: Pod, *more, **fields) -> ReasonCode:
    decision = react(pod, *more, **fields)
    assert isinstance(decision, SkippedPod), decision
    return decision.reason


# ---- OOM memory ----


@pytest.mark.parametrize(
    ("limit_mib", "last_mib", "oom_memory_mib"),
    [(256, 250, 256), (256, None, 256), (None, 250, 250), (None, 100, 240), (None, None, 240)],
)
def test_oom_memory_is_the_limit_or_the_last_observed_peak(limit_mib, last_mib, oom_memory_mib):
    pod = pod_of()
    peak = make_statistic_for(pod, memory_peak_mib=240)
    record = build_oom_record(kill_of(pod, limit_mib, last_mib), peak)
    assert record.oom_memory_bytes == oom_memory_mib * MEBIBYTE
    assert (record.workload, record.pod_uid, record.container, record.finished_at) == (
        "Deployment/web",
        pod.uid,
        "app",
        NOW,
    )


def test_without_limit_or_statistics_oom_memory_is_the_last_working_set():
    bare = make_pod(workload=None)
    record = build_oom_record(kill_of(bare, None, 77), None)
    assert (record.oom_memory_bytes, record.workload) == (77 * MEBIBYTE, "")
    assert build_oom_record(kill_of(bare, None, None), None).oom_memory_bytes == 0


def test_a_kill_far_below_the_limit_has_no_oom_memory():
    pod = pod_of(900, 16 * 1024)
    seen = make_statistic_for(pod, memory_peak_mib=900)
    record = build_oom_record(kill_of(pod, 16 * 1024, 900), seen)
    assert record.oom_memory_bytes == 0
    decision = react(pod, record, statistic={"memory_peak_mib": 900, "memory_7d_max_mib": 900})
    assert decision == SkippedPod(
        pod.namespace, pod.name, ReasonCode.RECORDED_ONLY, ReasonDetailCode.NODE_OUT_OF_MEMORY
    )


def test_oom_memory_is_at_most_half_above_the_observed_use():
    pod = pod_of(300, 1024)
    record = build_oom_record(kill_of(pod, 1024, 400), make_statistic_for(pod, memory_peak_mib=300))
    assert record.oom_memory_bytes == 600 * MEBIBYTE


def test_several_kills_are_recorded_in_order_of_time():
    """1.5 × the peak, and then 1.5 × that."""
    pod = pod_of(300, 1024)
    first = kill_of(pod, 1024, None)
    second = replace(first, finished_at=NOW + timedelta(minutes=9))
    table = make_table(make_statistic_for(pod, memory_peak_mib=300))
    for kills in ([first, second], [second, first]):
        raised = [one.oom_memory_bytes // MEBIBYTE for one in build_oom_records(kills, table)]
        assert raised == [450, 675]
    assert build_oom_records([], table) == []


# ---- the ceiling of the limit ----


def limits_in_template(limit_mib: int | None):
    stated = {} if limit_mib is None else {"app": limit_mib * MEBIBYTE}
    return {"workloads": [replace(make_workload(), memory_limits=stated)]}


@pytest.mark.parametrize(
    ("template_mib", "limit_mib", "next_mib"),
    [(1024, 1024, 2048), (1024, 1536, 2048), (4096, 1024, 2048), (None, 1024, 2048), (None, 10_000, 16_384)],
)
def test_a_kill_raises_a_limit_to_twice_the_templates_within_the_node(template_mib, limit_mib, next_mib):
    pod = pod_of(limit_mib // 2, limit_mib)
    record = build_oom_record(kill_of(pod, limit_mib, limit_mib), None)
    target = grown(
        pod, record, free_capacity=make_resources(8000, 99_999), statistic={}, **limits_in_template(template_mib)
    )
    assert target.limits.memory_bytes == next_mib * MEBIBYTE


def test_a_killed_pod_at_its_ceiling_is_skipped():
    pod = pod_of(2048, 2048)
    record = build_oom_record(kill_of(pod, 2048, 2048), None)
    decision = react(pod, record, **limits_in_template(1024))
    assert decision == SkippedPod(
        pod.namespace, pod.name, ReasonCode.AT_MAXIMUM, ReasonDetailCode.LIMIT_AT_CEILING.create("app")
    )


def test_an_earlier_raise_does_not_raise_the_ceiling():
    pod = replace(pod_of(2048, 2048), workload=make_ref("Rollout/web"))
    record = build_oom_record(kill_of(pod, 2048, 2048), None)
    noted = replace(pod, annotations={ORIGINAL_RESOURCES: '{"app":{"limits":{"memory":"1Gi"}}}'})
    assert held(noted, record) is ReasonCode.AT_MAXIMUM


# ---- grow in place ----


def test_the_request_grows_to_the_limit_at_the_kill_and_the_limit_to_twice_that():
    target = grown(pod_of())
    assert target.requests == make_amounts(100, 256)
    assert target.limits == make_amounts(None, 512)


def test_a_larger_seven_day_maximum_counts_for_the_limit():
    target = grown(pod_of(), statistic={"memory_7d_max_mib": 400}, policy=SEEDED)
    assert (target.requests.memory_bytes, target.limits.memory_bytes) == (256 * MEBIBYTE, 800 * MEBIBYTE)


def test_the_limit_is_never_below_present_use_and_never_falls():
    assert grown(pod_of(), statistic={"memory_last_mib": 500}, policy=SEEDED).limits.memory_bytes == 600 * MEBIBYTE
    large = pod_of(limit_mib=2048)
    record = build_oom_record(kill_of(large, limit_mib=256), None)
    assert grown(large, record).limits.memory_bytes == 2048 * MEBIBYTE


def test_growth_is_counted_as_kube_scheduler_does():
    pod = pod_of()
    decision = react(pod)
    assert isinstance(decision, ResizePod)
    assert decision.growth == make_resources(0, 56)
    # An init container that requests more already uses the capacity.
    setup = make_container("setup", memory_mib=1000, role=ContainerRole.INIT)
    hidden = react(replace(pod, containers=(setup, *pod.containers)), free_capacity=Resources())
    assert isinstance(hidden, ResizePod)
    assert hidden.growth == Resources()


def test_other_containers_are_unchanged():
    pod = make_pod(containers=[make_container(memory_mib=200, memory_limit_mib=256), make_container("b")])
    assert grown(pod).container == "app"


@pytest.mark.parametrize(("version", "limit_mib"), [((1, 34), 512), (None, 512), ((1, 33), None)])
def test_a_limit_is_added_where_the_kubelet_can(version, limit_mib):
    pod = pod_of(limit_mib=None)
    always = replace(FULL, memory_limits=MemoryLimitPolicy.ALWAYS)
    target = grown(pod, build_oom_record(kill_of(pod, None, 256), None), version=version, policy=always)
    assert grown(pod, build_oom_record(kill_of(pod, None, 256), None), version=version).limits == make_amounts()
    assert target == ContainerTarget("app", ContainerRole.MAIN, make_amounts(100, 256), make_amounts(None, limit_mib))


def test_no_limit_is_added_without_known_use():
    pod = pod_of(limit_mib=None, memory_mib=None)
    record = build_oom_record(kill_of(pod, None, None), None)
    nothing = {"memory_base_mib": 1, "memory_peak_mib": 1}
    target = grown(pod, record, statistic=nothing)
    assert (target.requests, target.limits) == (make_amounts(100, 16), make_amounts())


def test_a_node_short_of_cpu_may_still_have_memory():
    assert grown(pod_of(), free_capacity=make_resources(-300, 56)).requests.memory_bytes == 256 * MEBIBYTE


# ---- evict ----


def test_without_capacity_the_pod_is_evicted():
    decision = react(pod_of(), free_capacity=make_resources(4000, 55))
    assert isinstance(decision, EvictPod)
    assert (decision.reason, decision.ranking) == (ReasonCode.OOM_KILLED, EvictionRanking.LOW)


@pytest.mark.parametrize(
    ("reaction", "kind"), [(OomReaction.EVICT, EvictPod), (OomReaction.RESIZE_THEN_EVICT, ResizePod)]
)
def test_the_reaction_is_a_setting(reaction, kind):
    assert isinstance(react(pod_of(), policy=replace(FULL, oom_reaction=reaction)), kind)
    assert held(pod_of(), policy=replace(FULL, oom_reaction=OomReaction.RECORD)) is ReasonCode.RECORDED_ONLY


def test_a_rejected_resize_is_not_repeated():
    pod = pod_of()
    target = grown(pod)
    refused = RefusedResize(pod.uid, (target,), ReasonCode.RESIZE_INFEASIBLE, NOW)
    assert isinstance(react(pod, refused=refused), EvictPod)
    elsewhere = replace(refused, containers=(replace(target, requests=make_amounts(4000, 4000)),))
    assert isinstance(react(pod, refused=elsewhere), ResizePod)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"annotations": {"cruise.io/eviction-ranking": "never"}}, ReasonCode.NOT_EVICTABLE),
        ({"annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}}, ReasonCode.NOT_EVICTABLE),
        ({"workload": "DaemonSet/agent"}, ReasonCode.NOT_EVICTABLE),
        ({"workload": "Job/import"}, ReasonCode.NOT_EVICTABLE),
        ({"workload": "RayCluster/train", "restart_policy": "OnFailure"}, ReasonCode.NOT_EVICTABLE),
        ({"annotations": {"cruise.io/mode": "resize"}}, ReasonCode.INSUFFICIENT_CAPACITY),
    ],
)
def test_a_protected_pod_without_capacity_is_skipped(fields, reason):
    pod = pod_of(**fields)
    assert held(pod, free_capacity=Resources()) is reason
    assert grown(pod).requests.memory_bytes == 256 * MEBIBYTE


# ---- skip reasons ----


@pytest.mark.parametrize(("minutes", "expected"), [(0, ReasonCode.COOLDOWN), (4.9, ReasonCode.COOLDOWN), (5, None)])
def test_the_cool_down_counts_from_the_last_reaction(minutes, expected):
    decision = react(pod_of(), last=NOW - timedelta(minutes=minutes))
    if expected is None:
        assert isinstance(decision, ResizePod)
    else:
        assert isinstance(decision, SkippedPod)
        assert (decision.reason, decision.until) == (expected, NOW + timedelta(minutes=5 - minutes))


def test_a_former_or_recreated_pod_is_skipped():
    pod = pod_of()
    assert held(pod, last_seen=None) is ReasonCode.NOT_FOUND
    assert held(pod, last_seen=replace(pod, uid="another")) is ReasonCode.NOT_FOUND
    record = build_oom_record(kill_of(pod, container="gone"), None)
    assert held(pod, record) is ReasonCode.NOT_FOUND


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"namespace": "kube-system"}, ReasonCode.EXCLUDED_NAMESPACE),
        ({"annotations": {"cruise.io/mode": "off"}}, ReasonCode.MODE_OFF),
        ({"annotations": {"cruise.io/mode": "what"}}, ReasonCode.UNREADABLE_ANNOTATION),
        ({"annotations": {"cruise.io/resources": "cpu"}}, ReasonCode.MEMORY_NOT_MANAGED),
        ({"qos": QosClass.GUARANTEED}, ReasonCode.GUARANTEED),
        ({"is_mirror_pod": True}, ReasonCode.STATIC_POD),
        ({"workload": None}, ReasonCode.NO_CONTROLLER),
        ({"terminating": True}, ReasonCode.TERMINATING),
    ],
)
def test_all_skip_reasons_of_a_node_pass_apply(fields, reason):
    assert held(pod_of(**fields)) is reason


def test_unusable_statistics_skip_a_killed_pod_too():
    assert held(pod_of(), statistic={"updated_at": NOW_SECONDS - 3600}) is ReasonCode.STALE_STATISTICS
    assert held(pod_of(), statistic={"history_since": NOW_SECONDS - 60}) is ReasonCode.NEW_WORKLOAD


def test_an_autoscaler_on_memory_keeps_it():
    pod = pod_of()
    scaler = make_autoscaler("Deployment/web", "shop", ResourceName.MEMORY)
    assert held(pod, autoscalers=[scaler]) is ReasonCode.MEMORY_NOT_MANAGED
    # At its maximum of replicas it would remove a pod because of a larger request.
    metrics = (UtilizationMetric(ResourceName.MEMORY, "", 50, 80),)
    scaling = UtilizationScaling(metrics, 1, 3, 3, 3, is_active=True)
    assert held(pod, autoscalers=[replace(scaler, scaling=scaling)]) is ReasonCode.MEMORY_NOT_MANAGED


def test_bounds_apply_and_a_container_at_its_maximum_is_skipped():
    asked = pod_of(annotations={"cruise.io/memory-max": "220Mi"})
    assert grown(asked).requests.memory_bytes == 220 * MEBIBYTE
    full = pod_of(memory_mib=220, limit_mib=512, annotations={"cruise.io/memory-max": "220Mi"})
    assert held(full) is ReasonCode.AT_MAXIMUM
    tight = (LimitRangeItem(False, maximum=make_amounts(None, 300)),)
    target = grown(pod_of(), ranges=tight)
    assert (target.requests.memory_bytes, target.limits.memory_bytes) == (256 * MEBIBYTE, 300 * MEBIBYTE)
    of_pod = (LimitRangeItem(True, maximum=make_amounts(None, 300)),)
    target = grown(pod_of(), ranges=of_pod)
    assert (target.requests.memory_bytes, target.limits.memory_bytes) == (256 * MEBIBYTE, 300 * MEBIBYTE)
    too_small = (LimitRangeItem(True, maximum=make_amounts(None, 250)),)
    assert held(pod_of(), ranges=too_small) in (ReasonCode.LIMIT_RANGE, ReasonCode.AT_MAXIMUM)


def test_the_qos_class_of_the_pod_is_kept():
    pod = make_pod(containers=[make_container(cpu=100, cpu_limit=100, memory_mib=200, memory_limit_mib=256)])
    ranges = (LimitRangeItem(False, max_memory_ratio=1.0),)
    assert held(pod, ranges=ranges) is ReasonCode.QOS_CHANGE


# ---- pending resizes ----


def waiting(state: ResizePending) -> Pod:
    granted = make_amounts(100, 150)
    container = replace(
        make_container(cpu=3000, memory_mib=200, memory_limit_mib=256), allocated=granted, actual=granted
    )
    return make_pod(containers=[container, make_container("b")], resize=ResizeState(state, NOW))


@pytest.mark.parametrize("state", list(ResizePending))
def test_a_pending_resize_is_withdrawn_in_the_same_patch(state):
    # The kubelet resizes a pod as a whole: the 3000m that do not fit would block the memory.
    decision = react(waiting(state))
    assert isinstance(decision, ResizePod)
    assert [(t.container, t.requests) for t in decision.containers] == [
        ("app", make_amounts(100, 256)),
        ("b", make_amounts(100, 128)),
    ]
    more = 106 if state is ResizePending.INFEASIBLE else 56
    assert decision.growth == make_resources(0, more)


def test_a_pod_with_an_unknown_node_is_not_evicted_for_lack_of_capacity():
    assert held(make_pod(), node_known=False) is ReasonCode.NODE_NOT_READY


def test_an_old_kill_causes_no_reaction():
    pod = make_pod()
    record = replace(build_oom_record(kill_of(pod), None), finished_at=NOW - timedelta(hours=1, seconds=1))
    assert held(pod, record) is ReasonCode.RECORDED_ONLY


# ---- Guaranteed pods ----

RESIZE = replace(FULL, guaranteed=GuaranteedPolicy.RESIZE)


def guaranteed(**fields) -> Pod:
    container = make_container(cpu=500, memory_mib=256, cpu_limit=500, memory_limit_mib=256)
    return make_pod(containers=[container], **({"qos": QosClass.GUARANTEED} | fields))


def test_request_and_limit_of_a_guaranteed_pod_rise_together():
    target = grown(guaranteed(), policy=RESIZE)
    assert target.requests == target.limits == make_amounts(500, 384)  # 1.5 x the limit at the kill
    ceiled = grown(
        guaranteed(),
        policy=RESIZE,
        workloads=[make_workload(memory_limits={"app": 160 * MEBIBYTE})],
    )
    assert ceiled.requests == ceiled.limits == make_amounts(500, 320)
    assert held(guaranteed(annotations={"cruise.io/memory-max": "200Mi"}), policy=RESIZE) is ReasonCode.AT_MAXIMUM
    assert held(guaranteed(annotations={"cruise.io/memory-limits": "never"}), policy=RESIZE) is ReasonCode.AT_MAXIMUM


def test_a_guaranteed_pod_is_evicted_after_a_kill_if_its_node_lacks_capacity():
    assert isinstance(react(guaranteed(), policy=RESIZE, free_capacity=Resources()), EvictPod)
    assert held(guaranteed(), policy=FULL) is ReasonCode.GUARANTEED


def test_a_refused_cpu_resize_does_not_stop_the_growth_of_memory():
    pod = guaranteed()
    shrunk = ContainerTarget("app", ContainerRole.MAIN, make_amounts(100, 256), make_amounts(100, 256))
    refused = RefusedResize(pod.uid, (shrunk,), ReasonCode.STATIC_CPU_MANAGER, NOW, make_node().allocatable)
    assert grown(pod, policy=RESIZE, refused=refused).limits == make_amounts(500, 384)


def test_a_pod_with_a_device_is_not_evicted_after_a_kill_unless_it_is_ranked():
    pod = pod_of(extended_requests=(("nvidia.com/gpu", 1),))
    assert grown(pod).limits.memory_bytes
    assert held(pod, free_capacity=Resources()) is ReasonCode.NOT_EVICTABLE
    ranked = replace(pod, annotations={"cruise.io/eviction-ranking": "low"})
    assert isinstance(react(ranked, free_capacity=Resources()), EvictPod)


def pod_level_of(limit_mib: int | None, app_limit_mib: int | None = None) -> Pod:
    app = make_container(cpu=None, memory_mib=None if app_limit_mib is None else 200, memory_limit_mib=app_limit_mib)
    logs = make_container("logs", cpu=None, memory_mib=None)
    whole = make_pod_level(make_amounts(500, 600), make_amounts(None, limit_mib))
    return make_pod(containers=[app, logs], pod_level=whole)


def react_at_pod_level(pod: Pod, limit_mib: int, *, shared: bool, last_mib: int = 250):
    rows = [
        make_statistic_for(pod, name, memory_base_mib=base, memory_peak_mib=base)
        for name, base in (("app", last_mib), ("logs", 380))
    ]
    kill = replace(kill_of(pod, limit_mib, last_mib), shares_limit_with=("logs",) if shared else ())
    node, table = make_node(kubelet_version=(1, 36)), make_table(*rows)
    known = {row.key.container: row for row in rows} | {POD_LEVEL: sum_statistics(rows)}
    eligibility = Eligibility(make_snapshot([pod], nodes=[node]), table, {}, FULL, NOW)
    record = build_oom_record_from_statistics(kill, table)
    return decide_oom_reaction(record, pod, OomContext(node, AMPLE, known), eligibility, FULL, NOW)


def test_kill_at_a_containers_own_limit_raises_it_and_the_pods_around_it():
    decision = react_at_pod_level(pod_level_of(900, 256), 256, shared=False)
    assert isinstance(decision, ResizePod)
    whole, app = decision.containers
    assert (whole.container, app.container) == (POD_LEVEL, "app")
    assert app.limits.memory_bytes == 512 * MEBIBYTE
    assert app.requests.memory_bytes == 256 * MEBIBYTE
    assert whole.requests.memory_bytes == 656 * MEBIBYTE
    assert whole.limits.memory_bytes == 900 * MEBIBYTE
    assert decision.growth == make_resources(0, 56)


def test_kill_at_the_pods_limit_raises_the_pods_although_the_container_used_a_part_of_it():
    decision = react_at_pod_level(pod_level_of(640), 640, shared=True)
    assert isinstance(decision, ResizePod)
    [whole] = decision.containers
    assert (whole.container, whole.role) == (POD_LEVEL, ContainerRole.POD)
    # All containers together reached the limit: request at least that, limit half as much again or more.
    assert whole.requests.memory_bytes == 640 * MEBIBYTE
    assert whole.limits.resources.memory_bytes >= 960 * MEBIBYTE


def test_kill_far_below_the_pods_limit_is_the_nodes():
    decision = react_at_pod_level(pod_level_of(8000), 8000, shared=True)
    assert isinstance(decision, SkippedPod)
    assert decision.reason is ReasonCode.RECORDED_ONLY


# ---- nodes with swap ----


def test_on_a_node_that_refuses_other_memory_requests_a_killed_pod_is_evicted():
    assert isinstance(react(pod_of(), swaps=True), EvictPod)


def test_a_limit_alone_is_raised_on_a_node_with_swap():
    pod = pod_of(memory_mib=300, limit_mib=300)
    target = grown(pod, build_oom_record(kill_of(pod, 300, 250), None), swaps=True, statistic={"memory_peak_mib": 200})
    assert target.requests == pod.containers[0].requests
    assert (target.limits.memory_bytes or 0) > 300 * MEBIBYTE


def test_swap_does_not_concern_guaranteed_pods():
    assert isinstance(
        react(guaranteed(), policy=replace(FULL, guaranteed=GuaranteedPolicy.RESIZE), swaps=True), ResizePod
    )
