"""Every node as the last pass saw it, and one node with what becomes of each of its pods."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, HTTPException, Query, Request, Response

from cruise.decisions.sizing.node_plans import NodePlan
from cruise.decisions.usage.oom_records import find_relevant_oom_kills
from cruise.domain.actions import SkippedPod
from cruise.domain.annotations import INSTANCE_TYPE, NODE_GROUPS, ZONE
from cruise.domain.cluster import Node, Pod
from cruise.domain.packing_plan import PackingPlan, PlanPhase
from cruise.domain.pod_resources import replace_spec_resources
from cruise.domain.resources import NO_RESOURCES, ResourceName, Resources
from cruise.errors import UnavailableError
from cruise.interfaces.dashboard.layout import (
    Dashboard,
    DashboardPage,
    SortableColumn,
    build_headings,
    get_adjacent_pages,
)
from cruise.interfaces.http.controller import filter_plans_by_namespace, get_last_pass
from cruise.interfaces.http.namespace_visibility import VisibilityDependency
from cruise.interfaces.http.view import NameParameter, OffsetParameter, wait_for_store
from cruise.interfaces.packing.document import build_packing_document
from cruise.interfaces.packing.nodes import count_kept_nodes, describe_added_nodes, describe_consolidation
from cruise.interfaces.packing.table import describe_proof
from cruise.interfaces.plan_table import describe_pod_states
from cruise.interfaces.reasons import REASON_DESCRIPTIONS

NODES_PAGE = DashboardPage("nodes", "Nodes", "/nodes")
_ROWS = 50


@dataclass(frozen=True, slots=True)
class NodeShares:
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
    def get_free(self) -> int:
        """What nobody needs."""
        return self.allocatable - self.fixed - self.base - self.headroom

    def get_width(self, amount: int) -> str:
        """Return an amount as a share of what there is, in percent."""
        return f"{100 * max(0, amount) / max(1, self.allocatable):.3f}"


@dataclass(frozen=True, slots=True)
class NodeSummary:
    """A node's plan in one line."""

    plan: NodePlan
    cpu: NodeShares
    memory: NodeShares

    @property
    def skipped_pods(self) -> int:
        """How many pods are left alone."""
        return len(self.plan.skipped)


@dataclass(frozen=True, slots=True)
class PodSummary:
    """One pod of a node: what becomes of it, what its containers requested when the pass began, and what it writes.

    `after` is None where the pass writes nothing.
    """

    pod: Pod
    state: str
    before: Resources
    after: Resources | None


_COLUMNS = (
    SortableColumn("Node", "name", is_number=False, is_descending=False),
    SortableColumn("Pods resized", "resized"),
    SortableColumn("Left alone", "held"),
    SortableColumn("CPU free", "cpu-free"),
    SortableColumn("Memory free", "memory-free"),
)
_SORTS: Mapping[str, Callable[[NodeSummary], object]] = {
    "name": lambda line: line.plan.node,
    "resized": lambda line: len(line.plan.resize),
    "held": lambda line: line.skipped_pods,
    "cpu-free": lambda line: line.cpu.get_free,
    "memory-free": lambda line: line.memory.get_free,
}


def create_nodes_pages(dashboard: Dashboard) -> APIRouter:
    """Return the routes of the list and of one node."""
    routes = APIRouter(prefix="/nodes", include_in_schema=False, route_class=dashboard.route())
    view = dashboard.view

    @routes.get("")
    async def nodes(
        request: Request,
        sight: VisibilityDependency,
        text: Annotated[str, Query(max_length=200)] = "",
        short: bool = False,
        sort: Annotated[str, Query(pattern=f"^({'|'.join(_SORTS)})$")] = "name",
        up: bool = True,
        offset: OffsetParameter = 0,
    ) -> Response:
        done = get_last_pass(view)
        lines = [
            build_node_summary(plan)
            for plan in done.plans
            if text.lower() in plan.node and (not short or not plan.fits)
        ]
        lines.sort(key=_SORTS[sort], reverse=not up)  # type: ignore[arg-type]
        stated = {"text": text, "short": "true" if short else "", "sort": sort, "up": "true" if up else "false"}
        earlier, later = get_adjacent_pages(stated, offset, _ROWS, len(lines))
        return dashboard.page(
            request,
            "nodes.html.j2",
            page=NODES_PAGE,
            done=done,
            lines=lines[offset : offset + _ROWS],
            total=len(lines),
            short_count=sum(not plan.fits for plan in done.plans),
            text=text,
            short=short,
            sort=sort,
            up=up,
            offset=offset,
            headings=build_headings(_COLUMNS, stated),
            earlier=earlier,
            later=later,
            words=REASON_DESCRIPTIONS,
            # It names PodDisruptionBudgets and counts pods of all namespaces.
            fewer=view.get_figures().consolidation if await sight.sees_all() else None,
            fewer_lines=describe_consolidation,
            kept=count_kept_nodes,
        )

    @routes.get("/{name}")
    async def node(request: Request, sight: VisibilityDependency, name: NameParameter) -> Response:
        done = get_last_pass(view)
        found = next((plan for plan in done.plans if plan.node == name), None)
        if found is None:
            raise HTTPException(404, f"the last pass saw no node {name}")
        [shown] = await filter_plans_by_namespace([found], sight)
        seen = await sight.get_visible_namespaces(pod.namespace for pod in done.snapshot.pods if pod.node == name)
        pods = [pod for pod in done.snapshot.pods if pod.node == name and (seen is None or pod.namespace in seen)]
        return dashboard.page(
            request,
            "node.html.j2",
            page=NODES_PAGE,
            done=done,
            plan=found,
            node=next((one for one in done.snapshot.nodes if one.name == name), None),
            shares=[compute_node_shares(found, resource) for resource in ResourceName],
            pods=build_pod_summaries(
                shown, pods, {(kill.namespace, kill.pod) for kill in find_relevant_oom_kills(done.snapshot, done.at)}
            ),
            words=REASON_DESCRIPTIONS,
            labels=select_node_labels(done.snapshot.nodes, name),
        )

    return routes


def build_node_summary(plan: NodePlan) -> NodeSummary:
    """Return a plan in one line."""
    return NodeSummary(
        plan, compute_node_shares(plan, ResourceName.CPU), compute_node_shares(plan, ResourceName.MEMORY)
    )


def compute_node_shares(plan: NodePlan, resource: ResourceName) -> NodeShares:
    """Return what a node's allocatable goes into."""
    allocatable = plan.allocatable.get(resource)
    fixed = allocatable - plan.available.get(resource)
    return NodeShares(resource, allocatable, fixed, plan.base.get(resource), plan.headroom.get(resource))


def build_pod_summaries(
    plan: NodePlan, pods: Sequence[Pod], killed: Collection[tuple[str, str]] = ()
) -> Sequence[PodSummary]:
    """Return a node's pods, those that something becomes of first."""
    states = describe_pod_states(plan, killed)
    resizes = {one.key: one.containers for one in plan.resize}
    lines = []
    for pod in pods:
        key = (pod.namespace, pod.name)
        after = _requested(replace_spec_resources(pod, resizes[key])) if key in resizes else None
        lines.append(PodSummary(pod, states[key][0] if key in states else "not sized", _requested(pod), after))
    changed = {(one.namespace, one.pod) for one in plan.resize} | {(one.namespace, one.pod) for one in plan.evict}
    return sorted(lines, key=lambda line: ((line.pod.namespace, line.pod.name) not in changed, line.pod.namespace))


def select_node_labels(nodes: Sequence[Node], name: str) -> Mapping[str, str]:
    """Return the labels by which people know a node: its type, its zone, its group."""
    found = next((node.labels for node in nodes if node.name == name), {})
    titles = {INSTANCE_TYPE: "type", ZONE: "zone"} | dict.fromkeys(NODE_GROUPS, "group")
    return {title: found[label] for label, title in titles.items() if label in found}


def _requested(pod: Pod) -> Resources:
    return sum((container.requests.resources for container in pod.sized_containers), NO_RESOURCES)


# Pods that wait for a node: why each of them does, and the last plan that makes room, with its proof and progress.

PENDING_PAGE = DashboardPage("pending", "Pending", "/packing")
_MOST = 200
_PHASES = {
    PlanPhase.ADVISORY: ("shown", ""),
    PlanPhase.IN_PROGRESS: ("under way", "amber"),
    PlanPhase.FINISHED: ("finished", "green"),
    PlanPhase.DROPPED: ("dropped", "red"),
}


def create_pending_page(dashboard: Dashboard) -> APIRouter:
    """Return the route of the page."""
    routes = APIRouter(include_in_schema=False, route_class=dashboard.route())
    view = dashboard.view

    @routes.get("/pending")
    async def pending(request: Request, sight: VisibilityDependency) -> Response:
        snapshot = await view.snapshot()
        waiting = [pod for pod in snapshot.pods if pod.node is None and not pod.is_finished]
        seen = await sight.get_visible_namespaces(pod.namespace for pod in waiting)
        pods = [pod for pod in waiting if seen is None or pod.namespace in seen]
        # A plan is of one piece, so it is for those who may get the pods of all namespaces.
        whole = await sight.sees_all()
        plan = await wait_for_store(view.store.packing()) if whole else None
        fewer = view.get_figures().consolidation if whole else None
        return dashboard.page(
            request,
            "pending.html.j2",
            page=PENDING_PAGE,
            pods=sorted(pods, key=lambda pod: (-pod.priority, pod.namespace, pod.name))[:_MOST],
            total=len(pods),
            held={(one.namespace, one.pod): REASON_DESCRIPTIONS[one.reason] for one in _holds(dashboard)},
            plan=plan,
            document=build_packing_document(plan) if plan is not None else None,
            proof=describe_proof(plan.proposal) if plan is not None else "",
            phase=_PHASES[plan.phase] if plan is not None else None,
            done=_done(plan) if plan is not None else 0,
            whole=whole,
            fewer=fewer,
            adding=describe_added_nodes(fewer),
        )

    return routes


def _holds(dashboard: Dashboard) -> Sequence[SkippedPod]:
    try:
        return get_last_pass(dashboard.view).unschedulable
    except UnavailableError:
        return ()


def _done(plan: PackingPlan) -> int:
    """Return how many stages are done, in percent."""
    return round(100 * plan.stage / max(1, len(plan.proposal.stages)))
