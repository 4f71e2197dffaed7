"""A whole cluster that kernels change pod by pod: pods in linked lists, so that memory grows with pods alone."""

from typing import NamedTuple

import numpy as np

from cruise.packer.instance import BoolArray, FloatArray, IntArray
from cruise.packer.kernels.compiling import kernel, lean
from cruise.packer.kernels.ejecting_ties import CLOSED, SHUNNED, SHUNNED_STARTS, TIED, may_come, may_go, tally

# A class may be so common on a node that its number there never matters.
UNLIMITED = 1 << 30


class Yard(NamedTuple):
    """Pods on nodes, what they need, and what may be done to them.

    `free[node, resource]` is the capacity without the sum of demands, `largest` the largest headroom there.
    `head[node]`, `after[pod]` and `before[pod]` link the pods of a node. `ranks[class]` counts priorities from the
    highest, 0. `loose[class]` tells whether pods may be moved, `left[limit]` how many evictions remain of a limit;
    `limits[limit_starts[c]:limit_starts[c + 1]]` are those of a class. `lost[node]` counts what was preempted there
    (`dropped[pod]`), `guests[node]` the arrivals there, `timid[node]` those that do not preempt. `shares[resource]`
    weighs what is short. `sky[line[site], bucket]` is the most of the second scarce resource on a node with so many
    `unit` of the first; `scarce` are the two. `pinned` pods are not to be ejected; while `rooted[0]`, none is that is
    at home. `log[k]` is (pod, node before, dropped before) of the first `logged[0]` changes since the last decision.
    `spent[0]` counts what was looked at, `ties` hold the rules between pods.
    """

    demands: IntArray
    headroom: IntArray
    ranks: IntArray
    loose: BoolArray
    preemptible: BoolArray
    preempt: BoolArray
    most: IntArray
    sites: IntArray
    admits: BoolArray
    limit_starts: IntArray
    limits: IntArray
    left: IntArray
    pod_class: IntArray
    home: IntArray
    at: IntArray
    head: IntArray
    after: IntArray
    before: IntArray
    free: IntArray
    largest: IntArray
    lost: IntArray
    timid: IntArray
    guests: IntArray
    dropped: BoolArray
    pinned: BoolArray
    rooted: BoolArray
    shares: FloatArray
    scarce: IntArray
    unit: IntArray
    line: IntArray
    sky: IntArray
    log: IntArray
    logged: IntArray
    spent: IntArray
    ties: IntArray


@kernel
def settle(y: Yard) -> None:
    """Link what `at` says, from empty lists, full capacities and whole limits."""
    for p in range(y.at.shape[0]):
        c, n = y.pod_class[p], y.at[p]
        if n >= 0:
            y.after[p] = y.head[n]
            y.before[p] = -1
            if y.head[n] >= 0:
                y.before[y.head[n]] = p
            y.head[n] = p
            for r in range(y.free.shape[1]):
                y.free[n, r] -= y.demands[c, r]
                y.largest[n, r] = max(y.largest[n, r], y.headroom[c, r])
            if y.ties[y.ties[TIED] + c]:
                tally(y.ties, c, n, 1, n != y.home[p])
        if y.home[p] >= 0 and n != y.home[p]:
            for k in range(y.limit_starts[c], y.limit_starts[c + 1]):
                y.left[y.limits[k]] -= 1
            if n < 0:
                y.dropped[p] = True
                y.lost[y.home[p]] += 1
        if n >= 0 and n != y.home[p]:
            y.guests[n] += 1
            y.timid[n] += not y.preempt[c]


@lean
def unlink(y: Yard, p: int) -> None:
    """Take a pod off its node."""
    c, n = y.pod_class[p], y.at[p]
    if y.before[p] >= 0:
        y.after[y.before[p]] = y.after[p]
    else:
        y.head[n] = y.after[p]
    if y.after[p] >= 0:
        y.before[y.after[p]] = y.before[p]
    for r in range(y.free.shape[1]):
        y.free[n, r] += y.demands[c, r]
        if y.headroom[c, r] > 0 and y.headroom[c, r] == y.largest[n, r]:
            wide = 0
            other = y.head[n]
            while other >= 0:
                wide = max(wide, y.headroom[y.pod_class[other], r])
                other = y.after[other]
            y.largest[n, r] = wide
    if n == y.home[p]:
        for k in range(y.limit_starts[c], y.limit_starts[c + 1]):
            y.left[y.limits[k]] -= 1
    else:
        y.guests[n] -= 1
        y.timid[n] -= not y.preempt[c]
    if y.ties[y.ties[TIED] + c]:
        tally(y.ties, c, n, -1, n != y.home[p])
    y.at[p] = -1


@lean
def link(y: Yard, p: int, n: int) -> None:
    """Put a pod that is nowhere on a node."""
    c = y.pod_class[p]
    y.before[p] = -1
    y.after[p] = y.head[n]
    if y.head[n] >= 0:
        y.before[y.head[n]] = p
    y.head[n] = p
    for r in range(y.free.shape[1]):
        y.free[n, r] -= y.demands[c, r]
        y.largest[n, r] = max(y.largest[n, r], y.headroom[c, r])
    if n == y.home[p]:
        for k in range(y.limit_starts[c], y.limit_starts[c + 1]):
            y.left[y.limits[k]] += 1
    else:
        y.guests[n] += 1
        y.timid[n] += not y.preempt[c]
    if y.ties[y.ties[TIED] + c]:
        tally(y.ties, c, n, 1, n != y.home[p])
    y.at[p] = n


@lean
def drop(y: Yard, p: int, dropped: bool) -> None:
    """Note whether a pod counts as preempted."""
    if y.dropped[p] != dropped:
        y.dropped[p] = dropped
        y.lost[y.home[p]] += 1 if dropped else -1


@lean
def move(y: Yard, p: int, to: int) -> None:
    """Bring a pod to a node, or out (-1), and log it."""
    k = y.logged[0]
    y.log[k, 0], y.log[k, 1], y.log[k, 2] = p, y.at[p], 1 if y.dropped[p] else 0
    y.logged[0] = k + 1
    if y.at[p] >= 0:
        unlink(y, p)
    if to >= 0:
        link(y, p, to)
        if y.dropped[p]:
            drop(y, p, False)


@lean
def undo(y: Yard, down_to: int) -> None:
    """Take back all changes but the first so many."""
    while y.logged[0] > down_to:
        y.logged[0] -= 1
        k = y.logged[0]
        p = y.log[k, 0]
        if y.at[p] >= 0:
            unlink(y, p)
        if y.log[k, 1] >= 0:
            link(y, p, y.log[k, 1])
        if y.home[p] >= 0:
            drop(y, p, y.log[k, 2] == 1)


@lean
def fits(y: Yard, c: int, n: int) -> bool:
    """Whether one more pod of a class has room on a node."""
    for r in range(y.free.shape[1]):
        d, h = y.demands[c, r], y.headroom[c, r]
        if (d > 0 or h > 0) and d + max(h, y.largest[n, r]) > y.free[n, r]:
            return False
    return True


@lean
def allowed(y: Yard, p: int, n: int) -> bool:
    """Whether every rule but room lets a pod arrive on a node, or come back to it."""
    c = y.pod_class[p]
    if y.ties[y.ties[TIED] + c] and (
        y.ties[y.ties[CLOSED] + c] or not _is_tolerated(y, c, n) or not may_come(y.ties, c, n, n == y.home[p])
    ):
        return False
    if n == y.home[p]:
        return True
    if not y.admits[y.sites[c], n] or (y.lost[n] > 0 and not y.preempt[c]):
        return False
    if y.most[c] < UNLIMITED:
        there, other = 0, y.head[n]
        while other >= 0:
            there += y.pod_class[other] == c
            other = y.after[other]
        if there >= y.most[c]:
            return False
    return True


@lean
def _is_tolerated(y: Yard, c: int, n: int) -> bool:
    """Whether nothing on a node keeps a class away from that node alone."""
    t = y.ties
    if t[t[SHUNNED_STARTS] + c] < t[t[SHUNNED_STARTS] + c + 1]:
        other = y.head[n]
        while other >= 0:
            for i in range(t[t[SHUNNED_STARTS] + c], t[t[SHUNNED_STARTS] + c + 1]):
                if t[t[SHUNNED] + i] == y.pod_class[other]:
                    return False
            other = y.after[other]
    return True


@lean
def may_leave(y: Yard, p: int) -> bool:
    """Whether a pod may be ejected: what is not at home goes freely, the others within their limits."""
    if y.pinned[p]:
        return False
    c = y.pod_class[p]
    if not y.loose[c]:
        return False
    if y.at[p] == y.home[p]:
        if y.rooted[0]:
            return False
        for k in range(y.limit_starts[c], y.limit_starts[c + 1]):
            if y.left[y.limits[k]] <= 0:
                return False
    return not y.ties[y.ties[TIED] + c] or may_go(y.ties, c, y.at[p])


@lean
def waste(y: Yard, c: int, n: int) -> float:
    """How much a node keeps once a pod of the class is there, weighed by what is short."""
    total = 0.0
    for r in range(y.free.shape[1]):
        total += (y.free[n, r] - y.demands[c, r] - max(y.largest[n, r], y.headroom[c, r])) * y.shares[r]
    return total


@lean
def best_node(y: Yard, p: int, ban: int) -> int:
    """The node that a pod fills best, except one; -1 where it fits nowhere."""
    c = y.pod_class[p]
    best, least = -1, np.inf
    y.spent[0] += y.free.shape[0]
    for n in range(y.free.shape[0]):
        if n != ban and fits(y, c, n) and allowed(y, p, n):
            left = waste(y, c, n)
            if n == y.home[p]:
                left -= 1e6
            if left < least:
                best, least = n, left
    return best


@lean
def draw_sky(y: Yard) -> None:
    """Set the skyline anew."""
    top = y.sky.shape[1] - 1
    first, second = y.scarce[0], y.scarce[1]
    for s in range(y.sky.shape[0]):
        for b in range(top + 1):
            y.sky[s, b] = -1
    y.spent[0] += y.free.shape[0] * y.line.shape[0]
    for n in range(y.free.shape[0]):
        b = (y.free[n, first] - y.largest[n, first]) // y.unit[0]
        if b < 0:
            continue
        b = min(b, top)
        rest = y.free[n, second] - y.largest[n, second]
        for site in range(y.line.shape[0]):
            if y.admits[site, n]:
                y.sky[y.line[site], b] = max(y.sky[y.line[site], b], rest)
    for s in range(y.sky.shape[0]):
        for b in range(top - 1, -1, -1):
            y.sky[s, b] = max(y.sky[s, b], y.sky[s, b + 1])


@lean
def may_fit(y: Yard, c: int) -> bool:
    """Whether the skyline leaves it open that some node has room for a pod of the class; False is certain."""
    b = min(y.demands[c, y.scarce[0]] // y.unit[0], y.sky.shape[1] - 1)
    return bool(y.sky[y.line[y.sites[c]], b] >= y.demands[c, y.scarce[1]])
