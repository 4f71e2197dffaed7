"""The CPU that containers use while their pods start: which samples belong to a start, and what a workload needs."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from cruise.domain.cluster import ClusterSnapshot, Pod
from cruise.domain.records import CONTAINER_STARTS_KEPT
from cruise.domain.startup_boosts import LONGEST_START, READY_TIME
from cruise.domain.usage import (
    ContainerKey,
    ContainerStart,
    PartitionCounterTail,
    PeakKey,
    SampleBlock,
    StatisticsTable,
)

# Fewer starts may all belong to one rollout on one bad day.
LEAST_STARTS = 3
START_SHARE = 0.9
_LONGEST_SECONDS = int(LONGEST_START.total_seconds())

_started_at = attrgetter("started_at")


class StartWindow(NamedTuple):
    """When a pod started and, if it has been ready, when its start ended (Unix seconds, 0: not yet)."""

    namespace: str
    pod: str
    workload: str  # Kind/name
    pod_uid: str
    started_at: int
    ends_at: int


@dataclass(frozen=True, slots=True)
class StartWindows:
    """The starts of the running pods of a snapshot, sorted by time."""

    windows: Sequence[StartWindow] = ()

    @staticmethod
    def from_snapshot(snapshot: ClusterSnapshot, since: int = 0) -> "StartWindows":
        """Return the starts that may be learned from: of pods that belong to a workload and run until they are deleted.

        Starts that were over at `since` (Unix seconds) are left out. A pod that took longer than any start to become
        ready, or became ready again later, is left out too: which of its samples belong to the start is unknown.
        """
        oldest = datetime.fromtimestamp(max(since - _LONGEST_SECONDS, 0), UTC)
        windows = (
            _find_window(pod, pod.started_at)
            for pod in snapshot.pods
            if pod.started_at is not None and pod.started_at >= oldest
        )
        return StartWindows(sorted((one for one in windows if one is not None), key=_started_at))

    def select(self, after: int, until: int) -> dict[tuple[str, str], StartWindow]:
        """Return the starts that may have samples between two times, by namespace and pod."""
        first = bisect_left(self.windows, after - _LONGEST_SECONDS, key=_started_at)
        last = bisect_right(self.windows, until, key=_started_at)
        return {(one.namespace, one.pod): one for one in self.windows[first:last] if not 0 < one.ends_at <= after}


def measure_container_starts(
    block: SampleBlock,
    windows: StartWindows,
    step_seconds: int,
    tail: PartitionCounterTail | None = None,
    before: PartitionCounterTail | None = None,
) -> list[ContainerStart]:
    """Return what a block shows of the starts of its containers' pods; a sample is about the step that ends then.

    A container has no sample until it has two scrapes. Its first counter is what it had used until then: `tail`
    are the counters at the end of the block, `before` those at the end of the read before.
    """
    if not len(block.times):
        return []
    selected = windows.select(int(block.times[0]) - step_seconds, int(block.times[-1]))
    first_uses = _measure_first_uses(selected, step_seconds, tail, before) if selected and tail and before else {}
    starts = []
    for row, key in enumerate(block.keys) if selected else ():
        window = selected.get((key.namespace, key.pod))
        if window is None:
            continue
        end = window.ends_at or window.started_at + _LONGEST_SECONDS
        during = (block.times > window.started_at) & (block.times < end + step_seconds)
        during &= ~np.isnan(block.cpu_demand_millicores[row])
        times = block.times[during]
        first_use = first_uses.get(key, _FirstUse(0, 0.0))
        starts.append(
            ContainerStart(
                window.namespace,
                window.workload,
                key.container,
                window.pod_uid,
                window.started_at,
                window.ends_at,
                max(int(times[-1]) if len(times) else 0, first_use.at),
                float(block.cpu_demand_millicores[row, during].max(initial=first_use.cpu_millicores)),
            )
        )
    return starts


class _FirstUse(NamedTuple):
    """The mean CPU of a container from the start of its pod to the time of its first counter."""

    at: int
    cpu_millicores: float


def _measure_first_uses(
    selected: Mapping[tuple[str, str], StartWindow],
    step_seconds: int,
    tail: PartitionCounterTail,
    before: PartitionCounterTail,
) -> dict[ContainerKey, _FirstUse]:
    """Return the use of containers that have their first counter in this read, if it was during the start.

    It is a lower bound: containers start after their pods, and a scrape is not after the time of its counter.
    """
    known = set(before.series)
    found: dict[ContainerKey, _FirstUse] = {}
    for row, key in enumerate(tail.keys):
        window = selected.get((key.namespace, key.pod))
        if window is None or tail.series[row] in known or np.isnan(tail.cpu_seconds[row]):
            continue
        at = int(tail.changed_at[row])
        end = window.ends_at or window.started_at + _LONGEST_SECONDS
        if window.started_at < at < end + step_seconds:
            use = _FirstUse(at, float(tail.cpu_seconds[row]) / (at - window.started_at) * 1000)
            found[key] = max(found.get(key, use), use)
    return found


def estimate_start_cpu(starts: Iterable[ContainerStart]) -> int:
    """Return the CPU that the start of a workload's container needs, 0 if too few starts are known.

    This is the 90th percentile of the largest demand of the newest starts.
    """
    complete = sorted((one for one in starts if one.is_complete), key=_started_at)[-CONTAINER_STARTS_KEPT:]
    if len(complete) < LEAST_STARTS:
        return 0
    return int(np.ceil(np.quantile([one.cpu_peak_millicores for one in complete], START_SHARE)))


def add_start_cpu(table: StatisticsTable, estimates: Mapping[PeakKey, int]) -> StatisticsTable:
    """Write the estimates into the rows of the workloads."""
    column = table.cpu_start_millicores.copy()
    for key, millicores in estimates.items():
        row = table.row_of_workload.get(key)
        if row is not None:
            column[row] = millicores
    return replace(table, cpu_start_millicores=column)


def _find_window(pod: Pod, started_at: datetime) -> StartWindow | None:
    if pod.node is None or pod.workload is None or pod.runs_to_completion:
        return None
    ends_at = 0
    if pod.ready_since is not None:
        if pod.ready_since - started_at > LONGEST_START:
            return None
        ends_at = int((min(pod.ready_since + READY_TIME, started_at + LONGEST_START)).timestamp())
    return StartWindow(pod.namespace, pod.name, str(pod.workload), pod.uid, int(started_at.timestamp()), ends_at)
