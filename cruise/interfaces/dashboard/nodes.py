"""The pages Nodes, with one page for each node, and Pending."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, HTTPException, Query, Request, Response

from cruise.decisions.sizing.node_plans import NodePlan
from cruise.decisions.usage.oom_records import find_relevant_oom_kills
from cruise.domain.actions import SkippedPod
from cruise.domain.annotations import INSTANCE_TYPE, NODE_GROUPS, ZONE
from cruise.domain.cluster import Node, Pod
from cruise.domain.packing_plan import PlanPhase
from cruise.domain.pod_resources import replace_spec_resources
from cruise.domain.resources import NO_RESOURCES, ResourceName, Resources, StatedResources
from cruise.errors import UnavailableError
from cruise.interfaces.dashboard.layout import (
    Dashboard,
    MenuEntry,
    SortableColumn,
    build_table_headings,
    get_adjacent_pages,
)
from cruise.interfaces.http.controller import filter_plans_by_namespace, get_last_pass
from cruise.interfaces.http.view import NameParameter, OffsetParameter, VisibilityDependency, wait_for_store
from cruise.interfaces.packing.document import build_packing_document
from cruise.interfaces.packing.nodes import count_kept_nodes, describe_added_nodes, describe_consolidation
from cruise.interfaces.packing.table import describe_proof
from cruise.interfaces.plan_table import describe_pod_states
from cruise.interfaces.reasons import REASON_DESCRIPTIONS

NODES_PAGE = MenuEntry("nodes", "Nodes", "/nodes")
_ROWS = 50


@dataclass(frozen=True, slots=True)
class NodeCapacityShares:
    """How a node's allocatable capacity is used.

    `fixed` is for pods that are not sized, `base` and `headroom` for the others; `free` is the rest, negative if the
    capacity is insufficient.
    """

    resource: ResourceName
    allocatable: int
    fixed: int
    base: int
    headroom: int

    @property
    def free(self) -> int:
        """The capacity that no pod needs."""
        return self.allocatable - self.fixed - self.base - self.headroom

    def get_width(self, amount: int) -> str:
        """Return an amount in percent of the allocatable capacity."""
        return f"{100 * max(0, amount) / max(1, self.allocatable):.3f}"


@dataclass(frozen=True, slots=True)
class NodeSummary:
    """One row of the table of nodes."""

    plan: NodePlan
    cpu: NodeCapacityShares
    memory: NodeCapacityShares

    @property
    def skipped_pods(self) -> int:
        """The number of skipped pods."""
        return len(self.plan.skipped)


@dataclass(frozen=True, slots=True)
class PodSummary:
    """One pod of a node; `planned` is None if the node pass writes nothing to it."""

    pod: Pod
    state: str
    requested: Resources
    planned: Resources | None


_COLUMNS = (
    SortableColumn("Node", "name", is_number=False, is_descending=False),
    SortableColumn("Pods resized", "resized"),
    SortableColumn("Skipped pods", "skipped"),
    SortableColumn("CPU free", "cpu-free"),
    SortableColumn("Memory free", "memory-free"),
)
_SORT_KEYS: Mapping[str, Callable[[NodeSummary], object]] = {
    "name": lambda line: line.plan.node,
    "resized": lambda line: len(line.plan.resize),
    "skipped": lambda line: line.skipped_pods,
    "cpu-free": lambda line: line.cpu.free,
    "memory-free": lambda line: line.memory.free,
}


def create_nodes_pages(dashboard: Dashboard) -> APIRouter:
    """Return the routes of the Nodes page and of a node's page."""
    routes = APIRouter(prefix="/nodes", include_in_schema=False, route_class=dashboard.create_route_class())
    view = dashboard.view

    @routes.get("")
    async def nodes(
        request: Request,
        visibility: VisibilityDependency,
        text: Annotated[str, Query(max_length=200)] = "",
        short: bool = False,
        sort: Annotated[str, Query(pattern=f"^({'|'.join(_SORT_KEYS)})$")] = "name",
        up: bool = True,
        offset: OffsetParameter = 0,
    ) -> Response:
        node_pass = get_last_pass(view)
        lines = [
            build_node_summary(plan)
            for plan in node_pass.plans
            if text.lower() in plan.node and (not short or plan.is_full)
        ]
        lines.sort(key=_SORT_KEYS[sort], reverse=not up)  # type: ignore[arg-type]
        query = {"text": text, "short": "true" if short else "", "sort": sort, "up": "true" if up else "false"}
        earlier, later = get_adjacent_pages(query, offset, _ROWS, len(lines))
        # Consolidation names PodDisruptionBudgets and counts the pods of all namespaces.
        consolidation = view.get_figures().consolidation if await visibility.sees_all() else None
        node_change = consolidation.node_count_change if consolidation is not None else None
        return dashboard.render_page(
            request,
            "nodes.html.j2",
            page=NODES_PAGE,
            node_pass=node_pass,
            lines=lines[offset : offset + _ROWS],
            total=len(lines),
            short_count=sum(plan.is_full for plan in node_pass.plans),
            text=text,
            short=short,
            sort=sort,
            up=up,
            offset=offset,
            headings=build_table_headings(_COLUMNS, query),
            earlier=earlier,
            later=later,
            reasons=REASON_DESCRIPTIONS,
            consolidation=consolidation,
            consolidation_lines=describe_consolidation(consolidation) if consolidation is not None else (),
            node_change=node_change,
            kept_nodes=count_kept_nodes(node_change) if node_change is not None else (),
        )

    @routes.get("/{name}")
    async def node(request: Request, visibility: VisibilityDependency, name: NameParameter) -> Response:
        node_pass = get_last_pass(view)
        snapshot = node_pass.snapshot
        plan = next((one for one in node_pass.plans if one.node == name), None)
        if plan is None:
            raise HTTPException(404, f"the last node pass saw no node {name}")
        [visible_plan] = await filter_plans_by_namespace([plan], visibility)
        visible = await visibility.get_visible_namespaces(pod.namespace for pod in snapshot.pods if pod.node == name)
        pods = [pod for pod in snapshot.pods if pod.node == name and (visible is None or pod.namespace in visible)]
        killed = {(kill.namespace, kill.pod) for kill in find_relevant_oom_kills(snapshot, node_pass.at)}
        return dashboard.render_page(
            request,
            "node.html.j2",
            page=NODES_PAGE,
            node_pass=node_pass,
            plan=plan,
            node=next((one for one in snapshot.nodes if one.name == name), None),
            shares=[compute_node_capacity_shares(plan, resource) for resource in ResourceName],
            pods=build_pod_summaries(visible_plan, pods, killed),
            reasons=REASON_DESCRIPTIONS,
            labels=select_node_labels(snapshot.nodes, name),
        )

    return routes


def build_node_summary(plan: NodePlan) -> NodeSummary:
    """Return the row of one node."""
    return NodeSummary(
        plan,
        compute_node_capacity_shares(plan, ResourceName.CPU),
        compute_node_capacity_shares(plan, ResourceName.MEMORY),
    )


def compute_node_capacity_shares(plan: NodePlan, resource: ResourceName) -> NodeCapacityShares:
    """Return how the allocatable capacity of a node divides."""
    allocatable = plan.allocatable.get(resource)
    fixed = allocatable - plan.available.get(resource)
    return NodeCapacityShares(resource, allocatable, fixed, plan.base.get(resource), plan.headroom.get(resource))


def build_pod_summaries(
    plan: NodePlan, pods: Sequence[Pod], killed: Collection[tuple[str, str]] = ()
) -> Sequence[PodSummary]:
    """Return a node's pods, those that the plan resizes or evicts first."""
    states = describe_pod_states(plan, killed)
    resizes = {one.key: one.containers for one in plan.resize}
    summaries = []
    for pod in pods:
        key = (pod.namespace, pod.name)
        planned = _sum_requests(replace_spec_resources(pod, resizes[key])) if key in resizes else None
        summaries.append(PodSummary(pod, states[key][0] if key in states else "not sized", _sum_requests(pod), planned))
    changed = {(one.namespace, one.pod) for one in plan.resize} | {(one.namespace, one.pod) for one in plan.evict}
    return sorted(summaries, key=lambda one: ((one.pod.namespace, one.pod.name) not in changed, one.pod.namespace))


def select_node_labels(nodes: Sequence[Node], name: str) -> Mapping[str, str]:
    """Return a node's instance type, zone and node group, as far as its labels have them."""
    labels = next((node.labels for node in nodes if node.name == name), {})
    titles = {INSTANCE_TYPE: "type", ZONE: "zone"} | dict.fromkeys(NODE_GROUPS, "group")
    return {title: labels[label] for label, title in titles.items() if label in labels}


def _sum_requests(pod: Pod) -> Resources:
    summed = sum((container.requests.resources for container in pod.sized_containers), NO_RESOURCES)
    if pod.pod_level is None:
        return summed
    return pod.pod_level.requests.with_defaults(StatedResources(summed.cpu_millicores, summed.memory_bytes)).resources


# Pending pods and the last packing plan.

PENDING_PAGE = MenuEntry("pending", "Pending", "/packing")
_MAX_PODS = 200
_PHASES = {
    PlanPhase.ADVISORY: ("advisory", ""),
    PlanPhase.IN_PROGRESS: ("in progress", "amber"),
    PlanPhase.FINISHED: ("finished", "green"),
    PlanPhase.DROPPED: ("dropped", "red"),
}


def create_pending_page(dashboard: Dashboard) -> APIRouter:
    """Return the route of the Pending page."""
    routes = APIRouter(include_in_schema=False, route_class=dashboard.create_route_class())
    view = dashboard.view

    @routes.get("/pending")
    async def pending(request: Request, visibility: VisibilityDependency) -> Response:
        snapshot = await view.snapshot()
        all_pending = [pod for pod in snapshot.pods if pod.node is None and not pod.is_finished]
        visible = await visibility.get_visible_namespaces(pod.namespace for pod in all_pending)
        pods = [pod for pod in all_pending if visible is None or pod.namespace in visible]
        # A plan cannot be divided by namespace, so only callers who may get the pods of all namespaces see it.
        sees_all = await visibility.sees_all()
        plan = await wait_for_store(view.store.read_packing_plan()) if sees_all else None
        consolidation = view.get_figures().consolidation if sees_all else None
        return dashboard.render_page(
            request,
            "pending.html.j2",
            page=PENDING_PAGE,
            pods=sorted(pods, key=lambda pod: (-pod.priority, pod.namespace, pod.name))[:_MAX_PODS],
            total=len(pods),
            skipped={(one.namespace, one.pod): REASON_DESCRIPTIONS[one.reason] for one in _list_skipped(dashboard)},
            plan=plan,
            document=build_packing_document(plan) if plan is not None else None,
            proof=describe_proof(plan.proposal) if plan is not None else "",
            phase=_PHASES[plan.phase] if plan is not None else None,
            progress=round(100 * plan.stage / max(1, len(plan.proposal.stages))) if plan is not None else 0,
            sees_all=sees_all,
            consolidation=consolidation,
            added_nodes=describe_added_nodes(consolidation),
        )

    return routes


def _list_skipped(dashboard: Dashboard) -> Sequence[SkippedPod]:
    try:
        return get_last_pass(dashboard.view).unschedulable
    except UnavailableError:
        return ()
