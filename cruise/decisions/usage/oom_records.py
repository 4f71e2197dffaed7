"""OOM memory: one kill raises that of its own pod, two raise that of the whole workload (ADR 0010).

A single kill raises the workload if the killed pod does not run again: the workload's next pod has another name.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import NamedTuple

import numpy as np

from cruise.domain.arrays import Int64Array
from cruise.domain.cluster import ClusterSnapshot, OomKill, Pod, WorkloadRef
from cruise.domain.usage import ContainerKey, OomRecord, PeakKey, StatisticColumns, StatisticsTable

NEAR_SHARE = 0.8
"""Share of the limit at a single kill from which another pod of the workload is about to be killed as well."""


class SingleOomKillEffect(NamedTuple):
    """The effect of a workload's only kill, on pods that use `from_bytes` or more."""

    raised_to_bytes: int
    from_bytes: float


@dataclass(frozen=True, slots=True)
class OomKillEffects:
    """The OOM memory after kills: `by_pod` of killed pods, `by_key` of identities and whole workloads.

    `single` holds workloads with one kill that affects only the killed pod, by their key without identity.
    """

    by_pod: Mapping[ContainerKey, int] = field(default_factory=dict)
    by_key: Mapping[PeakKey, int] = field(default_factory=dict)
    single: Mapping[PeakKey, SingleOomKillEffect] = field(default_factory=dict)


def summarize_oom_records(records: Iterable[OomRecord]) -> OomKillEffects:
    """Combine OOM records; one without OOM memory does not count."""
    by_pod: dict[ContainerKey, int] = {}
    by_key: dict[PeakKey, int] = {}
    kills: dict[PeakKey, list[OomRecord]] = {}
    for one in records:
        oom_memory = one.oom_memory_bytes
        if not oom_memory:
            continue
        own = ContainerKey(one.namespace, one.pod, one.container)
        by_pod[own] = max(oom_memory, by_pod.get(own, 0))
        key = PeakKey(one.namespace, one.workload, one.container, one.identity)
        if one.identity:
            by_key[key] = max(oom_memory, by_key.get(key, 0))
        if one.workload:
            kills.setdefault(key._replace(identity=""), []).append(one)
    single = {}
    for key, known in kills.items():
        if len(known) > 1 or known[0].applies_to_workload:
            by_key[key] = max(one.oom_memory_bytes for one in known)
        else:
            single[key] = summarize_single_kill(known[0].oom_memory_bytes, known[0].memory_limit_bytes)
    return OomKillEffects(by_pod, by_key, single)


def summarize_single_kill(oom_memory_bytes: int, limit_bytes: int | None) -> SingleOomKillEffect:
    """Return the effect of one kill on the other pods of its workload."""
    return SingleOomKillEffect(
        oom_memory_bytes, NEAR_SHARE * (oom_memory_bytes if limit_bytes is None else limit_bytes)
    )


def raise_by_single_kills(
    columns: StatisticColumns, parents: Int64Array, single: Mapping[int, SingleOomKillEffect]
) -> StatisticColumns:
    """Raise the OOM memory of containers that use nearly as much as a single kill of their workload.

    `parents` holds the number of each container's workload, which `single` refers to.
    """
    if not single:
        return columns
    oom, use = columns.oom_memory_bytes.copy(), np.maximum(columns.memory_base_bytes, columns.memory_last_bytes)
    for number, kill in single.items():
        is_near = (parents == number) & (use >= kill.from_bytes)
        oom[is_near] = np.maximum(oom[is_near], kill.raised_to_bytes)
    return replace(columns, oom_memory_bytes=oom)


def raise_by_own_kills(table: StatisticsTable, by_pod: Mapping[ContainerKey, int]) -> StatisticsTable:
    """Raise the OOM memory of containers that were killed themselves."""
    known = [
        (row, oom_memory) for key, oom_memory in by_pod.items() if (row := table.row_of_container.get(key)) is not None
    ]
    if not known:
        return table
    oom = table.oom_memory_bytes.copy()
    for row, oom_memory in known:
        oom[row] = max(int(oom[row]), oom_memory)
    return replace(table, oom_memory_bytes=oom)


def raise_oom_memory_by_record(table: StatisticsTable, record: OomRecord, *, shared: bool) -> StatisticsTable:
    """Raise the OOM memory in the rows of the killed pod and its identity, and of the workload if `shared`."""
    rows = [table.row_of_container.get(ContainerKey(record.namespace, record.pod, record.container))]
    key = PeakKey(record.namespace, record.workload, record.container, record.identity)
    if record.identity or shared:
        rows.append(table.row_of_workload.get(key))
    if shared:
        rows.append(table.row_of_workload.get(key._replace(identity="")))
    oom = table.oom_memory_bytes.copy()
    for row in rows:
        if row is not None:
            oom[row] = max(int(oom[row]), record.oom_memory_bytes)
    return replace(table, oom_memory_bytes=oom)


OOM_KILL_RETENTION = timedelta(days=7)
"""How long a kill counts towards the OOM memory."""


def find_relevant_oom_kills(snapshot: ClusterSnapshot, now: datetime) -> Sequence[OomKill]:
    """Return the kills of the last seven days, and of the last run of workloads whose pods run to completion."""
    with_old_kills = {
        (one.namespace, one.workload)
        for one in snapshot.oom_kills
        if one.runs_to_completion and now - one.finished_at > OOM_KILL_RETENTION
    }
    newest_pod: dict[tuple[str, WorkloadRef | None], Pod] = {}
    for pod in snapshot.pods if with_old_kills else ():
        key = (pod.namespace, pod.workload)
        if key in with_old_kills and (key not in newest_pod or _created(pod) > _created(newest_pod[key])):
            newest_pod[key] = pod
    return [
        one
        for one in snapshot.oom_kills
        if now - one.finished_at <= OOM_KILL_RETENTION or _is_of_last_run(one, newest_pod)
    ]


def _is_of_last_run(kill: OomKill, last: dict[tuple[str, WorkloadRef | None], Pod]) -> bool:
    newest = last.get((kill.namespace, kill.workload))
    return kill.runs_to_completion and (kill.workload is None or newest is None or newest.name == kill.pod)


def _created(pod: Pod) -> float:
    return 0.0 if pod.created_at is None else pod.created_at.timestamp()
