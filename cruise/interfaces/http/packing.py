"""With how few nodes the cluster would do, through the API."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated

import msgspec
from fastapi import APIRouter, Query, Response

from cruise.domain.records import get_clock_hour
from cruise.domain.resources import Resources
from cruise.errors import UnavailableError, pause_garbage_collection
from cruise.interfaces.http.controller import SizeDocument
from cruise.interfaces.http.namespace_visibility import VisibilityDependency
from cruise.interfaces.http.view import CAMEL_CASE_CONFIG, ApiView, list_error_responses, parse_since, wait_for_store
from cruise.interfaces.packing.descriptions import describe_condition
from cruise.interfaces.packing.document import PackingPage, build_packing_document
from cruise.interfaces.packing.nodes import (
    NodeCountByReason,
    count_kept_nodes,
    describe_consolidation,
    describe_node_type,
)
from cruise.interfaces.text import convert_to_json
from cruise.runtime.packing.consolidation_pass import ConsolidationPassResult

# The packer's last plan and its progress, through the API.


def create_packing_routes(view: ApiView) -> APIRouter:
    """Return the route at /packing."""
    routes = APIRouter(prefix="/packing", tags=["packing"])

    @routes.get("", response_model=PackingPage, responses=list_error_responses(403, 503))
    async def packing(sight: VisibilityDependency) -> Response:
        """Return the last plan for pods that no node could hold, and how far it is carried out.

        It is of one piece, so it is for callers who may get the pods of all namespaces.
        """
        await sight.require_access("")
        plan = await wait_for_store(view.store.packing())
        page = PackingPage(None if plan is None else build_packing_document(plan))
        return Response(msgspec.json.encode(convert_to_json(page)), media_type="application/json")

    return routes


@dataclass(frozen=True, slots=True)
class ConsolidationAdvice:
    """How few nodes are enough for the cluster, as of a time.

    `reason` tells why there is no advice; then all figures are null. A node is in use if it runs a pod other than those
    of DaemonSets. No plan needs fewer than `nodesBound`: the plan is proved if `nodesAfter` equals it. `drained` is in
    the order of draining. `keptByReason` counts the nodes that stay in use for only one reason,
    `nodesAfterByLiftedConstraint` the nodes that are enough without a constraint, `add` the nodes of each type that
    pending pods need. `empty` are the nodes without pods.
    """

    __pydantic_config__ = CAMEL_CASE_CONFIG
    at: datetime
    reason: str | None
    message: str
    seconds: float
    nodes_before: int | None
    nodes_after: int | None
    nodes_bound: int | None
    moves: int | None
    drained: list[str]
    kept_by_reason: list[NodeCountByReason]
    nodes_after_by_lifted_constraint: list[NodeCountByReason]
    add: list[NodeCountByReason]
    empty: list[str]
    node_autoscaler: str | None


def create_consolidation_routes(view: ApiView) -> APIRouter:
    """Return the route at /consolidation."""
    routes = APIRouter(prefix="/consolidation", tags=["packing"])

    @routes.get("", responses=list_error_responses(403, 503))
    async def consolidation(sight: VisibilityDependency) -> ConsolidationAdvice:
        """Return with how few nodes the cluster would do, by which nodes emptied, and what keeps the others.

        It is about pods of all namespaces, so it is for callers who may get them all.
        """
        await sight.require_access("")
        return _advice(get_last_consolidation(view))

    return routes


def get_last_consolidation(view: ApiView) -> ConsolidationPassResult:
    """Return the last look for fewer nodes. Raises Unavailable with the reason why there is none."""
    figures = view.get_figures()
    if figures.consolidation is None:
        why = "it was not looked for yet, or is switched off" if figures.leader else "another process leads"
        raise UnavailableError(f"there is no advice on nodes here: {why}")
    return figures.consolidation


def _advice(done: ConsolidationPassResult) -> ConsolidationAdvice:
    fleet, plan = done.fleet, done.plan
    return ConsolidationAdvice(
        at=done.at,
        reason=None if fleet is not None else describe_condition(done.condition),
        message=" ".join(describe_consolidation(done)),
        seconds=round(done.seconds, 3),
        nodes_before=None if fleet is None else fleet.nodes_before,
        nodes_after=None if fleet is None else fleet.nodes_after,
        nodes_bound=None if fleet is None else fleet.nodes_bound,
        moves=None if plan is None else len(plan.moves),
        drained=[] if fleet is None else list(fleet.drained),
        kept_by_reason=[] if fleet is None else count_kept_nodes(fleet),
        nodes_after_by_lifted_constraint=[]
        if fleet is None
        else [NodeCountByReason(constraint, nodes) for constraint, nodes in fleet.nodes_after_by_lifted_constraint],
        add=[] if fleet is None else [NodeCountByReason(describe_node_type(one), one.count) for one in fleet.added],
        empty=list(done.empty_nodes),
        node_autoscaler=None if done.autoscaler is None else done.autoscaler.value,
    )


# The cluster's sums over time through the API, an hour each.

MAX_HOURS = timedelta(days=30)


@dataclass(frozen=True, slots=True)
class HourlyTotalsDocument:
    """The cluster at the first pass of an hour; `saved` is against the requests before cruise."""

    __pydantic_config__ = CAMEL_CASE_CONFIG
    at: datetime
    allocatable: SizeDocument
    requested: SizeDocument
    used: SizeDocument
    saved: SizeDocument


@dataclass(frozen=True, slots=True)
class HistoryPage:
    """The hours that are known, oldest first."""

    items: list[HourlyTotalsDocument]


def create_history_routes(view: ApiView) -> APIRouter:
    """Return the route at /history."""
    routes = APIRouter(prefix="/history", tags=["workloads"])

    @routes.get("", response_model=HistoryPage, responses=list_error_responses(422, 503))
    async def history(
        since: Annotated[str | None, Query(description="A time with its zone; thirty days ago without it.")] = None,
    ) -> Response:
        """Return the cluster's sums by the hour, as long as they are kept."""
        earliest = view.now() - MAX_HOURS if since is None else parse_since(since)
        found = await wait_for_store(view.store.cluster_hours(get_clock_hour(earliest)))
        # Thousands of hours, which to check as a model takes a tenth of a second.
        with pause_garbage_collection():
            items = [
                {
                    "at": one.at,
                    **{name: _sizes(getattr(one, name)) for name in ("allocatable", "requested", "used", "saved")},
                }
                for one in found
            ]
            return Response(msgspec.json.encode({"items": items}), media_type="application/json")

    return routes


def _sizes(amount: Resources) -> dict[str, int]:
    return {"cpuMillicores": amount.cpu_millicores, "memoryBytes": amount.memory_bytes}
