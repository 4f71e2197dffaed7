"""The page Actions."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from cruise.domain.actions import ActionResult, ReasonCode
from cruise.interfaces.dashboard.layout import Dashboard, DashboardPage, get_adjacent_pages
from cruise.interfaces.http.audit import AuditEntry, describe_audit_cause, read_audit_page
from cruise.interfaces.http.namespace_visibility import VisibilityDependency
from cruise.interfaces.http.user_actions import read_user_action_page
from cruise.interfaces.http.view import OffsetParameter, wait_for_store

ACTIONS_PAGE = DashboardPage("actions", "Actions", "/audit")
_ROWS = 100
# The number of the newest audit lines that the page's form searches; the page says so where there are more.
_MAX_SEARCHED = 5000
_ACTIONS = ("resize", "evict", "taint", "untaint")
_MAX_USER_ACTIONS = 20
_PERIODS = {"1h": timedelta(hours=1), "1d": timedelta(days=1), "7d": timedelta(days=7), "30d": timedelta(days=30)}
_COLOURS = {
    ActionResult.DONE: "green",
    ActionResult.SKIPPED: "",
    ActionResult.REFUSED: "red",
    ActionResult.FAILED: "red",
}


def create_actions_page(dashboard: Dashboard) -> APIRouter:
    """Return the route of the Actions page."""
    routes = APIRouter(include_in_schema=False, route_class=dashboard.create_route_class())
    view = dashboard.view

    @routes.get("/actions")
    async def actions(
        request: Request,
        visibility: VisibilityDependency,
        text: Annotated[str, Query(max_length=200)] = "",
        action: Annotated[str, Query(pattern=f"^({'|'.join(_ACTIONS)})?$")] = "",
        cause: Annotated[str, Query(pattern="^[a-z-]{0,40}$")] = "",
        result: Annotated[str, Query(pattern=f"^({'|'.join(ActionResult)})?$")] = "",
        period: Annotated[str, Query(pattern=f"^({'|'.join(_PERIODS)})$")] = "1d",
        offset: OffsetParameter = 0,
    ) -> Response:
        since = view.now() - _PERIODS[period]
        audit = await read_audit_page(view, visibility, since, _MAX_SEARCHED)
        entries = [one for one in audit.items if _matches(one, text, action, cause, result)]
        shown = entries[offset : offset + _ROWS]
        query = {"text": text, "action": action, "cause": cause, "result": result, "period": period}
        earlier, later = get_adjacent_pages(query, offset, _ROWS, len(entries))
        return dashboard.render_page(
            request,
            "actions.html.j2",
            page=ACTIONS_PAGE,
            lines=shown,
            total=len(entries),
            more=audit.more,
            most=_MAX_SEARCHED,
            text=text,
            action=action,
            actions=_ACTIONS,
            cause=cause,
            causes=sorted({_get_cause(one) for one in audit.items} | ({cause} if cause else set())),
            result=result,
            results=list(ActionResult),
            period=period,
            periods=list(_PERIODS),
            offset=offset,
            earlier=earlier,
            later=later,
            colours=_COLOURS,
            describe_cause=describe_audit_cause,
            reverts=_find_revertible(shown),
            user_actions=(await read_user_action_page(view, visibility, since, _MAX_USER_ACTIONS)).items,
            paused=await wait_for_store(view.store.is_paused()),
        )

    return routes


def _find_revertible(entries: Sequence[AuditEntry]) -> Sequence[int]:
    """Return the index of each workload's newest resize, unless that was a revert."""
    newest: dict[tuple[str | None, str], int] = {}
    for index, entry in enumerate(entries):
        if entry.action == "resize" and entry.result == ActionResult.DONE and entry.workload is not None:
            newest.setdefault((entry.namespace, entry.workload), index)
    return [index for index in newest.values() if entries[index].purpose != ReasonCode.REVERTED]


def _get_cause(entry: AuditEntry) -> str:
    """Return the cause of a resize, or the reason for any other action."""
    return entry.cause or entry.purpose


def _matches(entry: AuditEntry, text: str, action: str, cause: str, result: str) -> bool:
    if (
        (result and entry.result != result)
        or (action and entry.action != action)
        or (cause and _get_cause(entry) != cause)
    ):
        return False
    names = (entry.action, entry.namespace, entry.pod, entry.node, entry.workload)
    searched = " ".join(name for name in names if name).lower()
    return all(word in searched for word in text.lower().split())
