"""The metrics of a replay, computed sample by sample from the views that a policy saw."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cruise.backtest.recordings.recording import UsageRecording
from cruise.backtest.replay.policy import ReplayClusterView, ReplayOptions
from cruise.domain.arrays import Float32Array


@dataclass
class ReferenceAccounts:
    """Shares of one resource, as `ResourceScore` has them."""

    relative_slack: float
    starved_share: float
    short_share: float


def of_resource(
    recording: UsageRecording, views: Sequence[ReplayClusterView], use: Float32Array, resource: str
) -> ReferenceAccounts:
    """Return the shares; sizes and places must not have changed between an interval's start and its pass."""
    requested = used = 0.0
    samples = starved = node_intervals = short = 0
    row = 0
    for view in views:
        allocatable = getattr(view.allocatable, resource)
        requests = getattr(view.sizes, resource)
        largest: dict[int, float] = defaultdict(float)
        while row < len(use) and recording.start + row * recording.step_seconds <= view.time:
            on_node: dict[int, float] = defaultdict(float)
            for container, node in enumerate(view.node.tolist()):
                value = float(use[row, container])
                if node >= 0 and not np.isnan(value):
                    on_node[node] += value
            for node, total in on_node.items():
                largest[node] = max(largest[node], total)
            for container, node in enumerate(view.node.tolist()):
                value = float(use[row, container])
                if node < 0 or np.isnan(value):
                    continue
                samples += 1
                requested += int(requests[container])
                used += value
                starved += value > requests[container] and on_node[node] > allocatable
            row += 1
        for node in sorted(set(view.node.tolist()) - {-1, -2}):
            node_intervals += 1
            asked = sum(int(requests[one]) for one in range(len(requests)) if view.node[one] == node)
            short += largest[node] > asked
    return ReferenceAccounts(
        (requested - used) / requested if requested else 0.0,
        starved / samples if samples else 0.0,
        short / node_intervals if node_intervals else 0.0,
    )


def container_days(recording: UsageRecording, options: ReplayOptions, views: Sequence[ReplayClusterView]) -> float:
    """Return how long containers ran."""
    days, before = 0.0, recording.start - recording.step_seconds
    for view in views:
        days += sum(node >= 0 for node in view.node.tolist()) * (view.time - before) / 86400
        before = view.time
    return days


def kills(recording: UsageRecording, views: Sequence[ReplayClusterView]) -> list[tuple[int, int, bool]]:
    """Return (container, time, by limit) of the kills of a policy that does nothing about them."""
    found = []
    row = 0
    for view in views:
        killed: set[int] = set()
        while row < len(recording.memory_bytes) and recording.start + row * recording.step_seconds <= view.time:
            at = recording.start + row * recording.step_seconds
            for container, by_limit in _of_sample(recording.memory_bytes[row], view):
                if container not in killed:
                    killed.add(container)
                    found.append((container, at, by_limit))
            row += 1
    return found


def _of_sample(use: Float32Array, view: ReplayClusterView) -> list[tuple[int, bool]]:
    running = {
        container: float(use[container])
        for container, node in enumerate(view.node.tolist())
        if node >= 0 and not np.isnan(use[container])
    }
    limits = view.sizes.memory_limit_bytes.tolist()
    found = [(one, True) for one, value in running.items() if 0 < limits[one] < value]
    for one, _ in found:
        del running[one]
    capacity = view.allocatable.memory_bytes
    for node in sorted(set(view.node.tolist()) - {-1, -2}):
        there = [one for one in running if view.node[one] == node]
        while sum(running[one] for one in there) > capacity:
            worst = max(there, key=lambda one: (_badness(running[one], view, one), -one))
            there.remove(worst)
            found.append((worst, False))
    return found


def _badness(used: float, view: ReplayClusterView, container: int) -> float:
    capacity, request = view.allocatable.memory_bytes, int(view.sizes.memory_bytes[container])
    adjustment = min(max(3, 1000 - 1000 * request // capacity), 999)
    return 1000 * used / capacity + adjustment
