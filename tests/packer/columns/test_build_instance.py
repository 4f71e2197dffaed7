from dataclasses import replace

import numpy as np

from cruise.packer.columns.instance import build_instance, get_eviction_weight_unit
from tests.packer.problems import draw_problem


def test_pods_that_run_on_an_overcommitted_node_fit_there():
    for seed in range(99):
        problem = draw_problem(seed)
        instance = build_instance(problem)
        for node, running in enumerate(instance.running.T):
            shared = problem.headroom[running > 0].max(axis=0, initial=0)
            least = np.maximum(problem.capacities[node], running @ problem.demands + shared)
            assert (instance.capacities[node] == least).all(), seed


def test_weights_share_their_unit():
    problem = draw_problem(1)
    assert get_eviction_weight_unit(replace(problem, weights=np.full(problem.class_count, 6))) == 6
    assert get_eviction_weight_unit(replace(problem, weights=np.zeros(problem.class_count, dtype=np.int64))) == 1
