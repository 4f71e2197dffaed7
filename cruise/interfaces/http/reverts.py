"""One workload back to the sizes that its pods had before cruise, through the API."""

import asyncio
from dataclasses import dataclass

from fastapi import APIRouter, HTTPException

from cruise.domain.actions import Outcome, ResizePod
from cruise.domain.callers import Deed
from cruise.domain.cluster import WorkloadRef
from cruise.errors import Unavailable
from cruise.interfaces.http.interventions import carried_out
from cruise.interfaces.http.requests import Kind, Name, Namespace, failures
from cruise.interfaces.http.sight import CallerOf
from cruise.interfaces.http.view import ApiView
from cruise.interfaces.reasons import detail_words, in_words
from cruise.interfaces.revert_states import state_of

_LONGEST_SECONDS = 50.0


@dataclass(frozen=True, slots=True)
class RevertedPod:
    """What became of one pod: `state` is `put back`, `waits` (another revert may do it) or `not possible`."""

    pod: str
    state: str
    reason: str
    words: str
    detail: str


@dataclass(frozen=True, slots=True)
class RevertedWorkload:
    """What became of the pods that had other sizes than their original ones; a stored mode now holds the workload."""

    namespace: str
    kind: str
    name: str
    pods: list[RevertedPod]


def revert_routes(view: ApiView) -> APIRouter:
    """Return the route under /reverts."""
    routes = APIRouter(prefix="/reverts", tags=["reverts"])

    @routes.put("/{namespace}/{kind}/{name}", responses=failures(401, 403, 404, 422, 503))
    async def put_back(caller: CallerOf, namespace: Namespace, kind: Kind, name: Name) -> RevertedWorkload:
        """Store mode observe for one workload, and put its pods back to their original sizes, without evictions.

        Removing what is stored for it, or storing another mode, lets cruise size it again.
        """
        workload = WorkloadRef(kind, name)
        outcomes: list[Outcome] = []

        async def change() -> None:
            outcomes.extend(await view.revert(namespace, workload))

        if not any((pod.namespace, pod.workload) == (namespace, workload) for pod in (await view.snapshot()).pods):
            raise HTTPException(404, f"there are no pods of {workload} in {namespace}")
        try:
            # What takes longer is asked for again, and goes on where it was.
            async with asyncio.timeout(_LONGEST_SECONDS):
                await carried_out(view, caller, Deed.REVERT, change, namespace, workload)
        except TimeoutError as error:
            raise Unavailable("not all pods are put back yet; ask again, and it goes on with the others") from error
        return RevertedWorkload(namespace, kind, name, [_document(outcome) for outcome in outcomes])

    return routes


def _document(outcome: Outcome) -> RevertedPod:
    action = outcome.action
    assert isinstance(action, ResizePod)
    return RevertedPod(
        action.pod, state_of(outcome), outcome.reason.value, in_words(outcome.reason), detail_words(outcome.detail)
    )
