"""Placing pods where lower priorities give way, and bringing back home what was ejected without need."""

import numpy as np

from cruise.packer.instance import IntArray
from cruise.packer.kernels.clock import seconds
from cruise.packer.kernels.compiling import kernel, lean
from cruise.packer.kernels.ejecting import by_one
from cruise.packer.kernels.ejecting_board import Yard, allowed, best_node, draw_sky, drop, fits, may_leave, move, undo

# One victim of a priority is worse than this many of the next lower one; one that was only placed by the plan is
# worth half.
_RANK_RATIO = 64.0
_PLANNED = 0.5
_GUESTS = 64


@kernel
def preempt_for(y: Yard, pods: IntArray, deadline: float, work: float) -> int:
    """Place pods in their order where the least of lower priorities gives way; how many are placed.

    Who gives way stays out, for its own turn to come.
    """
    placed = 0
    worst = 0
    for c in range(y.ranks.shape[0]):
        worst = max(worst, y.ranks[c])
    for i in range(pods.shape[0]):
        p = pods[i]
        if y.at[p] >= 0 or not y.preempt[y.pod_class[p]]:
            continue
        if (deadline < np.inf and seconds() > deadline) or y.spent[0] > work:
            break
        y.logged[0] = 0
        best = _cheapest(y, p, worst)
        if best >= 0:
            _clear(y, p, best, worst, np.inf)
            for k in range(y.logged[0]):
                if y.home[y.log[k, 0]] >= 0:
                    drop(y, y.log[k, 0], True)
            move(y, p, best)
            placed += 1
        y.logged[0] = 0
    return placed


@lean
def _cheapest(y: Yard, p: int, worst: int) -> int:
    """The node where the least gives way for a pod; -1 where nowhere enough does."""
    best, least = -1, np.inf
    for n in range(y.free.shape[0]):
        y.spent[0] += 1
        if y.timid[n] == 0 and allowed(y, p, n):
            cost = _clear(y, p, n, worst, least)
            undo(y, 0)
            if cost < least:
                best, least = n, cost
    return best


@lean
def _clear(y: Yard, p: int, n: int, worst: int, least: float) -> float:
    """Take out what has to give way on a node for a pod, the weakest first; its cost, infinite from `least` on."""
    c = y.pod_class[p]
    cost = 0.0
    if not _could_fit(y, c, n):
        return np.inf
    for rank in range(worst, y.ranks[c], -1):
        price = _RANK_RATIO ** (worst - rank)
        while not fits(y, c, n):
            gone = _most_useful(y, c, n, rank)
            if gone < 0:
                break
            cost += price if y.home[gone] >= 0 else _PLANNED * price
            if cost >= least:
                return np.inf
            move(y, gone, -1)
        if fits(y, c, n):
            break
    # With others gone, domains count anew.
    return cost if fits(y, c, n) and allowed(y, p, n) else np.inf


@lean
def _is_victim(y: Yard, p: int, n: int, rank: int) -> bool:
    g = y.pod_class[p]
    if y.ranks[g] < rank or (y.home[p] >= 0 and (y.home[p] != n or not y.preemptible[g])):
        return False
    return may_leave(y, p)


@lean
def _could_fit(y: Yard, c: int, n: int) -> bool:
    """Whether there is room for a class once all that is weaker is gone, headroom apart."""
    for r in range(y.free.shape[1]):
        if y.demands[c, r] == 0:
            continue
        room = y.free[n, r]
        other = y.head[n]
        while other >= 0 and room < y.demands[c, r]:
            if _is_victim(y, other, n, y.ranks[c] + 1):
                room += y.demands[y.pod_class[other], r]
            other = y.after[other]
        if room < y.demands[c, r]:
            return False
    return True


@lean
def _most_useful(y: Yard, c: int, n: int, rank: int) -> int:
    """Of the pods of a rank, the smallest that makes the room alone, else what brings most of it; -1: none is left."""
    best, most = -1, -1.0
    other = y.head[n]
    while other >= 0:
        if y.ranks[y.pod_class[other]] == rank and _is_victim(y, other, n, rank):
            brought, size, enough = 0.0, 0.0, True
            for r in range(y.free.shape[1]):
                lack = y.demands[c, r] + max(y.headroom[c, r], y.largest[n, r]) - y.free[n, r]
                demand = y.demands[y.pod_class[other], r]
                size += demand * y.shares[r]
                enough = enough and demand >= lack
                brought += min(max(lack, 0), demand) * y.shares[r]
            use = 1e9 - size if enough else brought
            if use > most:
                best, most = other, use
        other = y.after[other]
    return best


@kernel
def bring_home(y: Yard, pods: IntArray, deadline: float, work: float) -> int:
    """Take pods back where they ran, if what came there instead finds a place that costs nothing; how many come."""
    came = 0
    y.rooted[0] = True
    draw_sky(y)
    for i in range(pods.shape[0]):
        p = pods[i]
        if y.at[p] == y.home[p] or y.home[p] < 0 or y.at[p] < 0:
            continue
        if (deadline < np.inf and seconds() > deadline) or y.spent[0] > work:
            break
        y.logged[0] = 0
        came += _bring_back(y, p)
        y.logged[0] = 0
    y.rooted[0] = False
    return came


@kernel
def _bring_back(y: Yard, p: int) -> bool:
    n, c = y.home[p], y.pod_class[p]
    if not may_leave(y, p):
        return False
    move(y, p, -1)
    if fits(y, c, n) and allowed(y, p, n):
        move(y, p, n)
        return True
    # Taken out and put back, pods change their node's list: it is read before.
    guests = np.empty(_GUESTS, np.int64)
    count = _guests_on(y, n, guests)
    y.pinned[p] = True
    start = y.logged[0]
    came = False
    for k in range(count):
        move(y, guests[k], -1)
        if fits(y, c, n) and allowed(y, p, n):
            move(y, p, n)
            came = _finds_place(y, guests[k], n)
        if came:
            break
        undo(y, start)
    y.pinned[p] = False
    if not came:
        undo(y, 0)
    return came


@lean
def _guests_on(y: Yard, n: int, guests: IntArray) -> int:
    """The pods on a node that are not at home and may leave; how many."""
    count, other = 0, y.head[n]
    while other >= 0 and count < guests.shape[0]:
        if y.at[other] != y.home[other] and may_leave(y, other):
            guests[count] = other
            count += 1
        other = y.after[other]
    return count


@kernel
def _finds_place(y: Yard, p: int, ban: int) -> bool:
    to = best_node(y, p, ban)
    if to >= 0:
        move(y, p, to)
        return True
    return by_one(y, p, 0)
