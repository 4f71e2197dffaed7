"""The API's routes for policy objects: a list of them, and those that users may write."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from http import HTTPStatus
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Depends, HTTPException, Query, Request, Response

from cruise.decisions.pod_policy.policy_objects import explain_other_owner, find_written_policy
from cruise.domain.annotations import CRUISE_RECORDS, PREFIX, Overrides, UnreadableAnnotations
from cruise.domain.cluster import ClusterSnapshot, WorkloadRef
from cruise.domain.overrides import format_settings, parse_overrides
from cruise.domain.rightsizing_policies import PolicySelector, RightsizingPolicy, get_policy_plural
from cruise.domain.scheduling import LabelSelector
from cruise.domain.users import PolicyAccess, UserActionKind
from cruise.domain.written_policies import PolicyOwnership, PolicyScope
from cruise.errors import DECODE_ERRORS, ConflictError, NotFoundError, RefusedError
from cruise.interfaces.export_files import render_manifest
from cruise.interfaces.http.request_guard import READ_ONLY_METHODS
from cruise.interfaces.http.user_actions import perform_user_action
from cruise.interfaces.http.view import (
    ApiView,
    CallerDependency,
    KindParameter,
    NamespaceParameter,
    NamespaceVisibility,
    OffsetParameter,
    PolicyObjectPort,
    VisibilityDependency,
    WorkloadNameParameter,
    list_error_responses,
    read_body,
)
from cruise.interfaces.text import CAMEL_CASE_CONFIG
from cruise.kube_json.objects.rightsizing_policies import add_written_policy_label, build_written_policy

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
WRITE_VERBS, DELETE_VERBS = ("create", "patch"), ("delete",)
_CHART_VALUE = "rbac.writePolicies"
_NO_SUCH_KIND = "the API server does not serve {}: install the definitions (chart value crds.install)"


@dataclass(frozen=True, slots=True)
class PolicyEntry:
    """A policy object; `selects` is its selector in words, and `problem` says why it cannot be used.

    `namespace` is empty for a ClusterRightsizingPolicy. `settings` are named as annotations, without their prefix.
    """

    namespace: str
    name: str
    selects: str
    settings: Mapping[str, str]
    problem: str = ""


@dataclass(frozen=True, slots=True)
class PolicyPage:
    """Some policy objects by namespace and name, starting at `offset`; `total` counts all."""

    total: int
    offset: int
    items: list[PolicyEntry]


@dataclass(frozen=True, slots=True)
class WrittenPolicyEntry:
    """A policy object of a form: its `policy` name, its `settings`, and its `manifest` in YAML for Git.

    That of a workload is a RightsizingPolicy. That of a namespace or of all of them is a ClusterRightsizingPolicy, and
    `kind` and `name` are empty.

    `notWritable` says why the caller cannot write it through cruise; then apply the manifest with kubectl or from Git.
    """

    __pydantic_config__ = CAMEL_CASE_CONFIG
    namespace: str
    kind: str
    name: str
    policy: str
    settings: Mapping[str, str]
    manifest: str
    not_writable: str = ""


def create_policy_routes(view: ApiView) -> APIRouter:
    """Return the routes under /policies."""
    routes = APIRouter(prefix="/policies", tags=["policies"])

    @routes.get("", responses=list_error_responses(422, 503))
    async def policies(
        visibility: VisibilityDependency,
        offset: OffsetParameter = 0,
        limit: Annotated[int, Query(ge=1, le=1000, description="The maximum number of items.")] = 200,
    ) -> PolicyPage:
        """List the policy objects of namespaces whose pods the caller may get; those of the cluster require all."""
        found = await list_visible_policies(await view.snapshot(), visibility)
        return PolicyPage(len(found), offset, [build_policy_entry(one) for one in found[offset : offset + limit]])

    _add_scope_routes(routes, view, "/{namespace}/{kind}/{name}", _read_workload_scope)
    _add_scope_routes(routes, view, "/namespaces/{namespace}", _read_namespace_scope)
    _add_scope_routes(routes, view, "/namespaces", _read_cluster_scope)
    return routes


def _read_workload_scope(
    namespace: NamespaceParameter, kind: KindParameter, name: WorkloadNameParameter
) -> PolicyScope:
    return PolicyScope(namespace, WorkloadRef(kind, name))


def _read_namespace_scope(namespace: NamespaceParameter) -> PolicyScope:
    return PolicyScope(namespace)


def _read_cluster_scope() -> PolicyScope:
    return PolicyScope()


def _add_scope_routes(routes: APIRouter, view: ApiView, path: str, read_scope: Callable[..., PolicyScope]) -> None:
    """Add the routes of the policy of one kind of scope."""
    ScopeDependency = Annotated[PolicyScope, Depends(read_scope)]

    @routes.get(path, responses=list_error_responses(403, 422, 503))
    async def policy(visibility: VisibilityDependency, scope: ScopeDependency) -> WrittenPolicyEntry:
        """Return the policy object of a workload, a namespace or the cluster, and whether the caller may write it."""
        await visibility.require_access(scope.namespace)
        found = find_written_policy((await view.snapshot()).rightsizing_policies, scope)
        overrides = found.overrides if found is not None and isinstance(found.overrides, Overrides) else Overrides()
        return _entry(scope, overrides, (await explain_policy_writability(view, visibility, scope)).reason)

    @routes.put(path, responses=list_error_responses(400, 401, 403, 409, 413, 422, 503), openapi_extra=_BODY)
    async def put_policy(
        caller: CallerDependency, visibility: VisibilityDependency, scope: ScopeDependency, request: Request
    ) -> WrittenPolicyEntry:
        """Write the policy object of a workload, a namespace or the cluster, if cruise and the caller may.

        It never changes objects of others.
        """
        if scope.workload is not None:
            _reject_misspelt(scope.workload.kind)
        overrides = read_policy_settings(await read_body(request))
        objects, before = await require_writable(view, visibility, scope, WRITE_VERBS)
        document = add_written_policy_label(build_written_policy(scope, overrides))

        async def change() -> None:
            with translate_refusals(scope):
                await objects.apply(*scope.key, document, before)

        subject = scope.namespace or None, scope.workload
        detail = msgspec.json.encode(format_settings(overrides)).decode()
        await perform_user_action(view, caller, UserActionKind.PUT_POLICY, change, *subject, detail)
        return _entry(scope, overrides)

    @routes.delete(path, responses=list_error_responses(401, 403, 409, 422, 503), status_code=204)
    async def delete_policy(
        caller: CallerDependency, visibility: VisibilityDependency, scope: ScopeDependency
    ) -> Response:
        """Delete the policy object of a workload, a namespace or the cluster, if cruise and the caller may."""
        objects, before = await require_writable(view, visibility, scope, DELETE_VERBS)
        if before is None:
            return Response(status_code=204)

        async def change() -> None:
            with translate_refusals(scope):
                await objects.delete(*scope.key, before)

        subject = scope.namespace or None, scope.workload
        await perform_user_action(view, caller, UserActionKind.DELETE_POLICY, change, *subject)
        return Response(status_code=204)


async def list_visible_policies(
    snapshot: ClusterSnapshot, visibility: NamespaceVisibility
) -> Sequence[RightsizingPolicy]:
    """Return the policies of the visible namespaces, and those of the cluster if all namespaces are visible."""
    found = snapshot.rightsizing_policies
    visible = await visibility.get_visible_namespaces(one.namespace for one in found if one.namespace)
    return [one for one in found if visible is None or one.namespace in visible]


def build_policy_entry(policy: RightsizingPolicy) -> PolicyEntry:
    """Return a policy object as the API and the dashboard list it."""
    selects, overrides = describe_selector(policy.selector), policy.overrides
    if isinstance(overrides, UnreadableAnnotations):
        return PolicyEntry(policy.namespace, policy.name, selects, {}, overrides.detail)
    return PolicyEntry(policy.namespace, policy.name, selects, format_settings(overrides))


def render_written_policy(scope: PolicyScope, overrides: Overrides) -> str:
    """Return the YAML of the policy of a scope; empty if nothing is stated."""
    return "" if overrides == Overrides() else render_manifest(build_written_policy(scope, overrides))


def read_policy_settings(body: bytes) -> Overrides:
    """Parse the settings of a policy. Raises HTTPException 422 with the setting and the fix."""
    try:
        settings = _SETTINGS.decode(body)
    except DECODE_ERRORS as error:
        raise HTTPException(422, f"the body is not a JSON object of settings, such as {_example()}: {error}") from error
    if not settings:
        raise HTTPException(422, f"the body has no settings; write e.g. {_example()}, or DELETE the policy")
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


def _entry(scope: PolicyScope, overrides: Overrides, not_writable: str = "") -> WrittenPolicyEntry:
    workload = scope.workload or WorkloadRef("", "")
    return WrittenPolicyEntry(
        scope.namespace,
        workload.kind,
        workload.name,
        scope.key[1],
        format_settings(overrides),
        render_written_policy(scope, overrides),
        not_writable,
    )


def describe_selector(selector: PolicySelector) -> str:
    """Return what a policy selects: `Deployment, StatefulSet; web-*; labels team in (a)`; `all` without a part."""
    parts = [", ".join(sorted(names)) for names in (selector.namespaces, selector.kinds, selector.names) if names]
    if selector.namespace_labels is not None:
        parts.append(f"namespaces with labels {_describe_labels(selector.namespace_labels)}")
    if selector.pod_labels is not None:
        parts.append(f"labels {_describe_labels(selector.pod_labels)}")
    return "; ".join(parts) or "all"


def _describe_labels(selector: LabelSelector) -> str:
    described = []
    for one in selector.requirements:
        values = f" ({', '.join(one.values)})" if one.values else ""
        described.append(f"{one.key} {one.operator.value}{values}")
    return ", ".join(described) or "any"


@dataclass(frozen=True, slots=True)
class PolicyWritability:
    """Whether a caller may write a policy object through cruise: the `reason` and HTTP `status` of a refusal."""

    reason: str = ""
    status: int = HTTPStatus.OK
    ownership: PolicyOwnership | None = None


async def explain_policy_writability(
    view: ApiView, visibility: NamespaceVisibility, scope: PolicyScope, verbs: tuple[str, ...] = WRITE_VERBS
) -> PolicyWritability:
    """Return whether the caller may write the policy of a scope through cruise. Raises UnavailableError.

    Cruise writes with its own account, so the caller needs the same right, and the object must be cruise's own.
    """
    objects = view.policy_objects
    if objects is None:
        return PolicyWritability("this cruise is not connected to an API server", HTTPStatus.CONFLICT)
    namespace, name = scope.key
    forbidden = await _explain_missing_right(visibility, namespace, verbs)
    if forbidden:
        return PolicyWritability(forbidden, HTTPStatus.FORBIDDEN)
    missing = await objects.list_missing_access(namespace, verbs)
    if missing:
        access = f"{missing[0]} {get_policy_plural(namespace)}"
        reason = f"cruise may not {access}: its role is an option (chart value {_CHART_VALUE})"
        return PolicyWritability(reason, HTTPStatus.FORBIDDEN)
    ownership = await objects.read_ownership(namespace, name)
    existing = find_written_policy((await view.snapshot()).rightsizing_policies, scope)
    owner = explain_other_owner(existing, ownership, scope)
    if owner:
        reason = f"{scope.title} is not changed, because {owner}: change it there"
        return PolicyWritability(reason, HTTPStatus.CONFLICT)
    return PolicyWritability(ownership=ownership)


async def _explain_missing_right(visibility: NamespaceVisibility, namespace: str, verbs: tuple[str, ...]) -> str:
    """Return the right that the caller lacks, empty if none; one who reads anonymously is checked when it writes."""
    if visibility.authority is None:
        return ""
    for access in [PolicyAccess(verb, namespace) for verb in verbs]:
        if not await visibility.authority.authorize(visibility.caller, access):
            return f"{visibility.caller.name} may not {access}: no role of the user allows it"
    return ""


async def require_writable(
    view: ApiView, visibility: NamespaceVisibility, scope: PolicyScope, verbs: tuple[str, ...]
) -> tuple[PolicyObjectPort, PolicyOwnership | None]:
    """Return what writes the policy, and its present owner. Raises HTTPException 403 and 409 with the reason."""
    if visibility.authority is None:
        raise HTTPException(403, READ_ONLY_METHODS)
    found = await explain_policy_writability(view, visibility, scope, verbs)
    if found.reason or view.policy_objects is None:
        raise HTTPException(found.status, found.reason)
    return view.policy_objects, found.ownership


@contextmanager
def translate_refusals(scope: PolicyScope) -> Iterator[None]:
    """Raise HTTPException with the API server's reason."""
    try:
        yield
    except ConflictError as error:
        raise HTTPException(409, f"the policy was changed at the same time: {error}") from error
    except NotFoundError as error:
        raise HTTPException(409, _NO_SUCH_KIND.format(scope.title.partition(" ")[0])) from error
    except RefusedError as error:
        status = HTTPStatus.FORBIDDEN if error.cause == "Forbidden" else HTTPStatus.UNPROCESSABLE_ENTITY
        raise HTTPException(status, str(error)) from error
