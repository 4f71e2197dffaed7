"""Requests, pods and scale events of 20 services under HPAs on utilization, by the tool that sizes them.

Each tool replays ten days, and the last three count. Replicas follow the HPA's formula at every tenth minute. Tools:
none, cruise with `hpa: within-target`, and the target of a VPA's recommender (the 90th percentile of a day, and 15%),
which changes the same requests without regard to the HPA.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from benchmarks.table import BenchmarkRow
from cruise.decisions.pod_policy.hpa_bounds import HpaBounds, decide_hpa_bounds
from cruise.decisions.pod_policy.usable_statistics import LargestWeeklyUsage
from cruise.decisions.sizing.bound_columns import HpaMetricGroups, compute_hpa_request_bounds
from cruise.domain.autoscalers import UtilizationMetric, UtilizationScaling
from cruise.domain.cluster import HorizontalPodAutoscaler, WorkloadRef
from cruise.domain.resources import ResourceName
from cruise.simulation.horizontal_autoscaler import MeasuredPod, compute_desired_replicas, compute_replicas_for_metric
from tests.e2e.hpa.services import DAY, HISTORY, REPLAYED, SERVICES, Service

NAME = "hpa"
STEP_MINUTES = 10
CPU = ResourceName.CPU
Requests = Mapping[str, int]
# What a tool makes of requests: service, requests now, use of a pod so far by step, minute, replicas.
Tool = Callable[[Service, Requests, Sequence[Requests], int, int], Requests]


def _none(_service: Service, requests: Requests, _use: Sequence[Requests], _minute: int, _replicas: int) -> Requests:
    return requests


def _vpa(service: Service, _requests: Requests, use: Sequence[Requests], _minute: int, _replicas: int) -> Requests:
    day = use[-DAY // STEP_MINUTES :]
    return {
        name: max(10, round(1.15 * float(np.percentile([one[name] for one in day], 90)))) for name in service.containers
    }


def _cruise(service: Service, requests: Requests, use: Sequence[Requests], minute: int, replicas: int) -> Requests:
    """Shrink to the bound if the HPA allows it, and grow to it up to the template."""
    if minute < 0:
        return requests
    percent = {one.container: _utilization(use[-1], requests, one.container) for one in service.metrics}
    metrics = tuple(
        UtilizationMetric(CPU, one.container, one.target, max(one.target, percent[one.container]))
        for one in service.metrics
        if one.resource == CPU
    )
    scaling = UtilizationScaling(metrics, service.minimum, service.maximum, replicas, replicas, True)
    autoscaler = HorizontalPodAutoscaler(
        "shop", service.name, WorkloadRef("Deployment", service.name), frozenset({CPU}), "", scaling
    )
    bounds = decide_hpa_bounds(autoscaler, None)
    if not isinstance(bounds, HpaBounds) or not bounds.is_at_minimum:
        return requests
    names = list(service.containers)
    week = use[-HISTORY // STEP_MINUTES :]
    largest = np.array([max(one[name] for one in week) for name in names])
    current = np.array([requests[name] for name in names])
    rows = [
        (at, number, service.containers[name][0])
        for number, metric in enumerate(bounds.metrics[CPU])
        for at, name in enumerate(names)
        if metric.container in ("", name)
    ]
    factors = np.array([one[2:] for one in bounds.metrics[CPU]], dtype=float).T
    groups = HpaMetricGroups(*np.array(rows, dtype=np.int64).T, *factors)
    lower, upper = compute_hpa_request_bounds(groups, CPU, current, LargestWeeklyUsage(largest, current))
    wanted = np.ceil(largest * 1.1).astype(np.int64)
    return dict(zip(names, np.clip(wanted, np.maximum(lower, 10), np.maximum(upper, 10)).tolist(), strict=True))


def _utilization(use: Requests, requests: Requests, container: str) -> int:
    if container:
        return use[container] * 100 // requests[container]
    return sum(use.values()) * 100 // sum(requests.values())


@dataclass
class _Figures:
    """What a tool's replay adds up to; `replicas` are those of each service and step."""

    millicores: int = 0
    scale_events: int = 0
    replicas: list[int] = field(default_factory=list)


def run() -> list[BenchmarkRow]:
    """Compare the tools with none."""
    figures = {name: _replay(tool) for name, tool in (("none", _none), ("cruise", _cruise), ("vpa", _vpa))}
    steps, none = len(figures["none"].replicas) // len(SERVICES), figures["none"]
    rows: list[BenchmarkRow] = []
    for name, one in figures.items():
        differing = sum(now != before for now, before in zip(one.replicas, none.replicas, strict=True))
        cores, pods = one.millicores / steps / 1000, sum(one.replicas) / steps
        cores_before, pods_before = none.millicores / steps / 1000, sum(none.replicas) / steps
        rows += [
            BenchmarkRow(NAME, f"{name}: requested", cores, "cores", f"{cores_before:.1f}", cores / cores_before),
            BenchmarkRow(NAME, f"{name}: pods", pods, "pods", f"{pods_before:.1f}", pods / pods_before),
            BenchmarkRow(NAME, f"{name}: scale events", one.scale_events, "in 3 days"),
            BenchmarkRow(NAME, f"{name}: other replicas than without", differing, f"of {len(one.replicas)} steps"),
        ]
    return rows


def _replay(tool: Tool) -> _Figures:
    figures = _Figures()
    for service in SERVICES:
        requests: Requests = {name: cpu for name, (cpu, _) in service.containers.items()}
        replicas, use = service.minimum, []
        for minute in range(-HISTORY, REPLAYED, STEP_MINUTES):
            measured = service.use(minute, replicas)
            use.append({name: cpu for name, (cpu, _) in measured.items()})
            wanted = _desire(service, requests, measured, replicas)
            if minute >= 0:
                figures.millicores += replicas * sum(requests.values())
                figures.scale_events += wanted != replicas
                figures.replicas.append(replicas)
            if wanted == replicas:
                requests = tool(service, requests, use, minute, replicas)
            replicas = wanted
    return figures


def _desire(service: Service, cpu: Requests, use: Mapping[str, tuple[int, int]], replicas: int) -> int:
    memory = {name: amounts[1] for name, amounts in service.containers.items()}
    wanted = []
    for one in service.metrics:
        at, requests = (0, cpu) if one.resource == CPU else (1, memory)
        pod = MeasuredPod(requests, {name: amounts[at] for name, amounts in use.items()})
        wanted.append(compute_replicas_for_metric([pod] * replicas, one.target, one.container, replicas))
    return compute_desired_replicas(wanted, service.minimum, service.maximum)
