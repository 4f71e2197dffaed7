import os
import subprocess
import sys

import numba

# Every kernel that the interpreter calls; the others are compiled into these.
PROGRAM = """
import math
import sys
from cruise.packer.kernels import annealing, clearing, ejecting, gathering, preempting
from cruise.packer.kernels import accompanying, placement
from cruise.packer.kernels import listing
from cruise.packer.kernels import repairing, simplex
from dataclasses import replace
from cruise.packer.budget import Meter
from cruise.packer.fleet.emptying import empty_nodes
from cruise.packer.problem import Objective
from cruise.packer.small import solve_small
from cruise.packer.warming import warm_up
from tests.packer.problems import draw_problem
called = [annealing.anneal, placement.lay_out, accompanying.fill_parts, listing.enumerate_fillings,
          simplex.optimise, simplex.invert, simplex.refresh, simplex.best_known, repairing.repair,
          clearing.send_off, ejecting.place_pods, gathering.gather, preempting.bring_home]
assert not any(kernel.signatures for kernel in called)
warm_up()
assert "ortools" not in sys.modules
problem = draw_problem(next(seed for seed in range(99) if draw_problem(seed).headroom.any()))
solve_small(replace(problem, objective=Objective.OPERATOR), problem.pod_node, Meter(math.inf, 3e8), 1, lambda _: None)
from tests.packer.fleet.test_fleet import plain
fleet = plain(6, [5], [0] * 6, list(range(6)))
empty_nodes(fleet, fleet.pod_node, Meter(math.inf, 1e8), 1, lambda _: None)
import cruise.packer.constrained.solving
assert "ortools" in sys.modules
print([kernel.__name__ for kernel in called if len(kernel.signatures) != 1])
"""


def test_no_kernel_is_left_cold_for_headroom_or_operators_either():
    cache = {"NUMBA_CACHE_DIR": numba.config.CACHE_DIR}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=os.environ | cache, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"
