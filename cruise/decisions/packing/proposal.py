"""Turns a packing into a proposal: named pods and nodes, in stages that can be carried out."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cruise.decisions.packing.arrival_order import (
    find_order_dependent_pods,
    find_pods_scheduled_afterwards,
    has_rules_that_depend_on_arrival_order,
)
from cruise.decisions.packing.move_cycles import MoveStaging, MoveStep
from cruise.decisions.packing.move_order import (
    InterimPlacement,
    MoveQueue,
    PodChanges,
    find_pod_changes,
    match_pods_to_places,
)
from cruise.decisions.packing.plan_sizes import OverfilledNode, PlanSizing, build_unchanged_sizing, decide_plan_sizing
from cruise.decisions.packing.problem import BuiltProblem
from cruise.decisions.packing.resources import find_pods_that_may_use_nominated_capacity
from cruise.decisions.packing.unschedulable import explain_unplaced_pods
from cruise.decisions.pod_policy.evictability import DisruptionBudgetIndex
from cruise.decisions.scheduling.placements import PodKey, get_pod_key
from cruise.domain.packing_plan import (
    PackingProposal,
    PackingSizes,
    PlannedPlacement,
    PlannedPreemption,
    PlanStage,
    PriorityResult,
)
from cruise.domain.reasons import PlanCondition, PlanStatusReason
from cruise.packer.answer import Packing, PackingNote, PackingNoteCode, PackingStatus, build_alternative_packing
from cruise.packer.problem import PackingObjective, PackingProblem, find_nodes_in_use

# The obstacle of a pod that could be placed, though no plan found in time does so.
TIMED_OUT = "time-limit"
_OTHER_ORDERS = PackingNote(PackingNoteCode.OTHER_ORDERS)
_UNPROVED = {PackingStatus.OPTIMAL: PackingStatus.FEASIBLE, PackingStatus.ALREADY_OPTIMAL: PackingStatus.NO_IMPROVEMENT}


@dataclass(frozen=True, slots=True)
class MoveOrderFailure:
    """A packing that cannot be carried out step by step, and why.

    If sizes of pods are the reason, `not_resizable` has their uids, for `UsageInputs.not_resizable` of the next
    problem.
    """

    reason: PlanCondition
    not_resizable: frozenset[str] = frozenset()


def build_proposal(built: BuiltProblem, packing: Packing) -> PackingProposal | MoveOrderFailure:
    """Return the changes of a packing pod by pod, in stages, and why other pods stay pending."""
    ordered = _order_changes(built, match_pods_to_places(built.problem, packing.pod_node))
    if ordered is None:
        # Pods of a class are equal in the end, but one may now be on a node where the others cannot follow.
        ordered = _order_changes(built, find_pod_changes(built.problem, packing.pod_node))
    if ordered is None and built.problem.node_prices is not None:
        ordered = _order_changes(built, match_pods_to_places(built.problem, packing.pod_node), allow_partial=True)
        if isinstance(ordered, _OrderedChanges):
            notes = (*packing.notes, PackingNote(PackingNoteCode.NODES_KEPT))
            packing = build_alternative_packing(built.problem, packing, ordered.changes.pod_node, notes)
    if ordered is None:
        return MoveOrderFailure(PlanCondition(PlanStatusReason.NO_MOVE_ORDER))
    if isinstance(ordered, OverfilledNode):
        return MoveOrderFailure(PlanCondition(PlanStatusReason.NODE_TOO_SMALL, ordered.node), ordered.not_resizable)
    changes = ordered.changes
    unplaced = [
        pod if pod.blocked_by else replace(pod, blocked_by=(TIMED_OUT,))
        for pod in explain_unplaced_pods(built, replace(packing, pod_node=changes.pod_node))
    ]
    stages = tuple(_build_stages(built, ordered))
    still_open = find_order_dependent_pods(built, unplaced)
    if packing.status in _UNPROVED and built.problem.rules.are_binding and built.sizes is PackingSizes.FIXED:
        pending = np.flatnonzero((built.problem.pod_node < 0) & (changes.pod_node < 0)).tolist()
        still_open |= find_pods_scheduled_afterwards(built, stages, (*changes.preempted, *pending))
    # If no pod is pending in the end, another order might evict fewer.
    depends_on_order = bool(
        still_open or ((changes.moved or changes.preempted) and has_rules_that_depend_on_arrival_order(built.problem))
    )
    return PackingProposal(
        status=_UNPROVED.get(packing.status, packing.status)
        if depends_on_order or _may_lack_domains(built) or _may_evict_less(built, changes)
        else packing.status,
        sizes=built.sizes,
        unplaced=tuple(replace(pod, impossible=False) if pod.key in still_open else pod for pod in unplaced),
        by_priority=_count_by_priority(built, packing, still_open, changes.preempted if depends_on_order else ()),
        stages=stages,
        notes=tuple(dict.fromkeys((*built.notes, *packing.notes, *((_OTHER_ORDERS,) if depends_on_order else ())))),
        min_evicted=0 if depends_on_order else packing.min_evicted,
    )


def _may_lack_domains(built: BuiltProblem) -> bool:
    """Return whether pods are spread over domains, and an unknown node may be in another one."""
    return bool(built.problem.rules.spreads) and any(note.code is PackingNoteCode.NODES_MISSING for note in built.notes)


def _may_evict_less(built: BuiltProblem, changes: PodChanges) -> bool:
    """Return whether a pod that needs evictions might use capacity that is reserved for a lower priority instead."""
    evicts = changes.moved or changes.preempted
    return bool(evicts) and any(find_pods_that_may_use_nominated_capacity(built.snapshot, built.pods))


def get_reached_packing(built: BuiltProblem, packing: Packing, plan: PackingProposal) -> Packing:
    """Return the packing at which a plan arrives, which may achieve less than the one it was made from."""
    pod_node = built.problem.pod_node.copy()
    index = {get_pod_key(pod): number for number, pod in enumerate(built.pods)}
    nodes = {node.name: number for number, node in enumerate(built.nodes)}
    for arrival in (*plan.placed, *plan.moves):
        pod_node[index[arrival.key]] = nodes[arrival.target]
    for preemption in plan.preempted:
        pod_node[index[preemption.key]] = -1
    return build_alternative_packing(built.problem, packing, pod_node, packing.notes)


@dataclass(frozen=True, slots=True, eq=False)
class _OrderedChanges:
    """The pods that change places, their sizes, and the steps in order."""

    changes: PodChanges
    sizing: PlanSizing
    steps: Sequence[MoveStep]


def _order_changes(
    built: BuiltProblem, changes: PodChanges, *, allow_partial: bool = False
) -> _OrderedChanges | OverfilledNode | None:
    """Return the changes in an order; None if there is none.

    With `allow_partial`, the steps up to the first one without an order are returned instead of None.
    """
    problem, has_fixed_sizes = built.problem, built.sizes is PackingSizes.FIXED
    sizing = build_unchanged_sizing(built) if has_fixed_sizes else decide_plan_sizing(built, changes)
    if isinstance(sizing, OverfilledNode):
        return sizing
    arriving = frozenset(problem.pod_class[[*changes.placed, *changes.moved]].tolist())
    interim = InterimPlacement(problem, arriving, sizing.current_requests, sizing.arrival_requests)
    queue = MoveQueue(interim, changes, _rank_pods(problem, changes))
    staging = MoveStaging(interim, queue)
    steps = staging.build_steps()
    if problem.node_prices is None:
        return None if steps is None else _OrderedChanges(changes, sizing, steps)
    allowed_steps = _keep_within_budgets(built, staging.get_steps())
    if steps is not None and len(allowed_steps) == len(steps):
        return _OrderedChanges(changes, sizing, steps)
    if not allow_partial:
        return None
    pod_node = problem.pod_node.copy()
    for step in allowed_steps:
        pod_node[step.arrivals] = changes.pod_node[step.arrivals]
    partial = find_pod_changes(problem, pod_node)
    if has_fixed_sizes:
        return _OrderedChanges(partial, sizing, allowed_steps)
    # Pods that stay change the sizes on their nodes, which may require another order.
    return _order_changes(built, partial) if len(partial.moved) < len(changes.moved) else None


def _keep_within_budgets(built: BuiltProblem, steps: Sequence[MoveStep]) -> Sequence[MoveStep]:
    """Return the steps before the first that evicts more pods at the same time than a PodDisruptionBudget allows."""
    budgets = DisruptionBudgetIndex(built.snapshot.budgets)
    for number, step in enumerate(steps):
        if len(step.evictions) > 1 and budgets.find_exceeded(built.pods[pod] for pod in step.evictions):
            return steps[:number]
    return steps


def _rank_pods(problem: PackingProblem, changes: PodChanges) -> list[int]:
    """Return the importance of each pod: its priority, or the order in which its node is drained."""
    if problem.node_prices is None or problem.node_count == 0:
        return list(problem.priorities[problem.pod_class].tolist())
    moved = problem.pod_node[list(changes.moved)]
    moved_count = np.bincount(moved, minlength=problem.node_count)
    is_drained = find_nodes_in_use(problem, problem.pod_node) & ~find_nodes_in_use(problem, changes.pod_node)
    # Moves that free capacity on other nodes first, then each node as a whole, those with the fewest moves first.
    drain_order = np.empty(problem.node_count, dtype=np.int64)
    drain_order[np.lexsort((moved_count, is_drained))] = np.arange(problem.node_count)
    importance = np.where(problem.pod_node >= 0, -drain_order[problem.pod_node], problem.priorities[problem.pod_class])
    return list(importance.tolist())


def _build_stages(built: BuiltProblem, ordered: _OrderedChanges) -> Iterator[PlanStage]:
    """Yield the steps by name, with the shrinks of each node before the first arrival there."""
    sizing, target = ordered.sizing, ordered.changes.pod_node.tolist()
    pending_shrinks: dict[int, list[int]] = {}
    for pod in sizing.resizes:
        pending_shrinks.setdefault(target[pod], []).append(pod)

    def arrival(index: int) -> PlannedPlacement:
        pod, node = built.pods[index], built.nodes[target[index]]
        return PlannedPlacement(pod.namespace, pod.name, pod.uid, pod.node, node.name, sizing.containers.get(index, ()))

    def preemption(index: int) -> PlannedPreemption:
        pod = built.pods[index]
        return PlannedPreemption(pod.namespace, pod.name, pod.uid, pod.node or "")

    for step in ordered.steps:
        nodes = dict.fromkeys(target[pod] for pod in step.arrivals)
        shrinks = [pod for node in nodes for pod in pending_shrinks.pop(node, ())]
        yield PlanStage(
            resizes=tuple(sizing.resizes[pod] for pod in sorted(shrinks)),
            evictions=tuple(arrival(pod) if target[pod] >= 0 else preemption(pod) for pod in sorted(step.evictions)),
            arrivals=tuple(map(arrival, step.arrivals)),
        )


def _count_by_priority(
    built: BuiltProblem, packing: Packing, still_open: frozenset[PodKey], preempted: Sequence[int]
) -> tuple[PriorityResult, ...]:
    """Return for each priority the pods that the plan places, that run now, and that any plan could place.

    Pods that are still open, or `preempted` and might stay with another order, could be placed by other plans.
    """
    is_paper = built.problem.objective is PackingObjective.PAPER
    bounds = packing.bound[::2] if is_paper else packing.bound[: len(packing.current.priorities)]
    uncertain = still_open.union(get_pod_key(built.pods[pod]) for pod in preempted)
    additional = (
        Counter(pod.priority for pod in built.pods if get_pod_key(pod) in uncertain) if uncertain else Counter[int]()
    )
    total = Counter(built.problem.priorities[built.problem.pod_class].tolist())
    return tuple(
        PriorityResult(
            after.priority, after.placed, now.placed, min(bound + additional[after.priority], total[after.priority])
        )
        for after, now, bound in zip(packing.planned.priorities, packing.current.priorities, bounds, strict=True)
    )
