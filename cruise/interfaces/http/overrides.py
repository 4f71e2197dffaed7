"""The API's routes for stored overrides, whose settings have the names and formats of annotations."""

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, HTTPException, Query, Request, Response

from cruise.domain.annotations import CRUISE_RECORDS, PREFIX, Overrides, UnreadableAnnotations
from cruise.domain.cluster import WorkloadRef
from cruise.domain.overrides import format_settings, parse_overrides
from cruise.domain.users import UserActionKind
from cruise.errors import DECODE_ERRORS
from cruise.interfaces.http.namespace_visibility import CallerDependency, VisibilityDependency
from cruise.interfaces.http.user_actions import perform_user_action
from cruise.interfaces.http.view import (
    ApiView,
    KindParameter,
    NamespaceParameter,
    OffsetParameter,
    WorkloadNameParameter,
    list_error_responses,
    read_body,
    wait_for_store,
)

_MAX_SETTINGS = 500
_EXAMPLE = {"mode": "resize", "cpu-min": "100m", "memory-max.app": "2Gi"}
# Pods may have controllers of other kinds, but a kind that is almost one of these is a typing error.
_COMMON_KINDS = ("Deployment", "StatefulSet", "DaemonSet", "CronJob", "Job", "ReplicaSet", "ReplicationController")
_MIN_SIMILARITY = 0.85
_SETTINGS = msgspec.json.Decoder(dict[str, str | int | float])
_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "Settings by the names of their annotations, with or without the prefix cruise.io/.",
        "content": {
            "application/json": {
                "schema": {"type": "object", "additionalProperties": {"type": ["string", "number"]}},
                "example": _EXAMPLE,
            }
        },
    }
}


@dataclass(frozen=True, slots=True)
class OverrideEntry:
    """The overrides of one workload; `settings` are named as the annotations, without their prefix."""

    namespace: str
    kind: str
    name: str
    settings: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class OverridePage:
    """Some stored overrides by namespace, kind and name, starting at `offset`; `total` counts all."""

    total: int
    offset: int
    items: list[OverrideEntry]


def create_override_routes(view: ApiView) -> APIRouter:
    """Return the routes under /overrides."""
    routes = APIRouter(prefix="/overrides", tags=["overrides"])

    @routes.get("", responses=list_error_responses(422, 503))
    async def overrides(
        visibility: VisibilityDependency,
        offset: OffsetParameter = 0,
        limit: Annotated[int, Query(ge=1, le=1000, description="The maximum number of items.")] = 200,
    ) -> OverridePage:
        """List the stored overrides of namespaces whose pods the caller may get, by namespace, kind and name."""
        found = await wait_for_store(view.store.read_overrides())
        visible = await visibility.get_visible_namespaces(namespace for namespace, _ in found)
        stored = sorted(item for item in found.items() if visible is None or item[0][0] in visible)
        items = [_entry(namespace, workload, one) for (namespace, workload), one in stored[offset : offset + limit]]
        return OverridePage(len(stored), offset, items)

    @routes.get("/{namespace}/{kind}/{name}", responses=list_error_responses(404, 422, 503))
    async def override(
        visibility: VisibilityDependency,
        namespace: NamespaceParameter,
        kind: KindParameter,
        name: WorkloadNameParameter,
    ) -> OverrideEntry:
        """Return the stored overrides of one workload."""
        await visibility.require_access(namespace)
        workload = WorkloadRef(kind, name)
        stored = (await wait_for_store(view.store.read_overrides())).get((namespace, workload))
        if stored is None:
            raise HTTPException(404, f"no override is stored for {workload} in {namespace}")
        return _entry(namespace, workload, stored)

    @routes.put(
        "/{namespace}/{kind}/{name}",
        responses=list_error_responses(400, 401, 403, 413, 422, 503),
        openapi_extra=_BODY,
    )
    async def put_override(
        caller: CallerDependency,
        namespace: NamespaceParameter,
        kind: KindParameter,
        name: WorkloadNameParameter,
        request: Request,
    ) -> OverrideEntry:
        """Replace the stored overrides of one workload; annotations take precedence over them."""
        _reject_misspelt(kind)
        workload = WorkloadRef(kind, name)
        overrides = read_override_settings(await read_body(request))
        detail = msgspec.json.encode(format_settings(overrides)).decode()
        await perform_user_action(
            view,
            caller,
            UserActionKind.PUT_OVERRIDE,
            lambda: wait_for_store(view.store.write_override(namespace, workload, overrides)),
            namespace,
            workload,
            detail,
        )
        return _entry(namespace, workload, overrides)

    @routes.delete(
        "/{namespace}/{kind}/{name}",
        responses=list_error_responses(401, 403, 422, 503),
        status_code=204,
    )
    async def delete_override(
        caller: CallerDependency, namespace: NamespaceParameter, kind: KindParameter, name: WorkloadNameParameter
    ) -> Response:
        """Delete the stored overrides of one workload, if there are any."""
        workload = WorkloadRef(kind, name)
        await perform_user_action(
            view,
            caller,
            UserActionKind.DELETE_OVERRIDE,
            lambda: wait_for_store(view.store.write_override(namespace, workload, None)),
            namespace,
            workload,
        )
        return Response(status_code=204)

    return routes


def read_override_settings(body: bytes) -> Overrides:
    """Parse overrides. Raises HTTPException 422 with the setting and the fix."""
    try:
        settings = _SETTINGS.decode(body)
    except DECODE_ERRORS as error:
        raise HTTPException(422, f"the body is not a JSON object of settings, such as {_example()}: {error}") from error
    if not settings:
        raise HTTPException(422, f"the body has no settings; write e.g. {_example()}, or DELETE the override")
    if len(settings) > _MAX_SETTINGS:
        raise HTTPException(422, f"{len(settings)} settings are more than {_MAX_SETTINGS}")
    annotations = {key if key.startswith(PREFIX) else f"{PREFIX}{key}": text for key, text in settings.items()}
    if len(annotations) < len(settings):
        raise HTTPException(422, f"a setting is given twice, with {PREFIX} and without")
    for record in sorted(CRUISE_RECORDS & annotations.keys()):
        raise HTTPException(422, f"{record} is written by cruise and is not a setting")
    if any("\0" in key for key in annotations):
        raise HTTPException(422, "the name of a setting contains a NUL character")
    overrides = parse_overrides({key: _to_text(value) for key, value in annotations.items()})
    if isinstance(overrides, UnreadableAnnotations):
        raise HTTPException(422, overrides.detail)
    return overrides


def _reject_misspelt(kind: str) -> None:
    matches = [] if kind in _COMMON_KINDS else get_close_matches(kind, _COMMON_KINDS, n=1, cutoff=_MIN_SIMILARITY)
    if matches:
        raise HTTPException(422, f"kind: {kind} is not a usual kind of workload; did you mean {matches[0]}?")


def _to_text(value: str | float) -> str:
    if isinstance(value, int):
        # A conversion to float would lose digits.
        return str(value)
    return value if isinstance(value, str) else f"{value:g}" if float(f"{value:g}") == value else repr(value)


def _example() -> str:
    return msgspec.json.encode(_EXAMPLE).decode()


def _entry(namespace: str, workload: WorkloadRef, override: Overrides) -> OverrideEntry:
    return OverrideEntry(namespace, workload.kind, workload.name, format_settings(override))
