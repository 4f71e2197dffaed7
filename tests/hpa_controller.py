"""A model of the HPA controller's arithmetic, after pkg/controller/podautoscaler of Kubernetes 1.36.

`replica_calculator.go` decides on one metric, `horizontal.go` takes the largest and keeps it between minimum and
maximum; `tests/e2e/hpa` compares it with the controller itself.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Amounts = Mapping[str, int]


@dataclass(frozen=True)
class MeasuredPod:
    """Requests and use by container, in millicores or bytes; `is_measured` and `is_ready` as the metrics API has it."""

    requests: Amounts
    use: Amounts
    is_measured: bool = True
    is_ready: bool = True


def _sum(amounts: Amounts, container: str) -> int:
    return amounts[container] if container else sum(amounts.values())


def _ratio(pods: Sequence[tuple[int, int]], target: int) -> float:
    """Return utilization, in whole percent, divided by its target; pods are pairs of use and request."""
    return sum(use for use, _ in pods) * 100 // sum(request for _, request in pods) / target


def want_replicas(
    pods: Sequence[MeasuredPod],
    target: int,
    container: str,
    current: int,
    tolerances: tuple[float, float] = (0.1, 0.1),
) -> int:
    """Return the replicas that one metric wants; `tolerances` apply before pods are removed, and added."""
    down, up = tolerances
    pairs = [(_sum(one.use, container), _sum(one.requests, container)) for one in pods]
    ready = [pair for pair, one in zip(pairs, pods, strict=True) if one.is_measured and one.is_ready]
    missing = [request for (_, request), one in zip(pairs, pods, strict=True) if not one.is_measured]
    unready = [request for (_, request), one in zip(pairs, pods, strict=True) if one.is_measured and not one.is_ready]
    ratio = _ratio(ready, target)
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
    again = _ratio(counted, target)
    if 1 - down <= again <= 1 + up or (ratio < 1 < again) or (again < 1 < ratio):
        return current
    wanted = math.ceil(again * len(counted))
    if (again < 1 and wanted > current) or (again > 1 and wanted < current):
        return current
    return wanted


def desire_replicas(proposals: Sequence[int], minimum: int, maximum: int) -> int:
    """Return the replicas that the controller sets, without stabilization and rate limits."""
    return min(max(*proposals, minimum), maximum)
