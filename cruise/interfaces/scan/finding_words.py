"""What a scan found, in words: one line a finding."""

from collections.abc import Mapping
from datetime import datetime

from cruise.decisions.scan.pending import Obstacle, PendingPod
from cruise.decisions.scan.risks import Risk, RiskKind
from cruise.interfaces.amounts import count_text, cpu_text, memory_text
from cruise.interfaces.kill_words import kill_words

RISK_TITLES: Mapping[RiskKind, str] = {
    RiskKind.OOM_KILLED: "OOM-killed",
    RiskKind.MEMORY_GROWS: "only grows",
    RiskKind.MEMORY_NEAR_LIMIT: "near its limit",
    RiskKind.MEMORY_UNDER_REQUESTED: "over its request",
    RiskKind.CPU_THROTTLED: "throttled",
    RiskKind.CPU_STARVED: "starved",
    RiskKind.NO_REQUESTS: "no requests",
}
_OBSTACLES: Mapping[Obstacle, str] = {
    Obstacle.CORDONED: "cordoned",
    Obstacle.PLACEMENT: "outside its node selector",
    Obstacle.TAINTS: "with taints it does not tolerate",
    Obstacle.PODS: "with no place for one more pod",
    Obstacle.EXTENDED: "without its extended resources",
    Obstacle.CPU: "short of CPU",
    Obstacle.MEMORY: "short of memory",
}


def why_at_risk(risk: Risk, now: datetime) -> str:
    """Say in one line what threatens a container, with the worst pod's numbers."""
    match risk.kind:
        case RiskKind.OOM_KILLED:
            return kill_words(risk, now)
        case RiskKind.MEMORY_NEAR_LIMIT | RiskKind.MEMORY_GROWS:
            rising = ", and rising" if risk.kind is RiskKind.MEMORY_GROWS else ""
            return f"peak {memory_text(risk.observed)}, {risk.ratio:.0%} of limit {memory_text(risk.allowed)}{rising}"
        case RiskKind.MEMORY_UNDER_REQUESTED:
            use = f"uses {memory_text(risk.observed)}, requests {memory_text(risk.allowed)}"
            return f"{use}, on a node whose pods use more than they request"
        case RiskKind.CPU_THROTTLED:
            return f"wants up to {cpu_text(risk.observed)}, is limited to {cpu_text(risk.allowed)}"
        case RiskKind.CPU_STARVED:
            return f"uses {cpu_text(risk.observed)}, requests {cpu_text(risk.allowed)} on a node that is full"
        case RiskKind.NO_REQUESTS:
            return f"requests no {' and no '.join(risk.missing)}: nothing is kept for it"


def why_pending(pod: PendingPod) -> str:
    """Say in one line which nodes lack what."""
    if pod.gated:
        return "held by a scheduling gate"
    if not pod.nodes:
        return "there are no nodes"
    if pod.fits_now:
        return (
            f"room on {pod.fits_now:,} of {count_text(pod.nodes, 'node')}: volumes, spreading or affinity may forbid it"
        )
    parts = [f"{count:,} {_OBSTACLES[obstacle]}" for obstacle, count in pod.obstacles.items()]
    return f"of {count_text(pod.nodes, 'node')}: {', '.join(parts)}"


def where_room(pod: PendingPod) -> str:
    """Say in one line whether shrinking the pods that are there would make room."""
    if pod.gated or pod.fits_now:
        return ""
    if pod.best is None:
        return "no, not by sizing its neighbours alone"
    freed = pod.best_freed
    return (
        f"yes, on {count_text(pod.room_after, 'node')}: sizing {pod.best} frees {cpu_text(freed.cpu_millicores)} "
        f"and {memory_text(freed.memory_bytes)}"
    )
