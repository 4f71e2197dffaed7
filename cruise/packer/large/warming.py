"""Calling every kernel of large problems once, so that no solve waits for a compiler."""

import math

import numpy as np

from cruise.packer.answer import Packing
from cruise.packer.budget import Meter
from cruise.packer.kernels.clock import seconds
from cruise.packer.large.solving import solve_large
from cruise.packer.problem import EvictionLimit, Objective, Problem, Rules

_MOST_SECONDS = 600.0


def warm_up_large() -> None:
    """Compile the kernels of ejections, or load them from the cache: half a minute the first time, then a moment."""
    for objective in Objective:
        problem = _example(objective)
        solve_large(problem, problem.pod_node, Meter(seconds() + _MOST_SECONDS, math.inf), _ignore)


def _example(objective: Objective) -> Problem:
    """Two full nodes and pods of two priorities that wait: ejection, preemption and coming home are all tried."""
    return Problem(
        resources=("cpu", "memory", "pods"),
        capacities=np.array([[10, 10, 9], [10, 10, 9]]),
        demands=np.array([[4, 4, 1], [6, 6, 1], [5, 5, 1], [3, 3, 1]]),
        headroom=np.zeros((4, 3), dtype=np.int64),
        priorities=np.array([1, 1, 0, 2]),
        movable=np.ones(4, dtype=np.bool_),
        preemptible=np.array([False, False, True, False]),
        preempt=np.ones(4, dtype=np.bool_),
        weights=np.ones(4, dtype=np.int64),
        most_on_node=np.full(4, 9, dtype=np.int64),
        sites=np.zeros(4, dtype=np.int64),
        admits=np.ones((1, 2), dtype=np.bool_),
        pod_class=np.array([0, 0, 1, 2, 2, 3]),
        pod_node=np.array([0, 1, -1, 0, 1, -1]),
        rules=Rules(np.zeros((1, 2), dtype=np.int64), eviction_limits=(EvictionLimit("all", np.array([0, 2]), 3),)),
        objective=objective,
    )


def _ignore(packing: Packing) -> None:
    """Nobody waits for the example."""
