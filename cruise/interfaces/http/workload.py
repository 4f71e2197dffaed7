"""The data of one workload for the dashboard, and the API's route that explains a pod."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import msgspec
import numpy as np
from fastapi import APIRouter, HTTPException, Response

from cruise.decisions.eviction.ranking import ASSUME_UNCHANGED
from cruise.decisions.explanation.pod_explanation import (
    Explanation,
    ExplanationContext,
    explain_pod_in_context,
    prepare_explanations,
)
from cruise.decisions.pod_history import PodHistory, build_pod_history
from cruise.decisions.pod_policy.eligibility import Eligibility
from cruise.decisions.sizing.node_plans import SizingContext
from cruise.decisions.template_sizes import SkippedTemplate, TemplateSizes, size_templates
from cruise.domain.actions import OriginalSizes, Outcome
from cruise.domain.cluster import ClusterSnapshot, Pod
from cruise.domain.overrides import PausedWorkloads
from cruise.domain.pod_resources import count_pod_requests
from cruise.domain.records import RETENTION
from cruise.domain.resources import NO_RESOURCES, Resources
from cruise.domain.usage import HourlyPeaks, OomRecord, Statistic, StatisticsTable
from cruise.errors import NotFoundError
from cruise.interfaces.explain.document import render_explanation_json
from cruise.interfaces.http.cluster_summary import ClusterSummary, WorkloadSummary, get_pod_mode_label
from cruise.interfaces.http.view import (
    ApiView,
    NameParameter,
    NamespaceParameter,
    VisibilityDependency,
    collect_namespace_values,
    filter_by_namespace,
    list_error_responses,
    wait_for_store,
)
from cruise.runtime.headroom import prepare_stored_headroom
from cruise.runtime.node_pass import NodePassResult

# Each pod takes one query of the database.
_MAX_PODS_WITH_OUTCOMES = 20


@dataclass(frozen=True, slots=True)
class WorkloadDetails:
    """One workload: its summary in the last node pass, its pods now, and details of one `selected` pod.

    `requested` is the sum over all pods now. `mode`, `statistics` (by container) and `original` (its sizes before the
    first resize) are of the selected pod. `outcomes` are those of the first pods by name, newest first, `oom_kills`
    those of all pods, oldest first.
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
    """Return the sizes of the template of a workload's pods, None if they have no template. Raises UnavailableError."""
    # All statistics of a large cluster would take seconds.
    statistics = select_statistics(await wait_for_store(view.statistics()), pods)
    part = replace(snapshot, pods=tuple(pods))
    changes = await asyncio.to_thread(size_templates, part, statistics, view.policy, view.now(), pods)
    templates: list[TemplateSizes | SkippedTemplate] = [*changes.changed, *changes.skipped]
    return templates[0] if templates else None


def select_statistics(table: StatisticsTable, pods: Iterable[Pod]) -> StatisticsTable:
    """Return the statistics of some pods and of their workloads."""
    rows = {
        table.find_row(pod.namespace, name, pod.workload, container.name, identity)
        for pod in pods
        for container in pod.sized_containers
        for name, identity in ((pod.name, ""), ("", pod.identity), ("", ""))
    }
    return table.select(np.array(sorted(row for row in rows if row is not None), dtype=np.int64))


async def read_workload_details(
    view: ApiView, summary: ClusterSummary, namespace: str, workload: str, pod: str
) -> WorkloadDetails:
    """Return the data of a workload (`Kind/name`) and of one of its pods. Raises NotFoundError, UnavailableError."""
    own_summary = next((one for one in summary.workloads if one.workload_key == (namespace, workload)), None)
    # The snapshot of the node pass lacks the pass's own writes and later reverts.
    snapshot = await view.snapshot()
    pods = sorted(
        (
            one
            for one in snapshot.pods
            if one.namespace == namespace and one.node is not None and one.workload_name == workload
        ),
        key=lambda one: one.name,
    )
    # A CronJob between two runs has only finished pods.
    pods = [one for one in pods if not one.is_finished] or pods
    if own_summary is None or not pods:
        raise NotFoundError(f"the last node pass saw no pods of {workload} in {namespace}, or they no longer exist")
    selected = next((one for one in pods if one.name == pod), pods[0])
    now, store = view.now(), view.store
    table = await wait_for_store(view.statistics())
    part = replace(snapshot, pods=tuple(pods))
    eligibility = Eligibility(
        part, select_statistics(table, pods), await wait_for_store(store.read_paused_workloads()), view.policy, now
    )
    rows = {
        container.name: table.find_row(namespace, selected.name, selected.workload, container.name, selected.identity)
        for container in selected.sized_containers
    }
    queried = [selected, *(one for one in pods if one is not selected)][:_MAX_PODS_WITH_OUTCOMES]
    since = now - RETENTION.outcomes
    outcomes = await asyncio.gather(
        *(wait_for_store(store.read_pod_outcomes(namespace, one.name, since)) for one in queried)
    )
    hour = int((now - RETENTION.hourly_peaks).timestamp()) // 3600
    return WorkloadDetails(
        summary=own_summary,
        pods=pods,
        selected=selected,
        mode=get_pod_mode_label(eligibility, selected),
        requested=sum((count_pod_requests(one) for one in pods if not one.is_finished), start=NO_RESOURCES),
        statistics={name: table.get_row(row) for name, row in rows.items() if row is not None},
        peaks=await wait_for_store(store.read_workload_peaks(namespace, workload, hour)),
        oom_kills=await wait_for_store(store.read_oom_records(now - RETENTION.oom_records, (namespace, workload))),
        outcomes=sorted(
            (one for pod_outcomes in outcomes for one in pod_outcomes), key=lambda one: one.at, reverse=True
        ),
        original=(await wait_for_store(store.read_original_sizes([selected.uid]))).get(selected.uid),
    )


class PodExplainer:
    """Explains pods as the last node pass saw them; the pass is computed again once and kept until the next one.

    A pod that has changed since is explained on the present cluster, which takes a pass each time. One explanation is
    prepared at a time.
    """

    def __init__(self, view: ApiView) -> None:
        self._view = view
        self._lock = asyncio.Lock()
        self._cached: tuple[NodePassResult, PausedWorkloads, ExplanationContext] | None = None

    async def explain(self, pod: Pod, snapshot: ClusterSnapshot) -> Explanation:
        """Explain a pod of the snapshot. Raises UnavailableError."""
        last, paused_workloads = (
            self._view.get_last_pass(),
            await wait_for_store(self._view.store.read_paused_workloads()),
        )
        unchanged = None if last is None else _find_unchanged(pod, last.snapshot)
        async with self._lock:
            if last is None or unchanged is None:
                basis = await self._prepare(snapshot, paused_workloads)
            elif self._cached is not None and self._cached[0] is last and self._cached[1] == paused_workloads:
                basis = self._cached[2]
            else:
                basis = await self._prepare(last.snapshot, paused_workloads)
                self._cached = last, paused_workloads, basis
        return await asyncio.to_thread(explain_pod_in_context, basis, unchanged or pod)

    async def _prepare(self, snapshot: ClusterSnapshot, paused_workloads: PausedWorkloads) -> ExplanationContext:
        view = self._view
        statistics = await wait_for_store(view.statistics())
        refused = await wait_for_store(view.store.read_refused_resizes())
        headroom = await wait_for_store(prepare_stored_headroom(view.store, statistics, view.policy))
        now, last = view.now(), view.get_last_pass()
        return await asyncio.to_thread(
            prepare_explanations,
            snapshot,
            statistics,
            view.policy,
            now,
            paused_workloads=paused_workloads,
            context=SizingContext(refused, headroom, ASSUME_UNCHANGED if last is None else last.for_next_pass),
        )


def _find_unchanged(pod: Pod, snapshot: ClusterSnapshot) -> Pod | None:
    """Return the pod of a snapshot if it has not changed since, else None."""
    return next((one for one in snapshot.pods if one.uid == pod.uid and one == pod), None)


def create_pod_routes(view: ApiView, explanations: PodExplainer) -> APIRouter:
    """Return the routes under /pods."""
    routes = APIRouter(tags=["pods"])

    @routes.get("/pods/{namespace}/{name}", response_model=dict, responses=list_error_responses(403, 404, 422, 503))
    async def pod(visibility: VisibilityDependency, namespace: NamespaceParameter, name: NameParameter) -> Response:
        """Explain a pod as `cruise explain --format json` does, without pods that the caller may not get."""
        await visibility.require_access(namespace)
        snapshot = await view.snapshot()
        found = next((one for one in snapshot.pods if (one.namespace, one.name) == (namespace, name)), None)
        if found is None:
            raise HTTPException(404, f"there is no pod {namespace}/{name}")
        history = await _read_history(view, found)
        document = render_explanation_json(await explanations.explain(found, snapshot), view.now(), history)
        if not await visibility.sees_all():
            decoded = msgspec.json.decode(document)
            visible = await visibility.get_visible_namespaces(collect_namespace_values(decoded))
            document = msgspec.json.encode(decoded if visible is None else filter_by_namespace(decoded, visible))
        return Response(document, media_type="application/json")

    return routes


async def _read_history(view: ApiView, pod: Pod) -> PodHistory:
    now = view.now()
    workload = str(pod.workload) if pod.workload is not None else ""
    since_hour = int((now - RETENTION.hourly_peaks).timestamp()) // 3600
    return build_pod_history(
        pod.namespace,
        pod.name,
        workload,
        pod.identity,
        await wait_for_store(view.store.read_pod_outcomes(pod.namespace, pod.name, now - RETENTION.outcomes)),
        await wait_for_store(view.store.read_oom_records(now - RETENTION.oom_records, (pod.namespace, workload))),
        await wait_for_store(view.store.read_workload_peaks(pod.namespace, pod.workload_name, since_hour)),
    )
