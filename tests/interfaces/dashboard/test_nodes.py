"""The list of nodes, and the pods of one node."""

import re
from dataclasses import replace

import pytest

from cruise.domain.actions import ReasonCode
from cruise.domain.resources import ResourceName
from cruise.interfaces.dashboard.nodes import build_node_summary, build_pod_summaries, compute_node_capacity_shares
from tests.interfaces.dashboard.test_pages import browser
from tests.interfaces.http.api_scene import ApiScene, make_busy_scene


@pytest.fixture
async def scene() -> ApiScene:
    return await make_busy_scene()


def names(page: str) -> list[str]:
    return re.findall(r'<a href="nodes/(n\d)">', page)


async def test_nodes_are_sorted_filtered_and_counted_here(scene):
    async with browser(scene) as page:
        assert names((await page.get("/nodes")).text) == ["n1", "n2", "n3"]
        assert names((await page.get("/nodes", params={"up": "false"})).text) == ["n3", "n2", "n1"]
        one = (await page.get("/nodes", params={"text": "2"})).text
        assert names(one) == ["n2"] and "1 node of 3" in one
        assert "No node matches" in (await page.get("/nodes", params={"text": "none"})).text
        wrong = await page.get("/nodes", params={"sort": "colour"})
        assert wrong.status_code == 422 and "sort" in wrong.text.lower()


async def test_sorted_by_free_cpu_the_fullest_node_is_first(scene):
    free = {plan.node: build_node_summary(plan).cpu.free for plan in scene.done.plans}
    async with browser(scene) as page:
        found = names((await page.get("/nodes", params={"sort": "cpu-free", "up": "true"})).text)
    assert [free[name] for name in found] == sorted(free.values())


async def test_the_capacity_of_a_node_is_divided_into_fixed_bases_headroom_and_free(scene):
    for plan in scene.done.plans:
        for resource in ResourceName:
            share = compute_node_capacity_shares(plan, resource)
            assert share.fixed + share.base + share.headroom + share.free == share.allocatable
            assert share.fixed == plan.allocatable.get(resource) - plan.available.get(resource)


async def test_the_pods_of_a_node_are_shown_with_their_planned_sizes(scene):
    plan = next(one for one in scene.done.plans if one.targets)
    pods = [pod for pod in scene.done.snapshot.pods if pod.node == plan.node]
    lines = {line.pod.name: line for line in build_pod_summaries(plan, pods)}
    assert set(lines) == {pod.name for pod in pods}
    written = {one.pod: one.containers[0].requests.cpu_millicores for one in plan.resize}
    assert written and {name: line.planned.cpu_millicores for name, line in lines.items() if line.planned} == written
    settled = build_pod_summaries(replace(plan, resize=()), pods)
    assert all(line.planned is None for line in settled)
    assert "no-change-needed" in {line.state for line in settled}
    killed = build_pod_summaries(replace(plan, resize=()), pods, {(pod.namespace, pod.name) for pod in pods})
    assert "no-change-needed" not in {line.state for line in killed}
    async with browser(scene) as page:
        shown = (await page.get(f"/nodes/{plan.node}")).text
        assert all(name in shown for name in lines)
        assert (await page.get("/nodes/elsewhere")).status_code == 404


async def test_a_node_that_is_short_is_found_by_that(scene):
    short = replace(scene.done.plans[0], fits=False, reason=ReasonCode.OVERCOMMITTED)
    not_ready = replace(scene.done.plans[1], fits=False, reason=ReasonCode.NODE_NOT_READY)
    scene.done = replace(scene.done, plans=(short, not_ready, *scene.done.plans[2:]))
    async with browser(scene) as page:
        assert names((await page.get("/nodes", params={"short": "true"})).text) == [short.node]
        assert "its node is not ready" in (await page.get("/nodes")).text
