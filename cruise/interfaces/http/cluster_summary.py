"""The last node pass summed up by workload, for the API and the dashboard."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Query

from cruise.decisions.pod_policy.eligibility import Eligibility
from cruise.decisions.prices import estimate_prices
from cruise.decisions.revert import OriginalSizesByUid
from cruise.decisions.scan.policy_status import PolicyProblems, find_policy_problems
from cruise.decisions.scan.risks import ContainerRisk, rank_risks
from cruise.decisions.scan.waste import (
    ClusterRequestTotals,
    RealizedSavings,
    WorkloadRequests,
    estimate_waste,
    list_pod_requests,
    sum_realized_savings,
)
from cruise.domain.annotations import EffectivePolicy
from cruise.domain.cluster import Pod
from cruise.domain.overrides import PausedWorkloads
from cruise.domain.policy import Mode, Policy
from cruise.domain.prices import ResourcePrices
from cruise.domain.resources import Resources
from cruise.domain.usage import StatisticsTable
from cruise.errors import CruiseError, UnavailableError, pause_garbage_collection
from cruise.interfaces.http.controller import ResourceAmountsDocument, build_resource_amounts_document, get_last_pass
from cruise.interfaces.http.view import (
    ApiView,
    NamespaceVisibility,
    OffsetParameter,
    VisibilityDependency,
    list_error_responses,
    wait_for_store,
)
from cruise.interfaces.reasons import describe_reason
from cruise.interfaces.text import CAMEL_CASE_CONFIG
from cruise.runtime.node_pass import NodePassResult
from cruise.runtime.revert import get_original_sizes_by_uid, read_stored_original_sizes

UNREADABLE_MODE = "unreadable"
# Clusters of at most this size are summed up while the caller waits.
_SMALL_CLUSTER_PODS = 5000
_MAX_SUMMARY_AGE = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class WorkloadSummary:
    """One workload: its sums, the mode of a pod (`unreadable` if an annotation is), its risks, worst first."""

    waste: WorkloadRequests
    mode: str
    risks: tuple[ContainerRisk, ...]

    @property
    def workload_key(self) -> tuple[str, str]:
        """Its namespace and its name, as `Kind/name`."""
        return (self.waste.namespace, self.waste.workload)


@dataclass(frozen=True, slots=True)
class ClusterSummary:
    """One node pass; `modes` counts pods on nodes by mode, `workloads` has the largest share of the cluster first.

    `policy_problems` are of its policy objects. `prices` are None if settings state none.
    """

    node_pass: NodePassResult
    totals: ClusterRequestTotals
    savings_by_namespace: Mapping[str, RealizedSavings]
    risks: tuple[ContainerRisk, ...]
    workloads: tuple[WorkloadSummary, ...]
    modes: Mapping[str, int]
    policy_problems: PolicyProblems
    prices: ResourcePrices | None

    @property
    def savings(self) -> RealizedSavings:
        """What is saved in the whole cluster."""
        return sum(self.savings_by_namespace.values(), RealizedSavings())


class ClusterSummaryCache:
    """Keeps the newest summary; a large cluster takes seconds, so callers may get an earlier one meanwhile."""

    def __init__(self, view: ApiView) -> None:
        self._view = view
        self._newest: ClusterSummary | None = None
        self._lock = asyncio.Lock()

    async def get_newest(self) -> ClusterSummary:
        """Return the summary of the last node pass. Raises UnavailableError."""
        async with self._lock:
            node_pass = get_last_pass(self._view)
            if self._newest is None or self._newest.node_pass is not node_pass:
                self._newest = await self._build(node_pass)
            return self._newest

    async def get_available(self) -> ClusterSummary:
        """Return a summary immediately; for a large cluster, one of the last hour. Raises UnavailableError.

        A large cluster has no summary until `refresh` has run.
        """
        node_pass = get_last_pass(self._view)
        newest = self._newest
        if len(node_pass.snapshot.pods) <= _SMALL_CLUSTER_PODS:
            return await self.get_newest()
        if newest is None or node_pass.at - newest.node_pass.at > _MAX_SUMMARY_AGE:
            raise UnavailableError("the summary of the last node pass is being computed, which takes some seconds")
        return newest

    async def refresh(self) -> None:
        """Compute the summary of the last node pass unless another task does; errors are ignored."""
        if not self._lock.locked():
            with suppress(CruiseError):
                await self.get_newest()

    async def _build(self, node_pass: NodePassResult) -> ClusterSummary:
        view = self._view
        statistics = await wait_for_store(view.statistics())
        paused_workloads = await wait_for_store(view.store.read_paused_workloads())
        recorded, keys = await wait_for_store(read_stored_original_sizes(view.store, node_pass.snapshot))

        def build() -> ClusterSummary:
            with pause_garbage_collection():
                originals = get_original_sizes_by_uid(node_pass.snapshot, recorded, keys)
                prices = estimate_prices(node_pass.snapshot.nodes, view.prices)
                return summarize_cluster(node_pass, statistics, paused_workloads, view.policy, originals, prices)

        return await asyncio.to_thread(build)


def summarize_cluster(
    node_pass: NodePassResult,
    statistics: StatisticsTable,
    paused_workloads: PausedWorkloads,
    policy: Policy,
    originals: Mapping[str, OriginalSizesByUid],
    prices: ResourcePrices | None = None,
) -> ClusterSummary:
    """Sum up a node pass; `originals` are the original sizes by pod uid."""
    snapshot = node_pass.snapshot
    pods = list_pod_requests(snapshot, node_pass.plans)
    rows, totals = estimate_waste(snapshot, statistics, node_pass.plans, pods)
    risks = rank_risks(snapshot, statistics, node_pass.plans, policy, node_pass.at)
    risks_by_workload: dict[tuple[str, str], list[ContainerRisk]] = {}
    for risk in risks:
        risks_by_workload.setdefault((risk.namespace, risk.workload), []).append(risk)
    eligibility = Eligibility(snapshot, statistics, paused_workloads, policy, node_pass.at, node_pass.policy_index)
    modes: dict[tuple[str, str], str] = {}
    pods_by_mode: Counter[str] = Counter()
    finished: dict[tuple[str, str], str] = {}
    for pod in snapshot.pods:
        key = (pod.namespace, pod.workload_name)
        if pod.node is None or (pod.is_finished and key not in risks_by_workload):
            continue
        mode = get_pod_mode_label(eligibility, pod)
        if pod.is_finished:
            finished[key] = mode
            continue
        modes[key] = mode
        pods_by_mode[mode] += 1
    # A CronJob between two runs has no sums, but its last run may have been OOM killed.
    rows += tuple(WorkloadRequests.without_pods(*key) for key in finished.keys() - modes.keys())
    modes = finished | modes
    workloads = [
        WorkloadSummary(
            row, modes[row.namespace, row.workload], tuple(risks_by_workload.get((row.namespace, row.workload), ()))
        )
        for row in rows
    ]
    savings = sum_realized_savings(snapshot, originals)
    problems = find_policy_problems(snapshot, node_pass.policy_index)
    return ClusterSummary(node_pass, totals, savings, risks, tuple(workloads), dict(pods_by_mode), problems, prices)


def get_pod_mode_label(eligibility: Eligibility, pod: Pod) -> str:
    """Return the name of a pod's effective mode."""
    if eligibility.explain_skipped_namespace(pod.namespace) is not None:
        return Mode.OFF.label
    effective = eligibility.get_effective_policy(pod)
    return effective.mode.label if isinstance(effective, EffectivePolicy) else UNREADABLE_MODE


@dataclass(frozen=True, slots=True)
class WorkloadQuery:
    """A filter, an order and a page of the workloads."""

    text: str = ""
    namespace: str = ""
    mode: str = ""
    at_risk: bool = False
    sort: str = "share"
    descending: bool = True
    offset: int = 0
    limit: int = 50


@dataclass(frozen=True, slots=True)
class WorkloadQueryResult:
    """One page of the matching workloads; `total` counts all of them, `namespaces` are those of all workloads."""

    workloads: Sequence[WorkloadSummary]
    total: int
    namespaces: Sequence[str]


_Key = Callable[[WorkloadSummary], object]
WORKLOAD_SORT_KEYS: Mapping[str, _Key] = {
    "name": lambda line: line.workload_key,
    "pods": lambda line: line.waste.pods,
    "cpu": lambda line: line.waste.requested.cpu_millicores,
    "cpu-used": lambda line: line.waste.used.cpu_millicores,
    "cpu-reclaimable": lambda line: line.waste.reclaimable.cpu_millicores,
    "memory": lambda line: line.waste.requested.memory_bytes,
    "memory-used": lambda line: line.waste.used.memory_bytes,
    "memory-reclaimable": lambda line: line.waste.reclaimable.memory_bytes,
    "risk": lambda line: len(line.risks),
    "share": lambda line: line.waste.share,
}
"""The keys that workloads can be sorted by."""


async def find_workloads(
    summary: ClusterSummary, query: WorkloadQuery, visibility: NamespaceVisibility
) -> WorkloadQueryResult:
    """Return one page of the matching workloads that a caller may see."""
    namespaces = sorted({one.waste.namespace for one in summary.workloads})
    visible = await visibility.get_visible_namespaces(namespaces)
    shown = [name for name in namespaces if visible is None or name in visible]
    workloads = [
        one for one in summary.workloads if (visible is None or one.waste.namespace in visible) and _matches(one, query)
    ]
    # The sort is stable: workloads with equal keys keep their order, the largest share of the cluster first.
    workloads.sort(key=WORKLOAD_SORT_KEYS.get(query.sort, WORKLOAD_SORT_KEYS["share"]), reverse=query.descending)  # type: ignore[arg-type]
    return WorkloadQueryResult(workloads[query.offset : query.offset + query.limit], len(workloads), shown)


def _matches(workload: WorkloadSummary, query: WorkloadQuery) -> bool:
    namespace, name = workload.workload_key
    if query.at_risk and not workload.risks:
        return False
    if query.namespace and namespace != query.namespace:
        return False
    if query.mode and workload.mode != query.mode:
        return False
    return all(word in f"{namespace}/{name}".lower() for word in query.text.lower().split())


@dataclass(frozen=True, slots=True)
class WorkloadDocument:
    """The sums of one workload's pods, with requests as kube-scheduler counts them.

    `planned` is what the pods request after the node pass, `reclaimable` is requested − target, `used` is the sum of
    bases. `skipReason` is the most frequent reason of the `skipped` pods.
    """

    __pydantic_config__ = CAMEL_CASE_CONFIG
    namespace: str
    workload: str
    mode: str
    pods: int
    requested: ResourceAmountsDocument
    target: ResourceAmountsDocument
    planned: ResourceAmountsDocument
    reclaimable: ResourceAmountsDocument
    used: ResourceAmountsDocument
    risks: list[str]
    skipped: int
    skip_reason: str | None


@dataclass(frozen=True, slots=True)
class WorkloadPage:
    """Some workloads of the last node pass, starting at `offset`; `total` counts all that match."""

    __pydantic_config__ = CAMEL_CASE_CONFIG
    total: int
    offset: int
    items: list[WorkloadDocument]


@dataclass(frozen=True, slots=True)
class PricesDocument:
    """The average prices of an hour of the nodes' CPU and memory, and the setting `currency`."""

    __pydantic_config__ = CAMEL_CASE_CONFIG
    cpu_core_hour: float
    memory_gib_hour: float
    currency: str


@dataclass(frozen=True, slots=True)
class ClusterSummaryDocument:
    """Sums over the pods on nodes in the last node pass.

    `planned` is what they request after the pass, `reclaimable` is requested − target, net of workloads that should
    request more, and `saved` compares `savedPods` with their requests before cruise. The monthly costs are those of
    these two amounts at `prices`, null without prices in the settings. `modes` and `risks` count pods by mode and
    risks by kind.
    """

    __pydantic_config__ = CAMEL_CASE_CONFIG
    allocatable: ResourceAmountsDocument
    requested: ResourceAmountsDocument
    target: ResourceAmountsDocument
    planned: ResourceAmountsDocument
    reclaimable: ResourceAmountsDocument
    used: ResourceAmountsDocument
    saved: ResourceAmountsDocument
    saved_pods: int
    prices: PricesDocument | None
    saved_monthly_cost: float | None
    reclaimable_monthly_cost: float | None
    modes: dict[str, int]
    risks: dict[str, int]


def create_summary_routes(summaries: ClusterSummaryCache) -> APIRouter:
    """Return the routes at /summary and /workloads."""
    routes = APIRouter(tags=["workloads"])

    @routes.get("/summary", responses=list_error_responses(503))
    async def summary() -> ClusterSummaryDocument:
        """Return the sums of the cluster in the last node pass."""
        newest = await summaries.get_newest()
        totals, prices = newest.totals, newest.prices
        return ClusterSummaryDocument(
            allocatable=build_resource_amounts_document(totals.allocatable),
            requested=build_resource_amounts_document(totals.requested),
            target=build_resource_amounts_document(totals.target),
            planned=build_resource_amounts_document(totals.planned),
            reclaimable=build_resource_amounts_document(totals.reclaimable),
            used=build_resource_amounts_document(totals.used),
            saved=build_resource_amounts_document(newest.savings.saved),
            saved_pods=newest.savings.pods,
            prices=None
            if prices is None
            else PricesDocument(prices.cpu_core_hour, prices.memory_gib_hour, prices.currency),
            saved_monthly_cost=compute_rounded_monthly_cost(prices, newest.savings.saved),
            reclaimable_monthly_cost=compute_rounded_monthly_cost(prices, totals.reclaimable),
            modes=dict(sorted(newest.modes.items())),
            risks=dict(Counter(risk.kind.value for risk in newest.risks)),
        )

    @routes.get("/workloads", responses=list_error_responses(422, 503))
    async def workloads(
        visibility: VisibilityDependency,
        text: Annotated[str, Query(max_length=200, description="Words in the namespace or name.")] = "",
        namespace: Annotated[str, Query(max_length=63, description="Only this namespace.")] = "",
        mode: Annotated[str, Query(max_length=20, description="Only workloads in this mode.")] = "",
        risk: Annotated[bool, Query(description="Only workloads at risk.")] = False,
        sort: Annotated[
            str,
            Query(
                pattern=f"^({'|'.join(WORKLOAD_SORT_KEYS)})$",
                description=f"The sort key: {', '.join(WORKLOAD_SORT_KEYS)}.",
            ),
        ] = "share",
        ascending: Annotated[bool, Query(description="The smallest first.")] = False,
        offset: OffsetParameter = 0,
        limit: Annotated[int, Query(ge=1, le=500, description="The maximum number of items.")] = 50,
    ) -> WorkloadPage:
        """List the workloads of the last node pass in namespaces whose pods the caller may get."""
        query = WorkloadQuery(text, namespace, mode, risk, sort, not ascending, offset, limit)
        found = await find_workloads(await summaries.get_newest(), query, visibility)
        return WorkloadPage(found.total, offset, [_document(one) for one in found.workloads])

    return routes


def compute_rounded_monthly_cost(prices: ResourcePrices | None, amount: Resources) -> float | None:
    """Return the price of an amount for a month, None without prices."""
    return None if prices is None else round(prices.compute_monthly_cost(amount), 2)


def _document(summary: WorkloadSummary) -> WorkloadDocument:
    totals = summary.waste
    return WorkloadDocument(
        namespace=totals.namespace,
        workload=totals.workload,
        mode=summary.mode,
        pods=totals.pods,
        requested=build_resource_amounts_document(totals.requested),
        target=build_resource_amounts_document(totals.target),
        planned=build_resource_amounts_document(totals.planned),
        reclaimable=build_resource_amounts_document(totals.reclaimable),
        used=build_resource_amounts_document(totals.used),
        risks=list(dict.fromkeys(risk.kind.value for risk in summary.risks)),
        skipped=totals.skipped_pods,
        skip_reason=describe_reason(totals.skip_reason) if totals.skip_reason is not None else None,
    )
