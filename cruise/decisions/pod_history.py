"""The stored history of one pod: actions, OOM kills, and its workload's peaks by hour of the day."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from cruise.domain.actions import EvictPod, Outcome, ResizePod
from cruise.domain.arrays import Float64Array
from cruise.domain.usage import HourlyPeaks, OomRecord, PeakKey

_HOURS_OF_DAY = 24


@dataclass(frozen=True, slots=True)
class HourOfDayProfile:
    """The largest samples of each hour of the day (UTC), None for an hour without samples."""

    container: str
    identity: str
    cpu_millicores: tuple[float | None, ...]
    memory_bytes: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class PodHistory:
    """Newest outcomes and kills first; profiles by container and identity."""

    outcomes: tuple[Outcome, ...]
    oom_kills: tuple[OomRecord, ...]
    profiles: tuple[HourOfDayProfile, ...]


def build_pod_history(
    namespace: str,
    pod: str,
    workload: str,
    identity: str,
    outcomes: Iterable[Outcome],
    kills: Iterable[OomRecord],
    peaks: HourlyPeaks,
) -> PodHistory:
    """Select the history of a pod: its own outcomes, the kills of its workload (`Kind/name` or empty), and its peaks.

    Peaks of other identities are omitted: a DaemonSet's belong to other nodes.
    """
    outcomes_of_pod = [
        outcome
        for outcome in outcomes
        if isinstance(outcome.action, ResizePod | EvictPod)
        and (outcome.action.namespace, outcome.action.pod) == (namespace, pod)
    ]
    kills_of_workload = [
        kill
        for kill in kills
        if kill.namespace == namespace and (kill.pod == pod or (workload and kill.workload == workload))
    ]
    return PodHistory(
        outcomes=tuple(sorted(outcomes_of_pod, key=lambda outcome: outcome.at, reverse=True)),
        oom_kills=tuple(sorted(kills_of_workload, key=lambda kill: kill.finished_at, reverse=True)),
        profiles=tuple(profile for profile in _iterate_profiles(peaks) if profile.identity in (identity, "")),
    )


def _iterate_profiles(peaks: HourlyPeaks) -> Iterable[HourOfDayProfile]:
    rows_by_key: dict[PeakKey, list[int]] = {}
    for row, key in enumerate(peaks.keys):
        rows_by_key.setdefault(key, []).append(row)
    for key, rows in sorted(rows_by_key.items()):
        hours = (peaks.hours[rows] % _HOURS_OF_DAY).tolist()
        yield HourOfDayProfile(
            key.container,
            key.identity,
            _max_by_hour(hours, peaks.cpu_demand_millicores[rows]),
            _max_by_hour(hours, peaks.memory_bytes[rows]),
        )


def _max_by_hour(hours: Sequence[int], values: Float64Array) -> tuple[float | None, ...]:
    largest: list[float | None] = [None] * _HOURS_OF_DAY
    for hour, value in zip(hours, values.tolist(), strict=True):
        if not np.isnan(value):
            largest[hour] = max(value, largest[hour] or 0.0)
    return tuple(largest)
