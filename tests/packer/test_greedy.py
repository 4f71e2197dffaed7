"""The greedy method: complete, valid and never worse than now, under every rule."""

from dataclasses import replace

import numpy as np
from hypothesis import given

from cruise.packer.answer import compute_figures
from cruise.packer.greedy import assign_greedily
from cruise.packer.problem import PackingObjective, PlacementRules
from cruise.packer.verification import find_rule_violations
from tests.packer.drawn_problems import draw_problem, problems
from tests.tiers import examples


@examples(300)
@given(problems())
def test_every_rule_is_obeyed_and_nothing_gets_worse(problem):
    pod_node = assign_greedily(problem)
    assert find_rule_violations(problem, pod_node) == ()
    after, now = compute_figures(problem, pod_node), compute_figures(problem, problem.pod_node)
    assert after.get_key(problem.objective) >= now.get_key(problem.objective)


@examples(50)
@given(problems())
def test_the_same_problem_gets_the_same_answer(problem):
    assert (assign_greedily(problem) == assign_greedily(problem)).all()


def test_a_pod_of_a_higher_priority_takes_the_place_of_a_lower_one():
    problem = replace(
        draw_problem(1, nodes=1, classes=2, ruled=False, headroom=False),
        capacities=np.array([[4, 4, 9]]),
        demands=np.array([[3, 3, 1], [2, 2, 1]]),
        priorities=np.array([5, 1]),
        movable=np.array([True, True]),
        preemptible=np.array([False, True]),
        preempt=np.array([True, True]),
        allowed_nodes=np.ones((2, 1), dtype=np.bool_),
        max_on_node=np.array([9, 9]),
        pod_class=np.array([0, 1, 1]),
        pod_node=np.array([-1, 0, 0]),
        rules=PlacementRules(np.zeros((1, 1), dtype=np.int64)),
        objective=PackingObjective.OPERATOR,
    )
    assert assign_greedily(problem).tolist() == [0, -1, -1]
    timid = replace(problem, preempt=np.array([False, True]))
    assert assign_greedily(timid).tolist() == [-1, 0, 0]
