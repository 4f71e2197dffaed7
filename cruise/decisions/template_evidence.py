"""The statistics that template sizes are based on, also for workloads whose last pods were killed and do not run.

Such workloads lack no samples, so their statistics are not stale; if there are none, the kill shows how much memory was
too little.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import reduce
from operator import or_
from typing import Any

from cruise.decisions.oom import build_oom_record
from cruise.decisions.usage.oom_records import find_relevant_oom_kills
from cruise.domain.cluster import ClusterSnapshot, Container, Pod
from cruise.domain.usage import STATISTIC_COLUMNS, PeakKey, Statistic, StatisticColumns, StatisticKey, StatisticsTable


@dataclass(frozen=True, slots=True)
class TemplateEvidence:
    """The largest figures of a workload's pods; times in Unix seconds, `history_since` 0 if unknown."""

    cpu_base_millicores: int = 0
    cpu_peak_millicores: int = 0
    memory_base_bytes: int = 0
    memory_peak_bytes: int = 0
    memory_7d_max_bytes: int = 0
    oom_memory_bytes: int = 0
    history_since: int = 0
    updated_at: int = 0


def combine_evidence(statistics: Sequence[Statistic]) -> TemplateEvidence:
    """Combine the statistics of pods that share a template."""
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
    """Add a row for each workload of which only single pods are known, as in files: the largest of their figures."""
    pods: dict[StatisticKey, list[int]] = {}
    for row, key in enumerate(statistics.keys):
        if key.pod and key.workload:
            pods.setdefault(key._replace(pod=""), []).append(row)
    known = {key for key in statistics.keys if not key.pod}
    missing = {key: rows for key, rows in pods.items() if key not in known}
    if not missing:
        return statistics
    joined = [_combine(statistics, rows) for rows in missing.values()]
    columns = StatisticColumns.from_getter(lambda name: [one[name] for one in joined])
    return statistics.join(StatisticsTable.from_columns(columns, list(missing)))


def _combine(statistics: StatisticsTable, rows: Sequence[int]) -> dict[str, Any]:
    """Return the largest figures of some rows, and the earliest times."""
    joined = {name: max(getattr(statistics, name)[list(rows)].tolist()) for name in STATISTIC_COLUMNS}
    for name in ("history_since", "updated_at", "psi_known"):
        joined[name] = min(getattr(statistics, name)[list(rows)].tolist())
    return joined | {"rejected_reasons": reduce(or_, statistics.rejected_reasons[list(rows)].tolist())}


@dataclass(frozen=True, slots=True)
class OomKilledWorkloads:
    """Workloads with kills and without a running pod: their finished `pods`, and statistics.

    `unknown` holds the containers without statistics, with the OOM memory of their kills in bytes, 0 without a kill.
    """

    pods: Sequence[Pod]
    statistics: StatisticsTable
    unknown: dict[PeakKey, int]

    def get_oom_memory(self, pod: Pod, container: str) -> int | None:
        """Return the OOM memory of a container without statistics, None if it has statistics."""
        return self.unknown.get(PeakKey(pod.namespace, str(pod.workload), container, pod.identity))


def find_oom_killed_workloads(
    pods: Iterable[Pod], snapshot: ClusterSnapshot, statistics: StatisticsTable, now: datetime
) -> OomKilledWorkloads:
    """Return the finished pods of such workloads, with statistics by which admission can size their successors."""
    kills = find_relevant_oom_kills(snapshot, now)
    oom_memory: dict[tuple[str, str, str], int] = {}
    for kill in kills:
        killed = (kill.namespace, str(kill.workload), kill.container)
        oom_memory[killed] = max(oom_memory.get(killed, 0), build_oom_record(kill, None).oom_memory_bytes)
    candidates = {(kill.namespace, kill.workload) for kill in kills if kill.workload is not None}
    ended: list[Pod] = []
    running = set()
    for pod in pods if candidates else ():
        key_of_pod = (pod.namespace, pod.workload)
        if key_of_pod not in candidates:
            continue
        if pod.is_finished:
            ended.append(pod)
        elif not pod.terminating:
            running.add(key_of_pod)
    ended = [pod for pod in ended if (pod.namespace, pod.workload) not in running]
    unknown: dict[PeakKey, int] = {}
    assumed: list[Statistic] = []
    updated_at, at = statistics.updated_at.copy(), int(now.timestamp())
    for pod in ended:
        for container in pod.sized_containers:
            row = statistics.find_row(pod.namespace, "", pod.workload, container.name, pod.identity)
            key = PeakKey(pod.namespace, str(pod.workload), container.name, pod.identity)
            if row is not None:
                updated_at[row] = max(int(updated_at[row]), at)
            elif key not in unknown:
                unknown[key] = oom_memory.get((key.namespace, key.workload, key.container), 0)
                assumed.append(_assume_statistic(key, container, unknown[key], at))
    statistics = replace(statistics, updated_at=updated_at)
    return OomKilledWorkloads(
        ended, statistics.join(StatisticsTable.from_rows(assumed)) if assumed else statistics, unknown
    )


def _assume_statistic(key: PeakKey, container: Container, oom_memory: int, at: int) -> Statistic:
    """Return assumed statistics of a container: its requests, and the memory that was too little."""
    stated = container.requests.resources
    memory = max(oom_memory, stated.memory_bytes, 1)
    return Statistic(
        key=StatisticKey(key.namespace, "", key.workload, key.container, key.identity),
        updated_at=at,
        history_since=0,
        cpu_base_millicores=stated.cpu_millicores,
        cpu_peak_millicores=stated.cpu_millicores,
        memory_base_bytes=memory,
        memory_peak_bytes=memory,
        memory_7d_max_bytes=memory,
        oom_memory_bytes=oom_memory,
    )
