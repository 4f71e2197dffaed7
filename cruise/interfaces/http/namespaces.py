"""The namespaces of the last node pass, summed up for the API and the dashboard."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fastapi import APIRouter

from cruise.decisions.scan.coverage import Coverage
from cruise.decisions.scan.waste import RealizedSavings
from cruise.domain.resources import NO_RESOURCES, Resources
from cruise.interfaces.http.cluster_summary import (
    ClusterSummary,
    ClusterSummaryCache,
    WorkloadSummary,
    compute_rounded_monthly_cost,
)
from cruise.interfaces.http.controller import ResourceAmountsDocument, build_resource_amounts_document
from cruise.interfaces.http.view import NamespaceVisibility, VisibilityDependency, list_error_responses
from cruise.interfaces.text import CAMEL_CASE_CONFIG


@dataclass(frozen=True, slots=True)
class NamespaceSummary:
    """One namespace: its workloads, the largest reclaimable share first, and their sums.

    `modes` counts the pods of its workloads by mode. `coverage` is empty if it is unknown.
    """

    name: str
    workloads: Sequence[WorkloadSummary]
    requested: Resources
    target: Resources
    savings: RealizedSavings
    coverage: Coverage

    @property
    def reclaimable(self) -> Resources:
        """What is requested beyond the targets, minus what some workloads need more."""
        return self.requested - self.target

    @property
    def pods(self) -> int:
        """The pods on nodes."""
        return sum(one.waste.pods for one in self.workloads)

    @property
    def modes(self) -> Mapping[str, int]:
        """The pods by the mode of their workload, the most frequent mode first."""
        counts = Counter[str]()
        for one in self.workloads:
            counts[one.mode] += one.waste.pods
        return dict(counts.most_common())


async def list_namespaces(summary: ClusterSummary, visibility: NamespaceVisibility) -> Sequence[NamespaceSummary]:
    """Return the namespaces whose pods the caller may get, by name."""
    names = {one.waste.namespace for one in summary.workloads}
    visible = await visibility.get_visible_namespaces(names)
    by_name: dict[str, list[WorkloadSummary]] = {name: [] for name in sorted(names if visible is None else visible)}
    for one in summary.workloads:
        if one.waste.namespace in by_name:
            by_name[one.waste.namespace].append(one)
    coverage = summary.node_pass.coverage or {}
    return [
        NamespaceSummary(
            name,
            workloads,
            sum((one.waste.requested for one in workloads), NO_RESOURCES),
            sum((one.waste.target for one in workloads), NO_RESOURCES),
            summary.savings_by_namespace.get(name, RealizedSavings()),
            coverage.get(name, Coverage()),
        )
        for name, workloads in by_name.items()
    ]


@dataclass(frozen=True, slots=True)
class NamespaceDocument:
    """The sums over the pods of a namespace on nodes.

    `reclaimable` is requested − target, `saved` compares `savedPods` with their requests before cruise, `sized` are the
    requests that cruise sizes. The monthly costs are null without prices in the settings. `modes` counts pods by mode.
    """

    __pydantic_config__ = CAMEL_CASE_CONFIG
    namespace: str
    workloads: int
    pods: int
    modes: dict[str, int]
    requested: ResourceAmountsDocument
    sized: ResourceAmountsDocument
    target: ResourceAmountsDocument
    reclaimable: ResourceAmountsDocument
    saved: ResourceAmountsDocument
    saved_pods: int
    saved_monthly_cost: float | None
    reclaimable_monthly_cost: float | None


@dataclass(frozen=True, slots=True)
class NamespaceList:
    """The namespaces by name."""

    items: list[NamespaceDocument]


def create_namespace_routes(summaries: ClusterSummaryCache) -> APIRouter:
    """Return the route at /namespaces."""
    routes = APIRouter(tags=["workloads"])

    @routes.get("/namespaces", responses=list_error_responses(503))
    async def namespaces(visibility: VisibilityDependency) -> NamespaceList:
        """List the namespaces of the last node pass whose pods the caller may get."""
        summary = await summaries.get_newest()
        found = await list_namespaces(summary, visibility)
        return NamespaceList([_document(one, summary) for one in found])

    return routes


def _document(one: NamespaceSummary, summary: ClusterSummary) -> NamespaceDocument:
    return NamespaceDocument(
        namespace=one.name,
        workloads=len(one.workloads),
        pods=one.pods,
        modes=dict(one.modes),
        requested=build_resource_amounts_document(one.requested),
        sized=build_resource_amounts_document(one.coverage.sized.requested),
        target=build_resource_amounts_document(one.target),
        reclaimable=build_resource_amounts_document(one.reclaimable),
        saved=build_resource_amounts_document(one.savings.saved),
        saved_pods=one.savings.pods,
        saved_monthly_cost=compute_rounded_monthly_cost(summary.prices, one.savings.saved),
        reclaimable_monthly_cost=compute_rounded_monthly_cost(summary.prices, one.reclaimable),
    )
