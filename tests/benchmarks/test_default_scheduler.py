import numpy as np
import pytest

from benchmarks.default_scheduler import schedule
from cruise.packer.problem import EvictionLimit, PackingProblem, PlacementRules

POD_SLOTS = 110


def make_cluster(capacities, classes, pods, preempt=True, limits=(), admits=None) -> PackingProblem:
    """`capacities` (CPU, memory) a node, `classes` (CPU, memory, priority), `pods` (class, node or -1) by age."""
    rooms = np.array([(*room, POD_SLOTS) for room in capacities], dtype=np.int64)
    demands = np.array([(cpu, memory, 1) for cpu, memory, _ in classes], dtype=np.int64)
    count = len(classes)
    return PackingProblem(
        resources=("cpu", "memory", "pods"),
        capacities=rooms,
        demands=demands,
        headroom=np.zeros_like(demands),
        priorities=np.array([priority for *_, priority in classes], dtype=np.int64),
        movable=np.ones(count, dtype=np.bool_),
        preemptible=np.ones(count, dtype=np.bool_),
        preempt=np.full(count, preempt, dtype=np.bool_),
        weights=np.ones(count, dtype=np.int64),
        max_on_node=np.full(count, POD_SLOTS, dtype=np.int64),
        node_mask_of_class=np.zeros(count, dtype=np.int64) if admits is None else np.arange(count, dtype=np.int64),
        allowed_nodes=np.ones((1, len(rooms)), dtype=np.bool_) if admits is None else np.array(admits, dtype=np.bool_),
        pod_class=np.array([pod_class for pod_class, _ in pods], dtype=np.int64),
        pod_node=np.array([node for _, node in pods], dtype=np.int64),
        rules=PlacementRules(np.zeros((0, len(rooms)), dtype=np.int64), eviction_limits=tuple(limits)),
    )


def outcome(problem: PackingProblem, preemption: bool = True) -> tuple[list[int], tuple[int, ...]]:
    done = schedule(problem, np.arange(problem.pod_count, dtype=np.int64), preemption)
    used = np.zeros_like(problem.capacities)
    for pod, node in enumerate(done.pod_node.tolist()):
        if node >= 0:
            used[node] += problem.demands[problem.pod_class[pod]]
    assert (used <= problem.capacities).all()
    return done.pod_node.tolist(), done.evicted


def test_the_highest_priority_leaves_the_queue_first_then_the_oldest():
    problem = make_cluster([(10, 10)], [(6, 1, 0), (6, 1, 5)], [(0, -1), (1, -1), (1, -1)])
    assert outcome(problem) == ([-1, 0, -1], ())


def test_the_least_allocated_node_is_chosen():
    problem = make_cluster([(10, 10), (10, 10)], [(2, 2, 0), (1, 1, 0)], [(0, 0), (1, -1)])
    assert outcome(problem)[0] == [0, 1]


def test_a_balanced_node_is_preferred_where_both_are_as_empty():
    # Both are 40 % allocated in sum; the pod evens out the second.
    classes = [(2, 6, 0), (6, 2, 0), (4, 0, 0)]
    problem = make_cluster([(10, 10), (10, 10)], classes, [(0, 0), (1, 1), (2, -1)])
    assert outcome(problem)[0][2] == 0


def test_pods_of_a_class_are_spread():
    problem = make_cluster([(100, 100), (100, 100)], [(1, 1, 0)], [(0, -1)] * 4)
    assert sorted(outcome(problem)[0]) == [0, 0, 1, 1]


def test_a_class_is_not_placed_on_forbidden_nodes():
    problem = make_cluster([(10, 10), (10, 10)], [(1, 1, 0)], [(0, -1)], admits=[(False, True)])
    assert outcome(problem)[0] == [1]


def test_without_preemption_a_full_cluster_is_unchanged():
    problem = make_cluster([(10, 10)], [(10, 10, 0), (5, 5, 9)], [(0, 0), (1, -1)])
    assert outcome(problem, preemption=False) == ([0, -1], ())


def test_a_lower_priority_is_evicted_and_waits():
    problem = make_cluster([(10, 10)], [(10, 10, 0), (5, 5, 9)], [(0, 0), (1, -1)])
    assert outcome(problem) == ([-1, 0], (0,))


@pytest.mark.parametrize("priority", [0, -1])
def test_an_equal_or_higher_priority_is_never_evicted(priority):
    problem = make_cluster([(10, 10)], [(10, 10, 0), (5, 5, priority)], [(0, 0), (1, -1)])
    assert outcome(problem) == ([0, -1], ())


def test_a_pod_that_never_preempts_waits():
    problem = make_cluster([(10, 10)], [(10, 10, 0), (5, 5, 9)], [(0, 0), (1, -1)], preempt=False)
    assert outcome(problem) == ([0, -1], ())


def test_a_replacement_runs_on_another_node_that_it_fits_on():
    # The high one may run on the first node only; the low one on both.
    admits = [(True, True), (True, False)]
    problem = make_cluster([(10, 10), (10, 10)], [(6, 6, 0), (6, 6, 9)], [(0, 0), (1, -1)], admits=admits)
    assert outcome(problem) == ([1, 0], (0,))


def test_no_more_than_needed_are_evicted():
    classes = [(4, 4, 1), (4, 4, 0), (5, 5, 9)]
    problem = make_cluster([(12, 12)], classes, [(0, 0), (1, 0), (0, 0), (2, -1)])
    where, evicted = outcome(problem)
    # Two must be evicted: the one of the lowest priority, and the younger of the others.
    assert set(evicted) == {1, 2}
    assert where == [0, -1, -1, 0]


def test_the_node_with_the_lowest_highest_victim_is_chosen():
    classes = [(10, 10, 3), (10, 10, 2), (10, 10, 9)]
    problem = make_cluster([(10, 10), (10, 10)], classes, [(0, 0), (1, 1), (2, -1)])
    assert outcome(problem)[1] == (1,)


def test_among_equal_victims_the_node_with_the_fewest_is_chosen():
    classes = [(5, 5, 1), (10, 10, 1), (10, 10, 9)]
    problem = make_cluster([(10, 10), (10, 10)], classes, [(0, 0), (0, 0), (1, 1), (2, -1)])
    assert outcome(problem)[1] == (2,)


def test_a_node_without_broken_budgets_is_chosen_even_for_a_higher_victim():
    classes = [(10, 10, 1), (10, 10, 3), (10, 10, 9)]
    limits = [EvictionLimit("low", np.array([0], dtype=np.int64), 0)]
    problem = make_cluster([(10, 10), (10, 10)], classes, [(0, 0), (1, 1), (2, -1)], limits=limits)
    # The evicted pod itself cannot preempt.
    assert outcome(problem) == ([-1, 0, 1], (1, 0))


def test_a_budget_is_broken_where_nothing_else_helps():
    limits = [EvictionLimit("low", np.array([0], dtype=np.int64), 0)]
    problem = make_cluster([(10, 10)], [(10, 10, 1), (10, 10, 9)], [(0, 0), (1, -1)], limits=limits)
    assert outcome(problem)[1] == (0,)


def test_on_one_node_those_of_a_broken_budget_are_given_back_first():
    # Equal except for the budget: the unprotected one is evicted, though it is older.
    limits = [EvictionLimit("guarded", np.array([1], dtype=np.int64), 0)]
    problem = make_cluster([(10, 10)], [(5, 5, 1), (5, 5, 1), (5, 5, 9)], [(0, 0), (1, 0), (2, -1)], limits=limits)
    assert outcome(problem)[1] == (0,)


def test_a_seed_repeats_itself():
    problem = make_cluster([(50, 50)] * 8, [(3, 5, 0), (5, 3, 1)], [(number % 2, -1) for number in range(60)])
    ages = np.arange(problem.pod_count, dtype=np.int64)
    first, second = (schedule(problem, ages, True, seed=4).pod_node.tolist() for _ in range(2))
    assert first == second
