"""Filters, score and queue of the small kube-scheduler."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cruise.domain.cluster import Node, Pod
from cruise.domain.pod_resources import count_pod_requests
from cruise.domain.resources import NO_RESOURCES
from cruise.domain.scheduling import (
    LabelRequirement,
    NodeSelectorTerm,
    SchedulingConstraints,
    SelectorOperator,
    Taint,
    TaintEffect,
    Toleration,
)
from tests.simulation.scenes import START, amounts, cluster, container, node, pods, resize, run, template, workload

DEDICATED = Taint("dedicated", "batch", TaintEffect.NO_SCHEDULE)


async def placed(pod: Pod, *nodes: Node) -> str | None:
    (found,) = await pods(cluster(workload(pod=pod), nodes))
    return found.node


def pinned(*names: str) -> SchedulingConstraints:
    term = NodeSelectorTerm(expressions=(LabelRequirement("zone", SelectorOperator.IN, names),))
    return SchedulingConstraints(terms=(term,))


@pytest.mark.parametrize(
    ("pod", "wanted"),
    [
        (template(container(3000, 100)), "n2"),  # only there is CPU enough
        (template(container(100, 6000)), "n2"),
        (template(container(5000, 100)), None),
        (template(extended_requests=(("nvidia.com/gpu", 1),)), "n1"),
        (template(extended_requests=(("nvidia.com/gpu", 2),)), None),
        (template(extended_requests=(("example.com/dongle", 1),)), None),
        (template(placement=SchedulingConstraints(node_selector=(("zone", "a"),))), "n1"),
        (template(placement=pinned("b", "c")), "n2"),
        (template(placement=pinned("c")), None),
        (template(scheduling_gated=True), None),
    ],
)
async def test_filters(pod: Pod, wanted: str | None) -> None:
    small = node("n1", 2000, 4096, labels={"zone": "a"}, allocatable_extended={"nvidia.com/gpu": 1})
    large = node("n2", 4000, 8192, labels={"zone": "b"})
    assert await placed(pod, small, large) == wanted


@pytest.mark.parametrize(
    ("fields", "tolerations", "wanted"),
    [
        ({"taints": (DEDICATED,)}, (), None),
        ({"taints": (DEDICATED,)}, (Toleration("dedicated", value="batch"),), "n1"),
        ({"taints": (replace(DEDICATED, effect=TaintEffect.PREFER_NO_SCHEDULE),)}, (), "n1"),
        ({"unschedulable": True}, (), None),
        ({"ready": False}, (), None),
        ({"allocatable_pods": 0}, (), None),
    ],
)
async def test_nodes_that_repel(fields: dict[str, Any], tolerations: tuple[Toleration, ...], wanted: str) -> None:
    assert (
        await placed(template(placement=SchedulingConstraints(tolerations=tolerations)), node("n1", **fields)) == wanted
    )


async def test_the_least_allocated_node_is_chosen_and_ties_are_broken_by_name() -> None:
    nodes = [node("b"), node("a"), node("c")]
    world = cluster(workload(replicas=4, pod=template(container(1000, 1024))), nodes)
    assert sorted(pod.node or "" for pod in await pods(world)) == ["a", "a", "b", "c"]


async def test_free_share_counts_not_free_amount() -> None:
    # On the large node 6000 of 8000 are left (75 %), on the small one 3000 of 4000 less what comes (65 %).
    nodes = [node("large", 8000, 8192), node("small", 4000, 8192)]
    first = workload("first", template(container(2000, 10), placement=SchedulingConstraints(node_selector=())))
    world = cluster([first, workload("next", template(container(400, 10)))], nodes)
    assert [(await pods(world, app))[0].node for app in ("first", "next")] == ["large", "small"]


async def test_pods_without_requests_are_spread_all_the_same() -> None:
    world = cluster(workload(replicas=2, pod=template(container(None, None))), [node("a"), node("b")])
    assert {pod.node for pod in await pods(world)} == {"a", "b"}


async def test_higher_priority_and_older_pods_are_scheduled_first() -> None:
    old = workload("old", template(container(3000, 100)), created_at=START - timedelta(hours=2))
    young = workload("young", template(container(3000, 100)), created_at=START - timedelta(hours=1))
    urgent = workload("urgent", template(container(1000, 100), priority=5))
    world = cluster([young, old, urgent])
    assert [(await pods(world, app))[0].node for app in ("urgent", "old", "young")] == ["n1", "n1", None]


async def test_a_pending_pod_is_scheduled_once_there_is_capacity() -> None:
    world = cluster([workload("big", template(container(3000, 100))), workload("web", template(container(2000, 100)))])
    run(world, 10)
    (waiting,) = await pods(world, "web")
    assert waiting.unschedulable_since == START
    assert world.counts.pending_pod_seconds == 10
    await world.perform(resize((await pods(world, "big"))[0], amounts(1000)))
    run(world, 20)
    (bound,) = await pods(world, "web")
    assert (bound.node, bound.phase, bound.unschedulable_since) == ("n1", "Running", None)


sizes = st.tuples(st.integers(0, 3000), st.integers(0, 5000), st.integers(1, 3), st.integers(0, 2))


@given(st.lists(sizes, max_size=10), st.lists(st.tuples(st.integers(0, 5000), st.integers(1, 9000)), max_size=4))
async def test_nodes_are_never_overfilled(
    drawn: list[tuple[int, int, int, int]], node_sizes: list[tuple[int, int]]
) -> None:
    """By counted requests and by number of pods; and who is left pending fits nowhere."""
    nodes = [node(f"n{i}", cpu, mebibytes, allocatable_pods=4) for i, (cpu, mebibytes) in enumerate(node_sizes)]
    world = cluster(
        [
            workload(f"w{i}", template(container(cpu, mebibytes), priority=priority), replicas=replicas)
            for i, (cpu, mebibytes, replicas, priority) in enumerate(drawn)
        ],
        nodes,
    )
    found = await pods(world)
    rooms = {}
    for one in nodes:
        here = [count_pod_requests(pod) for pod in found if pod.node == one.name]
        assert len(here) <= 4
        rooms[one.name] = (one.allocatable - sum(here, NO_RESOURCES), 4 - len(here))
        used = sum(here, NO_RESOURCES)
        assert used.fits_in(one.allocatable)
    for pod in found:
        need = count_pod_requests(pod)
        if pod.node is None:
            assert not any(need.fits_in(room) and places for room, places in rooms.values())
