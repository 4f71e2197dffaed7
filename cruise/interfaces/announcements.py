"""Events on pods: one short line on each pod that something was done to or refused."""

from collections.abc import Mapping, Sequence

from cruise.domain.actions import Announcement, EvictPod, Hold, Outcome, Reason, ResizePod, Verdict
from cruise.domain.callers import Deed, Intervention
from cruise.domain.cluster import Pod
from cruise.domain.details import Detail, code_of
from cruise.interfaces.plain_text import plain
from cruise.interfaces.reasons import CAUSES, detail_words
from cruise.interfaces.resize_words import changes_text

PodKey = tuple[str, str]

_WHY = {
    Reason.RIGHTSIZED: "sized by use",
    Reason.WITHDRAWN: "its node could not take up the last resize",
    Reason.OOM_KILLED: "after it ran out of memory",
    Reason.REVERTED: "back to its original sizes",
    Reason.DOES_NOT_FIT: "its node does not hold all of its pods",
    Reason.PACKED: "makes room for pods that no node could hold",
}
# What the operator has to mend is no business of a pod's owner.
_OPERATORS = frozenset({Reason.FORBIDDEN, Reason.THROTTLED})
# Kubernetes takes 1024 bytes of an event's message.
_LONGEST = 500


def announcements_of(
    outcomes: Sequence[Outcome], holds: Sequence[Hold], pods: Mapping[PodKey, Pod]
) -> list[Announcement]:
    """Return what to tell, sorted by namespace and pod, one line a pod at most.

    Told is what was done or refused, annotations that cannot be read, and memory that meets a limit which does not
    rise any more; never what was only observed or waits.
    `pods` are the pods as they were before.
    """
    found: dict[PodKey, Announcement] = {}
    for outcome in outcomes:
        announcement = _of_outcome(outcome, pods)
        if announcement is not None:
            found.setdefault((announcement.namespace, announcement.pod), announcement)
    for hold in holds:
        pod = pods.get((hold.namespace, hold.pod))
        message = _of_hold(hold)
        if message is not None and pod is not None:
            event = Announcement(hold.namespace, hold.pod, pod.uid, hold.reason, _shortened(message), True)
            found.setdefault((hold.namespace, hold.pod), event)
    return [found[key] for key in sorted(found)]


_DEEDS = {
    Deed.PAUSE: "{} paused cruise: no write to the cluster begins",
    Deed.RESUME: "{} let cruise write to the cluster again",
    Deed.REVERT: "{} had pods put back to their original sizes",
    Deed.PUT_OVERRIDE: "{} set overrides: {}",
    Deed.DELETE_OVERRIDE: "{} removed the stored overrides",
}


def intervention_words(done: Intervention) -> str:
    """Return who did what to cruise, as an Event says it."""
    return _shortened(_DEEDS[done.deed].format(done.caller, done.detail))


def _of_hold(hold: Hold) -> str | None:
    """Return what a pod's owner has to know of a hold, None where there is nothing to do about it."""
    if hold.reason is Reason.UNREADABLE_ANNOTATION:
        return f"not resized: annotation of the {hold.detail}"
    if hold.reason is Reason.MEMORY_GROWS:
        return f"{hold.detail}: memory only grows, and its limit does not follow; it will be killed there"
    if code_of(hold.detail) in (Detail.LIMIT_AT_CEILING, Detail.INIT_CONTAINER):
        return f"ran out of memory: {detail_words(hold.detail)}"
    return None


def _of_outcome(outcome: Outcome, pods: Mapping[PodKey, Pod]) -> Announcement | None:
    action = outcome.action
    if not isinstance(action, ResizePod | EvictPod) or outcome.verdict not in (Verdict.DONE, Verdict.REFUSED):
        return None
    refused = outcome.verdict is Verdict.REFUSED
    if refused and outcome.reason in _OPERATORS:
        return None
    pod = pods.get((action.namespace, action.pod))
    before = pod.containers if pod is not None and pod.uid == action.uid else ()
    if refused:
        wanted = f" ({changes_text(action, before)})" if isinstance(action, ResizePod) else ""
        message = f"not {_done(action)}{wanted}: {detail_words(outcome.detail) or outcome.reason.value}"
    elif isinstance(action, EvictPod):
        short_of = "" if action.reason is Reason.PACKED else f" ({action.resource.value})"
        message = f"evicted: {_WHY.get(action.reason, action.reason.value)}{short_of}"
    else:
        detail = f" ({detail_words(outcome.detail)})" if outcome.detail else ""
        why = _WHY.get(action.reason, action.reason.value) if action.cause is None else CAUSES[action.cause]
        message = f"{changes_text(action, before)}: {why}{detail}"
    return Announcement(action.namespace, action.pod, action.uid, outcome.reason, _shortened(message), refused)


def _done(action: ResizePod | EvictPod) -> str:
    return "resized" if isinstance(action, ResizePod) else "evicted"


def _shortened(message: str) -> str:
    return plain(message, _LONGEST)
