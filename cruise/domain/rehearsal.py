"""A change of rules tried on the cluster's own history before it holds: what is tried, and what it showed."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from cruise.domain.backtest_difference import Figure, FigureDifference
from cruise.domain.cluster import WorkloadRef


class Stage(StrEnum):
    """How far a rehearsal is."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Proposal:
    """What is tried: overrides of one workload as annotations have them, or settings of the cluster by their keys."""

    settings: Mapping[str, str]
    namespace: str | None = None
    workload: WorkloadRef | None = None


@dataclass(frozen=True, slots=True)
class Comparison:
    """What is proposed (`here`) against what holds today, over the same days; `notes` say what is left out."""

    days: float
    containers: int
    figures: Mapping[Figure, FigureDifference]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """The last one that was asked for; `what` says what it is at, `done` how much of that, from 0 to 1."""

    proposal: Proposal
    caller: str
    began_at: datetime
    stage: Stage = Stage.RUNNING
    what: str = ""
    done: float = 0.0
    comparison: Comparison | None = None
    error: str = ""
