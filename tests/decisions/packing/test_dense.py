import pytest

from cruise.decisions.packing.budget import Budget
from cruise.decisions.packing.classing import assignment_of, barred
from cruise.decisions.packing.dense import solve_dense
from tests.decisions.packing.every_assignment import best_key, is_sound, key_of
from tests.decisions.packing.problems import draw_problem

REPLAY = Budget(work_units=3e8, seed=7)


def nobody(_packing):
    pass


@pytest.mark.parametrize("hundred", range(6))
def test_tiny_problems_equal_brute_force(hundred):
    for seed in range(100 * hundred, 100 * hundred + 100):
        problem = draw_problem(seed)
        packing = solve_dense(problem, problem.pod_node, REPLAY, nobody)
        running, found = assignment_of(problem, problem.pod_node), assignment_of(problem, packing.pod_node)
        assert is_sound(problem, running, found), seed
        best, key = best_key(problem), packing.after.key(problem.objective)
        assert key == key_of(problem, found), seed
        assert packing.bound >= best, seed
        if not barred(problem).any():
            assert key == packing.bound == best, (seed, key, packing.bound, best)
        assert key <= best, seed
