"""Plans that begin with what prices say of nodes: they obey every rule, and take fewer evictions than ejections do."""

import math

import numpy as np

from benchmarks.unlike_clusters import Full, Make, draw_full
from cruise.packer.budget import Meter
from cruise.packer.faults import find_faults
from cruise.packer.large.priced import solve_priced
from cruise.packer.large.solving import solve_large
from cruise.packer.problem import Objective
from cruise.packer.relaxed.bounding import Bounds

WORK = 3e8


def _evicted(problem, pod_node):
    return int(np.count_nonzero((problem.pod_node >= 0) & (pod_node != problem.pod_node)))


def test_what_prices_say_of_nodes_of_two_sizes_saves_evictions():
    problem = draw_full(Full(Make.BIMODAL, 120), 1, Objective.OPERATOR)
    # Twice the work that prices and what comes of them have each.
    known = solve_large(problem, problem.pod_node, Meter(math.inf, 2 * WORK), lambda _: None)
    bounds = Bounds(problem)
    least = bounds.least_evicted((problem.pod_count,), _evicted(problem, known.pod_node), Meter(math.inf, WORK))
    found = solve_priced(problem, bounds.changes, known.bound, Meter(math.inf, WORK), 1)
    assert not find_faults(problem, found.pod_node)
    assert (found.pod_node >= 0).all()
    assert least <= _evicted(problem, found.pod_node) < _evicted(problem, known.pod_node)
