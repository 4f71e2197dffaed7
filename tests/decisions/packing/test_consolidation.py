"""Which moves of a consolidation plan are started: within every budget, and only from nodes to be drained."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cruise.decisions.packing.consolidation import ConsolidationContext, choose_next_moves
from cruise.domain.cluster import ClusterSnapshot, Pod, PodDisruptionBudget
from cruise.domain.packing_plan import (
    UNLIMITED,
    EvictionAllowance,
    NodeCountChange,
    PackingProposal,
    PackingSizes,
    PlannedPlacement,
    PlanStage,
)
from cruise.domain.policy import Mode, Policy
from cruise.domain.reasons import PlanCondition, PlanStatusReason
from cruise.domain.scheduling import LabelRequirement, LabelSelector, SelectorOperator, Taint, TaintEffect
from cruise.packer.answer import PackingStatus
from tests.decisions.packing.shop import make_shop_node, make_shop_pod

NOW = datetime(2026, 1, 1, tzinfo=UTC)
OLD = NOW - timedelta(days=1)


def pod(name: str, node: str, **more: Any) -> Pod:
    return make_shop_pod(name, node, cpu=200, created_at=more.pop("created_at", OLD), **more)


SPARED = NodeCountChange(3, 1, 1, drained=("n1", "n2"))


def snapshot(*pods: Pod, **more: Any) -> ClusterSnapshot:
    """Pods on two nodes that are to be empty, and one that holds them all."""
    nodes = more.pop("nodes", tuple(make_shop_node(name) for name in ("n1", "n2", "n3")))
    return ClusterSnapshot(nodes=nodes, pods=pods, **more)


def move(one: Pod, target: str = "n3") -> PlanStage:
    arrival = PlannedPlacement(one.namespace, one.name, one.uid, one.node, target)
    return PlanStage((), (arrival,), (arrival,))


def plan(*stages: PlanStage, change: NodeCountChange = SPARED) -> PackingProposal:
    return PackingProposal(
        PackingStatus.OPTIMAL,
        PackingSizes.RIGHTSIZED,
        unplaced=(),
        by_priority=(),
        stages=stages,
        node_count_change=change,
    )


def begun(
    there: ClusterSnapshot, proposal: PackingProposal, allowance: EvictionAllowance = UNLIMITED
) -> list[str] | PlanCondition:
    """The pods that move now, or why none does."""
    ground = ConsolidationContext(there, {}, Policy(mode=Mode.FULL), {}, allowance, NOW, timedelta(hours=4))
    found = choose_next_moves(proposal, ground)
    return found if isinstance(found, PlanCondition) else [stage.evictions[0].pod for stage in found.stages]


A, B, C = pod("a", "n1"), pod("b", "n1"), pod("c", "n2")
ALL = plan(move(A), move(B), move(C))
THERE = snapshot(A, B, C)


@pytest.mark.parametrize(
    ("allowance", "moved"),
    [
        (UNLIMITED, ["a", "b", "c"]),
        (EvictionAllowance(default_per_node=1), ["a", "c"]),
        (EvictionAllowance(default_per_node=1, by_node={"n1": 0}), ["c"]),
        (EvictionAllowance(total=2), ["a", "b"]),
        (EvictionAllowance(default_per_workload=1), ["a"]),
        (EvictionAllowance(total=0), PlanCondition(PlanStatusReason.NO_POD_MOVED)),
    ],
)
def test_as_many_move_as_every_budget_allows_at_once(allowance, moved):
    assert begun(THERE, ALL, allowance) == moved


@pytest.mark.parametrize(
    ("allowed", "moved"), [(1, ["a"]), (2, ["a", "b"]), (0, PlanCondition(PlanStatusReason.NO_POD_MOVED))]
)
def test_a_disruption_budget_is_not_overdrawn(allowed, moved):
    budget = PodDisruptionBudget(
        "shop", "web", LabelSelector((LabelRequirement("app", SelectorOperator.IN, ("web",)),)), allowed
    )
    assert begun(replace(THERE, budgets=(budget,)), ALL) == moved


def test_a_pod_created_recently_or_at_an_unknown_time_is_not_resized():
    young = [replace(A, created_at=NOW - timedelta(hours=3)), replace(B, created_at=None), C]
    assert begun(snapshot(*young), ALL) == ["c"]


@pytest.mark.parametrize(
    "changes",
    [
        {"unschedulable": True},
        {"taints": (Taint("karpenter.sh/disrupted", "", TaintEffect.NO_SCHEDULE),)},
        {"taints": (Taint("ToBeDeletedByClusterAutoscaler", "1", TaintEffect.NO_SCHEDULE),)},
    ],
)
def test_a_node_drained_by_another_tool_is_skipped(changes):
    nodes = (make_shop_node("n1", **changes), make_shop_node("n2"), make_shop_node("n3"))
    assert begun(snapshot(A, B, C, nodes=nodes), ALL) == ["c"]


def test_what_only_frees_capacity_elsewhere_is_left_to_people():
    staying = plan(move(A), move(C), change=NodeCountChange(3, 2, 2, drained=("n2",)))
    assert begun(THERE, staying) == ["c"]


def test_nothing_moves_while_a_pod_waits():
    waiting = PlannedPlacement("shop", "late", "uid-late", None, "n3")
    assert begun(THERE, replace(ALL, stages=(*ALL.stages, PlanStage((), (), (waiting,))))) == PlanCondition(
        PlanStatusReason.PENDING_PODS_FIRST
    )


def test_no_move_targets_a_hypothetical_node():
    assert begun(THERE, plan(move(A, "new-big-1"), move(C))) == ["c"]


def test_a_move_without_capacity_is_dropped_and_the_others_run():
    full = replace(pod("full", "n3"), containers=make_shop_pod("full", cpu=650).containers)
    assert begun(snapshot(A, B, C, full), ALL) == ["a"]


def test_pods_that_may_not_be_evicted_are_not_moved():
    kept = replace(A, annotations={"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"})
    assert begun(snapshot(kept, B, C), ALL) == ["b", "c"]


def test_where_no_node_can_be_spared_nothing_moves():
    assert begun(THERE, plan(change=NodeCountChange(3, 3, 3))) == PlanCondition(PlanStatusReason.NO_NODE_REMOVABLE)
