"""What people are notified of, and how much of it at a time."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class Topic(StrEnum):
    """What a notice is about."""

    KILLED = "killed"
    REFUSED = "refused"
    PAUSED = "paused"


@dataclass(frozen=True, slots=True)
class Notice:
    """One thing that happened; notices that share topic, namespace and reason are reported together."""

    at: datetime
    topic: Topic
    namespace: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class NoticeGroup:
    """Notices of one topic, namespace and reason: how many, since when until when, and what the last one said."""

    topic: Topic
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
    groups: tuple[NoticeGroup, ...]
    dropped: int = 0


def grouped(notices: Iterable[Notice]) -> tuple[NoticeGroup, ...]:
    """Group notices: kills first, then refusals, then pauses; within a topic the largest group first."""
    found: dict[tuple[Topic, str, str], list[Notice]] = {}
    for notice in notices:
        found.setdefault((notice.topic, notice.namespace, notice.reason), []).append(notice)
    groups = [
        NoticeGroup(*key, len(alike), alike[0].at, alike[-1].at, alike[-1].message) for key, alike in found.items()
    ]
    order = list(Topic)
    return tuple(sorted(groups, key=lambda one: (order.index(one.topic), -one.count, one.namespace, one.reason)))


@dataclass(frozen=True, slots=True)
class Told:
    """What others got to know of one pass: VerticalPodAutoscalers written, notices sent, and notices dropped."""

    published: int = 0
    sent: int = 0
    dropped: int = 0


NOBODY_TOLD = Told()
