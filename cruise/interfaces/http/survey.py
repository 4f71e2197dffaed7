"""The cluster through the API, workload by workload: what the last node pass found, added up once for all readers."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Query

from cruise.collection import uncollected
from cruise.decisions.guidance.eligibility import Eligibility
from cruise.decisions.revert import Sizes
from cruise.decisions.scan.risks import Risk, rank_risks
from cruise.decisions.scan.savings import Savings, sum_savings
from cruise.decisions.scan.waste import Totals, WorkloadWaste, estimate_waste
from cruise.domain.annotations import Guidance
from cruise.domain.cluster import Pod
from cruise.domain.overrides import StoredOverrides
from cruise.domain.policy import Mode, Policy
from cruise.domain.resources import Resources
from cruise.domain.usage import StatisticsTable
from cruise.errors import CruiseError, Unavailable
from cruise.interfaces.http.controller import Sizes as SizesDocument
from cruise.interfaces.http.controller import last_pass
from cruise.interfaces.http.requests import CAMEL, Offset, failures
from cruise.interfaces.http.sight import Sight, SightOf
from cruise.interfaces.http.view import ApiView, in_time
from cruise.interfaces.reasons import in_words
from cruise.runtime.revert import known_sizes
from cruise.runtime.sizing.node_pass import NodePass

UNREADABLE = "unreadable"
# So many pods are added up while a reader waits.
_FEW_PODS = 5000
_OLD = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class SurveyLine:
    """One workload: its sums, the mode that holds for it (`unreadable` where an annotation is), its risks, worst first.

    `mode` is that of one of its pods.
    """

    waste: WorkloadWaste
    mode: str
    risks: tuple[Risk, ...]

    @property
    def place(self) -> tuple[str, str]:
        """Its namespace and its name, as `Kind/name`."""
        return (self.waste.namespace, self.waste.workload)


@dataclass(frozen=True, slots=True)
class Survey:
    """One pass added up; `modes` counts pods on nodes by mode, `lines` are the largest shares of the cluster first."""

    done: NodePass
    totals: Totals
    savings: Savings
    risks: tuple[Risk, ...]
    lines: tuple[SurveyLine, ...]
    modes: Mapping[str, int]


class Surveys:
    """The newest survey; a large cluster takes a second, so that readers may have the one before in the meantime."""

    def __init__(self, view: ApiView) -> None:
        self._view = view
        self._known: Survey | None = None
        self._turn = asyncio.Lock()

    async def newest(self) -> Survey:
        """Return the survey of the last pass. Raises Unavailable."""
        async with self._turn:
            done = last_pass(self._view)
            if self._known is None or self._known.done is not done:
                self._known = await self._made(done)
            return self._known

    async def at_hand(self) -> Survey:
        """Return one at once, of a large cluster perhaps of a pass in the hour before. Raises Unavailable.

        Where there is none it is unavailable too, until somebody else has called `refresh`.
        """
        done = last_pass(self._view)
        known = self._known
        if len(done.snapshot.pods) <= _FEW_PODS:
            return await self.newest()
        if known is None or done.at - known.done.at > _OLD:
            raise Unavailable("the last pass is being added up, which takes some seconds for so large a cluster")
        return known

    async def refresh(self) -> None:
        """Make the survey of the last pass, if there is one to make and nobody does."""
        if not self._turn.locked():
            with suppress(CruiseError):
                await self.newest()

    async def _made(self, done: NodePass) -> Survey:
        view = self._view
        statistics = await in_time(view.statistics())
        stored = await in_time(view.store.overrides())
        originals, keys = await in_time(view.store.original_sizes()), await in_time(view.store.signing_keys())

        def made() -> Survey:
            with uncollected():
                known = known_sizes(done.snapshot, originals, keys)
                return survey(done, statistics, stored, view.policy, known)

        return await asyncio.to_thread(made)


def survey(
    done: NodePass,
    statistics: StatisticsTable,
    stored: StoredOverrides,
    policy: Policy,
    originals: Mapping[str, Sizes],
) -> Survey:
    """Add up what a pass found; `originals` are the original sizes by pod uid."""
    snapshot = done.snapshot
    rows, totals = estimate_waste(snapshot, statistics, done.plans)
    risks = rank_risks(snapshot, statistics, done.plans, policy, done.at)
    of_workload: dict[tuple[str, str], list[Risk]] = {}
    for risk in risks:
        of_workload.setdefault((risk.namespace, risk.workload), []).append(risk)
    eligibility = Eligibility(snapshot, statistics, stored, policy, done.at)
    modes: dict[tuple[str, str], str] = {}
    pods: Counter[str] = Counter()
    ended: dict[tuple[str, str], str] = {}
    for pod in snapshot.pods:
        place = (pod.namespace, pod.workload_name)
        if pod.node is None or (pod.terminal and place not in of_workload):
            continue
        mode = mode_of(eligibility, policy, pod)
        if pod.terminal:
            ended[place] = mode
            continue
        modes[place] = mode
        pods[mode] += 1
    # Of a CronJob between two runs there are no sums, and its last run may have been killed.
    rows += tuple(WorkloadWaste.without_pods(*place) for place in ended.keys() - modes.keys())
    modes = ended | modes
    lines = [
        SurveyLine(row, modes[row.namespace, row.workload], tuple(of_workload.get((row.namespace, row.workload), ())))
        for row in rows
    ]
    return Survey(done, totals, sum_savings(snapshot, originals), risks, tuple(lines), dict(pods))


def mode_of(eligibility: Eligibility, policy: Policy, pod: Pod) -> str:
    """Return the mode that holds for a pod, by name."""
    if policy.excludes(pod.namespace):
        return Mode.OFF.label
    guidance = eligibility.guidance_of(pod)
    return guidance.mode.label if isinstance(guidance, Guidance) else UNREADABLE


@dataclass(frozen=True, slots=True)
class Wanted:
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
class Found:
    """Some of the workloads that are wanted; `total` counts all of them, `namespaces` are those of all workloads."""

    lines: Sequence[SurveyLine]
    total: int
    namespaces: Sequence[str]


_Key = Callable[[SurveyLine], object]
SORTS: Mapping[str, _Key] = {
    "name": lambda line: line.place,
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


async def find_workloads(found: Survey, wanted: Wanted, sight: Sight) -> Found:
    """Return the workloads that a caller wants and may see."""
    namespaces = sorted({line.waste.namespace for line in found.lines})
    seen = await sight.of(namespaces)
    shown = [name for name in namespaces if seen is None or name in seen]
    lines = [line for line in found.lines if (seen is None or line.waste.namespace in seen) and _fits(line, wanted)]
    # Equals stay in one order: largest share first, and then by name.
    lines.sort(key=SORTS.get(wanted.sort, SORTS["share"]), reverse=wanted.descending)  # type: ignore[arg-type]
    return Found(lines[wanted.offset : wanted.offset + wanted.limit], len(lines), shown)


def _fits(line: SurveyLine, wanted: Wanted) -> bool:
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

    __pydantic_config__ = CAMEL
    namespace: str
    workload: str
    mode: str
    pods: int
    requested: SizesDocument
    recommended: SizesDocument
    planned: SizesDocument
    reclaimable: SizesDocument
    used: SizesDocument
    risks: list[str]
    held: int
    held_because: str | None


@dataclass(frozen=True, slots=True)
class WorkloadPage:
    """Some workloads of the last pass, from `offset` on; `total` counts all that are wanted."""

    __pydantic_config__ = CAMEL
    total: int
    offset: int
    items: list[WorkloadDocument]


@dataclass(frozen=True, slots=True)
class Overview:
    """The cluster in the last pass: sums over pods on nodes, `saved` against the requests before cruise of `savedPods`.

    `recommended` are the targets, `planned` what is requested once the pass has written, `reclaimable` requested −
    recommended, net of workloads that should have more.
    `modes` counts pods by mode, `risks` by kind.
    """

    __pydantic_config__ = CAMEL
    allocatable: SizesDocument
    requested: SizesDocument
    recommended: SizesDocument
    planned: SizesDocument
    reclaimable: SizesDocument
    used: SizesDocument
    saved: SizesDocument
    saved_pods: int
    modes: dict[str, int]
    risks: dict[str, int]


def survey_routes(surveys: Surveys) -> APIRouter:
    """Return the routes at /overview and /workloads."""
    routes = APIRouter(tags=["workloads"])

    @routes.get("/overview", responses=failures(503))
    async def overview() -> Overview:
        """Add up the cluster as the last node pass found it."""
        found = await surveys.newest()
        return Overview(
            allocatable=_sizes(found.totals.allocatable),
            requested=_sizes(found.totals.requested),
            recommended=_sizes(found.totals.recommended),
            planned=_sizes(found.totals.planned),
            reclaimable=_sizes(found.totals.reclaimable),
            used=_sizes(found.totals.used),
            saved=_sizes(found.savings.saved),
            saved_pods=found.savings.pods,
            modes=dict(sorted(found.modes.items())),
            risks=dict(Counter(risk.kind.value for risk in found.risks)),
        )

    @routes.get("/workloads", responses=failures(422, 503))
    async def workloads(
        sight: SightOf,
        text: Annotated[str, Query(max_length=200, description="Words that namespace or name hold.")] = "",
        namespace: Annotated[str, Query(max_length=63, description="Only this namespace.")] = "",
        mode: Annotated[str, Query(max_length=20, description="Only those in this mode.")] = "",
        risk: Annotated[bool, Query(description="Only those at risk.")] = False,
        sort: Annotated[
            str, Query(pattern=f"^({'|'.join(SORTS)})$", description=f"By what: {', '.join(SORTS)}.")
        ] = "share",
        ascending: Annotated[bool, Query(description="The least first.")] = False,
        offset: Offset = 0,
        limit: Annotated[int, Query(ge=1, le=500, description="How many at most.")] = 50,
    ) -> WorkloadPage:
        """List workloads of the last node pass, without namespaces whose pods the caller may not get."""
        wanted = Wanted(text, namespace, mode, risk, sort, not ascending, offset, limit)
        found = await find_workloads(await surveys.newest(), wanted, sight)
        return WorkloadPage(found.total, offset, [_document(line) for line in found.lines])

    return routes


def _document(line: SurveyLine) -> WorkloadDocument:
    waste = line.waste
    return WorkloadDocument(
        namespace=waste.namespace,
        workload=waste.workload,
        mode=line.mode,
        pods=waste.pods,
        requested=_sizes(waste.requested),
        recommended=_sizes(waste.recommended),
        planned=_sizes(waste.planned),
        reclaimable=_sizes(waste.reclaimable),
        used=_sizes(waste.used),
        risks=_kinds(line.risks),
        held=waste.held,
        held_because=in_words(waste.held_reason) if waste.held_reason is not None else None,
    )


def _kinds(risks: Iterable[Risk]) -> list[str]:
    return list(dict.fromkeys(risk.kind.value for risk in risks))


def _sizes(amount: Resources) -> SizesDocument:
    return SizesDocument(amount.cpu_millicores, amount.memory_bytes)
