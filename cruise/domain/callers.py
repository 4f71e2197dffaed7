"""Who asks the API for something, what it takes to be answered, and what was written through it."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from cruise.domain.cluster import WorkloadRef


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


class Deed(StrEnum):
    """What people do to cruise itself."""

    PAUSE = "pause"
    RESUME = "resume"
    REVERT = "revert"
    PUT_OVERRIDE = "put-override"
    DELETE_OVERRIDE = "delete-override"


@dataclass(frozen=True, slots=True)
class Intervention:
    """Who did what: an override has a namespace, a workload and its settings in `detail`, a pause none of them.

    A revert has a namespace where it was of one alone.
    """

    at: datetime
    caller: str
    deed: Deed
    namespace: str | None = None
    workload: WorkloadRef | None = None
    detail: str = ""
