"""Simulates HPAs in a replay: replicas follow the utilization of the requests that a policy sets."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from cruise.backtest.recordings.scaling import RecordedAutoscaler, ScaledRecording
from cruise.backtest.replay.cluster import ReplayedCluster
from cruise.backtest.replay.nodes import ABSENT_NODE, ReplayedPodState
from cruise.domain.arrays import Float64Array, Int64Array
from cruise.domain.autoscalers import UtilizationMetric, UtilizationScaling, add_reported_utilization
from cruise.domain.backtest import AutoscalingScore
from cruise.domain.cluster import HorizontalPodAutoscaler
from cruise.domain.resources import ResourceName
from cruise.simulation.horizontal_autoscaler import (
    MeasuredPod,
    SimulatedHpa,
    compute_replicas_for_metric,
    compute_utilization,
)

_HOUR_SECONDS = 3600
_HISTORY_HOURS = 7 * 24
# A policy learns of a new maximum in its next pass, and pods stay for the scale-down window.
_EXPLAINING_SECONDS = _HOUR_SECONDS
_WHOLE = "pod"


class _UseHistory:
    """The largest use of one pod of each workload in each of the last hours."""

    def __init__(self, workloads: int) -> None:
        self._hours = np.full(_HISTORY_HOURS + 1, -1, dtype=np.int64)
        self._largest = np.zeros((_HISTORY_HOURS + 1, workloads))

    def find_new_maxima(self, time: int, use: Float64Array) -> Int64Array:
        """Return the workloads whose use exceeds the last 7 days, and add the use; NaN is no use."""
        hour = time // _HOUR_SECONDS
        slot = hour % len(self._hours)
        if self._hours[slot] != hour:
            self._hours[slot], self._largest[slot] = hour, 0.0
        is_recent = self._hours >= hour - _HISTORY_HOURS
        found = np.flatnonzero(use > self._largest[is_recent].max(axis=0))
        self._largest[slot] = np.fmax(self._largest[slot], use)
        return found


class ReplayedAutoscaling:
    """The HPAs of a replay, and for comparison the same HPAs over pods that keep the template's requests."""

    def __init__(self, scaled: ScaledRecording, pods: ReplayedPodState, cluster: ReplayedCluster) -> None:
        self._scaled = scaled
        self._pods = pods
        self._cluster = cluster
        self._autoscalers = scaled.autoscalers
        smallest = [one.min_replicas for one in scaled.autoscalers]
        self._replicas = np.array(smallest, dtype=np.int64)
        self._unchanged_replicas = self._replicas.copy()
        self._controllers, self._unchanged_controllers = (
            [SimulatedHpa(one.min_replicas, one.max_replicas) for one in scaled.autoscalers] for _ in range(2)
        )
        self._history = _UseHistory(len(smallest))
        self._is_explained = np.zeros(len(smallest), dtype=np.bool_)
        self._last_maximum = np.full(len(smallest), -(1 << 60), dtype=np.int64)
        self._score = AutoscalingScore()
        self._pods.autoscalers = tuple(
            self._describe(one, one.min_replicas, one.min_replicas, None) for one in scaled.autoscalers
        )

    def sync(self, row: int, time: int) -> None:
        """Count the sample of one row, and let the HPAs act on it: pods are created and removed."""
        running = [number for number, one in enumerate(self._autoscalers) if one.first_row <= row <= one.last_row]
        demand = self._scaled.cpu_demand[row].astype(np.float64)
        self._count(running, demand, time)
        before, unchanged_before = self._replicas.copy(), self._unchanged_replicas.copy()
        described = list(self._pods.autoscalers)
        for number in running:
            one = self._autoscalers[number]
            if not np.isnan(demand[number]):
                percent = self._reconcile(number, float(demand[number]), time)
                now = self._describe(one, int(before[number]), int(self._replicas[number]), percent)
                # The same object, so that its pods are not checked again.
                described[number] = described[number] if now == described[number] else now
        if any(now is not before for now, before in zip(described, self._pods.autoscalers, strict=True)):
            self._pods.autoscalers = tuple(described)
        self._score = replace(
            self._score,
            scale_events=self._score.scale_events + int(np.count_nonzero(before != self._replicas)),
            unchanged_scale_events=self._score.unchanged_scale_events
            + int(np.count_nonzero(unchanged_before != self._unchanged_replicas)),
        )
        for number in running:
            if row == self._autoscalers[number].last_row:
                # The others end with the recording.
                self._replicas[number] = min(self._replicas[number], self._autoscalers[number].min_replicas)
        changed = np.flatnonzero(before != self._replicas).tolist()
        for number in changed:
            self._write_use(self._autoscalers[number], int(self._replicas[number]), row + 1, number)
        self._scale(changed, before, time)

    def _reconcile(self, number: int, demand: float, time: int) -> int | None:
        """Decide the replicas after one sample; return the utilization of the ready pods, None without any."""
        one, current = self._autoscalers[number], int(self._replicas[number])
        step = self._scaled.recording.step_seconds
        places = slice(one.first, one.first + current)
        requests, is_ready = self._pods.sizes.cpu_millicores[places].tolist(), (self._pods.node[places] >= 0).tolist()
        use = round(demand / current)
        pods = [
            MeasuredPod({_WHOLE: max(1, request)}, {_WHOLE: use}, is_ready=ready)
            for request, ready in zip(requests, is_ready, strict=True)
        ]
        wanted = compute_replicas_for_metric(pods, one.target_percent, _WHOLE, current)
        self._replicas[number] = self._controllers[number].reconcile(time, current, [wanted], step)
        unchanged = int(self._unchanged_replicas[number])
        pod = MeasuredPod({_WHOLE: one.container.requests.cpu_millicores}, {_WHOLE: round(demand / unchanged)})
        wanted = compute_replicas_for_metric([pod] * unchanged, one.target_percent, _WHOLE, unchanged)
        self._unchanged_replicas[number] = self._unchanged_controllers[number].reconcile(
            time, unchanged, [wanted], step
        )
        measured = [(use, request) for request, ready in zip(requests, is_ready, strict=True) if ready and request]
        return compute_utilization(measured) if measured else None

    def _count(self, running: Sequence[int], demand: Float64Array, time: int) -> None:
        """Add one sample's time to the score."""
        chosen, score = np.array(running, dtype=np.int64), self._score
        minutes = self._scaled.recording.step_seconds / 60
        replicas, unchanged = self._replicas[chosen], self._unchanged_replicas[chosen]
        new_maxima = self._history.find_new_maxima(time, demand / np.maximum(self._unchanged_replicas, 1))
        differs = np.zeros(len(demand), dtype=np.bool_)
        differs[chosen] = replicas != unchanged
        requested, unchanged_requested = self._sum_requests_at_minimum(running)
        self._score = replace(
            score,
            workload_minutes=score.workload_minutes + minutes * len(running),
            replica_minutes=score.replica_minutes + minutes * int(replicas.sum()),
            unchanged_replica_minutes=score.unchanged_replica_minutes + minutes * int(unchanged.sum()),
            differing_minutes=score.differing_minutes + minutes * int(np.count_nonzero(differs)),
            unexplained_minutes=score.unexplained_minutes
            + minutes * int(np.count_nonzero(differs & ~self._is_explained)),
            core_minutes_at_minimum=score.core_minutes_at_minimum + minutes * requested / 1000,
            unchanged_core_minutes_at_minimum=score.unchanged_core_minutes_at_minimum
            + minutes * unchanged_requested / 1000,
        )
        # What begins to differ after this sample is explained if no sample of the 7 days before was as large.
        self._last_maximum[new_maxima] = time
        is_recent = time - self._last_maximum <= _EXPLAINING_SECONDS
        self._is_explained = np.where(differs, self._is_explained, is_recent)

    def _sum_requests_at_minimum(self, running: Sequence[int]) -> tuple[int, int]:
        """Return the CPU requests of workloads that would be at their minimum of replicas, and the unchanged ones."""
        requested = unchanged = 0
        for number in running:
            one = self._autoscalers[number]
            if self._unchanged_replicas[number] == one.min_replicas:
                end = one.first + int(self._replicas[number])
                requested += int(self._pods.sizes.cpu_millicores[one.first : end].sum())
                unchanged += one.container.requests.cpu_millicores * one.min_replicas
        return requested, unchanged

    def _write_use(self, one: RecordedAutoscaler, replicas: int, row: int, number: int) -> None:
        """Share the demand from a row on between the replicas."""
        recording, rows = self._scaled.recording, slice(row, one.last_row + 1)
        places, beyond = (
            slice(one.first, one.first + replicas),
            slice(one.first + replicas, one.first + one.max_replicas),
        )
        recording.cpu_millicores[rows, places] = (self._scaled.cpu_demand[rows, number] / replicas)[:, np.newaxis]
        recording.cpu_millicores[rows, beyond] = np.nan
        if recording.has_memory:
            recording.memory_bytes[rows, places] = self._scaled.memory_bytes[rows, number, np.newaxis]
            recording.memory_bytes[rows, beyond] = np.nan

    def _scale(self, changed: Sequence[int], before: Int64Array, time: int) -> None:
        """Remove pods, the last ones first, and create others."""
        removed: list[int] = []
        created: list[int] = []
        for number in changed:
            first, now, then = self._autoscalers[number].first, int(self._replicas[number]), int(before[number])
            removed += range(first + now, first + then)
            created += range(first + then, first + now)
        gone = np.array(removed, dtype=np.int64)
        self._cluster.remove(gone[self._pods.node[gone] != ABSENT_NODE])
        self._cluster.create(np.array(created, dtype=np.int64), time)

    def _describe(
        self, one: RecordedAutoscaler, current: int, desired: int, percent: int | None
    ) -> HorizontalPodAutoscaler:
        """Return the HPA as its controller reports it after a sync."""
        metric = UtilizationMetric(ResourceName.CPU, "", one.target_percent)
        if percent is not None:
            requests = self._pods.sizes.cpu_millicores[one.first : one.first + current]
            average = int(requests.sum()) // max(1, current)
            metric = add_reported_utilization(
                metric,
                percent,
                average,
                is_at_minimum=current == one.min_replicas,
                is_at_maximum=current == one.max_replicas,
            )
        scaling = UtilizationScaling((metric,), one.min_replicas, one.max_replicas, current, desired, True)
        container = one.container
        return HorizontalPodAutoscaler(
            container.namespace,
            container.workload.name,
            container.workload,
            frozenset({ResourceName.CPU}),
            "apps/v1",
            scaling,
        )

    def get_score(self) -> AutoscalingScore:
        """Return what the HPAs did so far."""
        return self._score
