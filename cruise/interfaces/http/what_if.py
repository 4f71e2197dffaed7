"""The API's routes for what-if runs: other settings replayed on the cluster's recorded usage."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

import msgspec
from fastapi import APIRouter, HTTPException, Request, Response

from cruise.domain.cluster import WorkloadRef
from cruise.domain.overrides import format_settings
from cruise.domain.users import Caller, WhatIfProposal, WhatIfRun
from cruise.errors import DECODE_ERRORS, BadInputError, UnavailableError
from cruise.interfaces.http.policies import read_policy_settings
from cruise.interfaces.http.view import (
    ApiView,
    CallerDependency,
    KindParameter,
    NamespaceParameter,
    VisibilityDependency,
    WhatIfPort,
    WorkloadNameParameter,
    list_error_responses,
    read_body,
)
from cruise.interfaces.text import CAMEL_CASE_CONFIG

NO_HISTORY_ERROR = (
    "there is no recorded usage to replay: set prometheus_url to a Prometheus server that keeps some days of this "
    "cluster's usage"
)
_SETTINGS = msgspec.json.Decoder(dict[str, str])


@dataclass(frozen=True, slots=True)
class WhatIfMetricDocument:
    """One metric under both settings, and the change with its 95 % interval, as in `cruise backtest --against`."""

    current: float
    proposed: float
    change: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class WhatIfDocument:
    """A replay of the current and the proposed settings; `stage` is running, done, failed or cancelled."""

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
    """Return the routes under /what-if."""
    routes = APIRouter(prefix="/what-if", tags=["what-if"])

    @routes.get("", responses=list_error_responses(404, 503))
    async def what_if(visibility: VisibilityDependency) -> WhatIfDocument:
        """Return the progress and the result of the last what-if run."""
        run = _get_runs(view).get_last()
        if run is None:
            raise HTTPException(404, "there was no what-if run since this process started")
        if run.proposal.namespace is not None:
            await visibility.require_access(run.proposal.namespace)
        return _document(run)

    @routes.put("", status_code=202, responses=list_error_responses(400, 401, 403, 413, 422, 429, 503))
    async def start_for_cluster(caller: CallerDependency, request: Request) -> WhatIfDocument:
        """Compare other cluster settings with the current ones, such as {"memory_risk": "1e-4"}."""
        return await _start(view, caller, WhatIfProposal(_parse_settings(await read_body(request))))

    @routes.put(
        "/{namespace}/{kind}/{name}", status_code=202, responses=list_error_responses(400, 401, 403, 413, 422, 429, 503)
    )
    async def start_for_workload(
        caller: CallerDependency,
        namespace: NamespaceParameter,
        kind: KindParameter,
        name: WorkloadNameParameter,
        request: Request,
    ) -> WhatIfDocument:
        """Compare another policy of one workload, in the format of /policies, with the current one."""
        overrides = format_settings(read_policy_settings(await read_body(request)))
        return await _start(view, caller, WhatIfProposal(overrides, namespace, WorkloadRef(kind, name)))

    @routes.delete("", status_code=204, responses=list_error_responses(401, 403, 503))
    async def cancel() -> Response:
        """Cancel the current what-if run, if there is one."""
        await _get_runs(view).cancel()
        return Response(status_code=204)

    return routes


def _get_runs(view: ApiView) -> WhatIfPort:
    if view.what_if_runs is None:
        raise UnavailableError(NO_HISTORY_ERROR)
    return view.what_if_runs


def _parse_settings(body: bytes) -> Mapping[str, str]:
    try:
        settings = _SETTINGS.decode(body or b"{}")
    except DECODE_ERRORS as error:
        raise HTTPException(422, f"the body is not a JSON object of setting names and strings: {error}") from error
    if not settings:
        raise HTTPException(422, 'no setting is proposed; write e.g. {"memory_risk": "1e-4"}')
    return settings


async def _start(view: ApiView, caller: Caller, proposal: WhatIfProposal) -> WhatIfDocument:
    try:
        return _document(await _get_runs(view).begin(proposal, caller))
    except BadInputError as error:
        raise HTTPException(422, str(error)) from error


def _document(run: WhatIfRun) -> WhatIfDocument:
    comparison = run.comparison
    return WhatIfDocument(
        stage=run.stage.value,
        current_step=run.current_step,
        progress=run.progress,
        error=run.error,
        caller=run.caller,
        began_at=run.began_at,
        namespace=run.proposal.namespace,
        workload=str(run.proposal.workload) if run.proposal.workload is not None else None,
        settings=run.proposal.settings,
        days=None if comparison is None else comparison.days,
        containers=None if comparison is None else comparison.containers,
        figures={
            metric.value: WhatIfMetricDocument(one.reference, one.current, one.delta, one.low, one.high)
            for metric, one in ({} if comparison is None else comparison.figures).items()
        },
        notes=[] if comparison is None else list(comparison.notes),
    )
