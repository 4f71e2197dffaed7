"""Statistics of workloads of which no pod runs, and whose last pods were killed for lack of memory.

No sample of theirs is missing, so none is stale; and where there are none at all, the kill says how much was not
enough.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from cruise.decisions.oom import learn_from
from cruise.decisions.usage.shown_kills import kills_that_count
from cruise.domain.cluster import Container, Pod, Snapshot
from cruise.domain.usage import PeakKey, Statistic, StatisticKey, StatisticsTable


@dataclass(frozen=True, slots=True)
class KilledWorkloads:
    """The `pods` that ended by workloads with kills and without a running pod.

    `unknown` has the containers without statistics, and what their kills taught in bytes, 0 for one that was not
    killed.
    """

    pods: Sequence[Pod]
    statistics: StatisticsTable
    unknown: dict[PeakKey, int]

    def taught(self, pod: Pod, container: str) -> int | None:
        """Return what kills alone teach of a container's memory, None where it has statistics."""
        return self.unknown.get(PeakKey(pod.namespace, str(pod.workload), container, pod.identity))


def killed_workloads(
    pods: Iterable[Pod], snapshot: Snapshot, statistics: StatisticsTable, now: datetime
) -> KilledWorkloads:
    """Return those of some pods that ended, with statistics that admission can size their successors by."""
    kills = kills_that_count(snapshot, now)
    lessons: dict[tuple[str, str, str], int] = {}
    for kill in kills:
        of = (kill.namespace, str(kill.workload), kill.container)
        lessons[of] = max(lessons.get(of, 0), learn_from(kill, None).oom_memory_bytes)
    candidates = {(kill.namespace, kill.workload) for kill in kills if kill.workload is not None}
    ended: list[Pod] = []
    running = set()
    for pod in pods if candidates else ():
        place = (pod.namespace, pod.workload)
        if place not in candidates:
            continue
        if pod.terminal:
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
    return KilledWorkloads(
        ended, statistics.joined(StatisticsTable.of_rows(assumed)) if assumed else statistics, unknown
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
