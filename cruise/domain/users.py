"""What people are notified of, and how much of it at a time."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from cruise.domain.backtest import ComparedMetric, MetricComparison
from cruise.domain.cluster import WorkloadRef

# Who asks the API for something, what it takes to be answered, and what was written through it.


@dataclass(frozen=True, slots=True)
class Caller:
    """A user as an API server knows one; `extra` are its further attributes, sorted by key."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class PathAccess:
    """A request to a path of the API, such as `get` of /api/v1/status."""

    verb: str
    path: str

    def __str__(self) -> str:
        """Write it as roles state it."""
        return f"{self.verb} {self.path}"


@dataclass(frozen=True, slots=True)
class PodAccess:
    """The right to get the pods of a namespace, of all where it is empty: whoever has it may read about them."""

    namespace: str

    def __str__(self) -> str:
        """Write it as roles state it."""
        return f"get pods in {f'namespace {self.namespace}' if self.namespace else 'all namespaces'}"


Access = PathAccess | PodAccess


class UserActionKind(StrEnum):
    """What people do to cruise itself."""

    PAUSE = "pause"
    RESUME = "resume"
    REVERT = "revert"
    PUT_OVERRIDE = "put-override"
    DELETE_OVERRIDE = "delete-override"


@dataclass(frozen=True, slots=True)
class UserAction:
    """Who did what: an override has a namespace, a workload and its settings in `detail`, a pause none of them.

    A revert has a namespace where it was of one alone.
    """

    at: datetime
    caller: str
    kind: UserActionKind
    namespace: str | None = None
    workload: WorkloadRef | None = None
    detail: str = ""


# Signing in by an identity provider: what has to be remembered between leaving for it and coming back.


@dataclass(frozen=True, slots=True)
class SignInRequest:
    """A browser on its way to the provider: where to, and what only the one that left can come back with."""

    redirect_url: str
    state: str
    nonce: str
    code_verifier: str


class SignInDenied(Exception):
    """Somebody is not signed in; the message says why in one line, and quotes no token."""


# A change of rules tried on the cluster's own history before it holds: what is tried, and what it showed.


class WhatIfStage(StrEnum):
    """How far a rehearsal is."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class WhatIfProposal:
    """What is tried: overrides of one workload as annotations have them, or settings of the cluster by their keys."""

    settings: Mapping[str, str]
    namespace: str | None = None
    workload: WorkloadRef | None = None


@dataclass(frozen=True, slots=True)
class WhatIfComparison:
    """What is proposed (`here`) against what holds today, over the same days; `notes` say what is left out."""

    days: float
    containers: int
    figures: Mapping[ComparedMetric, MetricComparison]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WhatIfRun:
    """The last one that was asked for; `what` says what it is at, `done` how much of that, from 0 to 1."""

    proposal: WhatIfProposal
    caller: str
    began_at: datetime
    stage: WhatIfStage = WhatIfStage.RUNNING
    current_step: str = ""
    progress: float = 0.0
    comparison: WhatIfComparison | None = None
    error: str = ""


class NotificationTopic(StrEnum):
    """What a notice is about."""

    OOM_KILLED = "oom-killed"
    REFUSED = "refused"
    PAUSED = "paused"


@dataclass(frozen=True, slots=True)
class NotificationEvent:
    """One thing that happened; notices that share topic, namespace and reason are reported together."""

    at: datetime
    topic: NotificationTopic
    namespace: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class NotificationGroup:
    """Notices of one topic, namespace and reason: how many, since when until when, and what the last one said."""

    topic: NotificationTopic
    namespace: str
    reason: str
    count: int
    first_at: datetime
    last_at: datetime
    message: str


@dataclass(frozen=True, slots=True)
class Notification:
    """One message, `key` its own; `dropped` notices did not get into this or an earlier one."""

    key: str
    at: datetime
    groups: tuple[NotificationGroup, ...]
    dropped: int = 0


def group_notifications(notices: Iterable[NotificationEvent]) -> tuple[NotificationGroup, ...]:
    """Group notices: kills first, then refusals, then pauses; within a topic the largest group first."""
    found: dict[tuple[NotificationTopic, str, str], list[NotificationEvent]] = {}
    for notice in notices:
        found.setdefault((notice.topic, notice.namespace, notice.reason), []).append(notice)
    groups = [
        NotificationGroup(*key, len(alike), alike[0].at, alike[-1].at, alike[-1].message)
        for key, alike in found.items()
    ]
    order = list(NotificationTopic)
    return tuple(sorted(groups, key=lambda one: (order.index(one.topic), -one.count, one.namespace, one.reason)))


@dataclass(frozen=True, slots=True)
class NotificationCounts:
    """What others got to know of one pass: VerticalPodAutoscalers written, notices sent, and notices dropped."""

    published: int = 0
    sent: int = 0
    dropped: int = 0


NO_NOTIFICATIONS = NotificationCounts()
