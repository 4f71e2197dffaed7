"""Why pods stay pending, as far as the free room of the nodes tells it."""


import numpy as np

from cruise.decisions.packing.building.built import Built
from cruise.decisions.packing.instance import IntArray
from cruise.decisions.packing.packing import Packing
from cruise.decisions.packing.problem import Problem
from cruise.decisions.packing.proposal import Unplaced


def plain_reasons(built: Built, packing: Packing) -> tuple[Unplaced, ...]:
    """Say for each pod that stays pending what every node that may take it is short of; a proof is not attempted."""
    problem = built.problem
    waiting = np.flatnonzero((problem.pod_node < 0) & (packing.pod_node < 0)).tolist()
    free = _free(problem, packing.pod_node)
    known: dict[int, tuple[tuple[str, ...], str, bool]] = {}
    found = [Unplaced(one.pod.namespace, one.pod.name, (one.obstacle,), one.words, True) for one in built.left_out]
    for index in waiting:
        pod_class = int(problem.pod_class[index])
        if pod_class not in known:
            known[pod_class] = _reason(problem, pod_class, free)
        blocked_by, words, impossible = known[pod_class]
        pod = built.pods[index]
        found.append(Unplaced(pod.namespace, pod.name, blocked_by, words, impossible))
    return tuple(found)


def left_out_reasons(built: Built) -> tuple[Unplaced, ...]:
    """Say of the pods that are in no class why no place would help them."""
    return tuple(Unplaced(one.pod.namespace, one.pod.name, (one.obstacle,), one.words, True) for one in built.left_out)


def _free(problem: Problem, pod_node: IntArray) -> IntArray:
    free = problem.capacities.copy()
    here = pod_node >= 0
    np.subtract.at(free, pod_node[here], problem.demands[problem.pod_class[here]])
    shared = np.zeros_like(free)
    np.maximum.at(shared, pod_node[here], problem.headroom[problem.pod_class[here]])
    return free - shared


def _reason(problem: Problem, pod_class: int, free: IntArray) -> tuple[tuple[str, ...], str, bool]:
    nodes = problem.admits[problem.sites[pod_class]]
    if not nodes.any():
        return ("placement",), "no node meets its selectors, tolerations and volumes", True
    demand = problem.demands[pod_class]
    short = (demand > free[nodes]) & (demand > 0)
    blocked = short.any(axis=0) & (not (~short.any(axis=1)).any())
    names = tuple(name for name, is_short in zip(problem.resources, blocked.tolist(), strict=True) if is_short)
    if not names:
        return ("neighbours",), "the pods that run on the nodes with room for it keep it off", False
    return names, f"the {int(nodes.sum())} nodes that it may run on are short of {', '.join(names)}", False
