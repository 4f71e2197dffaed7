"""What the API answers with: frozen values whose keys are in camel case in JSON."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from cruise.interfaces.shapes import camel

_CAMEL: dict[str, Any] = {"alias_generator": camel, "populate_by_name": True}


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a request was not answered, in one line."""

    error: str


@dataclass(frozen=True, slots=True)
class JobStatus:
    """A job of the controller; `error` is why its latest run was dropped, null where it went through."""

    __pydantic_config__ = _CAMEL
    name: str
    runs: int
    failures: int
    failures_in_a_row: int
    last_seconds: float
    last_ended_at: datetime | None
    last_success_at: datetime | None
    error: str | None


@dataclass(frozen=True, slots=True)
class Status:
    """The process that answers. `paused` is null where the store does not say, and `storeError` says why."""

    __pydantic_config__ = _CAMEL
    version: str
    mode: str
    paused: bool | None
    store_error: str | None
    leader: bool
    jobs: list[JobStatus]
    last_pass_at: datetime | None
    statistics_at: datetime | None
    watch_lag_seconds: float | None


@dataclass(frozen=True, slots=True)
class Pause:
    """Whether every write to the cluster is stopped."""

    paused: bool


@dataclass(frozen=True, slots=True)
class Sizes:
    """CPU and memory."""

    __pydantic_config__ = _CAMEL
    cpu_millicores: int
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class PlannedEviction:
    """A pod that has to go, and the resource on whose account."""

    namespace: str
    pod: str
    ranking: str
    resource: str


@dataclass(frozen=True, slots=True)
class PlannedTarget:
    """What a container gets, moved far enough to be written or not; no memory limit is null."""

    __pydantic_config__ = _CAMEL
    namespace: str
    pod: str
    container: str
    cpu_millicores: int
    memory_bytes: int
    memory_limit_bytes: int | None


@dataclass(frozen=True, slots=True)
class PlannedResize:
    """The strategic-merge patch of a pod's `resize` subresource."""

    namespace: str
    pod: str
    patch: dict[str, Any]


@dataclass(frozen=True, slots=True)
class PlannedHold:
    """A pod left as it is."""

    namespace: str
    pod: str
    reason: str


@dataclass(frozen=True, slots=True)
class NodePlanDocument:
    """One node's plan, as `cruise plan` prints it."""

    node: str
    fits: bool
    reason: str | None
    available: Sizes
    evict: list[PlannedEviction]
    targets: list[PlannedTarget]
    resize: list[PlannedResize]
    hold: list[PlannedHold]


@dataclass(frozen=True, slots=True)
class NodePage:
    """Some of the last pass's nodes by name, from `offset` on; `total` counts all."""

    at: datetime
    total: int
    offset: int
    items: list[NodePlanDocument]


@dataclass(frozen=True, slots=True)
class OutcomeLine:
    """One line of the audit: `why` is what the action was for, `reason` what decided how it ended."""

    at: datetime
    action: str
    namespace: str | None
    pod: str | None
    node: str | None
    workload: str | None
    why: str
    verdict: str
    reason: str
    words: str
    detail: str


@dataclass(frozen=True, slots=True)
class OutcomePage:
    """The newest lines since a time, newest first; `more` tells that there are older ones."""

    items: list[OutcomeLine]
    more: bool


@dataclass(frozen=True, slots=True)
class OverrideEntry:
    """What is stored for one workload; `settings` are named and written as the annotations, without their prefix."""

    namespace: str
    kind: str
    name: str
    settings: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class OverridePage:
    """Some of the stored overrides by namespace, kind and name, from `offset` on; `total` counts all."""

    total: int
    offset: int
    items: list[OverrideEntry]
