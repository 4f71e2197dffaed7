"""A packing plan with the names of the cluster: what it proposes, its progress, and its placement hints."""

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

_PodItemT = TypeVar("_PodItemT", bound=PodItem)


def _sorted(found: Iterable[_PodItemT]) -> tuple[_PodItemT, ...]:
    return tuple(sorted(found, key=attrgetter("key")))


class PackingSizes(StrEnum):
    """Whether pods keep their requests, or request their base and a share of their node's headroom."""

    FIXED = "fixed"
    RIGHTSIZED = "rightsized"


@dataclass(frozen=True, slots=True)
class EvictionAllowance:
    """How many pods a plan may evict, in addition to PodDisruptionBudgets; None: no limit.

    `default_per_workload` and `default_per_node` apply to workloads and nodes that `by_workload` and `by_node` do not
    name.
    """

    total: int | None = None
    default_per_workload: int | None = None
    by_workload: Mapping[tuple[str, WorkloadRef], int] = field(default_factory=dict)
    default_per_node: int | None = None
    by_node: Mapping[str, int] = field(default_factory=dict)

    def get_for_workload(self, namespace: str, ref: WorkloadRef) -> int | None:
        """Return how many pods of a workload may be evicted."""
        return self.by_workload.get((namespace, ref), self.default_per_workload)

    def get_for_node(self, node: str) -> int | None:
        """Return how many pods of a node may be evicted."""
        return self.by_node.get(node, self.default_per_node)


UNLIMITED = EvictionAllowance()


@dataclass(frozen=True, slots=True)
class PlannedPlacement(PodItem):
    """A pod that is planned to run on `target`: moved from `source`, or pending (None).

    `containers` has its planned sizes, empty if they do not change.
    """

    uid: str
    source: str | None
    target: str
    containers: tuple[ContainerTarget, ...] = ()


@dataclass(frozen=True, slots=True)
class PlannedPreemption(PodItem):
    """A running pod that is preempted by pods of a higher priority."""

    uid: str
    source: str


@dataclass(frozen=True, slots=True)
class PlanStage:
    """A part of a plan that is completed before the next: shrinks, then evictions, then arrivals in order.

    All `evictions` are done before the first arrival. kube-scheduler's filters allow each arrival after those before
    it.
    """

    resizes: tuple[ResizePod, ...]
    evictions: tuple[PlannedPlacement | PlannedPreemption, ...]
    arrivals: tuple[PlannedPlacement, ...]


@dataclass(frozen=True, slots=True)
class PriorityResult:
    """How many pods of a priority run with the plan and now, and at most with any plan."""

    priority: int
    placed: int
    running: int
    maximum: int


@dataclass(frozen=True, slots=True)
class NodeType:
    """A kind of node that can be ordered.

    `template` is a node of the type under any name. All prices have the same unit. `limit` None: any number. `pool` is
    the NodePool, empty if none orders it.
    """

    name: str
    template: Node
    price: float = 1.0
    limit: int | None = None
    pool: str = ""


class NodeCostMeasure(StrEnum):
    """What consolidation minimizes: the number of nodes, their size, or their stated price."""

    NUMBER = "number"
    SIZE = "size"
    PRICE = "price"


@dataclass(frozen=True, slots=True, order=True)
class AddedNodes:
    """How many nodes of a type a plan adds; `pool` is the NodePool or empty."""

    type: str
    count: int
    pool: str = ""


@dataclass(frozen=True, slots=True)
class NodeCountChange:
    """How a plan changes the nodes in use: before, after, and a lower bound over all plans.

    A node is in use if it runs a pod other than those bound to the node itself, such as those of DaemonSets. `drained`
    is in the order of draining. Prices are in the unit of `measure`, None if it is the number. `kept_by_reason` counts
    the nodes that stay in use only for a reason why pods cannot be moved; `nodes_after_by_lifted_constraint` has the
    number of nodes after a plan without that constraint. `pools_without_types` has NodePools that offer no type, and
    the reason.
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
    """The kinds of eviction budgets: by hour, by node or workload and pass, or a PodDisruptionBudget."""

    HOUR = "hour"
    NODE = "node"
    WORKLOAD = "workload"
    DISRUPTION = "disruption-budget"


@dataclass(frozen=True, slots=True)
class SpentBudget:
    """Spent budgets of one kind, each of which allowed `allowed` evictions."""

    budget: EvictionBudgetKind
    subjects: tuple[str, ...]
    allowed: int


@dataclass(frozen=True, slots=True)
class PlanRound:
    """What one further round of a plan adds: placements of pods that are pending now, and evictions."""

    placed: int
    evictions: int


@dataclass(frozen=True, slots=True)
class LargerBudgetPlan:
    """What a plan with larger budgets would add, and the budgets that it needs."""

    placed: int
    evictions: int
    needs: tuple[tuple[EvictionBudgetKind, int], ...]


@dataclass(frozen=True, slots=True)
class RemainingRounds:
    """What a plan leaves undone because budgets are spent.

    Each of `rounds` is possible after the one before it is carried out and budgets are full again.
    `with_larger_budgets` needs more evictions in one round than the budgets ever allow.
    """

    spent: tuple[SpentBudget, ...]
    rounds: tuple[PlanRound, ...]
    with_larger_budgets: LargerBudgetPlan | None = None


@dataclass(frozen=True, slots=True)
class PackingProposal:
    """A whole plan: `stages` in order, and lists of their contents, sorted by namespace and pod.

    Every plan that places as many pods of each priority evicts at least `min_evicted`. `node_count_change` is set for
    consolidation, whose stages each have the full PodDisruptionBudgets. `remaining_rounds` is set if budgets end the
    plan.
    """

    status: PackingStatus
    sizes: PackingSizes
    unplaced: tuple[UnplacedPod, ...]
    by_priority: tuple[PriorityResult, ...]
    stages: tuple[PlanStage, ...]
    notes: tuple[PackingNote, ...] = ()
    node_count_change: NodeCountChange | None = None
    remaining_rounds: RemainingRounds | None = None
    min_evicted: int = 0

    def with_stages(self, stages: Sequence[PlanStage]) -> "PackingProposal":
        """Return some of the stages as a plan without unplaced pods."""
        return replace(self, unplaced=(), stages=tuple(stage for stage in stages if stage != PlanStage((), (), ())))

    @property
    def placed(self) -> tuple[PlannedPlacement, ...]:
        """The placements of pending pods."""
        return _sorted(one for stage in self.stages for one in stage.arrivals if one.source is None)

    @property
    def moves(self) -> tuple[PlannedPlacement, ...]:
        """The moves of running pods."""
        return _sorted(one for stage in self.stages for one in stage.arrivals if one.source is not None)

    @property
    def preempted(self) -> tuple[PlannedPreemption, ...]:
        """The preempted pods."""
        return _sorted(one for stage in self.stages for one in stage.evictions if isinstance(one, PlannedPreemption))

    @property
    def resizes(self) -> tuple[ResizePod, ...]:
        """The pods that are resized on their nodes."""
        return _sorted(one for stage in self.stages for one in stage.resizes)

    @property
    def evicted(self) -> frozenset[str]:
        """The uids of moved and preempted pods."""
        return frozenset([one.uid for one in self.moves] + [one.uid for one in self.preempted])


class PlanPhase(StrEnum):
    """The progress of a plan."""

    ADVISORY = "advisory"  # not carried out, because of the mode or because there is nothing to do
    IN_PROGRESS = "in-progress"
    FINISHED = "finished"
    DROPPED = "dropped"


@dataclass(frozen=True, slots=True)
class EvictedPod:
    """A pod of a plan that was evicted at a time."""

    uid: str
    at: datetime


@dataclass(frozen=True, slots=True)
class ArrivalPod:
    """The pod of a planned arrival: the same pod or its replacement pod; `node` is None while it is pending."""

    uid: str
    placed_uid: str
    node: str | None = None


@dataclass(frozen=True, slots=True)
class PlacementHint:
    """A pod that a controller will create to replace another one, and the node that it should prefer.

    `pod` is its name, None if names are generated. `replaces` is the uid of the replaced pod. `containers` has its
    planned sizes, empty if they do not change.
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
    """A proposal with its progress.

    `at` is when the cluster was read. `stage` counts completed stages; the fields below it are about the current stage.
    `expected` are the pods that controllers will create, for moved pods and for pending ones that could be scheduled
    where others are planned. `earlier_pods` are the uids of pods of the same owners that existed before: other pods are
    replacements. `ready_at` is when the webhook got the stage, None before. `condition` says why a plan was dropped, is
    advisory or waits.
    """

    id: str
    at: datetime
    proposal: PackingProposal
    seconds: float
    phase: PlanPhase
    changed_at: datetime
    stage: int = 0
    evicted: tuple[EvictedPod, ...] = ()
    placed: tuple[ArrivalPod, ...] = ()
    expected: tuple[PlacementHint, ...] = ()
    earlier_pods: tuple[str, ...] = ()
    ready_at: datetime | None = None
    condition: PlanCondition | None = None

    @property
    def placement_hints(self) -> tuple[PlacementHint, ...]:
        """The hints for expected pods that do not exist yet."""
        placed = {one.uid for one in self.placed}
        in_progress = self.phase is PlanPhase.IN_PROGRESS
        return tuple(one for one in self.expected if in_progress and one.replaces not in placed)
