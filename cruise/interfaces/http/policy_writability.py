"""Whether a caller may write a policy object through cruise, and the refusals of the API server."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus

from fastapi import HTTPException

from cruise.decisions.pod_policy.policy_objects import explain_other_owner, find_written_policy
from cruise.domain.rightsizing_policies import get_policy_plural
from cruise.domain.users import PolicyAccess
from cruise.domain.written_policies import PolicyOwnership, PolicyScope
from cruise.errors import ConflictError, NotFoundError, RefusedError
from cruise.interfaces.http.request_guard import READ_ONLY_METHODS
from cruise.interfaces.http.view import ApiView, NamespaceVisibility, PolicyObjectPort

WRITE_VERBS, DELETE_VERBS = ("create", "patch"), ("delete",)
_CHART_VALUE = "rbac.writePolicies"
_NO_SUCH_KIND = "the API server does not serve {}: install the definitions (chart value crds.install)"


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
