"""Placing pods where lower priorities give way, and bringing back home what was ejected without need."""

import numpy as np

from cruise.packer.kernels.cluster_state import (
    PackedClusterState,
    find_best_node,
    has_capacity,
    is_allowed,
    mark_preempted,
    may_be_ejected,
    move_pod,
    undo_changes,
    update_skyline,
)
from cruise.packer.kernels.compilation import compile_kernel, compile_without_allocation, read_monotonic_seconds
from cruise.packer.kernels.ejection import place_by_single_ejection
from cruise.packer.problem import IntArray

# One victim of a priority is worse than this many of the next lower one; one that was only placed by the plan is
# worth half.
_RANK_RATIO = 64.0
_PLANNED = 0.5
_GUESTS = 64


@compile_kernel
def place_by_preemption(s: PackedClusterState, pods: IntArray, deadline: float, work: float) -> int:
    """Place pods in their order where the least of lower priorities gives way; how many are placed.

    Who gives way stays out, for its own turn to come.
    """
    placed = 0
    worst = 0
    for c in range(s.ranks.shape[0]):
        worst = max(worst, s.ranks[c])
    for i in range(pods.shape[0]):
        p = pods[i]
        if s.node[p] >= 0 or not s.preempt[s.pod_class[p]]:
            continue
        if (deadline < np.inf and read_monotonic_seconds() > deadline) or s.spent[0] > work:
            break
        s.logged[0] = 0
        best = _cheapest(s, p, worst)
        if best >= 0:
            _clear(s, p, best, worst, np.inf)
            for k in range(s.logged[0]):
                if s.home_node[s.log[k, 0]] >= 0:
                    mark_preempted(s, s.log[k, 0], True)
            move_pod(s, p, best)
            placed += 1
        s.logged[0] = 0
    return placed


@compile_without_allocation
def _cheapest(s: PackedClusterState, p: int, worst: int) -> int:
    """The node where the least gives way for a pod; -1 where nowhere enough does."""
    best, least = -1, np.inf
    for n in range(s.free.shape[0]):
        s.spent[0] += 1
        if s.never_preempts[n] == 0 and is_allowed(s, p, n):
            cost = _clear(s, p, n, worst, least)
            undo_changes(s, 0)
            if cost < least:
                best, least = n, cost
    return best


@compile_without_allocation
def _clear(s: PackedClusterState, p: int, n: int, worst: int, least: float) -> float:
    """Take out what has to give way on a node for a pod, the weakest first; its cost, infinite from `least` on."""
    c = s.pod_class[p]
    cost = 0.0
    if not _could_fit(s, c, n):
        return np.inf
    for rank in range(worst, s.ranks[c], -1):
        price = _RANK_RATIO ** (worst - rank)
        while not has_capacity(s, c, n):
            gone = _most_useful(s, c, n, rank)
            if gone < 0:
                break
            cost += price if s.home_node[gone] >= 0 else _PLANNED * price
            if cost >= least:
                return np.inf
            move_pod(s, gone, -1)
        if has_capacity(s, c, n):
            break
    # With others gone, domains count anew.
    return cost if has_capacity(s, c, n) and is_allowed(s, p, n) else np.inf


@compile_without_allocation
def _is_victim(s: PackedClusterState, p: int, n: int, rank: int) -> bool:
    g = s.pod_class[p]
    if s.ranks[g] < rank or (s.home_node[p] >= 0 and (s.home_node[p] != n or not s.preemptible[g])):
        return False
    return may_be_ejected(s, p)


@compile_without_allocation
def _could_fit(s: PackedClusterState, c: int, n: int) -> bool:
    """Whether there is room for a class once all that is weaker is gone, headroom apart."""
    for r in range(s.free.shape[1]):
        if s.demands[c, r] == 0:
            continue
        room = s.free[n, r]
        other = s.first_pod[n]
        while other >= 0 and room < s.demands[c, r]:
            if _is_victim(s, other, n, s.ranks[c] + 1):
                room += s.demands[s.pod_class[other], r]
            other = s.next_pod[other]
        if room < s.demands[c, r]:
            return False
    return True


@compile_without_allocation
def _most_useful(s: PackedClusterState, c: int, n: int, rank: int) -> int:
    """Of the pods of a rank, the smallest that makes the room alone, else what brings most of it; -1: none is left."""
    best, most = -1, -1.0
    other = s.first_pod[n]
    while other >= 0:
        if s.ranks[s.pod_class[other]] == rank and _is_victim(s, other, n, rank):
            brought, size, enough = 0.0, 0.0, True
            for r in range(s.free.shape[1]):
                lack = s.demands[c, r] + max(s.headroom[c, r], s.largest[n, r]) - s.free[n, r]
                demand = s.demands[s.pod_class[other], r]
                size += demand * s.shares[r]
                enough = enough and demand >= lack
                brought += min(max(lack, 0), demand) * s.shares[r]
            use = 1e9 - size if enough else brought
            if use > most:
                best, most = other, use
        other = s.next_pod[other]
    return best


@compile_kernel
def return_pods_home(s: PackedClusterState, pods: IntArray, deadline: float, work: float) -> int:
    """Take pods back where they ran, if what came there instead finds a place that costs nothing; how many come."""
    came = 0
    s.rooted[0] = True
    update_skyline(s)
    for i in range(pods.shape[0]):
        p = pods[i]
        if s.node[p] == s.home_node[p] or s.home_node[p] < 0 or s.node[p] < 0:
            continue
        if (deadline < np.inf and read_monotonic_seconds() > deadline) or s.spent[0] > work:
            break
        s.logged[0] = 0
        came += _bring_back(s, p)
        s.logged[0] = 0
    s.rooted[0] = False
    return came


@compile_kernel
def _bring_back(s: PackedClusterState, p: int) -> bool:
    n, c = s.home_node[p], s.pod_class[p]
    if not may_be_ejected(s, p):
        return False
    move_pod(s, p, -1)
    if has_capacity(s, c, n) and is_allowed(s, p, n):
        move_pod(s, p, n)
        return True
    # Taken out and put back, pods change their node's list: it is read before.
    guests = np.empty(_GUESTS, np.int64)
    count = _guests_on(s, n, guests)
    s.protected_nodes[p] = True
    start = s.logged[0]
    came = False
    for k in range(count):
        move_pod(s, guests[k], -1)
        if has_capacity(s, c, n) and is_allowed(s, p, n):
            move_pod(s, p, n)
            came = _finds_place(s, guests[k], n)
        if came:
            break
        undo_changes(s, start)
    s.protected_nodes[p] = False
    if not came:
        undo_changes(s, 0)
    return came


@compile_without_allocation
def _guests_on(s: PackedClusterState, n: int, guests: IntArray) -> int:
    """The pods on a node that are not at home and may leave; how many."""
    count, other = 0, s.first_pod[n]
    while other >= 0 and count < guests.shape[0]:
        if s.node[other] != s.home_node[other] and may_be_ejected(s, other):
            guests[count] = other
            count += 1
        other = s.next_pod[other]
    return count


@compile_kernel
def _finds_place(s: PackedClusterState, p: int, ban: int) -> bool:
    to = find_best_node(s, p, ban)
    if to >= 0:
        move_pod(s, p, to)
        return True
    return place_by_single_ejection(s, p, 0)
