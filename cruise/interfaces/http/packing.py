"""The API's routes for packing plans, consolidation and the hourly history of the cluster."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated

import msgspec
from fastapi import APIRouter, Query, Response

from cruise.domain.records import get_clock_hour
from cruise.errors import UnavailableError, pause_garbage_collection
from cruise.interfaces.coverage import build_amounts_document
from cruise.interfaces.http.controller import ResourceAmountsDocument
from cruise.interfaces.http.view import ApiView, VisibilityDependency, list_error_responses, parse_since, wait_for_store
from cruise.interfaces.packing.descriptions import describe_condition
from cruise.interfaces.packing.document import LastPackingPlanDocument, build_packing_document
from cruise.interfaces.packing.nodes import (
    NodeCountByReason,
    count_kept_nodes,
    describe_consolidation,
    format_node_type_name,
)
from cruise.interfaces.text import CAMEL_CASE_CONFIG, convert_to_json
from cruise.runtime.packing.consolidation_pass import ConsolidationPassResult


def create_packing_routes(view: ApiView) -> APIRouter:
    """Return the route at /packing."""
    routes = APIRouter(prefix="/packing", tags=["packing"])

    @routes.get("", response_model=LastPackingPlanDocument, responses=list_error_responses(403, 503))
    async def packing(visibility: VisibilityDependency) -> Response:
        """Return the last packing plan for pending pods, and its progress.

        The caller must be allowed to get the pods of all namespaces.
        """
        await visibility.require_access("")
        plan = await wait_for_store(view.store.read_packing_plan())
        page = LastPackingPlanDocument(None if plan is None else build_packing_document(plan))
        return Response(msgspec.json.encode(convert_to_json(page)), media_type="application/json")

    return routes


@dataclass(frozen=True, slots=True)
class ConsolidationAdvice:
    """The last consolidation plan.

    `reason` says why there is no plan; then all figures are null. A node is in use if it runs a pod of another kind
    than DaemonSet. No plan needs fewer than `nodesBound` nodes: the plan is proved optimal if that is `nodesAfter`.
    `drained` is in the plan's order. `keptByReason` counts the nodes that only one reason keeps in use,
    `nodesAfterByLiftedConstraint` the nodes needed without a constraint, `add` the nodes to add by type for pending
    pods. `empty` are the nodes that are already unused.
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
    async def consolidation(visibility: VisibilityDependency) -> ConsolidationAdvice:
        """Return the fewest nodes that hold all pods, the nodes to drain, and why the others are kept.

        The caller must be allowed to get the pods of all namespaces.
        """
        await visibility.require_access("")
        return _advice(get_last_consolidation(view))

    return routes


def get_last_consolidation(view: ApiView) -> ConsolidationPassResult:
    """Return the last consolidation pass. Raises UnavailableError if there is none."""
    figures = view.get_figures()
    if figures.consolidation is None:
        reason = "it has not run yet, or is disabled" if figures.leader else "another process is the leader"
        raise UnavailableError(f"this process has no consolidation plan: {reason}")
    return figures.consolidation


def _advice(consolidation: ConsolidationPassResult) -> ConsolidationAdvice:
    change, plan = consolidation.node_count_change, consolidation.plan
    return ConsolidationAdvice(
        at=consolidation.at,
        reason=None if change is not None else describe_condition(consolidation.condition),
        message=" ".join(describe_consolidation(consolidation)),
        seconds=round(consolidation.seconds, 3),
        nodes_before=None if change is None else change.nodes_before,
        nodes_after=None if change is None else change.nodes_after,
        nodes_bound=None if change is None else change.nodes_bound,
        moves=None if plan is None else len(plan.moves),
        drained=[] if change is None else list(change.drained),
        kept_by_reason=[] if change is None else count_kept_nodes(change),
        nodes_after_by_lifted_constraint=[]
        if change is None
        else [NodeCountByReason(constraint, nodes) for constraint, nodes in change.nodes_after_by_lifted_constraint],
        add=[]
        if change is None
        else [NodeCountByReason(format_node_type_name(one), one.count) for one in change.added],
        empty=list(consolidation.empty_nodes),
        node_autoscaler=None if consolidation.autoscaler is None else consolidation.autoscaler.value,
    )


MAX_HOURS = timedelta(days=30)


@dataclass(frozen=True, slots=True)
class HourlyTotalsDocument:
    """The cluster at the first node pass of an hour; `saved` compares with the requests before cruise."""

    __pydantic_config__ = CAMEL_CASE_CONFIG
    at: datetime
    allocatable: ResourceAmountsDocument
    requested: ResourceAmountsDocument
    used: ResourceAmountsDocument
    saved: ResourceAmountsDocument


@dataclass(frozen=True, slots=True)
class HistoryDocument:
    """The stored hours, oldest first."""

    items: list[HourlyTotalsDocument]


def create_history_routes(view: ApiView) -> APIRouter:
    """Return the route at /history."""
    routes = APIRouter(prefix="/history", tags=["workloads"])

    @routes.get("", response_model=HistoryDocument, responses=list_error_responses(422, 503))
    async def history(
        since: Annotated[str | None, Query(description="A time with a zone; the default is thirty days ago.")] = None,
    ) -> Response:
        """Return the cluster's sums by hour, for at most thirty days."""
        earliest = view.now() - MAX_HOURS if since is None else parse_since(since)
        hours = await wait_for_store(view.store.read_hourly_totals(get_clock_hour(earliest)))
        # The validation of thousands of hours by a model would take a tenth of a second.
        with pause_garbage_collection():
            items = [
                {
                    "at": one.at,
                    **{
                        name: build_amounts_document(getattr(one, name))
                        for name in ("allocatable", "requested", "used", "saved")
                    },
                }
                for one in hours
            ]
            return Response(msgspec.json.encode({"items": items}), media_type="application/json")

    return routes
