"""Actions on a cluster, the reasons for them, and their outcomes."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from cruise.domain.cluster import ContainerRole, WorkloadRef
from cruise.domain.policy import EvictionRanking
from cruise.domain.resources import NO_RESOURCES, ResourceName, Resources, StatedResources
from cruise.domain.scheduling import OVERLOADED_TAINT, Taint


class ReasonCode(StrEnum):
    """Why a pod or a node is skipped, or why an action is taken; stable for users and scripts."""

    # a pod is skipped
    EXCLUDED_NAMESPACE = "excluded-namespace"
    NAMESPACE_NOT_INCLUDED = "namespace-not-included"
    MODE_OFF = "mode-off"
    MODE_OBSERVE = "mode-observe"
    MODE_INITIAL = "mode-initial"
    UNREADABLE_ANNOTATION = "unreadable-annotation"
    UNSIGNED_ANNOTATION = "unsigned-annotation"
    STATIC_POD = "static-pod"
    WINDOWS = "windows"
    VIRTUAL_NODE = "virtual-node"
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
    STARTING = "starting"
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
    STATIC_CPU_MANAGER = "static-cpu-manager"
    STATIC_MEMORY_MANAGER = "static-memory-manager"
    NODE_SWAP = "node-swap"
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
    HPA_CHANGED = "hpa-changed"
    NOT_FOUND = "not-found"
    THROTTLED = "throttled"
    POD_DISRUPTION_BUDGET = "pod-disruption-budget"
    NOT_EVICTABLE = "not-evictable"
    CPU_NOT_MANAGED = "cpu-not-managed"
    MEMORY_NOT_MANAGED = "memory-not-managed"
    INSUFFICIENT_CAPACITY = "insufficient-capacity"
    NODE_NOT_READY = "node-not-ready"
    FORBIDDEN = "forbidden"
    QUOTA_EXCEEDED = "quota-exceeded"
    CANNOT_RESTORE = "cannot-restore"
    START_UNKNOWN = "start-unknown"
    AT_MAXIMUM = "at-maximum"
    RECORDED_ONLY = "recorded-only"
    PACKING_PLAN_ACTIVE = "packing-plan-active"
    # nodes
    UNDER_PRESSURE = "under-pressure"
    OVERCOMMITTED = "overcommitted"
    # an action is taken
    RIGHTSIZED = "rightsized"
    NODE_OVER_CAPACITY = "node-over-capacity"
    WITHDRAWN = "withdrawn"
    START_COMPLETED = "start-completed"
    OOM_KILLED = "oom-killed"
    OVERLOADED = "overloaded"
    LOAD_NORMAL = "load-normal"
    LOAD_UNKNOWN = "load-unknown"
    TOO_MANY_TAINTS = "too-many-taints"
    TAINTING_DISABLED = "tainting-disabled"
    REVERTED = "reverted"
    FREED_CAPACITY_FOR_PENDING_PODS = "freed-capacity-for-pending-pods"


class ResizeCause(StrEnum):
    """Why a node pass writes a resize; stable for users and scripts."""

    UNDER_REQUESTED = "under-requested"
    NODE_UNDER_PRESSURE = "node-under-pressure"
    CAPACITY_NEEDED_BY_OTHERS = "capacity-needed-by-others"
    OVER_REQUESTED = "over-requested"
    USAGE_NEAR_LIMIT = "usage-near-limit"
    OUT_OF_BOUNDS = "out-of-bounds"


@dataclass(frozen=True, slots=True)
class ContainerTarget:
    """The values to write for one container; None keeps the present value."""

    container: str
    role: ContainerRole
    requests: StatedResources
    limits: StatedResources


@dataclass(frozen=True, slots=True)
class PodItem:
    """Base of items about one pod, identified by namespace and name."""

    namespace: str
    pod: str

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name, the sort key of pods."""
        return self.namespace, self.pod


@dataclass(frozen=True, slots=True)
class ResizePod(PodItem):
    """Resize a pod in place, all containers in one request, with `uid` and `resource_version` as preconditions.

    `growth` is the increase of the pod's counted requests, at least zero. `cause` is None where write damping is off.
    """

    uid: str
    node: str | None
    workload: WorkloadRef | None
    containers: tuple[ContainerTarget, ...]
    growth: Resources
    reason: ReasonCode
    cause: ResizeCause | None = None
    resource_version: str = field(default="", compare=False)

    @property
    def needs_capacity(self) -> bool:
        """Whether the resize needs free capacity on the node."""
        return self.growth is not NO_RESOURCES and self.growth != NO_RESOURCES


@dataclass(frozen=True, slots=True)
class EvictPod(PodItem):
    """Evict a pod through the Eviction API, with `uid` and `resource_version` as preconditions."""

    uid: str
    node: str | None
    workload: WorkloadRef | None
    ranking: EvictionRanking
    resource: ResourceName
    reason: ReasonCode
    resource_version: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class TaintNode:
    """Add one of cruise's taints to a node."""

    node: str
    reason: ReasonCode
    taint: Taint = OVERLOADED_TAINT


@dataclass(frozen=True, slots=True)
class UntaintNode:
    """Remove one of cruise's taints from a node."""

    node: str
    reason: ReasonCode
    taint: Taint = OVERLOADED_TAINT


@dataclass(frozen=True, slots=True)
class SkippedPod(PodItem):
    """A pod that is not changed now; `until` is None where the end is not known."""

    reason: ReasonCode
    detail: str = ""
    until: datetime | None = None


Action = ResizePod | EvictPod | TaintNode | UntaintNode


class ActionResult(StrEnum):
    """The result of an action."""

    STARTED = "started"  # recorded before the request is sent; the result is not known yet
    DONE = "done"
    OBSERVED = "observed"  # not done, because of the mode or a pause
    SKIPPED = "skipped"  # not done, because of a budget or a failed precondition
    REFUSED = "refused"  # rejected by the API server or the kubelet
    FAILED = "failed"  # the API server was not reachable


@dataclass(frozen=True, slots=True)
class Outcome:
    """One action with its result: a row of the audit log.

    Equal results in a row share one row: `first_at` (None: only once) to `at`, `count` times. `before` holds the sizes
    before a resize, empty where unknown.
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
    def namespace(self) -> str | None:
        """The namespace of the pod; None for actions on nodes."""
        return self.action.namespace if isinstance(self.action, ResizePod | EvictPod) else None

    @property
    def since(self) -> datetime:
        """The time of the first of these equal results."""
        return self.at if self.first_at is None else self.first_at

    @property
    def audit_key(self) -> tuple[object, ...]:
        """The key of the audit row that further equal results update."""
        action = self.action
        subject = action.uid if isinstance(action, ResizePod | EvictPod) else action.node
        return type(action), subject, self.result, self.reason, self.since


@dataclass(frozen=True, slots=True)
class WriteIntent:
    """A write that is recorded before it is sent, and open until its outcome is recorded.

    `before` holds the sizes before a resize.
    """

    id: int
    at: datetime
    action: Action
    before: tuple[ContainerTarget, ...] = ()

    @property
    def started_outcome(self) -> Outcome:
        """The write as an audit row without a known result."""
        return Outcome(self.at, self.action, ActionResult.STARTED, self.action.reason, before=self.before)


def find_counted_evictions(outcomes: Iterable[Outcome]) -> list[Outcome]:
    """Return the evictions that count against budgets, sorted by time.

    These are all that were done, and for each other pod the last one whose result is not success.
    """
    done: list[Outcome] = []
    uncertain: dict[str, Outcome] = {}
    for outcome in sorted(outcomes, key=lambda one: (one.result is ActionResult.STARTED, one.at)):
        if isinstance(outcome.action, EvictPod):
            if outcome.result is ActionResult.DONE:
                done.append(outcome)
            else:
                uncertain[outcome.action.uid] = outcome
    evicted = {one.action.uid for one in done if isinstance(one.action, EvictPod)}
    return sorted([*done, *(one for uid, one in uncertain.items() if uid not in evicted)], key=lambda one: one.at)


@dataclass(frozen=True, slots=True)
class RefusedResize:
    """A resize that the kubelet or the API server rejected; it is not sent again unchanged for this pod.

    `free_capacity` is what the node had for the pod then: after a Deferred resize what its other pods left, after an
    Infeasible one all of its allocatable. None: unknown.
    """

    pod_uid: str
    containers: tuple[ContainerTarget, ...]
    reason: ReasonCode
    at: datetime
    free_capacity: Resources | None = None


@dataclass(frozen=True, slots=True)
class OriginalSizes:
    """The requests and limits of a pod before its first resize, for `cruise revert`; `at` is its last resize."""

    pod_uid: str
    namespace: str
    pod: str
    containers: tuple[ContainerTarget, ...]
    at: datetime


@dataclass(frozen=True, slots=True)
class LastResizes:
    """When some pods were last resized, by uid, and how many others were, by the minute of their last resize."""

    by_pod: Mapping[str, datetime]
    others_by_minute: Mapping[datetime, int]


@dataclass(frozen=True, slots=True)
class PodEvent:
    """An Event of one pod; a warning for a rejected write or an unreadable annotation."""

    namespace: str
    pod: str
    pod_uid: str
    reason: ReasonCode
    message: str
    warning: bool
