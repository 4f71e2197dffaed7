"""Plans that start from node prices obey every rule and need fewer evictions than ejection search."""

import math

import numpy as np

from benchmarks.unlike_clusters import ClusterDrawing, FullCluster, draw_full
from cruise.packer.budget import BudgetMeter
from cruise.packer.large.priced import solve_from_prices
from cruise.packer.large.solving import solve_by_ejection
from cruise.packer.problem import PackingObjective
from cruise.packer.relaxed.bounds import RelaxedBounds
from cruise.packer.verification import find_rule_violations

WORK = 3e8


def _evicted(problem, pod_node):
    return int(np.count_nonzero((problem.pod_node >= 0) & (pod_node != problem.pod_node)))


def test_what_prices_say_of_nodes_of_two_sizes_saves_evictions():
    problem = draw_full(FullCluster(ClusterDrawing.BIMODAL, 120), 1, PackingObjective.OPERATOR)
    # Twice the work that prices and the plan from them have each.
    known = solve_by_ejection(problem, problem.pod_node, BudgetMeter(math.inf, 2 * WORK), lambda _: None)
    bounds = RelaxedBounds(problem)
    least = bounds.compute_min_evicted(
        (problem.pod_count,), _evicted(problem, known.pod_node), BudgetMeter(math.inf, WORK)
    )
    found = solve_from_prices(problem, bounds.node_changes, known.bound, BudgetMeter(math.inf, WORK), 1)
    assert not find_rule_violations(problem, found.pod_node)
    assert (found.pod_node >= 0).all()
    assert least <= _evicted(problem, found.pod_node) < _evicted(problem, known.pod_node)
