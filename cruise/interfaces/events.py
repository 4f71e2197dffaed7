"""Events on pods: one short line on each pod that something was done to or refused."""

from collections.abc import Mapping, Sequence

from cruise.domain.actions import ActionResult, EvictPod, Outcome, PodEvent, ReasonCode, ResizePod, SkippedPod
from cruise.domain.cluster import Pod
from cruise.domain.reasons import ReasonDetail, parse_detail_code
from cruise.domain.users import UserAction, UserActionKind
from cruise.interfaces.reasons import CAUSE_DESCRIPTIONS, describe_detail
from cruise.interfaces.size_changes import format_resize
from cruise.interfaces.text import escape_text

PodKey = tuple[str, str]

_WHY = {
    ReasonCode.RIGHTSIZED: "sized by use",
    ReasonCode.WITHDRAWN: "its node could not take up the last resize",
    ReasonCode.OOM_KILLED: "after it ran out of memory",
    ReasonCode.REVERTED: "back to its original sizes",
    ReasonCode.NODE_OVER_CAPACITY: "its node does not hold all of its pods",
    ReasonCode.FREED_CAPACITY_FOR_PENDING_PODS: "makes room for pods that no node could hold",
}
# What the operator has to mend is no business of a pod's owner.
_OPERATORS = frozenset({ReasonCode.FORBIDDEN, ReasonCode.THROTTLED})
# Kubernetes takes 1024 bytes of an event's message.
_LONGEST = 500


def build_pod_events(
    outcomes: Sequence[Outcome], holds: Sequence[SkippedPod], pods: Mapping[PodKey, Pod]
) -> list[PodEvent]:
    """Return what to tell, sorted by namespace and pod, one line a pod at most.

    Told is what was done or refused, annotations that cannot be read, and memory that meets a limit which does not
    rise any more; never what was only observed or waits.
    `pods` are the pods as they were before.
    """
    found: dict[PodKey, PodEvent] = {}
    for outcome in outcomes:
        announcement = _of_outcome(outcome, pods)
        if announcement is not None:
            found.setdefault((announcement.namespace, announcement.pod), announcement)
    for hold in holds:
        pod = pods.get((hold.namespace, hold.pod))
        message = _of_hold(hold)
        if message is not None and pod is not None:
            event = PodEvent(hold.namespace, hold.pod, pod.uid, hold.reason, _shortened(message), True)
            found.setdefault((hold.namespace, hold.pod), event)
    return [found[key] for key in sorted(found)]


_DEEDS = {
    UserActionKind.PAUSE: "{} paused cruise: no write to the cluster begins",
    UserActionKind.RESUME: "{} let cruise write to the cluster again",
    UserActionKind.REVERT: "{} had pods put back to their original sizes",
    UserActionKind.PUT_OVERRIDE: "{} set overrides: {}",
    UserActionKind.DELETE_OVERRIDE: "{} removed the stored overrides",
}


def describe_user_action(done: UserAction) -> str:
    """Return who did what to cruise, as an Event says it."""
    return _shortened(_DEEDS[done.kind].format(done.caller, done.detail))


def _of_hold(hold: SkippedPod) -> str | None:
    """Return what a pod's owner has to know of a hold, None where there is nothing to do about it."""
    if hold.reason is ReasonCode.UNREADABLE_ANNOTATION:
        return f"not resized: annotation of the {hold.detail}"
    if hold.reason is ReasonCode.MEMORY_LEAK_SUSPECTED:
        return f"{hold.detail}: memory only grows, and its limit does not follow; it will be killed there"
    if parse_detail_code(hold.detail) in (ReasonDetail.LIMIT_AT_CEILING, ReasonDetail.INIT_CONTAINER):
        return f"ran out of memory: {describe_detail(hold.detail)}"
    return None


def _of_outcome(outcome: Outcome, pods: Mapping[PodKey, Pod]) -> PodEvent | None:
    action = outcome.action
    if not isinstance(action, ResizePod | EvictPod) or outcome.result not in (ActionResult.DONE, ActionResult.REFUSED):
        return None
    refused = outcome.result is ActionResult.REFUSED
    if refused and outcome.reason in _OPERATORS:
        return None
    pod = pods.get((action.namespace, action.pod))
    before = pod.containers if pod is not None and pod.uid == action.uid else ()
    if refused:
        wanted = f" ({format_resize(action, before)})" if isinstance(action, ResizePod) else ""
        message = f"not {_done(action)}{wanted}: {describe_detail(outcome.detail) or outcome.reason.value}"
    elif isinstance(action, EvictPod):
        short_of = "" if action.reason is ReasonCode.FREED_CAPACITY_FOR_PENDING_PODS else f" ({action.resource.value})"
        message = f"evicted: {_WHY.get(action.reason, action.reason.value)}{short_of}"
    else:
        detail = f" ({describe_detail(outcome.detail)})" if outcome.detail else ""
        why = _WHY.get(action.reason, action.reason.value) if action.cause is None else CAUSE_DESCRIPTIONS[action.cause]
        message = f"{format_resize(action, before)}: {why}{detail}"
    return PodEvent(action.namespace, action.pod, action.uid, outcome.reason, _shortened(message), refused)


def _done(action: ResizePod | EvictPod) -> str:
    return "resized" if isinstance(action, ResizePod) else "evicted"


def _shortened(message: str) -> str:
    return escape_text(message, _LONGEST)
