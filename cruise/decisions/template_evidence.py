"""Statistics of workloads of which no pod runs, and whose last pods were killed for lack of memory.

No sample of theirs is missing, so none is stale; and where there are none at all, the kill says how much was not
enough.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import reduce
from operator import or_
from typing import Any

from cruise.decisions.oom import get_raised_memory
from cruise.decisions.usage.oom_records import find_relevant_oom_kills
from cruise.domain.cluster import ClusterSnapshot, Container, Pod
from cruise.domain.usage import STATISTIC_COLUMNS, PeakKey, Statistic, StatisticColumns, StatisticKey, StatisticsTable

# What a template's new sizes rest on: the statistics of the workload's pods, joined.


@dataclass(frozen=True, slots=True)
class TemplateEvidence:
    """The largest figures over a workload's pods; times in Unix seconds, `history_since` 0 where it is not known.

    A base is the 75th percentile of the last minutes, a peak what this hour of the day has brought, in the last week.
    """

    cpu_base_millicores: int = 0
    cpu_peak_millicores: int = 0
    memory_base_bytes: int = 0
    memory_peak_bytes: int = 0
    memory_7d_max_bytes: int = 0
    oom_memory_bytes: int = 0
    history_since: int = 0
    updated_at: int = 0


def join_evidence(statistics: Sequence[Statistic]) -> TemplateEvidence:
    """Join statistics of pods that share a template."""
    if not statistics:
        return TemplateEvidence()
    largest = {
        name: max(getattr(one, name) for one in statistics)
        for name in TemplateEvidence.__dataclass_fields__
        if name not in ("history_since", "updated_at")
    }
    return TemplateEvidence(
        **largest,
        history_since=min(one.history_since for one in statistics),
        updated_at=min(one.updated_at for one in statistics),
    )


def add_workload_rows(statistics: StatisticsTable) -> StatisticsTable:
    """Add a row for each workload of which single pods alone are known, as files may have it: the largest of theirs."""
    pods: dict[StatisticKey, list[int]] = {}
    for row, key in enumerate(statistics.keys):
        if key.pod and key.workload:
            pods.setdefault(key._replace(pod=""), []).append(row)
    known = {key for key in statistics.keys if not key.pod}
    missing = {key: rows for key, rows in pods.items() if key not in known}
    if not missing:
        return statistics
    joined = [_joined(statistics, rows) for rows in missing.values()]
    columns = StatisticColumns.from_getter(lambda name: [one[name] for one in joined])
    return statistics.join(StatisticsTable.from_columns(columns, list(missing)))


def _joined(statistics: StatisticsTable, rows: Sequence[int]) -> dict[str, Any]:
    """Return the largest figures of some rows; of times the earliest."""
    joined = {name: max(getattr(statistics, name)[list(rows)].tolist()) for name in STATISTIC_COLUMNS}
    for name in ("history_since", "updated_at", "psi_known"):
        joined[name] = min(getattr(statistics, name)[list(rows)].tolist())
    return joined | {"rejected_reasons": reduce(or_, statistics.rejected_reasons[list(rows)].tolist())}


@dataclass(frozen=True, slots=True)
class OomKilledWorkloads:
    """The `pods` that ended by workloads with kills and without a running pod.

    `unknown` has the containers without statistics, and what their kills taught in bytes, 0 for one that was not
    killed.
    """

    pods: Sequence[Pod]
    statistics: StatisticsTable
    unknown: dict[PeakKey, int]

    def get_raised_statistics(self, pod: Pod, container: str) -> int | None:
        """Return what kills alone teach of a container's memory, None where it has statistics."""
        return self.unknown.get(PeakKey(pod.namespace, str(pod.workload), container, pod.identity))


def find_oom_killed_workloads(
    pods: Iterable[Pod], snapshot: ClusterSnapshot, statistics: StatisticsTable, now: datetime
) -> OomKilledWorkloads:
    """Return those of some pods that ended, with statistics that admission can size their successors by."""
    kills = find_relevant_oom_kills(snapshot, now)
    lessons: dict[tuple[str, str, str], int] = {}
    for kill in kills:
        of = (kill.namespace, str(kill.workload), kill.container)
        lessons[of] = max(lessons.get(of, 0), get_raised_memory(kill, None).oom_memory_bytes)
    candidates = {(kill.namespace, kill.workload) for kill in kills if kill.workload is not None}
    ended: list[Pod] = []
    running = set()
    for pod in pods if candidates else ():
        place = (pod.namespace, pod.workload)
        if place not in candidates:
            continue
        if pod.is_finished:
            ended.append(pod)
        elif not pod.terminating:
            running.add(place)
    ended = [pod for pod in ended if (pod.namespace, pod.workload) not in running]
    unknown: dict[PeakKey, int] = {}
    assumed: list[Statistic] = []
    updated_at, at = statistics.updated_at.copy(), int(now.timestamp())
    for pod in ended:
        for container in pod.sized_containers:
            row = statistics.find(pod.namespace, "", pod.workload, container.name, pod.identity)
            key = PeakKey(pod.namespace, str(pod.workload), container.name, pod.identity)
            if row is not None:
                updated_at[row] = max(int(updated_at[row]), at)
            elif key not in unknown:
                unknown[key] = lessons.get((key.namespace, key.workload, key.container), 0)
                assumed.append(_assumed(key, container, unknown[key], at))
    statistics = replace(statistics, updated_at=updated_at)
    return OomKilledWorkloads(
        ended, statistics.join(StatisticsTable.from_rows(assumed)) if assumed else statistics, unknown
    )


def _assumed(key: PeakKey, container: Container, taught: int, at: int) -> Statistic:
    """Return what a container is known to need: what it requests, and the memory that was not enough."""
    stated = container.requests.resources
    memory = max(taught, stated.memory_bytes, 1)
    return Statistic(
        key=StatisticKey(key.namespace, "", key.workload, key.container, key.identity),
        updated_at=at,
        history_since=0,
        cpu_base_millicores=stated.cpu_millicores,
        cpu_peak_millicores=stated.cpu_millicores,
        memory_base_bytes=memory,
        memory_peak_bytes=memory,
        memory_7d_max_bytes=memory,
        oom_memory_bytes=taught,
    )
