"""Write damping: single cases, and properties of any cluster."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from cruise.decisions.eviction.ranking import ASSUME_UNCHANGED, NO_EARLIER_PASSES, CompletedResize, EarlierPassResults
from cruise.decisions.sizing.headroom import SHARED_MAX_HEADROOM, PastDemand, RiskHeadroom
from cruise.decisions.sizing.headroom_level import ObservedRisk
from cruise.decisions.sizing.node_plans import NodePlan, decide_node_plans
from cruise.decisions.sizing.write_tolerances import get_under_request_tolerances
from cruise.decisions.usage.revisions import update_revisions
from cruise.domain.actions import ActionResult, Outcome, ReasonCode, ResizeCause, ResizePod
from cruise.domain.annotations import ORIGINAL_RESOURCES
from cruise.domain.autoscalers import LimitRangeItem
from cruise.domain.cluster import ContainerRole
from cruise.domain.heaps import HeapBound, HeapRuntime
from cruise.domain.original_resources import NO_REVISIONS
from cruise.domain.policy import Mode, Policy
from cruise.domain.resources import MEBIBYTE, ResourceName, StatedResources
from cruise.runtime.node_pass import summarize_for_next_pass
from tests.builders import (
    NOW,
    NOW_SECONDS,
    make_amounts,
    make_container,
    make_node,
    make_pod,
    make_snapshot,
    make_statistic_for,
    make_table,
)
from tests.decisions.sizing.demands import make_past_demand
from tests.decisions.sizing.test_laws import applied, situations

FULL = Policy(mode=Mode.FULL)
CPU, MEMORY = ResourceName.CPU, ResourceName.MEMORY
LONG_AGO = NOW - timedelta(hours=1)
PODS = ("a", "b", "c", "d")


def plan(
    sizes,
    bases,
    *,
    peaks=None,
    earlier=ASSUME_UNCHANGED,
    policy=FULL,
    node_cpu=16000,
    limit_ranges=None,
    headroom=SHARED_MAX_HEADROOM,
    **stated,
) -> NodePlan:
    """Plan pods with these CPU requests, bases and peaks on one node; memory needs no change."""
    peaks = bases if peaks is None else peaks
    pods, rows = [], []
    for name, size, base, peak in zip(PODS, sizes, bases, peaks, strict=False):
        container = make_container("app", cpu=size, memory_mib=100, memory_limit_mib=200, **stated)
        pod = make_pod(name, containers=[container], node="n1", workload=f"Deployment/{name}")
        pods.append(pod)
        rows.append(
            make_statistic_for(
                pod, cpu_base=base, cpu_peak=peak, memory_base_mib=100, memory_peak_mib=100, memory_7d_max_mib=100
            )
        )
    nodes = [make_node("n1", cpu=node_cpu, memory_mib=64 * 1024)]
    snapshot = make_snapshot(pods, nodes=nodes, limit_ranges=limit_ranges)
    [made] = decide_node_plans(snapshot, make_table(*rows), policy, NOW, earlier=earlier, headroom=headroom)
    return made


def written(made: NodePlan) -> dict[str, tuple[int | None, ResizeCause | None]]:
    return {one.pod: (one.containers[0].requests.cpu_millicores, one.cause) for one in made.resize}


def targets(made: NodePlan) -> list[int]:
    return [one.cpu_millicores for one in made.targets]


def test_shares_that_shift_within_a_node_cause_no_write():
    made = plan([1000, 1000, 1000], [1200, 900, 900])
    assert targets(made) == [1200, 900, 900]
    assert written(made) == {}


def test_a_sum_within_its_tolerance_is_unchanged():
    assert written(plan([1000, 1000, 1000], [870, 870, 870])) == {}


def test_on_a_short_node_the_pod_with_the_largest_shortage_grows_alone_immediately():
    made = plan([1000, 1000, 1000], [1200, 1050, 950], peaks=[2000, 1050, 950], earlier=NO_EARLIER_PASSES)
    assert written(made) == {"a": (2000, ResizeCause.NODE_UNDER_PRESSURE)}


@pytest.mark.parametrize(("level", "grows"), [(0.5, True), (0.0, True), (-0.1, True), (-0.4, False), (-1.0, False)])
def test_a_node_may_lack_more_while_less_than_the_stated_risk_is_observed(level, grows):
    # The node lacks 100 of 1100, and a tenth is what it may lack at a level of -0.2.
    past = make_past_demand(np.full((1, 12), 1100))
    risks = {CPU: ObservedRisk(0.07, level, 0, 0), MEMORY: ObservedRisk(0.01, 0.0, 0, 0)}
    made = plan([1000], [1100], earlier=NO_EARLIER_PASSES, headroom=RiskHeadroom(past, risks))
    assert bool(made.resize) == grows
    # What it needs is the same, and usage that lasts is requested.
    assert targets(made)[0] >= 1100
    lasting = EarlierPassResults(over_requested_since={}, under_requested_since={("uid-shop-a", "app", CPU): LONG_AGO})
    [grown] = plan([1000], [1400], earlier=lasting, headroom=RiskHeadroom(past, risks)).resize
    assert grown.cause is ResizeCause.UNDER_REQUESTED


def test_memory_may_never_lack_anything():
    assert (
        get_under_request_tolerances(
            RiskHeadroom(PastDemand.create_empty(0), dict.fromkeys(ResourceName, ObservedRisk(0.07, -1.0, 0, 0)))
        )[MEMORY]
        == 0.0
    )


def test_growth_includes_a_margin_up_to_the_peak():
    assert written(plan([1000], [1200], earlier=NO_EARLIER_PASSES)) == {"a": (1200, ResizeCause.NODE_UNDER_PRESSURE)}
    assert written(plan([1000], [1200], peaks=[1220], earlier=NO_EARLIER_PASSES)) == {
        "a": (1220, ResizeCause.NODE_UNDER_PRESSURE)
    }


@pytest.mark.parametrize("used", [1020, 1030, 1049])
def test_a_node_short_of_memory_grows_even_below_the_update_threshold(used):
    pods = [
        make_pod(name, containers=[make_container("app", cpu=100, memory_mib=1000)], workload=f"Deployment/{name}")
        for name in PODS
    ]
    leaked = dict(memory_base_mib=used, memory_peak_mib=used, memory_7d_max_mib=used, cpu_base=100, cpu_peak=100)
    snapshot = make_snapshot(pods, nodes=[make_node("n1", memory_mib=64 * 1024)])
    table = make_table(*(make_statistic_for(pod, **leaked) for pod in pods))
    [made] = decide_node_plans(snapshot, table, FULL, NOW, earlier=NO_EARLIER_PASSES)
    grown = [one.containers[0].requests.resources.memory_bytes - 1000 * MEBIBYTE for one in made.resize]
    assert {one.cause for one in made.resize} == {ResizeCause.NODE_UNDER_PRESSURE}
    lacks = len(PODS) * (used - 1000) * MEBIBYTE
    assert lacks <= sum(grown) < lacks + grown[0]


def test_a_node_grows_for_what_a_growing_pod_keeps():
    """A pod that runs to completion keeps its margin: found in the next pass only, it would cause another resize."""
    job = make_pod("job", workload="Job/job", owner_kind="Job", containers=[make_container("app", None, None)])
    app = make_pod("app", workload="Deployment/app", containers=[make_container("app", 100, 125)])
    used: dict[str, Any] = dict(
        memory_base_mib=100, memory_peak_mib=200, memory_7d_max_mib=200, cpu_base=100, cpu_peak=100
    )
    table = make_table(*(make_statistic_for(pod, **used) for pod in (job, app)))
    snapshot = make_snapshot([job, app], nodes=[make_node("n1", memory_mib=64 * 1024)])
    plans = decide_node_plans(snapshot, table, FULL, NOW)
    assert [one.pod for one in plans[0].resize] == ["app", "job"]
    assert decide_node_plans(applied(snapshot, plans), table, FULL, NOW)[0].resize == ()


JOB: dict[str, Any] = dict(workload="Job/keeps", owner_kind="Job")
GROWS_ONLY: dict[str, Any] = dict(workload="Deployment/keeps", annotations={"cruise.io/direction": "grow"})
OF_HEAP: dict[str, Any] = dict(workload="Deployment/keeps")
UNREQUESTED = make_container("app", None, None)
FIXED_HEAP = make_container("app", None, 16, heap=HeapBound(HeapRuntime.JVM, "-Xmx1g", fixed_bytes=1024 * MEBIBYTE))
SHARED_HEAP = make_container("app", None, 16, heap=HeapBound(HeapRuntime.JVM, "-Xmx$(HEAP)", request_share=0.9))


@pytest.mark.parametrize(("node_mib", "size"), [(1200, 201), (700, 116)])
@pytest.mark.parametrize(
    ("keeps", "container"),
    [(JOB, UNREQUESTED), (GROWS_ONLY, UNREQUESTED), (OF_HEAP, FIXED_HEAP), (OF_HEAP, SHARED_HEAP)],
    ids=["runs to completion", "grows only", "fixed heap", "heap by request"],
)
def test_a_pod_that_keeps_what_it_grew_to_grows_only_into_what_its_node_has_free(keeps, container, node_mib, size):
    """More than that evicted another pod in the next pass."""
    job = make_pod("keeps", containers=[container], **keeps)
    app = make_pod("app", workload="Deployment/app", containers=[make_container("app", 100, 230)])
    cpu: dict[str, Any] = dict(cpu_base=100, cpu_peak=100, memory_7d_max_mib=550)
    rows = (
        make_statistic_for(job, memory_base_mib=16, memory_peak_mib=330, **cpu),
        make_statistic_for(app, memory_base_mib=270, memory_peak_mib=550, **cpu),
    )
    snapshot = make_snapshot([job, app], nodes=[make_node("n1", memory_mib=node_mib), make_node("n2")])
    table = make_table(*rows)
    for _ in range(3):
        plans = decide_node_plans(snapshot, table, FULL, NOW)
        assert [plan.evict for plan in plans] == [(), ()]
        snapshot = applied(snapshot, plans)
    [found] = [pod.containers[0].requests.memory_bytes for pod in snapshot.pods if pod.name == "keeps"]
    assert found == size * MEBIBYTE


@pytest.mark.parametrize(
    ("above", "cut"),
    [({}, False), ({("n1", CPU): NOW}, False), ({("n1", MEMORY): LONG_AGO}, False), ({("n1", CPU): LONG_AGO}, True)],
)
def test_an_over_requested_node_is_cut_late(above, cut):
    made = plan(
        [1000, 3000, 1000],
        [1000, 1000, 1000],
        earlier=EarlierPassResults(over_requested_since=above, under_requested_since={}),
    )
    assert made.over_requested == {CPU}
    assert written(made) == ({"b": (1000, ResizeCause.OVER_REQUESTED)} if cut else {})


def plan_created(
    sizes: Sequence[int], created: Mapping[str, int], *, annotated: Collection[str] = (), earlier=NO_EARLIER_PASSES
) -> dict[str, int | None]:
    """Plan pods that use 1000 millicores, created with the given ones; return what is written by pod."""
    pods = [
        make_pod(
            name,
            containers=[make_container("app", cpu=size, memory_mib=100, memory_limit_mib=200)],
            node="n1",
            workload=f"Deployment/{name}",
            annotations={ORIGINAL_RESOURCES: "{}"} if name in annotated else {},
        )
        for name, size in zip(PODS, sizes, strict=False)
    ]
    rows = [
        make_statistic_for(
            pod, cpu_base=1000, cpu_peak=1000, memory_base_mib=100, memory_peak_mib=100, memory_7d_max_mib=100
        )
        for pod in pods
    ]
    memory, limits = 100 * MEBIBYTE, make_amounts(None, 200)
    originals = {f"uid-shop-{name}": {"app": (StatedResources(cpu, memory), limits)} for name, cpu in created.items()}
    known = [pod for pod in pods if pod.name in created]
    revisions = update_revisions(NO_REVISIONS, known, originals, NOW_SECONDS).revisions
    snapshot = make_snapshot(pods, nodes=[make_node("n1", cpu=16000, memory_mib=64 * 1024)])
    [made] = decide_node_plans(snapshot, replace(make_table(*rows), revisions=revisions), FULL, NOW, earlier=earlier)
    assert {one.cause for one in made.resize} <= {ResizeCause.OVER_REQUESTED}
    return {name: cpu for name, (cpu, _) in written(made).items()}


def test_pods_that_were_never_sized_are_cut_at_once_on_a_node_that_is_over_requested():
    sizes = [3000, 3000, 1000]
    assert plan_created(sizes, {"a": 3000, "b": 3000}) == {"a": 1000, "b": 1000}
    # A request that was written, one from admission, and one of which it is not known wait until the condition lasts.
    assert plan_created(sizes, {"a": 4000, "b": 3000}) == {"b": 1000}
    assert plan_created(sizes, {"a": 3000, "b": 3000}, annotated=["b"]) == {"a": 1000}
    assert plan_created(sizes, {}) == {}
    lasting = EarlierPassResults(over_requested_since={("n1", CPU): LONG_AGO}, under_requested_since={})
    assert plan_created(sizes, {"a": 4000}, annotated=["b"], earlier=lasting) == {"a": 1000, "b": 1000}
    # Within the tolerance of the node nothing is cut.
    assert plan_created([1200, 1000, 1000], {"a": 1200}) == {}


def test_no_pod_is_cut_soon_after_a_resize_of_that_resource_but_another_is():
    above, lately = {("n1", CPU): LONG_AGO}, NOW - FULL.effective_shrink_cooldown + timedelta(minutes=1)
    made = plan(
        [2000, 3000],
        [1000, 1000],
        earlier=EarlierPassResults(
            over_requested_since=above, under_requested_since={}, resized={("uid-shop-b", CPU): lately}
        ),
    )
    assert written(made) == {"a": (1000, ResizeCause.OVER_REQUESTED)}
    for key, at in ((("uid-shop-b", MEMORY), lately), (("uid-shop-b", CPU), NOW - FULL.effective_shrink_cooldown)):
        other = plan(
            [2000, 3000],
            [1000, 1000],
            earlier=EarlierPassResults(over_requested_since=above, under_requested_since={}, resized={key: at}),
        )
        assert written(other)["b"] == (1000, ResizeCause.OVER_REQUESTED)


def test_the_cooldown_follows_from_the_resize_budget_unless_configured():
    assert Policy(resizes_per_container_day=12).effective_shrink_cooldown == timedelta(hours=1)
    assert Policy(resizes_per_container_day=12, shrink_cooldown=timedelta(0)).effective_shrink_cooldown == timedelta(0)


@pytest.mark.parametrize(("of_b", "of_c", "cut"), [(6, 5, "a b"), (6, 12, "a"), (5, 13, "a b")])
def test_a_pod_with_its_daily_resizes_is_not_cut_once_the_cluster_has_used_its_budget(of_b, of_c, cut):
    writes = [CompletedResize("uid-shop-b", LONG_AGO)] * of_b + [CompletedResize("uid-shop-c", LONG_AGO)] * of_c
    old = [CompletedResize("uid-shop-a", NOW - timedelta(days=1))] * 9
    earlier = EarlierPassResults(
        over_requested_since={("n1", CPU): LONG_AGO}, under_requested_since={}, recent_resizes=(*old, *writes)
    )
    made = plan([2000, 3000, 1000], [1000, 1000, 1000], earlier=earlier)
    assert " ".join(sorted(written(made))) == cut


def test_requests_above_their_peak_are_cut_first_and_keep_a_margin():
    made = plan([3000, 2000], [1000, 500], peaks=[3000, 500])
    assert written(made) == {"b": (500, ResizeCause.OVER_REQUESTED)}
    made = plan([5000, 2000], [1000, 1000], peaks=[2000, 2000])
    assert targets(made) == [1500, 1500]
    assert written(made) == {"a": (1650, ResizeCause.OVER_REQUESTED), "b": (1650, ResizeCause.OVER_REQUESTED)}


@pytest.mark.parametrize(("since", "grows"), [(None, False), (NOW, False), (LONG_AGO, True)])
def test_a_lasting_under_request_causes_a_resize(since, grows):
    below = {} if since is None else {("uid-shop-a", "app", CPU): since}
    made = plan(
        [500, 2000], [1000, 1000], earlier=EarlierPassResults(over_requested_since={}, under_requested_since=below)
    )
    assert made.under_requested == (("uid-shop-a", "app", CPU),)
    assert written(made) == ({"a": (1000, ResizeCause.UNDER_REQUESTED)} if grows else {})


def test_a_container_without_a_request_gets_one_immediately():
    pod = make_pod("a", containers=[make_container("app", cpu=None, memory_mib=100)], node="n1")
    table = make_table(make_statistic_for(pod, cpu_base=50, cpu_peak=50, memory_base_mib=100, memory_peak_mib=100))
    [made] = decide_node_plans(make_snapshot([pod]), table, FULL, NOW, earlier=NO_EARLIER_PASSES)
    assert written(made) == {"a": (50, ResizeCause.UNDER_REQUESTED)}


def test_capacity_for_growth_is_freed_immediately():
    below = {("uid-shop-a", "app", CPU): LONG_AGO}
    earlier = EarlierPassResults(
        over_requested_since={}, under_requested_since=below, resized={("uid-shop-b", CPU): NOW}
    )
    made = plan([1000, 2900], [2000, 1800], earlier=earlier, node_cpu=4000)
    assert targets(made) == [2000, 1800]
    assert written(made) == {
        "a": (2000, ResizeCause.UNDER_REQUESTED),
        "b": (2000, ResizeCause.CAPACITY_NEEDED_BY_OTHERS),
    }


def test_requests_above_a_bound_are_cut_immediately():
    container = make_container("app", cpu=1000, memory_mib=100, memory_limit_mib=200)
    pod = make_pod("a", containers=[container], node="n1", annotations={"cruise.io/cpu-max": "990m"})
    table = make_table(make_statistic_for(pod, cpu_base=980, cpu_peak=985, memory_base_mib=100, memory_peak_mib=100))
    policy = Policy(mode=Mode.FULL, update_threshold_share=0.0)
    [made] = decide_node_plans(make_snapshot([pod]), table, policy, NOW, earlier=NO_EARLIER_PASSES)
    assert written(made) == {"a": (985, ResizeCause.OUT_OF_BOUNDS)}


def test_a_cpu_limit_is_raised_immediately():
    made = plan([1000], [1000], cpu_limit=1200, earlier=NO_EARLIER_PASSES)
    assert written(made) == {"a": (1000, ResizeCause.USAGE_NEAR_LIMIT)}
    assert made.resize[0].containers[0].limits.cpu_millicores == 16000


def test_a_condition_is_recorded_since_its_start_until_it_ends():
    above = plan([3000], [1000], earlier=NO_EARLIER_PASSES)
    first = summarize_for_next_pass([above], [], {}, NO_EARLIER_PASSES, NOW)
    assert first.over_requested_since == {("n1", CPU): NOW}
    later = NOW + timedelta(minutes=5)
    assert summarize_for_next_pass([above], [], {}, first, later).over_requested_since == {("n1", CPU): NOW}
    assert summarize_for_next_pass([plan([1000], [1000])], [], {}, first, later).over_requested_since == {}


@pytest.mark.parametrize("size", [3000, 500])
def test_a_resize_is_recorded_for_a_day_by_resource(size):
    [resize] = plan([size], [1000]).resize
    assert isinstance(resize, ResizePod)
    pod = make_pod("a", containers=[make_container("app", cpu=size, memory_mib=100, memory_limit_mib=200)], node="n1")
    outcomes = [
        Outcome(NOW, resize, verdict, ReasonCode.RIGHTSIZED) for verdict in (ActionResult.DONE, ActionResult.OBSERVED)
    ]
    seen = summarize_for_next_pass([], outcomes[:1], {pod.uid: pod}, NO_EARLIER_PASSES, NOW)
    assert seen.resized == {("uid-shop-a", CPU): NOW}
    assert seen.recent_resizes == (CompletedResize("uid-shop-a", NOW),)
    again = summarize_for_next_pass([], outcomes[:1], {pod.uid: pod}, seen, NOW)
    assert again.recent_resizes == (CompletedResize("uid-shop-a", NOW),) * 2
    unknown = summarize_for_next_pass([], outcomes[:1], {}, NO_EARLIER_PASSES, NOW)
    assert unknown.resized == {("uid-shop-a", resource): NOW for resource in ResourceName}
    observed = summarize_for_next_pass([], outcomes[1:], {pod.uid: pod}, NO_EARLIER_PASSES, NOW)
    assert (observed.resized, observed.recent_resizes) == ({}, ())
    tomorrow = summarize_for_next_pass([], [], {}, seen, NOW + timedelta(days=1))
    assert (tomorrow.resized, tomorrow.recent_resizes) == ({}, ())


def plan_with_init(init, sizes, bases, others=()) -> NodePlan:
    """Plan pod `a` with an init container of this CPU request, next to pods of one container each."""
    setup = make_container("setup", cpu=init, memory_mib=16, role=ContainerRole.INIT)
    pods, rows = [], []
    for name, size, base in zip(
        PODS, [sizes, *(size for size, _ in others)], [bases, *(base for _, base in others)], strict=False
    ):
        container = make_container("app", cpu=size, memory_mib=100, memory_limit_mib=200)
        pod = make_pod(name, containers=[setup, container] if name == "a" else [container])
        pods.append(pod)
        rows.append(
            make_statistic_for(
                pod, cpu_base=base, cpu_peak=base, memory_base_mib=100, memory_peak_mib=100, memory_7d_max_mib=100
            )
        )
    snapshot = make_snapshot(pods, nodes=[make_node("n1", cpu=16000, memory_mib=64 * 1024)])
    [made] = decide_node_plans(snapshot, make_table(*rows), FULL, NOW, earlier=ASSUME_UNCHANGED)
    return made


def test_a_container_is_not_cut_if_an_init_container_requests_as_much():
    made = plan_with_init(2000, 2000, 200)
    assert targets(made) == [200]
    assert made.over_requested == set()
    assert written(made) == {}


def test_requests_of_init_containers_are_not_cut_from_other_pods():
    made = plan_with_init(2000, 2000, 200, others=[(1000, 950)])
    assert written(made) == {}
    made = plan_with_init(2000, 2000, 200, others=[(3000, 1000)])
    assert written(made) == {"b": (1000, ResizeCause.OVER_REQUESTED)}


def test_a_container_above_its_init_container_is_cut_once():
    made = plan_with_init(1000, 3000, 200)
    [(cpu, cause)] = written(made).values()
    assert cause is ResizeCause.OVER_REQUESTED
    assert written(plan_with_init(1000, cpu, 200)) == {}


def test_containers_above_an_init_container_are_cut_by_what_their_pod_frees():
    """The part below the init container's request frees nothing: cut in proportion, the pod got less than it needs."""
    containers = [
        make_container("proxy", 256, 16, role=ContainerRole.SIDECAR),
        make_container("setup", 352, 16, role=ContainerRole.INIT),
        make_container("app", 1083, 16),
    ]
    pod = make_pod("a", containers=containers)
    memory = dict(memory_base_mib=16, memory_peak_mib=16, memory_7d_max_mib=16)
    proxy = make_statistic_for(pod, "proxy", cpu_base=16, cpu_peak=649, **memory)
    app = make_statistic_for(pod, "app", cpu_base=0, cpu_peak=283, **memory)
    snapshot, table = make_snapshot([pod], nodes=[make_node("n1", cpu=1400)]), make_table(proxy, app)
    plans = decide_node_plans(snapshot, table, FULL, NOW)
    assert {one.container: one.requests.cpu_millicores for one in plans[0].resize[0].containers}["proxy"] == 256
    assert decide_node_plans(applied(snapshot, plans), table, FULL, NOW)[0].resize == ()


def test_a_container_does_not_grow_below_an_init_containers_request():
    made = plan_with_init(2000, 200, 240, others=[(1000, 1000)])
    assert targets(made) == [240, 1000]
    assert written(made) == {}
    made = plan_with_init(2000, 200, 400, others=[(1000, 1000)])
    assert written(made) == {"a": (400, ResizeCause.UNDER_REQUESTED)}


@given(situations())
def test_no_request_is_cut_below_its_target_or_before_its_stabilization(cluster):
    plans = decide_node_plans(cluster.snapshot, cluster.statistics, FULL, NOW, earlier=NO_EARLIER_PASSES)
    for made in plans:
        wanted = {(one.pod, one.container): one for one in made.targets}
        pods = {pod.name: pod for pod in cluster.snapshot.pods}
        for resize in made.resize:
            if resize.reason is not ReasonCode.RIGHTSIZED:
                continue
            assert resize.cause is not None
            assert resize.cause is not ResizeCause.OVER_REQUESTED
            pod = pods[resize.pod]
            # Containers within pod-level resources share what the pod gets: test_pod_level_containers.py.
            sized = pod.containers if pod.pod_level is None else (pod.pod_level,)
            now = {one.name: one.requests.resources for one in sized}
            judged = [one for one in resize.containers if pod.pod_level is None or one.container in now]
            assert judged
            for one in judged:
                before, after, target = now[one.container], one.requests.resources, wanted[resize.pod, one.container]
                assert after.cpu_millicores >= min(before.cpu_millicores, target.cpu_millicores)
                assert after.memory_bytes >= min(before.memory_bytes, target.memory_bytes)


# ---- LimitRanges ----


@pytest.mark.parametrize(
    "item",
    [
        LimitRangeItem(False, minimum=make_amounts(500, None)),
        LimitRangeItem(True, minimum=make_amounts(500, None)),
        LimitRangeItem(False, max_cpu_ratio=2.0),
    ],
)
def test_a_limit_range_minimum_does_not_grow_running_pods(item):
    stated = {} if item.max_cpu_ratio is None else {"cpu_limit": 1000}
    for earlier in (
        NO_EARLIER_PASSES,
        EarlierPassResults(over_requested_since={}, under_requested_since={("uid-shop-a", "app", CPU): LONG_AGO}),
    ):
        made = plan([200, 200], [150, 150], limit_ranges={"shop": (item,)}, earlier=earlier, **stated)
        assert written(made) == {}, earlier
        assert made.under_requested == ()


def test_written_pods_are_raised_to_limit_range_minimums():
    limit_ranges = {"shop": (LimitRangeItem(False, minimum=make_amounts(500, None)),)}
    earlier = EarlierPassResults(over_requested_since={}, under_requested_since={("uid-shop-a", "app", CPU): LONG_AGO})
    made = plan([100, 200], [300, 150], peaks=[300, 150], earlier=earlier, limit_ranges=limit_ranges)
    assert written(made) == {"a": (500, ResizeCause.UNDER_REQUESTED)}


def test_no_pod_is_evicted_for_an_added_limit_range():
    limit_ranges = {"shop": (LimitRangeItem(False, minimum=make_amounts(3000, None)),)}
    made = plan([200, 200], [150, 150], node_cpu=4000, limit_ranges=limit_ranges)
    assert made.fits
    assert (made.evict, written(made)) == ((), {})


def test_the_resizes_of_pods_that_are_gone_are_counted_without_the_pods():
    pod = make_pod("a", node="n1")
    seen = NO_EARLIER_PASSES
    for number in range(40):
        at = NOW + timedelta(minutes=number // 4)
        writes = (*seen.recent_resizes, CompletedResize(f"uid-{number}", at), CompletedResize(pod.uid, at))
        resized = {**seen.resized, (f"uid-{number}", CPU): at, (pod.uid, CPU): at}
        seen = summarize_for_next_pass(
            [], [], {pod.uid: pod}, replace(seen, resized=resized, recent_resizes=writes), at
        )
    assert seen.resized == {(pod.uid, CPU): NOW + timedelta(minutes=9)}
    assert Counter({(write.uid, write.at): write.number for write in seen.recent_resizes if not write.uid}) == Counter(
        {("", NOW + timedelta(minutes=number)): 4 for number in range(10)}
    )
    assert sum(write.number for write in seen.recent_resizes) == 80
    kept = summarize_for_next_pass([], [], {}, seen, NOW)
    assert kept == seen


def test_the_resizes_of_pods_that_are_gone_are_one_entry_a_minute_for_a_day():
    pod = make_pod("a", node="n1")
    seen = NO_EARLIER_PASSES
    for number in range(5 * 30):
        at = NOW + timedelta(seconds=2 * number)
        writes = (*seen.recent_resizes, CompletedResize(f"uid-{number}", at))
        seen = summarize_for_next_pass([], [], {pod.uid: pod}, replace(seen, recent_resizes=writes), at)
    assert [write.number for write in seen.recent_resizes] == [30] * 5
    # Each counts until a day after the last resize of its minute.
    assert [write.at for write in seen.recent_resizes] == [
        NOW + timedelta(minutes=minute, seconds=58) for minute in range(5)
    ]
    tomorrow = NOW + timedelta(days=1, seconds=58)
    assert summarize_for_next_pass([], [], {}, seen, tomorrow).recent_resizes == seen.recent_resizes[1:]


@pytest.mark.parametrize(("of_gone", "cut"), [(11, "a b"), (12, "a")])
def test_the_resizes_of_pods_that_are_gone_count_towards_the_budget_of_the_cluster(of_gone, cut):
    writes = (CompletedResize("", LONG_AGO, of_gone), *[CompletedResize("uid-shop-b", LONG_AGO)] * 6)
    earlier = EarlierPassResults(
        over_requested_since={("n1", CPU): LONG_AGO}, under_requested_since={}, recent_resizes=writes
    )
    made = plan([2000, 3000, 1000], [1000, 1000, 1000], earlier=earlier)
    assert " ".join(sorted(written(made))) == cut
