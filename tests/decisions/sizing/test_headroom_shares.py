"""Shares, rounding, clamps and limits on single nodes, computed by hand."""

from dataclasses import replace

import numpy as np
import pytest

from cruise.decisions.pod_policy.eligibility import Eligibility
from cruise.decisions.pod_policy.resizable_pod import ResizablePod
from cruise.decisions.sizing.demand import build_demand_table
from cruise.decisions.sizing.headroom import JointPeakHeadroom
from cruise.decisions.sizing.headroom_shares import compute_average_headroom_share
from cruise.decisions.sizing.node_plans import NodePlan, decide_node_plans
from cruise.decisions.sizing.pod_columns import build_init_container_minimums
from cruise.domain.actions import ReasonCode
from cruise.domain.arrays import UNBOUNDED, convert_to_int64, round_up
from cruise.domain.autoscalers import LimitRangeItem
from cruise.domain.cluster import ContainerRole, Node, Pod
from cruise.domain.pod_resources import compute_init_container_minimum
from cruise.domain.policy import SEED_RULES, MemoryLimitPolicy, Mode, Policy
from cruise.domain.records import AverageHeadroomShare
from cruise.domain.resources import MEBIBYTE, ResourceName, Resources
from cruise.domain.usage import Statistic
from tests.builders import (
    NOW,
    NOW_SECONDS,
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
)
from tests.decisions.sizing.demands import make_past_demand_by_resource

FULL = Policy(mode=Mode.FULL, rules=TRACKING, memory_limits=MemoryLimitPolicy.ALWAYS)
SEEDS_IN_FULL = Policy(mode=Mode.FULL, rules=SEED_RULES)


def plan_of(pods, rows, policy=FULL, **more) -> NodePlan:
    node = more.pop("node", None) or make_node()
    [plan] = decide_node_plans(make_snapshot(pods, nodes=[node], **more), make_table(*rows), policy, NOW)
    return plan


def sizes_of(plan: NodePlan) -> dict[tuple[str, str], tuple[int, int, int]]:
    """CPU, memory and memory limit (MiB) by pod and container."""
    return {
        (t.pod, t.container): (t.cpu_millicores, t.memory_bytes // MEBIBYTE, t.memory_limit_bytes // MEBIBYTE)
        for t in plan.targets
    }


def use(pod: Pod, cpu=(0, 0), memory=(64, 64), container="app", **more) -> Statistic:
    """Base and peak of CPU (m) and memory (MiB)."""
    return make_statistic_for(
        pod,
        container,
        cpu_base=cpu[0],
        cpu_peak=cpu[1],
        memory_base_mib=memory[0],
        memory_peak_mib=memory[1],
        **more,
    )


def use_half(pod: Pod, container="app") -> Statistic:
    """A constant 100.5 MiB, and almost no CPU."""
    row = use(pod, cpu=(10, 10), memory=(100, 100), container=container)
    half = 100 * MEBIBYTE + MEBIBYTE // 2
    return replace(row, memory_base_bytes=half, memory_peak_bytes=half)


# ---- shares ----


def test_the_largest_headroom_is_shared_in_proportion():
    a, b, c = (make_pod(name) for name in "abc")
    plan = plan_of(
        [a, b, c],
        [
            use(a, cpu=(100, 400), memory=(100, 200)),
            use(b, cpu=(200, 300), memory=(200, 200)),
            use(c, cpu=(50, 50), memory=(64, 114)),
        ],
    )
    # CPU: headrooms 300, 100, 0; H = 300 of 400, so each gets 3/4 of its own: 225, 75, 0.
    # Memory: headrooms 100, 0, 50; H = 100 of 150: 66.67, 0, 33.33, rounded up to 167, 200, 98 MiB.
    assert sizes_of(plan) == {
        ("a", "app"): (325, 167, 400),
        ("b", "app"): (275, 200, 400),
        ("c", "app"): (50, 98, 228),
    }
    assert plan.headroom == make_resources(300, 100)
    assert plan.base == make_resources(350, 364)


def test_a_single_container_gets_its_peak_and_constant_ones_their_base():
    pod = make_pod()
    assert sizes_of(plan_of([pod], [use(pod, cpu=(70, 170), memory=(64, 128))])) == {("web-1", "app"): (170, 128, 256)}
    assert sizes_of(plan_of([pod], [use(pod, cpu=(70, 70), memory=(64, 64))])) == {("web-1", "app"): (70, 64, 128)}


def test_a_peak_under_the_base_is_no_headroom():
    pod = make_pod()
    plan = plan_of([pod], [use(pod, cpu=(200, 120), memory=(64, 30))])
    assert sizes_of(plan) == {("web-1", "app"): (200, 64, 128)}


def test_a_peak_below_the_base_does_not_reduce_the_headroom_of_others():
    fallen, constant = make_pod("fallen"), make_pod("constant")
    plan = plan_of([fallen, constant], [use(fallen, cpu=(200, 120)), use(constant, cpu=(100, 200))])
    assert [(t.pod, t.cpu_millicores) for t in plan.targets] == [("constant", 200), ("fallen", 200)]
    assert plan.headroom.cpu_millicores == 100


def test_oom_memory_is_part_of_the_peak_and_of_the_limit():
    pod = make_pod()
    plan = plan_of([pod], [use(pod, cpu=(50, 50), memory=(64, 80), oom_memory_mib=300, memory_7d_max_mib=90)])
    assert sizes_of(plan) == {("web-1", "app"): (50, 300, 600)}


def test_containers_of_one_pod_share_like_others_and_are_sorted_by_name():
    pod = make_pod(
        containers=[
            make_container("proxy", role=ContainerRole.SIDECAR),
            make_container("web"),
            make_container("agent"),
        ]
    )
    plan = plan_of(
        [pod],
        [
            use(pod, cpu=(10, 110), memory=(32, 32), container="proxy"),
            use(pod, cpu=(100, 100), memory=(64, 64), container="web"),
            use(pod, cpu=(20, 120), memory=(32, 32), container="agent"),
        ],
    )
    # Both headrooms are 100 of 200 together: 50 each.
    assert [(t.container, t.cpu_millicores) for t in plan.targets] == [("agent", 70), ("proxy", 60), ("web", 100)]
    # The pod's headroom is its containers' largest, not their sum.
    assert plan.headroom.cpu_millicores == 100


def demanded_together(*rows: Statistic, cpu: int):
    """A headroom model in which the pods of `rows` once demanded `cpu` together."""
    seen = np.full((len(rows), 12), cpu / len(rows), dtype=np.float32)
    unseen = np.full((len(rows), 12), np.nan, dtype=np.float32)
    past = {ResourceName.CPU: seen, ResourceName.MEMORY: unseen}
    return JointPeakHeadroom(make_past_demand_by_resource(past))


@pytest.mark.parametrize(
    ("together", "expected"),
    [
        # 300 above the bases, 150 each: a gets no more than its peak and a tenth, 121, and b the other 189.
        (1310, {"a": 121, "b": 1189}),
        # More than both peaks together: both get their peak and a tenth, and the node needs no more.
        (5000, {"a": 121, "b": 1210}),
    ],
)
def test_no_container_gets_more_than_its_peak_and_a_tenth_and_others_share_the_rest(together, expected):
    a, b = make_pod("a"), make_pod("b")
    rows = [use(a, cpu=(10, 110)), use(b, cpu=(1000, 1100))]
    snapshot, table = make_snapshot([a, b], nodes=[make_node()]), make_table(*rows)
    headroom = demanded_together(*rows, cpu=together)
    for policy in (FULL, Policy(mode=Mode.FULL)):
        [plan] = decide_node_plans(snapshot, table, policy, NOW, headroom=headroom)
        assert {t.pod: t.cpu_millicores for t in plan.targets} == expected


def test_the_first_rule_set_shares_in_proportion_regardless_of_peaks():
    a, b = make_pod("a"), make_pod("b")
    rows = [use(a, cpu=(10, 110)), use(b, cpu=(1000, 1100))]
    snapshot, table = make_snapshot([a, b], nodes=[make_node()]), make_table(*rows)
    headroom = demanded_together(*rows, cpu=1310)
    [plan] = decide_node_plans(snapshot, table, SEEDS_IN_FULL, NOW, headroom=headroom)
    assert {t.pod: t.cpu_millicores for t in plan.targets} == {"a": 160, "b": 1150}


def test_a_container_without_headroom_gets_its_base():
    pods = [make_pod("a"), make_pod("b")]
    rows = [use(pod, cpu=(100, 200)) for pod in pods]
    snapshot = make_snapshot(
        pods, nodes=[make_node()], namespace_annotations={"shop": {"cruise.io/headroom-factor": "0"}}
    )
    headroom = demanded_together(*rows, cpu=500)
    [plan] = decide_node_plans(snapshot, make_table(*rows), FULL, NOW, headroom=headroom)
    assert {t.pod: t.cpu_millicores for t in plan.targets} == {"a": 100, "b": 100}


def test_the_factor_scales_the_headroom_before_it_is_shared():
    constant, eager = make_pod("constant"), make_pod("eager", namespace="eager")
    plan = plan_of(
        [constant, eager],
        [use(constant, cpu=(100, 200)), use(eager, cpu=(100, 200))],
        namespace_annotations={"eager": {"cruise.io/headroom-factor": "2"}},
    )
    # Headrooms 100 and 200, H = 200 of 300: 66.67 and 133.33.
    assert [t.cpu_millicores for t in plan.targets] == [234, 167]
    assert plan.headroom.cpu_millicores == 200


def test_headroom_of_an_evicted_pod_is_not_shared():
    spiky, constant = make_pod("spiky"), make_pod("constant")
    plan = plan_of(
        [spiky, constant],
        [use(spiky, cpu=(300, 2000), memory=(64, 64)), use(constant, cpu=(100, 150), memory=(64, 64))],
        SEEDS_IN_FULL,
        node=make_node(cpu=1000),
    )
    # 400 + 1700 > 1000; without `spiky` 100 + 50 are left, all for `constant`.
    assert [eviction.pod for eviction in plan.evict] == ["spiky"]
    assert sizes_of(plan) == {("constant", "app"): (150, 64, 128)}


# ---- rounding, minimums, clamps ----


def test_memory_is_rounded_up_to_whole_mebibytes():
    pod = make_pod()
    odd = replace(use(pod, cpu=(33, 33), memory=(100, 100)), memory_base_bytes=100 * MEBIBYTE + 1)
    assert sizes_of(plan_of([pod], [odd])) == {("web-1", "app"): (33, 101, 200)}


def test_rounding_ignores_floating_point_errors():
    assert round_up(np.array([300.0000000004, 299.0001]), 1).tolist() == [300, 300]
    assert round_up(np.array([5.0 * MEBIBYTE, 5.0 * MEBIBYTE + 1]), MEBIBYTE).tolist() == [5 * MEBIBYTE, 6 * MEBIBYTE]


def test_minimums_apply_to_idle_containers():
    pod = make_pod()
    assert sizes_of(plan_of([pod], [use(pod, cpu=(0, 1), memory=(0, 1))])) == {("web-1", "app"): (10, 16, 16)}


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ({"cruise.io/cpu-min": "500m", "cruise.io/memory-min": "1Gi"}, (500, 1024)),
        ({"cruise.io/cpu-max": "120m", "cruise.io/memory-max": "80Mi"}, (120, 80)),
        ({"cruise.io/cpu-max": "10m", "cruise.io/memory-max": "16Mi"}, (10, 16)),
        # The container's own value takes precedence; the pod's applies to the rest.
        ({"cruise.io/cpu-max.app": "140m", "cruise.io/cpu-max": "120m", "cruise.io/memory-max": "80Mi"}, (140, 80)),
    ],
)
def test_overrides_clamp(annotations, expected):
    pod = make_pod(annotations=annotations)
    plan = plan_of([pod], [use(pod, cpu=(50, 200), memory=(64, 100))])
    assert sizes_of(plan)["web-1", "app"][:2] == expected


def test_a_limit_range_clamps_after_the_override():
    pod = make_pod(annotations={"cruise.io/cpu-max": "30m", "cruise.io/memory-min": "2Gi"})
    ranges = {"shop": (LimitRangeItem(False, make_amounts(60, None), make_amounts(None, 512)),)}
    plan = plan_of([pod], [use(pod, cpu=(50, 200), memory=(64, 100))], limit_ranges=ranges)
    # The override allows at most 30m, the LimitRange at least 60m; at least 2Gi, the LimitRange at most 512Mi.
    assert sizes_of(plan) == {("web-1", "app"): (60, 512, 512)}


def test_an_unmanaged_resource_keeps_its_request():
    pod = make_pod(containers=[make_container(cpu=700, memory_mib=900, memory_limit_mib=901)])
    row = use(pod, cpu=(50, 200), memory=(64, 100))
    by_cpu = plan_of([pod], [row], autoscalers=[make_autoscaler()])
    assert sizes_of(by_cpu) == {("web-1", "app"): (700, 100, 200)}
    assert by_cpu.available == make_resources(4000 - 700, 16384)
    only_cpu = make_pod(containers=pod.containers, annotations={"cruise.io/resources": "cpu"})
    by_memory = plan_of([only_cpu], [row])
    assert sizes_of(by_memory) == {("web-1", "app"): (200, 900, 901)}
    assert by_memory.available == make_resources(4000, 16384 - 900)


# ---- trimming to the capacity ----


def test_rounding_above_the_capacity_is_cut_from_the_largest_shares():
    pods = [make_pod(name) for name in "abc"]
    rows = [use(pod, memory=(100, 200), cpu=(10, 10)) for pod in pods]
    # Σ base 300 + H 100 = 400 fits exactly; each share is 33.33, rounded up 3 × 134 = 402.
    plan = plan_of(pods, rows, node=make_node(memory_mib=400))
    assert plan.fits
    assert [t.memory_bytes // MEBIBYTE for t in plan.targets] == [132, 134, 134]


def test_where_all_shares_are_used_up_the_base_is_rounded_down():
    pods = [make_pod(name) for name in "abc"]
    rows = [use_half(pod) for pod in pods]
    # 3 × 100.5 = 301.5 fits 302; rounded up they are 303: one is written half a MiB below its base.
    plan = plan_of(pods, rows, node=make_node(memory_mib=302))
    assert plan.fits
    assert [t.memory_bytes // MEBIBYTE for t in plan.targets] == [100, 101, 101]


def test_trimming_does_not_change_requests_that_an_hpa_uses():
    scaled = make_pod("scaled", containers=[make_container(cpu=900, memory_mib=100)], workload="Deployment/scaled")
    pods = [make_pod(name) for name in "abc"]
    rows = [use(pod, cpu=(100, 200), memory=(64, 64)) for pod in pods]
    plan = plan_of(
        [scaled, *pods],
        [use(scaled, cpu=(5, 5), memory=(64, 64)), *rows],
        node=make_node(cpu=900 + 400),
        autoscalers=[make_autoscaler("Deployment/scaled")],
    )
    # 300 + 100 fit the 400 left exactly; the shares of 33.33 round up to 402 m, and `a` is cut by two.
    assert {name: cpu for (name, _), (cpu, _, _) in sizes_of(plan).items()} == {
        "a": 132,
        "b": 134,
        "c": 134,
        "scaled": 900,
    }


def test_trimming_skips_containers_below_an_init_containers_request():
    # `0-slow` needs 2000 MiB to start, whatever its container gets: cutting its share would free nothing.
    setup = make_container("setup", memory_mib=2000, role=ContainerRole.INIT)
    slow = make_pod("0-slow", containers=[setup, make_container()])
    others = [make_pod("a"), make_pod("b")]
    rows = [use_half(pod) for pod in (slow, *others)]
    # Σ base = 2000 + 2 × 100.5 fits 2201; rounded up it is one over, and `a` is rounded down.
    plan = plan_of([slow, *others], rows, node=make_node(memory_mib=2201))
    assert plan.fits
    assert sizes_of(plan).keys() == {("0-slow", "app"), ("a", "app"), ("b", "app")}
    assert [t.memory_bytes // MEBIBYTE for t in plan.targets] == [101, 100, 101]


def test_a_sidecar_next_to_an_init_container_is_cut():
    # The sum is proxy + max(500, app): a cut of `app` frees nothing, a cut of `proxy` does.
    pod = make_pod(
        containers=[
            make_container("proxy", role=ContainerRole.SIDECAR),
            make_container("late", memory_mib=500, role=ContainerRole.INIT),
            make_container(),
        ]
    )
    other = make_pod("other", namespace="other")
    rows = [use_half(pod), use_half(pod, "proxy"), use_half(other)]
    # 100.5 + 500 + 101 = 701.5 fits, with the proxy rounded up to 101 it is over.
    plan = plan_of(
        [pod, other],
        rows,
        node=Node("n1", Resources(4000, 701 * MEBIBYTE + MEBIBYTE // 2)),
        namespace_annotations={"other": {"cruise.io/memory-min": "101Mi"}},
    )
    assert plan.fits
    assert plan.evict == ()
    assert {t.container: t.memory_bytes // MEBIBYTE for t in plan.targets if t.pod == "web-1"} == {
        "app": 101,
        "proxy": 100,
    }


# ---- limits ----


@pytest.mark.parametrize(
    ("values", "limit_mib", "by_seeds"),
    [
        ({"memory_7d_max_mib": 150}, 300, 300),
        # The use at a kill may be in no sample, so no limit is lowered because of samples.
        ({"memory_7d_max_mib": 150, "oom_memory_mib": 90}, 1000, 300),
        # Never below 1.2 × the present working set: 1.2 × 260 = 312.
        ({"memory_7d_max_mib": 150, "memory_last_mib": 260}, 312, 312),
        ({"memory_7d_max_mib": 0, "memory_last_mib": 0}, 100, 100),  # never under the request
    ],
)
def test_the_memory_limit(values, limit_mib, by_seeds):
    pod = make_pod(containers=[make_container(memory_limit_mib=1000)])
    row = use(pod, cpu=(50, 50), memory=(64, 100), **values)
    assert sizes_of(plan_of([pod], [row])) == {("web-1", "app"): (50, 100, limit_mib)}
    assert sizes_of(plan_of([pod], [row], SEEDS_IN_FULL)) == {("web-1", "app"): (50, 100, by_seeds)}


@pytest.mark.parametrize(
    ("policy", "had", "gets"),
    [
        (FULL, 1000, 1000),
        (FULL, 100, 100),  # in passing a limit does not rise
        (SEEDS_IN_FULL, 100, 300),
        (FULL, None, 0),
    ],
)
def test_a_kubelet_before_1_34_never_lowers_nor_adds_a_memory_limit(policy, had, gets):
    pod = make_pod(containers=[make_container(memory_limit_mib=had)])
    row = use(pod, cpu=(50, 50), memory=(64, 100), memory_7d_max_mib=150)
    plan = plan_of([pod], [row], policy, node=make_node(kubelet_version=(1, 33)))
    assert sizes_of(plan) == {("web-1", "app"): (50, 100, gets)}
    [resize] = plan.resize
    assert resize.containers[0].limits.memory_bytes == (gets * MEBIBYTE or None)


@pytest.mark.parametrize(
    ("policy", "had", "gets"), [(FULL, 1000, 300), (FULL, 100, 100), (SEEDS_IN_FULL, 100, 300), (FULL, None, 300)]
)
def test_later_kubelets_lower_and_add(policy, had, gets):
    pod = make_pod(containers=[make_container(memory_limit_mib=had)])
    plan = plan_of([pod], [use(pod, cpu=(50, 50), memory=(64, 100), memory_7d_max_mib=150)], policy)
    assert sizes_of(plan) == {("web-1", "app"): (50, 100, gets)}


@pytest.mark.parametrize(("had", "gets"), [(500, 4000), (None, None), (6000, 6000)])
def test_a_cpu_limit_is_raised_to_the_nodes_cpu_and_never_lowered(had, gets):
    pod = make_pod(containers=[make_container(cpu=300, memory_limit_mib=1000, cpu_limit=had)])
    [resize] = plan_of([pod], [use(pod, cpu=(50, 50), memory=(64, 100))]).resize
    assert resize.containers[0].limits.cpu_millicores == gets


def test_limit_range_caps_and_ratios_hold_for_limits():
    pod = make_pod(containers=[make_container(cpu=300, cpu_limit=500, memory_limit_mib=300)])
    ranges = {
        "shop": (LimitRangeItem(False, maximum=make_amounts(2000, 180), max_cpu_ratio=5.0, max_memory_ratio=1.5),)
    }
    row = use(pod, cpu=(50, 200), memory=(64, 100), memory_7d_max_mib=150)
    [resize] = plan_of([pod], [row], limit_ranges=ranges).resize
    # CPU: of 4000 on the node, 2000 by the cap and 5 × 200 by the ratio, 1000 are left.
    # Memory: of 2 × 150, 180 by the cap and 1.5 × 100 by the ratio, 150 are left.
    assert resize.containers[0].limits == make_amounts(1000, 150)


# ---- columns ----


def test_init_container_minimums_in_columns_equal_those_of_the_domain():
    pod = make_pod(
        containers=[
            make_container("early", cpu=300, memory_mib=50, role=ContainerRole.INIT),
            make_container("proxy", cpu=200, memory_mib=200, role=ContainerRole.SIDECAR),
            make_container("late", cpu=200, memory_mib=40, role=ContainerRole.INIT),
            make_container("logs", cpu=50, memory_mib=10, role=ContainerRole.SIDECAR),
            make_container(cpu=100, memory_mib=100),
        ]
    )
    plain = make_pod("plain")
    rows = [use(pod, container=name) for name in ("proxy", "logs", "app")] + [use(plain)]
    snapshot, table = make_snapshot([pod, plain]), make_table(*rows)
    eligibility = Eligibility(snapshot, table, {}, FULL, NOW)
    resizable = [verdict for one in snapshot.pods if isinstance(verdict := eligibility.check(one), ResizablePod)]
    columns = build_demand_table(resizable, table, {}, FULL)
    floors = build_init_container_minimums(resizable, columns.candidates.first_container)
    at = next(index for index, one in enumerate(resizable) if one.pod is pod)
    for resource, demand, pick in (
        ("cpu", columns.cpu, lambda resources: resources.cpu_millicores),
        ("memory", columns.memory, lambda resources: resources.memory_bytes),
    ):
        name = next(one for one in floors.container_requests if one.value == resource)
        sums = np.zeros(2, dtype=np.int64)
        floors.apply_to_sums(name, demand.current, sums)
        assert sums[1 - at] == 0
        assert sums[at] == floors.get_for_pod(name, at, demand.current) == pick(compute_init_container_minimum(pod, {}))


def test_numbers_beyond_any_machine_do_not_overflow():
    assert convert_to_int64([1 << 80, -(1 << 70), 5]).tolist() == [UNBOUNDED, -UNBOUNDED, 5]
    assert convert_to_int64([]).tolist() == []


def test_absurd_requests_and_statistics_are_decided():
    absurd = make_pod("absurd", containers=[make_container(cpu=2**63 - 1, memory_mib=None), make_container("b")])
    bound = make_pod("bound", containers=[make_container(cpu=2**63 - 1, memory_mib=2**42)], workload=None)
    sane = make_pod("sane")
    row = use(sane, cpu=(2**62, 2**63 - 1), memory=(2**42, 2**42))
    plan = plan_of([absurd, bound, sane], [row, use(absurd), use(absurd, container="b")])
    # More is requested than any node has: nothing fits, and nothing grows.
    assert not plan.fits
    assert plan.available.cpu_millicores < 0
    now = {("sane", "app"): make_resources(100, 128), ("absurd", "b"): make_resources(100, 128)}
    for target in plan.targets:
        written = Resources(target.cpu_millicores, target.memory_bytes)
        assert written.fits_in(now.get((target.pod, target.container), Resources(2**63 - 1, 0)))


@pytest.mark.parametrize(
    ("days", "had", "gets"), [(27, 1000, 1000), (28, 1000, 300), (None, 1000, 1000), (1, 100, 100), (1, None, 300)]
)
def test_a_memory_limit_falls_only_on_a_history_that_is_known_to_be_long(days, had, gets):
    pod = make_pod(containers=[make_container(memory_limit_mib=had)])
    since = 0 if days is None else NOW_SECONDS - days * 86400
    row = use(pod, cpu=(50, 50), memory=(64, 100), memory_7d_max_mib=150, history_since=since)
    assert sizes_of(plan_of([pod], [row])) == {("web-1", "app"): (50, 100, gets)}


def test_on_a_short_history_a_later_largest_limit_does_not_lower_one():
    pod = make_pod(containers=[make_container(memory_limit_mib=1000)])
    row = use(pod, cpu=(50, 50), memory=(64, 100), memory_7d_max_mib=150, history_since=NOW_SECONDS - 86400)
    item = LimitRangeItem(is_for_pod=False, maximum=make_amounts(None, 600))
    plan = plan_of([pod], [row], limit_ranges={"shop": (item,)})
    assert sizes_of(plan) == {("web-1", "app"): (50, 100, 1000)}
    assert [hold.reason for hold in plan.skipped] == [ReasonCode.LIMIT_RANGE]
    row = replace(row, history_since=NOW_SECONDS - 40 * 86400)
    assert sizes_of(plan_of([pod], [row], limit_ranges={"shop": (item,)})) == {("web-1", "app"): (50, 100, 300)}


def test_the_average_share_is_that_of_all_nodes_together():
    shared = [(Resources(100, 50), Resources(400, 50)), (Resources(300, 0), Resources(400, 0))]
    assert compute_average_headroom_share(shared) == AverageHeadroomShare(cpu=0.5, memory=1.0)
    # No container gets more than its own headroom.
    assert compute_average_headroom_share([(Resources(900, 0), Resources(400, 0))]) == AverageHeadroomShare(1.0, 1.0)
    assert compute_average_headroom_share([]) == AverageHeadroomShare(1.0, 1.0)
