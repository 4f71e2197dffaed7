"""What of a plan for fewer nodes may be begun now: a few moves off nodes that it empties, each allowed by itself."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from operator import attrgetter

from cruise.decisions.packing.judging.leaving import Leaving, find_broken_budgets, find_overdrawn
from cruise.decisions.packing.judging.replay import Replay
from cruise.decisions.packing.judging.sizing import Demand
from cruise.decisions.scheduling.board import PodKey
from cruise.domain.cluster import Node, Pod, Snapshot
from cruise.domain.halts import Halt, HaltCode
from cruise.domain.overrides import StoredOverrides
from cruise.domain.packing import Allowance, Arrival, Proposal, Stage
from cruise.domain.policy import Policy

# What node autoscalers put on nodes that they empty themselves: their pods leave anyway.
_LEFT_TO_OTHERS = frozenset({"karpenter.sh/disrupted", "karpenter.sh/disruption", "ToBeDeletedByClusterAutoscaler"})


@dataclass(frozen=True, slots=True)
class Ground:
    """What moves are judged by: the cluster without nodes that are only thought of, and what budgets leave now.

    A pod younger than `rest` is not moved, so that none is moved twice within that time.
    """

    snapshot: Snapshot
    demands: Mapping[PodKey, Demand]
    policy: Policy
    stored: StoredOverrides
    allowance: Allowance
    now: datetime
    rest: timedelta


def next_moves(plan: Proposal, ground: Ground) -> Proposal | Halt:
    """Return the part of a plan that may be begun now, or why nothing may.

    Only pods on nodes that the plan empties move, each straight to its place, and as many as all budgets allow at once:
    so a plan that is made anew after each part comes nearer to its end. Nothing moves while a pod waits for a node.
    """
    assert plan.fleet is not None
    if plan.placed or plan.unplaced:
        return Halt(HaltCode.PODS_WAIT)
    if not plan.fleet.emptied:
        return Halt(HaltCode.NO_NODE_SPARED)
    resizes = {one.uid: one for stage in plan.stages for one in stage.resizes}
    rested = {pod.uid: pod for pod in ground.snapshot.pods if _has_rested(pod, ground)}
    targets = {node.name for node in ground.snapshot.nodes}
    sources = {node.name for node in ground.snapshot.nodes if not _is_left_to_others(node)} & set(plan.fleet.emptied)
    chosen: list[Stage] = []
    gone: list[Pod] = []
    for stage in plan.stages:
        move = _only_move(stage)
        if move is None or move.uid not in rested or move.source not in sources or move.target not in targets:
            continue
        leaving = [*gone, rested[move.uid]]
        if find_overdrawn(ground.allowance, leaving):
            continue
        there = tuple(sorted((one for one in resizes.values() if one.node == move.target), key=attrgetter("key")))
        tried = [*chosen, Stage(there, (move,), (move,))]
        part = plan.of_stages(tried)
        if not _objections(part, ground):
            chosen, gone = tried, leaving
            for one in there:
                del resizes[one.uid]
    return plan.of_stages(chosen) if chosen else Halt(HaltCode.NO_POD_MOVED)


def _has_rested(pod: Pod, ground: Ground) -> bool:
    return pod.created_at is not None and ground.now - pod.created_at >= ground.rest


def _is_left_to_others(node: Node) -> bool:
    return node.unschedulable or node.deleting or any(taint.key in _LEFT_TO_OTHERS for taint in node.taints)


def _only_move(stage: Stage) -> Arrival | None:
    """Return the pod that a stage moves by itself, None where it does more at once."""
    if len(stage.leaves) != 1 or len(stage.arrivals) != 1:
        return None
    leave = stage.leaves[0]
    return leave if isinstance(leave, Arrival) and leave.uid == stage.arrivals[0].uid else None


def _objections(part: Proposal, ground: Ground) -> list[str]:
    """Judge moves as they will be carried out: at once, as far as PodDisruptionBudgets go."""
    leaving = Leaving(ground.snapshot, ground.policy, ground.stored)
    replay = Replay(ground.snapshot, part, leaving)
    replay.run()
    return [*replay.objections, *find_broken_budgets(leaving, replay.gone), *replay.lacks_of_headroom(ground.demands)]
