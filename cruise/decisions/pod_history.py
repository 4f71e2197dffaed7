"""What the store remembers of one pod: what was done to it, its kills, and its workload's peaks by clock hour."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from cruise.domain.actions import EvictPod, Outcome, ResizePod
from cruise.domain.resources import Float64Array
from cruise.domain.usage import HourlyPeaks, OomRecord, PeakKey

_HOURS_OF_DAY = 24


@dataclass(frozen=True, slots=True)
class HourProfile:
    """The largest samples of each clock hour (UTC) in the hours that are kept; None where there was no sample."""

    container: str
    identity: str
    cpu_millicores: tuple[float | None, ...]
    memory_bytes: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class PodHistory:
    """Newest outcomes and kills first; profiles by container and identity."""

    outcomes: tuple[Outcome, ...]
    oom_kills: tuple[OomRecord, ...]
    profiles: tuple[HourProfile, ...]


def build_pod_history(
    namespace: str,
    pod: str,
    workload: str,
    identity: str,
    outcomes: Iterable[Outcome],
    kills: Iterable[OomRecord],
    peaks: HourlyPeaks,
) -> PodHistory:
    """Pick what concerns a pod: its own outcomes, the kills of its workload (`Kind/name` or empty), and the peaks.

    Peaks of other identities are left out: those of a DaemonSet tell of other nodes.
    """
    own = [
        outcome
        for outcome in outcomes
        if isinstance(outcome.action, ResizePod | EvictPod)
        and (outcome.action.namespace, outcome.action.pod) == (namespace, pod)
    ]
    own_kills = [
        kill
        for kill in kills
        if kill.namespace == namespace and (kill.pod == pod or (workload and kill.workload == workload))
    ]
    return PodHistory(
        outcomes=tuple(sorted(own, key=lambda outcome: outcome.at, reverse=True)),
        oom_kills=tuple(sorted(own_kills, key=lambda kill: kill.finished_at, reverse=True)),
        profiles=tuple(profile for profile in _profiles(peaks) if profile.identity in (identity, "")),
    )


def _profiles(peaks: HourlyPeaks) -> Iterable[HourProfile]:
    rows_of: dict[PeakKey, list[int]] = {}
    for row, key in enumerate(peaks.keys):
        rows_of.setdefault(key, []).append(row)
    for key, rows in sorted(rows_of.items()):
        hours = (peaks.hours[rows] % _HOURS_OF_DAY).tolist()
        yield HourProfile(
            key.container,
            key.identity,
            _by_hour(hours, peaks.cpu_demand_millicores[rows]),
            _by_hour(hours, peaks.memory_bytes[rows]),
        )


def _by_hour(hours: Sequence[int], values: Float64Array) -> tuple[float | None, ...]:
    largest: list[float | None] = [None] * _HOURS_OF_DAY
    for hour, value in zip(hours, values.tolist(), strict=True):
        if not np.isnan(value):
            largest[hour] = max(value, largest[hour] or 0.0)
    return tuple(largest)
