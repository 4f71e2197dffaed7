"""Every node as the last pass saw it, and one node with what becomes of each of its pods."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, HTTPException, Query, Request, Response

from cruise.decisions.sizing.node_plans import NodePlan
from cruise.decisions.usage.shown_kills import kills_that_count
from cruise.domain.annotations import INSTANCE_TYPE, NODE_GROUPS, ZONE
from cruise.domain.cluster import Node, Pod
from cruise.domain.resources import NO_RESOURCES, ResourceName, Resources
from cruise.domain.sizes import with_sizes
from cruise.interfaces.dashboard.frame import Dashboard, Page
from cruise.interfaces.dashboard.headings import Column, headings_of, parts_around
from cruise.interfaces.http.controller import last_pass, seen_plans
from cruise.interfaces.http.requests import Name, Offset
from cruise.interfaces.http.sight import SightOf
from cruise.interfaces.packing.advice import nodes_kept, nodes_lines
from cruise.interfaces.plan.node_table import states_of
from cruise.interfaces.reasons import WORDS

PAGE = Page("nodes", "Nodes", "/nodes")
_ROWS = 50


@dataclass(frozen=True, slots=True)
class Share:
    """What a node's allocatable goes into, in this order, each with its `width` in percent of allocatable.

    `fixed` is for pods that are not sized, `base` and `headroom` are what the others need, `free` is the rest: negative
    where the node is short.
    """

    resource: ResourceName
    allocatable: int
    fixed: int
    base: int
    headroom: int

    @property
    def free(self) -> int:
        """What nobody needs."""
        return self.allocatable - self.fixed - self.base - self.headroom

    def width(self, amount: int) -> str:
        """Return an amount as a share of what there is, in percent."""
        return f"{100 * max(0, amount) / max(1, self.allocatable):.3f}"


@dataclass(frozen=True, slots=True)
class NodeLine:
    """A node's plan in one line."""

    plan: NodePlan
    cpu: Share
    memory: Share

    @property
    def held(self) -> int:
        """How many pods are left alone."""
        return len(self.plan.hold)


@dataclass(frozen=True, slots=True)
class PodLine:
    """One pod of a node: what becomes of it, what its containers requested when the pass began, and what it writes.

    `after` is None where the pass writes nothing.
    """

    pod: Pod
    state: str
    before: Resources
    after: Resources | None


_COLUMNS = (
    Column("Node", "name", is_number=False, is_descending=False),
    Column("Pods resized", "resized"),
    Column("Left alone", "held"),
    Column("CPU free", "cpu-free"),
    Column("Memory free", "memory-free"),
)
_SORTS: Mapping[str, Callable[[NodeLine], object]] = {
    "name": lambda line: line.plan.node,
    "resized": lambda line: len(line.plan.resize),
    "held": lambda line: line.held,
    "cpu-free": lambda line: line.cpu.free,
    "memory-free": lambda line: line.memory.free,
}


def nodes_page(dashboard: Dashboard) -> APIRouter:
    """Return the routes of the list and of one node."""
    routes = APIRouter(prefix="/nodes", include_in_schema=False, route_class=dashboard.route())
    view = dashboard.view

    @routes.get("")
    async def nodes(
        request: Request,
        sight: SightOf,
        text: Annotated[str, Query(max_length=200)] = "",
        short: bool = False,
        sort: Annotated[str, Query(pattern=f"^({'|'.join(_SORTS)})$")] = "name",
        up: bool = True,
        offset: Offset = 0,
    ) -> Response:
        done = last_pass(view)
        lines = [line_of(plan) for plan in done.plans if text.lower() in plan.node and (not short or not plan.fits)]
        lines.sort(key=_SORTS[sort], reverse=not up)  # type: ignore[arg-type]
        stated = {"text": text, "short": "true" if short else "", "sort": sort, "up": "true" if up else "false"}
        earlier, later = parts_around(stated, offset, _ROWS, len(lines))
        return dashboard.page(
            request,
            "nodes.html.j2",
            page=PAGE,
            done=done,
            lines=lines[offset : offset + _ROWS],
            total=len(lines),
            short_count=sum(not plan.fits for plan in done.plans),
            text=text,
            short=short,
            sort=sort,
            up=up,
            offset=offset,
            headings=headings_of(_COLUMNS, stated),
            earlier=earlier,
            later=later,
            words=WORDS,
            # It names PodDisruptionBudgets and counts pods of all namespaces.
            fewer=view.figures().consolidation if await sight.is_whole() else None,
            fewer_lines=nodes_lines,
            kept=nodes_kept,
        )

    @routes.get("/{name}")
    async def node(request: Request, sight: SightOf, name: Name) -> Response:
        done = last_pass(view)
        found = next((plan for plan in done.plans if plan.node == name), None)
        if found is None:
            raise HTTPException(404, f"the last pass saw no node {name}")
        [shown] = await seen_plans([found], sight)
        seen = await sight.of(pod.namespace for pod in done.snapshot.pods if pod.node == name)
        pods = [pod for pod in done.snapshot.pods if pod.node == name and (seen is None or pod.namespace in seen)]
        return dashboard.page(
            request,
            "node.html.j2",
            page=PAGE,
            done=done,
            plan=found,
            node=next((one for one in done.snapshot.nodes if one.name == name), None),
            shares=[share_of(found, resource) for resource in ResourceName],
            pods=pod_lines(
                shown, pods, {(kill.namespace, kill.pod) for kill in kills_that_count(done.snapshot, done.at)}
            ),
            words=WORDS,
            labels=labels_of(done.snapshot.nodes, name),
        )

    return routes


def line_of(plan: NodePlan) -> NodeLine:
    """Return a plan in one line."""
    return NodeLine(plan, share_of(plan, ResourceName.CPU), share_of(plan, ResourceName.MEMORY))


def share_of(plan: NodePlan, resource: ResourceName) -> Share:
    """Return what a node's allocatable goes into."""
    allocatable = plan.allocatable.of(resource)
    fixed = allocatable - plan.available.of(resource)
    return Share(resource, allocatable, fixed, plan.base.of(resource), plan.headroom.of(resource))


def pod_lines(plan: NodePlan, pods: Sequence[Pod], killed: Collection[tuple[str, str]] = ()) -> Sequence[PodLine]:
    """Return a node's pods, those that something becomes of first."""
    states = states_of(plan, killed)
    resizes = {one.key: one.containers for one in plan.resize}
    lines = []
    for pod in pods:
        key = (pod.namespace, pod.name)
        after = _requested(with_sizes(pod, resizes[key])) if key in resizes else None
        lines.append(PodLine(pod, states[key][0] if key in states else "not sized", _requested(pod), after))
    changed = {(one.namespace, one.pod) for one in plan.resize} | {(one.namespace, one.pod) for one in plan.evict}
    return sorted(lines, key=lambda line: ((line.pod.namespace, line.pod.name) not in changed, line.pod.namespace))


def labels_of(nodes: Sequence[Node], name: str) -> Mapping[str, str]:
    """Return the labels by which people know a node: its type, its zone, its group."""
    found = next((node.labels for node in nodes if node.name == name), {})
    titles = {INSTANCE_TYPE: "type", ZONE: "zone"} | dict.fromkeys(NODE_GROUPS, "group")
    return {title: found[label] for label, title in titles.items() if label in found}


def _requested(pod: Pod) -> Resources:
    return sum((container.requests.resources for container in pod.sized_containers), NO_RESOURCES)
