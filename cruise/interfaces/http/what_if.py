"""A change of rules replayed on the cluster's own history before it holds, through the API."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

import msgspec
from fastapi import APIRouter, HTTPException, Request, Response

from cruise.domain.cluster import WorkloadRef
from cruise.domain.overrides import format_settings
from cruise.domain.users import Caller, WhatIfProposal, WhatIfRun
from cruise.errors import DECODE_ERRORS, BadInputError, UnavailableError
from cruise.interfaces.http.namespace_visibility import CallerDependency, VisibilityDependency
from cruise.interfaces.http.overrides import read_override_settings
from cruise.interfaces.http.view import (
    CAMEL_CASE_CONFIG,
    ApiView,
    KindParameter,
    NameParameter,
    NamespaceParameter,
    WhatIfPort,
    list_error_responses,
    read_body,
)

NO_HISTORY_ERROR = (
    "there is no history to replay on: set prometheus_url to a Prometheus that keeps some days of this cluster's usage"
)
_SETTINGS = msgspec.json.Decoder(dict[str, str])


@dataclass(frozen=True, slots=True)
class WhatIfMetricDocument:
    """One figure under both, and the change with its 95 % interval, as `cruise backtest --against` states it."""

    current: float
    proposed: float
    change: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class WhatIfDocument:
    """A replay of what holds today and of what is proposed; `stage` is running, done, failed or cancelled."""

    __pydantic_config__ = CAMEL_CASE_CONFIG
    stage: str
    current_step: str
    progress: float
    error: str
    caller: str
    began_at: datetime
    namespace: str | None
    workload: str | None
    settings: Mapping[str, str]
    days: float | None
    containers: int | None
    figures: Mapping[str, WhatIfMetricDocument]
    notes: list[str]


def create_what_if_routes(view: ApiView) -> APIRouter:
    """Return the routes under /rehearsal."""
    routes = APIRouter(prefix="/rehearsal", tags=["rehearsal"])

    @routes.get("", responses=list_error_responses(404, 503))
    async def rehearsal(sight: VisibilityDependency) -> WhatIfDocument:
        """Return how far the replay is that was asked for last, and what it showed."""
        found = _stage(view).last()
        if found is None:
            raise HTTPException(404, "nothing was replayed since this process began")
        if found.proposal.namespace is not None:
            await sight.require_access(found.proposal.namespace)
        return _document(found)

    @routes.put("", status_code=202, responses=list_error_responses(400, 401, 403, 413, 422, 429, 503))
    async def of_cluster(caller: CallerDependency, request: Request) -> WhatIfDocument:
        """Replay other settings of the cluster beside today's, such as {"memory_risk": "1e-4"}."""
        return await _begun(view, caller, WhatIfProposal(_settings(await read_body(request))))

    @routes.put(
        "/{namespace}/{kind}/{name}", status_code=202, responses=list_error_responses(400, 401, 403, 413, 422, 429, 503)
    )
    async def of_workload(
        caller: CallerDependency,
        namespace: NamespaceParameter,
        kind: KindParameter,
        name: NameParameter,
        request: Request,
    ) -> WhatIfDocument:
        """Replay other overrides of one workload, written as for /overrides, beside today's."""
        found = format_settings(read_override_settings(await read_body(request)))
        return await _begun(view, caller, WhatIfProposal(found, namespace, WorkloadRef(kind, name)))

    @routes.delete("", status_code=204, responses=list_error_responses(401, 403, 503))
    async def cancel() -> Response:
        """End the replay that runs; none is no error."""
        await _stage(view).cancel()
        return Response(status_code=204)

    return routes


def _stage(view: ApiView) -> WhatIfPort:
    found = view.what_if_runs
    if found is None:
        raise UnavailableError(NO_HISTORY_ERROR)
    return found


def _settings(body: bytes) -> Mapping[str, str]:
    try:
        found = _SETTINGS.decode(body or b"{}")
    except DECODE_ERRORS as error:
        raise HTTPException(422, f"the body is no JSON object of settings and texts: {error}") from error
    if not found:
        raise HTTPException(422, 'no setting is proposed; write e.g. {"memory_risk": "1e-4"}')
    return found


async def _begun(view: ApiView, caller: Caller, proposal: WhatIfProposal) -> WhatIfDocument:
    try:
        return _document(await _stage(view).begin(proposal, caller))
    except BadInputError as error:
        raise HTTPException(422, str(error)) from error


def _document(found: WhatIfRun) -> WhatIfDocument:
    compared = found.comparison
    return WhatIfDocument(
        stage=found.stage.value,
        current_step=found.current_step,
        progress=found.progress,
        error=found.error,
        caller=found.caller,
        began_at=found.began_at,
        namespace=found.proposal.namespace,
        workload=str(found.proposal.workload) if found.proposal.workload is not None else None,
        settings=found.proposal.settings,
        days=None if compared is None else compared.days,
        containers=None if compared is None else compared.containers,
        figures={
            figure.value: WhatIfMetricDocument(one.reference, one.current, one.delta, one.low, one.high)
            for figure, one in ({} if compared is None else compared.figures).items()
        },
        notes=[] if compared is None else list(compared.notes),
    )
