"""One workload through the API's eyes: its pods, their statistics, and what the store remembers of them."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cruise.decisions.exporting.templates import LeftTemplate, TemplateSizes, size_templates
from cruise.decisions.guidance.eligibility import Eligibility
from cruise.domain.actions import OriginalSizes, Outcome
from cruise.domain.cluster import Pod, Snapshot
from cruise.domain.requests import counted_requests
from cruise.domain.resources import NO_RESOURCES, Resources
from cruise.domain.retention import RETENTION
from cruise.domain.usage import HourlyPeaks, OomRecord, Statistic, StatisticsTable
from cruise.errors import NotFound
from cruise.interfaces.http.survey import Survey, SurveyLine, mode_of
from cruise.interfaces.http.view import ApiView, in_time

# Of a large workload some pods tell what there is to tell; each asks the store once.
_MOST_ASKED = 20


@dataclass(frozen=True, slots=True)
class WorkloadHistory:
    """One workload in the last pass, `line`, its pods as they are now, and one of them, `chosen`, in more detail.

    `mode` holds for the chosen pod now, and `requested` is what all pods request now. `statistics` has the chosen pod's
    by container, `original` what it requested before it was resized first. `outcomes` are those of the first pods by
    name, newest first, `kills` those of all of them, oldest first.
    """

    line: SurveyLine
    pods: Sequence[Pod]
    chosen: Pod
    mode: str
    requested: Resources
    statistics: dict[str, Statistic]
    peaks: HourlyPeaks
    kills: Sequence[OomRecord]
    outcomes: Sequence[Outcome]
    original: OriginalSizes | None


async def template_of(view: ApiView, snapshot: Snapshot, pods: Sequence[Pod]) -> TemplateSizes | LeftTemplate | None:
    """Return what the template of a workload's pods should state; None where they have none. Raises Unavailable."""
    # What speaks for them, and nothing else: to go through all of a large cluster takes seconds.
    statistics = statistics_of(await in_time(view.statistics()), pods)
    part = replace(snapshot, pods=tuple(pods))
    found = await asyncio.to_thread(size_templates, part, statistics, view.policy, view.now(), pods)
    both: list[TemplateSizes | LeftTemplate] = [*found.changed, *found.left]
    return both[0] if both else None


def statistics_of(table: StatisticsTable, pods: Iterable[Pod]) -> StatisticsTable:
    """Return the rows that may speak for some pods: their own and their workloads'."""
    found = {
        table.find(pod.namespace, name, pod.workload, container.name, identity)
        for pod in pods
        for container in pod.sized_containers
        for name, identity in ((pod.name, ""), ("", pod.identity), ("", ""))
    }
    return table.chosen(np.array(sorted(row for row in found if row is not None), dtype=np.int64))


async def workload_history(view: ApiView, survey: Survey, namespace: str, workload: str, pod: str) -> WorkloadHistory:
    """Return what is known of a workload (`Kind/name`), and more of one of its pods. Raises NotFound, Unavailable."""
    line = next((one for one in survey.lines if one.place == (namespace, workload)), None)
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
    pods = [one for one in pods if not one.terminal] or pods
    if line is None or not pods:
        raise NotFound(f"the last pass saw no pods of {workload} in {namespace}, or they are gone since")
    chosen = next((one for one in pods if one.name == pod), pods[0])
    now, store = view.now(), view.store
    table = await in_time(view.statistics())
    part = replace(snapshot, pods=tuple(pods))
    eligibility = Eligibility(part, statistics_of(table, pods), await in_time(store.overrides()), view.policy, now)
    rows = {
        container.name: table.find(namespace, chosen.name, chosen.workload, container.name, chosen.identity)
        for container in chosen.sized_containers
    }
    asked = [chosen, *(one for one in pods if one is not chosen)][:_MOST_ASKED]
    since = now - RETENTION.outcomes
    found = await asyncio.gather(*(in_time(store.outcomes_of_pod(namespace, one.name, since)) for one in asked))
    hour = int((now - RETENTION.hourly_peaks).timestamp()) // 3600
    return WorkloadHistory(
        line=line,
        pods=pods,
        chosen=chosen,
        mode=mode_of(eligibility, view.policy, chosen),
        requested=sum((counted_requests(one) for one in pods if not one.terminal), start=NO_RESOURCES),
        statistics={name: table.row(row) for name, row in rows.items() if row is not None},
        peaks=await in_time(store.hourly_peaks(namespace, workload, hour)),
        kills=await in_time(store.oom_records(now - RETENTION.oom_records, (namespace, workload))),
        outcomes=sorted((one for some in found for one in some), key=lambda one: one.at, reverse=True),
        original=(await in_time(store.original_sizes([chosen.uid]))).get(chosen.uid),
    )
