"""Why there is no plan, or why a plan goes no further, in words."""

from collections.abc import Mapping

from cruise.domain.halts import Halt, HaltCode
from cruise.domain.packing import PackingPlan, Phase

_WORDS: Mapping[HaltCode, str] = {
    HaltCode.STATED: "{detail}",
    HaltCode.FAILED: "failed: {detail}",
    HaltCode.MODE: "mode {subject}",
    HaltCode.PAUSED: "paused",
    HaltCode.NO_POD_WAITS: "no pod waits",
    HaltCode.PLAN_UNDER_WAY: "a plan is under way",
    HaltCode.NO_STATISTICS: "no statistics yet",
    HaltCode.OLD_STATISTICS: "no statistics since {subject}",
    HaltCode.NO_ORDER: "no order was found in which kube-scheduler would let every pod in",
    HaltCode.NODE_TOO_SMALL: "the pods on node {subject} cannot be made as small as planned",
    HaltCode.UNSOUND: "no plan: {detail}",
    HaltCode.NOTHING_TO_DO: "nothing to do",
    HaltCode.UNPROVED: "it is not proved that this takes evictions",
    HaltCode.SWITCHED_OFF: "packing is switched off",
    HaltCode.NO_EVICTIONS: "mode {subject} evicts no pods",
    HaltCode.PODS_WAIT: "pods wait for nodes",
    HaltCode.NO_NODE_SPARED: "no node can be spared",
    HaltCode.NO_POD_MOVED: "no pod may be moved now",
    HaltCode.STEERING: "waits until the webhook knows which pods to steer",
    HaltCode.RECREATION: "waits until {subject} is created anew",
    HaltCode.RESIZE: "waits until the resize of {subject} is actual",
    HaltCode.DISRUPTION_BUDGET: "waits until PodDisruptionBudget {subject} allows an eviction",
    HaltCode.BINDING: "waits until {subject} is bound",
    HaltCode.LEAVING: "waits until the evicted pods are gone",
    HaltCode.HELD: "{detail}: {subject}",
    HaltCode.TOO_OLD: "older than the next pass",
    HaltCode.POD_GONE: "pod {subject} is gone",
    HaltCode.NODE_GONE: "node {subject} is gone",
    HaltCode.NODE_CLOSED: "node {subject} takes no pods",
    HaltCode.NODE_FULL: "node {subject} has no room any more for the pods that are to arrive",
    HaltCode.CAME_BY_ITSELF: "pod {subject} has found a node by itself",
    HaltCode.OBJECTION: "{detail}",
    HaltCode.CANNOT_RESIZE: "node {detail} cannot resize {subject} as planned",
    HaltCode.FINDS_NO_NODE: "kube-scheduler finds no node for {subject}",
    HaltCode.EVICTION_REFUSED: "the eviction of {subject} was refused: {detail}",
    HaltCode.RESIZE_REFUSED: "the resize of {subject} was refused: {detail}",
}
# What says by itself that a plan is not carried out.
_COMPLETE = (HaltCode.NOTHING_TO_DO, HaltCode.STATED)


def halt_words(halt: Halt | None) -> str:
    """Say what a halt says, without a full stop; empty for none."""
    if halt is None:
        return ""
    more = f" (and {halt.more} more)" if halt.more else ""
    return _WORDS[halt.code].format(subject=halt.subject, detail=halt.detail) + more


def plan_halt_words(plan: PackingPlan) -> str:
    """Say why a plan was dropped, is only shown or waits; empty where it goes on."""
    words = halt_words(plan.halt)
    shown_only = plan.phase is Phase.SHOWN and plan.halt is not None and plan.halt.code not in _COMPLETE
    return f"{words}: shown only" if shown_only else words
