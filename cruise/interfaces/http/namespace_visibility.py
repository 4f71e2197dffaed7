"""What a caller may read about: the pods of the namespaces whose pods it may get."""

import asyncio
from collections.abc import Iterable, Set
from dataclasses import dataclass
from typing import Annotated, Any, Protocol

from fastapi import Depends, HTTPException, Request

from cruise.domain.users import Access, Caller, PodAccess

_EVERYWHERE = PodAccess("")
# One caller's questions leave room for those of others.
_AT_ONCE = 8


class NamespaceAuthority(Protocol):
    """Who says what a caller may do."""

    async def authorize(self, caller: Caller, access: Access) -> bool:
        """Tell whether a caller may do something. Raises Throttled, Unavailable."""
        ...


@dataclass(frozen=True, slots=True)
class NamespaceVisibility:
    """One caller's sight; without a judge it is everything."""

    caller: Caller
    authority: NamespaceAuthority | None

    async def sees_all(self) -> bool:
        """Tell whether it is everything."""
        return self.authority is None or await self.authority.authorize(self.caller, _EVERYWHERE)

    async def get_visible_namespaces(self, namespaces: Iterable[str]) -> Set[str] | None:
        """Return those of some namespaces that are seen; None for everything."""
        judge = self.authority
        if judge is None or await self.sees_all():
            return None
        named, found = sorted(set(namespaces)), set[str]()
        for first in range(0, len(named), _AT_ONCE):
            some = named[first : first + _AT_ONCE]
            seen = await asyncio.gather(*(judge.authorize(self.caller, PodAccess(one)) for one in some))
            found.update(one for one, is_seen in zip(some, seen, strict=True) if is_seen)
        return found

    async def require_access(self, namespace: str) -> None:
        """Raise HTTPException 403 for a namespace that is not seen; an empty one stands for all."""
        if not await self.sees_all() and (
            not namespace or await self.get_visible_namespaces([namespace]) != {namespace}
        ):
            raise HTTPException(403, f"{self.caller.name} may not {PodAccess(namespace)}: no role of theirs allows it")


def get_visibility(request: Request) -> NamespaceVisibility:
    """Return the sight that the gate left with a request."""
    sight = request.state.sight
    assert isinstance(sight, NamespaceVisibility)
    return sight


def get_caller(request: Request) -> Caller:
    """Return the caller that the gate left with a request."""
    caller = request.state.caller
    assert isinstance(caller, Caller)
    return caller


VisibilityDependency = Annotated[NamespaceVisibility, Depends(get_visibility)]
CallerDependency = Annotated[Caller, Depends(get_caller)]


def find_namespaces(document: object) -> set[str]:
    """Return the namespaces that parts of a JSON document are about."""
    if isinstance(document, dict):
        own = {document["namespace"]} if isinstance(document.get("namespace"), str) else set()
        return own.union(*(find_namespaces(value) for value in document.values()))
    if isinstance(document, list):
        return set().union(*(find_namespaces(value) for value in document))
    return set()


def filter_by_namespace(document: Any, seen: Set[str]) -> Any:  # noqa: ANN401 - JSON in, JSON out
    """Return a JSON document without the parts that are about other namespaces: gone from lists, else null."""
    if isinstance(document, list):
        return [filter_by_namespace(value, seen) for value in document if not _hidden(value, seen)]
    if isinstance(document, dict):
        return {
            key: None if _hidden(value, seen) else filter_by_namespace(value, seen) for key, value in document.items()
        }
    return document


def _hidden(value: object, seen: Set[str]) -> bool:
    return isinstance(value, dict) and isinstance(value.get("namespace"), str) and value["namespace"] not in seen
