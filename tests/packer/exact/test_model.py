"""Packing under all rules, compared with exhaustive search."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np

from cruise.packer.answer import Packing, PackingStatus
from cruise.packer.budget import BudgetMeter
from cruise.packer.exact.model import solve_exact
from cruise.packer.problem import PackingProblem, PlacementRules
from tests.decisions.packing.reports import ignore
from tests.packer.exact.tiny import best_key, check_assignment, random_problem


def test_equals_the_best_of_all_assignments_and_proves_it(seeds):
    for seed in seeds(500):
        problem = random_problem(seed)
        packing = solve_exact(problem, problem.pod_node, BudgetMeter(math.inf, math.inf), ignore)
        key = packing.planned.get_key(problem.objective)
        assert key == best_key(problem), seed
        assert key == packing.bound, seed
        assert packing.status in (PackingStatus.OPTIMAL, PackingStatus.ALREADY_OPTIMAL)
        assert packing.status is PackingStatus.ALREADY_OPTIMAL or check_assignment(problem, packing.pod_node), seed


def test_reports_only_better_packings_or_bounds_that_obey():
    for seed in range(30):
        problem = random_problem(seed)
        heard: list[Packing] = []
        last = solve_exact(problem, problem.pod_node, BudgetMeter(math.inf, math.inf), heard.append)
        states = [(packing.planned.get_key(problem.objective), [-b for b in packing.bound]) for packing in heard]
        assert all(later > earlier for earlier, later in pairwise(states))
        assert all(
            check_assignment(problem, p.pod_node)
            for p in heard
            if p.planned.get_key(problem.objective) > p.current.get_key(problem.objective)
        )
        if heard:
            assert heard[-1].planned == last.planned and heard[-1].bound == last.bound


def test_is_never_worse_than_its_start_without_any_budget_left():
    kept = 0
    for seed in range(40):
        problem = random_problem(seed)
        best = solve_exact(problem, problem.pod_node, BudgetMeter(math.inf, math.inf), ignore)
        again = solve_exact(problem, best.pod_node, BudgetMeter(math.inf, 1e6), ignore)
        assert again.planned.get_key(problem.objective) >= best.planned.get_key(problem.objective)
        kept += best.status is PackingStatus.OPTIMAL
    assert kept > 10


def test_repeats_exactly_with_work_units():
    for seed in range(10):
        problem = random_problem(seed, most_pods=12)
        first, second = (solve_exact(problem, problem.pod_node, BudgetMeter(math.inf, 2e7), ignore) for _ in range(2))
        assert first.pod_node.tolist() == second.pod_node.tolist()
        assert first.bound == second.bound


def test_equals_do_not_change_places_so_that_one_may_be_preempted_for_a_pod_that_never_preempts():
    # Node 0 runs one copy of class 0, node 1 two, full; the pod of class 1 would fit node 1 without one of them.
    problem = PackingProblem(
        resources=("cpu",),
        capacities=np.array([[2], [2]]),
        demands=np.array([[1], [1]]),
        headroom=np.zeros((2, 1), dtype=np.int64),
        priorities=np.array([100, 100]),
        movable=np.array([True, True]),
        preemptible=np.array([True, True]),
        preempt=np.array([True, False]),
        weights=np.array([1, 1]),
        max_on_node=np.array([1, 4]),
        node_mask_of_class=np.array([0, 1]),
        allowed_nodes=np.array([[True, False], [False, True]]),
        pod_class=np.array([0, 0, 0, 1]),
        pod_node=np.array([0, 1, 1, -1]),
        rules=PlacementRules(np.zeros((0, 2), dtype=np.int64)),
    )
    packing = solve_exact(problem, problem.pod_node, BudgetMeter(math.inf, math.inf), ignore)
    assert packing.status is PackingStatus.ALREADY_OPTIMAL
    assert packing.pod_node.tolist() == [0, 1, 1, -1]
    assert best_key(problem) == packing.bound


def test_takes_the_bound_of_the_problem_without_its_rules():
    proved = 0
    for seed in range(40):
        problem = random_problem(seed)
        free = replace(problem, rules=PlacementRules(problem.rules.topologies))
        relaxed = solve_exact(free, problem.pod_node, BudgetMeter(math.inf, math.inf), ignore).bound
        packing = solve_exact(problem, problem.pod_node, BudgetMeter(math.inf, math.inf), ignore, relaxed=relaxed)
        assert packing.planned.get_key(problem.objective) == best_key(problem) == packing.bound
        assert packing.bound <= relaxed
        proved += packing.bound == relaxed
    assert 0 < proved < 40
