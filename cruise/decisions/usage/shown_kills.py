"""The out-of-memory kills that pod statuses show and that still say something about the next pod of a workload."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from cruise.domain.cluster import OomKill, Pod, Snapshot, WorkloadRef

TEACHES_FOR = timedelta(days=7)
"""How long a kill is remembered: `oom_memory` is that of the last seven days."""


def kills_that_count(snapshot: Snapshot, now: datetime) -> Sequence[OomKill]:
    """Return the kills of the last seven days, and of the last run of a workload whose pods run to completion."""
    old = {
        (one.namespace, one.workload)
        for one in snapshot.oom_kills
        if one.runs_to_completion and now - one.finished_at > TEACHES_FOR
    }
    last: dict[tuple[str, WorkloadRef | None], Pod] = {}
    for pod in snapshot.pods if old else ():
        place = (pod.namespace, pod.workload)
        if place in old and (place not in last or _created(pod) > _created(last[place])):
            last[place] = pod
    return [one for one in snapshot.oom_kills if now - one.finished_at <= TEACHES_FOR or _is_of_last_run(one, last)]


def _is_of_last_run(kill: OomKill, last: dict[tuple[str, WorkloadRef | None], Pod]) -> bool:
    newest = last.get((kill.namespace, kill.workload))
    return kill.runs_to_completion and (kill.workload is None or newest is None or newest.name == kill.pod)


def _created(pod: Pod) -> float:
    return 0.0 if pod.created_at is None else pod.created_at.timestamp()
