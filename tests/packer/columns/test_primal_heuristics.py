import numpy as np

from cruise.packer.columns.instance import build_instance, build_residual
from cruise.packer.columns.primal_heuristics import complete_greedily
from cruise.packer.problem import count_copies
from tests.packer.every_assignment import is_valid
from tests.packer.problems import draw_problem


def test_what_is_completed_keeps_room_and_takes_nothing_more_in():
    for seed in range(200):
        problem = draw_problem(seed)
        residual = build_residual(build_instance(problem))
        once = complete_greedily(residual, np.zeros_like(residual.running))
        running = count_copies(problem, problem.pod_node)
        if is_valid(problem, np.zeros_like(running), running):
            assert is_valid(problem, running, residual.to_whole(once)), seed
        assert (once <= residual.limits).all() and (once.sum(axis=1) <= residual.counts).all(), seed
        assert (complete_greedily(residual, once) == once).all(), seed
