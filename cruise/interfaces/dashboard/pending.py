"""Pods that wait for a node: why each of them does, and the last plan that makes room, with its proof and progress."""

from collections.abc import Sequence

from fastapi import APIRouter, Request, Response

from cruise.domain.actions import Hold
from cruise.domain.packing import PackingPlan, Phase
from cruise.errors import Unavailable
from cruise.interfaces.dashboard.frame import Dashboard, Page
from cruise.interfaces.http.controller import last_pass
from cruise.interfaces.http.sight import SightOf
from cruise.interfaces.http.view import in_time
from cruise.interfaces.packing.advice import adding_lines
from cruise.interfaces.packing.progress_document import packing_document
from cruise.interfaces.packing.table import proof_words
from cruise.interfaces.reasons import WORDS

PAGE = Page("pending", "Pending", "/packing")
_MOST = 200
_PHASES = {
    Phase.SHOWN: ("shown", ""),
    Phase.UNDER_WAY: ("under way", "amber"),
    Phase.FINISHED: ("finished", "green"),
    Phase.DROPPED: ("dropped", "red"),
}


def pending_page(dashboard: Dashboard) -> APIRouter:
    """Return the route of the page."""
    routes = APIRouter(include_in_schema=False, route_class=dashboard.route())
    view = dashboard.view

    @routes.get("/pending")
    async def pending(request: Request, sight: SightOf) -> Response:
        snapshot = await view.snapshot()
        waiting = [pod for pod in snapshot.pods if pod.node is None and not pod.terminal]
        seen = await sight.of(pod.namespace for pod in waiting)
        pods = [pod for pod in waiting if seen is None or pod.namespace in seen]
        # A plan is of one piece, so it is for those who may get the pods of all namespaces.
        whole = await sight.is_whole()
        plan = await in_time(view.store.packing()) if whole else None
        fewer = view.figures().consolidation if whole else None
        return dashboard.page(
            request,
            "pending.html.j2",
            page=PAGE,
            pods=sorted(pods, key=lambda pod: (-pod.priority, pod.namespace, pod.name))[:_MOST],
            total=len(pods),
            held={(one.namespace, one.pod): WORDS[one.reason] for one in _holds(dashboard)},
            plan=plan,
            document=packing_document(plan) if plan is not None else None,
            proof=proof_words(plan.proposal) if plan is not None else "",
            phase=_PHASES[plan.phase] if plan is not None else None,
            done=_done(plan) if plan is not None else 0,
            whole=whole,
            fewer=fewer,
            adding=adding_lines(fewer),
        )

    return routes


def _holds(dashboard: Dashboard) -> Sequence[Hold]:
    try:
        return last_pass(dashboard.view).waiting
    except Unavailable:
        return ()


def _done(plan: PackingPlan) -> int:
    """Return how many stages are done, in percent."""
    return round(100 * plan.stage / max(1, len(plan.proposal.stages)))
