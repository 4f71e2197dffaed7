"""Requests and limits that a pod is created with."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cruise.decisions.admission.admission import (
    LeaveUnchanged,
    MutatePod,
    compute_admitted_resources,
    decide_admission,
    get_original_resources,
)
from cruise.decisions.admission.node_index import NodeIndex
from cruise.decisions.pod_policy.eligibility import Eligibility
from cruise.domain.actions import ContainerTarget, ReasonCode
from cruise.domain.annotations import ORIGINAL_RESOURCES
from cruise.domain.autoscalers import LimitRangeItem, NodeAutoscalerKind
from cruise.domain.cluster import ContainerRole, Node, Pod, QosClass, WorkloadRef
from cruise.domain.original_resources import (
    RevisionPeriod,
    WorkloadContainer,
    WorkloadRevisions,
    format_original_resources,
    get_resources_at_creation,
)
from cruise.domain.pod_resources import count_pod_requests, get_qos_class
from cruise.domain.policy import SEED_RULES, AdmissionSize, MemoryLimitPolicy, Mode, Policy
from cruise.domain.records import AverageHeadroomShare
from cruise.domain.resources import MEBIBYTE, ResourceName, StatedResources
from cruise.domain.scheduling import OVERLOADED_TAINT, SchedulingConstraints, Taint, TaintEffect, Toleration
from cruise.simulation.cluster.api_server import check_creation
from tests.builders import (
    NOW,
    NOW_SECONDS,
    make_amounts,
    make_autoscaler,
    make_container,
    make_node,
    make_pod,
    make_pod_level,
    make_resources,
    make_snapshot,
    make_statistic,
    make_table,
    make_workload,
)
from tests.strategies import DrawnClusterValues, clusters

INITIAL = Policy(mode=Mode.INITIAL, memory_limits=MemoryLimitPolicy.ALWAYS)
ONE_NODE = (make_node(),)


def new_pod(*containers, **fields) -> Pod:
    """A pod in creation, without node, status and name."""
    containers = containers or (make_container(settled=False),)
    return make_pod("", node=None, containers=containers, **fields)


def use(container="app", cpu=400, memory_mib=300, max_mib=None, **more):
    """A statistic with the peak of a workload's container."""
    return make_statistic(
        "",
        container=container,
        cpu_base=1,
        cpu_peak=cpu,
        memory_base_mib=1,
        memory_peak_mib=memory_mib,
        memory_7d_max_mib=memory_mib if max_mib is None else max_mib,
        **more,
    )


def decide(pod: Pod, *rows, nodes=ONE_NODE, ranges=(), policy=INITIAL, **snapshot) -> MutatePod | LeaveUnchanged:
    table = make_table(*(rows or (use(),)))
    whole = make_snapshot([], nodes=nodes, workloads=snapshot.pop("workloads", [make_workload()]), **snapshot)
    return decide_admission(pod, Eligibility(whole, table, {}, policy, NOW), table, NodeIndex(nodes), ranges, policy)


def mutated(pod: Pod, *rows, **more) -> tuple[ContainerTarget, ...]:
    decision = decide(pod, *rows, **more)
    assert isinstance(decision, MutatePod), decision
    return decision.containers


def left(pod: Pod, *rows, **more) -> ReasonCode:
    decision = decide(pod, *rows, **more)
    assert isinstance(decision, LeaveUnchanged)
    return decision.reason


# ---- values ----


def test_requests_are_the_peaks_the_memory_limit_is_twice_the_maximum_and_no_cpu_limit_is_left():
    pod = new_pod(make_container(cpu=100, memory_mib=128, cpu_limit=200, memory_limit_mib=512))
    [target] = mutated(pod, use(cpu=400, memory_mib=300, max_mib=350))
    assert target.requests == make_amounts(400, 300)
    assert target.limits == make_amounts(None, 700)


@pytest.mark.parametrize(
    ("values", "memory_mib", "limit_mib"),
    [
        ({"memory_mib": 300, "max_mib": 350, "oom_memory_mib": 200}, 300, 700),
        ({"memory_mib": 300, "max_mib": 350, "oom_memory_mib": 512}, 512, 1024),
        # The 7-day maximum may be unknown, or older than the peak.
        ({"memory_mib": 300, "max_mib": 0}, 300, 300),
        ({"memory_mib": 300, "max_mib": 149}, 300, 300),
    ],
)
def test_kills_and_the_request_are_minimums_of_the_limit(values, memory_mib, limit_mib):
    [target] = mutated(new_pod(), use(**values))
    assert target.requests.memory_bytes == memory_mib * MEBIBYTE
    assert target.limits.memory_bytes == limit_mib * MEBIBYTE


def test_memory_is_rounded_up_and_idle_containers_get_the_minimum():
    row = replace(use(cpu=3), memory_peak_bytes=5 * MEBIBYTE + 1, memory_7d_max_bytes=40 * MEBIBYTE + 1)
    [target] = mutated(new_pod(), row)
    assert (target.requests, target.limits) == (make_amounts(10, 16), make_amounts(None, 81))
    [larger] = mutated(new_pod(), replace(row, memory_peak_bytes=100 * MEBIBYTE + 1))
    assert larger.requests.memory_bytes == 101 * MEBIBYTE


def test_all_main_containers_and_sidecars_are_sized_and_init_containers_never():
    pod = new_pod(
        make_container("setup", role=ContainerRole.INIT),
        make_container("proxy", role=ContainerRole.SIDECAR),
        make_container(),
    )
    targets = mutated(pod, use(cpu=300), use("proxy", cpu=70, memory_mib=50))
    assert [(t.container, t.role, t.requests.cpu_millicores) for t in targets] == [
        ("proxy", ContainerRole.SIDECAR, 70),
        ("app", ContainerRole.MAIN, 300),
    ]


def test_an_unmanaged_resource_is_unchanged():
    pod = new_pod(make_container(cpu=100, memory_mib=128, cpu_limit=200, memory_limit_mib=300))
    [scaled] = mutated(pod, autoscalers=[make_autoscaler()])
    assert (scaled.requests, scaled.limits) == (make_amounts(100, 300), make_amounts(200, 600))
    [asked] = mutated(replace(pod, annotations={"cruise.io/resources": "cpu"}))
    assert (asked.requests, asked.limits) == (make_amounts(400, 128), make_amounts(None, 300))
    both = [make_autoscaler("Deployment/web", "shop", *ResourceName)]
    assert left(pod, autoscalers=both) is ReasonCode.MANAGED_BY_HPA


def test_a_restarting_resize_policy_does_not_matter_at_creation():
    pod = new_pod(make_container(cpu_resize_restarts=True, memory_resize_restarts=True))
    assert mutated(pod)[0].requests == make_amounts(400, 300)


def test_identities_have_their_own_peaks():
    rows = [
        use(cpu=100, workload="StatefulSet/db", identity="0"),
        use(cpu=900, workload="StatefulSet/db", identity="1"),
    ]
    second = new_pod(workload="StatefulSet/db", identity="1")
    assert mutated(second, *rows)[0].requests.cpu_millicores == 900
    assert left(replace(second, identity="2"), *rows) is ReasonCode.NO_STATISTICS
    assert (
        mutated(replace(second, identity="2"), *rows, use(cpu=500, workload="StatefulSet/db"))[
            0
        ].requests.cpu_millicores
        == 500
    )


# ---- clamps ----


def test_overrides_clamp_requests():
    low = new_pod(annotations={"cruise.io/cpu-max": "250m", "cruise.io/memory-max": "100Mi"})
    assert mutated(low)[0].requests == make_amounts(250, 100)
    high = new_pod(annotations={"cruise.io/cpu-min.app": "2", "cruise.io/memory-min": "1Gi"})
    assert mutated(high)[0].requests == make_amounts(2000, 1024)
    assert mutated(high)[0].limits == make_amounts(None, 1024)


def test_a_request_of_zero_that_may_not_grow_is_unchanged():
    stated = make_container(cpu=0, memory_mib=0, memory_limit_mib=128, settled=False)
    pod = new_pod(stated, annotations={"cruise.io/direction": "shrink"})
    assert left(pod, use()) is ReasonCode.NO_CHANGE_NEEDED


def test_a_limit_range_takes_precedence_over_an_override():
    pod = new_pod(annotations={"cruise.io/cpu-max": "50m"})
    ranges = (LimitRangeItem(False, make_amounts(100, 400), make_amounts(None, 500)),)
    [target] = mutated(pod, ranges=ranges)
    # 50m are raised to 100m; 300 MiB to 400, and the limit of 600 lowered to 500.
    assert (target.requests, target.limits) == (make_amounts(100, 400), make_amounts(None, 500))


def test_a_ratio_caps_the_limit():
    [target] = mutated(new_pod(), use(max_mib=500), ranges=(LimitRangeItem(False, max_memory_ratio=1.5),))
    # 1.5 × the peak of 300 MiB would be below the largest use.
    assert (target.requests.memory_bytes, target.limits) == (334 * MEBIBYTE, make_amounts(None, 501))


@pytest.mark.parametrize(
    ("item", "limit"),
    [
        (LimitRangeItem(False, maximum=make_amounts(3000, None)), 3000),
        (LimitRangeItem(False, maximum=make_amounts(90000, None)), 4000),  # no node has more
        (LimitRangeItem(False, max_cpu_ratio=2.5), 1000),
        # LimitRanger runs again after a webhook and would set its default of 300m, below the request of 400m.
        (LimitRangeItem(False, default_limits=make_amounts(300, None)), 4000),
        (LimitRangeItem(False, minimum=make_amounts(10, None)), None),
        (LimitRangeItem(False, default_limits=make_amounts(None, 300)), None),
        (LimitRangeItem(True, minimum=make_amounts(10, None)), None),
    ],
)
def test_a_cpu_limit_is_kept_only_if_a_limit_range_requires_one(item, limit):
    pod = new_pod(make_container(cpu_limit=300))
    assert mutated(pod, ranges=(item,))[0].limits.cpu_millicores == limit


def test_a_pod_that_cannot_comply_with_a_limit_range_is_unchanged():
    too_large = (LimitRangeItem(True, maximum=make_amounts(None, 299)),)
    assert left(new_pod(), use(memory_mib=300), ranges=too_large) is ReasonCode.LIMIT_RANGE
    needs_limit = (LimitRangeItem(True, maximum=make_amounts(5000, None)),)
    assert left(new_pod(), ranges=needs_limit) is ReasonCode.LIMIT_RANGE


# ---- the largest node ----


def test_requests_are_scaled_down_to_the_largest_node():
    nodes = (make_node("n1", cpu=2000, memory_mib=4096), make_node("n2", cpu=4000, memory_mib=8192))
    pod = new_pod(make_container(), make_container("b"), overhead=make_resources(100, 92))
    rows = use(cpu=6000, memory_mib=6000), use("b", cpu=1800, memory_mib=3000)
    targets = mutated(pod, *rows, nodes=nodes)
    # Of the 3900m left on n2 both get 100m; the other 3700m are shared in proportion to 5900m and 1700m.
    assert [t.requests.cpu_millicores for t in targets] == [100 + 2872, 100 + 827]
    assert count_pod_requests(compute_admitted_resources(pod, MutatePod(targets)).apply_to(pod, {})).fits_in(
        nodes[1].allocatable
    )
    targets = mutated(pod, *rows, nodes=nodes, policy=replace(INITIAL, rules=SEED_RULES))
    # 7800m of 3900 left on n2: halves. 9000 MiB of 8100: nine tenths.
    assert [t.requests for t in targets] == [make_amounts(3000, 5400), make_amounts(900, 2700)]
    assert count_pod_requests(compute_admitted_resources(pod, MutatePod(targets)).apply_to(pod, {})).fits_in(
        nodes[1].allocatable
    )


def test_only_nodes_count_that_the_pod_could_run_on():
    big = make_node("big", cpu=64000, memory_mib=1 << 18, taints=(Taint("gpu", "yes", TaintEffect.NO_SCHEDULE),))
    small = make_node("small", cpu=2000, labels={"disk": "ssd"})
    asks = use(cpu=8000)
    assert mutated(new_pod(), asks, nodes=(big, small))[0].requests.cpu_millicores == 2000
    tolerant = new_pod(placement=SchedulingConstraints(tolerations=(Toleration("gpu", exists=True),)))
    assert mutated(tolerant, asks, nodes=(big, small))[0].requests.cpu_millicores == 8000
    picky = new_pod(placement=SchedulingConstraints(node_selector=(("disk", "hdd"),)))
    assert mutated(picky, asks, nodes=(big, small))[0].requests.cpu_millicores == 8000  # an autoscaler may add one
    assert mutated(new_pod(), asks, nodes=())[0].requests.cpu_millicores == 8000


@pytest.mark.parametrize(
    "taint",
    [
        OVERLOADED_TAINT,
        Taint("node.kubernetes.io/unschedulable", "", TaintEffect.NO_SCHEDULE),
        Taint("node.kubernetes.io/memory-pressure", "", TaintEffect.NO_SCHEDULE),
        Taint("node.kubernetes.io/not-ready", "", TaintEffect.NO_EXECUTE),
        Taint("spot", "yes", TaintEffect.PREFER_NO_SCHEDULE),
    ],
)
def test_temporary_taints_do_not_make_pods_smaller(taint: Taint):
    nodes: tuple[Node, ...] = (make_node("big", cpu=16000, taints=(taint,)), make_node("small", cpu=2000))
    assert mutated(new_pod(), use(cpu=8000), nodes=nodes)[0].requests.cpu_millicores == 8000


SMALL_NODES = (make_node("n1", cpu=16000, memory_mib=60 * 1024),)
LARGE_TEMPLATE = new_pod(make_container(cpu=8000, memory_mib=200 * 1024))


def test_a_template_is_not_cut_to_the_nodes_of_today():
    peak = use(cpu=8000, memory_mib=180 * 1024)
    [target] = mutated(LARGE_TEMPLATE, peak, nodes=SMALL_NODES)
    # A node for its template can be added; the smaller peak fits it as well.
    assert target.requests == make_amounts(8000, 180 * 1024)
    [seeds] = mutated(LARGE_TEMPLATE, peak, nodes=SMALL_NODES, policy=replace(INITIAL, rules=SEED_RULES))
    assert seeds.requests == make_amounts(8000, 60 * 1024)


def test_a_peak_is_cut_to_the_largest_node_and_not_below_the_template():
    peak = use(cpu=8000, memory_mib=240 * 1024)
    template = new_pod(make_container(cpu=9000, memory_mib=200 * 1024))
    [larger] = mutated(template, peak, nodes=SMALL_NODES)
    assert larger.requests == make_amounts(8000, 200 * 1024)
    [smaller] = mutated(new_pod(make_container(memory_mib=1024)), peak, nodes=SMALL_NODES)
    assert smaller.requests == make_amounts(8000, 60 * 1024)


def test_capacity_beyond_the_templates_is_shared():
    pod = new_pod(make_container(memory_mib=10), make_container("b", memory_mib=40))
    nodes = (make_node("n1", memory_mib=60),)
    targets = mutated(pod, use(memory_mib=80), use("b", memory_mib=40), nodes=nodes)
    assert [target.requests.resources.memory_bytes // MEBIBYTE for target in targets] == [20, 40]
    assert left(
        compute_admitted_resources(pod, MutatePod(targets)).apply_to(pod, {}),
        use(memory_mib=80),
        use("b", memory_mib=40),
        nodes=nodes,
    ) is (ReasonCode.NO_CHANGE_NEEDED)


def test_capacity_left_by_rounding_is_not_shared_when_deciding_again():
    names = ("app", "b", "c", "d")
    pod = new_pod(*(make_container(name, memory_mib=1) for name in names))
    rows = [use(name, memory_mib=1000 if name == "app" else 31) for name in names]
    nodes = (make_node("n1", memory_mib=200),)
    decision = decide(pod, *rows, nodes=nodes)
    assert isinstance(decision, MutatePod)
    kept = {ORIGINAL_RESOURCES: format_original_resources(get_original_resources(pod, decision))}
    assert (
        left(compute_admitted_resources(pod, decision).apply_to(pod, kept), *rows, nodes=nodes)
        is ReasonCode.NO_CHANGE_NEEDED
    )


@pytest.mark.parametrize("seen", NodeAutoscalerKind)
def test_with_node_autoscaling_no_peak_exceeds_the_largest_known_node(seen):
    """No node type holds the peak, but the pod as submitted fits."""
    peak = use(cpu=8000, memory_mib=70 * 1024)
    sent = new_pod(make_container(memory_mib=10 * 1024))
    [target] = mutated(sent, peak, nodes=SMALL_NODES, node_autoscaler=seen)
    assert target.requests == make_amounts(8000, 60 * 1024)
    [template] = mutated(LARGE_TEMPLATE, use(cpu=8000, memory_mib=240 * 1024), nodes=SMALL_NODES, node_autoscaler=seen)
    # A node for its template can be added.
    assert template.requests == make_amounts(8000, 200 * 1024)


def test_with_node_autoscaling_and_no_known_node_a_peak_adds_nothing():
    picky = new_pod(
        make_container(cpu=500, memory_mib=1024), placement=SchedulingConstraints(node_selector=(("pool", "nightly"),))
    )
    karpenter = {"nodes": SMALL_NODES, "node_autoscaler": NodeAutoscalerKind.KARPENTER}
    [target] = mutated(picky, use(cpu=8000, memory_mib=100), **karpenter)
    assert target.requests == make_amounts(500, 100)
    [seen] = mutated(
        picky,
        use(cpu=8000, memory_mib=100),
        **{**karpenter, "nodes": (*SMALL_NODES, make_node("n2", cpu=4000, labels={"pool": "nightly"}))},
    )
    assert seen.requests == make_amounts(4000, 100)


@pytest.mark.parametrize("seen", [None, NodeAutoscalerKind.CLUSTER_AUTOSCALER])
def test_capacity_that_daemonsets_request_is_reserved(seen):
    daemons = (
        make_workload("DaemonSet/agent", requests={"a": make_amounts(300, 1024), "b": make_amounts(200, None)}),
        make_workload("DaemonSet/logs", "zoo", requests={"a": make_amounts(500, 2048)}),
        make_workload("DaemonSet/unknown", "zoo"),
        make_workload("Deployment/web", requests={"a": make_amounts(500, 2048)}),
    )
    peak = use(cpu=20_000, memory_mib=100 * 1024)
    around = {"nodes": SMALL_NODES, "node_autoscaler": seen, "workloads": daemons}
    [target] = mutated(new_pod(), peak, **around)
    assert target.requests == make_amounts(15_000, 57 * 1024)
    [seeds] = mutated(new_pod(), peak, **around, policy=replace(INITIAL, rules=SEED_RULES))
    assert seeds.requests == make_amounts(16_000, 60 * 1024)
    # A node autoscaler assumes the DaemonSet pods of a present node on a new one.
    grown = use("a", cpu=1300, memory_mib=100, workload="DaemonSet/agent", identity="n1")
    [beside] = mutated(new_pod(), peak, grown, **around)
    assert beside.requests == make_amounts(14_000, 57 * 1024)
    # For a DaemonSet's own pod only other DaemonSets count.
    agent = new_pod(workload=WorkloadRef("DaemonSet", "agent"))
    [own] = mutated(agent, use(cpu=20_000, memory_mib=100 * 1024, workload="DaemonSet/agent"), **around)
    assert own.requests == make_amounts(15_500, 58 * 1024)


def test_a_daemonset_that_no_node_can_run_reserves_nothing():
    """Anyone who may create one in a namespace would keep the new pods of all others at their templates."""
    peak = use(cpu=3000, memory_mib=300)
    huge = make_workload("DaemonSet/huge", "evil", requests={"a": make_amounts(1_000_000, 1)})
    [target] = mutated(new_pod(), peak, nodes=SMALL_NODES, workloads=(huge,))
    assert target.requests == make_amounts(3000, 300)
    # An init container runs before the others.
    starting = make_workload(
        "DaemonSet/starting",
        "zoo",
        requests={"init": make_amounts(15_000, 1), "a": make_amounts(14_000, 1)},
        init_containers=frozenset({"init"}),
    )
    [beside] = mutated(new_pod(), peak, nodes=SMALL_NODES, workloads=(starting,))
    assert beside.requests.cpu_millicores == new_pod().containers[0].requests.cpu_millicores


def test_an_unmanaged_resource_is_not_scaled_to_the_node():
    pod = new_pod(make_container(cpu=9000))
    [target] = mutated(pod, use(memory_mib=300), autoscalers=[make_autoscaler()])
    assert target.requests == make_amounts(9000, 300)


# ---- skipped pods ----


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"namespace": "kube-system"}, ReasonCode.EXCLUDED_NAMESPACE),
        ({"qos": QosClass.GUARANTEED}, ReasonCode.GUARANTEED),
        ({"qos": QosClass.BEST_EFFORT}, ReasonCode.BEST_EFFORT),
        ({"workload": None}, ReasonCode.NO_CONTROLLER),
        ({"runs_on_windows": True}, ReasonCode.WINDOWS),
        ({"scheduler": "fargate-scheduler"}, ReasonCode.VIRTUAL_NODE),
        ({"placement": SchedulingConstraints(node_selector=(("type", "virtual-kubelet"),))}, ReasonCode.VIRTUAL_NODE),
        ({"pod_level": make_pod_level()}, ReasonCode.POD_LEVEL_RESOURCES),
        ({"annotations": {"cruise.io/mode": "observe"}}, ReasonCode.MODE_OBSERVE),
        ({"annotations": {"cruise.io/mode": "nonsense"}}, ReasonCode.UNREADABLE_ANNOTATION),
    ],
)
def test_pods_that_are_created_unchanged(fields, reason):
    assert left(new_pod(**fields)) is reason


def test_an_unreadable_annotation_is_explained():
    decision = decide(new_pod(annotations={"cruise.io/cpu-min": "1.5Gx"}))
    assert isinstance(decision, LeaveUnchanged)
    assert "1.5Gx" in decision.detail


def test_statistics_must_be_there_fresh_and_old_enough():
    pod = new_pod()
    assert left(pod, use("other")) is ReasonCode.NO_STATISTICS
    assert left(pod, use(updated_at=NOW_SECONDS - 16 * 60)) is ReasonCode.STALE_STATISTICS
    assert left(pod, use(history_since=NOW_SECONDS - 29 * 60)) is ReasonCode.NEW_WORKLOAD
    assert left(pod, workloads=[make_workload(created_at=NOW)]) is ReasonCode.NEW_WORKLOAD
    # Statistics of another pod do not apply to this one.
    assert left(pod, make_statistic("web-1")) is ReasonCode.NO_STATISTICS


def test_a_pod_that_would_become_guaranteed_is_unchanged():
    pod = new_pod(make_container(cpu=100, memory_mib=128, memory_limit_mib=256))
    ranges = (LimitRangeItem(False, max_cpu_ratio=1.0, max_memory_ratio=1.0),)
    assert left(pod, ranges=ranges) is ReasonCode.QOS_CHANGE


# ---- deciding again ----


def test_replaced_resources_are_recorded_and_annotations_stay():
    pod = new_pod(make_container(cpu=100, memory_mib=128, cpu_limit=200), annotations={"cruise.io/mode": "full"})
    mutation = MutatePod(mutated(pod))
    assert get_original_resources(pod, mutation) == {"app": (make_amounts(100, 128), make_amounts(200, None))}
    created = compute_admitted_resources(pod, mutation).apply_to(
        pod, {"cruise.io/mode": "off", "cruise.io/original-resources": "{}"}
    )
    assert created.annotations == {"cruise.io/mode": "full", "cruise.io/original-resources": "{}"}
    assert created.containers[0].requests == make_amounts(400, 300)


def test_deciding_again_does_not_change_the_pod():
    pod = new_pod(make_container(cpu=100, memory_mib=128, cpu_limit=200))
    created = compute_admitted_resources(pod, MutatePod(mutated(pod))).apply_to(
        pod, {"cruise.io/original-resources": "{}"}
    )
    assert left(created) is ReasonCode.NO_CHANGE_NEEDED


def test_deciding_again_under_a_limit_range_of_the_pod_does_not_change_it():
    # The CPU limit that the first decision adds would leave less of the sum to the other containers.
    pod = new_pod(
        make_container("proxy", role=ContainerRole.SIDECAR, cpu=1, memory_mib=16, cpu_limit=1, settled=False),
        make_container(cpu=None, memory_mib=16, settled=False),
        make_container("log", cpu=None, memory_mib=None, settled=False),
    )
    rows = (use("proxy", cpu=2404), use(cpu=475), use("log", cpu=1))
    ranges = (LimitRangeItem(True, maximum=make_amounts(2000, None)),)
    decision = decide(pod, *rows, ranges=ranges)
    assert isinstance(decision, MutatePod)
    kept = format_original_resources(get_original_resources(pod, decision))
    created = compute_admitted_resources(pod, decision).apply_to(pod, {ORIGINAL_RESOURCES: kept})
    assert left(created, *rows, ranges=ranges) is ReasonCode.NO_CHANGE_NEEDED


@given(clusters(), st.sampled_from([Mode.INITIAL, Mode.FULL]))
def test_admission_is_idempotent_keeps_the_qos_class_and_is_never_rejected(cluster: DrawnClusterValues, mode: Mode):
    snapshot, table = cluster
    policy = Policy(mode=mode)
    rows = [replace(row, key=row.key._replace(pod="")) for row in map(table.get_row, range(len(table.keys)))]
    known = make_table(*{row.key: row for row in rows}.values())
    eligibility = Eligibility(snapshot, known, {}, policy, NOW)
    for original in snapshot.pods:
        bare = tuple(replace(c, allocated=None, actual=None, actual_limits=None) for c in original.containers)
        pod = replace(original, node=None, phase="Pending", containers=bare)
        ranges = snapshot.limit_ranges.get(pod.namespace, ())
        decision = decide_admission(pod, eligibility, known, NodeIndex(snapshot.nodes), ranges, policy)
        if isinstance(decision, LeaveUnchanged):
            continue
        kept = format_original_resources(get_original_resources(pod, decision))
        created = compute_admitted_resources(pod, decision).apply_to(pod, {ORIGINAL_RESOURCES: kept})
        assert created.qos is pod.qos is get_qos_class(created)
        check_creation(created, ranges)
        again = decide_admission(created, eligibility, known, NodeIndex(snapshot.nodes), ranges, policy)
        assert isinstance(again, LeaveUnchanged)
        assert again.reason is ReasonCode.NO_CHANGE_NEEDED


@pytest.mark.parametrize(("days", "limit_mib"), [(27, 900), (28, 700), (None, 900)])
def test_the_limit_of_a_template_falls_only_on_a_history_that_is_known_to_be_long(days, limit_mib):
    since = 0 if days is None else NOW_SECONDS - days * 86400
    pod = new_pod(make_container(memory_limit_mib=900))
    [target] = mutated(pod, use(memory_mib=300, max_mib=350, history_since=since))
    assert target.limits == make_amounts(None, limit_mib)


# ---- revisions ----

OLD_TEMPLATE = make_pod(containers=[make_container(cpu=500, memory_mib=1024)])
NEW_TEMPLATE = new_pod(make_container(cpu=2000, memory_mib=6144, cpu_limit=4000, memory_limit_mib=8192, settled=False))
OF_WEB = WorkloadContainer("shop", "Deployment/web", "app")
# The needs of the old revision.
PEAK = use(cpu=400, memory_mib=1000)


def in_revision(pod: Pod, minutes: int | None, policy=INITIAL, rows=(PEAK,)) -> MutatePod | LeaveUnchanged:
    """Decide for a revision that has run for some minutes (None: never), next to older ones."""
    runs = {get_resources_at_creation(OLD_TEMPLATE)[0]: RevisionPeriod(0, NOW_SECONDS)}
    if minutes is not None:
        runs[get_resources_at_creation(NEW_TEMPLATE)[0]] = RevisionPeriod(NOW_SECONDS - 60 * minutes, NOW_SECONDS)
    table = replace(make_table(*rows), revisions=WorkloadRevisions({OF_WEB: runs}))
    whole = make_snapshot([], nodes=ONE_NODE, workloads=[make_workload()])
    return decide_admission(pod, Eligibility(whole, table, {}, policy, NOW), table, NodeIndex(ONE_NODE), (), policy)


def sizes_in_revision(pod: Pod, minutes: int | None, **more) -> ContainerTarget:
    decision = in_revision(pod, minutes, **more)
    assert isinstance(decision, MutatePod)
    [target] = decision.containers
    return target


@pytest.mark.parametrize("minutes", [None, 0, 29])
def test_a_new_revision_keeps_its_stated_requests_until_its_use_is_known(minutes):
    target = sizes_in_revision(NEW_TEMPLATE, minutes)
    assert (target.requests, target.limits) == (make_amounts(2000, 6144), make_amounts(None, 8192))
    seeds = sizes_in_revision(NEW_TEMPLATE, minutes, policy=replace(INITIAL, rules=SEED_RULES))
    assert seeds.requests == make_amounts(400, 1000)


def test_a_revision_that_is_known_gets_the_peak():
    assert sizes_in_revision(NEW_TEMPLATE, 30).requests == make_amounts(400, 1000)
    # Pods of the previous revision, which a rollout may still start, are unaffected.
    old = new_pod(make_container(cpu=500, memory_mib=1024, settled=False))
    assert sizes_in_revision(old, 0).requests == make_amounts(400, 1000)


def test_a_new_revision_that_states_less_gets_the_peak():
    smaller = new_pod(make_container(cpu=100, memory_mib=128, settled=False))
    assert sizes_in_revision(smaller, None).requests == make_amounts(400, 1000)


def test_deciding_again_on_a_pod_of_a_new_revision_changes_nothing():
    decision = in_revision(NEW_TEMPLATE, None)
    assert isinstance(decision, MutatePod)
    kept = {ORIGINAL_RESOURCES: format_original_resources(get_original_resources(NEW_TEMPLATE, decision))}
    created = compute_admitted_resources(NEW_TEMPLATE, decision).apply_to(NEW_TEMPLATE, kept)
    assert in_revision(created, None) == LeaveUnchanged(ReasonCode.NO_CHANGE_NEEDED, new_revision=True)
    assert in_revision(created, 0) == LeaveUnchanged(ReasonCode.NO_CHANGE_NEEDED, new_revision=True)


# ---- sizes of a node pass ----

SHARED = AverageHeadroomShare(cpu=0.25, memory=0.5)
SPIKY = make_statistic("", cpu_base=100, cpu_peak=500, memory_base_mib=200, memory_peak_mib=300, memory_7d_max_mib=300)
PLANNED = replace(INITIAL, admission_size=AdmissionSize.NODE_PASS)


def created(policy=INITIAL, average_headroom_share=SHARED, pod=None, **snapshot) -> MutatePod | LeaveUnchanged:
    table = replace(make_table(SPIKY), average_headroom_share=average_headroom_share)
    whole = make_snapshot([], nodes=ONE_NODE, workloads=[make_workload()], **snapshot)
    eligibility = Eligibility(whole, table, {}, policy, NOW)
    return decide_admission(pod or new_pod(), eligibility, table, NodeIndex(ONE_NODE), (), policy)


def requested(decision: MutatePod | LeaveUnchanged) -> tuple[StatedResources, AdmissionSize | None]:
    assert isinstance(decision, MutatePod)
    return decision.containers[0].requests, decision.admission_size


def test_planned_sizes_are_base_and_the_share_of_headroom_that_pods_of_a_node_get():
    assert requested(created()) == (make_amounts(500, 300), AdmissionSize.PEAK)
    assert requested(created(PLANNED)) == (make_amounts(200, 250), AdmissionSize.NODE_PASS)
    # A limit is not reserved: it is that of the peak.
    decision = created(PLANNED)
    assert isinstance(decision, MutatePod)
    assert decision.containers[0].limits == make_amounts(None, 600)


@pytest.mark.parametrize("policy", ["Never", "OnFailure"])
def test_a_pod_that_runs_to_completion_gets_its_peak_where_sizes_are_planned(policy):
    pod = new_pod(restart_policy=policy)
    assert requested(created(PLANNED, pod=pod)) == (make_amounts(500, 300), AdmissionSize.PEAK)
    by_the_first_rules = replace(PLANNED, rules=SEED_RULES)
    assert requested(created(by_the_first_rules, pod=pod))[1] is AdmissionSize.NODE_PASS


def test_before_the_first_node_pass_a_planned_size_is_the_peak():
    assert requested(created(PLANNED, average_headroom_share=None))[0] == make_amounts(500, 300)


@pytest.mark.parametrize(("factor", "expected"), [("2", (300, 300)), ("0", (100, 200)), ("10", (500, 300))])
def test_a_headroom_factor_counts_up_to_the_peak(factor, expected):
    pod = new_pod(annotations={"cruise.io/headroom-factor": factor})
    assert requested(created(PLANNED, pod=pod))[0] == make_amounts(*expected)


@pytest.mark.parametrize("seen", NodeAutoscalerKind)
def test_where_nodes_are_consolidated_sizes_are_planned_unless_stated_otherwise(seen):
    assert requested(created(node_autoscaler=seen))[1] is AdmissionSize.NODE_PASS
    peak = replace(INITIAL, admission_size=AdmissionSize.PEAK)
    assert requested(created(peak, node_autoscaler=seen)) == (make_amounts(500, 300), AdmissionSize.PEAK)
    assert requested(created(replace(INITIAL, rules=SEED_RULES), node_autoscaler=seen))[1] is AdmissionSize.PEAK


def test_deciding_again_on_a_planned_pod_changes_nothing():
    decision = created(PLANNED)
    assert isinstance(decision, MutatePod)
    assert created(
        PLANNED, pod=compute_admitted_resources(new_pod(), decision).apply_to(new_pod(), {})
    ) == LeaveUnchanged(ReasonCode.NO_CHANGE_NEEDED)


# ---- the ceiling of memory limits ----


# A leak over a week must not get all memory of a node.
LEAK = use(memory_mib=600, max_mib=10_000)


@pytest.mark.parametrize(("stated", "limit"), [(1024, 2048), (9000, 16384), (None, 16384)])
def test_a_memory_limit_ends_at_twice_the_templates_own_and_at_the_largest_node(stated, limit):
    pod = new_pod(make_container(cpu_limit=300, memory_limit_mib=stated))
    decision = decide(pod, LEAK)
    assert isinstance(decision, MutatePod)
    assert decision.containers[0].limits == make_amounts(None, limit)
    kept = {ORIGINAL_RESOURCES: format_original_resources(get_original_resources(pod, decision))}
    assert left(compute_admitted_resources(pod, decision).apply_to(pod, kept), LEAK) is ReasonCode.NO_CHANGE_NEEDED
    [seeds] = mutated(pod, LEAK, policy=replace(INITIAL, rules=SEED_RULES))
    assert seeds.limits == make_amounts(None, 20_000)


def test_a_cut_of_a_request_applies_to_its_limit():
    # The peak of 17,000 MiB is cut to the node's 16,384, and the limit may not exceed them.
    [target] = mutated(new_pod(make_container(memory_mib=1000)), use(memory_mib=17_000))
    # None is added: it would be below known use, or above the node.
    assert (target.requests.memory_bytes, target.limits.memory_bytes) == (16_384 * MEBIBYTE, None)


def test_with_node_autoscaling_only_the_template_caps_a_memory_limit():
    pod = new_pod(make_container(memory_limit_mib=9000))
    assert mutated(pod, LEAK, node_autoscaler=NodeAutoscalerKind.KARPENTER)[0].limits == make_amounts(None, 18_000)
