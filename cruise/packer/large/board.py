"""The kernels' board of a problem, what may be spent on it, and the best packing that it has shown."""

from collections.abc import Callable

from cruise.packer.answer import Packing, Report, packing_of
from cruise.packer.arrays import IntArray
from cruise.packer.budget import Meter
from cruise.packer.kernels.cluster_state import ClusterState
from cruise.packer.large.state import state_of
from cruise.packer.problem import Problem
from cruise.packer.rules.by_class import rules_by_class
from cruise.packer.rules.profiting import profits_unduly

# So far below a pod's rank that this excludes none.
ANY_RANK = -(1 << 30)
# What one unit of the kernels' own counting stands for, in units of work: about as many nanoseconds.
_LOOK = 10

Kernel = Callable[[float, float], int]


class Board:
    """A search that changes an assignment pod by pod, beginning with `begin`; `packing` is the best known before."""

    def __init__(self, problem: Problem, begin: IntArray, packing: Packing, meter: Meter, report: Report) -> None:
        self.problem, self.packing, self.meter, self.report = problem, packing, meter, report
        self.state: ClusterState = state_of(problem, rules_by_class(problem), begin)

    def act(self, meter: Meter, kernel: Kernel) -> int:
        """Run a kernel within what is left of a meter, and spend what it looked at; its answer."""
        spent = self.state.spent
        spent[0] = 0
        done = kernel(meter.deadline_seconds, meter.work_left / _LOOK)
        meter.spend(float(spent[0]) * _LOOK)
        return done

    def offer(self) -> None:
        """Take the assignment as it is now for the best where it is, and report it.

        The kernels keep pods that never preempt off nodes that something is preempted from, and know of no chains.
        """
        packing = packing_of(self.problem, self.state.at.copy(), self.packing.bound)
        objective = self.problem.objective
        better = packing.after.key(objective) > self.packing.after.key(objective)
        if better and not profits_unduly(self.problem, packing.pod_node):
            self.packing = packing
            self.report(packing)
