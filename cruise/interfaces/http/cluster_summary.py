"""The cluster through the API, workload by workload: what the last node pass found, added up once for all readers."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Query

from cruise.decisions.pod_policy.eligibility import Eligibility
from cruise.decisions.revert import OriginalSizesByUid
from cruise.decisions.scan.risks import ContainerRisk, rank_risks
from cruise.decisions.scan.waste import (
    ClusterRequestTotals,
    RequestSavings,
    WorkloadRequests,
    estimate_waste,
    sum_savings,
)
from cruise.domain.annotations import EffectivePolicy
from cruise.domain.cluster import Pod
from cruise.domain.overrides import StoredOverrides
from cruise.domain.policy import Mode, Policy
from cruise.domain.resources import Resources
from cruise.domain.usage import StatisticsTable
from cruise.errors import CruiseError, UnavailableError, pause_garbage_collection
from cruise.interfaces.http.controller import SizeDocument as SizesDocument
from cruise.interfaces.http.controller import get_last_pass
from cruise.interfaces.http.namespace_visibility import NamespaceVisibility, VisibilityDependency
from cruise.interfaces.http.view import (
    CAMEL_CASE_CONFIG,
    ApiView,
    OffsetParameter,
    list_error_responses,
    wait_for_store,
)
from cruise.interfaces.reasons import describe_reason
from cruise.runtime.node_pass import NodePassResult
from cruise.runtime.revert import collect_original_sizes

UNREADABLE_MODE = "unreadable"
# So many pods are added up while a reader waits.
_FEW_PODS = 5000
_OLD = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class WorkloadSummary:
    """One workload: its sums, the mode that holds for it (`unreadable` where an annotation is), its risks, worst first.

    `mode` is that of one of its pods.
    """

    waste: WorkloadRequests
    mode: str
    risks: tuple[ContainerRisk, ...]

    @property
    def workload_key(self) -> tuple[str, str]:
        """Its namespace and its name, as `Kind/name`."""
        return (self.waste.namespace, self.waste.workload)


@dataclass(frozen=True, slots=True)
class ClusterSummary:
    """One pass added up; `modes` counts pods on nodes by mode, `lines` are the largest shares of the cluster first."""

    node_pass: NodePassResult
    totals: ClusterRequestTotals
    savings: RequestSavings
    risks: tuple[ContainerRisk, ...]
    workloads: tuple[WorkloadSummary, ...]
    modes: Mapping[str, int]


class ClusterSummaries:
    """The newest survey; a large cluster takes a second, so that readers may have the one before in the meantime."""

    def __init__(self, view: ApiView) -> None:
        self._view = view
        self._known: ClusterSummary | None = None
        self._turn = asyncio.Lock()

    async def get_newest(self) -> ClusterSummary:
        """Return the survey of the last pass. Raises Unavailable."""
        async with self._turn:
            done = get_last_pass(self._view)
            if self._known is None or self._known.node_pass is not done:
                self._known = await self._made(done)
            return self._known

    async def get_available(self) -> ClusterSummary:
        """Return one at once, of a large cluster perhaps of a pass in the hour before. Raises Unavailable.

        Where there is none it is unavailable too, until somebody else has called `refresh`.
        """
        done = get_last_pass(self._view)
        known = self._known
        if len(done.snapshot.pods) <= _FEW_PODS:
            return await self.get_newest()
        if known is None or done.at - known.node_pass.at > _OLD:
            raise UnavailableError("the last pass is being added up, which takes some seconds for so large a cluster")
        return known

    async def refresh(self) -> None:
        """Make the survey of the last pass, if there is one to make and nobody does."""
        if not self._turn.locked():
            with suppress(CruiseError):
                await self.get_newest()

    async def _made(self, done: NodePassResult) -> ClusterSummary:
        view = self._view
        statistics = await wait_for_store(view.statistics())
        stored = await wait_for_store(view.store.overrides())
        originals, keys = (
            await wait_for_store(view.store.original_sizes()),
            await wait_for_store(view.store.signing_keys()),
        )

        def made() -> ClusterSummary:
            with pause_garbage_collection():
                known = collect_original_sizes(done.snapshot, originals, keys)
                return summarize_cluster(done, statistics, stored, view.policy, known)

        return await asyncio.to_thread(made)


def summarize_cluster(
    done: NodePassResult,
    statistics: StatisticsTable,
    stored: StoredOverrides,
    policy: Policy,
    originals: Mapping[str, OriginalSizesByUid],
) -> ClusterSummary:
    """Add up what a pass found; `originals` are the original sizes by pod uid."""
    snapshot = done.snapshot
    rows, totals = estimate_waste(snapshot, statistics, done.plans)
    risks = rank_risks(snapshot, statistics, done.plans, policy, done.at)
    of_workload: dict[tuple[str, str], list[ContainerRisk]] = {}
    for risk in risks:
        of_workload.setdefault((risk.namespace, risk.workload), []).append(risk)
    eligibility = Eligibility(snapshot, statistics, stored, policy, done.at)
    modes: dict[tuple[str, str], str] = {}
    pods: Counter[str] = Counter()
    ended: dict[tuple[str, str], str] = {}
    for pod in snapshot.pods:
        place = (pod.namespace, pod.workload_name)
        if pod.node is None or (pod.is_finished and place not in of_workload):
            continue
        mode = get_mode(eligibility, policy, pod)
        if pod.is_finished:
            ended[place] = mode
            continue
        modes[place] = mode
        pods[mode] += 1
    # Of a CronJob between two runs there are no sums, and its last run may have been killed.
    rows += tuple(WorkloadRequests.without_pods(*place) for place in ended.keys() - modes.keys())
    modes = ended | modes
    lines = [
        WorkloadSummary(
            row, modes[row.namespace, row.workload], tuple(of_workload.get((row.namespace, row.workload), ()))
        )
        for row in rows
    ]
    return ClusterSummary(done, totals, sum_savings(snapshot, originals), risks, tuple(lines), dict(pods))


def get_mode(eligibility: Eligibility, policy: Policy, pod: Pod) -> str:
    """Return the mode that holds for a pod, by name."""
    if policy.excludes_namespace(pod.namespace):
        return Mode.OFF.label
    guidance = eligibility.get_effective_policy(pod)
    return guidance.mode.label if isinstance(guidance, EffectivePolicy) else UNREADABLE_MODE


@dataclass(frozen=True, slots=True)
class WorkloadQuery:
    """Which workloads, in which order, and which part of them."""

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
    """Some of the workloads that are wanted; `total` counts all of them, `namespaces` are those of all workloads."""

    lines: Sequence[WorkloadSummary]
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
"""What workloads can be sorted by."""


async def find_workloads(
    found: ClusterSummary, wanted: WorkloadQuery, sight: NamespaceVisibility
) -> WorkloadQueryResult:
    """Return the workloads that a caller wants and may see."""
    namespaces = sorted({line.waste.namespace for line in found.workloads})
    seen = await sight.get_visible_namespaces(namespaces)
    shown = [name for name in namespaces if seen is None or name in seen]
    lines = [line for line in found.workloads if (seen is None or line.waste.namespace in seen) and _fits(line, wanted)]
    # Equals stay in one order: largest share first, and then by name.
    lines.sort(key=WORKLOAD_SORT_KEYS.get(wanted.sort, WORKLOAD_SORT_KEYS["share"]), reverse=wanted.descending)  # type: ignore[arg-type]
    return WorkloadQueryResult(lines[wanted.offset : wanted.offset + wanted.limit], len(lines), shown)


def _fits(line: WorkloadSummary, wanted: WorkloadQuery) -> bool:
    if wanted.at_risk and not line.risks:
        return False
    if wanted.namespace and line.waste.namespace != wanted.namespace:
        return False
    if wanted.mode and line.mode != wanted.mode:
        return False
    return all(word in f"{line.waste.namespace}/{line.waste.workload}".lower() for word in wanted.text.lower().split())


@dataclass(frozen=True, slots=True)
class WorkloadDocument:
    """One workload's sums, as kube-scheduler counts requests.

    `recommended` is its target, `planned` what it requests once the pass has written, `reclaimable` requested −
    recommended, and `used` the sum of bases. `held` counts its pods that are left alone, `heldBecause` is the most
    frequent reason.
    """

    __pydantic_config__ = CAMEL_CASE_CONFIG
    namespace: str
    workload: str
    mode: str
    pods: int
    requested: SizesDocument
    target: SizesDocument
    planned: SizesDocument
    reclaimable: SizesDocument
    used: SizesDocument
    risks: list[str]
    skipped: int
    skip_reason: str | None


@dataclass(frozen=True, slots=True)
class WorkloadPage:
    """Some workloads of the last pass, from `offset` on; `total` counts all that are wanted."""

    __pydantic_config__ = CAMEL_CASE_CONFIG
    total: int
    offset: int
    items: list[WorkloadDocument]


@dataclass(frozen=True, slots=True)
class ClusterOverview:
    """The cluster in the last pass: sums over pods on nodes, `saved` against the requests before cruise of `savedPods`.

    `recommended` are the targets, `planned` what is requested once the pass has written, `reclaimable` requested −
    recommended, net of workloads that should have more.
    `modes` counts pods by mode, `risks` by kind.
    """

    __pydantic_config__ = CAMEL_CASE_CONFIG
    allocatable: SizesDocument
    requested: SizesDocument
    target: SizesDocument
    planned: SizesDocument
    reclaimable: SizesDocument
    used: SizesDocument
    saved: SizesDocument
    saved_pods: int
    modes: dict[str, int]
    risks: dict[str, int]


def create_summary_routes(surveys: ClusterSummaries) -> APIRouter:
    """Return the routes at /overview and /workloads."""
    routes = APIRouter(tags=["workloads"])

    @routes.get("/overview", responses=list_error_responses(503))
    async def overview() -> ClusterOverview:
        """Add up the cluster as the last node pass found it."""
        found = await surveys.get_newest()
        return ClusterOverview(
            allocatable=_sizes(found.totals.allocatable),
            requested=_sizes(found.totals.requested),
            target=_sizes(found.totals.target),
            planned=_sizes(found.totals.planned),
            reclaimable=_sizes(found.totals.reclaimable),
            used=_sizes(found.totals.used),
            saved=_sizes(found.savings.saved),
            saved_pods=found.savings.pods,
            modes=dict(sorted(found.modes.items())),
            risks=dict(Counter(risk.kind.value for risk in found.risks)),
        )

    @routes.get("/workloads", responses=list_error_responses(422, 503))
    async def workloads(
        sight: VisibilityDependency,
        text: Annotated[str, Query(max_length=200, description="Words that namespace or name hold.")] = "",
        namespace: Annotated[str, Query(max_length=63, description="Only this namespace.")] = "",
        mode: Annotated[str, Query(max_length=20, description="Only those in this mode.")] = "",
        risk: Annotated[bool, Query(description="Only those at risk.")] = False,
        sort: Annotated[
            str,
            Query(
                pattern=f"^({'|'.join(WORKLOAD_SORT_KEYS)})$", description=f"By what: {', '.join(WORKLOAD_SORT_KEYS)}."
            ),
        ] = "share",
        ascending: Annotated[bool, Query(description="The least first.")] = False,
        offset: OffsetParameter = 0,
        limit: Annotated[int, Query(ge=1, le=500, description="How many at most.")] = 50,
    ) -> WorkloadPage:
        """List workloads of the last node pass, without namespaces whose pods the caller may not get."""
        wanted = WorkloadQuery(text, namespace, mode, risk, sort, not ascending, offset, limit)
        found = await find_workloads(await surveys.get_newest(), wanted, sight)
        return WorkloadPage(found.total, offset, [_document(line) for line in found.lines])

    return routes


def _document(line: WorkloadSummary) -> WorkloadDocument:
    waste = line.waste
    return WorkloadDocument(
        namespace=waste.namespace,
        workload=waste.workload,
        mode=line.mode,
        pods=waste.pods,
        requested=_sizes(waste.requested),
        target=_sizes(waste.target),
        planned=_sizes(waste.planned),
        reclaimable=_sizes(waste.reclaimable),
        used=_sizes(waste.used),
        risks=_kinds(line.risks),
        skipped=waste.skipped_pods,
        skip_reason=describe_reason(waste.skip_reason) if waste.skip_reason is not None else None,
    )


def _kinds(risks: Iterable[ContainerRisk]) -> list[str]:
    return list(dict.fromkeys(risk.kind.value for risk in risks))


def _sizes(amount: Resources) -> SizesDocument:
    return SizesDocument(amount.cpu_millicores, amount.memory_bytes)
