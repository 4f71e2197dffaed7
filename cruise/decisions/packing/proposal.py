"""Puts a packing into a cluster's names, with the order in which it can be carried out."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cruise.decisions.packing.late_arrivals import (
    does_order_matter,
    find_alternating_arrivals,
    find_pods_open_to_other_orders,
    find_pods_scheduled_afterwards,
)
from cruise.decisions.packing.move_cycles import MoveStaging, MoveStep
from cruise.decisions.packing.move_order import (
    InterimPlacement,
    MoveQueue,
    PodChanges,
    find_pod_changes,
    match_pods_to_places,
)
from cruise.decisions.packing.plan_sizes import NodeTooSmall, PlanSizing, decide_plan_sizing, keep_sizes
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

# What keeps a pod pending for which there is a place that no plan found so far has used.
TIMED_OUT = "time-limit"
_OTHER_ORDERS = PackingNote(PackingNoteCode.OTHER_ORDERS)
_UNPROVED = {PackingStatus.OPTIMAL: PackingStatus.FEASIBLE, PackingStatus.ALREADY_OPTIMAL: PackingStatus.NO_IMPROVEMENT}


@dataclass(frozen=True, slots=True)
class NoMoveOrder:
    """A packing that cannot be carried out step by step, so that it is no plan, and why.

    `unsizable` are uids of pods whose sizes stood in the way: a problem built with them in `Usage.unsizable` minds it.
    """

    reason: PlanCondition
    not_resizable: frozenset[str] = frozenset()


def build_proposal(built: BuiltProblem, packing: Packing) -> PackingProposal | NoMoveOrder:
    """Say what a packing of `built.problem` changes, pod by pod, in which stages, and why pods stay pending."""
    ordered = _in_order(built, match_pods_to_places(built.problem, packing.pod_node))
    if ordered is None:
        # Pods of a class are equal in the end, but not on the way if one stands where the others cannot follow.
        ordered = _in_order(built, find_pod_changes(built.problem, packing.pod_node))
    if ordered is None and built.problem.node_prices is not None:
        ordered = _in_order(built, match_pods_to_places(built.problem, packing.pod_node), as_far_as_can_be=True)
        if isinstance(ordered, _OrderedChanges):
            notes = (*packing.notes, PackingNote(PackingNoteCode.NODES_KEPT))
            packing = build_alternative_packing(built.problem, packing, ordered.changes.pod_node, notes)
    if ordered is None:
        return NoMoveOrder(PlanCondition(PlanStatusReason.NO_MOVE_ORDER))
    if isinstance(ordered, NodeTooSmall):
        return NoMoveOrder(PlanCondition(PlanStatusReason.NODE_TOO_SMALL, ordered.node), ordered.not_resizable)
    changes = ordered.changes
    unplaced = [
        one if one.blocked_by else replace(one, blocked_by=(TIMED_OUT,))
        for one in explain_unplaced_pods(built, replace(packing, pod_node=changes.pod_node))
    ]
    stages = tuple(_stages(built, ordered))
    may_turn = still_open = find_pods_open_to_other_orders(built, unplaced)
    if packing.status in _UNPROVED and built.problem.rules.are_binding and built.sizes is PackingSizes.FIXED:
        waiting = np.flatnonzero((built.problem.pod_node < 0) & (changes.pod_node < 0)).tolist()
        still_open |= find_pods_scheduled_afterwards(built, stages, (*changes.preempted, *waiting))
    # Where no pod waits in the end, another order might evict fewer.
    in_turns = bool(still_open or ((changes.moved or changes.preempted) and does_order_matter(built.problem)))
    plan = PackingProposal(
        status=_UNPROVED.get(packing.status, packing.status)
        if in_turns or _may_lack_domains(built) or _may_evict_less(built, changes)
        else packing.status,
        sizes=built.sizes,
        unplaced=tuple(replace(one, impossible=False) if one.key in still_open else one for one in unplaced),
        by_priority=_tier_lines(built, packing, still_open, changes.preempted if in_turns else ()),
        stages=stages,
        notes=tuple(dict.fromkeys((*built.notes, *packing.notes, *((_OTHER_ORDERS,) if in_turns else ())))),
        least_evicted=0 if in_turns else packing.least_evicted,
    )
    by_turns = find_alternating_arrivals(built, plan.stages, may_turn)
    return plan if by_turns is None else _with_more(built, plan, by_turns)


def _may_lack_domains(built: BuiltProblem) -> bool:
    """Tell whether pods are spread over domains of which a node that is not known may be one more."""
    return bool(built.problem.rules.spreads) and any(note.code is PackingNoteCode.NODES_MISSING for note in built.notes)


def _may_evict_less(built: BuiltProblem, changes: PodChanges) -> bool:
    """Tell whether a pod for which others leave might come instead where room is kept for a lower priority."""
    leaves = changes.moved or changes.preempted
    return bool(leaves) and any(find_pods_that_may_use_nominated_capacity(built.snapshot, built.pods))


def _with_more(built: BuiltProblem, plan: PackingProposal, stages: tuple[PlanStage, ...]) -> PackingProposal:
    """Return a plan whose first stage lets more pods in.

    It is proved by itself where no pod is left to wait and none is evicted; else another order might do better.
    """
    longer = replace(plan, stages=stages)
    came = {one.key for one in longer.placed}
    more = came - {one.key for one in plan.placed}
    by_priority = Counter(pod.priority for pod in built.pods if get_pod_key(pod) in more)
    unplaced = tuple(one for one in plan.unplaced if one.key not in came)
    waiting = {one.key for one in unplaced} & {get_pod_key(pod) for pod in built.pods}
    is_open = bool(waiting or plan.evicted) or _may_lack_domains(built)
    return replace(
        longer,
        status=PackingStatus.FEASIBLE if is_open else PackingStatus.OPTIMAL,
        unplaced=unplaced,
        by_priority=tuple(replace(line, placed=line.placed + by_priority[line.priority]) for line in plan.by_priority),
        notes=plan.notes if is_open else tuple(note for note in plan.notes if note != _OTHER_ORDERS),
    )


def get_reached_packing(built: BuiltProblem, packing: Packing, plan: PackingProposal) -> Packing:
    """Return the packing that a plan arrives at, which may be less than the one that it was made from."""
    pod_node = built.problem.pod_node.copy()
    index = {get_pod_key(pod): number for number, pod in enumerate(built.pods)}
    nodes = {node.name: number for number, node in enumerate(built.nodes)}
    for arrival in (*plan.placed, *plan.moves):
        pod_node[index[arrival.key]] = nodes[arrival.target]
    for gone in plan.preempted:
        pod_node[index[gone.key]] = -1
    return build_alternative_packing(built.problem, packing, pod_node, packing.notes)


@dataclass(frozen=True, slots=True, eq=False)
class _OrderedChanges:
    """The pods that change places, at which sizes, in which steps."""

    changes: PodChanges
    sizing: PlanSizing
    steps: Sequence[MoveStep]


def _in_order(
    built: BuiltProblem, changes: PodChanges, *, as_far_as_can_be: bool = False
) -> _OrderedChanges | NodeTooSmall | None:
    """Return the changes in an order, None where none is found; else, if asked for, the steps up to there alone."""
    problem, fixed = built.problem, built.sizes is PackingSizes.FIXED
    sizing = keep_sizes(built) if fixed else decide_plan_sizing(built, changes)
    if isinstance(sizing, NodeTooSmall):
        return sizing
    arriving = frozenset(problem.pod_class[[*changes.placed, *changes.moved]].tolist())
    standing = InterimPlacement(problem, arriving, sizing.current, sizing.on_target)
    agenda = MoveQueue(standing, changes, _importance(problem, changes))
    staging = MoveStaging(standing, agenda)
    steps = staging.build_steps()
    if problem.node_prices is None:
        return None if steps is None else _OrderedChanges(changes, sizing, steps)
    sound = _up_to_what_overdraws(built, staging.start())
    if steps is not None and len(sound) == len(steps):
        return _OrderedChanges(changes, sizing, steps)
    if not as_far_as_can_be:
        return None
    pod_node = problem.pod_node.copy()
    for step in sound:
        pod_node[step.arrivals] = changes.pod_node[step.arrivals]
    done = find_pod_changes(problem, pod_node)
    if fixed:
        return _OrderedChanges(done, sizing, sound)
    # What stays where it is makes other sizes, which may be in another order's way.
    return _in_order(built, done) if len(done.moved) < len(changes.moved) else None


def _up_to_what_overdraws(built: BuiltProblem, steps: Sequence[MoveStep]) -> Sequence[MoveStep]:
    """Return the steps before the first that evicts more pods of a PodDisruptionBudget than this allows at once."""
    covering = DisruptionBudgetIndex(built.snapshot.budgets)
    for number, step in enumerate(steps):
        if len(step.evictions) > 1 and covering.find_exceeded(built.pods[pod] for pod in step.evictions):
            return steps[:number]
    return steps


def _importance(problem: PackingProblem, changes: PodChanges) -> list[int]:
    """Return what each pod comes by, the greatest first: its priority, or its node's turn to be emptied."""
    if problem.node_prices is None or problem.node_count == 0:
        return list(problem.priorities[problem.pod_class].tolist())
    moved = problem.pod_node[list(changes.moved)]
    leaving = np.bincount(moved, minlength=problem.node_count)
    emptied = find_nodes_in_use(problem, problem.pod_node) & ~find_nodes_in_use(problem, changes.pod_node)
    # What makes room elsewhere first, then the nodes with the least to move, each whole before the next.
    turn = np.empty(problem.node_count, dtype=np.int64)
    turn[np.lexsort((leaving, emptied))] = np.arange(problem.node_count)
    importance = np.where(problem.pod_node >= 0, -turn[problem.pod_node], problem.priorities[problem.pod_class])
    return list(importance.tolist())


def _stages(built: BuiltProblem, ordered: _OrderedChanges) -> Iterator[PlanStage]:
    """Yield the steps in names, with the shrinks of every node at which something arrives for the first time."""
    sizing, target = ordered.sizing, ordered.changes.pod_node.tolist()
    unsaid: dict[int, list[int]] = {}
    for pod in sizing.resizes:
        unsaid.setdefault(target[pod], []).append(pod)

    def arrival(index: int) -> PlannedPlacement:
        pod, node = built.pods[index], built.nodes[target[index]]
        return PlannedPlacement(pod.namespace, pod.name, pod.uid, pod.node, node.name, sizing.containers.get(index, ()))

    def preemption(index: int) -> PlannedPreemption:
        pod = built.pods[index]
        return PlannedPreemption(pod.namespace, pod.name, pod.uid, pod.node or "")

    for step in ordered.steps:
        nodes = dict.fromkeys(target[pod] for pod in step.arrivals)
        shrinks = [pod for node in nodes for pod in unsaid.pop(node, ())]
        yield PlanStage(
            resizes=tuple(sizing.resizes[pod] for pod in sorted(shrinks)),
            evictions=tuple(arrival(pod) if target[pod] >= 0 else preemption(pod) for pod in sorted(step.evictions)),
            arrivals=tuple(map(arrival, step.arrivals)),
        )


def _tier_lines(
    built: BuiltProblem, packing: Packing, still_open: frozenset[PodKey], preempted: Sequence[int]
) -> tuple[PriorityResult, ...]:
    """Say for each priority what the plan places, what runs now, and what no plan surpasses.

    Open pods, and those `preempted` where another order might let them stay, might have a place by other plans.
    """
    paper = built.problem.objective is PackingObjective.PAPER
    most = packing.bound[::2] if paper else packing.bound[: len(packing.current.priorities)]
    out = still_open.union(get_pod_key(built.pods[pod]) for pod in preempted)
    more = Counter(pod.priority for pod in built.pods if get_pod_key(pod) in out) if out else Counter[int]()
    there = Counter(built.problem.priorities[built.problem.pod_class].tolist())
    return tuple(
        PriorityResult(
            after.priority, after.placed, now.placed, min(bound + more[after.priority], there[after.priority])
        )
        for after, now, bound in zip(packing.planned.priorities, packing.current.priorities, most, strict=True)
    )
