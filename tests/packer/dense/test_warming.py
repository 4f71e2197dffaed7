import os
import subprocess
import sys

import numba

# Every kernel that the interpreter calls; the others are compiled into these.
PROGRAM = """
from cruise.packer.kernels import annealing
from cruise.packer.kernels import placement
from cruise.packer.kernels import listing
from cruise.packer.kernels import pricing
from cruise.packer.kernels import simplex
from dataclasses import replace
from cruise.packer.budget import Budget
from cruise.packer.dense.by_class import solve_dense
from cruise.packer.problem import Objective
from cruise.packer.warming import warm_up
from tests.packer.problems import draw_problem
called = [annealing.anneal, placement.lay_out, pricing.fill_all, listing.enumerate_fillings,
          simplex.optimise, simplex.refresh, simplex.best_known]
assert not any(kernel.signatures for kernel in called)
warm_up()
problem = draw_problem(next(seed for seed in range(99) if draw_problem(seed).headroom.any()))
solve_dense(replace(problem, objective=Objective.OPERATOR), problem.pod_node, Budget(work_units=3e8), lambda _: None)
print([kernel.__name__ for kernel in called if len(kernel.signatures) != 1])
"""


def test_no_kernel_is_left_cold_for_headroom_or_operators_either():
    cache = {"NUMBA_CACHE_DIR": numba.config.CACHE_DIR}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=os.environ | cache, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"
