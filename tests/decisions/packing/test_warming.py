import subprocess
import sys

# Every kernel that the interpreter calls; the others are compiled into these.
PROGRAM = """
from cruise.decisions.packing.kernels import annealing, board, listing, pricing, simplex
from cruise.decisions.packing.warming import warm_up
called = [annealing.anneal, board.lay_out, pricing.fill_all, listing.enumerate_fillings,
          simplex.optimise, simplex.refresh, simplex.best_known]
assert not any(kernel.signatures for kernel in called)
warm_up()
print([kernel.__name__ for kernel in called if len(kernel.signatures) != 1])
"""


def test_no_kernel_is_left_cold():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
