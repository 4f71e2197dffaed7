"""What a scan found, in words: one line a finding."""

from collections.abc import Mapping
from datetime import datetime

from cruise.decisions.scan.pending_pods import PendingPod, SchedulingObstacle
from cruise.decisions.scan.risks import ContainerRisk, ContainerRiskKind
from cruise.interfaces.reasons import describe_oom_kill
from cruise.interfaces.text import format_count, format_cpu, format_memory

RISK_TITLES: Mapping[ContainerRiskKind, str] = {
    ContainerRiskKind.OOM_KILLED: "OOM-killed",
    ContainerRiskKind.MEMORY_LEAK_SUSPECTED: "only grows",
    ContainerRiskKind.MEMORY_NEAR_LIMIT: "near its limit",
    ContainerRiskKind.MEMORY_UNDER_REQUESTED: "over its request",
    ContainerRiskKind.CPU_THROTTLED: "throttled",
    ContainerRiskKind.CPU_STARVED: "starved",
    ContainerRiskKind.NO_REQUESTS: "no requests",
}
_OBSTACLES: Mapping[SchedulingObstacle, str] = {
    SchedulingObstacle.CORDONED: "cordoned",
    SchedulingObstacle.PLACEMENT: "outside its node selector",
    SchedulingObstacle.TAINTS: "with taints it does not tolerate",
    SchedulingObstacle.PODS: "with no place for one more pod",
    SchedulingObstacle.EXTENDED: "without its extended resources",
    SchedulingObstacle.CPU: "short of CPU",
    SchedulingObstacle.MEMORY: "short of memory",
}


def describe_risk(risk: ContainerRisk, now: datetime) -> str:
    """Say in one line what threatens a container, with the worst pod's numbers."""
    match risk.kind:
        case ContainerRiskKind.OOM_KILLED:
            return describe_oom_kill(risk, now)
        case ContainerRiskKind.MEMORY_NEAR_LIMIT | ContainerRiskKind.MEMORY_LEAK_SUSPECTED:
            rising = ", and rising" if risk.kind is ContainerRiskKind.MEMORY_LEAK_SUSPECTED else ""
            return (
                f"peak {format_memory(risk.observed)}, {risk.ratio:.0%} of limit {format_memory(risk.allowed)}{rising}"
            )
        case ContainerRiskKind.MEMORY_UNDER_REQUESTED:
            use = f"uses {format_memory(risk.observed)}, requests {format_memory(risk.allowed)}"
            return f"{use}, on a node whose pods use more than they request"
        case ContainerRiskKind.CPU_THROTTLED:
            return f"wants up to {format_cpu(risk.observed)}, is limited to {format_cpu(risk.allowed)}"
        case ContainerRiskKind.CPU_STARVED:
            return f"uses {format_cpu(risk.observed)}, requests {format_cpu(risk.allowed)} on a node that is full"
        case ContainerRiskKind.NO_REQUESTS:
            return f"requests no {' and no '.join(risk.missing)}: nothing is kept for it"


def describe_pending_pod(pod: PendingPod) -> str:
    """Say in one line which nodes lack what."""
    if pod.scheduling_gated:
        return "held by a scheduling gate"
    if not pod.nodes:
        return "there are no nodes"
    if pod.schedulable_now:
        return f"room on {pod.schedulable_now:,} of {format_count(pod.nodes, 'node')}: volumes, spreading or affinity may forbid it"
    parts = [f"{count:,} {_OBSTACLES[obstacle]}" for obstacle, count in pod.obstacles.items()]
    return f"of {format_count(pod.nodes, 'node')}: {', '.join(parts)}"


def describe_room_by_sizing(pod: PendingPod) -> str:
    """Say in one line whether shrinking the pods that are there would make room."""
    if pod.scheduling_gated or pod.schedulable_now:
        return ""
    if pod.best_node is None:
        return "no, not by sizing its neighbours alone"
    freed = pod.reclaimed_on_best_node
    return (
        f"yes, on {format_count(pod.schedulable_after_sizing, 'node')}: sizing {pod.best_node} frees {format_cpu(freed.cpu_millicores)} "
        f"and {format_memory(freed.memory_bytes)}"
    )
