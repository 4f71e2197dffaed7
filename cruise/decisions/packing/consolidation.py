"""What of a plan for fewer nodes may be begun now: a few moves off nodes that it empties, each allowed by itself."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from operator import attrgetter

import numpy as np

from cruise.decisions.packing.eviction_rules import (
    EvictionRules,
    find_exceeded_disruption_budgets,
    find_exceeded_eviction_budgets,
)
from cruise.decisions.packing.node_types import NodeFleet
from cruise.decisions.packing.plan_replay import PlanReplay, PodNeed
from cruise.decisions.packing.problem import BuiltProblem
from cruise.decisions.scheduling.placements import PodKey
from cruise.domain.cluster import ClusterSnapshot, Node, Pod
from cruise.domain.overrides import StoredOverrides
from cruise.domain.packing_plan import (
    AddedNodes,
    EvictionAllowance,
    NodeCountChange,
    PackingProposal,
    PlannedPlacement,
    PlanStage,
)
from cruise.domain.policy import Policy
from cruise.domain.reasons import PlanCondition, PlanStatusReason
from cruise.domain.resources import BoolArray
from cruise.packer.answer import Packing
from cruise.packer.problem import find_nodes_in_use

# What a packing makes of the nodes in use.


def summarize_node_count_change(
    built: BuiltProblem, packing: Packing, plan: PackingProposal, fleet: NodeFleet
) -> NodeCountChange:
    """Count the nodes in use before a plan and after it, and say in which order it empties them.

    `packing` is what the plan arrives at, with the bound of all plans.
    """
    problem = built.problem
    assert problem.node_prices is not None
    before, after = find_nodes_in_use(problem, problem.pod_node), find_nodes_in_use(problem, packing.pod_node)
    tiers = len(packing.planned.priorities)
    least = -packing.bound[tiers]
    if packing.planned.get_placed != packing.bound[:tiers]:
        # What is known is of plans that place more: of as few pods as here, less might do.
        least = max(min(least, packing.planned.price - 1), 0)
    used = [built.nodes[node].name for node in np.flatnonzero(after).tolist()]
    types = [fleet.types[name] for name in used if name in fleet.types]
    added = Counter((one.name, one.pool) for one in types)
    return NodeCountChange(
        nodes_before=int(before.sum()),
        nodes_after=int(after.sum()),
        # So many at least, were each of the dearest.
        nodes_bound=-(-least // max(fleet.prices.values(), default=1)),
        drained=_emptied(plan, {built.nodes[node].name for node in np.flatnonzero(before & ~after).tolist()}),
        added=tuple(sorted(AddedNodes(name, count, pool) for (name, pool), count in added.items())),
        price_before=fleet.get_price(packing.current.price),
        price_after=fleet.get_price(packing.planned.price),
        price_bound=fleet.get_price(least),
        kept_by_reason=_kept(built, after),
        measure=fleet.measure,
        pools_without_types=fleet.pools_without_types,
    )


def _kept(built: BuiltProblem, after: BoolArray) -> tuple[tuple[str, int], ...]:
    """Return for each detail for which pods stay how many of the nodes stay in use for it alone, the most first."""
    problem = built.problem
    assert problem.node_prices is not None
    details: dict[int, set[str]] = {}
    occupying = problem.node_prices.keeps_node_in_use[problem.pod_class]
    for pod in np.flatnonzero(occupying & (problem.pod_node >= 0)).tolist():
        detail = built.immovable_reasons[pod]
        if detail is not None and after[problem.pod_node[pod]]:
            details.setdefault(int(problem.pod_node[pod]), set()).add(detail)
    counts = Counter(next(iter(found)) for found in details.values() if len(found) == 1)
    return tuple(sorted(counts.items(), key=lambda entry: (-entry[1], entry[0])))


def _emptied(plan: PackingProposal, nodes: set[str]) -> tuple[str, ...]:
    """Return the nodes in the order in which the last pod leaves them."""
    last = {leave.source: number for number, stage in enumerate(plan.stages) for leave in stage.evictions}
    return tuple(sorted(nodes, key=lambda name: (last.get(name, -1), name)))


# What node autoscalers put on nodes that they empty themselves: their pods leave anyway.
_LEFT_TO_OTHERS = frozenset({"karpenter.sh/disrupted", "karpenter.sh/disruption", "ToBeDeletedByClusterAutoscaler"})


@dataclass(frozen=True, slots=True)
class ConsolidationContext:
    """What moves are judged by: the cluster without nodes that are only thought of, and what budgets leave now.

    A pod younger than `rest` is not moved, so that none is moved twice within that time.
    """

    snapshot: ClusterSnapshot
    demands: Mapping[PodKey, PodNeed]
    policy: Policy
    stored: StoredOverrides
    allowance: EvictionAllowance
    now: datetime
    cooldown: timedelta


def choose_next_moves(plan: PackingProposal, ground: ConsolidationContext) -> PackingProposal | PlanCondition:
    """Return the part of a plan that may be begun now, or why nothing may.

    Only pods on nodes that the plan empties move, each straight to its place, and as many as all budgets allow at once:
    so a plan that is made anew after each part comes nearer to its end. Nothing moves while a pod waits for a node.
    """
    assert plan.node_count_change is not None
    if plan.placed or plan.unplaced:
        return PlanCondition(PlanStatusReason.PENDING_PODS_FIRST)
    if not plan.node_count_change.drained:
        return PlanCondition(PlanStatusReason.NO_NODE_REMOVABLE)
    resizes = {one.uid: one for stage in plan.stages for one in stage.resizes}
    rested = {pod.uid: pod for pod in ground.snapshot.pods if _has_rested(pod, ground)}
    targets = {node.name for node in ground.snapshot.nodes}
    sources = {node.name for node in ground.snapshot.nodes if not _is_left_to_others(node)} & set(
        plan.node_count_change.drained
    )
    chosen: list[PlanStage] = []
    gone: list[Pod] = []
    for stage in plan.stages:
        move = _only_move(stage)
        if move is None or move.uid not in rested or move.source not in sources or move.target not in targets:
            continue
        leaving = [*gone, rested[move.uid]]
        if find_exceeded_eviction_budgets(ground.allowance, leaving):
            continue
        there = tuple(sorted((one for one in resizes.values() if one.node == move.target), key=attrgetter("key")))
        tried = [*chosen, PlanStage(there, (move,), (move,))]
        part = plan.with_stages(tried)
        if not _objections(part, ground):
            chosen, gone = tried, leaving
            for one in there:
                del resizes[one.uid]
    return plan.with_stages(chosen) if chosen else PlanCondition(PlanStatusReason.NO_POD_MOVED)


def _has_rested(pod: Pod, ground: ConsolidationContext) -> bool:
    return pod.created_at is not None and ground.now - pod.created_at >= ground.cooldown


def _is_left_to_others(node: Node) -> bool:
    return node.unschedulable or node.deleting or any(taint.key in _LEFT_TO_OTHERS for taint in node.taints)


def _only_move(stage: PlanStage) -> PlannedPlacement | None:
    """Return the pod that a stage moves by itself, None where it does more at once."""
    if len(stage.evictions) != 1 or len(stage.arrivals) != 1:
        return None
    leave = stage.evictions[0]
    return leave if isinstance(leave, PlannedPlacement) and leave.uid == stage.arrivals[0].uid else None


def _objections(part: PackingProposal, ground: ConsolidationContext) -> list[str]:
    """Judge moves as they will be carried out: at once, as far as PodDisruptionBudgets go."""
    leaving = EvictionRules(ground.snapshot, ground.policy, ground.stored)
    replay = PlanReplay(ground.snapshot, part, leaving)
    replay.run()
    return [
        *replay.objections,
        *find_exceeded_disruption_budgets(leaving, replay.evicted),
        *replay.find_headroom_shortages(ground.demands),
    ]
