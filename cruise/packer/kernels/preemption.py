"""Places pods by preempting lower priorities, and returns pods to their home nodes that were ejected without need."""

import numpy as np

from cruise.packer.kernels.cluster_state import (
    ClusterStateArrays,
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

# One victim of a priority is worse than so many of the next lower one; a pod that only the plan placed counts half.
_RANK_RATIO = 64.0
_PLANNED = 0.5
_MAX_FOREIGN = 64


@compile_kernel
def place_by_preemption(s: ClusterStateArrays, pods: IntArray, deadline: float, work: float) -> int:
    """Place pods in order where the least of lower priorities is preempted; return how many are placed."""
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
        best = _find_cheapest_node(s, p, worst)
        if best >= 0:
            _preempt_until_fits(s, p, best, worst, np.inf)
            for k in range(s.logged[0]):
                if s.home_node[s.log[k, 0]] >= 0:
                    mark_preempted(s, s.log[k, 0], True)
            move_pod(s, p, best)
            placed += 1
        s.logged[0] = 0
    return placed


@compile_without_allocation
def _find_cheapest_node(s: ClusterStateArrays, p: int, worst: int) -> int:
    """Return the node with the cheapest preemption for a pod; -1 if no node can free enough."""
    best, least = -1, np.inf
    for n in range(s.free.shape[0]):
        s.spent[0] += 1
        if s.never_preempts[n] == 0 and is_allowed(s, p, n):
            cost = _preempt_until_fits(s, p, n, worst, least)
            undo_changes(s, 0)
            if cost < least:
                best, least = n, cost
    return best


@compile_without_allocation
def _preempt_until_fits(s: ClusterStateArrays, p: int, n: int, worst: int, least: float) -> float:
    """Remove what a pod must preempt on a node, lowest priority first; return the cost, infinite from `least`."""
    c = s.pod_class[p]
    cost = 0.0
    if not _could_fit(s, c, n):
        return np.inf
    for rank in range(worst, s.ranks[c], -1):
        price = _RANK_RATIO ** (worst - rank)
        while not has_capacity(s, c, n):
            gone = _choose_victim(s, c, n, rank)
            if gone < 0:
                break
            cost += price if s.home_node[gone] >= 0 else _PLANNED * price
            if cost >= least:
                return np.inf
            move_pod(s, gone, -1)
        if has_capacity(s, c, n):
            break
    # Once pods have left, the counts of domains are different.
    return cost if has_capacity(s, c, n) and is_allowed(s, p, n) else np.inf


@compile_without_allocation
def _is_victim(s: ClusterStateArrays, p: int, n: int, rank: int) -> bool:
    g = s.pod_class[p]
    if s.ranks[g] < rank or (s.home_node[p] >= 0 and (s.home_node[p] != n or not s.preemptible[g])):
        return False
    return may_be_ejected(s, p)


@compile_without_allocation
def _could_fit(s: ClusterStateArrays, c: int, n: int) -> bool:
    """Return whether a class fits once all lower priorities are gone, headroom apart."""
    for r in range(s.free.shape[1]):
        if s.demands[c, r] == 0:
            continue
        free_amount = s.free[n, r]
        other = s.first_pod[n]
        while other >= 0 and free_amount < s.demands[c, r]:
            if _is_victim(s, other, n, s.ranks[c] + 1):
                free_amount += s.demands[s.pod_class[other], r]
            other = s.next_pod[other]
        if free_amount < s.demands[c, r]:
            return False
    return True


@compile_without_allocation
def _choose_victim(s: ClusterStateArrays, c: int, n: int, rank: int) -> int:
    """Of the pods of a rank, return the smallest that is enough alone, else the one that frees most; -1 for none."""
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
def return_pods_home(s: ClusterStateArrays, pods: IntArray, deadline: float, work: float) -> int:
    """Return pods to their home nodes if what arrived there fits elsewhere without cost; return how many."""
    returned = 0
    s.rooted[0] = True
    update_skyline(s)
    for i in range(pods.shape[0]):
        p = pods[i]
        if s.node[p] == s.home_node[p] or s.home_node[p] < 0 or s.node[p] < 0:
            continue
        if (deadline < np.inf and read_monotonic_seconds() > deadline) or s.spent[0] > work:
            break
        s.logged[0] = 0
        returned += _return_pod(s, p)
        s.logged[0] = 0
    s.rooted[0] = False
    return returned


@compile_kernel
def _return_pod(s: ClusterStateArrays, p: int) -> bool:
    n, c = s.home_node[p], s.pod_class[p]
    if not may_be_ejected(s, p):
        return False
    move_pod(s, p, -1)
    if has_capacity(s, c, n) and is_allowed(s, p, n):
        move_pod(s, p, n)
        return True
    # The list of a node changes when pods are removed and added, so it is read before.
    guests = np.empty(_MAX_FOREIGN, np.int64)
    count = _collect_foreign_pods(s, n, guests)
    s.protected_nodes[p] = True
    start = s.logged[0]
    returned = False
    for k in range(count):
        move_pod(s, guests[k], -1)
        if has_capacity(s, c, n) and is_allowed(s, p, n):
            move_pod(s, p, n)
            returned = _has_other_node(s, guests[k], n)
        if returned:
            break
        undo_changes(s, start)
    s.protected_nodes[p] = False
    if not returned:
        undo_changes(s, 0)
    return returned


@compile_without_allocation
def _collect_foreign_pods(s: ClusterStateArrays, n: int, guests: IntArray) -> int:
    """Collect the pods on a node that are not on their home node and may leave; return how many."""
    count, other = 0, s.first_pod[n]
    while other >= 0 and count < guests.shape[0]:
        if s.node[other] != s.home_node[other] and may_be_ejected(s, other):
            guests[count] = other
            count += 1
        other = s.next_pod[other]
    return count


@compile_kernel
def _has_other_node(s: ClusterStateArrays, p: int, ban: int) -> bool:
    to = find_best_node(s, p, ban)
    if to >= 0:
        move_pod(s, p, to)
        return True
    return place_by_single_ejection(s, p, 0)
