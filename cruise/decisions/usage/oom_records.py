"""What kills teach, and which containers learn it: one kill its own pod, two the whole workload.

One kill is enough where the killed pod does not run again: the workload's next pod has another name.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import NamedTuple

import numpy as np

from cruise.domain.cluster import ClusterSnapshot, OomKill, Pod, WorkloadRef
from cruise.domain.resources import Int64Array
from cruise.domain.usage import ContainerKey, OomRecord, PeakKey, StatisticColumns, StatisticsTable

NEAR_SHARE = 0.8
"""From which share of the limit at a single kill on another pod of the workload is about to be killed as well."""


class SingleOomKill(NamedTuple):
    """What a workload's only kill taught, for pods that use `from_bytes` or more."""

    raised_to_bytes: int
    from_bytes: float


@dataclass(frozen=True, slots=True)
class OomKillEffects:
    """What kills taught: `of_pods` their own, `of_keys` identities and whole workloads.

    `single` has the workloads with one kill that the killed pod alone learns from, by their key without identity.
    """

    by_pod: Mapping[ContainerKey, int] = field(default_factory=dict)
    by_key: Mapping[PeakKey, int] = field(default_factory=dict)
    single: Mapping[PeakKey, SingleOomKill] = field(default_factory=dict)


def summarize_oom_records(records: Iterable[OomRecord]) -> OomKillEffects:
    """Put together what kills taught; one that taught nothing does not count."""
    of_pods: dict[ContainerKey, int] = {}
    of_keys: dict[PeakKey, int] = {}
    kills: dict[PeakKey, list[OomRecord]] = {}
    for one in records:
        taught = one.oom_memory_bytes
        if not taught:
            continue
        own = ContainerKey(one.namespace, one.pod, one.container)
        of_pods[own] = max(taught, of_pods.get(own, 0))
        key = PeakKey(one.namespace, one.workload, one.container, one.identity)
        if one.identity:
            of_keys[key] = max(taught, of_keys.get(key, 0))
        if one.workload:
            kills.setdefault(key._replace(identity=""), []).append(one)
    single = {}
    for key, known in kills.items():
        if len(known) > 1 or known[0].applies_to_workload:
            of_keys[key] = max(one.oom_memory_bytes for one in known)
        else:
            single[key] = summarize_single_kill(known[0].oom_memory_bytes, known[0].memory_limit_bytes)
    return OomKillEffects(of_pods, of_keys, single)


def summarize_single_kill(taught_bytes: int, limit_bytes: int | None) -> SingleOomKill:
    """Return what one kill teaches the other pods of its workload."""
    return SingleOomKill(taught_bytes, NEAR_SHARE * (taught_bytes if limit_bytes is None else limit_bytes))


def raise_by_single_kills(
    columns: StatisticColumns, parents: Int64Array, single: Mapping[int, SingleOomKill]
) -> StatisticColumns:
    """Return statistics of containers with what a single kill teaches those that use nearly as much.

    `parents` has the number of each one's workload, by which `single` has the lessons.
    """
    if not single:
        return columns
    oom, use = columns.oom_memory_bytes.copy(), np.maximum(columns.memory_base_bytes, columns.memory_last_bytes)
    for number, lesson in single.items():
        near = (parents == number) & (use >= lesson.from_bytes)
        oom[near] = np.maximum(oom[near], lesson.raised_to_bytes)
    return replace(columns, oom_memory_bytes=oom)


def raise_by_own_kills(table: StatisticsTable, of_pods: Mapping[ContainerKey, int]) -> StatisticsTable:
    """Return a table with what their own kills taught containers."""
    known = [(row, taught) for key, taught in of_pods.items() if (row := table.row_of_container.get(key)) is not None]
    if not known:
        return table
    oom = table.oom_memory_bytes.copy()
    for row, taught in known:
        oom[row] = max(int(oom[row]), taught)
    return replace(table, oom_memory_bytes=oom)


def raise_oom_memory(table: StatisticsTable, record: OomRecord, *, shared: bool) -> StatisticsTable:
    """Raise `oom_memory` to what a kill taught: in the pod's own row and in its identity's.

    A lesson that is `shared` is the whole workload's, as far as a row speaks for it.
    """
    rows = [table.row_of_container.get(ContainerKey(record.namespace, record.pod, record.container))]
    of_workload = PeakKey(record.namespace, record.workload, record.container, record.identity)
    if record.identity or shared:
        rows.append(table.row_of_workload.get(of_workload))
    if shared:
        rows.append(table.row_of_workload.get(of_workload._replace(identity="")))
    oom = table.oom_memory_bytes.copy()
    for row in rows:
        if row is not None:
            oom[row] = max(int(oom[row]), record.oom_memory_bytes)
    return replace(table, oom_memory_bytes=oom)


# The out-of-memory kills that pod statuses show and that still say something about the next pod of a workload.

OOM_KILL_RETENTION = timedelta(days=7)
"""How long a kill is remembered: `oom_memory` is that of the last seven days."""


def find_relevant_oom_kills(snapshot: ClusterSnapshot, now: datetime) -> Sequence[OomKill]:
    """Return the kills of the last seven days, and of the last run of a workload whose pods run to completion."""
    old = {
        (one.namespace, one.workload)
        for one in snapshot.oom_kills
        if one.runs_to_completion and now - one.finished_at > OOM_KILL_RETENTION
    }
    last: dict[tuple[str, WorkloadRef | None], Pod] = {}
    for pod in snapshot.pods if old else ():
        place = (pod.namespace, pod.workload)
        if place in old and (place not in last or _created(pod) > _created(last[place])):
            last[place] = pod
    return [
        one for one in snapshot.oom_kills if now - one.finished_at <= OOM_KILL_RETENTION or _is_of_last_run(one, last)
    ]


def _is_of_last_run(kill: OomKill, last: dict[tuple[str, WorkloadRef | None], Pod]) -> bool:
    newest = last.get((kill.namespace, kill.workload))
    return kill.runs_to_completion and (kill.workload is None or newest is None or newest.name == kill.pod)


def _created(pod: Pod) -> float:
    return 0.0 if pod.created_at is None else pod.created_at.timestamp()
