"""Update threshold, pending and rejected resizes, QoS and LimitRanges."""

from dataclasses import replace
from datetime import timedelta

import pytest

from cruise.decisions.pod_policy.limit_ranges import violates_limit_range
from cruise.decisions.sizing.node_plans import NodePlan, decide_node_plans
from cruise.decisions.sizing.resizes import remove_growth, would_change_qos_class
from cruise.domain.actions import ContainerTarget, ReasonCode, RefusedResize, ResizePod
from cruise.domain.autoscalers import LimitRangeItem
from cruise.domain.cluster import Container, ContainerRole, Pod
from cruise.domain.pod_resources import get_qos_class, replace_spec_resources
from cruise.domain.policy import SEED_RULES, MemoryLimitPolicy, Mode, Policy
from cruise.domain.resources import NO_RESOURCES, ResizePending, ResizeState, Resources
from tests.builders import (
    NOW,
    TRACKING,
    make_amounts,
    make_autoscaler,
    make_container,
    make_node,
    make_pod,
    make_resources,
    make_snapshot,
    make_statistic_for,
    make_table,
    make_workload,
)

FULL = Policy(mode=Mode.FULL, rules=TRACKING, memory_limits=MemoryLimitPolicy.ALWAYS)
SEEDS_IN_FULL = Policy(mode=Mode.FULL, rules=SEED_RULES)


def plan_of(
    pod: Pod, cpu=100, memory_mib=100, limit_mib: int | None = None, last_mib: int | None = None, refused=None, **more
) -> NodePlan:
    """The plan for a pod that uses the same all the time; its memory limit is twice `limit_mib`.

    Its template states no limit, so that it rises with use.
    """
    rows = [
        make_statistic_for(
            pod,
            container.name,
            cpu_base=cpu,
            cpu_peak=cpu,
            memory_base_mib=memory_mib,
            memory_peak_mib=memory_mib,
            memory_7d_max_mib=limit_mib,
            memory_last_mib=last_mib,
        )
        for container in pod.containers
    ]
    node, policy = more.pop("node", make_node()), more.pop("policy", FULL)
    more.setdefault("workloads", [replace(make_workload(), memory_limits={})])
    snapshot = make_snapshot([pod], nodes=[node], **more)
    [plan] = decide_node_plans(snapshot, make_table(*rows), policy, NOW, refused=refused)
    return plan


def only_resize(plan: NodePlan) -> ResizePod:
    [resize] = plan.resize
    return resize


def hold_of(plan: NodePlan) -> ReasonCode:
    assert plan.resize == ()
    [hold] = plan.skipped
    return hold.reason


def of(cpu=100, memory_mib=100, memory_limit_mib: int | None = 200, **more) -> Container:
    return make_container(cpu=cpu, memory_mib=memory_mib, memory_limit_mib=memory_limit_mib, **more)


def target(name="app", cpu=100, memory_mib=100, cpu_limit=None, memory_limit_mib=200, role=ContainerRole.MAIN):
    return ContainerTarget(name, role, make_amounts(cpu, memory_mib), make_amounts(cpu_limit, memory_limit_mib))


# ---- the update threshold ----


@pytest.mark.parametrize(
    ("current", "wanted", "moves"),
    [
        (100, 109, False),  # 9m
        (100, 110, True),
        (100, 91, False),
        (100, 90, True),
        (190, 200, True),  # 10m are 5.3 %
        (200, 210, True),  # 10m are 5 % exactly
        (210, 220, False),  # 10m are 4.8 %
        (1000, 1049, False),
        (1000, 1050, True),
        (1000, 951, False),
        (1000, 950, True),
    ],
)
def test_cpu_moves_by_5_percent_and_10_millicores(current, wanted, moves):
    plan = plan_of(make_pod(containers=[of(cpu=current)]), cpu=wanted)
    assert bool(plan.resize) is moves
    assert plan.skipped == ()
    assert plan.targets[0].cpu_millicores == wanted


@pytest.mark.parametrize(
    ("current", "wanted", "moves"),
    [(100, 115, False), (100, 116, True), (1000, 1049, False), (1000, 1050, True), (64, 48, True), (64, 49, False)],
)
def test_memory_moves_by_5_percent_and_16_mebibytes(current, wanted, moves):
    # The memory limit needs no change.
    pod = make_pod(containers=[of(memory_mib=current, memory_limit_mib=4000)])
    assert bool(plan_of(pod, memory_mib=wanted, limit_mib=2000).resize) is moves


@pytest.mark.parametrize(("limit", "wanted", "moves"), [(4000, 2095, False), (4000, 2100, True), (None, 2000, True)])
def test_a_new_limit_alone_causes_a_resize(limit, wanted, moves):
    pod = make_pod(containers=[of(memory_limit_mib=limit)])
    assert bool(plan_of(pod, limit_mib=wanted).resize) is moves


def test_a_new_cpu_limit_alone_causes_a_resize():
    pod = make_pod(containers=[of(cpu_limit=1000)])
    assert only_resize(plan_of(pod)).containers == (target(cpu_limit=4000),)
    assert plan_of(make_pod(containers=[of(cpu_limit=4000)])).resize == ()


def test_one_patch_has_all_containers_and_both_resources():
    pod = make_pod(
        containers=[
            make_container("setup", role=ContainerRole.INIT),
            of(name="proxy", role=ContainerRole.SIDECAR, cpu=108),
            of(cpu=700),
            of(name="logs", cpu=102, memory_mib=104),
        ]
    )
    resize = only_resize(plan_of(pod))
    # Only `app` exceeds the update threshold, and all are written; the init container never is.
    assert resize.containers == (target("proxy", role=ContainerRole.SIDECAR), target(), target("logs"))
    assert (resize.uid, resize.node, resize.reason) == (pod.uid, "n1", ReasonCode.RIGHTSIZED)


def test_an_unmanaged_resource_is_unchanged_in_the_patch():
    pod = make_pod(containers=[of(cpu=700, cpu_limit=900, memory_mib=300)])
    resize = only_resize(plan_of(pod, autoscalers=[make_autoscaler()]))
    assert resize.containers == (target(cpu=700, cpu_limit=900),)


def test_a_container_without_a_request_gets_one():
    pod = make_pod(containers=[of(cpu=None)])
    resize = only_resize(plan_of(pod))
    assert resize.containers == (target(),)
    assert resize.growth.cpu_millicores == 100


# ---- QoS ----


def test_a_pod_never_becomes_guaranteed():
    # A LimitRange with ratio 1 requires limits equal to requests.
    item = LimitRangeItem(False, max_cpu_ratio=1.0, max_memory_ratio=1.0)
    pod = make_pod(containers=[of(cpu=300, cpu_limit=300, memory_mib=300, memory_limit_mib=299)])
    assert hold_of(plan_of(pod, last_mib=80, limit_ranges={"shop": (item,)})) is ReasonCode.QOS_CHANGE
    other = make_pod(containers=[of(cpu=300, cpu_limit=300, memory_mib=300), of(name="b")])
    assert only_resize(plan_of(other)).containers[0].limits == make_amounts(4000, 200)


def test_guaranteed_depends_on_all_containers():
    same = target(cpu_limit=100, memory_limit_mib=100)
    pod = make_pod(containers=[of()])
    assert would_change_qos_class(pod, (same,))
    assert not would_change_qos_class(pod, (target(cpu_limit=101, memory_limit_mib=100),))
    assert not would_change_qos_class(pod, (target(memory_limit_mib=100),))
    with_open_init = make_pod(containers=[make_container("setup", role=ContainerRole.INIT), of()])
    assert not would_change_qos_class(with_open_init, (same,))
    assert get_qos_class(replace_spec_resources(pod, (same,))) == "Guaranteed"


def test_a_missing_request_equals_its_limit_for_the_qos_class():
    # Only CPU is managed. Its limit equals its request, and the memory limit sets the memory request.
    container = replace(make_container(cpu=300, memory_mib=None, cpu_limit=300), limits=make_amounts(300, 256))
    pod = make_pod(containers=[container], annotations={"cruise.io/resources": "cpu"})
    item = LimitRangeItem(False, max_cpu_ratio=1.0)
    assert hold_of(plan_of(pod, limit_ranges={"shop": (item,)})) is ReasonCode.QOS_CHANGE


def test_the_part_without_growth_adds_no_limit_that_would_become_the_request():
    pod = make_pod(containers=[make_container(cpu=900, memory_mib=None)])
    resize = only_resize(plan_of(pod))
    assert resize.containers == (target(),)
    part = remove_growth(pod, resize, (), FULL)
    assert part is not None
    assert part.containers == (target(memory_mib=None, memory_limit_mib=None),)
    assert remove_growth(make_pod(containers=[of(cpu=104)]), resize, (), FULL) is None


def test_a_limit_raised_for_a_request_is_unchanged_if_the_request_is():
    pod = make_pod(containers=[make_container(cpu=900, memory_mib=100, memory_limit_mib=200)])
    resize = replace(only_resize(plan_of(pod)), containers=(target(cpu=100, memory_mib=4096, memory_limit_mib=4096),))
    part = remove_growth(pod, resize, (), FULL)
    assert part is not None
    assert part.containers == (target(cpu=100, memory_mib=100, memory_limit_mib=200),)


# ---- pending resizes ----


def waiting(state: ResizePending, minutes: float, **fields) -> Pod:
    """A pod that requests 900m and 500 MiB, with 100m and 100 MiB allocated."""
    granted = make_amounts(100, 100)
    container = replace(of(cpu=900, memory_mib=500, memory_limit_mib=1000), allocated=granted, actual=granted, **fields)
    return make_pod(containers=[container], resize=ResizeState(state, NOW - timedelta(minutes=minutes)))


def test_a_deferred_resize_has_five_minutes():
    [hold] = plan_of(waiting(ResizePending.DEFERRED, 4.9)).skipped
    assert (hold.reason, hold.until) == (ReasonCode.RESIZE_DEFERRED, NOW + timedelta(minutes=0.1))
    without_time = replace(waiting(ResizePending.DEFERRED, 0), resize=ResizeState(ResizePending.DEFERRED))
    assert hold_of(plan_of(without_time)) is ReasonCode.RESIZE_DEFERRED


@pytest.mark.parametrize(("state", "minutes"), [(ResizePending.DEFERRED, 5), (ResizePending.INFEASIBLE, 0)])
def test_a_deferred_or_infeasible_resize_is_withdrawn_to_the_allocated_resources(state, minutes):
    resize = only_resize(plan_of(waiting(state, minutes)))
    assert (resize.reason, resize.growth) == (ReasonCode.WITHDRAWN, NO_RESOURCES)
    assert resize.containers == (target(memory_limit_mib=1000),)


def test_a_withdrawn_request_does_not_exceed_its_limit():
    # The rejected target lowered the memory limit to 60 MiB, below the allocated 100 MiB.
    granted = make_amounts(100, 100)
    container = replace(
        of(cpu=900, memory_mib=50, memory_limit_mib=60),
        allocated=granted,
        actual=granted,
        actual_limits=make_amounts(None, 250),
    )
    pod = make_pod(containers=[container], resize=ResizeState(ResizePending.INFEASIBLE))
    assert only_resize(plan_of(pod)).containers == (target(memory_limit_mib=250),)
    unseen = replace(pod, containers=(replace(container, actual_limits=None),))
    assert only_resize(plan_of(unseen)).containers == (target(memory_limit_mib=100),)


def test_a_rejected_withdrawal_is_not_repeated():
    pod = waiting(ResizePending.INFEASIBLE, 0)
    resize = only_resize(plan_of(pod))
    refused = {pod.uid: RefusedResize(pod.uid, resize.containers, ReasonCode.RESIZE_REFUSED, NOW)}
    assert hold_of(plan_of(pod, refused=refused)) is ReasonCode.RESIZE_INFEASIBLE


@pytest.mark.parametrize(
    ("state", "reason"),
    [(ResizePending.DEFERRED, ReasonCode.RESIZE_DEFERRED), (ResizePending.INFEASIBLE, ReasonCode.RESIZE_INFEASIBLE)],
)
def test_nothing_is_withdrawn_if_the_spec_equals_the_allocated_resources(state, reason):
    pod = make_pod(containers=[of()], resize=ResizeState(state, NOW - timedelta(hours=1)))
    assert hold_of(plan_of(pod, cpu=500)) is reason


def test_a_resize_in_progress_may_be_followed_by_another():
    pod = make_pod(containers=[of(cpu=500)], resize=ResizeState(in_progress=True))
    assert only_resize(plan_of(pod)).containers == (target(),)


# ---- rejected targets ----


def refusal(pod: Pod, reason: ReasonCode, minutes: float = 5, room: Resources | None = None, **values):
    asked = (target(**values),)
    return {pod.uid: RefusedResize(pod.uid, asked, reason, NOW - timedelta(minutes=minutes), room)}


@pytest.mark.parametrize("reason", [ReasonCode.RESIZE_INFEASIBLE, ReasonCode.RESIZE_DEFERRED])
@pytest.mark.parametrize(
    ("cpu", "memory_mib", "held"),
    [
        (900, 500, True),
        (2000, 800, True),
        (895, 500, True),  # 5m less are no less
        (860, 500, True),  # 4.4 %
        (850, 500, False),
        (900, 470, False),  # less of one is enough
        (2000, 400, False),
    ],
)
def test_a_resize_without_capacity_is_repeated_only_with_less(reason, cpu, memory_mib, held):
    pod = make_pod(containers=[of()])
    plan = plan_of(pod, cpu, memory_mib, refused=refusal(pod, reason, cpu=900, memory_mib=500))
    assert bool(plan.resize) is not held
    assert [hold.reason for hold in plan.skipped] == ([ReasonCode.RESIZE_REFUSED] if held else [])


@pytest.mark.parametrize(
    ("cpu", "memory_mib", "held"),
    [(900, 500, True), (905, 510, True), (950, 500, False), (900, 530, False), (300, 100, False)],
)
def test_a_rejected_resize_is_not_repeated_unchanged(cpu, memory_mib, held):
    pod = make_pod(containers=[of()])
    known = refusal(pod, ReasonCode.RESIZE_REFUSED, cpu=900, memory_mib=500, memory_limit_mib=1000)
    plan = plan_of(pod, cpu, memory_mib, limit_mib=500, refused=known)
    assert bool(plan.resize) is not held


@pytest.mark.parametrize(
    ("minutes", "cpu", "memory_mib", "held"),
    [
        (9.9, 4000, 16384, True),
        (10, 4000, 16384, False),
        (1, 3999, 16384, False),  # 1 m is free in addition to the request
        (1, 4000, 16383, False),
        (1, 4001, 16385, True),
    ],
)
def test_a_deferred_resize_is_repeated_once_there_is_more_capacity(minutes, cpu, memory_mib, held):
    # Alone on its node, which had `cpu` and `memory_mib` free for it before.
    pod = make_pod(containers=[of()])
    room = make_resources(cpu, memory_mib)
    known = refusal(pod, ReasonCode.RESIZE_DEFERRED, minutes, room, cpu=900, memory_mib=500)
    assert bool(plan_of(pod, 900, 500, refused=known).resize) is not held
    # Under the first rule set it is skipped for a day.
    assert hold_of(plan_of(pod, 900, 500, refused=known, policy=SEEDS_IN_FULL)) is ReasonCode.RESIZE_REFUSED


def test_an_infeasible_resize_is_repeated_once_the_node_changed():
    pod = make_pod(containers=[of()])
    same, other = make_resources(4000, 16384), make_resources(2000, 16384)
    hours = 60 * 10
    known = refusal(pod, ReasonCode.RESIZE_INFEASIBLE, hours, same, cpu=900, memory_mib=500)
    assert hold_of(plan_of(pod, 900, 500, refused=known)) is ReasonCode.RESIZE_REFUSED
    known = refusal(pod, ReasonCode.RESIZE_INFEASIBLE, hours, other, cpu=900, memory_mib=500)
    assert plan_of(pod, 900, 500, refused=known).resize


def test_a_rejected_decrease_does_not_prevent_later_growth():
    pod = make_pod(containers=[of(cpu=500, memory_mib=500)])
    known = refusal(pod, ReasonCode.RESIZE_REFUSED, cpu=100, memory_mib=100)
    assert hold_of(plan_of(pod, refused=known)) is ReasonCode.RESIZE_REFUSED
    assert only_resize(plan_of(pod, 2000, 2000, refused=known)).growth.cpu_millicores == 1500


def test_a_rejection_applies_only_to_its_pod():
    pod, other = make_pod(containers=[of()]), make_pod("web-2", containers=[of()])
    assert plan_of(pod, 900, 500, refused=refusal(other, ReasonCode.RESIZE_INFEASIBLE, cpu=900, memory_mib=500)).resize


# ---- LimitRanges ----


def two(role=ContainerRole.MAIN) -> Pod:
    return make_pod(containers=[make_container("b", role=role), make_container()])


@pytest.mark.parametrize(
    ("item", "broken"),
    [
        (LimitRangeItem(False, minimum=make_amounts(100, 100)), False),
        (LimitRangeItem(False, minimum=make_amounts(101, None)), True),
        (LimitRangeItem(False, minimum=make_amounts(None, 101)), True),
        (LimitRangeItem(False, maximum=make_amounts(None, 200)), False),
        (LimitRangeItem(False, maximum=make_amounts(None, 199)), True),
        # With a maximum the API server rejects a container without a limit.
        (LimitRangeItem(False, maximum=make_amounts(5000, None)), True),
        (LimitRangeItem(False, max_memory_ratio=2.0), False),
        (LimitRangeItem(False, max_memory_ratio=1.99), True),
        (LimitRangeItem(False, max_cpu_ratio=10.0), True),
        (LimitRangeItem(True, minimum=make_amounts(200, 200)), False),
        (LimitRangeItem(True, minimum=make_amounts(201, None)), True),
        (LimitRangeItem(True, maximum=make_amounts(None, 400)), False),
        (LimitRangeItem(True, maximum=make_amounts(None, 399)), True),
        (LimitRangeItem(True, maximum=make_amounts(5000, None)), True),
        (LimitRangeItem(True, max_memory_ratio=2.0), False),
        (LimitRangeItem(True, max_memory_ratio=1.5), True),
    ],
)
def test_sizes_that_the_server_would_reject(item, broken):
    assert violates_limit_range(two(), (target("b"), target()), (item,)) is broken
    assert violates_limit_range(two(ContainerRole.SIDECAR), (target("b"), target()), (item,)) is broken


def test_a_pods_sum_counts_the_limits_that_are_stated():
    item = LimitRangeItem(True, maximum=make_amounts(1000, None))
    targets = (target("b", cpu_limit=900), target())
    assert not violates_limit_range(two(), targets, (item,))
    assert violates_limit_range(two(), (target("b", cpu_limit=1001), target()), (item,))


def test_containers_that_are_not_resized_count_for_the_server_too():
    setup = make_container("setup", cpu=800, memory_mib=100, role=ContainerRole.INIT)
    pod = make_pod(containers=[setup, make_container()])
    assert violates_limit_range(pod, (target(),), (LimitRangeItem(False, maximum=make_amounts(None, 200)),))
    assert not violates_limit_range(pod, (target(),), (LimitRangeItem(True, minimum=make_amounts(800, None)),))
    assert violates_limit_range(pod, (target(),), (LimitRangeItem(True, minimum=make_amounts(801, None)),))


def test_a_pod_that_cannot_comply_is_skipped():
    pod = make_pod(containers=[of(cpu=500)])
    pod_range = LimitRangeItem(True, minimum=make_amounts(None, 300), maximum=make_amounts(None, 200))
    assert hold_of(plan_of(pod, limit_ranges={"shop": (pod_range,)})) is ReasonCode.LIMIT_RANGE
    # 1.2 × the working set exceeds the range: no resize is better than a limit that kills.
    tight = LimitRangeItem(False, maximum=make_amounts(None, 105))
    assert hold_of(plan_of(pod, limit_ranges={"shop": (tight,)})) is ReasonCode.LIMIT_RANGE
