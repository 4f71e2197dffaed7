"""A packing in the cluster's own names, with the order in which it can be carried out."""

from dataclasses import dataclass
from enum import StrEnum

from cruise.decisions.packing.certificate import Status
from cruise.domain.actions import ContainerTarget, ResizePod


class Sizes(StrEnum):
    """Whether pods keep what they ask for, or are sized to their base and a share of their node's headroom."""

    FIXED = "fixed"
    RIGHTSIZED = "rightsized"


@dataclass(frozen=True, slots=True)
class Arrival:
    """A pod that is to run on `target`: from `source`, or from pending (None).

    `containers` is what it asks for there, where that is not what it asks for now.
    """

    namespace: str
    pod: str
    uid: str
    source: str | None
    target: str
    containers: tuple[ContainerTarget, ...] = ()


@dataclass(frozen=True, slots=True)
class Preemption:
    """A running pod that loses its place for pods of a higher priority."""

    namespace: str
    pod: str
    uid: str
    source: str


@dataclass(frozen=True, slots=True)
class Stage:
    """A part of a plan that is carried out whole before the next: shrinks, then evictions, then arrivals in order.

    Everything in `leaves` is out of its node before anything arrives; each arrival is allowed by kube-scheduler's
    filters with all before it in place.
    """

    resizes: tuple[ResizePod, ...]
    leaves: tuple[Arrival | Preemption, ...]
    arrivals: tuple[Arrival, ...]


@dataclass(frozen=True, slots=True)
class Unplaced:
    """A pod that stays pending: a smallest set of obstacles that together keep it out, and the same in words.

    `impossible` tells that this is proved, whatever is moved or preempted for it.
    """

    namespace: str
    pod: str
    blocked_by: tuple[str, ...]
    words: str
    impossible: bool


@dataclass(frozen=True, slots=True)
class TierLine:
    """How many pods of a priority the plan places, and how many run now; `most` is what no plan surpasses."""

    priority: int
    placed: int
    bound: int
    most: int


@dataclass(frozen=True, slots=True)
class Proposal:
    """A whole plan for a cluster; lists are sorted by namespace and pod, stages are in their order."""

    status: Status
    sizes: Sizes
    placed: tuple[Arrival, ...]
    moves: tuple[Arrival, ...]
    preempted: tuple[Preemption, ...]
    resizes: tuple[ResizePod, ...]
    unplaced: tuple[Unplaced, ...]
    by_priority: tuple[TierLine, ...]
    stages: tuple[Stage, ...]
    notes: tuple[str, ...] = ()
