"""Summarizes what a plan saves in nodes, and chooses the moves of a consolidation that may start now."""

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
from cruise.decisions.packing.node_types import CandidateNodes
from cruise.decisions.packing.plan_replay import BaseAndHeadroom, PlanReplay
from cruise.decisions.packing.problem import BuiltProblem
from cruise.decisions.scheduling.placements import PodKey
from cruise.domain.arrays import BoolArray
from cruise.domain.cluster import ClusterSnapshot, Node, Pod
from cruise.domain.overrides import PausedWorkloads
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
from cruise.packer.answer import Packing
from cruise.packer.problem import find_nodes_in_use


def summarize_node_count_change(
    built: BuiltProblem, packing: Packing, plan: PackingProposal, candidate_nodes: CandidateNodes
) -> NodeCountChange:
    """Count the nodes in use before and after a plan, with the order in which it drains nodes.

    `packing` is what the plan arrives at, with the bound for all plans.
    """
    problem = built.problem
    assert problem.node_prices is not None
    before, after = find_nodes_in_use(problem, problem.pod_node), find_nodes_in_use(problem, packing.pod_node)
    priority_count = len(packing.planned.priorities)
    min_price = -packing.bound[priority_count]
    if packing.planned.placed != packing.bound[:priority_count]:
        # The bound is for plans that place more pods: a plan that places as few as this one might need less.
        min_price = max(min(min_price, packing.planned.price - 1), 0)
    used = [built.nodes[node].name for node in np.flatnonzero(after).tolist()]
    types = [candidate_nodes.types[name] for name in used if name in candidate_nodes.types]
    added = Counter((one.name, one.pool) for one in types)
    return NodeCountChange(
        nodes_before=int(before.sum()),
        nodes_after=int(after.sum()),
        # At least so many, if each had the highest price.
        nodes_bound=-(-min_price // max(candidate_nodes.prices.values(), default=1)),
        drained=_sort_drained_nodes(
            plan, {built.nodes[node].name for node in np.flatnonzero(before & ~after).tolist()}
        ),
        added=tuple(sorted(AddedNodes(name, count, pool) for (name, pool), count in added.items())),
        price_before=candidate_nodes.get_price(packing.current.price),
        price_after=candidate_nodes.get_price(packing.planned.price),
        price_bound=candidate_nodes.get_price(min_price),
        kept_by_reason=_count_nodes_by_reason(built, after),
        measure=candidate_nodes.measure,
        pools_without_types=candidate_nodes.pools_without_types,
    )


def _count_nodes_by_reason(built: BuiltProblem, after: BoolArray) -> tuple[tuple[str, int], ...]:
    """Return for each immovable reason the number of nodes that stay in use only because of it, largest first."""
    problem = built.problem
    assert problem.node_prices is not None
    reasons_by_node: dict[int, set[str]] = {}
    keeps_node = problem.node_prices.keeps_node_in_use[problem.pod_class]
    for pod in np.flatnonzero(keeps_node & (problem.pod_node >= 0)).tolist():
        reason = built.immovable_reasons[pod]
        if reason is not None and after[problem.pod_node[pod]]:
            reasons_by_node.setdefault(int(problem.pod_node[pod]), set()).add(reason)
    counts = Counter(next(iter(reasons)) for reasons in reasons_by_node.values() if len(reasons) == 1)
    return tuple(sorted(counts.items(), key=lambda entry: (-entry[1], entry[0])))


def _sort_drained_nodes(plan: PackingProposal, nodes: set[str]) -> tuple[str, ...]:
    """Return the nodes in the order in which their last pod is evicted."""
    last_stage = {eviction.source: number for number, stage in enumerate(plan.stages) for eviction in stage.evictions}
    return tuple(sorted(nodes, key=lambda name: (last_stage.get(name, -1), name)))


# Taints of nodes that a node autoscaler drains itself.
_AUTOSCALER_TAINTS = frozenset({"karpenter.sh/disrupted", "karpenter.sh/disruption", "ToBeDeletedByClusterAutoscaler"})


@dataclass(frozen=True, slots=True)
class ConsolidationContext:
    """What moves are checked against: the cluster without candidate nodes, and the remaining budgets.

    A pod that was created less than `cooldown` ago is not moved.
    """

    snapshot: ClusterSnapshot
    demands: Mapping[PodKey, BaseAndHeadroom]
    policy: Policy
    paused_workloads: PausedWorkloads
    allowance: EvictionAllowance
    now: datetime
    cooldown: timedelta


def choose_next_moves(plan: PackingProposal, context: ConsolidationContext) -> PackingProposal | PlanCondition:
    """Return the part of a plan that may start now, or why nothing may.

    Pods move only off nodes that the plan drains, each directly to its target, as many as all budgets allow at the same
    time. So a plan that is made again after each part comes closer to its end. No pod moves while a pod is pending.
    """
    assert plan.node_count_change is not None
    if plan.placed or plan.unplaced:
        return PlanCondition(PlanStatusReason.PENDING_PODS_FIRST)
    if not plan.node_count_change.drained:
        return PlanCondition(PlanStatusReason.NO_NODE_REMOVABLE)
    resizes = {resize.uid: resize for stage in plan.stages for resize in stage.resizes}
    past_cooldown = {pod.uid: pod for pod in context.snapshot.pods if _is_past_cooldown(pod, context)}
    targets = {node.name for node in context.snapshot.nodes}
    sources = {node.name for node in context.snapshot.nodes if not _is_drained_by_autoscaler(node)} & set(
        plan.node_count_change.drained
    )
    chosen: list[PlanStage] = []
    evicted: list[Pod] = []
    for stage in plan.stages:
        move = _get_single_move(stage)
        if move is None or move.uid not in past_cooldown or move.source not in sources or move.target not in targets:
            continue
        evicted_with_this = [*evicted, past_cooldown[move.uid]]
        if find_exceeded_eviction_budgets(context.allowance, evicted_with_this):
            continue
        resizes_on_target = tuple(
            sorted((resize for resize in resizes.values() if resize.node == move.target), key=attrgetter("key"))
        )
        stages = [*chosen, PlanStage(resizes_on_target, (move,), (move,))]
        part = plan.with_stages(stages)
        if not _find_objections(part, context):
            chosen, evicted = stages, evicted_with_this
            for resize in resizes_on_target:
                del resizes[resize.uid]
    return plan.with_stages(chosen) if chosen else PlanCondition(PlanStatusReason.NO_POD_MOVED)


def _is_past_cooldown(pod: Pod, context: ConsolidationContext) -> bool:
    return pod.created_at is not None and context.now - pod.created_at >= context.cooldown


def _is_drained_by_autoscaler(node: Node) -> bool:
    return node.unschedulable or node.deleting or any(taint.key in _AUTOSCALER_TAINTS for taint in node.taints)


def _get_single_move(stage: PlanStage) -> PlannedPlacement | None:
    """Return the move of a stage that consists of only this move; else None."""
    if len(stage.evictions) != 1 or len(stage.arrivals) != 1:
        return None
    eviction = stage.evictions[0]
    return eviction if isinstance(eviction, PlannedPlacement) and eviction.uid == stage.arrivals[0].uid else None


def _find_objections(part: PackingProposal, context: ConsolidationContext) -> list[str]:
    """Check moves that are carried out at the same time, as far as PodDisruptionBudgets are concerned."""
    eviction_rules = EvictionRules(context.snapshot, context.policy, context.paused_workloads)
    replay = PlanReplay(context.snapshot, part, eviction_rules)
    replay.run()
    return [
        *replay.objections,
        *find_exceeded_disruption_budgets(eviction_rules, replay.evicted),
        *replay.find_headroom_shortages(context.demands),
    ]
