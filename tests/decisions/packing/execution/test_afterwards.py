"""The cluster once a plan is carried out, and the budgets that it uses up."""

from dataclasses import replace

from cruise.decisions.packing.execution.afterwards import budgets_spent, cluster_after
from cruise.domain.cluster import DisruptionBudget, Snapshot, WorkloadRef
from cruise.domain.packing import Allowance, Arrival, Budget, Preemption, Proposal, Sizes, Spent, Stage
from cruise.domain.scheduling import LabelSelector, Operator, Requirement
from cruise.packer.answer import Status
from tests.decisions.packing.shop import a_node, a_pod

PODS = (
    a_pod("a", "n1"),
    a_pod("b", "n1", workload=WorkloadRef("Deployment", "other")),
    a_pod("c", "n2", labels={"app": "free"}),
    a_pod("new", cpu=900),
)
BUDGETS = tuple(
    DisruptionBudget("shop", app, LabelSelector((Requirement("app", Operator.IN, (app,)),)), allowed)
    for app, allowed in (("web", 2), ("free", 1))
)
SNAPSHOT = Snapshot(nodes=(a_node("n1"), a_node("n2")), pods=PODS, budgets=BUDGETS)
MOVE = Arrival("shop", "a", "uid-a", "n1", "n2")
STAGE = Stage((), (MOVE, Preemption("shop", "b", "uid-b", "n1")), (MOVE, Arrival("shop", "new", "uid-new", None, "n1")))
PLAN = Proposal(Status.OPTIMAL, Sizes.FIXED, unplaced=(), by_priority=(), stages=(STAGE,))


def test_pods_are_where_the_plan_puts_them_and_serve() -> None:
    after = {pod.name: pod for pod in cluster_after(SNAPSHOT, PLAN).pods}
    assert {name: pod.node for name, pod in after.items()} == {"a": "n2", "b": None, "c": "n2", "new": "n1"}
    assert {name for name, pod in after.items() if pod.ready and pod.phase == "Running"} == {"a", "c", "new"}
    assert after["c"] == PODS[2]


def test_budgets_that_are_used_up_are_spent_where_they_hold_others_back() -> None:
    left = {"d": a_pod("d", "n1"), "e": a_pod("e", "n2", workload=WorkloadRef("Deployment", "other"), labels={})}
    crowd = replace(SNAPSHOT, pods=(*PODS, *left.values()))
    assert budgets_spent(crowd, PLAN, Allowance(in_all=3, each_node=3)) == (Spent(Budget.DISRUPTION, ("shop/web",), 2),)
    assert budgets_spent(crowd, PLAN, Allowance(in_all=2, each_workload=1, each_node=2)) == (
        Spent(Budget.DISRUPTION, ("shop/web",), 2),
        Spent(Budget.HOUR, (), 2),
        Spent(Budget.NODE, ("n1",), 2),
        Spent(Budget.WORKLOAD, ("Deployment shop/other", "Deployment shop/web"), 1),
    )
    # Of the node and of one workload nobody else runs.
    assert budgets_spent(SNAPSHOT, PLAN, Allowance(each_workload=1, each_node=2)) == (
        Spent(Budget.WORKLOAD, ("Deployment shop/web",), 1),
    )
