"""The HPA controller, after pkg/controller/podautoscaler of Kubernetes 1.36, for HPAs without `behavior`.

`replica_calculator.go` decides on one metric. `horizontal.go` takes the largest number, stabilizes it before pods are
removed, limits how many are added, and keeps it between minimum and maximum. `tests/e2e/hpa` compares the arithmetic
with the controller itself.
"""

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cruise.domain.autoscalers import DEFAULT_SCALE_DOWN_SECONDS, DEFAULT_TOLERANCE

Amounts = Mapping[str, int]
SYNC_SECONDS = 15
"""The controller manager's flag --horizontal-pod-autoscaler-sync-period by default."""
_SCALE_UP_FACTOR, _SCALE_UP_MINIMUM = 2, 4


@dataclass(frozen=True, slots=True)
class MeasuredPod:
    """Requests and use by container, in millicores or bytes; `is_measured` and `is_ready` as the metrics API has it."""

    requests: Amounts
    use: Amounts
    is_measured: bool = True
    is_ready: bool = True


def _sum(amounts: Amounts, container: str) -> int:
    return amounts[container] if container else sum(amounts.values())


def compute_utilization(pods: Sequence[tuple[int, int]]) -> int:
    """Return the utilization in whole percent; pods are pairs of use and request."""
    return sum(use for use, _ in pods) * 100 // sum(request for _, request in pods)


def compute_replicas_for_metric(
    pods: Sequence[MeasuredPod],
    target: int,
    container: str,
    current: int,
    tolerances: tuple[float, float] = (DEFAULT_TOLERANCE, DEFAULT_TOLERANCE),
) -> int:
    """Return the replicas that one metric wants; `tolerances` apply before pods are removed, and added.

    Pods without metrics use all of their requests before pods are removed, and nothing before pods are added. Pods that
    are not ready use nothing before pods are added. Without a ready pod nothing is wanted but the current replicas.
    """
    down, up = tolerances
    pairs = [(_sum(one.use, container), _sum(one.requests, container)) for one in pods]
    ready = [pair for pair, one in zip(pairs, pods, strict=True) if one.is_measured and one.is_ready]
    missing = [request for (_, request), one in zip(pairs, pods, strict=True) if not one.is_measured]
    unready = [request for (_, request), one in zip(pairs, pods, strict=True) if one.is_measured and not one.is_ready]
    if not ready:
        return current
    ratio = compute_utilization(ready) / target
    adds_unready = bool(unready) and ratio > 1
    if not adds_unready and not missing:
        return current if 1 - down <= ratio <= 1 + up else math.ceil(ratio * len(ready))
    counted = list(ready)
    if missing and ratio < 1:
        counted += [(request * max(100, target) // 100, request) for request in missing]
    elif missing and ratio > 1:
        counted += [(0, request) for request in missing]
    if adds_unready:
        counted += [(0, request) for request in unready]
    again = compute_utilization(counted) / target
    if 1 - down <= again <= 1 + up or (ratio < 1 < again) or (again < 1 < ratio):
        return current
    wanted = math.ceil(again * len(counted))
    if (again < 1 and wanted > current) or (again > 1 and wanted < current):
        return current
    return wanted


def compute_desired_replicas(proposals: Sequence[int], minimum: int, maximum: int) -> int:
    """Return the replicas that the controller sets, without stabilization and rate limits."""
    return min(max(*proposals, minimum), maximum)


class SimulatedHpa:
    """One HPA between two numbers of replicas, with its recommendations of the scale-down window."""

    def __init__(self, min_replicas: int, max_replicas: int) -> None:
        self.min_replicas = min_replicas
        self.max_replicas = max_replicas
        self._recommendations: deque[tuple[int, int]] | None = None

    def reconcile(self, time: int, current: int, proposals: Sequence[int], elapsed_seconds: int = SYNC_SECONDS) -> int:
        """Return the replicas to set; `proposals` are those that the metrics want.

        `elapsed_seconds` is the time since the previous call. The controller syncs several times meanwhile, and adds a
        limited number of pods each time.
        """
        wanted = max(proposals)
        if self._recommendations is None:
            # The present replicas count as the first recommendation.
            self._recommendations = deque([(time, current)])
        recent = self._recommendations
        while recent and recent[0][0] < time - DEFAULT_SCALE_DOWN_SECONDS:
            recent.popleft()
        recent.append((time, wanted))
        stabilized = max(replicas for _, replicas in recent)
        desired = compute_desired_replicas([stabilized], self.min_replicas, self.max_replicas)
        return min(desired, _limit_scale_up(current, desired, max(1, elapsed_seconds // SYNC_SECONDS)))


def _limit_scale_up(current: int, desired: int, syncs: int) -> int:
    limit = current
    while limit < desired and syncs:
        limit, syncs = max(_SCALE_UP_FACTOR * limit, _SCALE_UP_MINIMUM), syncs - 1
    return max(limit, current)
