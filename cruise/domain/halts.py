"""Why a pass comes to no plan, or why a plan waits, is only shown or was dropped, as values."""

from dataclasses import dataclass
from enum import StrEnum


class HaltCode(StrEnum):
    """What a halt says of its subject; `interfaces` has the words."""

    STATED = "stated"  # in words, as the world refuses or as releases before this one stored it
    FAILED = "failed"
    MODE = "mode"
    PAUSED = "paused"
    # why a pass comes to no plan
    NO_POD_WAITS = "no-pod-waits"
    PLAN_UNDER_WAY = "plan-under-way"
    NO_STATISTICS = "no-statistics"
    OLD_STATISTICS = "old-statistics"
    NO_ORDER = "no-order"
    NODE_TOO_SMALL = "node-too-small"
    UNSOUND = "unsound"
    # why a plan is only shown
    NOTHING_TO_DO = "nothing-to-do"
    UNPROVED = "unproved"
    SWITCHED_OFF = "switched-off"
    NO_EVICTIONS = "no-evictions"
    # why nothing is begun of a plan for fewer nodes
    PODS_WAIT = "pods-wait"
    NO_NODE_SPARED = "no-node-spared"
    NO_POD_MOVED = "no-pod-moved"
    # what a plan waits for
    STEERING = "steering"
    RECREATION = "recreation"
    RESIZE = "resize"
    DISRUPTION_BUDGET = "disruption-budget"
    BINDING = "binding"
    LEAVING = "leaving"
    HELD = "held"
    # why a plan was dropped
    TOO_OLD = "too-old"
    POD_GONE = "pod-gone"
    NODE_GONE = "node-gone"
    NODE_CLOSED = "node-closed"
    NODE_FULL = "node-full"
    CAME_BY_ITSELF = "came-by-itself"
    OBJECTION = "objection"
    CANNOT_RESIZE = "cannot-resize"
    FINDS_NO_NODE = "finds-no-node"
    EVICTION_REFUSED = "eviction-refused"
    RESIZE_REFUSED = "resize-refused"


@dataclass(frozen=True, slots=True)
class Halt:
    """A code with the name or figure that it is about, what others said of it, and how many more there are like it."""

    code: HaltCode
    subject: str = ""
    detail: str = ""
    more: int = 0

    def __str__(self) -> str:
        """Return it in one line, for logs."""
        return ": ".join(filter(None, (self.code.value, self.subject, self.detail)))
