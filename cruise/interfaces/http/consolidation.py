"""With how few nodes the cluster would do, through the API."""

from dataclasses import dataclass
from datetime import datetime

from fastapi import APIRouter

from cruise.errors import Unavailable
from cruise.interfaces.http.requests import CAMEL, failures
from cruise.interfaces.http.sight import SightOf
from cruise.interfaces.http.view import ApiView
from cruise.interfaces.packing.advice import NodeCount, nodes_kept, nodes_lines
from cruise.interfaces.packing.fleet import type_words
from cruise.interfaces.packing.halt_words import halt_words
from cruise.runtime.packing.consolidation_pass import ConsolidationPass


@dataclass(frozen=True, slots=True)
class NodesAdvice:
    """With how few nodes the cluster would do, as found at a time.

    `why` says why there is no advice; then all figures are null. A node is in use while a pod is there that is not of a
    DaemonSet. `nodesBound` is what no plan goes below: the plan is proved where it is `nodesAfter`. `emptied` is in the
    order in which the plan empties them. `kept` counts the nodes that stay in use for one reason alone, `without` the
    nodes that would do without a constraint, `add` those to add of each type for pods that are pending. `empty` are the
    nodes that nothing uses already.
    """

    __pydantic_config__ = CAMEL
    at: datetime
    why: str | None
    words: str
    seconds: float
    nodes_before: int | None
    nodes_after: int | None
    nodes_bound: int | None
    moves: int | None
    emptied: list[str]
    kept: list[NodeCount]
    without: list[NodeCount]
    add: list[NodeCount]
    empty: list[str]
    node_autoscaler: str | None


def consolidation_routes(view: ApiView) -> APIRouter:
    """Return the route at /consolidation."""
    routes = APIRouter(prefix="/consolidation", tags=["packing"])

    @routes.get("", responses=failures(403, 503))
    async def consolidation(sight: SightOf) -> NodesAdvice:
        """Return with how few nodes the cluster would do, by which nodes emptied, and what keeps the others.

        It is about pods of all namespaces, so it is for callers who may get them all.
        """
        await sight.require("")
        return _advice(last_consolidation(view))

    return routes


def last_consolidation(view: ApiView) -> ConsolidationPass:
    """Return the last look for fewer nodes. Raises Unavailable with the reason why there is none."""
    figures = view.figures()
    if figures.consolidation is None:
        why = "it was not looked for yet, or is switched off" if figures.leader else "another process leads"
        raise Unavailable(f"there is no advice on nodes here: {why}")
    return figures.consolidation


def _advice(done: ConsolidationPass) -> NodesAdvice:
    fleet, plan = done.fleet, done.plan
    return NodesAdvice(
        at=done.at,
        why=None if fleet is not None else halt_words(done.why),
        words=" ".join(nodes_lines(done)),
        seconds=round(done.seconds, 3),
        nodes_before=None if fleet is None else fleet.nodes_before,
        nodes_after=None if fleet is None else fleet.nodes_after,
        nodes_bound=None if fleet is None else fleet.nodes_bound,
        moves=None if plan is None else len(plan.moves),
        emptied=[] if fleet is None else list(fleet.emptied),
        kept=[] if fleet is None else nodes_kept(fleet),
        without=[] if fleet is None else [NodeCount(constraint, nodes) for constraint, nodes in fleet.without],
        add=[] if fleet is None else [NodeCount(type_words(one), one.count) for one in fleet.added],
        empty=list(done.empty),
        node_autoscaler=None if done.autoscaler is None else done.autoscaler.value,
    )
