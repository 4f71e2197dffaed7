from dataclasses import replace

import numpy as np
import pytest

from cruise.decisions.packing.budget import Budget
from cruise.decisions.packing.certificate import Status
from cruise.decisions.packing.dense import solve_dense
from cruise.decisions.packing.solving import solve
from tests.decisions.packing.instances import draw_tiny
from tests.decisions.packing.problems import problem_of

REPLAY = Budget(work_units=3e8, seed=7)


def nobody(_packing):
    pass


@pytest.mark.parametrize("seed", range(40))
def test_a_problem_has_the_figures_of_its_instance(seed):
    instance = draw_tiny(seed)
    # A problem knows only one limit a class.
    instance = replace(instance, most=np.where(instance.most > 0, instance.most.max(axis=1, keepdims=True), 0))
    problem = problem_of(instance)
    packing = solve_dense(problem, problem.pod_node, REPLAY, nobody)
    assert packing.after.tiers == solve(instance, REPLAY).plan.vector
    assert packing.status in (Status.OPTIMAL, Status.ALREADY_OPTIMAL)
