"""A packing plan with how far it is carried out, as the API and `cruise serve --once` show it."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from cruise.domain.actions import ResizePod
from cruise.domain.packing import Arrival, PackingPlan, Preemption, Stage
from cruise.interfaces.packing.halt_words import plan_halt_words
from cruise.interfaces.packing.later_words import LaterPlans, later_plans
from cruise.interfaces.packing.note_words import note_words
from cruise.interfaces.packing.unplaced_words import unplaced_words
from cruise.interfaces.shapes import camel

_CAMEL: dict[str, Any] = {"alias_generator": camel, "populate_by_name": True}


@dataclass(frozen=True, slots=True)
class PlacedPod:
    """A pending pod and its node in the plan."""

    namespace: str
    pod: str
    node: str


@dataclass(frozen=True, slots=True)
class MovedPod:
    """A running pod that goes elsewhere."""

    __pydantic_config__ = _CAMEL
    namespace: str
    pod: str
    from_: str
    to: str


@dataclass(frozen=True, slots=True)
class PreemptedPod:
    """A running pod that gives way to a higher priority."""

    __pydantic_config__ = _CAMEL
    namespace: str
    pod: str
    from_: str


@dataclass(frozen=True, slots=True)
class ContainerSize:
    """What a container is to request; null leaves a value as it is."""

    __pydantic_config__ = _CAMEL
    container: str
    cpu_millicores: int | None
    memory_bytes: int | None


@dataclass(frozen=True, slots=True)
class ResizedPod:
    """A pod that shrinks to make room."""

    namespace: str
    pod: str
    node: str | None
    containers: list[ContainerSize]


@dataclass(frozen=True, slots=True)
class UnplacedPod:
    """A pod that stays pending, and what keeps it out."""

    __pydantic_config__ = _CAMEL
    namespace: str
    pod: str
    blocked_by: list[str]
    words: str
    impossible: bool


@dataclass(frozen=True, slots=True)
class PriorityLine:
    """How many pods of a priority the plan places, how many ran before, and how many no plan surpasses."""

    priority: int
    placed: int
    running: int
    bound: int


@dataclass(frozen=True, slots=True)
class StageSteps:
    """A stage, in words: resizes, then evictions, then arrivals, each as NAMESPACE/POD with its node."""

    resizes: list[str]
    evictions: list[str]
    arrivals: list[str]


@dataclass(frozen=True, slots=True)
class PackingDocument:
    """The last packing plan; `phase` is shown, under-way, finished or dropped, `stage` counts the stages done."""

    __pydantic_config__ = _CAMEL
    id: str
    at: datetime
    status: str
    sizes: str
    seconds: float
    phase: str
    detail: str
    changed_at: datetime
    stage: int
    evicted_in_stage: int
    placed: list[PlacedPod]
    moves: list[MovedPod]
    preempted: list[PreemptedPod]
    resizes: list[ResizedPod]
    unplaced: list[UnplacedPod]
    by_priority: list[PriorityLine]
    stages: list[StageSteps]
    notes: list[str]
    later: LaterPlans | None


@dataclass(frozen=True, slots=True)
class PackingPage:
    """The last packing plan, null where none was ever made."""

    plan: PackingDocument | None


def packing_document(plan: PackingPlan) -> PackingDocument:
    """Return a plan as it is shown."""
    proposal = plan.proposal
    return PackingDocument(
        id=plan.id,
        at=plan.at,
        status=proposal.status.value,
        sizes=proposal.sizes.value,
        seconds=round(plan.seconds, 3),
        phase=plan.phase.value,
        detail=plan_halt_words(plan),
        changed_at=plan.changed_at,
        stage=plan.stage,
        evicted_in_stage=len(plan.departed),
        placed=placed_pods(proposal.placed),
        moves=moved_pods(proposal.moves),
        preempted=preempted_pods(proposal.preempted),
        resizes=[ResizedPod(one.namespace, one.pod, one.node, _sizes(one)) for one in proposal.resizes],
        unplaced=[
            UnplacedPod(one.namespace, one.pod, list(one.blocked_by), unplaced_words(one), one.impossible)
            for one in proposal.unplaced
        ],
        by_priority=[
            PriorityLine(line.priority, line.placed, running=line.bound, bound=line.most)
            for line in proposal.by_priority
        ],
        stages=[_steps(stage) for stage in proposal.stages],
        notes=[note_words(note) for note in proposal.notes],
        later=None if proposal.later is None else later_plans(proposal.later),
    )


def placed_pods(arrivals: Iterable[Arrival]) -> list[PlacedPod]:
    """Return pending pods with the nodes they get."""
    return [PlacedPod(one.namespace, one.pod, one.target) for one in arrivals]


def moved_pods(arrivals: Iterable[Arrival]) -> list[MovedPod]:
    """Return running pods with the nodes that they leave and get."""
    return [MovedPod(one.namespace, one.pod, one.source or "", one.target) for one in arrivals]


def preempted_pods(preemptions: Iterable[Preemption]) -> list[PreemptedPod]:
    """Return running pods with the nodes that they lose."""
    return [PreemptedPod(one.namespace, one.pod, one.source) for one in preemptions]


def _sizes(resize: ResizePod) -> list[ContainerSize]:
    return [
        ContainerSize(one.container, one.requests.cpu_millicores, one.requests.memory_bytes)
        for one in resize.containers
    ]


def _steps(stage: Stage) -> StageSteps:
    return StageSteps(
        resizes=[f"{one.namespace}/{one.pod} on {one.node or 'no node yet'}" for one in stage.resizes],
        evictions=[f"{one.namespace}/{one.pod} from {one.source}" for one in stage.leaves],
        arrivals=[f"{one.namespace}/{one.pod} on {one.target}" for one in stage.arrivals],
    )
