"""Sizes in a plan: those that the API server accepts, and those that fit the nodes."""

from dataclasses import replace

import pytest

from cruise.decisions.packing.plan_replay import (
    BaseAndHeadroom,
    check_planned_sizes,
    find_headroom_shortage,
    find_increased_resources,
    find_removed_requests_and_limits,
)
from cruise.decisions.scheduling.placements import PodPlacements
from cruise.domain.actions import ContainerTarget
from cruise.domain.autoscalers import LimitRangeItem, ResourceQuota
from cruise.domain.cluster import ContainerRole, QosClass
from cruise.domain.resources import NO_RESOURCES, Resources, StatedResources
from tests.builders import make_amounts, make_container, make_node, make_pod, make_resources, make_snapshot


def target(cpu=50, memory_mib=64, cpu_limit=None, memory_limit_mib=None, name="app", role=ContainerRole.MAIN):
    return ContainerTarget(name, role, make_amounts(cpu, memory_mib), make_amounts(cpu_limit, memory_limit_mib))


@pytest.mark.parametrize(
    ("pod", "targets", "wrong"),
    [
        (make_pod(), (target(),), []),
        (make_pod(), (target(name="other"),), ["has no main container other"]),
        (make_pod(), (target(role=ContainerRole.SIDECAR),), ["has no sidecar container app"]),
        (make_pod(), (target(), target()), ["has a container sized twice"]),
        (make_pod(), (target(cpu_limit=40),), ["would request more cpu than the limit of container app"]),
        (make_pod(), (target(memory_limit_mib=60),), ["would request more memory than the limit of container app"]),
        (make_pod(), (target(50, 64, 50, 64),), ["would change its QoS class"]),
        (make_pod(), (target(None, None),), ["would change its QoS class"]),
        (make_pod(is_mirror_pod=True), (target(),), ["cannot be resized"]),
        (make_pod(runs_on_windows=True), (target(),), ["cannot be resized"]),
        (make_pod(namespace="narrow"), (target(),), ["would be outside its namespace's LimitRange"]),
        (make_pod(namespace="poor"), (target(101, 64),), ["would exceed its namespace's quota"]),
        (make_pod(namespace="poor"), (target(100, 64),), []),
    ],
)
def test_sizes_that_the_server_refuses(pod, targets, wrong):
    snapshot = replace(
        make_snapshot(
            [pod], limit_ranges={"narrow": (LimitRangeItem(is_for_pod=False, minimum=StatedResources(60, None)),)}
        ),
        quotas={"poor": (ResourceQuota(requests_left=StatedResources(0, None)),)},
    )
    assert list(check_planned_sizes(snapshot, pod, targets)) == wrong


def test_a_guaranteed_pod_remains_guaranteed():
    pod = make_pod(containers=[make_container("app", 100, 128, 100, 128)], qos=QosClass.GUARANTEED)
    assert list(check_planned_sizes(make_snapshot([pod]), pod, (target(50, 64, 50, 64),))) == []
    assert list(check_planned_sizes(make_snapshot([pod]), pod, (target(50, 64, 100, 128),))) == [
        "would change its QoS class"
    ]


def test_what_is_stated_cannot_be_taken_back_by_a_resize():
    pod = make_pod(containers=[make_container("app", 100, 128, 200, 256)])
    assert list(find_removed_requests_and_limits(pod, (target(50, 64, 200, 256),))) == []
    assert list(find_removed_requests_and_limits(pod, (target(None, 64, 200, 256),))) == [
        "would lose the cpu request of container app"
    ]
    assert list(find_removed_requests_and_limits(pod, (target(50, None, 200, 256),))) == [
        "would lose the memory request of container app"
    ]
    assert list(find_removed_requests_and_limits(pod, (target(50, 64, None, 256),))) == [
        "would lose the cpu limit of container app"
    ]
    assert list(find_removed_requests_and_limits(pod, (target(50, 64, 200, None),))) == [
        "would lose the memory limit of container app"
    ]


def test_shrinks_precede_all_evictions_and_increase_nothing():
    pod = make_pod()
    assert list(find_increased_resources(pod, (target(100, 128),))) == []
    assert list(find_increased_resources(pod, (target(101, 64),))) == ["grows from 100 m to 101 m"]
    assert list(find_increased_resources(pod, (target(50, 129),))) == ["grows from 134217728 to 135266304 bytes"]


@pytest.mark.parametrize(
    ("first", "second", "fits"),
    [
        ((600, 300), (100, 300), True),
        ((600, 300), (101, 300), False),
        ((600, 200), (200, 100), True),
        ((600, 200), (200, 201), False),
    ],
)
def test_bases_add_up_and_the_largest_headroom_counts_once(first, second, fits):
    pods = [make_pod("a"), make_pod("b")]
    board = PodPlacements(make_snapshot(pods, [make_node("n1", cpu=1000, memory_mib=1024)]))
    demands = {
        ("shop", name): BaseAndHeadroom(Resources(base, 0), Resources(headroom, 0))
        for name, (base, headroom) in (("a", first), ("b", second))
    }
    assert (list(find_headroom_shortage(board, "n1", [pods[1]], demands)) == []) == fits


def test_a_resource_that_no_arrival_asks_for_may_be_short_already():
    pods = [make_pod("a"), make_pod("b")]
    board = PodPlacements(make_snapshot(pods, [make_node("n1", cpu=1000, memory_mib=1024)]))
    demands = {
        ("shop", "a"): BaseAndHeadroom(make_resources(2000, 10), NO_RESOURCES),
        ("shop", "b"): BaseAndHeadroom(make_resources(0, 10), NO_RESOURCES),
    }
    assert list(find_headroom_shortage(board, "n1", [pods[1]], demands)) == []
    assert list(find_headroom_shortage(board, "n1", pods, demands)) != []


def test_a_pod_without_a_demand_needs_what_it_counts():
    pods = [make_pod("a"), make_pod("b")]
    board = PodPlacements(make_snapshot(pods, [make_node("n1", cpu=199, memory_mib=1024)]))
    assert len(list(find_headroom_shortage(board, "n1", [pods[1]], {}))) == 1
