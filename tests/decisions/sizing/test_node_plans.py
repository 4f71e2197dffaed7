"""Plans of single nodes, computed by hand."""

from dataclasses import replace

import pytest

from cruise.decisions.sizing.node_plans import NodePlan, decide_node_plans
from cruise.domain.actions import ReasonCode, RefusedResize, ResizePod
from cruise.domain.cluster import ContainerRole, Node, Pod, QosClass
from cruise.domain.policy import SEED_RULES, EvictionRanking, Mode, Policy
from cruise.domain.resources import MEBIBYTE, ResizePending, ResizeState, ResourceName, Resources
from cruise.domain.scheduling import LabelSelector
from tests.builders import (
    NOW,
    TRACKING,
    make_amounts,
    make_autoscaler,
    make_budget,
    make_container,
    make_node,
    make_pod,
    make_resources,
    make_snapshot,
    make_statistic_for,
    make_table,
    make_workload,
)

FULL = Policy(mode=Mode.FULL, rules=TRACKING)
SEEDS_IN_FULL = Policy(mode=Mode.FULL, rules=SEED_RULES)


def plan_of(pods, rows, node: Node | None = None, policy=FULL, refused=None, **more) -> NodePlan:
    snapshot = make_snapshot(pods, nodes=[node or make_node()], **more)
    [plan] = decide_node_plans(snapshot, make_table(*rows), policy, NOW, refused=refused)
    return plan


def use(pod: Pod, cpu=(100, 100), memory=(100, 100), container="app", **more):
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


def evicted(plan: NodePlan) -> list[tuple[str, ResourceName]]:
    return [(eviction.pod, eviction.resource) for eviction in plan.evict]


def requests(plan: NodePlan) -> dict[str, tuple[int, int]]:
    """The written CPU and memory (MiB) by container."""
    return {
        f"{resize.pod}/{target.container}": (
            target.requests.cpu_millicores or 0,
            (target.requests.memory_bytes or 0) // MEBIBYTE,
        )
        for resize in plan.resize
        for target in resize.containers
    }


# ---- available ----


def test_fixed_pods_and_overheads_reduce_the_capacity():
    resizable = make_pod("resizable", overhead=make_resources(30, 20))
    bare = make_pod("bare", workload=None, overhead=make_resources(5, 5))  # 100 + 5, 128 + 5
    slow_shrink = make_pod(
        "slow",
        workload=None,
        containers=[replace(make_container(cpu=100), allocated=make_amounts(100, 128), actual=make_amounts(400, 300))],
    )  # 400, 300: what the kubelet still reports
    with_init = make_pod(
        "init",
        workload=None,
        containers=[make_container("setup", cpu=700, memory_mib=50, role=ContainerRole.INIT), make_container()],
    )  # max(700, 100), max(50, 128)
    done = make_pod("done", phase="Succeeded")
    plan = plan_of([resizable, bare, slow_shrink, with_init, done], [use(resizable)])
    assert plan.available == make_resources(4000 - 105 - 400 - 700 - 30, 16384 - 133 - 300 - 128 - 20)
    assert plan.counted == make_resources(130 + 105 + 400 + 700, 148 + 133 + 300 + 128)
    assert [(hold.pod, hold.reason) for hold in plan.skipped] == [
        ("bare", ReasonCode.NO_CONTROLLER),
        ("done", ReasonCode.COMPLETED),
        ("init", ReasonCode.NO_CONTROLLER),
        ("slow", ReasonCode.NO_CONTROLLER),
    ]


def test_an_init_container_is_a_minimum_of_its_pods_base():
    setup = make_container("setup", cpu=1000, memory_mib=10, role=ContainerRole.INIT)
    pod = make_pod(containers=[setup, make_container()])
    plan = plan_of([pod], [use(pod, cpu=(100, 300))], node=make_node(cpu=1200))
    assert plan.base == make_resources(1000, 100)
    assert plan.fits  # 1000 + 200
    assert requests(plan) == {"web-1/app": (300, 100)}
    assert not plan_of(
        [replace(pod, annotations={"cruise.io/eviction-ranking": "never"})],
        [use(pod, cpu=(100, 300))],
        node=make_node(cpu=1199),
    ).fits


def test_an_empty_node_and_no_nodes():
    plan = plan_of([], [])
    assert (plan.fits, plan.available, plan.counted, plan.targets) == (
        True,
        make_resources(4000, 16384),
        Resources(),
        (),
    )
    assert decide_node_plans(make_snapshot(), make_table(), FULL, NOW) == []
    nothing = plan_of([], [], node=make_node(cpu=0, memory_mib=0))
    assert nothing.fits


@pytest.mark.parametrize("node", [make_node(cpu=1000, ready=False), make_node(cpu=0), make_node(memory_mib=0)])
def test_a_node_without_a_working_kubelet_is_not_overcommitted(node):
    pods = [make_pod(name, containers=[make_container(cpu=3000)]) for name in ("web-1", "web-2")]
    plan = plan_of(pods, [use(pod) for pod in pods], node=node)
    assert (plan.fits, plan.reason) == (False, ReasonCode.NODE_NOT_READY)
    assert (plan.resize, plan.evict) == ((), ())
    assert not plan.is_full and not plan.has_working_kubelet


def test_a_node_that_is_not_ready_is_named_so_although_its_pods_fit():
    pod = make_pod()
    plan = plan_of([pod], [use(pod)], node=make_node(ready=False))
    assert (plan.fits, plan.reason, plan.is_full) == (True, ReasonCode.NODE_NOT_READY, False)


def test_a_node_with_more_requests_than_allocatable_is_overcommitted():
    bare, pod = make_pod("bare", workload=None, containers=[make_container(cpu=5000)]), make_pod("web")
    plan = plan_of([bare, pod], [use(pod, cpu=(300, 300))], policy=SEEDS_IN_FULL)
    assert plan.available.cpu_millicores == -1000
    assert (plan.fits, plan.reason) == (False, ReasonCode.OVERCOMMITTED)
    assert plan.evict == ()


def test_only_the_given_nodes_are_decided():
    pods = [make_pod("a", node="n1"), make_pod("b", node="n2")]
    snapshot = make_snapshot(pods)
    plans = decide_node_plans(snapshot, make_table(*(use(p) for p in pods)), FULL, NOW, nodes=frozenset({"n2"}))
    assert [(plan.node, [t.pod for t in plan.targets]) for plan in plans] == [("n2", ["b"])]


# ---- evictions ----


def test_the_ranking_decides_then_the_headroom_then_the_name():
    names = {"low-constant": 50, "low-spiky": 90, "low-spiky-2": 90, "high": 95, "set": 99}
    pods = {
        name: make_pod(
            name,
            workload="StatefulSet/set" if name == "set" else "Deployment/web",
            annotations={"cruise.io/eviction-ranking": "high"} if name == "high" else {},
        )
        for name in names
    }
    rows = [use(pods[name], cpu=(100, 100 + headroom)) for name, headroom in names.items()]

    def first_gone(count: int) -> list[str]:
        # Capacity for the bases of all but `count`, and for any headroom but the largest.
        plan = plan_of(pods.values(), rows, node=make_node(cpu=(5 - count) * 100 + 99))
        assert plan.fits
        return [name for name, _ in evicted(plan)]

    assert first_gone(1) == ["low-spiky"]
    assert first_gone(2) == ["low-spiky", "low-spiky-2"]
    assert first_gone(3) == ["low-spiky", "low-spiky-2", "low-constant"]
    # The StatefulSet is medium by default, above `high`.
    assert first_gone(4) == ["low-spiky", "low-spiky-2", "low-constant", "set"]


@pytest.mark.parametrize(
    ("replicas", "ranking"), [(1, EvictionRanking.MEDIUM), (2, EvictionRanking.LOW), (0, EvictionRanking.MEDIUM)]
)
def test_single_replicas_are_medium(replicas, ranking):
    pod = make_pod()
    plan = plan_of(
        [pod], [use(pod, cpu=(900, 900))], node=make_node(cpu=500), workloads=[make_workload(replicas=replicas)]
    )
    assert [eviction.ranking for eviction in plan.evict] == [ranking]


@pytest.mark.parametrize(
    "fields",
    [
        {"workload": "DaemonSet/agent"},
        {"annotations": {"cruise.io/eviction-ranking": "never"}},
        {"annotations": {"cruise.io/eviction-ranking": "no-eviction"}},
        {"annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}},
        {"annotations": {"karpenter.sh/do-not-disrupt": "true"}},
        {"annotations": {"karpenter.sh/do-not-disrupt": "5m"}},
        {"annotations": {"cruise.io/mode": "resize"}},
        {"labels": {"twice": "covered"}},
    ],
)
def test_pods_that_are_never_evicted(fields):
    pod = make_pod(**fields)
    covered = [make_budget("one"), make_budget("two")] if "labels" in fields else []
    plan = plan_of([pod], [use(pod, cpu=(900, 900))], node=make_node(cpu=500), budgets=covered)
    assert (plan.fits, plan.reason, plan.evict) == (False, ReasonCode.OVERCOMMITTED, ())


def test_under_the_first_rule_set_one_disruption_budget_prevents_no_eviction():
    # The API server decides at the eviction whether the budget allows it.
    pod = make_pod()
    plan = plan_of(
        [pod],
        [use(pod, cpu=(900, 900))],
        node=make_node(cpu=500),
        policy=SEEDS_IN_FULL,
        budgets=[make_budget(disruptions_allowed=0), make_budget("elsewhere", namespace="other")],
    )
    assert evicted(plan) == [("web-1", ResourceName.CPU)]
    assert LabelSelector().matches(pod.labels)


def test_memory_is_relieved_first_and_the_reason_is_reported():
    cpu_bound, memory_bound, constant = make_pod("cpu"), make_pod("memory"), make_pod("constant")
    plan = plan_of(
        [cpu_bound, memory_bound, constant],
        [
            use(cpu_bound, cpu=(900, 1000), memory=(64, 64)),
            use(memory_bound, cpu=(10, 10), memory=(900, 950)),
            use(constant),
        ],
        node=make_node(cpu=500, memory_mib=500),
    )
    assert evicted(plan) == [("memory", ResourceName.MEMORY), ("cpu", ResourceName.CPU)]
    assert [t.pod for t in plan.targets] == ["constant"]


def test_an_early_mark_is_undone_if_the_pod_fits_after_all():
    small, large = make_pod("small"), make_pod("large")
    plan = plan_of(
        [small, large],
        [use(small, memory=(50, 120)), use(large, memory=(900, 910))],
        node=make_node(memory_mib=500),
    )
    # `small` peaks higher and is marked first; 900 + 10 do not fit, so `large` is marked, and `small` unmarked.
    assert evicted(plan) == [("large", ResourceName.MEMORY)]


def test_a_pod_is_evicted_only_for_a_managed_resource():
    scaled = make_pod("scaled", containers=[make_container(cpu=600)], workload="Deployment/scaled")
    plan = plan_of(
        [scaled],
        [use(scaled, cpu=(100, 100), memory=(900, 900))],
        node=make_node(cpu=500, memory_mib=2000),
        autoscalers=[make_autoscaler("Deployment/scaled")],
    )
    # Its 600m are fixed: CPU cannot fit, whichever pods are evicted.
    assert (plan.fits, plan.evict) == (False, ())


# ---- overcommitted ----


def test_under_the_first_rule_set_an_overcommitted_node_only_shrinks():
    agent = make_pod("agent", workload="DaemonSet/agent", containers=[make_container(cpu=2000, memory_mib=2000)])
    hungry = make_pod("hungry", workload="DaemonSet/hungry", containers=[make_container(cpu=100, memory_mib=100)])
    constant = make_pod(
        "constant", containers=[make_container(cpu=1000, memory_mib=1000)], workload="DaemonSet/constant"
    )
    plan = plan_of(
        [agent, hungry, constant],
        [
            use(agent, cpu=(2000, 2000), memory=(500, 500)),
            use(hungry, cpu=(2500, 2500), memory=(500, 500)),
            use(constant, cpu=(100, 200), memory=(100, 100)),
        ],
        policy=SEEDS_IN_FULL,
    )
    assert plan.reason is ReasonCode.OVERCOMMITTED
    assert {t.pod: (t.cpu_millicores, t.memory_bytes // MEBIBYTE) for t in plan.targets} == {
        "agent": (2000, 500),
        "hungry": (100, 100),
        "constant": (200, 100),
    }
    assert all(resize.growth == Resources() for resize in plan.resize)


def test_without_a_request_nothing_is_added_on_an_overcommitted_node():
    pod = make_pod(
        workload="DaemonSet/agent",
        containers=[make_container(cpu=None), make_container("b", cpu=None, memory_mib=None)],
    )
    rows = [use(pod, cpu=(5000, 5000)), use(pod, container="b")]
    plan = plan_of([pod], rows, node=make_node(), policy=SEEDS_IN_FULL)
    # Nor a limit: the API server would set the missing request to it.
    assert [
        (t.container, t.cpu_millicores, t.memory_bytes // MEBIBYTE, t.memory_limit_bytes // MEBIBYTE)
        for t in plan.targets
    ] == [("app", 0, 100, 200), ("b", 0, 0, 0)]


# ---- order and growth ----


def test_decreases_are_before_increases():
    pods = [make_pod("a-grows"), make_pod("b-shrinks", containers=[make_container(cpu=900, memory_mib=900)])]
    plan = plan_of(pods, [use(pods[0], cpu=(500, 500)), use(pods[1])])
    assert [(resize.pod, resize.growth) for resize in plan.resize] == [
        ("b-shrinks", Resources()),
        ("a-grows", make_resources(400, 0)),
    ]


def test_growth_is_what_the_counted_sum_rises_by():
    # A decrease from 400m is in progress: requesting 300m again needs no more capacity.
    shrinking = replace(make_container(cpu=100), actual=make_amounts(400, 128))
    setup = make_container("setup", cpu=700, memory_mib=10, role=ContainerRole.INIT)
    pods = [make_pod("a", containers=[shrinking]), make_pod("b", containers=[setup, make_container()])]
    plan = plan_of(pods, [use(pods[0], cpu=(300, 300)), use(pods[1], cpu=(900, 900))])
    assert {resize.pod: resize.growth.cpu_millicores for resize in plan.resize} == {"a": 0, "b": 200}


def test_pods_within_the_update_threshold_keep_their_sizes_and_others_grow_into_the_rest():
    # `constant` stays at 508 with a target of 500: 8m are below the threshold. `eager` would get 500, 492 are left.
    constant = make_pod("constant", containers=[make_container(cpu=508, memory_mib=100, memory_limit_mib=200)])
    eager = make_pod("eager", containers=[make_container(cpu=300, memory_mib=100, memory_limit_mib=200)])
    rows = [use(constant, cpu=(500, 500)), use(eager, cpu=(500, 500))]
    plan = plan_of([constant, eager], rows, node=make_node(cpu=1000))
    assert [t.cpu_millicores for t in plan.targets] == [500, 500]
    assert requests(plan) == {"eager/app": (492, 100)}
    [resize] = plan.resize
    assert resize.growth == make_resources(192, 0)
    # Once written, 492 is within the update threshold of 500 and needs no change.
    grown = replace(eager, containers=(make_container(cpu=492, memory_mib=100, memory_limit_mib=200),))
    settled = plan_of([constant, grown], rows, node=make_node(cpu=1000))
    assert (settled.resize, settled.skipped) == ((), ())


def test_growth_without_capacity_is_skipped():
    constant = make_pod("constant", containers=[make_container(cpu=109, memory_mib=100, memory_limit_mib=200)])
    eager = make_pod("eager", containers=[make_container(cpu=89, memory_mib=100, memory_limit_mib=200)])
    rows = [use(constant, cpu=(100, 100)), use(eager, cpu=(100, 100))]
    plan = plan_of([constant, eager], rows, node=make_node(cpu=200))
    # 11m would exceed the threshold, but only 2m are free.
    assert plan.resize == ()
    assert [(hold.pod, hold.reason) for hold in plan.skipped] == [("eager", ReasonCode.WAITING_FOR_CAPACITY)]


def test_growth_is_not_cut_below_the_lower_bound():
    # Of the 20 MiB that `fresh` should get, 12 are free: less than the minimum of 16.
    constant = make_pod("constant", containers=[make_container(memory_mib=88, memory_limit_mib=160)])
    fresh = make_pod("fresh", containers=[make_container(memory_mib=None)])
    rows = [use(constant, memory=(80, 80)), use(fresh, memory=(20, 20))]
    plan = plan_of([constant, fresh], rows, node=make_node(memory_mib=100))
    assert [t.memory_bytes // MEBIBYTE for t in plan.targets] == [80, 20]
    assert plan.resize == ()
    assert [(hold.pod, hold.reason) for hold in plan.skipped] == [("fresh", ReasonCode.WAITING_FOR_CAPACITY)]


def test_nothing_grows_into_the_capacity_of_a_skipped_decrease():
    shrinks = make_pod("shrinks", containers=[make_container(cpu=800, memory_mib=100, memory_limit_mib=200)])
    grows = make_pod("grows", containers=[make_container(cpu=200, memory_mib=100, memory_limit_mib=200)])
    rows = [use(shrinks, cpu=(500, 500)), use(grows, cpu=(450, 450))]
    node = make_node(cpu=1000)
    assert requests(plan_of([shrinks, grows], rows, node)) == {"shrinks/app": (500, 100), "grows/app": (450, 100)}
    deferred = replace(shrinks, resize=ResizeState(ResizePending.DEFERRED, NOW))
    plan = plan_of([deferred, grows], rows, node)
    assert plan.resize == ()
    assert {hold.pod: hold.reason for hold in plan.skipped} == {
        "shrinks": ReasonCode.RESIZE_DEFERRED,
        "grows": ReasonCode.WAITING_FOR_CAPACITY,
    }


def test_a_pod_that_may_not_grow_still_shrinks():
    # `mixed` has no capacity for CPU, but its memory decreases: that is written, the CPU stays.
    constant = make_pod("constant", containers=[make_container(cpu=109, memory_mib=100, memory_limit_mib=200)])
    mixed = make_pod("mixed", containers=[make_container(cpu=89, memory_mib=800, memory_limit_mib=1600)])
    rows = [use(constant, cpu=(100, 100)), use(mixed, cpu=(100, 100))]
    plan = plan_of([constant, mixed], rows, node=make_node(cpu=200))
    assert requests(plan) == {"mixed/app": (91, 100)}
    [resize] = plan.resize
    assert resize.growth == make_resources(2, 0)


# ---- skip reasons and modes ----


@pytest.mark.parametrize(
    ("mode", "reason"),
    [(Mode.OFF, ReasonCode.MODE_OFF), (Mode.OBSERVE, ReasonCode.MODE_OBSERVE), (Mode.INITIAL, ReasonCode.MODE_INITIAL)],
)
def test_modes_below_resize_skip_every_pod(mode, reason):
    pod = make_pod()
    plan = plan_of([pod], [use(pod)], policy=replace(FULL, mode=mode))
    assert [hold.reason for hold in plan.skipped] == [reason]
    assert (plan.resize, plan.targets, plan.available) == ((), (), make_resources(3900, 16384 - 128))


def test_mode_resize_resizes_and_does_not_evict():
    pods = [make_pod("a"), make_pod("b", containers=[make_container(cpu=900)])]
    rows = [use(pods[0], cpu=(900, 900)), use(pods[1], cpu=(200, 200))]
    plan = plan_of(pods, rows, node=make_node(cpu=1000), policy=replace(FULL, mode=Mode.RESIZE))
    assert (plan.fits, plan.evict) == (False, ())
    assert requests(plan) == {"a/app": (800, 100), "b/app": (200, 100)}


def test_a_rejected_target_is_skipped_and_reported():
    pod = make_pod()
    rows = [use(pod, cpu=(900, 900))]
    [resize] = plan_of([pod], rows).resize
    refused = {pod.uid: RefusedResize(pod.uid, resize.containers, ReasonCode.RESIZE_INFEASIBLE, NOW)}
    plan = plan_of([pod], rows, refused=refused)
    assert plan.resize == ()
    assert [hold.reason for hold in plan.skipped] == [ReasonCode.RESIZE_REFUSED]
    assert [t.cpu_millicores for t in plan.targets] == [900]


def test_every_pod_of_a_node_is_either_evicted_skipped_or_sized():
    pods = [
        make_pod("evicted", containers=[make_container(memory_mib=100)]),
        make_pod("kept", annotations={"cruise.io/eviction-ranking": "high"}),
        make_pod("guaranteed", qos=QosClass.GUARANTEED),
        make_pod("decision", terminating=True),
        make_pod("pending", node=None, workload="Deployment/other"),
    ]
    plan = plan_of(
        pods,
        [use(pods[0], memory=(9000, 9000)), use(pods[1], memory=(9000, 9000))],
        node=make_node(memory_mib=16000),
    )
    assert [name for name, _ in evicted(plan)] == ["evicted"]
    assert {t.pod for t in plan.targets} == {"kept"}
    assert {hold.pod: hold.reason for hold in plan.skipped} == {
        "guaranteed": ReasonCode.GUARANTEED,
        "decision": ReasonCode.TERMINATING,
    }
    assert isinstance(plan.resize[0], ResizePod)
