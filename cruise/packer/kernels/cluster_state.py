"""A whole cluster that kernels change pod by pod: pods in linked lists, so that memory grows with pods alone."""

from typing import NamedTuple

import numpy as np

from cruise.packer.arrays import BoolArray, FloatArray, IntArray
from cruise.packer.kernels.compiling import kernel, lean
from cruise.packer.kernels.rule_counts import CLOSED, SHUNNED, SHUNNED_STARTS, TIED, may_come, may_go, tally

# A class may be so common on a node that its number there never matters.
UNLIMITED = 1 << 30


class ClusterState(NamedTuple):
    """Pods on nodes, what they need, and what may be done to them.

    `free[node, resource]` is the capacity without the sum of demands, `largest` the largest headroom there.
    `head[node]`, `after[pod]` and `before[pod]` link the pods of a node. `ranks[class]` counts priorities from the
    highest, 0. `loose[class]` tells whether pods may be moved, `left[limit]` how many evictions remain of a limit,
    `left_on[node]` how many of the pods that ran there; `limits[limit_starts[c]:limit_starts[c + 1]]` are those of a
    class. `lost[node]` counts what was preempted there (`dropped[pod]`), `guests[node]` the arrivals there,
    `timid[node]` those that do not preempt. `shares[resource]` weighs what is short. `sky[line[site], bucket]` is the
    most of the second scarce resource on a node with so many `unit` of the first; `scarce` are the two. `pinned` pods
    are not to be ejected; while `rooted[0]`, none is that is at home. Places are looked for at home and on each
    `span[1]`-th node from `span[0]` on. `log[k]` is (pod, node before, dropped before)
    of the first `logged[0]` changes since the last decision. `spent[0]` counts what was looked at, `tables` hold the
    rules between pods.
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
    left_on: IntArray
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
    span: IntArray
    shares: FloatArray
    scarce: IntArray
    unit: IntArray
    line: IntArray
    sky: IntArray
    log: IntArray
    logged: IntArray
    spent: IntArray
    tables: IntArray


@kernel
def settle(s: ClusterState) -> None:
    """Link what `at` says, from empty lists, full capacities and whole limits."""
    for p in range(s.at.shape[0]):
        c, n = s.pod_class[p], s.at[p]
        if n >= 0:
            s.after[p] = s.head[n]
            s.before[p] = -1
            if s.head[n] >= 0:
                s.before[s.head[n]] = p
            s.head[n] = p
            for r in range(s.free.shape[1]):
                s.free[n, r] -= s.demands[c, r]
                s.largest[n, r] = max(s.largest[n, r], s.headroom[c, r])
            if s.tables[s.tables[TIED] + c]:
                tally(s.tables, c, n, 1, n != s.home[p])
        if s.home[p] >= 0 and n != s.home[p]:
            for k in range(s.limit_starts[c], s.limit_starts[c + 1]):
                s.left[s.limits[k]] -= 1
            s.left_on[s.home[p]] -= 1
            if n < 0:
                s.dropped[p] = True
                s.lost[s.home[p]] += 1
        if n >= 0 and n != s.home[p]:
            s.guests[n] += 1
            s.timid[n] += not s.preempt[c]


@lean
def unlink(s: ClusterState, p: int) -> None:
    """Take a pod off its node."""
    c, n = s.pod_class[p], s.at[p]
    if s.before[p] >= 0:
        s.after[s.before[p]] = s.after[p]
    else:
        s.head[n] = s.after[p]
    if s.after[p] >= 0:
        s.before[s.after[p]] = s.before[p]
    for r in range(s.free.shape[1]):
        s.free[n, r] += s.demands[c, r]
        if s.headroom[c, r] > 0 and s.headroom[c, r] == s.largest[n, r]:
            wide = 0
            other = s.head[n]
            while other >= 0:
                wide = max(wide, s.headroom[s.pod_class[other], r])
                other = s.after[other]
            s.largest[n, r] = wide
    if n == s.home[p]:
        for k in range(s.limit_starts[c], s.limit_starts[c + 1]):
            s.left[s.limits[k]] -= 1
        s.left_on[n] -= 1
    else:
        s.guests[n] -= 1
        s.timid[n] -= not s.preempt[c]
    if s.tables[s.tables[TIED] + c]:
        tally(s.tables, c, n, -1, n != s.home[p])
    s.at[p] = -1


@lean
def link(s: ClusterState, p: int, n: int) -> None:
    """Put a pod that is nowhere on a node."""
    c = s.pod_class[p]
    s.before[p] = -1
    s.after[p] = s.head[n]
    if s.head[n] >= 0:
        s.before[s.head[n]] = p
    s.head[n] = p
    for r in range(s.free.shape[1]):
        s.free[n, r] -= s.demands[c, r]
        s.largest[n, r] = max(s.largest[n, r], s.headroom[c, r])
    if n == s.home[p]:
        for k in range(s.limit_starts[c], s.limit_starts[c + 1]):
            s.left[s.limits[k]] += 1
        s.left_on[n] += 1
    else:
        s.guests[n] += 1
        s.timid[n] += not s.preempt[c]
    if s.tables[s.tables[TIED] + c]:
        tally(s.tables, c, n, 1, n != s.home[p])
    s.at[p] = n


@lean
def drop(s: ClusterState, p: int, dropped: bool) -> None:
    """Note whether a pod counts as preempted."""
    if s.dropped[p] != dropped:
        s.dropped[p] = dropped
        s.lost[s.home[p]] += 1 if dropped else -1


@lean
def move(s: ClusterState, p: int, to: int) -> None:
    """Bring a pod to a node, or out (-1), and log it."""
    k = s.logged[0]
    s.log[k, 0], s.log[k, 1], s.log[k, 2] = p, s.at[p], 1 if s.dropped[p] else 0
    s.logged[0] = k + 1
    if s.at[p] >= 0:
        unlink(s, p)
    if to >= 0:
        link(s, p, to)
        if s.dropped[p]:
            drop(s, p, False)


@lean
def undo(s: ClusterState, down_to: int) -> None:
    """Take back all changes but the first so many."""
    while s.logged[0] > down_to:
        s.logged[0] -= 1
        k = s.logged[0]
        p = s.log[k, 0]
        if s.at[p] >= 0:
            unlink(s, p)
        if s.log[k, 1] >= 0:
            link(s, p, s.log[k, 1])
        if s.home[p] >= 0:
            drop(s, p, s.log[k, 2] == 1)


@lean
def fits(s: ClusterState, c: int, n: int) -> bool:
    """Whether one more pod of a class has room on a node."""
    for r in range(s.free.shape[1]):
        d, h = s.demands[c, r], s.headroom[c, r]
        if (d > 0 or h > 0) and d + max(h, s.largest[n, r]) > s.free[n, r]:
            return False
    return True


@lean
def allowed(s: ClusterState, p: int, n: int) -> bool:
    """Whether every rule but room lets a pod arrive on a node, or come back to it."""
    c = s.pod_class[p]
    if s.tables[s.tables[TIED] + c] and (
        s.tables[s.tables[CLOSED] + c] or not _is_tolerated(s, c, n) or not may_come(s.tables, c, n, n == s.home[p])
    ):
        return False
    at_home = n == s.home[p]
    if not at_home and (not s.admits[s.sites[c], n] or (s.lost[n] > 0 and not s.preempt[c])):
        return False
    if s.most[c] < UNLIMITED:
        there, arrived, other = 0, 0, s.head[n]
        while other >= 0:
            if s.pod_class[other] == c:
                there += 1
                arrived += s.home[other] != n
            other = s.after[other]
        # What ran together before may run together again; a copy that arrived meanwhile has taken a place.
        if there >= s.most[c] and (not at_home or arrived > 0):
            return False
    return True


@lean
def _is_tolerated(s: ClusterState, c: int, n: int) -> bool:
    """Whether nothing on a node keeps a class away from that node alone."""
    t = s.tables
    if t[t[SHUNNED_STARTS] + c] < t[t[SHUNNED_STARTS] + c + 1]:
        other = s.head[n]
        while other >= 0:
            for i in range(t[t[SHUNNED_STARTS] + c], t[t[SHUNNED_STARTS] + c + 1]):
                if t[t[SHUNNED] + i] == s.pod_class[other]:
                    return False
            other = s.after[other]
    return True


@lean
def may_leave(s: ClusterState, p: int) -> bool:
    """Whether a pod may be ejected: what is not at home goes freely, the others within their limits."""
    if s.pinned[p]:
        return False
    c = s.pod_class[p]
    if not s.loose[c]:
        return False
    if s.at[p] == s.home[p]:
        if s.rooted[0] or s.left_on[s.home[p]] <= 0:
            return False
        for k in range(s.limit_starts[c], s.limit_starts[c + 1]):
            if s.left[s.limits[k]] <= 0:
                return False
    return not s.tables[s.tables[TIED] + c] or may_go(s.tables, c, s.at[p])


@lean
def waste(s: ClusterState, c: int, n: int) -> float:
    """How much a node keeps once a pod of the class is there, weighed by what is short."""
    total = 0.0
    for r in range(s.free.shape[1]):
        total += (s.free[n, r] - s.demands[c, r] - max(s.largest[n, r], s.headroom[c, r])) * s.shares[r]
    return total


@lean
def lack(s: ClusterState, c: int, n: int, gone: int) -> float:
    """How much a node is short of for a class, weighed, once a pod of the class `gone` (-1: none) has left."""
    total = 0.0
    for r in range(s.free.shape[1]):
        d, h = s.demands[c, r], s.headroom[c, r]
        if d > 0 or h > 0:
            freed = s.demands[gone, r] if gone >= 0 else 0
            total += max(0, d + max(h, s.largest[n, r]) - s.free[n, r] - freed) * s.shares[r]
    return total


@lean
def best_node(s: ClusterState, p: int, ban: int) -> int:
    """Home if it fits there, else the node of the span that a pod fills best; never `ban`, -1 where there is none."""
    c, home = s.pod_class[p], s.home[p]
    s.spent[0] += 1
    if home >= 0 and home != ban and fits(s, c, home) and allowed(s, p, home):
        return int(home)
    best, least = -1, np.inf
    s.spent[0] += s.free.shape[0] // s.span[1]
    for n in range(s.span[0], s.free.shape[0], s.span[1]):
        if n != ban and fits(s, c, n) and allowed(s, p, n):
            left = waste(s, c, n)
            if left < least:
                best, least = n, left
    return best


@lean
def draw_sky(s: ClusterState) -> None:
    """Set the skyline of the span anew."""
    top = s.sky.shape[1] - 1
    first, second = s.scarce[0], s.scarce[1]
    for row in range(s.sky.shape[0]):
        for b in range(top + 1):
            s.sky[row, b] = -1
    s.spent[0] += s.free.shape[0] // s.span[1] * s.line.shape[0]
    for n in range(s.span[0], s.free.shape[0], s.span[1]):
        b = (s.free[n, first] - s.largest[n, first]) // s.unit[0]
        if b < 0:
            continue
        b = min(b, top)
        rest = s.free[n, second] - s.largest[n, second]
        for site in range(s.line.shape[0]):
            if s.admits[site, n]:
                s.sky[s.line[site], b] = max(s.sky[s.line[site], b], rest)
    for row in range(s.sky.shape[0]):
        for b in range(top - 1, -1, -1):
            s.sky[row, b] = max(s.sky[row, b], s.sky[row, b + 1])


@lean
def may_fit(s: ClusterState, c: int) -> bool:
    """Whether the skyline leaves it open that a node of the span has room for a pod of the class; False is certain."""
    b = min(s.demands[c, s.scarce[0]] // s.unit[0], s.sky.shape[1] - 1)
    return bool(s.sky[s.line[s.sites[c]], b] >= s.demands[c, s.scarce[1]])
