"""The cluster after a plan, and the budgets that the plan uses."""

from dataclasses import replace

from cruise.decisions.packing.remaining_plan import find_spent_budgets, predict_cluster_after_plan
from cruise.domain.cluster import ClusterSnapshot, PodDisruptionBudget, WorkloadRef
from cruise.domain.packing_plan import (
    EvictionAllowance,
    EvictionBudgetKind,
    PackingProposal,
    PackingSizes,
    PlannedPlacement,
    PlannedPreemption,
    PlanStage,
    SpentBudget,
)
from cruise.domain.scheduling import LabelRequirement, LabelSelector, SelectorOperator
from cruise.packer.answer import PackingStatus
from tests.decisions.packing.shop import make_shop_node, make_shop_pod

PODS = (
    make_shop_pod("a", "n1"),
    make_shop_pod("b", "n1", workload=WorkloadRef("Deployment", "other")),
    make_shop_pod("c", "n2", labels={"app": "free"}),
    make_shop_pod("new", cpu=900),
)
BUDGETS = tuple(
    PodDisruptionBudget("shop", app, LabelSelector((LabelRequirement("app", SelectorOperator.IN, (app,)),)), allowed)
    for app, allowed in (("web", 2), ("free", 1))
)
SNAPSHOT = ClusterSnapshot(nodes=(make_shop_node("n1"), make_shop_node("n2")), pods=PODS, budgets=BUDGETS)
MOVE = PlannedPlacement("shop", "a", "uid-a", "n1", "n2")
STAGE = PlanStage(
    (),
    (MOVE, PlannedPreemption("shop", "b", "uid-b", "n1")),
    (MOVE, PlannedPlacement("shop", "new", "uid-new", None, "n1")),
)
PLAN = PackingProposal(PackingStatus.OPTIMAL, PackingSizes.FIXED, unplaced=(), by_priority=(), stages=(STAGE,))


def test_pods_are_where_the_plan_puts_them_and_serve() -> None:
    after = {pod.name: pod for pod in predict_cluster_after_plan(SNAPSHOT, PLAN).pods}
    assert {name: pod.node for name, pod in after.items()} == {"a": "n2", "b": None, "c": "n2", "new": "n1"}
    assert {name for name, pod in after.items() if pod.ready and pod.phase == "Running"} == {"a", "c", "new"}
    assert after["c"] == PODS[2]


def test_budgets_that_are_used_up_are_spent_where_they_hold_others_back() -> None:
    left = {
        "d": make_shop_pod("d", "n1"),
        "e": make_shop_pod("e", "n2", workload=WorkloadRef("Deployment", "other"), labels={}),
    }
    crowd = replace(SNAPSHOT, pods=(*PODS, *left.values()))
    assert find_spent_budgets(crowd, PLAN, EvictionAllowance(total=3, default_per_node=3)) == (
        SpentBudget(EvictionBudgetKind.DISRUPTION, ("shop/web",), 2),
    )
    assert find_spent_budgets(crowd, PLAN, EvictionAllowance(total=2, default_per_workload=1, default_per_node=2)) == (
        SpentBudget(EvictionBudgetKind.DISRUPTION, ("shop/web",), 2),
        SpentBudget(EvictionBudgetKind.HOUR, (), 2),
        SpentBudget(EvictionBudgetKind.NODE, ("n1",), 2),
        SpentBudget(EvictionBudgetKind.WORKLOAD, ("Deployment shop/other", "Deployment shop/web"), 1),
    )
    # Of the node and of one workload no other pod is running.
    assert find_spent_budgets(SNAPSHOT, PLAN, EvictionAllowance(default_per_workload=1, default_per_node=2)) == (
        SpentBudget(EvictionBudgetKind.WORKLOAD, ("Deployment shop/web",), 1),
    )
