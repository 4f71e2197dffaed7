"""Descriptions of a scan's findings, one line each."""

from collections.abc import Mapping
from datetime import datetime

from cruise.decisions.scan.pending_pods import PendingPod, SchedulingObstacle
from cruise.decisions.scan.risks import ContainerRisk, ContainerRiskKind
from cruise.interfaces.reasons import describe_oom_kill
from cruise.interfaces.text import format_count, format_cpu, format_memory

RISK_TITLES: Mapping[ContainerRiskKind, str] = {
    ContainerRiskKind.OOM_KILLED: "OOM-killed",
    ContainerRiskKind.MEMORY_LEAK_SUSPECTED: "memory leak?",
    ContainerRiskKind.MEMORY_NEAR_LIMIT: "memory near limit",
    ContainerRiskKind.HEAP_ABOVE_LIMIT: "heap above limit",
    ContainerRiskKind.MEMORY_UNDER_REQUESTED: "memory above request",
    ContainerRiskKind.CPU_THROTTLED: "CPU throttled",
    ContainerRiskKind.CPU_STARVED: "CPU starved",
    ContainerRiskKind.NO_REQUESTS: "no requests",
}
_OBSTACLES: Mapping[SchedulingObstacle, str] = {
    SchedulingObstacle.CORDONED: "cordoned",
    SchedulingObstacle.PLACEMENT: "not matching its node selector or affinity",
    SchedulingObstacle.TAINTS: "with taints that it does not tolerate",
    SchedulingObstacle.PODS: "with too many pods",
    SchedulingObstacle.EXTENDED: "without its extended resources",
    SchedulingObstacle.CPU: "with insufficient CPU",
    SchedulingObstacle.MEMORY: "with insufficient memory",
}


def describe_risk(risk: ContainerRisk, now: datetime) -> str:
    """Return the risk of a container, with the values of the worst pod."""
    match risk.kind:
        case ContainerRiskKind.OOM_KILLED:
            text = describe_oom_kill(risk, now)
        case ContainerRiskKind.MEMORY_NEAR_LIMIT | ContainerRiskKind.MEMORY_LEAK_SUSPECTED:
            trend = ", only increasing" if risk.kind is ContainerRiskKind.MEMORY_LEAK_SUSPECTED else ""
            text = (
                f"peak {format_memory(risk.observed)}, {risk.ratio:.0%} of limit {format_memory(risk.allowed)}{trend}"
            )
        case ContainerRiskKind.HEAP_ABOVE_LIMIT:
            text = f"may take {format_memory(risk.observed)} ({risk.heap}), limit {format_memory(risk.allowed)}"
            text += ": lower the heap or raise the limit"
        case ContainerRiskKind.MEMORY_UNDER_REQUESTED:
            text = f"uses {format_memory(risk.observed)}, requests {format_memory(risk.allowed)}"
            text += ", on a node whose pods use more than they request"
        case ContainerRiskKind.CPU_THROTTLED:
            text = f"demands up to {format_cpu(risk.observed)}, is limited to {format_cpu(risk.allowed)}"
        case ContainerRiskKind.CPU_STARVED:
            text = (
                f"uses {format_cpu(risk.observed)}, requests {format_cpu(risk.allowed)}, on a node under CPU pressure"
            )
        case ContainerRiskKind.NO_REQUESTS:
            text = f"requests no {' and no '.join(risk.missing)}: the node reserves nothing for it"
    return text


def describe_pending_pod(pod: PendingPod) -> str:
    """Return why each node cannot take a pending pod."""
    if pod.scheduling_gated:
        return "it has a scheduling gate"
    if not pod.nodes:
        return "there are no nodes"
    if pod.schedulable_now:
        return (
            f"{pod.schedulable_now:,} of {format_count(pod.nodes, 'node')} have the capacity: volumes, topology "
            "spread or "
            "affinity may forbid them"
        )
    parts = [f"{count:,} {_OBSTACLES[obstacle]}" for obstacle, count in pod.obstacles.items()]
    return f"of {format_count(pod.nodes, 'node')}: {', '.join(parts)}"


def describe_fit_after_sizing(pod: PendingPod) -> str:
    """Return whether a node could take a pending pod if its running pods were sized to their targets."""
    if pod.scheduling_gated or pod.schedulable_now:
        return ""
    if pod.best_node is None:
        return "no, sizing frees too little"
    reclaimed = pod.reclaimed_on_best_node
    return (
        f"yes, on {format_count(pod.schedulable_after_sizing, 'node')}: on {pod.best_node} "
        f"{format_cpu(reclaimed.cpu_millicores)} CPU and {format_memory(reclaimed.memory_bytes)} memory are reclaimable"
    )
