"""What cruise does to a cluster, and what it says where it does nothing."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from cruise.domain.cluster import ContainerRole, WorkloadRef
from cruise.domain.policy import EvictionRanking
from cruise.domain.resources import NO_RESOURCES, ResourceName, Resources, StatedResources
from cruise.domain.scheduling import OVERLOADED_TAINT, Taint


class ReasonCode(StrEnum):
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
    COMPLETED = "completed"
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
    NEW_TEMPLATE_REVISION = "new-template-revision"
    MANAGED_BY_HPA = "managed-by-hpa"
    MANAGED_BY_OTHER_AUTOSCALER = "managed-by-other-autoscaler"
    LOOKUP_PENDING = "lookup-pending"
    AMBIGUOUS_WORKLOAD = "ambiguous-workload"
    RESIZE_UNSUPPORTED = "resize-unsupported"
    RESIZE_RESTARTS = "resize-restarts"
    LIMIT_RANGE = "limit-range"
    QOS_CHANGE = "qos-change"
    RESIZE_REFUSED = "resize-refused"
    WAITING_FOR_CAPACITY = "waiting-for-capacity"
    RESIZE_DEFERRED = "resize-deferred"
    RESIZE_INFEASIBLE = "resize-infeasible"
    MEMORY_LEAK_SUSPECTED = "memory-leak-suspected"
    NO_CHANGE_NEEDED = "no-change-needed"
    PAUSED = "paused"
    MODE_FORBIDS = "mode-forbids"
    COOLDOWN = "cooldown"
    NODE_EVICTION_BUDGET_SPENT = "node-eviction-budget-spent"
    WORKLOAD_EVICTION_BUDGET_SPENT = "workload-eviction-budget-spent"
    HOURLY_EVICTION_BUDGET_SPENT = "hourly-eviction-budget-spent"
    REPLACEMENT_NOT_RESIZED = "replacement-not-resized"
    CHANGED = "changed"
    STALE_DECISION = "stale-decision"
    HISTORY_INCOMPLETE = "history-incomplete"
    USAGE_INCREASED = "usage-increased"
    NOT_FOUND = "not-found"
    THROTTLED = "throttled"
    POD_DISRUPTION_BUDGET = "pod-disruption-budget"
    NOT_EVICTABLE = "not-evictable"
    MEMORY_NOT_MANAGED = "memory-not-managed"
    INSUFFICIENT_CAPACITY = "insufficient-capacity"
    NODE_NOT_READY = "node-not-ready"
    FORBIDDEN = "forbidden"
    QUOTA_EXCEEDED = "quota-exceeded"
    CANNOT_RESTORE = "cannot-restore"
    AT_MAXIMUM = "at-maximum"
    RECORDED_ONLY = "recorded-only"
    PACKING_PLAN_ACTIVE = "packing-plan-active"
    # nodes
    UNDER_PRESSURE = "under-pressure"
    OVERCOMMITTED = "overcommitted"
    # why something is done
    RIGHTSIZED = "rightsized"
    NODE_OVER_CAPACITY = "node-over-capacity"
    WITHDRAWN = "withdrawn"
    OOM_KILLED = "oom-killed"
    OVERLOADED = "overloaded"
    LOAD_NORMAL = "load-normal"
    LOAD_UNKNOWN = "load-unknown"
    TOO_MANY_TAINTS = "too-many-taints"
    TAINTING_DISABLED = "tainting-disabled"
    REVERTED = "reverted"
    FREED_CAPACITY_FOR_PENDING_PODS = "freed-capacity-for-pending-pods"


class ResizeCause(StrEnum):
    """Why a node pass finds a resize worth a write; stable for users and scripts."""

    UNDER_REQUESTED = "under-requested"
    NODE_UNDER_PRESSURE = "node-under-pressure"
    CAPACITY_NEEDED_BY_OTHERS = "capacity-needed-by-others"
    OVER_REQUESTED = "over-requested"
    USAGE_NEAR_LIMIT = "usage-near-limit"
    OUT_OF_BOUNDS = "out-of-bounds"


@dataclass(frozen=True, slots=True)
class ContainerTarget:
    """The values to write for one container; None leaves a value as it is."""

    container: str
    role: ContainerRole
    requests: StatedResources
    limits: StatedResources


class PodItem:
    """What is about one pod, which goes by its namespace and its name."""

    __slots__ = ()
    namespace: str
    pod: str

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name, as pods are known by and sorted."""
        return self.namespace, self.pod


@dataclass(frozen=True, slots=True)
class ResizePod(PodItem):
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
    reason: ReasonCode
    cause: ResizeCause | None = None
    version: str = field(default="", compare=False)

    @property
    def needs_capacity(self) -> bool:
        """Tell whether it takes room on its node."""
        return self.growth != NO_RESOURCES


@dataclass(frozen=True, slots=True)
class EvictPod(PodItem):
    """Evict a pod through the Eviction API, with its uid and its `version` as preconditions."""

    namespace: str
    pod: str
    uid: str
    node: str | None
    workload: WorkloadRef | None
    ranking: EvictionRanking
    resource: ResourceName
    reason: ReasonCode
    version: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class TaintNode:
    """Put a taint of cruise's own on a node."""

    node: str
    reason: ReasonCode
    taint: Taint = OVERLOADED_TAINT


@dataclass(frozen=True, slots=True)
class UntaintNode:
    """Remove a taint of cruise's own from a node."""

    node: str
    reason: ReasonCode
    taint: Taint = OVERLOADED_TAINT


@dataclass(frozen=True, slots=True)
class SkippedPod(PodItem):
    """A pod left as it is, with the reason, a detail for people, and until when where that is known."""

    namespace: str
    pod: str
    reason: ReasonCode
    detail: str = ""
    until: datetime | None = None


Action = ResizePod | EvictPod | TaintNode | UntaintNode


class ActionResult(StrEnum):
    """How an action ended."""

    STARTED = "started"  # recorded before it is sent: how it ended is not known yet
    DONE = "done"
    OBSERVED = "observed"  # would have been done: the mode or a pause forbade it
    SKIPPED = "skipped"  # a budget, a guard or the re-validation kept it back
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
    result: ActionResult
    reason: ReasonCode
    detail: str = ""
    first_at: datetime | None = None
    count: int = 1
    before: tuple[ContainerTarget, ...] = ()

    @property
    def since(self) -> datetime:
        """When it ended like that first."""
        return self.at if self.first_at is None else self.first_at

    @property
    def audit_key(self) -> tuple[object, ...]:
        """What tells one line of the audit from another as the action goes on ending like that."""
        action = self.action
        whose = action.uid if isinstance(action, ResizePod | EvictPod) else action.node
        return type(action), whose, self.result, self.reason, self.since


@dataclass(frozen=True, slots=True)
class WriteIntent:
    """A write that is recorded before it is sent; it is open until its outcome is recorded.

    `before` are the sizes that a resize found.
    """

    id: int
    at: datetime
    action: Action
    before: tuple[ContainerTarget, ...] = ()

    @property
    def started_outcome(self) -> Outcome:
        """The write as an audit line of which the end is not known."""
        return Outcome(self.at, self.action, ActionResult.STARTED, self.action.reason, before=self.before)


def find_counted_evictions(lines: Iterable[Outcome]) -> list[Outcome]:
    """Return the evictions that count against budgets, by time: those done, and one line for each other pod.

    The other pods are those whose eviction was begun and not seen to be done: the open intent counts before a failure.
    """
    done: list[Outcome] = []
    uncertain: dict[str, Outcome] = {}
    for line in sorted(lines, key=lambda line: (line.result is ActionResult.STARTED, line.at)):
        if isinstance(line.action, EvictPod):
            if line.result is ActionResult.DONE:
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
    reason: ReasonCode
    at: datetime
    free_capacity: Resources | None = None


@dataclass(frozen=True, slots=True)
class OriginalSizes:
    """What a pod requested before its first resize, for `cruise revert`; `at` is when it was resized last."""

    pod_uid: str
    namespace: str
    pod: str
    containers: tuple[ContainerTarget, ...]
    at: datetime


@dataclass(frozen=True, slots=True)
class PodEvent:
    """The Event of one pod; `warning` where something was refused or cannot be read."""

    namespace: str
    pod: str
    pod_uid: str
    reason: ReasonCode
    message: str
    warning: bool
