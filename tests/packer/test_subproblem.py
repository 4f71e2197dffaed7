"""Subproblems cover the problem, are independent, and combine to the whole problem."""

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cruise.packer.greedy import assign_greedily
from cruise.packer.subproblems import split_problem
from cruise.packer.verification import find_rule_violations
from tests.packer.drawn_problems import counting_where_admitted, draw_problem
from tests.tiers import examples


def pooled(seed: int, ruled: bool = True):
    """Two pools of nodes; each class may arrive in one alone, some rules reach across."""
    problem = draw_problem(seed, nodes=6, classes=9, ruled=ruled)
    admits = np.zeros((2, 6), dtype=np.bool_)
    admits[0, :3], admits[1, 3:] = True, True
    home = problem.pod_node
    pool = problem.node_mask_of_class[problem.pod_class]
    return counting_where_admitted(
        replace(problem, allowed_nodes=admits, pod_node=np.where((home >= 3) == (pool == 1), home, -1))
    )


@examples(200)
@given(st.integers(0, 2**32), st.booleans())
def test_answers_of_parts_make_an_answer_of_the_whole(seed, ruled):
    problem = pooled(seed, ruled)
    parts = split_problem(problem)
    assert sorted(pod for part in parts for pod in part.pods.tolist()) == list(range(problem.pod_count))
    assert sorted(node for part in parts for node in part.nodes.tolist()) == list(range(problem.node_count))
    whole = problem.pod_node
    for part in parts:
        answer = assign_greedily(part.problem)
        assert find_rule_violations(part.problem, answer) == ()
        whole = part.insert_assignment(whole, answer)
        assert (part.extract_assignment(whole) == answer).all()
    assert find_rule_violations(problem, whole) == ()


def test_pools_without_common_rules_are_parts():
    assert len(split_problem(pooled(3, ruled=False))) == 2
