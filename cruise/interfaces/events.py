"""Events on pods about resizes, evictions and rejected writes, and on cruise's own object about user actions."""

from collections.abc import Mapping, Sequence

from cruise.domain.actions import ActionResult, EvictPod, Outcome, PodEvent, ReasonCode, ResizePod, SkippedPod
from cruise.domain.cluster import Pod
from cruise.domain.reasons import ReasonDetailCode, parse_detail_code
from cruise.domain.rightsizing_policies import CLUSTER_POLICY_KIND, POLICY_KIND
from cruise.domain.users import UserAction, UserActionKind
from cruise.interfaces.plan_document import format_resize
from cruise.interfaces.reasons import CAUSE_DESCRIPTIONS, describe_detail
from cruise.interfaces.text import escape_text

PodKey = tuple[str, str]

_PURPOSES = {
    ReasonCode.RIGHTSIZED: "sized by its usage",
    ReasonCode.WITHDRAWN: "its node could not do the last resize",
    ReasonCode.START_COMPLETED: "the CPU that it got for its start is taken back",
    ReasonCode.OOM_KILLED: "after an OOM kill",
    ReasonCode.REVERTED: "its original sizes are restored",
    ReasonCode.NODE_OVER_CAPACITY: "its node cannot hold all of its pods",
    ReasonCode.FREED_CAPACITY_FOR_PENDING_PODS: "frees capacity for pending pods",
}
# Problems that the operator of cruise must fix, not the owner of the pod.
_OPERATOR_REASONS = frozenset({ReasonCode.FORBIDDEN, ReasonCode.THROTTLED})
# Kubernetes accepts 1024 bytes in the message of an Event.
_MAX_MESSAGE_LENGTH = 500


def build_pod_events(
    outcomes: Sequence[Outcome], skipped: Sequence[SkippedPod], pods: Mapping[PodKey, Pod]
) -> list[PodEvent]:
    """Return at most one Event for each pod, sorted by namespace and name.

    Events are about writes done or rejected, unreadable annotations, and memory at a limit that cruise does not raise.
    `pods` are the pods before the writes.
    """
    events: dict[PodKey, PodEvent] = {}
    for outcome in outcomes:
        event = _build_outcome_event(outcome, pods)
        if event is not None:
            events.setdefault((event.namespace, event.pod), event)
    for one in skipped:
        pod = pods.get((one.namespace, one.pod))
        message = _describe_skipped(one)
        if message is not None and pod is not None:
            event = PodEvent(one.namespace, one.pod, pod.uid, one.reason, _shorten(message), True)
            events.setdefault((one.namespace, one.pod), event)
    return [events[key] for key in sorted(events)]


_USER_ACTIONS = {
    UserActionKind.PAUSE: "{} paused cruise: it starts no write to the cluster",
    UserActionKind.RESUME: "{} resumed cruise: it may write to the cluster",
    UserActionKind.PAUSE_WORKLOAD: "{} paused this workload: cruise does not change its pods",
    UserActionKind.RESUME_WORKLOAD: "{} resumed this workload: cruise may change its pods",
    UserActionKind.REVERT: "{} reverted pods to their original sizes",
    UserActionKind.PUT_POLICY: "{} wrote the policy of {subject}: {}",
    UserActionKind.DELETE_POLICY: "{} deleted the policy of {subject}",
}


# Objects that state overrides in their spec.
_OBJECTS = tuple(f"{kind} " for kind in ("VPA", POLICY_KIND, CLUSTER_POLICY_KIND))


def describe_user_action(action: UserAction) -> str:
    """Return the message of an Event about a user action."""
    # The Event on the workload does not repeat its name.
    subject = (
        "this workload"
        if action.workload
        else f"namespace {action.namespace}"
        if action.namespace
        else "all namespaces"
    )
    return _shorten(_USER_ACTIONS[action.kind].format(action.caller, action.detail, subject=subject))


def _describe_skipped(skipped: SkippedPod) -> str | None:
    """Return a message for the owner of a skipped pod, None if there is nothing to fix."""
    if skipped.reason is ReasonCode.UNREADABLE_ANNOTATION:
        is_object = skipped.detail.startswith(_OBJECTS)
        return f"not resized: {'' if is_object else 'annotation of the '}{skipped.detail}"
    if skipped.reason is ReasonCode.MEMORY_LEAK_SUSPECTED:
        return f"{skipped.detail}: memory usage only increases and its limit is not raised; it will be OOM killed"
    if parse_detail_code(skipped.detail) in (ReasonDetailCode.LIMIT_AT_CEILING, ReasonDetailCode.INIT_CONTAINER):
        return f"OOM killed: {describe_detail(skipped.detail)}"
    return None


def _build_outcome_event(outcome: Outcome, pods: Mapping[PodKey, Pod]) -> PodEvent | None:
    action = outcome.action
    if not isinstance(action, ResizePod | EvictPod) or outcome.result not in (ActionResult.DONE, ActionResult.REFUSED):
        return None
    rejected = outcome.result is ActionResult.REFUSED
    if rejected and outcome.reason in _OPERATOR_REASONS:
        return None
    pod = pods.get((action.namespace, action.pod))
    before = pod.containers if pod is not None and pod.uid == action.uid else ()
    if rejected:
        verb = "resized" if isinstance(action, ResizePod) else "evicted"
        change = f" ({format_resize(action, before)})" if isinstance(action, ResizePod) else ""
        message = f"not {verb}{change}: {describe_detail(outcome.detail) or outcome.reason.value}"
    elif isinstance(action, EvictPod):
        resource = (
            "" if action.reason is ReasonCode.FREED_CAPACITY_FOR_PENDING_PODS else f" ({action.resource.display_name})"
        )
        message = f"evicted: {_PURPOSES.get(action.reason, action.reason.value)}{resource}"
    else:
        detail = f" ({describe_detail(outcome.detail)})" if outcome.detail else ""
        purpose = _PURPOSES.get(action.reason, action.reason.value)
        cause = purpose if action.cause is None else CAUSE_DESCRIPTIONS[action.cause]
        message = f"{format_resize(action, before)}: {cause}{detail}"
    return PodEvent(action.namespace, action.pod, action.uid, outcome.reason, _shorten(message), rejected)


def _shorten(message: str) -> str:
    return escape_text(message, _MAX_MESSAGE_LENGTH)
