"""Puts a packing into a cluster's names, with the order in which it can be carried out."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cruise.decisions.guidance.covering import CoveringBudgets
from cruise.decisions.packing.blocking import why_unplaced
from cruise.decisions.packing.building.built import Built
from cruise.decisions.packing.building.kept_room import may_take_kept_room
from cruise.decisions.packing.proposing.agenda import Agenda
from cruise.decisions.packing.proposing.by_turns import let_in_by_turns
from cruise.decisions.packing.proposing.knots import Step
from cruise.decisions.packing.proposing.matching import Changes, changes_of, match
from cruise.decisions.packing.proposing.orders import come_afterwards, open_by_other_plans, order_matters
from cruise.decisions.packing.proposing.sizing import NoRoom, Sizing, as_they_are, decide_sizing
from cruise.decisions.packing.proposing.staging import Staging
from cruise.decisions.packing.proposing.standing import Standing
from cruise.decisions.scheduling.board import PodKey, key_of
from cruise.domain.halts import Halt, HaltCode
from cruise.domain.packing import Arrival, Preemption, Proposal, Sizes, Stage, TierLine
from cruise.packer.answer import Note, NoteCode, Packing, Status
from cruise.packer.bounds import beside
from cruise.packer.problem import Objective, Problem, in_use

# What keeps a pod pending for which there is a place that no plan found so far has used.
OUT_OF_TIME = "time-limit"
_OTHER_ORDERS = Note(NoteCode.OTHER_ORDERS)
_UNPROVED = {Status.OPTIMAL: Status.FEASIBLE, Status.ALREADY_OPTIMAL: Status.NO_IMPROVEMENT}


@dataclass(frozen=True, slots=True)
class NoOrder:
    """A packing that cannot be carried out step by step, so that it is no plan, and why.

    `unsizable` are uids of pods whose sizes stood in the way: a problem built with them in `Usage.unsizable` minds it.
    """

    why: Halt
    unsizable: frozenset[str] = frozenset()


def propose(built: Built, packing: Packing) -> Proposal | NoOrder:
    """Say what a packing of `built.problem` changes, pod by pod, in which stages, and why pods stay pending."""
    ordered = _in_order(built, match(built.problem, packing.pod_node))
    if ordered is None:
        # Pods of a class are equal in the end, but not on the way if one stands where the others cannot follow.
        ordered = _in_order(built, changes_of(built.problem, packing.pod_node))
    if ordered is None and built.problem.fleet is not None:
        ordered = _in_order(built, match(built.problem, packing.pod_node), as_far_as_can_be=True)
        if isinstance(ordered, _Ordered):
            notes = (*packing.notes, Note(NoteCode.NODES_KEPT))
            packing = beside(built.problem, packing, ordered.changes.pod_node, notes)
    if ordered is None:
        return NoOrder(Halt(HaltCode.NO_ORDER))
    if isinstance(ordered, NoRoom):
        return NoOrder(Halt(HaltCode.NODE_TOO_SMALL, ordered.node), ordered.unsizable)
    changes = ordered.changes
    unplaced = [
        one if one.blocked_by else replace(one, blocked_by=(OUT_OF_TIME,))
        for one in why_unplaced(built, replace(packing, pod_node=changes.pod_node))
    ]
    stages = tuple(_stages(built, ordered))
    may_turn = still_open = open_by_other_plans(built, unplaced)
    if packing.status in _UNPROVED and built.problem.rules.bind and built.sizes is Sizes.FIXED:
        waiting = np.flatnonzero((built.problem.pod_node < 0) & (changes.pod_node < 0)).tolist()
        still_open |= come_afterwards(built, stages, (*changes.preempted, *waiting))
    # Where no pod waits in the end, another order might evict fewer.
    in_turns = bool(still_open or ((changes.moved or changes.preempted) and order_matters(built.problem)))
    plan = Proposal(
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
    by_turns = let_in_by_turns(built, plan.stages, may_turn)
    return plan if by_turns is None else _with_more(built, plan, by_turns)


def _may_lack_domains(built: Built) -> bool:
    """Tell whether pods are spread over domains of which a node that is not known may be one more."""
    return bool(built.problem.rules.spreads) and any(note.code is NoteCode.NODES_MISSING for note in built.notes)


def _may_evict_less(built: Built, changes: Changes) -> bool:
    """Tell whether a pod for which others leave might come instead where room is kept for a lower priority."""
    leaves = changes.moved or changes.preempted
    return bool(leaves) and any(may_take_kept_room(built.snapshot, built.pods))


def _with_more(built: Built, plan: Proposal, stages: tuple[Stage, ...]) -> Proposal:
    """Return a plan whose first stage lets more pods in.

    It is proved by itself where no pod is left to wait and none is evicted; else another order might do better.
    """
    longer = replace(plan, stages=stages)
    came = {one.key for one in longer.placed}
    more = came - {one.key for one in plan.placed}
    by_priority = Counter(pod.priority for pod in built.pods if key_of(pod) in more)
    unplaced = tuple(one for one in plan.unplaced if one.key not in came)
    waiting = {one.key for one in unplaced} & {key_of(pod) for pod in built.pods}
    is_open = bool(waiting or plan.evicted) or _may_lack_domains(built)
    return replace(
        longer,
        status=Status.FEASIBLE if is_open else Status.OPTIMAL,
        unplaced=unplaced,
        by_priority=tuple(replace(line, placed=line.placed + by_priority[line.priority]) for line in plan.by_priority),
        notes=plan.notes if is_open else tuple(note for note in plan.notes if note != _OTHER_ORDERS),
    )


def arrives_at(built: Built, packing: Packing, plan: Proposal) -> Packing:
    """Return the packing that a plan arrives at, which may be less than the one that it was made from."""
    pod_node = built.problem.pod_node.copy()
    index = {key_of(pod): number for number, pod in enumerate(built.pods)}
    nodes = {node.name: number for number, node in enumerate(built.nodes)}
    for arrival in (*plan.placed, *plan.moves):
        pod_node[index[arrival.key]] = nodes[arrival.target]
    for gone in plan.preempted:
        pod_node[index[gone.key]] = -1
    return beside(built.problem, packing, pod_node, packing.notes)


@dataclass(frozen=True, slots=True, eq=False)
class _Ordered:
    """The pods that change places, at which sizes, in which steps."""

    changes: Changes
    sizing: Sizing
    steps: Sequence[Step]


def _in_order(built: Built, changes: Changes, *, as_far_as_can_be: bool = False) -> _Ordered | NoRoom | None:
    """Return the changes in an order, None where none is found; else, if asked for, the steps up to there alone."""
    problem, fixed = built.problem, built.sizes is Sizes.FIXED
    sizing = as_they_are(built) if fixed else decide_sizing(built, changes)
    if isinstance(sizing, NoRoom):
        return sizing
    arriving = frozenset(problem.pod_class[[*changes.placed, *changes.moved]].tolist())
    standing = Standing(problem, arriving, sizing.now, sizing.there)
    agenda = Agenda(standing, changes, _importance(problem, changes))
    staging = Staging(standing, agenda)
    steps = staging.steps()
    if problem.fleet is None:
        return None if steps is None else _Ordered(changes, sizing, steps)
    sound = _up_to_what_overdraws(built, staging.begun())
    if steps is not None and len(sound) == len(steps):
        return _Ordered(changes, sizing, steps)
    if not as_far_as_can_be:
        return None
    pod_node = problem.pod_node.copy()
    for step in sound:
        pod_node[step.arrivals] = changes.pod_node[step.arrivals]
    done = changes_of(problem, pod_node)
    if fixed:
        return _Ordered(done, sizing, sound)
    # What stays where it is makes other sizes, which may be in another order's way.
    return _in_order(built, done) if len(done.moved) < len(changes.moved) else None


def _up_to_what_overdraws(built: Built, steps: Sequence[Step]) -> Sequence[Step]:
    """Return the steps before the first that evicts more pods of a PodDisruptionBudget than this allows at once."""
    covering = CoveringBudgets(built.snapshot.budgets)
    for number, step in enumerate(steps):
        if len(step.leaves) > 1 and covering.overdrawn(built.pods[pod] for pod in step.leaves):
            return steps[:number]
    return steps


def _importance(problem: Problem, changes: Changes) -> list[int]:
    """Return what each pod comes by, the greatest first: its priority, or its node's turn to be emptied."""
    if problem.fleet is None or problem.node_count == 0:
        return list(problem.priorities[problem.pod_class].tolist())
    moved = problem.pod_node[list(changes.moved)]
    leaving = np.bincount(moved, minlength=problem.node_count)
    emptied = in_use(problem, problem.pod_node) & ~in_use(problem, changes.pod_node)
    # What makes room elsewhere first, then the nodes with the least to move, each whole before the next.
    turn = np.empty(problem.node_count, dtype=np.int64)
    turn[np.lexsort((leaving, emptied))] = np.arange(problem.node_count)
    importance = np.where(problem.pod_node >= 0, -turn[problem.pod_node], problem.priorities[problem.pod_class])
    return list(importance.tolist())


def _stages(built: Built, ordered: _Ordered) -> Iterator[Stage]:
    """Yield the steps in names, with the shrinks of every node at which something arrives for the first time."""
    sizing, target = ordered.sizing, ordered.changes.pod_node.tolist()
    unsaid: dict[int, list[int]] = {}
    for pod in sizing.resizes:
        unsaid.setdefault(target[pod], []).append(pod)

    def arrival(index: int) -> Arrival:
        pod, node = built.pods[index], built.nodes[target[index]]
        return Arrival(pod.namespace, pod.name, pod.uid, pod.node, node.name, sizing.containers.get(index, ()))

    def preemption(index: int) -> Preemption:
        pod = built.pods[index]
        return Preemption(pod.namespace, pod.name, pod.uid, pod.node or "")

    for step in ordered.steps:
        nodes = dict.fromkeys(target[pod] for pod in step.arrivals)
        shrinks = [pod for node in nodes for pod in unsaid.pop(node, ())]
        yield Stage(
            resizes=tuple(sizing.resizes[pod] for pod in sorted(shrinks)),
            leaves=tuple(arrival(pod) if target[pod] >= 0 else preemption(pod) for pod in sorted(step.leaves)),
            arrivals=tuple(map(arrival, step.arrivals)),
        )


def _tier_lines(
    built: Built, packing: Packing, still_open: frozenset[PodKey], preempted: Sequence[int]
) -> tuple[TierLine, ...]:
    """Say for each priority what the plan places, what runs now, and what no plan surpasses.

    Open pods, and those `preempted` where another order might let them stay, might have a place by other plans.
    """
    paper = built.problem.objective is Objective.PAPER
    most = packing.bound[::2] if paper else packing.bound[: len(packing.now.tiers)]
    out = still_open.union(key_of(built.pods[pod]) for pod in preempted)
    more = Counter(pod.priority for pod in built.pods if key_of(pod) in out) if out else Counter[int]()
    there = Counter(built.problem.priorities[built.problem.pod_class].tolist())
    return tuple(
        TierLine(after.priority, after.placed, now.placed, min(bound + more[after.priority], there[after.priority]))
        for after, now, bound in zip(packing.after.tiers, packing.now.tiers, most, strict=True)
    )
