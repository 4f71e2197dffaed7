"""What a plan learns from how its actions ended."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from cruise.domain.actions import EvictPod, Outcome, Reason, ResizePod, Verdict
from cruise.domain.halts import Halt, HaltCode
from cruise.domain.packing import Departure, PackingPlan, Phase

# What asking again a moment later would change.
_PASSES_BY = frozenset(
    {
        Reason.THROTTLED,
        Reason.WAITING_FOR_ROOM,
        Reason.BUDGET_NODE,
        Reason.BUDGET_WORKLOAD,
        Reason.BUDGET_HOUR,
        Reason.CHANGED_SINCE,
        Reason.GONE,
        Reason.COOLING_DOWN,
        Reason.PAUSED,
        Reason.MODE,
    }
)


def learnt(plan: PackingPlan, outcomes: Sequence[Outcome], now: datetime) -> PackingPlan:
    """Return the plan as it is after some of its actions; one refused drops it, what passes by holds it up."""
    for outcome in outcomes:
        action = outcome.action
        if not isinstance(action, EvictPod | ResizePod):
            continue
        if outcome.verdict is Verdict.DONE:
            if isinstance(action, EvictPod):
                plan = replace(plan, departed=(*plan.departed, Departure(action.uid, now)), changed_at=now)
        elif outcome.verdict is Verdict.REFUSED or (
            outcome.verdict is Verdict.HELD and outcome.reason not in _PASSES_BY
        ):
            code = HaltCode.EVICTION_REFUSED if isinstance(action, EvictPod) else HaltCode.RESIZE_REFUSED
            halt = Halt(code, f"{action.namespace}/{action.pod}", outcome.detail or outcome.reason.value)
            return replace(plan, phase=Phase.DROPPED, changed_at=now, halt=halt)
        else:
            plan = replace(plan, halt=Halt(HaltCode.HELD, f"{action.namespace}/{action.pod}", outcome.reason.value))
    return plan
