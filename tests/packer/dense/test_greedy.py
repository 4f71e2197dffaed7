import numpy as np

from cruise.packer.dense.classing import instance_of
from cruise.packer.dense.greedy import complete
from cruise.packer.dense.residual import residual_of
from cruise.packer.problem import copies_of
from tests.packer.every_assignment import is_sound
from tests.packer.problems import draw_problem


def test_what_is_completed_keeps_room_and_takes_nothing_more_in():
    for seed in range(200):
        problem = draw_problem(seed)
        residual = residual_of(instance_of(problem))
        once = complete(residual, np.zeros_like(residual.running))
        running = copies_of(problem, problem.pod_node)
        if is_sound(problem, np.zeros_like(running), running):
            assert is_sound(problem, running, residual.whole(once)), seed
        assert (once <= residual.limits).all() and (once.sum(axis=1) <= residual.counts).all(), seed
        assert (complete(residual, once) == once).all(), seed
