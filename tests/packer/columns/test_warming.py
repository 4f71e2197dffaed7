import os
import subprocess
import sys

import numba

# Every kernel that the interpreter calls; the others are compiled into these.
PROGRAM = """
import math
import sys
from cruise.packer.kernels import annealing, cluster_state, dual_simplex, ejection, knapsack, placement, preemption
from cruise.packer.kernels import capacity_gathering, same_node_affinity_patterns, simplex
from dataclasses import replace
from cruise.packer.budget import BudgetMeter
from cruise.packer.consolidation import drain_nodes
from cruise.packer.problem import PackingObjective
from cruise.packer.pack import solve_subproblem
from cruise.packer.warm_up import warm_up_kernels
from tests.packer.problems import draw_problem
called = [annealing.anneal, placement.initialise_placement, same_node_affinity_patterns.price_patterns,
          knapsack.list_patterns_of_node, simplex.maximise, simplex.invert_basis, simplex.recompute_levels_and_duals,
          simplex.raise_best_column_values, dual_simplex.restore_bounds, cluster_state.remove_pods,
          ejection.place_by_ejection, capacity_gathering.place_by_gathering_capacity, preemption.return_pods_home]
assert not any(kernel.signatures for kernel in called)
warm_up_kernels()
assert "ortools" not in sys.modules
problem = draw_problem(next(seed for seed in range(99) if draw_problem(seed).headroom.any()))
operator = replace(problem, objective=PackingObjective.OPERATOR)
solve_subproblem(operator, problem.pod_node, BudgetMeter(math.inf, 3e8), 1, lambda _: None)
from tests.packer.test_consolidation import plain
consolidation = plain(6, [5], [0] * 6, list(range(6)))
drain_nodes(consolidation, consolidation.pod_node, BudgetMeter(math.inf, 1e8), 1, lambda _: None)
import cruise.packer.exact.model
assert "ortools" in sys.modules
print([kernel.__name__ for kernel in called if len(kernel.signatures) != 1])
"""


def test_no_kernel_is_left_cold_for_headroom_or_operators_either():
    cache = {"NUMBA_CACHE_DIR": numba.config.CACHE_DIR}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=os.environ | cache, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"
