"""Which sizes are worth a write: section 4.8 of the rules, scene by scene, and what holds of any cluster."""

from datetime import timedelta

import pytest
from hypothesis import given

from cruise.decisions.eviction.ranking import ASSUME_UNCHANGED, NO_EARLIER_PASSES, EarlierPasses, PodWrite
from cruise.decisions.sizing.node_plans import NodePlan, decide_node_plans
from cruise.domain.actions import ActionResult, Outcome, ReasonCode, ResizeCause, ResizePod
from cruise.domain.cluster import ContainerRole, LimitRangeItem
from cruise.domain.policy import Mode, Policy
from cruise.domain.resources import MEBIBYTE, ResourceName
from cruise.runtime.node_pass import summarize_for_next_pass
from tests.builders import (
    NOW,
    make_amounts,
    make_container,
    make_node,
    make_pod,
    make_snapshot,
    make_statistic_for,
    make_table,
)
from tests.decisions.sizing.test_laws import situations

FULL = Policy(mode=Mode.FULL)
CPU, MEMORY = ResourceName.CPU, ResourceName.MEMORY
LONG_AGO = NOW - timedelta(hours=1)
PODS = ("a", "b", "c", "d")


def plan(
    sizes, bases, *, peaks=None, earlier=ASSUME_UNCHANGED, policy=FULL, node_cpu=16000, limit_ranges=None, **stated
) -> NodePlan:
    """Plan pods of these CPU requests, bases and peaks on one node; memory is as it should be."""
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
    [made] = decide_node_plans(snapshot, make_table(*rows), policy, NOW, earlier=earlier)
    return made


def written(made: NodePlan) -> dict[str, tuple[int | None, ResizeCause | None]]:
    return {one.pod: (one.containers[0].requests.cpu_millicores, one.cause) for one in made.resize}


def targets(made: NodePlan) -> list[int]:
    return [one.cpu_millicores for one in made.targets]


def test_shares_that_shift_within_a_node_are_no_write():
    made = plan([1000, 1000, 1000], [1200, 900, 900])
    assert targets(made) == [1200, 900, 900]
    assert written(made) == {}


def test_a_sum_within_its_band_stays():
    assert written(plan([1000, 1000, 1000], [870, 870, 870])) == {}


def test_where_the_node_is_short_the_pod_that_lacks_most_grows_alone_and_at_once():
    made = plan([1000, 1000, 1000], [1200, 1050, 950], peaks=[2000, 1050, 950], earlier=NO_EARLIER_PASSES)
    assert written(made) == {"a": (2000, ResizeCause.NODE_UNDER_PRESSURE)}


def test_what_grows_gets_something_to_spare_up_to_its_peak():
    assert written(plan([1000], [1200], earlier=NO_EARLIER_PASSES)) == {"a": (1200, ResizeCause.NODE_UNDER_PRESSURE)}
    assert written(plan([1000], [1200], peaks=[1220], earlier=NO_EARLIER_PASSES)) == {
        "a": (1220, ResizeCause.NODE_UNDER_PRESSURE)
    }


@pytest.mark.parametrize("used", [1020, 1030, 1049])
def test_a_node_short_of_memory_grows_even_where_no_pod_lacks_the_least_change(used):
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


@pytest.mark.parametrize(
    ("above", "cut"),
    [({}, False), ({("n1", CPU): NOW}, False), ({("n1", MEMORY): LONG_AGO}, False), ({("n1", CPU): LONG_AGO}, True)],
)
def test_what_is_above_its_band_is_cut_late(above, cut):
    made = plan(
        [1000, 3000, 1000],
        [1000, 1000, 1000],
        earlier=EarlierPasses(over_requested_since=above, under_requested_since={}),
    )
    assert made.over_requested == {CPU}
    assert written(made) == ({"b": (1000, ResizeCause.OVER_REQUESTED)} if cut else {})


def test_no_pod_is_cut_soon_after_a_resize_of_that_resource_but_another_is():
    above, lately = {("n1", CPU): LONG_AGO}, NOW - FULL.effective_shrink_cooldown + timedelta(minutes=1)
    made = plan(
        [2000, 3000],
        [1000, 1000],
        earlier=EarlierPasses(
            over_requested_since=above, under_requested_since={}, resized={("uid-shop-b", CPU): lately}
        ),
    )
    assert written(made) == {"a": (1000, ResizeCause.OVER_REQUESTED)}
    for key, at in ((("uid-shop-b", MEMORY), lately), (("uid-shop-b", CPU), NOW - FULL.effective_shrink_cooldown)):
        other = plan(
            [2000, 3000],
            [1000, 1000],
            earlier=EarlierPasses(over_requested_since=above, under_requested_since={}, resized={key: at}),
        )
        assert written(other)["b"] == (1000, ResizeCause.OVER_REQUESTED)


def test_a_cooldown_follows_from_the_budget_of_writes_unless_it_is_stated():
    assert Policy(resizes_per_container_day=12).effective_shrink_cooldown == timedelta(hours=1)
    assert Policy(resizes_per_container_day=12, shrink_cooldown=timedelta(0)).effective_shrink_cooldown == timedelta(0)


@pytest.mark.parametrize(("of_b", "of_c", "cut"), [(6, 5, "a b"), (6, 12, "a"), (5, 13, "a b")])
def test_a_pod_that_had_its_writes_of_a_day_is_not_cut_once_the_cluster_had_its_own(of_b, of_c, cut):
    writes = [PodWrite("uid-shop-b", LONG_AGO)] * of_b + [PodWrite("uid-shop-c", LONG_AGO)] * of_c
    old = [PodWrite("uid-shop-a", NOW - timedelta(days=1))] * 9
    earlier = EarlierPasses(
        over_requested_since={("n1", CPU): LONG_AGO}, under_requested_since={}, recent_resizes=(*old, *writes)
    )
    made = plan([2000, 3000, 1000], [1000, 1000, 1000], earlier=earlier)
    assert " ".join(sorted(written(made))) == cut


def test_what_is_above_its_own_peak_goes_first_and_what_is_cut_keeps_something_to_spare():
    made = plan([3000, 2000], [1000, 500], peaks=[3000, 500])
    assert written(made) == {"b": (500, ResizeCause.OVER_REQUESTED)}
    made = plan([5000, 2000], [1000, 1000], peaks=[2000, 2000])
    assert targets(made) == [1500, 1500]
    assert written(made) == {"a": (1650, ResizeCause.OVER_REQUESTED), "b": (1650, ResizeCause.OVER_REQUESTED)}


@pytest.mark.parametrize(("since", "grows"), [(None, False), (NOW, False), (LONG_AGO, True)])
def test_a_base_above_its_request_is_a_reason_where_it_lasts(since, grows):
    below = {} if since is None else {("uid-shop-a", "app", CPU): since}
    made = plan([500, 2000], [1000, 1000], earlier=EarlierPasses(over_requested_since={}, under_requested_since=below))
    assert made.under_requested == (("uid-shop-a", "app", CPU),)
    assert written(made) == ({"a": (1000, ResizeCause.UNDER_REQUESTED)} if grows else {})


def test_a_container_without_a_request_gets_one_at_once():
    pod = make_pod("a", containers=[make_container("app", cpu=None, memory_mib=100)], node="n1")
    table = make_table(make_statistic_for(pod, cpu_base=50, cpu_peak=50, memory_base_mib=100, memory_peak_mib=100))
    [made] = decide_node_plans(make_snapshot([pod]), table, FULL, NOW, earlier=NO_EARLIER_PASSES)
    assert written(made) == {"a": (50, ResizeCause.UNDER_REQUESTED)}


def test_others_leave_at_once_what_a_grow_needs():
    below = {("uid-shop-a", "app", CPU): LONG_AGO}
    earlier = EarlierPasses(over_requested_since={}, under_requested_since=below, resized={("uid-shop-b", CPU): NOW})
    made = plan([1000, 2900], [2000, 1800], earlier=earlier, node_cpu=4000)
    assert targets(made) == [2000, 1800]
    assert written(made) == {
        "a": (2000, ResizeCause.UNDER_REQUESTED),
        "b": (2000, ResizeCause.CAPACITY_NEEDED_BY_OTHERS),
    }


def test_what_a_bound_forbids_is_cut_at_once():
    container = make_container("app", cpu=1000, memory_mib=100, memory_limit_mib=200)
    pod = make_pod("a", containers=[container], node="n1", annotations={"cruise.io/cpu-max": "990m"})
    table = make_table(make_statistic_for(pod, cpu_base=980, cpu_peak=985, memory_base_mib=100, memory_peak_mib=100))
    policy = Policy(mode=Mode.FULL, update_threshold_share=0.0)
    [made] = decide_node_plans(make_snapshot([pod]), table, policy, NOW, earlier=NO_EARLIER_PASSES)
    assert written(made) == {"a": (985, ResizeCause.OUT_OF_BOUNDS)}


def test_a_cpu_limit_is_raised_at_once_whatever_the_node_has():
    made = plan([1000], [1000], cpu_limit=1200, earlier=NO_EARLIER_PASSES)
    assert written(made) == {"a": (1000, ResizeCause.USAGE_NEAR_LIMIT)}
    assert made.resize[0].containers[0].limits.cpu_millicores == 16000


def test_what_goes_on_is_remembered_from_when_it_began_and_forgotten_once_it_ends():
    above = plan([3000], [1000], earlier=NO_EARLIER_PASSES)
    first = summarize_for_next_pass([above], [], {}, NO_EARLIER_PASSES, NOW)
    assert first.over_requested_since == {("n1", CPU): NOW}
    later = NOW + timedelta(minutes=5)
    assert summarize_for_next_pass([above], [], {}, first, later).over_requested_since == {("n1", CPU): NOW}
    assert summarize_for_next_pass([plan([1000], [1000])], [], {}, first, later).over_requested_since == {}


@pytest.mark.parametrize("size", [3000, 500])
def test_a_write_is_remembered_for_a_day_for_the_resource_that_it_changed(size):
    [resize] = plan([size], [1000]).resize
    assert isinstance(resize, ResizePod)
    pod = make_pod("a", containers=[make_container("app", cpu=size, memory_mib=100, memory_limit_mib=200)], node="n1")
    outcomes = [
        Outcome(NOW, resize, verdict, ReasonCode.RIGHTSIZED) for verdict in (ActionResult.DONE, ActionResult.OBSERVED)
    ]
    seen = summarize_for_next_pass([], outcomes[:1], {pod.uid: pod}, NO_EARLIER_PASSES, NOW)
    assert seen.resized == {("uid-shop-a", CPU): NOW}
    assert seen.recent_resizes == (PodWrite("uid-shop-a", NOW),)
    unknown = summarize_for_next_pass([], outcomes[:1], {}, NO_EARLIER_PASSES, NOW)
    assert unknown.resized == {("uid-shop-a", resource): NOW for resource in ResourceName}
    observed = summarize_for_next_pass([], outcomes[1:], {pod.uid: pod}, NO_EARLIER_PASSES, NOW)
    assert (observed.resized, observed.recent_resizes) == ({}, ())
    tomorrow = summarize_for_next_pass([], [], {}, seen, NOW + timedelta(days=1))
    assert (tomorrow.resized, tomorrow.recent_resizes) == ({}, ())


def plan_with_init(init, sizes, bases, others=()) -> NodePlan:
    """Plan pod `a` with an init container of this CPU request, beside pods of one container each."""
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


def test_a_container_is_not_cut_where_an_init_container_makes_its_pod_count_as_much():
    made = plan_with_init(2000, 2000, 200)
    assert targets(made) == [200]
    assert made.over_requested == set()
    assert written(made) == {}


def test_what_init_containers_request_is_not_cut_from_other_pods_in_its_place():
    made = plan_with_init(2000, 2000, 200, others=[(1000, 950)])
    assert written(made) == {}
    made = plan_with_init(2000, 2000, 200, others=[(3000, 1000)])
    assert written(made) == {"b": (1000, ResizeCause.OVER_REQUESTED)}


def test_a_container_above_its_init_container_is_cut_once():
    made = plan_with_init(1000, 3000, 200)
    [(cpu, cause)] = written(made).values()
    assert cause is ResizeCause.OVER_REQUESTED
    assert written(plan_with_init(1000, cpu, 200)) == {}


def test_a_container_does_not_grow_for_its_node_beneath_an_init_container():
    made = plan_with_init(2000, 200, 240, others=[(1000, 1000)])
    assert targets(made) == [240, 1000]
    assert written(made) == {}
    made = plan_with_init(2000, 200, 400, others=[(1000, 1000)])
    assert written(made) == {"a": (400, ResizeCause.UNDER_REQUESTED)}


@given(situations())
def test_nothing_is_cut_below_its_target_and_nothing_above_a_band_in_haste(cluster):
    plans = decide_node_plans(cluster.snapshot, cluster.statistics, FULL, NOW, earlier=NO_EARLIER_PASSES)
    for made in plans:
        wanted = {(one.pod, one.container): one for one in made.targets}
        pods = {pod.name: pod for pod in cluster.snapshot.pods}
        for resize in made.resize:
            if resize.reason is not ReasonCode.RIGHTSIZED:
                continue
            assert resize.cause is not None
            assert resize.cause is not ResizeCause.OVER_REQUESTED
            now = {one.name: one.requests.resources for one in pods[resize.pod].containers}
            for one in resize.containers:
                before, after, target = now[one.container], one.requests.resources, wanted[resize.pod, one.container]
                assert after.cpu_millicores >= min(before.cpu_millicores, target.cpu_millicores)
                assert after.memory_bytes >= min(before.memory_bytes, target.memory_bytes)


# ---- what a LimitRange asks is no use ----


@pytest.mark.parametrize(
    "item",
    [
        LimitRangeItem(False, minimum=make_amounts(500, None)),
        LimitRangeItem(True, minimum=make_amounts(500, None)),
        LimitRangeItem(False, max_cpu_ratio=2.0),
    ],
)
def test_a_minimum_that_a_limit_range_states_makes_no_running_pod_grow(item):
    stated = {} if item.max_cpu_ratio is None else {"cpu_limit": 1000}
    for earlier in (
        NO_EARLIER_PASSES,
        EarlierPasses(over_requested_since={}, under_requested_since={("uid-shop-a", "app", CPU): LONG_AGO}),
    ):
        made = plan([200, 200], [150, 150], limit_ranges={"shop": (item,)}, earlier=earlier, **stated)
        assert written(made) == {}, earlier
        assert made.under_requested == ()


def test_what_is_written_anyway_is_raised_to_what_the_server_asks():
    limit_ranges = {"shop": (LimitRangeItem(False, minimum=make_amounts(500, None)),)}
    earlier = EarlierPasses(over_requested_since={}, under_requested_since={("uid-shop-a", "app", CPU): LONG_AGO})
    made = plan([100, 200], [300, 150], peaks=[300, 150], earlier=earlier, limit_ranges=limit_ranges)
    assert written(made) == {"a": (500, ResizeCause.UNDER_REQUESTED)}


def test_nothing_is_evicted_for_what_a_limit_range_asks_later():
    limit_ranges = {"shop": (LimitRangeItem(False, minimum=make_amounts(3000, None)),)}
    made = plan([200, 200], [150, 150], node_cpu=4000, limit_ranges=limit_ranges)
    assert made.fits
    assert (made.evict, written(made)) == ((), {})
