"""Invariants of every plan, on random clusters."""

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import event, given
from hypothesis import strategies as st

from cruise.decisions.pod_policy.container_bounds import compute_container_bounds
from cruise.decisions.pod_policy.eligibility import Eligibility
from cruise.decisions.pod_policy.resizable_pod import ResizablePod, has_working_kubelet
from cruise.decisions.sizing.demand import build_demand_table
from cruise.decisions.sizing.node_plans import NodePlan, decide_node_plans
from cruise.decisions.usage.estimation import add_pod_level_rows
from cruise.decisions.usage.revisions import update_revisions
from cruise.domain.actions import ReasonCode, RefusedResize, ResizePod
from cruise.domain.cluster import ClusterSnapshot, Container, ContainerRole, Node, Pod, QosClass
from cruise.domain.original_resources import NO_REVISIONS
from cruise.domain.pod_resources import (
    compute_init_container_minimum,
    count_pod_requests,
    get_qos_class,
    get_spec_targets,
    replace_spec_resources,
)
from cruise.domain.policy import DEFAULT_RULES, SEED_RULES, EvictionRanking, Mode, Policy
from cruise.domain.resources import MEBIBYTE, NO_RESIZE, NO_RESOURCES, ResourceName, Resources
from cruise.domain.usage import Statistic, StatisticsTable
from cruise.simulation.cluster.api_server import check_resize
from tests.builders import (
    NOW,
    NOW_SECONDS,
    make_container,
    make_node,
    make_pod,
    make_snapshot,
    make_statistic_for,
    make_table,
)
from tests.strategies import DrawnClusterValues, clusters

FULL = Policy(mode=Mode.FULL)
SEEDS_IN_FULL = Policy(mode=Mode.FULL, rules=SEED_RULES)
# The requests of annotations count in the sums like everything else.
USER_MINIMUMS_COUNT = Policy(mode=Mode.FULL, rules=replace(DEFAULT_RULES, reserved_capacity=False))
HOUR = 3600


@st.composite
def situations(draw: st.DrawFn) -> DrawnClusterValues:
    """A cluster as it was found, one on nodes of any size, or one that lives by an earlier plan on nodes without slack.

    The first is held by its nodes as it is. The second may be over them. In the third most pods are inside their dead
    bands, and what some of them no longer need is all that others could grow into.
    """
    cluster = draw(clusters())
    kind = draw(st.sampled_from(["found", "squeezed", "lived in", "lived in"]))
    event(kind)
    match kind:
        case "squeezed":
            return cluster._replace(snapshot=_squeezed(cluster.snapshot, draw(st.sampled_from([0.0, 0.3, 0.7, 0.9]))))
        case "lived in":
            plans = decide_node_plans(cluster.snapshot, cluster.statistics, FULL, NOW)
            snapshot = _without_slack(applied(cluster.snapshot, plans))
            rows = [draw(_drifted(row)) for row in rows_of(cluster.statistics)]
            return DrawnClusterValues(snapshot, make_table(*rows))
    return cluster


def _squeezed(snapshot: ClusterSnapshot, share: float) -> ClusterSnapshot:
    def less(node: Node) -> Node:
        offered = node.allocatable
        return replace(
            node, allocatable=Resources(int(offered.cpu_millicores * share), int(offered.memory_bytes * share))
        )

    return replace(snapshot, nodes=tuple(less(node) for node in snapshot.nodes))


def _without_slack(snapshot: ClusterSnapshot) -> ClusterSnapshot:
    nodes = tuple(replace(node, allocatable=counted_on(snapshot, node.name)) for node in snapshot.nodes)
    return replace(snapshot, nodes=nodes)


@st.composite
def _drifted(draw: st.DrawFn, row: Statistic) -> Statistic:
    """Mostly decreases below the update threshold, sometimes an increase by a few of these together."""
    cpu = draw(st.sampled_from([-9, -9, -9, 0, 12, 18, 27, -300, 300]))
    memory = draw(st.sampled_from([-15, -15, -15, 0, 20, 30, 45, -200, 200])) * MEBIBYTE
    return replace(
        row,
        cpu_base_millicores=max(0, row.cpu_base_millicores + cpu),
        cpu_peak_millicores=max(0, row.cpu_peak_millicores + cpu),
        memory_base_bytes=max(0, row.memory_base_bytes + memory),
        memory_peak_bytes=max(0, row.memory_peak_bytes + memory),
    )


def rows_of(table: StatisticsTable) -> list[Statistic]:
    return [table.get_row(index) for index in range(len(table.keys))]


# ---- the results of a plan ----


def done(pod: Pod, resize: ResizePod) -> Pod:
    """The pod after its kubelet has completed the resize."""
    sized = replace_spec_resources(pod, resize.containers)
    containers = tuple(
        c
        if c.role is ContainerRole.INIT
        else replace(c, allocated=c.requests, actual=c.requests, actual_limits=c.limits)
        for c in sized.containers
    )
    return replace(sized, containers=containers, resize=NO_RESIZE)


def _in_force(container: Container) -> Container:
    return replace(container, allocated=container.requests, actual=container.requests, actual_limits=container.limits)


def applied(snapshot: ClusterSnapshot, plans: Sequence[NodePlan]) -> ClusterSnapshot:
    gone = {(e.namespace, e.pod) for plan in plans for e in plan.evict}
    resizes = {(r.namespace, r.pod): r for plan in plans for r in plan.resize}
    after = tuple(
        done(pod, resizes[name]) if (name := (pod.namespace, pod.name)) in resizes else pod
        for pod in snapshot.pods
        if (pod.namespace, pod.name) not in gone
    )
    return replace(snapshot, pods=after)


def remembered(snapshot: ClusterSnapshot, plans: Sequence[NodePlan]) -> dict[str, RefusedResize]:
    """The known rejections after the withdrawals among the resizes."""
    withdrawn = {r.uid for plan in plans for r in plan.resize if r.reason is ReasonCode.WITHDRAWN}
    return {
        pod.uid: RefusedResize(pod.uid, get_spec_targets(pod), ReasonCode.RESIZE_INFEASIBLE, NOW)
        for pod in snapshot.pods
        if pod.uid in withdrawn
    }


def counted_on(snapshot: ClusterSnapshot, node: str) -> Resources:
    total = NO_RESOURCES
    for pod in snapshot.pods:
        if pod.node == node:
            total += count_pod_requests(pod)
    return total


def each(resources: Resources) -> tuple[int, int]:
    return resources.cpu_millicores, resources.memory_bytes


def resizable_on(snapshot: ClusterSnapshot, table: StatisticsTable, node: str) -> list[ResizablePod]:
    eligibility = Eligibility(snapshot, table, {}, FULL, NOW)
    verdicts = (eligibility.check(pod) for pod in snapshot.pods if pod.node == node)
    return [verdict for verdict in verdicts if isinstance(verdict, ResizablePod)]


def bases_of(pod: ResizablePod, snapshot: ClusterSnapshot, table: StatisticsTable) -> dict[str, Resources]:
    """What each sized container needs at least, within its bounds.

    What a LimitRange requires, by itself or because of an unchanged limit, counts as far as it is requested already.
    `test_limit_ranges.py` has the laws on how much that is.
    """
    found = {}
    table = add_pod_level_rows(table, snapshot.pods)
    bounds = build_demand_table([pod], table, snapshot.limit_ranges, FULL)
    for at, (container, row) in enumerate(zip(pod.sized, pod.rows, strict=True)):
        use, items = table.get_row(row), snapshot.limit_ranges.get(pod.pod.namespace, ())
        stated_cpu, stated_memory = compute_container_bounds(
            pod.effective_policy, container.name, items, FULL
        ).stated_minimum
        cpu, memory = bounds.cpu, bounds.memory
        low_cpu = max(stated_cpu, min(int(cpu.lower[at]), int(cpu.current[at])))
        low_memory = max(stated_memory, min(int(memory.lower[at]), int(memory.current[at])))
        found[container.name] = Resources(
            min(max(use.cpu_base_millicores, low_cpu), int(cpu.upper[at])) if pod.manages_cpu else 0,
            min(max(use.memory_base_bytes, low_memory), int(memory.upper[at])) if pod.manages_memory else 0,
        )
    return found


def demand_of(pod: ResizablePod, snapshot: ClusterSnapshot, table: StatisticsTable) -> tuple[Resources, Resources]:
    """Base and largest headroom of a pod, one container after the other as the rules have it."""
    base = bases_of(pod, snapshot, table)
    table = add_pod_level_rows(table, snapshot.pods)
    cpu_headroom, memory_headroom = [0], [0]
    for container, row in zip(pod.sized, pod.rows, strict=True):
        use, own = table.get_row(row), base[container.name]
        peak = max(use.memory_peak_bytes, use.oom_memory_bytes)
        factor = pod.effective_policy.headroom_factor
        cpu = -int(-max(0, use.cpu_peak_millicores - use.cpu_base_millicores) * factor // 1)
        memory = -int(-max(0, peak - use.memory_base_bytes) * factor // 1)
        if pod.pod.runs_to_completion:
            # What it keeps covers its own peak.
            cpu -= max(own.cpu_millicores - use.cpu_base_millicores, 0)
            memory -= max(own.memory_bytes - use.memory_base_bytes, 0)
        cpu_headroom.append(cpu)
        memory_headroom.append(memory)
    total = NO_RESOURCES
    for one in base.values():
        total += one
    total = total.max_with(compute_init_container_minimum(pod.pod, base))
    return (
        Resources(total.cpu_millicores if pod.manages_cpu else 0, total.memory_bytes if pod.manages_memory else 0),
        Resources(
            max(cpu_headroom) if pod.manages_cpu else 0,
            max(memory_headroom) if pod.manages_memory else 0,
        ),
    )


def need_of(demands: Sequence[tuple[Resources, Resources]]) -> Resources:
    base, headroom = NO_RESOURCES, NO_RESOURCES
    for one, spike in demands:
        base, headroom = base + one, headroom.max_with(spike)
    return base + headroom


# ---- fit ----


@given(situations())
def test_a_node_that_fits_its_pods_fits_them_after_the_plan(cluster):
    snapshot, table = cluster
    plans = decide_node_plans(snapshot, table, FULL, NOW)
    after = applied(snapshot, plans)
    for plan in plans:
        for room, was, now in zip(
            each(plan.allocatable),
            each(counted_on(snapshot, plan.node)),
            each(counted_on(after, plan.node)),
            strict=True,
        ):
            event(f"fits={plan.fits} over before={was > room} evicts={bool(plan.evict)}")
            assert now <= max(room, was)


@given(situations())
def test_written_sizes_fit_the_available_capacity(cluster):
    snapshot, table = cluster
    nodes = {node.name: node for node in snapshot.nodes}
    for plan in decide_node_plans(snapshot, table, FULL, NOW):
        assert (plan.reason is None) == (plan.fits and plan.has_working_kubelet)
        assert plan.has_working_kubelet == has_working_kubelet(nodes[plan.node])
        if not plan.fits:
            assert plan.reason in (ReasonCode.OVERCOMMITTED, ReasonCode.UNDER_PRESSURE, ReasonCode.NODE_NOT_READY)
            continue
        gone = {(e.namespace, e.pod) for e in plan.evict}
        sizes = {(t.namespace, t.pod, t.container): t for t in plan.targets}
        written = NO_RESOURCES
        for pod in resizable_on(snapshot, table, plan.node):
            name = (pod.pod.namespace, pod.pod.name)
            if name in gone:
                continue
            own = {
                c.name: Resources(sizes[*name, c.name].cpu_millicores, sizes[*name, c.name].memory_bytes)
                for c in pod.sized
            }
            total = NO_RESOURCES
            for one in own.values():
                total += one
            total = total.max_with(compute_init_container_minimum(pod.pod, own))
            written += Resources(
                total.cpu_millicores if pod.manages_cpu else 0, total.memory_bytes if pod.manages_memory else 0
            )
        assert written.fits_in(plan.available)


@given(situations())
def test_evictions_suffice_and_each_is_needed(cluster):
    snapshot, table = cluster
    priority = {(pod.namespace, pod.name): pod.priority for pod in snapshot.pods}
    for plan in decide_node_plans(snapshot, table, USER_MINIMUMS_COUNT, NOW):
        everyone = {
            (pod.pod.namespace, pod.pod.name): demand_of(pod, snapshot, table)
            for pod in resizable_on(snapshot, table, plan.node)
        }
        gone = [(e.namespace, e.pod) for e in plan.evict]
        staying = [demand for name, demand in everyone.items() if name not in gone]
        assert need_of(staying).fits_in(plan.available) == plan.fits
        assert need_of(staying) == plan.base + plan.headroom
        for name in gone:
            if any(priority[other] > priority[name] for other in gone):
                continue  # it is not undone while a pod of higher priority is evicted
            assert not need_of([*staying, everyone[name]]).fits_in(plan.available)


@given(situations())
def test_no_protected_pod_is_evicted(cluster):
    snapshot, table = cluster
    by_name = {(pod.namespace, pod.name): pod for pod in snapshot.pods}
    eligibility = Eligibility(snapshot, table, {}, FULL, NOW)
    for plan in decide_node_plans(snapshot, table, FULL, NOW):
        for eviction in plan.evict:
            pod = by_name[eviction.namespace, eviction.pod]
            assert eligibility.evictability.explain_protection(pod) is None
            assert eviction.ranking is not EvictionRanking.NEVER
            assert (eviction.uid, eviction.node) == (pod.uid, plan.node)


@given(situations())
def test_no_pod_is_evicted_for_a_lower_priority_or_while_a_replica_is_missing(cluster):
    snapshot, table = cluster
    by_name = {(pod.namespace, pod.name): pod for pod in snapshot.pods}
    lacking = {
        (pod.namespace, pod.workload)
        for pod in snapshot.pods
        if not (pod.ready and pod.node) and not pod.is_finished and not pod.terminating
    }
    for plan in decide_node_plans(snapshot, table, USER_MINIMUMS_COUNT, NOW):
        gone = [by_name[eviction.namespace, eviction.pod] for eviction in plan.evict]
        for eviction, pod in zip(plan.evict, gone, strict=True):
            assert (pod.namespace, pod.workload) not in lacking
            assert pod.owner_kind != "Job" or eviction.ranking is EvictionRanking.LOW
            for other in resizable_on(snapshot, table, plan.node):
                takes = need_of([demand_of(other, snapshot, table)]).get(eviction.resource) > 0
                assert other.pod in gone or other.pod.priority >= pod.priority or not takes


# ---- order and idempotence ----


@given(situations(), st.randoms(use_true_random=False))
def test_the_order_of_the_input_does_not_matter(cluster, chance):
    snapshot, table = cluster

    def shuffled(things):
        mixed = list(things)
        chance.shuffle(mixed)
        return mixed

    rows = shuffled(rows_of(table))
    mixed = ClusterSnapshot(
        nodes=tuple(shuffled(snapshot.nodes)),
        pods=tuple(shuffled(snapshot.pods)),
        workloads=dict(shuffled(snapshot.workloads.items())),
        budgets=tuple(shuffled(snapshot.budgets)),
        autoscalers=tuple(shuffled(snapshot.autoscalers)),
        limit_ranges={name: tuple(shuffled(items)) for name, items in shuffled(snapshot.limit_ranges.items())},
        namespace_annotations=snapshot.namespace_annotations,
    )
    assert decide_node_plans(mixed, make_table(*rows), FULL, NOW) == decide_node_plans(snapshot, table, FULL, NOW)


def actions_of(plans: Sequence[NodePlan]) -> list[object]:
    return [action for plan in plans for action in (*plan.evict, *plan.resize)]


@given(situations())
def test_deciding_again_plans_nothing(cluster):
    event(f"settled after {carry_out(*cluster)} rounds")


def carry_out(snapshot: ClusterSnapshot, table: StatisticsTable) -> int:
    """Carry out plans until nothing is left to do; return their number."""
    # As a usage pass records them: resized pods do not show what their templates state.
    table = replace(table, revisions=update_revisions(NO_REVISIONS, snapshot.pods, {}, NOW_SECONDS).revisions)
    refused: dict[str, RefusedResize] = {}
    for round_number in range(4):
        plans = decide_node_plans(snapshot, table, FULL, NOW, refused=refused)
        actions = actions_of(plans)
        if round_number > 0:
            assert not any(plan.evict for plan in plans)
        if not actions:
            return round_number
        # Only evictions and withdrawals free capacity that others then use.
        makes_room = any(plan.evict for plan in plans) or remembered(snapshot, plans)
        refused |= remembered(snapshot, plans)
        snapshot = applied(snapshot, plans)
        if not makes_room:
            assert actions_of(decide_node_plans(snapshot, table, FULL, NOW, refused=refused)) == []
            return round_number + 1
    raise AssertionError("still not settled")


def test_a_unit_above_the_capacity_is_cut_even_if_no_single_container_must_give_it():
    """One unit was needed from two containers: half a unit of each was rounded to none."""
    sizes = {"proxy": (None, None), "app": (None, 256), "log": (104, None)}
    pod = make_pod("a", containers=[make_container(name, *size) for name, size in sizes.items()])
    peaks = {"proxy": 1, "app": 50, "log": 1}
    rows = [
        make_statistic_for(pod, name, cpu_base=1, cpu_peak=peak, memory_base_mib=16, memory_peak_mib=16)
        for name, peak in peaks.items()
    ]
    snapshot = make_snapshot([pod], nodes=[make_node(cpu=31, memory_mib=76)])
    plans = decide_node_plans(snapshot, make_table(*rows), FULL, NOW)
    assert counted_on(applied(snapshot, plans), "n1").cpu_millicores <= 31


def test_sidecars_free_all_capacity_if_init_containers_outweigh_the_others():
    """Each container gave a share of the decrease of the pod's sum, which then fell by less."""
    containers = [
        make_container("proxy", None, 128, role=ContainerRole.SIDECAR),
        make_container("warm", 1, 64, role=ContainerRole.INIT),
        make_container("log", None, 64),
    ]
    pods = [make_pod(name, containers=containers) for name in ("a", "b", "unknown")]
    rows = [
        make_statistic_for(
            pod, name, cpu_base=1, cpu_peak=1, memory_base_mib=16, memory_peak_mib=peak, memory_7d_max_mib=peak
        )
        for pod, peak in zip(pods, (16, 200), strict=False)
        for name in ("proxy", "log")
    ]
    carry_out(make_snapshot(pods, nodes=[make_node(cpu=0, memory_mib=150)]), make_table(*rows))


@given(situations())
def test_every_bound_pod_has_exactly_one_outcome(cluster):
    snapshot, table = cluster
    for plan in decide_node_plans(snapshot, table, FULL, NOW):
        evicted = {(e.namespace, e.pod) for e in plan.evict}
        sized = {(t.namespace, t.pod) for t in plan.targets}
        held = {(h.namespace, h.pod) for h in plan.skipped}
        resized = {(r.namespace, r.pod) for r in plan.resize}
        bound = {(pod.namespace, pod.name) for pod in snapshot.pods if pod.node == plan.node}
        assert evicted | sized | held == bound
        assert not evicted & (sized | held)
        assert resized <= sized - held
        fixed = held - sized
        assert fixed == bound - {(pod.pod.namespace, pod.pod.name) for pod in resizable_on(snapshot, table, plan.node)}
        assert [(t.namespace, t.pod, t.container) for t in plan.targets] == sorted(
            (t.namespace, t.pod, t.container) for t in plan.targets
        )
        assert len(plan.skipped) == len(held)


# ---- actions that never happen ----


@given(situations(), st.sampled_from(["stale", "missing", "new"]))
def test_nothing_changes_without_good_statistics(cluster, what):
    snapshot, table = cluster
    rows = [] if what == "missing" else rows_of(table)
    match what:
        case "stale":
            rows = [replace(row, updated_at=NOW_SECONDS - HOUR) for row in rows]
        case "new":
            rows = [replace(row, updated_at=NOW_SECONDS, history_since=NOW_SECONDS - 60) for row in rows]
    plans = decide_node_plans(snapshot, make_table(*rows), FULL, NOW)
    assert actions_of(plans) == []
    assert all(plan.targets == () for plan in plans)
    allowed = {
        "stale": ReasonCode.STALE_STATISTICS,
        "missing": ReasonCode.NO_STATISTICS,
        "new": ReasonCode.NEW_WORKLOAD,
    }[what]
    by_statistics = {ReasonCode.STALE_STATISTICS, ReasonCode.NO_STATISTICS, ReasonCode.NEW_WORKLOAD}
    told = {hold.reason for plan in plans for hold in plan.skipped} & by_statistics
    assert told <= {allowed, ReasonCode.NO_STATISTICS}


@given(situations())
def test_the_qos_class_never_changes_and_the_api_server_accepts_every_resize(cluster):
    snapshot, table = cluster
    by_name = {(pod.namespace, pod.name): pod for pod in snapshot.pods}
    nodes = {node.name: node for node in snapshot.nodes}
    for plan in decide_node_plans(snapshot, table, FULL, NOW):
        for resize in plan.resize:
            pod = by_name[resize.namespace, resize.pod]
            wanted = replace_spec_resources(pod, resize.containers)
            assert get_qos_class(wanted) is pod.qos is QosClass.BURSTABLE
            if resize.reason is ReasonCode.RIGHTSIZED:
                items = snapshot.limit_ranges.get(pod.namespace, ())
                # The first server that resizes such a pod.
                server = (1, 35) if pod.pod_level is None else (1, 36)
                check_resize(pod, wanted, nodes[plan.node], items, server)
                assert resize.growth.cpu_millicores >= 0


@given(situations())
def test_a_shortage_cuts_no_request_below_its_base_and_raises_none_above(cluster):
    snapshot, table = cluster
    for plan in decide_node_plans(snapshot, table, USER_MINIMUMS_COUNT, NOW):
        need = plan.base + plan.headroom
        short = {one for one in ResourceName if need.get(one) > plan.available.get(one)}
        assert bool(short) == (not plan.fits)
        assert short <= plan.shortages
        # A pod whose LimitRange allows no size that is needed gets none.
        unwritten = {(s.namespace, s.pod) for s in plan.skipped if s.reason is ReasonCode.LIMIT_RANGE}
        targets = {
            (target.namespace, target.pod, target.container): target
            for target in plan.targets
            if (target.namespace, target.pod) not in unwritten
        }
        assert not unwritten & {(resize.namespace, resize.pod) for resize in plan.resize}
        for pod in resizable_on(snapshot, table, plan.node):
            managed = {ResourceName.CPU: pod.manages_cpu, ResourceName.MEMORY: pod.manages_memory}
            bases = bases_of(pod, snapshot, table)
            for container in pod.sized:
                target = targets.get((pod.pod.namespace, pod.pod.name, container.name))
                for resource, unit in ((ResourceName.CPU, 1), (ResourceName.MEMORY, MEBIBYTE)):
                    if target is None or resource not in short or not managed[resource]:
                        continue
                    base, was = bases[container.name].get(resource), container.requests.resources.get(resource)
                    now = target.cpu_millicores if resource is ResourceName.CPU else target.memory_bytes
                    scarce = plan.base.get(resource) >= plan.available.get(resource)
                    event(f"{resource} grows={now > was} scarce={scarce}")
                    assert now >= min(was, base)
                    if scarce and now > was:
                        assert now <= -(-base // unit) * unit


@given(situations())
def test_under_the_first_rule_set_no_request_grows_on_an_overcommitted_node(cluster):
    snapshot, table = cluster
    by_name = {(pod.namespace, pod.name): pod for pod in snapshot.pods}
    for plan in decide_node_plans(snapshot, table, SEEDS_IN_FULL, NOW):
        if plan.fits:
            continue
        assert plan.evict == ()
        for resize in plan.resize:
            assert resize.growth == NO_RESOURCES
            if resize.reason is ReasonCode.WITHDRAWN:
                continue
            before = {c.name: c.requests.resources for c in by_name[resize.namespace, resize.pod].containers}
            for target in resize.containers:
                assert target.requests.resources.fits_in(before[target.container])


@given(situations())
def test_an_unmanaged_resource_is_written_unchanged(cluster):
    snapshot, table = cluster
    for plan in decide_node_plans(snapshot, table, FULL, NOW):
        resizable = {(t.pod.namespace, t.pod.name): t for t in resizable_on(snapshot, table, plan.node)}
        for resize in plan.resize:
            if resize.reason is ReasonCode.WITHDRAWN:
                continue
            pod = resizable[resize.namespace, resize.pod]
            for container, target in zip(pod.written, resize.containers, strict=True):
                if not pod.manages_cpu:
                    assert target.requests.cpu_millicores == container.requests.cpu_millicores
                    assert target.limits.cpu_millicores == container.limits.cpu_millicores
                if not pod.manages_memory:
                    assert target.requests.memory_bytes == container.requests.memory_bytes
                    assert target.limits.memory_bytes == container.limits.memory_bytes


@given(situations())
def test_written_sizes_are_within_bounds_or_unchanged(cluster):
    snapshot, table = cluster
    for plan in decide_node_plans(snapshot, table, USER_MINIMUMS_COUNT, NOW):
        resizable = {(t.pod.namespace, t.pod.name): t for t in resizable_on(snapshot, table, plan.node)}
        for resize in plan.resize:
            pod = resizable[resize.namespace, resize.pod]
            items = snapshot.limit_ranges.get(resize.namespace, ())
            # Containers within pod-level resources have laws of their own: test_pod_level_containers.py.
            assert [target.container for target in resize.containers] == [one.name for one in pod.written]
            for container, target in zip(pod.sized, resize.containers, strict=False):
                bounds = compute_container_bounds(pod.effective_policy, container.name, items, FULL).whole_unit_bounds
                now, then = container.requests.resources, target.requests.resources
                for current, written, lowest, highest in (
                    (now.cpu_millicores, then.cpu_millicores, *bounds[0:2]),
                    (now.memory_bytes, then.memory_bytes, *bounds[2:4]),
                ):
                    withdrawn_or_kept = resize.reason is ReasonCode.WITHDRAWN or (not plan.fits and written <= current)
                    assert written == current or lowest <= written <= highest or withdrawn_or_kept
