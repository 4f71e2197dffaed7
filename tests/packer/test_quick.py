"""The quick method: whole, obedient and no worse than now, whatever the rules."""

from dataclasses import replace

import numpy as np
from hypothesis import given

from cruise.packer.answer import figures_of
from cruise.packer.faults import find_faults
from cruise.packer.problem import Objective, Rules
from cruise.packer.quick import quick_assignment
from tests.packer.drawn_problems import draw_problem, problems
from tests.tiers import examples


@examples(300)
@given(problems())
def test_every_rule_is_obeyed_and_nothing_gets_worse(problem):
    pod_node = quick_assignment(problem)
    assert find_faults(problem, pod_node) == ()
    after, now = figures_of(problem, pod_node), figures_of(problem, problem.pod_node)
    assert after.key(problem.objective) >= now.key(problem.objective)


@examples(50)
@given(problems())
def test_the_same_problem_gets_the_same_answer(problem):
    assert (quick_assignment(problem) == quick_assignment(problem)).all()


def test_a_pod_of_a_higher_priority_takes_the_place_of_a_lower_one():
    problem = replace(
        draw_problem(1, nodes=1, classes=2, ruled=False, headroom=False),
        capacities=np.array([[4, 4, 9]]),
        demands=np.array([[3, 3, 1], [2, 2, 1]]),
        priorities=np.array([5, 1]),
        movable=np.array([True, True]),
        preemptible=np.array([False, True]),
        preempt=np.array([True, True]),
        admits=np.ones((2, 1), dtype=np.bool_),
        most_on_node=np.array([9, 9]),
        pod_class=np.array([0, 1, 1]),
        pod_node=np.array([-1, 0, 0]),
        rules=Rules(np.zeros((1, 1), dtype=np.int64)),
        objective=Objective.OPERATOR,
    )
    assert quick_assignment(problem).tolist() == [0, -1, -1]
    timid = replace(problem, preempt=np.array([False, True]))
    assert quick_assignment(timid).tolist() == [-1, 0, 0]
