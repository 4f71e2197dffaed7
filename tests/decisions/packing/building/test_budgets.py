"""Which limits on evictions a plan has to mind."""

from cruise.decisions.packing.building import Built, build_problem
from cruise.domain.cluster import DisruptionBudget, Snapshot, WorkloadRef
from cruise.domain.details import Detail
from cruise.domain.packing import Allowance
from cruise.domain.scheduling import LabelSelector
from tests.decisions.packing.shop import a_node, a_pod

WEB = WorkloadRef("Deployment", "web")


def built_with(allowed: int | None = None, allowance: Allowance | None = None) -> Built:
    """Two running pods of one workload and one of another, under a budget for their namespace."""
    pods = (
        a_pod("a", "n1"),
        a_pod("b", "n1"),
        a_pod("c", "n2", workload=WorkloadRef("Deployment", "other"), namespace="bank"),
        a_pod("new", cpu=900),
    )
    budgets = () if allowed is None else (DisruptionBudget("shop", "all", LabelSelector(), allowed),)
    snapshot = Snapshot(nodes=(a_node("n1"), a_node("n2")), pods=pods, budgets=budgets)
    return build_problem(snapshot) if allowance is None else build_problem(snapshot, allowance=allowance)


def limits_of(built: Built) -> dict[str, tuple[list[str], int]]:
    problem = built.problem
    return {
        limit.name: (
            [
                pod.name
                for at, pod in enumerate(built.pods)
                if problem.pod_class[at] in limit.members.tolist() and pod.node is not None
            ],
            limit.allowed,
        )
        for limit in problem.rules.eviction_limits
    }


def test_a_budget_that_may_be_spent_is_a_limit_and_weighs() -> None:
    built = built_with(1)
    assert limits_of(built) == {"PodDisruptionBudget shop/all": (["a", "b"], 1)}
    weights = built.problem.weights[built.problem.pod_class].tolist()
    assert dict(zip((pod.name for pod in built.pods), weights, strict=True)) == {"c": 2, "a": 2, "b": 2, "new": 2}


def test_a_budget_of_nothing_keeps_its_pods_where_they_are() -> None:
    built = built_with(0)
    assert limits_of(built) == {}
    assert built.unmovable == (
        None,
        Detail.BUDGET_EXHAUSTED.of("PodDisruptionBudget shop/all"),
        Detail.BUDGET_EXHAUSTED.of("PodDisruptionBudget shop/all"),
        None,
    )


def test_a_budget_for_all_its_pods_binds_nobody() -> None:
    assert not built_with(2).problem.rules.bind


def test_a_caller_may_limit_all_evictions_and_those_of_a_workload() -> None:
    assert limits_of(built_with(allowance=Allowance(in_all=2))) == {"evictions left in this hour": (["c", "a", "b"], 2)}
    assert limits_of(built_with(allowance=Allowance(each_workload=1))) == {
        "evictions left of Deployment shop/web": (["a", "b"], 1)
    }
    held = built_with(allowance=Allowance(of_workloads={("shop", WEB): 0}))
    assert [stays is None for stays in held.unmovable] == [True, False, False, True]


def test_a_caller_may_limit_the_evictions_of_each_node() -> None:
    assert built_with().problem.rules.most_evicted is None
    most = built_with(allowance=Allowance(each_node=2, of_nodes={"n2": 0})).problem.rules.most_evicted
    assert most is not None
    assert most.tolist() == [2, 0]
