import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cruise.packer.problem import count_copies
from cruise.packer.rules.preemption import match_pods_to_nodes
from tests.packer.every_assignment import every_assignment
from tests.packer.problems import draw_problem
from tests.tiers import examples


@given(st.integers(0, 10**6))
@examples(60)
def test_pods_follow_an_assignment_of_copies_and_stay_where_they_can(seed):
    problem = draw_problem(seed)
    running = count_copies(problem, problem.pod_node)
    for x in np.concatenate(list(every_assignment(problem)))[:: max(seed % 50, 1)]:
        pod_node = match_pods_to_nodes(problem, x)
        assert (count_copies(problem, pod_node) == x).all()
        stayed = int(((pod_node == problem.pod_node) & (pod_node >= 0)).sum())
        assert stayed == int(np.minimum(x, running).sum())
        # Who is put out of its place finds another before a pending pod of its class gets one.
        for c in range(problem.class_count):
            mine = problem.pod_class == c
            out = mine & (problem.pod_node >= 0) & (pod_node < 0)
            fresh = mine & (problem.pod_node < 0) & (pod_node >= 0)
            assert not (out.any() and fresh.any())
