"""Stored overrides through the API: written as annotations are, and read by the very same parser."""

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, HTTPException, Query, Request, Response

from cruise.domain.annotations import PREFIX, RECORDS, Overrides, Unreadable
from cruise.domain.callers import Deed
from cruise.domain.cluster import WorkloadRef
from cruise.domain.overrides import parse_overrides, settings_of
from cruise.errors import UNDECODABLE
from cruise.interfaces.http.interventions import carried_out
from cruise.interfaces.http.requests import Kind, Name, Namespace, Offset, failures, read_body
from cruise.interfaces.http.sight import CallerOf, SightOf
from cruise.interfaces.http.view import ApiView, in_time

_MOST_SETTINGS = 500
_EXAMPLE = {"mode": "resize", "cpu-min": "100m", "memory-max.app": "2Gi"}
# Pods may have controllers of other kinds, but one that differs from these by a letter is a typing error.
_USUAL_KINDS = ("Deployment", "StatefulSet", "DaemonSet", "CronJob", "Job", "ReplicaSet", "ReplicationController")
_ALIKE = 0.85
_SETTINGS = msgspec.json.Decoder(dict[str, str | int | float])
_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "Settings by the names of their annotations, with or without cruise.io/ before them.",
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
    """What is stored for one workload; `settings` are named and written as the annotations, without their prefix."""

    namespace: str
    kind: str
    name: str
    settings: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class OverridePage:
    """Some of the stored overrides by namespace, kind and name, from `offset` on; `total` counts all."""

    total: int
    offset: int
    items: list[OverrideEntry]


def override_routes(view: ApiView) -> APIRouter:
    """Return the routes under /overrides."""
    routes = APIRouter(prefix="/overrides", tags=["overrides"])

    @routes.get("", responses=failures(422, 503))
    async def overrides(
        sight: SightOf,
        offset: Offset = 0,
        limit: Annotated[int, Query(ge=1, le=1000, description="How many at most.")] = 200,
    ) -> OverridePage:
        """List what is stored for namespaces whose pods the caller may get, by namespace, kind and name."""
        found = await in_time(view.store.overrides())
        seen = await sight.of(namespace for namespace, _ in found)
        stored = sorted(item for item in found.items() if seen is None or item[0][0] in seen)
        items = [_entry(namespace, workload, one) for (namespace, workload), one in stored[offset : offset + limit]]
        return OverridePage(len(stored), offset, items)

    @routes.get("/{namespace}/{kind}/{name}", responses=failures(404, 422, 503))
    async def override(sight: SightOf, namespace: Namespace, kind: Kind, name: Name) -> OverrideEntry:
        """Return what is stored for one workload."""
        await sight.require(namespace)
        workload = WorkloadRef(kind, name)
        stored = (await in_time(view.store.overrides())).get((namespace, workload))
        if stored is None:
            raise HTTPException(404, f"nothing is stored for {workload} in {namespace}")
        return _entry(namespace, workload, stored)

    @routes.put(
        "/{namespace}/{kind}/{name}",
        responses=failures(400, 401, 403, 413, 422, 503),
        openapi_extra=_BODY,
    )
    async def put_override(
        caller: CallerOf, namespace: Namespace, kind: Kind, name: Name, request: Request
    ) -> OverrideEntry:
        """Store settings for one workload, in place of those that were stored; annotations still win over them."""
        _refuse_misspelt(kind)
        workload = WorkloadRef(kind, name)
        found = read_settings(await read_body(request))
        detail = msgspec.json.encode(settings_of(found)).decode()
        await carried_out(
            view,
            caller,
            Deed.PUT_OVERRIDE,
            lambda: in_time(view.store.put_override(namespace, workload, found)),
            namespace,
            workload,
            detail,
        )
        return _entry(namespace, workload, found)

    @routes.delete(
        "/{namespace}/{kind}/{name}",
        responses=failures(401, 403, 422, 503),
        status_code=204,
    )
    async def delete_override(caller: CallerOf, namespace: Namespace, kind: Kind, name: Name) -> Response:
        """Remove what is stored for one workload; nothing stored is no error."""
        workload = WorkloadRef(kind, name)
        await carried_out(
            view,
            caller,
            Deed.DELETE_OVERRIDE,
            lambda: in_time(view.store.put_override(namespace, workload, None)),
            namespace,
            workload,
        )
        return Response(status_code=204)

    return routes


def read_settings(body: bytes) -> Overrides:
    """Read an override. Raises HTTPException 422 with the setting and the fix."""
    try:
        settings = _SETTINGS.decode(body)
    except UNDECODABLE as error:
        raise HTTPException(422, f"the body is no JSON object of settings, such as {_example()}: {error}") from error
    if not settings:
        raise HTTPException(422, f"the body has no settings; write e.g. {_example()}, or DELETE what is stored")
    if len(settings) > _MOST_SETTINGS:
        raise HTTPException(422, f"{len(settings)} settings are more than {_MOST_SETTINGS}")
    annotations = {key if key.startswith(PREFIX) else f"{PREFIX}{key}": text for key, text in settings.items()}
    if len(annotations) < len(settings):
        raise HTTPException(422, f"a setting is there twice, with {PREFIX} and without")
    for record in sorted(RECORDS & annotations.keys()):
        raise HTTPException(422, f"{record} is a record of cruise's own and no setting")
    if any("\0" in key for key in annotations):
        raise HTTPException(422, "the name of a setting holds a NUL")
    found = parse_overrides({key: _text(value) for key, value in annotations.items()})
    if isinstance(found, Unreadable):
        raise HTTPException(422, found.detail)
    return found


def _refuse_misspelt(kind: str) -> None:
    alike = [] if kind in _USUAL_KINDS else get_close_matches(kind, _USUAL_KINDS, n=1, cutoff=_ALIKE)
    if alike:
        raise HTTPException(422, f"kind: there are hardly workloads of kind {kind}; did you mean {alike[0]}?")


def _text(value: str | float) -> str:
    if isinstance(value, int):
        # A float has not so many digits.
        return str(value)
    return value if isinstance(value, str) else f"{value:g}" if float(f"{value:g}") == value else repr(value)


def _example() -> str:
    return msgspec.json.encode(_EXAMPLE).decode()


def _entry(namespace: str, workload: WorkloadRef, override: Overrides) -> OverrideEntry:
    return OverrideEntry(namespace, workload.kind, workload.name, settings_of(override))
