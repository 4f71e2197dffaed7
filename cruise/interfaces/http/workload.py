"""One workload through the API's eyes: its pods, their statistics, and what the store remembers of them."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import msgspec
import numpy as np
from fastapi import APIRouter, HTTPException, Response

from cruise.decisions.eviction.ranking import ASSUME_UNCHANGED
from cruise.decisions.explanation import Explanation, ExplanationBasis, explain_pod_on_basis, prepare_basis
from cruise.decisions.pod_history import PodHistory, build_pod_history
from cruise.decisions.pod_policy.eligibility import Eligibility
from cruise.decisions.template_sizes import SkippedTemplate, TemplateSizes, size_templates
from cruise.domain.actions import OriginalSizes, Outcome
from cruise.domain.cluster import ClusterSnapshot, Pod
from cruise.domain.overrides import StoredOverrides
from cruise.domain.pod_resources import count_pod_requests
from cruise.domain.records import RETENTION
from cruise.domain.resources import NO_RESOURCES, Resources
from cruise.domain.usage import HourlyPeaks, OomRecord, Statistic, StatisticsTable
from cruise.errors import NotFoundError
from cruise.interfaces.explain.document import render_explanation_json
from cruise.interfaces.http.cluster_summary import ClusterSummary, WorkloadSummary, get_mode
from cruise.interfaces.http.namespace_visibility import VisibilityDependency, filter_by_namespace, find_namespaces
from cruise.interfaces.http.view import ApiView, NameParameter, NamespaceParameter, list_error_responses, wait_for_store
from cruise.runtime.headroom import prepare_stored_headroom
from cruise.runtime.node_pass import NodePassResult

# Of a large workload some pods tell what there is to tell; each asks the store once.
_MOST_ASKED = 20


@dataclass(frozen=True, slots=True)
class WorkloadHistory:
    """One workload in the last pass, `line`, its pods as they are now, and one of them, `chosen`, in more detail.

    `mode` holds for the chosen pod now, and `requested` is what all pods request now. `statistics` has the chosen pod's
    by container, `original` what it requested before it was resized first. `outcomes` are those of the first pods by
    name, newest first, `kills` those of all of them, oldest first.
    """

    summary: WorkloadSummary
    pods: Sequence[Pod]
    selected: Pod
    mode: str
    requested: Resources
    statistics: dict[str, Statistic]
    peaks: HourlyPeaks
    oom_kills: Sequence[OomRecord]
    outcomes: Sequence[Outcome]
    original: OriginalSizes | None


async def compute_template_sizes(
    view: ApiView, snapshot: ClusterSnapshot, pods: Sequence[Pod]
) -> TemplateSizes | SkippedTemplate | None:
    """Return what the template of a workload's pods should state; None where they have none. Raises Unavailable."""
    # What speaks for them, and nothing else: to go through all of a large cluster takes seconds.
    statistics = select_statistics(await wait_for_store(view.statistics()), pods)
    part = replace(snapshot, pods=tuple(pods))
    found = await asyncio.to_thread(size_templates, part, statistics, view.policy, view.now(), pods)
    both: list[TemplateSizes | SkippedTemplate] = [*found.changed, *found.skipped]
    return both[0] if both else None


def select_statistics(table: StatisticsTable, pods: Iterable[Pod]) -> StatisticsTable:
    """Return the rows that may speak for some pods: their own and their workloads'."""
    found = {
        table.find(pod.namespace, name, pod.workload, container.name, identity)
        for pod in pods
        for container in pod.sized_containers
        for name, identity in ((pod.name, ""), ("", pod.identity), ("", ""))
    }
    return table.select(np.array(sorted(row for row in found if row is not None), dtype=np.int64))


async def read_workload_history(
    view: ApiView, survey: ClusterSummary, namespace: str, workload: str, pod: str
) -> WorkloadHistory:
    """Return what is known of a workload (`Kind/name`), and more of one of its pods. Raises NotFoundError, Unavailable."""
    line = next((one for one in survey.workloads if one.workload_key == (namespace, workload)), None)
    # Not the pass's: its own writes came after it, and so may a revert.
    snapshot = await view.snapshot()
    pods = sorted(
        (
            one
            for one in snapshot.pods
            if one.namespace == namespace and one.node is not None and one.workload_name == workload
        ),
        key=lambda one: one.name,
    )
    # Where none runs, those that ended tell of the last runs, as of a CronJob.
    pods = [one for one in pods if not one.is_finished] or pods
    if line is None or not pods:
        raise NotFoundError(f"the last pass saw no pods of {workload} in {namespace}, or they are gone since")
    chosen = next((one for one in pods if one.name == pod), pods[0])
    now, store = view.now(), view.store
    table = await wait_for_store(view.statistics())
    part = replace(snapshot, pods=tuple(pods))
    eligibility = Eligibility(
        part, select_statistics(table, pods), await wait_for_store(store.overrides()), view.policy, now
    )
    rows = {
        container.name: table.find(namespace, chosen.name, chosen.workload, container.name, chosen.identity)
        for container in chosen.sized_containers
    }
    asked = [chosen, *(one for one in pods if one is not chosen)][:_MOST_ASKED]
    since = now - RETENTION.outcomes
    found = await asyncio.gather(*(wait_for_store(store.outcomes_of_pod(namespace, one.name, since)) for one in asked))
    hour = int((now - RETENTION.hourly_peaks).timestamp()) // 3600
    return WorkloadHistory(
        summary=line,
        pods=pods,
        selected=chosen,
        mode=get_mode(eligibility, view.policy, chosen),
        requested=sum((count_pod_requests(one) for one in pods if not one.is_finished), start=NO_RESOURCES),
        statistics={name: table.row(row) for name, row in rows.items() if row is not None},
        peaks=await wait_for_store(store.hourly_peaks(namespace, workload, hour)),
        oom_kills=await wait_for_store(store.oom_records(now - RETENTION.oom_records, (namespace, workload))),
        outcomes=sorted((one for some in found for one in some), key=lambda one: one.at, reverse=True),
        original=(await wait_for_store(store.original_sizes([chosen.uid]))).get(chosen.uid),
    )


# Pods through the API, each explained.


class PodExplanations:
    """Explains pods as the last pass saw them: it is taken again once, for all that are explained until the next one.

    A pod that has changed since is explained by the cluster as it is now, which takes a pass each time; one at a time
    is enough for people.
    """

    def __init__(self, view: ApiView) -> None:
        self._view = view
        self._turn = asyncio.Lock()
        self._known: tuple[NodePassResult, StoredOverrides, ExplanationBasis] | None = None

    async def explain(self, pod: Pod, snapshot: ClusterSnapshot) -> Explanation:
        """Explain a pod of the snapshot. Raises Unavailable."""
        last, stored = self._view.get_last_pass(), await wait_for_store(self._view.store.overrides())
        was = None if last is None else _same(pod, last.snapshot)
        async with self._turn:
            if last is None or was is None:
                basis = await self._basis(snapshot, stored)
            elif self._known is not None and self._known[0] is last and self._known[1] == stored:
                basis = self._known[2]
            else:
                basis = await self._basis(last.snapshot, stored)
                self._known = last, stored, basis
        return await asyncio.to_thread(explain_pod_on_basis, basis, was or pod)

    async def _basis(self, snapshot: ClusterSnapshot, stored: StoredOverrides) -> ExplanationBasis:
        view = self._view
        statistics = await wait_for_store(view.statistics())
        refused = await wait_for_store(view.store.refused_resizes())
        headroom = await wait_for_store(prepare_stored_headroom(view.store, statistics, view.policy))
        now, last = view.now(), view.get_last_pass()
        return await asyncio.to_thread(
            prepare_basis,
            snapshot,
            statistics,
            view.policy,
            now,
            stored=stored,
            refused=refused,
            headroom=headroom,
            earlier=ASSUME_UNCHANGED if last is None else last.for_next_pass,
        )


def _same(pod: Pod, snapshot: ClusterSnapshot) -> Pod | None:
    """Return the pod as a snapshot has it, None where it is not the same there."""
    return next((one for one in snapshot.pods if one.uid == pod.uid and one == pod), None)


def create_pod_routes(view: ApiView, explanations: PodExplanations) -> APIRouter:
    """Return the routes under /pods."""
    routes = APIRouter(tags=["pods"])

    @routes.get("/pods/{namespace}/{name}", response_model=dict, responses=list_error_responses(403, 404, 422, 503))
    async def pod(sight: VisibilityDependency, namespace: NamespaceParameter, name: NameParameter) -> Response:
        """Explain a pod as `cruise explain --format json` does, without pods that the caller may not get."""
        await sight.require_access(namespace)
        snapshot = await view.snapshot()
        found = next((one for one in snapshot.pods if (one.namespace, one.name) == (namespace, name)), None)
        if found is None:
            raise HTTPException(404, f"there is no pod {namespace}/{name}")
        past = await _past(view, found)
        document = render_explanation_json(await explanations.explain(found, snapshot), view.now(), past)
        if not await sight.sees_all():
            whole = msgspec.json.decode(document)
            seen = await sight.get_visible_namespaces(find_namespaces(whole))
            document = msgspec.json.encode(whole if seen is None else filter_by_namespace(whole, seen))
        return Response(document, media_type="application/json")

    return routes


async def _past(view: ApiView, pod: Pod) -> PodHistory:
    now = view.now()
    workload = str(pod.workload) if pod.workload is not None else ""
    since_hour = int((now - RETENTION.hourly_peaks).timestamp()) // 3600
    return build_pod_history(
        pod.namespace,
        pod.name,
        workload,
        pod.identity,
        await wait_for_store(view.store.outcomes_of_pod(pod.namespace, pod.name, now - RETENTION.outcomes)),
        await wait_for_store(view.store.oom_records(now - RETENTION.oom_records)),
        await wait_for_store(view.store.hourly_peaks(pod.namespace, pod.workload_name, since_hour)),
    )
