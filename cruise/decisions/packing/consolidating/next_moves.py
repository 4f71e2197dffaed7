"""What of a plan for fewer nodes may be begun now: a few moves off nodes that it empties, each allowed by itself."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from operator import attrgetter

from cruise.decisions.packing.judging.leaving import Leaving, find_broken_budgets, find_overdrawn
from cruise.decisions.packing.judging.replay import Replay
from cruise.decisions.packing.judging.sizing import Demand, find_lack_of_headroom
from cruise.decisions.scheduling.board import PodKey
from cruise.domain.actions import ResizePod
from cruise.domain.cluster import Node, Pod, Snapshot
from cruise.domain.overrides import StoredOverrides
from cruise.domain.packing import Allowance, Arrival, Proposal, Stage
from cruise.domain.policy import Policy

# What node autoscalers put on nodes that they empty themselves: their pods leave anyway.
_LEFT_TO_OTHERS = frozenset({"karpenter.sh/disrupted", "karpenter.sh/disruption", "ToBeDeletedByClusterAutoscaler"})
_NAME = attrgetter("namespace", "pod")


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


def next_moves(plan: Proposal, ground: Ground) -> Proposal | str:
    """Return the part of a plan that may be begun now, or why nothing may.

    Only pods on nodes that the plan empties move, each straight to its place, and as many as all budgets allow at once:
    so a plan that is made anew after each part comes nearer to its end. Nothing moves while a pod waits for a node.
    """
    assert plan.fleet is not None
    if plan.placed or plan.unplaced:
        return "pods wait for nodes"
    if not plan.fleet.emptied:
        return "no node can be spared"
    resizes = {one.uid: one for stage in plan.stages for one in stage.resizes}
    chosen: list[Stage] = []
    spent = _Spent(ground)
    for stage in plan.stages:
        move = _only_move(stage)
        if move is None or move.source not in plan.fleet.emptied or spent.keeps(move):
            continue
        there = tuple(sorted((one for one in resizes.values() if one.node == move.target), key=_NAME))
        tried = [*chosen, Stage(there, (move,), (move,))]
        part = _part(plan, tried)
        if not _objections(part, ground):
            chosen = tried
            spent.add(move)
            for one in there:
                del resizes[one.uid]
    return _part(plan, chosen) if chosen else "no pod may be moved now"


class _Spent:
    """What is left of the eviction budgets, and which pods rest or are left to others."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._pods = {pod.uid: pod for pod in ground.snapshot.pods}
        self._nodes = {node.name: node for node in ground.snapshot.nodes}
        self._on_node: Counter[str] = Counter()
        self._in_all = 0
        self._of_workload: Counter[object] = Counter()

    def keeps(self, move: Arrival) -> bool:
        """Tell whether a pod is not moved now: it rests, a budget is spent, or a node is not there to leave or come."""
        pod, allowance = self._pods.get(move.uid), self._ground.allowance
        source, target = self._nodes.get(move.source or ""), self._nodes.get(move.target)
        if pod is None or source is None or target is None or self._rests(pod) or _is_left_to_others(source):
            return True
        limits = [(self._in_all, allowance.in_all), (self._on_node[source.name], allowance.on_node(source.name))]
        if pod.workload is not None:
            of_workload = self._of_workload[pod.namespace, pod.workload]
            limits.append((of_workload, allowance.of_workload(pod.namespace, pod.workload)))
        return any(allowed is not None and many >= allowed for many, allowed in limits)

    def add(self, move: Arrival) -> None:
        """Count a move."""
        pod = self._pods[move.uid]
        self._in_all += 1
        self._on_node[move.source or ""] += 1
        self._of_workload[pod.namespace, pod.workload] += 1

    def _rests(self, pod: Pod) -> bool:
        return pod.created_at is None or self._ground.now - pod.created_at < self._ground.rest


def _is_left_to_others(node: Node) -> bool:
    return node.unschedulable or any(taint.key in _LEFT_TO_OTHERS for taint in node.taints)


def _only_move(stage: Stage) -> Arrival | None:
    """Return the pod that a stage moves by itself, None where it does more at once."""
    if len(stage.leaves) != 1 or len(stage.arrivals) != 1:
        return None
    leave = stage.leaves[0]
    return leave if isinstance(leave, Arrival) and leave.uid == stage.arrivals[0].uid else None


def _part(plan: Proposal, stages: Sequence[Stage]) -> Proposal:
    resizes: list[ResizePod] = [one for stage in stages for one in stage.resizes]
    return replace(
        plan,
        moves=tuple(sorted((one for stage in stages for one in stage.arrivals), key=_NAME)),
        resizes=tuple(sorted(resizes, key=_NAME)),
        stages=tuple(stages),
    )


def _objections(part: Proposal, ground: Ground) -> list[str]:
    """Judge moves as they will be carried out: at once, as far as PodDisruptionBudgets go."""
    leaving = Leaving(ground.snapshot, ground.policy, ground.stored)
    replay = Replay(ground.snapshot, part, leaving)
    replay.run()
    found = [*replay.objections, *find_broken_budgets(leaving, replay.gone)]
    found += find_overdrawn(ground.allowance, replay.gone)
    for node, arrived in replay.arrivals_by_node().items():
        found += find_lack_of_headroom(replay.board, node, arrived, ground.demands)
    return found
