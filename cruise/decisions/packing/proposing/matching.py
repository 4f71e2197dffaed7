"""Which pod goes where, once it is known how many of a class are on each node."""

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from cruise.domain.arrays import Int64Array
from cruise.packer.problem import Problem
from cruise.packer.rules.profiting import profits_unduly


@dataclass(frozen=True, slots=True, eq=False)
class Changes:
    """Pods by index, ascending: `placed` were pending, `moved` ran elsewhere, `preempted` lose their place."""

    pod_node: Int64Array
    placed: tuple[int, ...]
    moved: tuple[int, ...]
    preempted: tuple[int, ...]


def match(problem: Problem, pod_node: Int64Array) -> Changes:
    """Give a packing's places to pods of the same class so that the most stay, and then as few as can are preempted.

    A solver may have exchanged pods of a class with each other: they are all the same to it.
    """
    target = problem.pod_node.copy()
    changed = np.unique(problem.pod_class[pod_node != problem.pod_node])
    mine = np.flatnonzero(np.isin(problem.pod_class, changed))
    by_class: dict[int, list[int]] = defaultdict(list)
    for pod, pod_class in zip(mine.tolist(), problem.pod_class[mine].tolist(), strict=True):
        by_class[pod_class].append(pod)
    for pods in by_class.values():
        _match_class(pods, problem.pod_node, pod_node, target)
    if profits_unduly(problem, target):
        # Preempted and moved pods are then told apart by the node that they leave.
        target = pod_node
    return changes_of(problem, target)


def changes_of(problem: Problem, pod_node: Int64Array) -> Changes:
    """Say what it takes to get to an assignment, pod by pod."""
    was, now = problem.pod_node, pod_node
    return Changes(
        pod_node=pod_node,
        placed=tuple(np.flatnonzero((was < 0) & (now >= 0)).tolist()),
        moved=tuple(np.flatnonzero((was >= 0) & (now >= 0) & (was != now)).tolist()),
        preempted=tuple(np.flatnonzero((was >= 0) & (now < 0)).tolist()),
    )


def _match_class(pods: list[int], was: Int64Array, wanted: Int64Array, target: Int64Array) -> None:
    places: dict[int, int] = defaultdict(int)
    for pod in pods:
        if wanted[pod] >= 0:
            places[int(wanted[pod])] += 1
    waiting: list[int] = []
    # A pod that the solver leaves in place comes first: it may be the one that a person looks for.
    for pod in sorted(pods, key=lambda pod: wanted[pod] != was[pod]):
        node = int(was[pod])
        if node >= 0 and places[node] > 0:
            places[node] -= 1
            target[pod] = node
        else:
            waiting.append(pod)
    rest: list[int] = []
    for pod in sorted(waiting, key=lambda pod: (was[pod] < 0, wanted[pod] < 0, pod)):
        node = int(wanted[pod])
        if was[pod] >= 0 and node >= 0 and places[node] > 0:
            places[node] -= 1
            target[pod] = node
        else:
            rest.append(pod)
    # Running pods first: a move gives back what a preemption takes. From which nodes something is preempted is the
    # solver's to say, since not every pod may profit from that.
    left = [node for node in sorted(places) for _ in range(places[node])]
    for place, pod in enumerate(rest):
        target[pod] = left[place] if place < len(left) else -1
