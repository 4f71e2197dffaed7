"""What cruise does to a cluster, and what it says where it does nothing."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from cruise.domain.cluster import ContainerRole, WorkloadRef
from cruise.domain.policy import EvictionRanking
from cruise.domain.resources import NO_RESOURCES, Amounts, ResourceName, Resources
from cruise.domain.scheduling import OVERLOADED, Taint


class Reason(StrEnum):
    """Why a pod or a node is left as it is, or why something was done to it; stable for users and scripts."""

    # left alone
    EXCLUDED_NAMESPACE = "excluded-namespace"
    MODE_OFF = "mode-off"
    MODE_OBSERVE = "mode-observe"
    MODE_INITIAL = "mode-initial"
    UNREADABLE_ANNOTATION = "unreadable-annotation"
    UNSIGNED_ANNOTATION = "unsigned-annotation"
    STATIC_POD = "static-pod"
    WINDOWS = "windows"
    TERMINAL = "terminal"
    TERMINATING = "terminating"
    GUARANTEED = "guaranteed"
    BEST_EFFORT = "best-effort"
    POD_LEVEL_RESOURCES = "pod-level-resources"
    EXTENDED_RESOURCES = "extended-resources"
    NO_CONTROLLER = "no-controller"
    NO_STATISTICS = "no-statistics"
    STALE_STATISTICS = "stale-statistics"
    IMPLAUSIBLE_USAGE = "implausible-usage"
    NEW_WORKLOAD = "new-workload"
    NEW_REVISION = "new-revision"
    AUTOSCALED = "hpa"
    OTHER_AUTOSCALER = "other-autoscaler"
    LOOKUP_PENDING = "lookup-pending"
    AMBIGUOUS_WORKLOAD = "ambiguous-workload"
    RESIZE_UNSUPPORTED = "resize-unsupported"
    RESIZE_RESTARTS = "resize-restarts"
    LIMIT_RANGE = "limit-range"
    QOS_CHANGE = "qos-change"
    REFUSED = "refused"
    WAITING_FOR_ROOM = "waiting-for-room"
    RESIZE_DEFERRED = "resize-deferred"
    RESIZE_INFEASIBLE = "resize-infeasible"
    MEMORY_GROWS = "memory-grows"
    SETTLED = "settled"
    PAUSED = "paused"
    MODE = "mode"
    COOLING_DOWN = "cooling-down"
    BUDGET_NODE = "budget-node"
    BUDGET_WORKLOAD = "budget-workload"
    BUDGET_HOUR = "budget-hour"
    CAME_BACK = "came-back"
    CHANGED_SINCE = "changed-since"
    STALE_DECISION = "stale-decision"
    HISTORY_INCOMPLETE = "history-incomplete"
    USE_GREW = "use-grew"
    GONE = "gone"
    THROTTLED = "throttled"
    DISRUPTION_BUDGET = "disruption-budget"
    UNMOVABLE = "unmovable"
    MEMORY_UNMANAGED = "memory-unmanaged"
    NO_ROOM = "no-room"
    NODE_NOT_READY = "node-not-ready"
    FORBIDDEN = "forbidden"
    QUOTA = "quota"
    CANNOT_RESTORE = "cannot-restore"
    CAPPED = "capped"
    RECORDED = "recorded"
    PACKING = "packing"
    # nodes
    CROWDED = "crowded"
    OVERSUBSCRIBED = "oversubscribed"
    # why something is done
    RIGHTSIZED = "rightsized"
    DOES_NOT_FIT = "does-not-fit"
    WITHDRAWN = "withdrawn"
    OOM_KILLED = "oom-killed"
    OVERLOADED = "overloaded"
    LOAD_FELL = "load-fell"
    LOAD_UNKNOWN = "load-unknown"
    TOO_MANY_TAINTS = "too-many-taints"
    TAINTS_NO_MORE = "taints-no-more"
    REVERTED = "reverted"
    PACKED = "packed"


class WriteCause(StrEnum):
    """Why a node pass finds a resize worth a write; stable for users and scripts."""

    BELOW_BASE = "below-base"
    NODE_SHORT = "node-short"
    ROOM_WANTED = "room-wanted"
    ABOVE_BAND = "above-band"
    LIMIT_NEAR = "limit-near"
    OUT_OF_BOUNDS = "out-of-bounds"


@dataclass(frozen=True, slots=True)
class ContainerTarget:
    """The values to write for one container; None leaves a value as it is."""

    container: str
    role: ContainerRole
    requests: Amounts
    limits: Amounts


class OfPod:
    """What is about one pod, which goes by its namespace and its name."""

    __slots__ = ()
    namespace: str
    pod: str

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name, as pods are known by and sorted."""
        return self.namespace, self.pod


@dataclass(frozen=True, slots=True)
class ResizePod(OfPod):
    """Resize a pod in place, all containers and both resources at once, fenced on its uid and its `version`.

    `growth` is what the pod's counted requests rise by on its node, never negative: zero for a pure shrink. `cause` is
    why a node pass finds it worth a write, None where every change is.
    """

    namespace: str
    pod: str
    uid: str
    node: str | None
    workload: WorkloadRef | None
    containers: tuple[ContainerTarget, ...]
    growth: Resources
    reason: Reason
    cause: WriteCause | None = None
    version: str = field(default="", compare=False)

    @property
    def grows(self) -> bool:
        """Tell whether it takes room on its node."""
        return self.growth != NO_RESOURCES


@dataclass(frozen=True, slots=True)
class EvictPod(OfPod):
    """Evict a pod through the Eviction API, with its uid and its `version` as preconditions."""

    namespace: str
    pod: str
    uid: str
    node: str | None
    workload: WorkloadRef | None
    ranking: EvictionRanking
    resource: ResourceName
    reason: Reason
    version: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class TaintNode:
    """Put a taint of cruise's own on a node."""

    node: str
    reason: Reason
    taint: Taint = OVERLOADED


@dataclass(frozen=True, slots=True)
class UntaintNode:
    """Remove a taint of cruise's own from a node."""

    node: str
    reason: Reason
    taint: Taint = OVERLOADED


@dataclass(frozen=True, slots=True)
class Hold(OfPod):
    """A pod left as it is, with the reason, a detail for people, and until when where that is known."""

    namespace: str
    pod: str
    reason: Reason
    detail: str = ""
    until: datetime | None = None


Action = ResizePod | EvictPod | TaintNode | UntaintNode


class Verdict(StrEnum):
    """How an action ended."""

    BEGUN = "begun"  # recorded before it is sent: how it ended is not known yet
    DONE = "done"
    OBSERVED = "observed"  # would have been done: the mode or a pause forbade it
    HELD = "held"  # a budget, a guard or the re-validation kept it back
    REFUSED = "refused"  # the API server or the kubelet said no
    FAILED = "failed"  # the world was not reachable


@dataclass(frozen=True, slots=True)
class Outcome:
    """One action as it ended: a line of the audit.

    What ended like that several times in a row is one line: `at` is the last time, `first_at` the first, and `count`
    how often; `first_at` is None where it was once. `before` are the sizes that a resize found, empty where they are
    not known.
    """

    at: datetime
    action: Action
    verdict: Verdict
    reason: Reason
    detail: str = ""
    first_at: datetime | None = None
    count: int = 1
    before: tuple[ContainerTarget, ...] = ()

    @property
    def since(self) -> datetime:
        """When it ended like that first."""
        return self.at if self.first_at is None else self.first_at

    @property
    def line(self) -> tuple[object, ...]:
        """What tells one line of the audit from another as the action goes on ending like that."""
        action = self.action
        whose = action.uid if isinstance(action, ResizePod | EvictPod) else action.node
        return type(action), whose, self.verdict, self.reason, self.since


@dataclass(frozen=True, slots=True)
class Intent:
    """A write that is recorded before it is sent; it is open until its outcome is recorded.

    `before` are the sizes that a resize found.
    """

    id: int
    at: datetime
    action: Action
    before: tuple[ContainerTarget, ...] = ()

    @property
    def begun(self) -> Outcome:
        """The write as an audit line of which the end is not known."""
        return Outcome(self.at, self.action, Verdict.BEGUN, self.action.reason, before=self.before)


def evictions_spent(lines: Iterable[Outcome]) -> list[Outcome]:
    """Return the evictions that count against budgets, by time: those done, and one line for each other pod.

    The other pods are those whose eviction was begun and not seen to be done: the open intent counts before a failure.
    """
    done: list[Outcome] = []
    uncertain: dict[str, Outcome] = {}
    for line in sorted(lines, key=lambda line: (line.verdict is Verdict.BEGUN, line.at)):
        if isinstance(line.action, EvictPod):
            if line.verdict is Verdict.DONE:
                done.append(line)
            else:
                uncertain[line.action.uid] = line
    evicted = {line.action.uid for line in done if isinstance(line.action, EvictPod)}
    return sorted([*done, *(line for uid, line in uncertain.items() if uid not in evicted)], key=lambda line: line.at)


@dataclass(frozen=True, slots=True)
class RefusedTarget:
    """A resize that the kubelet or the server refused: not sent again unchanged for this pod.

    `room` is what the node had for the pod then: for a resize that was put off, what its other pods left; for one
    that cannot be done, all of its allocatable. None where it is not known.
    """

    pod_uid: str
    containers: tuple[ContainerTarget, ...]
    reason: Reason
    at: datetime
    room: Resources | None = None


@dataclass(frozen=True, slots=True)
class OriginalSizes:
    """What a pod requested before its first resize, for `cruise revert`; `at` is when it was resized last."""

    pod_uid: str
    namespace: str
    pod: str
    containers: tuple[ContainerTarget, ...]
    at: datetime


@dataclass(frozen=True, slots=True)
class Announcement:
    """The Event of one pod; `warning` where something was refused or cannot be read."""

    namespace: str
    pod: str
    pod_uid: str
    reason: Reason
    message: str
    warning: bool
