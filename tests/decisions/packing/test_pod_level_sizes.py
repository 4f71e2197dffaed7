"""Pods with pod-level resources in packing plans: they shrink as a whole, around what their containers state."""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from cruise.decisions.packing.problem import FULL_MODE, UsageInputs, build_packing_problem
from cruise.decisions.packing.proposal import MoveOrderFailure, build_proposal
from cruise.domain.cluster import POD_LEVEL, ClusterSnapshot, Container, Pod
from cruise.domain.packing_plan import PackingProposal, PackingSizes
from cruise.domain.resources import MEBIBYTE, StatedResources
from cruise.packer.answer import build_packing, compute_figures
from cruise.packer.greedy import pack_quickly
from tests.builders import (
    NOW,
    make_amounts,
    make_container,
    make_node,
    make_pod,
    make_pod_level,
    make_snapshot,
    make_statistic,
    make_table,
)

NOTHING = (make_container(cpu=None, memory_mib=None), make_container("proxy", cpu=None, memory_mib=None))


def whole_pod(name: str = "web-1", containers: Iterable[Container] = NOTHING, cpu: int = 900, **more) -> Pod:
    """A pod that states CPU and 1 GiB for its containers app and proxy together."""
    requests = make_amounts(cpu, 1024)
    pod_level = make_pod_level(requests, allocated=requests, actual=requests)
    return make_pod(name, containers=containers, pod_level=pod_level, **more)


def new_pod(cpu: int = 500) -> Pod:
    containers = (make_container(cpu=cpu, settled=False),)
    return make_pod("new", node=None, containers=containers, workload=None, unschedulable_since=NOW)


def proposed(snapshot: ClusterSnapshot, places: dict[str, int] | None = None, base: int = 50, peak: int = 100):
    """What is proposed if both containers use that much CPU each."""
    names = {one.name for one in snapshot.pods if one.pod_level is not None} | {""}
    rows = [
        make_statistic(name, container=one, cpu_base=base, cpu_peak=peak) for name in names for one in ("app", "proxy")
    ]
    built = build_packing_problem(snapshot, FULL_MODE, PackingSizes.RIGHTSIZED, UsageInputs(make_table(*rows), NOW))
    if places is None:
        return build_proposal(built, pack_quickly(built.problem))
    pod_node = built.problem.pod_node.copy()
    for at, pod in enumerate(built.pods):
        pod_node[at] = places.get(pod.name, pod_node[at])
    bound = compute_figures(built.problem, pod_node).get_key(built.problem.objective)
    return build_proposal(built, build_packing(built.problem, pod_node, bound))


def small_node(name: str = "n1", cpu: int = 1000):
    return make_node(name, cpu=cpu, kubelet_version=(1, 36))


def test_a_whole_pod_shrinks_for_a_pending_one():
    found = proposed(make_snapshot([whole_pod(), new_pod()], nodes=[small_node()]))
    assert isinstance(found, PackingProposal)
    [resize] = found.resizes
    [target] = resize.containers
    assert target.container == POD_LEVEL
    # Bases of 50 each, and headrooms of 50 each.
    assert target.requests.cpu_millicores == 200
    assert [one.pod for one in found.placed] == ["new"]


@pytest.mark.parametrize(
    "container",
    [make_container(cpu=300, memory_mib=None), make_container(cpu=None, memory_mib=None, cpu_limit=700)],
    ids=["request", "limit"],
)
def test_it_is_not_made_smaller_than_what_its_containers_state(container):
    limits = make_amounts(900)
    pod = whole_pod(containers=(container, NOTHING[1]))
    assert pod.pod_level is not None
    pod = replace(pod, pod_level=replace(pod.pod_level, limits=limits, actual_limits=limits))
    found = proposed(make_snapshot([pod, new_pod()], nodes=[small_node()]))
    if isinstance(found, MoveOrderFailure):
        # It is planned again without that pod.
        assert found.not_resizable == {pod.uid}
        return
    for resize in found.resizes:
        [target] = [one for one in resize.containers if one.container == POD_LEVEL]
        assert target.requests.resources.cpu_millicores >= container.requests.resources.cpu_millicores
        assert target.limits.resources.cpu_millicores >= container.limits.resources.cpu_millicores


@pytest.mark.parametrize("versions", [((1, 36), (1, 36)), ((1, 36), (1, 35))])
def test_a_pending_one_shrinks_if_every_node_could_resize_it(versions):
    nodes = [make_node(name, cpu=700, kubelet_version=one) for name, one in zip(("n1", "n2"), versions, strict=True)]
    pods = [new_pod(500), replace(whole_pod("web-2", node=None), unschedulable_since=NOW)]
    other = make_pod("other", node="n2", workload=None, containers=(make_container(cpu=600),))
    found = proposed(make_snapshot([*pods, other], nodes=nodes))
    assert isinstance(found, PackingProposal)
    is_placed = "web-2" in {one.pod for one in found.placed}
    assert is_placed is (versions[1] == (1, 36))


def test_one_that_moves_is_created_with_the_size_for_its_new_node():
    nodes = [small_node(), small_node("n2", 500)]
    found = proposed(make_snapshot([whole_pod(), new_pod(900)], nodes=nodes), {"web-1": 1, "new": 0})
    assert isinstance(found, PackingProposal)
    [move] = found.moves
    assert [(one.container, one.requests.cpu_millicores) for one in move.containers] == [(POD_LEVEL, 200)]


def test_on_a_kubelet_that_cannot_resize_it_keeps_its_size():
    nodes = [replace(small_node(), kubelet_version=(1, 35))]
    found = proposed(make_snapshot([whole_pod(), new_pod()], nodes=nodes))
    assert isinstance(found, PackingProposal)
    assert not found.resizes
    assert [one.pod for one in found.unplaced] == ["new"]


def test_a_resource_not_stated_at_pod_level_is_unchanged():
    pod = whole_pod(containers=[replace(one, requests=make_amounts(100)) for one in NOTHING])
    assert pod.pod_level is not None
    only_memory = StatedResources(memory_bytes=1024 * MEBIBYTE)
    pod_level = replace(pod.pod_level, requests=only_memory, allocated=only_memory, actual=only_memory)
    built = build_packing_problem(
        make_snapshot([replace(pod, pod_level=pod_level)], nodes=[small_node()]),
        FULL_MODE,
        PackingSizes.RIGHTSIZED,
        UsageInputs(make_table(*(make_statistic("web-1", container=one) for one in ("app", "proxy"))), NOW),
    )
    cpu, memory = built.problem.demands[0, :2].tolist()
    assert cpu == 200
    assert memory < 1024 * MEBIBYTE
