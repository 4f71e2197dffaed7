"""Which namespaces a caller may see: those whose pods it may get."""

import asyncio
from collections.abc import Iterable, Set
from dataclasses import dataclass
from typing import Annotated, Any, Protocol

from fastapi import Depends, HTTPException, Request

from cruise.domain.users import Access, Caller, PodAccess

_ALL_NAMESPACES = PodAccess("")
# The limit leaves capacity for other callers' access reviews.
_CONCURRENT_REVIEWS = 8


class NamespaceAuthority(Protocol):
    """Decides what a caller may do."""

    async def authorize(self, caller: Caller, access: Access) -> bool:
        """Tell whether a caller has an access right. Raises ThrottledError, UnavailableError."""
        ...


@dataclass(frozen=True, slots=True)
class NamespaceVisibility:
    """The namespaces that one caller may see; all of them without an authority."""

    caller: Caller
    authority: NamespaceAuthority | None

    async def sees_all(self) -> bool:
        """Tell whether the caller may see all namespaces."""
        return self.authority is None or await self.authority.authorize(self.caller, _ALL_NAMESPACES)

    async def get_visible_namespaces(self, namespaces: Iterable[str]) -> Set[str] | None:
        """Return those of the namespaces that the caller may see, None if it may see all."""
        authority = self.authority
        if authority is None or await self.sees_all():
            return None
        names, visible = sorted(set(namespaces)), set[str]()
        for first in range(0, len(names), _CONCURRENT_REVIEWS):
            batch = names[first : first + _CONCURRENT_REVIEWS]
            allowed = await asyncio.gather(*(authority.authorize(self.caller, PodAccess(name)) for name in batch))
            visible.update(name for name, is_allowed in zip(batch, allowed, strict=True) if is_allowed)
        return visible

    async def require_access(self, namespace: str) -> None:
        """Raise HTTPException 403 if the caller may not see a namespace; empty means all namespaces."""
        if not await self.sees_all() and (
            not namespace or await self.get_visible_namespaces([namespace]) != {namespace}
        ):
            raise HTTPException(
                403, f"{self.caller.name} may not {PodAccess(namespace)}: no role of the user allows it"
            )


def get_visibility(request: Request) -> NamespaceVisibility:
    """Return the visibility that the request guard added to a request."""
    visibility = request.state.visibility
    assert isinstance(visibility, NamespaceVisibility)
    return visibility


def get_caller(request: Request) -> Caller:
    """Return the caller that the request guard added to a request."""
    caller = request.state.caller
    assert isinstance(caller, Caller)
    return caller


VisibilityDependency = Annotated[NamespaceVisibility, Depends(get_visibility)]
CallerDependency = Annotated[Caller, Depends(get_caller)]


def find_namespaces(document: object) -> set[str]:
    """Return the values of all `namespace` keys in a JSON document."""
    if isinstance(document, dict):
        own = {document["namespace"]} if isinstance(document.get("namespace"), str) else set()
        return own.union(*(find_namespaces(value) for value in document.values()))
    if isinstance(document, list):
        return set().union(*(find_namespaces(value) for value in document))
    return set()


def filter_by_namespace(document: Any, visible: Set[str]) -> Any:  # noqa: ANN401 - JSON in, JSON out
    """Return a JSON document without objects of other namespaces: removed from lists, null elsewhere."""
    if isinstance(document, list):
        return [filter_by_namespace(value, visible) for value in document if not _is_hidden(value, visible)]
    if isinstance(document, dict):
        return {
            key: None if _is_hidden(value, visible) else filter_by_namespace(value, visible)
            for key, value in document.items()
        }
    return document


def _is_hidden(value: object, visible: Set[str]) -> bool:
    return isinstance(value, dict) and isinstance(value.get("namespace"), str) and value["namespace"] not in visible
