"""Users of the API: callers, access, their actions, sign-in, what-if runs and notifications."""

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from cruise.domain.backtest import ComparedMetric, MetricComparison
from cruise.domain.cluster import WorkloadRef
from cruise.domain.rightsizing_policies import get_policy_plural

# Callers, the access that they need, and their actions.


@dataclass(frozen=True, slots=True)
class Caller:
    """A user as the API server knows it; `extra` has further attributes, sorted by key."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class PathAccess:
    """Access to a path of the API, such as `get` of /api/v1/status."""

    verb: str
    path: str

    def __str__(self) -> str:
        """Format as in roles."""
        return f"{self.verb} {self.path}"


@dataclass(frozen=True, slots=True)
class PodAccess:
    """Access to the pods of a namespace, or of all if it is empty; it allows reading about them."""

    namespace: str

    def __str__(self) -> str:
        """Format as in roles."""
        return f"get pods in {f'namespace {self.namespace}' if self.namespace else 'all namespaces'}"


@dataclass(frozen=True, slots=True)
class PolicyAccess:
    """Access to the RightsizingPolicies of a namespace, or to ClusterRightsizingPolicies if it is empty.

    The verb is `create`, `patch` or `delete`.
    """

    verb: str
    namespace: str

    def __str__(self) -> str:
        """Format as in roles."""
        return f"{self.verb} {self.resource}{f' in namespace {self.namespace}' if self.namespace else ''}"

    @property
    def resource(self) -> str:
        """The plural of the kind."""
        return get_policy_plural(self.namespace)


Access = PathAccess | PodAccess | PolicyAccess


class UserActionKind(StrEnum):
    """What users do to cruise."""

    PAUSE = "pause"
    RESUME = "resume"
    PAUSE_WORKLOAD = "pause-workload"
    RESUME_WORKLOAD = "resume-workload"
    REVERT = "revert"
    PUT_POLICY = "put-policy"
    DELETE_POLICY = "delete-policy"


@dataclass(frozen=True, slots=True)
class UserAction:
    """An action of a user.

    What concerns one workload has its namespace; a policy also has its settings in `detail`. A revert or a policy may
    have a namespace only, or neither.
    """

    at: datetime
    caller: str
    kind: UserActionKind
    namespace: str | None = None
    workload: WorkloadRef | None = None
    detail: str = ""


def is_in_namespaces(namespace: str | None, namespaces: Set[str] | None) -> bool:
    """Return whether something is in one of the namespaces or in none; None means all namespaces."""
    return namespaces is None or namespace is None or namespace in namespaces


# Sign-in with an identity provider.


@dataclass(frozen=True, slots=True)
class SignInRequest:
    """A sign-in in progress: the provider's address, and the secrets that its answer must match."""

    redirect_url: str
    state: str
    nonce: str
    code_verifier: str


class SignInDeniedError(Exception):
    """A denied sign-in; the message gives the reason in one line, without a token."""


# What-if runs: changed settings replayed on the cluster's own history.


class WhatIfStage(StrEnum):
    """The stage of a what-if run."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class WhatIfProposal:
    """The changed settings: those of one workload's own policy as in annotations, or the cluster's settings by key."""

    settings: Mapping[str, str]
    namespace: str | None = None
    workload: WorkloadRef | None = None


@dataclass(frozen=True, slots=True)
class WhatIfComparison:
    """The proposed (`current`) and the present settings over the same days; `notes` say what is not replayed."""

    days: float
    containers: int
    figures: Mapping[ComparedMetric, MetricComparison]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WhatIfRun:
    """The last what-if run; `progress` is the part of `current_step` that is done, 0 to 1."""

    proposal: WhatIfProposal
    caller: str
    began_at: datetime
    stage: WhatIfStage = WhatIfStage.RUNNING
    current_step: str = ""
    progress: float = 0.0
    comparison: WhatIfComparison | None = None
    error: str = ""


class NotificationTopic(StrEnum):
    """The topic of a notification."""

    OOM_KILLED = "oom-killed"
    REFUSED = "refused"
    PAUSED = "paused"


@dataclass(frozen=True, slots=True)
class NotificationEvent:
    """One event; those with the same topic, namespace and reason are reported together."""

    at: datetime
    topic: NotificationTopic
    namespace: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class NotificationGroup:
    """Events of one topic, namespace and reason; `message` is the last one's."""

    topic: NotificationTopic
    namespace: str
    reason: str
    count: int
    first_at: datetime
    last_at: datetime
    message: str


@dataclass(frozen=True, slots=True)
class Notification:
    """One message with a unique `key`; `dropped` events are in neither this message nor an earlier one."""

    key: str
    at: datetime
    groups: tuple[NotificationGroup, ...]
    dropped: int = 0


def group_notifications(events: Iterable[NotificationEvent]) -> tuple[NotificationGroup, ...]:
    """Group events: kills first, then rejections, then pauses; within a topic the largest group first."""
    found: dict[tuple[NotificationTopic, str, str], list[NotificationEvent]] = {}
    for event in events:
        found.setdefault((event.topic, event.namespace, event.reason), []).append(event)
    groups = [
        NotificationGroup(*key, len(group), group[0].at, group[-1].at, group[-1].message)
        for key, group in found.items()
    ]
    order = list(NotificationTopic)
    return tuple(sorted(groups, key=lambda one: (order.index(one.topic), -one.count, one.namespace, one.reason)))


@dataclass(frozen=True, slots=True)
class NotificationCounts:
    """Counts of one pass: VerticalPodAutoscalers written, events sent, and events dropped."""

    published: int = 0
    sent: int = 0
    dropped: int = 0


NO_NOTIFICATIONS = NotificationCounts()
