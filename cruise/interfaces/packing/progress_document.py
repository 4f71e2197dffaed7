"""A packing plan with how far it is carried out, as the API and `cruise serve --once` show it."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from cruise.domain.actions import ContainerTarget, ResizePod
from cruise.domain.packing import Arrival, PackingPlan, Preemption, Stage
from cruise.interfaces.packing.later_words import later_json
from cruise.interfaces.packing.unplaced_words import unplaced_words
from cruise.interfaces.shapes import camel, shape

Json = dict[str, object]

_NAMES = {"source": "from", "target": "to"}
_CAMEL: dict[str, Any] = {"alias_generator": lambda name: _NAMES.get(name, camel(name)), "populate_by_name": True}


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
    source: str
    target: str


@dataclass(frozen=True, slots=True)
class PreemptedPod:
    """A running pod that gives way to a higher priority."""

    __pydantic_config__ = _CAMEL
    namespace: str
    pod: str
    source: str


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
class SpentBudget:
    """Budgets of one kind of which the plan leaves nothing: hour, node, workload or disruption-budget."""

    budget: str
    of: list[str]
    allowed: int


@dataclass(frozen=True, slots=True)
class LaterGo:
    """What one more plan would place of the pods that wait, once budgets have filled up again."""

    placed: int
    evictions: int


@dataclass(frozen=True, slots=True)
class LargerPlan:
    """What takes more evictions in one go than budgets allow, and the settings that would allow them."""

    placed: int
    evictions: int
    needs: dict[str, int]


@dataclass(frozen=True, slots=True)
class LaterPlans:
    """What eviction budgets leave to later plans; null where they leave nothing."""

    spent: list[SpentBudget]
    goes: list[LaterGo]
    larger: LargerPlan | None
    words: str


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


def packing_document(plan: PackingPlan) -> Mapping[str, object]:
    """Return a plan as JSON values, with the keys of `PackingDocument`."""
    proposal = plan.proposal
    return {
        "id": plan.id,
        "at": shape(plan.at),
        "status": proposal.status.value,
        "sizes": proposal.sizes.value,
        "seconds": round(plan.seconds, 3),
        "phase": plan.phase.value,
        "detail": plan.detail,
        "changedAt": shape(plan.changed_at),
        "stage": plan.stage,
        "evictedInStage": len(plan.departed),
        "placed": [{"namespace": one.namespace, "pod": one.pod, "node": one.target} for one in proposal.placed],
        "moves": [
            {"namespace": one.namespace, "pod": one.pod, "from": one.source, "to": one.target} for one in proposal.moves
        ],
        "preempted": [{"namespace": one.namespace, "pod": one.pod, "from": one.source} for one in proposal.preempted],
        "resizes": [_resize(one) for one in proposal.resizes],
        "unplaced": [
            {
                "namespace": one.namespace,
                "pod": one.pod,
                "blockedBy": list(one.blocked_by),
                "words": unplaced_words(one),
                "impossible": one.impossible,
            }
            for one in proposal.unplaced
        ],
        "byPriority": [
            {"priority": line.priority, "placed": line.placed, "running": line.bound, "bound": line.most}
            for line in proposal.by_priority
        ],
        "stages": [_stage(stage) for stage in proposal.stages],
        "notes": list(proposal.notes),
        "later": None if proposal.later is None else later_json(proposal.later),
    }


def _resize(one: ResizePod) -> Json:
    return {
        "namespace": one.namespace,
        "pod": one.pod,
        "node": one.node,
        "containers": [_size(target) for target in one.containers],
    }


def _size(target: ContainerTarget) -> Json:
    requests = target.requests
    return {
        "container": target.container,
        "cpuMillicores": requests.cpu_millicores,
        "memoryBytes": requests.memory_bytes,
    }


def _stage(stage: Stage) -> Json:
    return {
        "resizes": [f"{one.namespace}/{one.pod} on {one.node or 'no node yet'}" for one in stage.resizes],
        "evictions": [_leave(one) for one in stage.leaves],
        "arrivals": [f"{one.namespace}/{one.pod} on {one.target}" for one in stage.arrivals],
    }


def _leave(one: Arrival | Preemption) -> str:
    return f"{one.namespace}/{one.pod} from {one.source}"
