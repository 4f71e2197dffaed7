"""The coverage of the last node pass, for the API and the dashboard."""

from collections.abc import Set
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Query

from cruise.decisions.scan.coverage import Coverage, CoverageGroup, sum_coverage
from cruise.domain.resources import ResourceName
from cruise.errors import UnavailableError
from cruise.interfaces.coverage import CoverageRow, list_coverage_rows
from cruise.interfaces.http.controller import ResourceAmountsDocument, build_resource_amounts_document, get_last_pass
from cruise.interfaces.http.view import ApiView, NamespaceVisibility, VisibilityDependency, list_error_responses
from cruise.interfaces.text import CAMEL_CASE_CONFIG
from cruise.runtime.node_pass import NodePassResult


@dataclass(frozen=True, slots=True)
class KnownAmountsDocument:
    """Amounts; null where nothing is known."""

    __pydantic_config__ = CAMEL_CASE_CONFIG
    cpu_millicores: int | None
    memory_bytes: int | None


@dataclass(frozen=True, slots=True)
class CoverageGroupDocument:
    """Requests with what is reclaimable of them; that is not known of the part `unknown`.

    `pods` have at least one resource among them.
    """

    __pydantic_config__ = CAMEL_CASE_CONFIG
    pods: int
    requested: ResourceAmountsDocument
    reclaimable: KnownAmountsDocument
    unknown: ResourceAmountsDocument


@dataclass(frozen=True, slots=True)
class UnlockDocument:
    """What makes skipped requests sized; null for a setting or an annotation that is not there."""

    __pydantic_config__ = CAMEL_CASE_CONFIG
    kind: str
    setting: str | None
    value: str | None
    annotation: str | None
    description: str


@dataclass(frozen=True, slots=True)
class SkippedRequestsDocument:
    """The requests that are skipped for one reason; `reclaimable` is what would be without it."""

    __pydantic_config__ = CAMEL_CASE_CONFIG
    reason: str
    description: str
    unlock: UnlockDocument
    pods: int
    requested: ResourceAmountsDocument
    reclaimable: KnownAmountsDocument
    unknown: ResourceAmountsDocument


@dataclass(frozen=True, slots=True)
class CoverageDocument:
    """All requests of pods on nodes: each resource of each pod is sized, or skipped for one reason.

    The reason with the largest share of the requests is first.
    """

    __pydantic_config__ = CAMEL_CASE_CONFIG
    requested: ResourceAmountsDocument
    sized: CoverageGroupDocument
    skipped: list[SkippedRequestsDocument]


def create_coverage_routes(view: ApiView) -> APIRouter:
    """Return the route at /coverage."""
    routes = APIRouter(tags=["workloads"])

    @routes.get("/coverage", responses=list_error_responses(403, 422, 503))
    async def coverage(
        visibility: VisibilityDependency,
        namespace: Annotated[str, Query(max_length=63, description="Only this namespace.")] = "",
    ) -> CoverageDocument:
        """Return how much of the requests is sized, in namespaces whose pods the caller may get."""
        if namespace:
            await visibility.require_access(namespace)
        return _document(await read_coverage(get_last_pass(view), visibility, namespace))

    return routes


async def read_coverage(node_pass: NodePassResult, visibility: NamespaceVisibility, namespace: str = "") -> Coverage:
    """Return the coverage of one namespace, or of all that a caller may see. Raises UnavailableError."""
    by_namespace = node_pass.coverage
    if by_namespace is None:
        raise UnavailableError("the coverage of the last node pass is unknown; see the log of cruise")
    visible: Set[str] | None = {namespace} if namespace else await visibility.get_visible_namespaces(by_namespace)
    return sum_coverage(one for name, one in by_namespace.items() if visible is None or name in visible)


def _document(coverage: Coverage) -> CoverageDocument:
    _, *skipped = list_coverage_rows(coverage)
    return CoverageDocument(
        build_resource_amounts_document(coverage.requested),
        CoverageGroupDocument(*_group(coverage.sized)),
        [_skipped(row) for row in skipped],
    )


def _skipped(row: CoverageRow) -> SkippedRequestsDocument:
    unlock = row.unlock
    assert unlock is not None
    return SkippedRequestsDocument(
        row.label,
        row.description,
        UnlockDocument(
            unlock.kind.value,
            unlock.setting or None,
            unlock.value or None,
            unlock.annotation or None,
            unlock.description,
        ),
        *_group(row.group),
    )


def _group(group: CoverageGroup) -> tuple[int, ResourceAmountsDocument, KnownAmountsDocument, ResourceAmountsDocument]:
    cpu, memory = (group.reclaimable.get(one) if group.is_known(one) else None for one in ResourceName)
    return (
        group.pods,
        build_resource_amounts_document(group.requested),
        KnownAmountsDocument(cpu, memory),
        build_resource_amounts_document(group.unknown),
    )
