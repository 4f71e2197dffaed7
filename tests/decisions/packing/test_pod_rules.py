"""The limits on evictions that apply to a plan."""

from cruise.decisions.packing.problem import BuiltProblem, build_packing_problem
from cruise.domain.cluster import ClusterSnapshot, PodDisruptionBudget, WorkloadRef
from cruise.domain.packing_plan import EvictionAllowance
from cruise.domain.reasons import ReasonDetailCode
from cruise.domain.scheduling import LabelSelector
from tests.decisions.packing.shop import make_shop_node, make_shop_pod

WEB = WorkloadRef("Deployment", "web")


def built_with(allowed: int | None = None, allowance: EvictionAllowance | None = None) -> BuiltProblem:
    """Two running pods of one workload and one of another, under a budget for their namespace."""
    pods = (
        make_shop_pod("a", "n1"),
        make_shop_pod("b", "n1"),
        make_shop_pod("c", "n2", workload=WorkloadRef("Deployment", "other"), namespace="bank"),
        make_shop_pod("new", cpu=900),
    )
    budgets = () if allowed is None else (PodDisruptionBudget("shop", "all", LabelSelector(), allowed),)
    snapshot = ClusterSnapshot(nodes=(make_shop_node("n1"), make_shop_node("n2")), pods=pods, budgets=budgets)
    return (
        build_packing_problem(snapshot) if allowance is None else build_packing_problem(snapshot, allowance=allowance)
    )


def limits_of(built: BuiltProblem) -> dict[str, tuple[list[str], int]]:
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
    assert built.immovable_reasons == (
        None,
        ReasonDetailCode.BUDGET_EXHAUSTED.create("PodDisruptionBudget shop/all"),
        ReasonDetailCode.BUDGET_EXHAUSTED.create("PodDisruptionBudget shop/all"),
        None,
    )


def test_a_budget_that_permits_all_its_pods_is_no_binding_rule() -> None:
    assert not built_with(2).problem.rules.are_binding


def test_a_caller_may_limit_all_evictions_and_those_of_a_workload() -> None:
    assert limits_of(built_with(allowance=EvictionAllowance(total=2))) == {
        "evictions left in this hour": (["c", "a", "b"], 2)
    }
    assert limits_of(built_with(allowance=EvictionAllowance(default_per_workload=1))) == {
        "evictions left of Deployment shop/web": (["a", "b"], 1)
    }
    held = built_with(allowance=EvictionAllowance(by_workload={("shop", WEB): 0}))
    assert [stays is None for stays in held.immovable_reasons] == [True, False, False, True]


def test_a_caller_may_limit_the_evictions_of_each_node() -> None:
    assert built_with().problem.rules.max_evicted_by_node is None
    most = built_with(
        allowance=EvictionAllowance(default_per_node=2, by_node={"n2": 0})
    ).problem.rules.max_evicted_by_node
    assert most is not None
    assert most.tolist() == [2, 0]
