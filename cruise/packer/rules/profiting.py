"""Which pods have room that preemption made: none that never preempts, not by a chain of moves either."""

import numpy as np

from cruise.packer.arrays import BoolArray, IntArray
from cruise.packer.problem import Problem


def made_by_preemption(problem: Problem, pod_node: IntArray) -> BoolArray:
    """The nodes that something is preempted from, and those from which pods move to such a one."""
    ran = problem.pod_node >= 0
    found = np.zeros(problem.node_count, dtype=np.bool_)
    found[problem.pod_node[ran & (pod_node < 0)]] = True
    if found.any():
        moved = ran & (pod_node >= 0) & (pod_node != problem.pod_node)
        _spread(found, pod_node[moved], problem.pod_node[moved])
    return found


def taken_by_timid(problem: Problem, pod_node: IntArray) -> BoolArray:
    """The nodes at which pods arrive that never preempt, and those to which others move from such a one."""
    arrived = (pod_node >= 0) & (pod_node != problem.pod_node)
    found = np.zeros(problem.node_count, dtype=np.bool_)
    found[pod_node[arrived & ~problem.preempt[problem.pod_class]]] = True
    if found.any():
        moved = arrived & (problem.pod_node >= 0)
        _spread(found, problem.pod_node[moved], pod_node[moved])
    return found


def profits_unduly(problem: Problem, pod_node: IntArray) -> bool:
    """Whether a pod that never preempts arrives where preemption made room, there or at the end of a chain."""
    timid = (pod_node >= 0) & (pod_node != problem.pod_node) & ~problem.preempt[problem.pod_class]
    return bool(timid.any() and made_by_preemption(problem, pod_node)[pod_node[timid]].any())


def chains_may_profit(problem: Problem) -> bool:
    """Whether pods wait that never preempt, while something may be preempted for others."""
    waiting, running = problem.pod_class[problem.pod_node < 0], problem.pod_class[problem.pod_node >= 0]
    return bool((~problem.preempt[waiting]).any() and (problem.preemptible & problem.movable)[running].any())


def _spread(found: BoolArray, reached: IntArray, reaching: IntArray) -> None:
    """Take in the other ends of all moves that reach what is found, until that adds nothing."""
    while True:
        more = reaching[found[reached]]
        if found[more].all():
            return
        found[more] = True
