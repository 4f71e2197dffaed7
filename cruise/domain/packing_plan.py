"""A packing plan in a cluster's own names: what is proposed, how far it is carried out, where pods are steered."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from operator import attrgetter
from typing import TypeVar

from cruise.domain.actions import ContainerTarget, PodItem, ResizePod
from cruise.domain.cluster import Node, WorkloadRef
from cruise.domain.reasons import PlanCondition, UnplacedPod
from cruise.packer.answer import PackingNote, PackingStatus

_OfPod = TypeVar("_OfPod", bound=PodItem)


def _sorted(found: Iterable[_OfPod]) -> tuple[_OfPod, ...]:
    return tuple(sorted(found, key=attrgetter("key")))


class PackingSizes(StrEnum):
    """Whether pods keep what they ask for, or are sized to their base and a share of their node's headroom."""

    FIXED = "fixed"
    RIGHTSIZED = "rightsized"


@dataclass(frozen=True, slots=True)
class EvictionAllowance:
    """How many evictions a plan may ask for beside what PodDisruptionBudgets allow; None is no limit.

    `each_workload` holds for every workload that `of_workloads` does not name, `each_node` for every node that
    `of_nodes` does not.
    """

    total: int | None = None
    per_workload: int | None = None
    by_workload: Mapping[tuple[str, WorkloadRef], int] = field(default_factory=dict)
    per_node: int | None = None
    by_node: Mapping[str, int] = field(default_factory=dict)

    def get_for_workload(self, namespace: str, ref: WorkloadRef) -> int | None:
        """Return how many pods of a workload may be evicted."""
        return self.by_workload.get((namespace, ref), self.per_workload)

    def get_for_node(self, node: str) -> int | None:
        """Return how many pods of a node may be evicted."""
        return self.by_node.get(node, self.per_node)


UNLIMITED = EvictionAllowance()


@dataclass(frozen=True, slots=True)
class PlannedPlacement(PodItem):
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
class PlannedPreemption(PodItem):
    """A running pod that loses its place for pods of a higher priority."""

    namespace: str
    pod: str
    uid: str
    source: str


@dataclass(frozen=True, slots=True)
class PlanStage:
    """A part of a plan that is carried out whole before the next: shrinks, then evictions, then arrivals in order.

    Everything in `leaves` is out of its node before anything arrives; each arrival is allowed by kube-scheduler's
    filters with all before it in place.
    """

    resizes: tuple[ResizePod, ...]
    evictions: tuple[PlannedPlacement | PlannedPreemption, ...]
    arrivals: tuple[PlannedPlacement, ...]


@dataclass(frozen=True, slots=True)
class PriorityResult:
    """How many pods of a priority the plan places, and how many run now; `most` is what no plan surpasses."""

    priority: int
    placed: int
    bound: int
    maximum: int


@dataclass(frozen=True, slots=True)
class NodeType:
    """A kind of node that may be ordered: what pods have of one, what one costs, and how many more there may be.

    `template` is a node of the kind, whatever its name; `price` is in the unit of all types, `limit` None for any
    number. `pool` is the NodePool that orders it, empty where none does.
    """

    name: str
    template: Node
    price: float = 1.0
    limit: int | None = None
    pool: str = ""


class NodeCostMeasure(StrEnum):
    """What few nodes are measured by: their number, their size, or stated prices."""

    NUMBER = "number"
    SIZE = "size"
    PRICE = "price"


@dataclass(frozen=True, slots=True, order=True)
class AddedNodes:
    """How many nodes of a type a plan adds, and from which NodePool; empty where they are of none."""

    type: str
    count: int
    pool: str = ""


@dataclass(frozen=True, slots=True)
class NodeCountChange:
    """What a plan makes of the nodes in use: how many there are, how many after it, and in any plan at least.

    A node is in use while a pod is there that does not belong to the node itself, as those of DaemonSets do. `emptied`
    are in the order in which the plan empties them. Prices are in the unit of `measure`, None where that is the number.
    `kept` has for each detail that keeps pods from moving how many nodes stay in use for it alone, `without` for some
    of those constraints how many nodes a plan without it needs. `silent` has NodePools that offer no type, and the
    detail behind it.
    """

    nodes_before: int
    nodes_after: int
    nodes_bound: int
    drained: tuple[str, ...] = ()
    added: tuple[AddedNodes, ...] = ()
    price_before: float | None = None
    price_after: float | None = None
    price_bound: float | None = None
    kept_by_reason: tuple[tuple[str, int], ...] = ()
    nodes_after_by_lifted_constraint: tuple[tuple[str, int], ...] = ()
    measure: NodeCostMeasure = NodeCostMeasure.NUMBER
    pools_without_types: tuple[tuple[str, str], ...] = ()


class EvictionBudgetKind(StrEnum):
    """What bounds evictions: of an hour, of a node or a workload in one pass, or of a PodDisruptionBudget."""

    HOUR = "hour"
    NODE = "node"
    WORKLOAD = "workload"
    DISRUPTION = "disruption-budget"


@dataclass(frozen=True, slots=True)
class SpentBudget:
    """Budgets of one kind of which nothing is left: what each of them allowed, `of` which nodes or the like."""

    budget: EvictionBudgetKind
    subjects: tuple[str, ...]
    allowed: int


@dataclass(frozen=True, slots=True)
class PlanRound:
    """What a plan adds to those before it: of the pods that wait now, and by how many evictions."""

    placed: int
    evictions: int


@dataclass(frozen=True, slots=True)
class LargerBudgetPlan:
    """What a plan under larger budgets would add, and how large those would have to be."""

    placed: int
    evictions: int
    needs: tuple[tuple[EvictionBudgetKind, int], ...]


@dataclass(frozen=True, slots=True)
class RemainingRounds:
    """What a plan leaves to be done, since budgets end it.

    `goes` are further plans, each once the one before is carried out and budgets have filled up again; `larger` is
    what none of them does, as it takes more evictions at once than these budgets ever allow.
    """

    spent: tuple[SpentBudget, ...]
    rounds: tuple[PlanRound, ...]
    with_larger_budgets: LargerBudgetPlan | None = None


@dataclass(frozen=True, slots=True)
class PackingProposal:
    """A whole plan for a cluster: `stages` in their order, and lists of what they do, sorted by namespace and pod.

    `least_evicted` pods at least are evicted by every plan that places as many of each priority. `fleet` is there for
    a plan that is to need as few nodes as can be. Such a plan is carried out over hours: what a PodDisruptionBudget
    allows is there again for each stage. `later` is there where eviction budgets end the plan.
    """

    status: PackingStatus
    sizes: PackingSizes
    unplaced: tuple[UnplacedPod, ...]
    by_priority: tuple[PriorityResult, ...]
    stages: tuple[PlanStage, ...]
    notes: tuple[PackingNote, ...] = ()
    node_count_change: NodeCountChange | None = None
    remaining_rounds: RemainingRounds | None = None
    least_evicted: int = 0

    def with_stages(self, stages: Sequence[PlanStage]) -> "PackingProposal":
        """Return what some stages do as a plan of its own, which leaves no pod pending."""
        return replace(self, unplaced=(), stages=tuple(stage for stage in stages if stage != PlanStage((), (), ())))

    @property
    def placed(self) -> tuple[PlannedPlacement, ...]:
        """The pods that were pending."""
        return _sorted(one for stage in self.stages for one in stage.arrivals if one.source is None)

    @property
    def moves(self) -> tuple[PlannedPlacement, ...]:
        """The pods that run elsewhere then."""
        return _sorted(one for stage in self.stages for one in stage.arrivals if one.source is not None)

    @property
    def preempted(self) -> tuple[PlannedPreemption, ...]:
        """The pods that lose their place."""
        return _sorted(one for stage in self.stages for one in stage.evictions if isinstance(one, PlannedPreemption))

    @property
    def resizes(self) -> tuple[ResizePod, ...]:
        """The pods that are resized where they are."""
        return _sorted(one for stage in self.stages for one in stage.resizes)

    @property
    def evicted(self) -> frozenset[str]:
        """The uids of the pods that leave their nodes."""
        return frozenset([one.uid for one in self.moves] + [one.uid for one in self.preempted])


class PlanPhase(StrEnum):
    """How far a plan is carried out."""

    ADVISORY = "advisory"  # the mode goes no further, or there is nothing to do
    IN_PROGRESS = "in-progress"
    FINISHED = "finished"
    DROPPED = "dropped"


@dataclass(frozen=True, slots=True)
class EvictedPod:
    """A pod of a plan that was evicted, and when."""

    uid: str
    at: datetime


@dataclass(frozen=True, slots=True)
class PlacedPod:
    """The pod that a planned arrival has become: the same pod, or its replacement; `node` None while it waits."""

    uid: str
    placed_uid: str
    node: str | None = None


@dataclass(frozen=True, slots=True)
class PlacementHint:
    """One pod that a controller is about to create in another one's place, and the node that it is to prefer.

    `pod` is the name that it will have, None where names are drawn. `replaces` is the uid of the pod in whose place it
    comes; nothing is steered after `until`. `containers` is what it asks for there, where that is planned.
    """

    plan: str
    replaces: str
    namespace: str
    owner_kind: str
    owner_name: str
    pod: str | None
    node: str
    expires_at: datetime
    containers: tuple[ContainerTarget, ...] = ()


@dataclass(frozen=True, slots=True)
class PackingPlan:
    """A proposal with how far it is carried out; `id` tells plans apart.

    `at` is when its cluster was looked at, `seconds` what solving took. `stage` counts the stages that are done; what
    follows is of the present one. `expected` are the pods that are to be created, in place of pods that are evicted: of
    those that move, and of pending ones that would else go where others are to go. `bystanders` are the uids of pods of
    the same owners that were there before: a pod that is not among them is a replacement. `ready_at` is when the
    webhook knows of the stage, None before that. `halt` says why a plan was dropped, is only shown
    or waits.
    """

    id: str
    at: datetime
    proposal: PackingProposal
    seconds: float
    phase: PlanPhase
    changed_at: datetime
    stage: int = 0
    evicted: tuple[EvictedPod, ...] = ()
    placed: tuple[PlacedPod, ...] = ()
    expected: tuple[PlacementHint, ...] = ()
    earlier_pods: tuple[str, ...] = ()
    ready_at: datetime | None = None
    condition: PlanCondition | None = None

    @property
    def placement_hints(self) -> tuple[PlacementHint, ...]:
        """The pods still to be steered: those expected that nothing has replaced yet."""
        landed = {landing.uid for landing in self.placed}
        under_way = self.phase is PlanPhase.IN_PROGRESS
        return tuple(one for one in self.expected if under_way and one.replaces not in landed)
