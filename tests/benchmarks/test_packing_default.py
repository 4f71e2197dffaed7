import numpy as np

from benchmarks.bench_packing_default import ComparedPair, rows_of
from benchmarks.packing_instances import PAPER_RANGE, draw_pending, problem_of


def test_an_instance_and_its_problem_are_the_same_cluster():
    instance = draw_pending(PAPER_RANGE[1], 7)
    problem = problem_of(instance)
    assert np.bincount(problem.pod_class).tolist() == instance.counts.tolist()
    running = np.zeros_like(instance.running)
    bound = problem.pod_node >= 0
    np.add.at(running, (problem.pod_class[bound], problem.pod_node[bound]), 1)
    assert running.tolist() == instance.running.tolist()


def test_pairs_add_up():
    shape = PAPER_RANGE[0]
    pairs = [
        ComparedPair(shape, (3, 4), (3, 3), 2, 1, True, 0.1),
        ComparedPair(shape, (2, 2), (2, 2), 0, 0, True, 0.1),
        ComparedPair(shape, (1, 9), (2, 0), 1, 2, False, 0.4),
    ]
    values = {row.measure.partition(": ")[2]: row.value for row in rows_of(pairs)}
    assert values["better than the default scheduler"] == 1
    assert values["worse"] == 1
    assert values["pods placed"] == 21
    assert values["evictions, moves among them"] == 1
