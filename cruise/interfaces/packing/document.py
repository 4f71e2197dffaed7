"""Builds the documents of packing plans: for the API, for `cruise serve --once` and for `cruise pack -o json`."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

import msgspec

from cruise.domain.actions import ResizePod
from cruise.domain.cluster import PodsByName
from cruise.domain.packing_plan import (
    AddedNodes,
    NodeCostMeasure,
    NodeCountChange,
    PackingPlan,
    PackingProposal,
    PlannedPlacement,
    PlannedPreemption,
    PlanStage,
)
from cruise.domain.reasons import UnplacedPod
from cruise.interfaces.packing.descriptions import (
    RemainingRoundsDocument,
    build_remaining_rounds_document,
    describe_note,
    describe_plan_condition,
)
from cruise.interfaces.packing.nodes import compute_sizes_after_plan
from cruise.interfaces.packing.unschedulable import describe_unplaced_pod
from cruise.interfaces.text import CAMEL_CASE_CONFIG, convert_to_json
from cruise.kube_json.patches import JsonObject


@dataclass(frozen=True, slots=True)
class PlacedPodDocument:
    """A pending pod and its planned node."""

    namespace: str
    pod: str
    node: str


@dataclass(frozen=True, slots=True)
class MovedPodDocument:
    """A running pod that moves to another node."""

    __pydantic_config__ = CAMEL_CASE_CONFIG
    namespace: str
    pod: str
    from_: str
    to: str


@dataclass(frozen=True, slots=True)
class PreemptedPodDocument:
    """A running pod that is preempted for a higher priority."""

    __pydantic_config__ = CAMEL_CASE_CONFIG
    namespace: str
    pod: str
    from_: str


@dataclass(frozen=True, slots=True)
class ContainerRequestsDocument:
    """The planned requests of a container; null leaves a value as it is."""

    __pydantic_config__ = CAMEL_CASE_CONFIG
    container: str
    cpu_millicores: int | None
    memory_bytes: int | None


@dataclass(frozen=True, slots=True)
class ResizedPodDocument:
    """A pod whose requests decrease to free capacity."""

    namespace: str
    pod: str
    node: str | None
    containers: list[ContainerRequestsDocument]


@dataclass(frozen=True, slots=True)
class UnplacedPodDocument:
    """A pod that stays pending, and its obstacles."""

    __pydantic_config__ = CAMEL_CASE_CONFIG
    namespace: str
    pod: str
    blocked_by: list[str]
    message: str
    impossible: bool


@dataclass(frozen=True, slots=True)
class PriorityDocument:
    """For a priority, the pods that the plan places, that run now, and that no plan exceeds."""

    priority: int
    placed: int
    running: int
    bound: int


@dataclass(frozen=True, slots=True)
class StageDocument:
    """A stage: resizes, then evictions, then arrivals, each as NAMESPACE/POD with its node."""

    resizes: list[str]
    evictions: list[str]
    arrivals: list[str]


@dataclass(frozen=True, slots=True)
class PackingDocument:
    """The last packing plan; `phase` is shown, in-progress, finished or dropped, `stage` counts finished stages."""

    __pydantic_config__ = CAMEL_CASE_CONFIG
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
    placed: list[PlacedPodDocument]
    moves: list[MovedPodDocument]
    preempted: list[PreemptedPodDocument]
    resizes: list[ResizedPodDocument]
    unplaced: list[UnplacedPodDocument]
    by_priority: list[PriorityDocument]
    stages: list[StageDocument]
    notes: list[str]
    remaining_rounds: RemainingRoundsDocument | None


@dataclass(frozen=True, slots=True)
class LastPackingPlanDocument:
    """The last packing plan; null if none was made."""

    plan: PackingDocument | None


def build_packing_document(plan: PackingPlan) -> PackingDocument:
    """Return a plan as a document."""
    proposal = plan.proposal
    return PackingDocument(
        id=plan.id,
        at=plan.at,
        status=proposal.status.value,
        sizes=proposal.sizes.value,
        seconds=round(plan.seconds, 3),
        phase=plan.phase.value,
        detail=describe_plan_condition(plan),
        changed_at=plan.changed_at,
        stage=plan.stage,
        evicted_in_stage=len(plan.evicted),
        placed=list_placed_pods(proposal.placed),
        moves=list_moved_pods(proposal.moves),
        preempted=list_preempted_pods(proposal.preempted),
        resizes=[
            ResizedPodDocument(one.namespace, one.pod, one.node, _list_container_requests(one))
            for one in proposal.resizes
        ],
        unplaced=[
            UnplacedPodDocument(
                one.namespace, one.pod, list(one.blocked_by), describe_unplaced_pod(one), one.impossible
            )
            for one in proposal.unplaced
        ],
        by_priority=[
            PriorityDocument(line.priority, line.placed, running=line.running, bound=line.maximum)
            for line in proposal.by_priority
        ],
        stages=[_build_stage(stage) for stage in proposal.stages],
        notes=[describe_note(note) for note in proposal.notes],
        remaining_rounds=(
            None if proposal.remaining_rounds is None else build_remaining_rounds_document(proposal.remaining_rounds)
        ),
    )


def list_placed_pods(arrivals: Iterable[PlannedPlacement]) -> list[PlacedPodDocument]:
    """Return pending pods with their planned nodes."""
    return [PlacedPodDocument(one.namespace, one.pod, one.target) for one in arrivals]


def list_moved_pods(arrivals: Iterable[PlannedPlacement]) -> list[MovedPodDocument]:
    """Return moved pods with their present and planned nodes."""
    return [MovedPodDocument(one.namespace, one.pod, one.source or "", one.target) for one in arrivals]


def list_preempted_pods(preemptions: Iterable[PlannedPreemption]) -> list[PreemptedPodDocument]:
    """Return preempted pods with their present nodes."""
    return [PreemptedPodDocument(one.namespace, one.pod, one.source) for one in preemptions]


def _list_container_requests(resize: ResizePod) -> list[ContainerRequestsDocument]:
    return [
        ContainerRequestsDocument(one.container, one.requests.cpu_millicores, one.requests.memory_bytes)
        for one in resize.containers
    ]


def _build_stage(stage: PlanStage) -> StageDocument:
    return StageDocument(
        resizes=[f"{one.namespace}/{one.pod} on {one.node or 'no node yet'}" for one in stage.resizes],
        evictions=[f"{one.namespace}/{one.pod} from {one.source}" for one in stage.evictions],
        arrivals=[f"{one.namespace}/{one.pod} on {one.target}" for one in stage.arrivals],
    )


# The keys of this JSON document are a contract.

_DECIMALS = 3


def render_pack_json(
    proposal: PackingProposal, pods: PodsByName, seconds: float, *, within_budgets: bool = False
) -> Iterator[bytes]:
    """Yield the JSON document of `cruise pack`; `pods` by (namespace, name), `seconds` of solving.

    `within_budgets` adds what eviction budgets leave to later rounds. A resize has the requests of the whole pod.
    `bound` of a priority is what no plan exceeds, `evictionsBound` the evictions that every plan needs to place as many
    pods.
    """
    document: JsonObject = {
        "status": proposal.status,
        "sizes": proposal.sizes,
        "seconds": round(seconds, _DECIMALS),
        "placed": list_placed_pods(proposal.placed),
        "moves": list_moved_pods(proposal.moves),
        "preempted": list_preempted_pods(proposal.preempted),
        "resizes": [
            {
                "namespace": namespace,
                "pod": pod,
                "node": node,
                "cpuMillicores": size.cpu_millicores,
                "memoryBytes": size.memory_bytes,
            }
            for (namespace, pod), (node, size) in sorted(compute_sizes_after_plan(proposal, pods).items())
        ],
        "unplaced": [_build_unplaced(one) for one in proposal.unplaced],
        "byPriority": [
            {"priority": priority.priority, "placed": priority.placed, "bound": priority.maximum}
            for priority in proposal.by_priority
        ],
        "evictions": len(proposal.evicted),
        "evictionsBound": proposal.min_evicted,
    }
    if proposal.node_count_change is not None:
        document |= _build_node_count_change(proposal.node_count_change)
    elif within_budgets:
        document["remainingRounds"] = (
            None if proposal.remaining_rounds is None else build_remaining_rounds_document(proposal.remaining_rounds)
        )
    yield msgspec.json.encode(convert_to_json(document))
    yield b"\n"


def _build_unplaced(one: UnplacedPod) -> JsonObject:
    document: JsonObject = {"namespace": one.namespace, "pod": one.pod, "blockedBy": one.blocked_by}
    return document | {"impossible": True} if one.impossible else document


def _build_node_count_change(change: NodeCountChange) -> JsonObject:
    has_prices = change.measure is NodeCostMeasure.PRICE
    return {
        "nodesBefore": change.nodes_before,
        "nodesAfter": change.nodes_after,
        "nodesBound": change.nodes_bound,
        "emptied": change.drained,
        "add": [_build_added_nodes(one) for one in change.added],
        "priceBefore": change.price_before if has_prices else None,
        "priceAfter": change.price_after if has_prices else None,
        "priceBound": change.price_bound if has_prices else None,
        "keptByReason": [{"reason": detail, "nodes": nodes} for detail, nodes in change.kept_by_reason],
        "nodesAfterByLiftedConstraint": [
            {"constraint": constraint, "nodes": nodes} for constraint, nodes in change.nodes_after_by_lifted_constraint
        ],
        "nodePoolsWithoutTypes": [{"nodePool": name, "reason": detail} for name, detail in change.pools_without_types],
    }


def _build_added_nodes(one: AddedNodes) -> JsonObject:
    document: JsonObject = {"type": one.type, "count": one.count}
    return document | {"nodePool": one.pool} if one.pool else document
