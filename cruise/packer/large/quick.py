"""A whole feasible assignment at once, without compiled code: keep what runs, place what waits, then preempt."""

import numpy as np

from cruise.packer.instance import BoolArray, IntArray
from cruise.packer.large.arriving import Room, room_of
from cruise.packer.large.census import census_of
from cruise.packer.problem import Problem

# For a pod that fits nowhere this many nodes are looked at, those that lack least.
_CANDIDATES = 8
_PREEMPTIONS = 200


def quick_assignment(problem: Problem) -> IntArray:
    """Nodes for all pods: what runs stays, what waits is placed by priority and size where it fits best.

    What is left preempts lower priorities, whose pods then look for another place.
    """
    room = room_of(problem, census_of(problem), problem.pod_node)
    waiting = _place_all(room, pending_order(problem, problem.pod_node))
    left = [limit.allowed for limit in problem.rules.eviction_limits]
    done, hopeless = 0, set[int]()
    for pod in waiting:
        c = int(problem.pod_class[pod])
        if c in hopeless or done >= _PREEMPTIONS:
            continue
        if _preempt_for(room, pod, left):
            done += 1
        else:
            hopeless.add(c)
    return room.pod_node


def pending_order(problem: Problem, pod_node: IntArray) -> list[int]:
    """Pods without a place, the highest priority first, then the largest."""
    pods = np.flatnonzero(pod_node < 0)
    classes = problem.pod_class[pods]
    sizes = (problem.demands / np.maximum(problem.capacities.sum(axis=0), 1)).sum(axis=1)
    order: list[int] = pods[np.lexsort((pods, classes, -sizes[classes], -problem.priorities[classes]))].tolist()
    return order


def _place_all(room: Room, pods: list[int]) -> list[int]:
    """Place pods in their order, and again those that others attract or level out, until nothing more fits."""
    problem, census = room.problem, room.census
    waiting = pods
    while True:
        full: set[int] = set()
        left = []
        for pod in waiting:
            c = int(problem.pod_class[pod])
            node = -1 if c in full else room.best(c, room.nodes_for(c))
            if node < 0:
                full.add(c)
                left.append(pod)
            else:
                room.put(pod, node)
        again = {c for c in full if c in census.attracted or c in census.spread}
        if len(left) == len(waiting) or not again:
            return left
        waiting = left


def _preempt_for(room: Room, pod: int, left: list[int]) -> bool:
    """Make room for a pod on one node by taking lower priorities off it."""
    problem = room.problem
    c = int(problem.pod_class[pod])
    if not problem.preempt[c]:
        return False
    weaker = (problem.priorities < problem.priorities[c]) & problem.movable & problem.preemptible
    weaker &= ~room.census.anchored
    if not weaker.any():
        return False
    victims = np.flatnonzero(weaker[problem.pod_class] & (room.pod_node >= 0) & (room.pod_node == problem.pod_node))
    reclaimed = np.zeros_like(room.sums)
    np.add.at(reclaimed, room.pod_node[victims], problem.demands[problem.pod_class[victims]])
    need = room.sums + problem.demands[c] + np.maximum(room.largest, problem.headroom[c]) - problem.capacities
    need[:, (problem.demands[c] == 0) & (problem.headroom[c] == 0)] = 0
    open_nodes = room.allowed(c) & (need <= reclaimed).all(axis=1) & ~_timid_arrivals(room)
    nodes = np.flatnonzero(open_nodes)
    lack = (np.maximum(need[nodes], 0) * room.shares).sum(axis=1)
    for node in nodes[np.argsort(lack, kind="stable")[:_CANDIDATES]].tolist():
        if _clear(room, pod, node, victims[room.pod_node[victims] == node], left):
            return True
    return False


def _timid_arrivals(room: Room) -> BoolArray:
    """Tell of each node whether a pod arrived there that does not preempt."""
    problem = room.problem
    arrived = (room.pod_node >= 0) & (room.pod_node != problem.pod_node) & ~problem.preempt[problem.pod_class]
    timid = np.zeros(problem.node_count, dtype=np.bool_)
    timid[room.pod_node[arrived]] = True
    return timid


def _clear(room: Room, pod: int, node: int, victims: IntArray, left: list[int]) -> bool:
    """Take the fewest victims, weakest first, until the pod fits; undone where it never does."""
    problem, census = room.problem, room.census
    c = int(problem.pod_class[pod])
    classes = problem.pod_class[victims]
    sizes = (problem.demands[classes] * room.shares).sum(axis=1)
    taken: list[int] = []
    for victim in victims[np.lexsort((victims, -sizes, problem.priorities[classes]))].tolist():
        limits = census.limits.get(int(problem.pod_class[victim]), [])
        if any(left[limit] <= 0 for limit in limits):
            continue
        room.take(victim)
        taken.append(victim)
        for limit in limits:
            left[limit] -= 1
        if room.fits(c)[node]:
            break
    if not room.fits(c)[node]:
        for victim in taken:
            _restore(room, victim, node, left)
        return False
    room.put(pod, node)
    # What went first may turn out to fit beside the pod after all, or elsewhere.
    for victim in sorted(taken, key=lambda v: (-int(problem.priorities[problem.pod_class[v]]), v)):
        mine = int(problem.pod_class[victim])
        if room.fits(mine)[node]:
            _restore(room, victim, node, left)
            continue
        target = room.best(mine, room.nodes_for(mine))
        if target >= 0:
            room.put(victim, target)
        else:
            room.preempted[node] = True
    return True


def _restore(room: Room, victim: int, node: int, left: list[int]) -> None:
    room.put(victim, node)
    for limit in room.census.limits.get(int(room.problem.pod_class[victim]), []):
        left[limit] += 1
