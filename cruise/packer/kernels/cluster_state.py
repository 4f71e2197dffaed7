"""A whole cluster that kernels change pod by pod: pods in linked lists, so that memory grows with pods alone."""

from typing import NamedTuple

import numpy as np

from cruise.packer.kernels.compilation import compile_kernel, compile_without_allocation
from cruise.packer.kernels.rule_counts import (
    CLOSED,
    SHUNNED,
    SHUNNED_STARTS,
    TIED,
    may_arrive,
    may_depart,
    update_rule_counts,
)
from cruise.packer.problem import BoolArray, FloatArray, IntArray

# A class may be so common on a node that its number there never matters.
UNLIMITED = 1 << 30


class PackedClusterState(NamedTuple):
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
    movable: BoolArray
    preemptible: BoolArray
    preempt: BoolArray
    maximum: IntArray
    sites: IntArray
    admits: BoolArray
    limit_starts: IntArray
    limits: IntArray
    remaining_evictions: IntArray
    remaining_evictions_on_node: IntArray
    pod_class: IntArray
    home_node: IntArray
    node: IntArray
    first_pod: IntArray
    next_pod: IntArray
    previous_pod: IntArray
    free: IntArray
    largest: IntArray
    preempted_count: IntArray
    never_preempts: IntArray
    foreign_pods: IntArray
    dropped: BoolArray
    protected_nodes: BoolArray
    rooted: BoolArray
    span: IntArray
    shares: FloatArray
    scarcity: IntArray
    unit: IntArray
    line: IntArray
    skyline: IntArray
    log: IntArray
    logged: IntArray
    spent: IntArray
    tables: IntArray


@compile_kernel
def link_pods(s: PackedClusterState) -> None:
    """Link what `at` says, from empty lists, full capacities and whole limits."""
    for p in range(s.node.shape[0]):
        c, n = s.pod_class[p], s.node[p]
        if n >= 0:
            s.next_pod[p] = s.first_pod[n]
            s.previous_pod[p] = -1
            if s.first_pod[n] >= 0:
                s.previous_pod[s.first_pod[n]] = p
            s.first_pod[n] = p
            for r in range(s.free.shape[1]):
                s.free[n, r] -= s.demands[c, r]
                s.largest[n, r] = max(s.largest[n, r], s.headroom[c, r])
            if s.tables[s.tables[TIED] + c]:
                update_rule_counts(s.tables, c, n, 1, n != s.home_node[p])
        if s.home_node[p] >= 0 and n != s.home_node[p]:
            for k in range(s.limit_starts[c], s.limit_starts[c + 1]):
                s.remaining_evictions[s.limits[k]] -= 1
            s.remaining_evictions_on_node[s.home_node[p]] -= 1
            if n < 0:
                s.dropped[p] = True
                s.preempted_count[s.home_node[p]] += 1
        if n >= 0 and n != s.home_node[p]:
            s.foreign_pods[n] += 1
            s.never_preempts[n] += not s.preempt[c]


@compile_without_allocation
def remove_pod(s: PackedClusterState, p: int) -> None:
    """Take a pod off its node."""
    c, n = s.pod_class[p], s.node[p]
    if s.previous_pod[p] >= 0:
        s.next_pod[s.previous_pod[p]] = s.next_pod[p]
    else:
        s.first_pod[n] = s.next_pod[p]
    if s.next_pod[p] >= 0:
        s.previous_pod[s.next_pod[p]] = s.previous_pod[p]
    for r in range(s.free.shape[1]):
        s.free[n, r] += s.demands[c, r]
        if s.headroom[c, r] > 0 and s.headroom[c, r] == s.largest[n, r]:
            wide = 0
            other = s.first_pod[n]
            while other >= 0:
                wide = max(wide, s.headroom[s.pod_class[other], r])
                other = s.next_pod[other]
            s.largest[n, r] = wide
    if n == s.home_node[p]:
        for k in range(s.limit_starts[c], s.limit_starts[c + 1]):
            s.remaining_evictions[s.limits[k]] -= 1
        s.remaining_evictions_on_node[n] -= 1
    else:
        s.foreign_pods[n] -= 1
        s.never_preempts[n] -= not s.preempt[c]
    if s.tables[s.tables[TIED] + c]:
        update_rule_counts(s.tables, c, n, -1, n != s.home_node[p])
    s.node[p] = -1


@compile_without_allocation
def add_pod(s: PackedClusterState, p: int, n: int) -> None:
    """Put a pod that is nowhere on a node."""
    c = s.pod_class[p]
    s.previous_pod[p] = -1
    s.next_pod[p] = s.first_pod[n]
    if s.first_pod[n] >= 0:
        s.previous_pod[s.first_pod[n]] = p
    s.first_pod[n] = p
    for r in range(s.free.shape[1]):
        s.free[n, r] -= s.demands[c, r]
        s.largest[n, r] = max(s.largest[n, r], s.headroom[c, r])
    if n == s.home_node[p]:
        for k in range(s.limit_starts[c], s.limit_starts[c + 1]):
            s.remaining_evictions[s.limits[k]] += 1
        s.remaining_evictions_on_node[n] += 1
    else:
        s.foreign_pods[n] += 1
        s.never_preempts[n] += not s.preempt[c]
    if s.tables[s.tables[TIED] + c]:
        update_rule_counts(s.tables, c, n, 1, n != s.home_node[p])
    s.node[p] = n


@compile_without_allocation
def mark_preempted(s: PackedClusterState, p: int, dropped: bool) -> None:
    """Note whether a pod counts as preempted."""
    if s.dropped[p] != dropped:
        s.dropped[p] = dropped
        s.preempted_count[s.home_node[p]] += 1 if dropped else -1


@compile_without_allocation
def move_pod(s: PackedClusterState, p: int, to: int) -> None:
    """Bring a pod to a node, or out (-1), and log it."""
    k = s.logged[0]
    s.log[k, 0], s.log[k, 1], s.log[k, 2] = p, s.node[p], 1 if s.dropped[p] else 0
    s.logged[0] = k + 1
    if s.node[p] >= 0:
        remove_pod(s, p)
    if to >= 0:
        add_pod(s, p, to)
        if s.dropped[p]:
            mark_preempted(s, p, False)


@compile_without_allocation
def undo_changes(s: PackedClusterState, down_to: int) -> None:
    """Take back all changes but the first so many."""
    while s.logged[0] > down_to:
        s.logged[0] -= 1
        k = s.logged[0]
        p = s.log[k, 0]
        if s.node[p] >= 0:
            remove_pod(s, p)
        if s.log[k, 1] >= 0:
            add_pod(s, p, s.log[k, 1])
        if s.home_node[p] >= 0:
            mark_preempted(s, p, s.log[k, 2] == 1)


@compile_without_allocation
def has_capacity(s: PackedClusterState, c: int, n: int) -> bool:
    """Whether one more pod of a class has room on a node."""
    for r in range(s.free.shape[1]):
        d, h = s.demands[c, r], s.headroom[c, r]
        if (d > 0 or h > 0) and d + max(h, s.largest[n, r]) > s.free[n, r]:
            return False
    return True


@compile_without_allocation
def is_allowed(s: PackedClusterState, p: int, n: int) -> bool:
    """Whether every rule but room lets a pod arrive on a node, or come back to it."""
    c = s.pod_class[p]
    if s.tables[s.tables[TIED] + c] and (
        s.tables[s.tables[CLOSED] + c]
        or not _is_tolerated(s, c, n)
        or not may_arrive(s.tables, c, n, n == s.home_node[p])
    ):
        return False
    at_home = n == s.home_node[p]
    if not at_home and (not s.admits[s.sites[c], n] or (s.preempted_count[n] > 0 and not s.preempt[c])):
        return False
    if s.maximum[c] < UNLIMITED:
        there, arrived, other = 0, 0, s.first_pod[n]
        while other >= 0:
            if s.pod_class[other] == c:
                there += 1
                arrived += s.home_node[other] != n
            other = s.next_pod[other]
        # What ran together before may run together again; a copy that arrived meanwhile has taken a place.
        if there >= s.maximum[c] and (not at_home or arrived > 0):
            return False
    return True


@compile_without_allocation
def _is_tolerated(s: PackedClusterState, c: int, n: int) -> bool:
    """Whether nothing on a node keeps a class away from that node alone."""
    t = s.tables
    if t[t[SHUNNED_STARTS] + c] < t[t[SHUNNED_STARTS] + c + 1]:
        other = s.first_pod[n]
        while other >= 0:
            for i in range(t[t[SHUNNED_STARTS] + c], t[t[SHUNNED_STARTS] + c + 1]):
                if t[t[SHUNNED] + i] == s.pod_class[other]:
                    return False
            other = s.next_pod[other]
    return True


@compile_without_allocation
def may_be_ejected(s: PackedClusterState, p: int) -> bool:
    """Whether a pod may be ejected: what is not at home goes freely, the others within their limits."""
    if s.protected_nodes[p]:
        return False
    c = s.pod_class[p]
    if not s.movable[c]:
        return False
    if s.node[p] == s.home_node[p]:
        if s.rooted[0] or s.remaining_evictions_on_node[s.home_node[p]] <= 0:
            return False
        for k in range(s.limit_starts[c], s.limit_starts[c + 1]):
            if s.remaining_evictions[s.limits[k]] <= 0:
                return False
    return not s.tables[s.tables[TIED] + c] or may_depart(s.tables, c, s.node[p])


@compile_without_allocation
def compute_waste(s: PackedClusterState, c: int, n: int) -> float:
    """How much a node keeps once a pod of the class is there, weighed by what is short."""
    total = 0.0
    for r in range(s.free.shape[1]):
        total += (s.free[n, r] - s.demands[c, r] - max(s.largest[n, r], s.headroom[c, r])) * s.shares[r]
    return total


@compile_without_allocation
def compute_shortage(s: PackedClusterState, c: int, n: int, gone: int) -> float:
    """How much a node is short of for a class, weighed, once a pod of the class `gone` (-1: none) has left."""
    total = 0.0
    for r in range(s.free.shape[1]):
        d, h = s.demands[c, r], s.headroom[c, r]
        if d > 0 or h > 0:
            freed = s.demands[gone, r] if gone >= 0 else 0
            total += max(0, d + max(h, s.largest[n, r]) - s.free[n, r] - freed) * s.shares[r]
    return total


@compile_without_allocation
def find_best_node(s: PackedClusterState, p: int, ban: int) -> int:
    """Home if it fits there, else the node of the span that a pod fills best; never `ban`, -1 where there is none."""
    c, home = s.pod_class[p], s.home_node[p]
    s.spent[0] += 1
    if home >= 0 and home != ban and has_capacity(s, c, home) and is_allowed(s, p, home):
        return int(home)
    best, least = -1, np.inf
    s.spent[0] += s.free.shape[0] // s.span[1]
    for n in range(s.span[0], s.free.shape[0], s.span[1]):
        if n != ban and has_capacity(s, c, n) and is_allowed(s, p, n):
            left = compute_waste(s, c, n)
            if left < least:
                best, least = n, left
    return best


@compile_without_allocation
def update_skyline(s: PackedClusterState) -> None:
    """Set the skyline of the span anew."""
    top = s.skyline.shape[1] - 1
    first, second = s.scarcity[0], s.scarcity[1]
    for row in range(s.skyline.shape[0]):
        for b in range(top + 1):
            s.skyline[row, b] = -1
    s.spent[0] += s.free.shape[0] // s.span[1] * s.line.shape[0]
    for n in range(s.span[0], s.free.shape[0], s.span[1]):
        b = (s.free[n, first] - s.largest[n, first]) // s.unit[0]
        if b < 0:
            continue
        b = min(b, top)
        rest = s.free[n, second] - s.largest[n, second]
        for site in range(s.line.shape[0]):
            if s.admits[site, n]:
                s.skyline[s.line[site], b] = max(s.skyline[s.line[site], b], rest)
    for row in range(s.skyline.shape[0]):
        for b in range(top - 1, -1, -1):
            s.skyline[row, b] = max(s.skyline[row, b], s.skyline[row, b + 1])


@compile_without_allocation
def may_have_capacity(s: PackedClusterState, c: int) -> bool:
    """Whether the skyline leaves it open that a node of the span has room for a pod of the class; False is certain."""
    b = min(s.demands[c, s.scarcity[0]] // s.unit[0], s.skyline.shape[1] - 1)
    return bool(s.skyline[s.line[s.sites[c]], b] >= s.demands[c, s.scarcity[1]])


# Taking pods off their nodes for good.


@compile_kernel
def remove_pods(s: PackedClusterState, pods: IntArray) -> bool:
    """Take pods off their nodes, never to return; where one may not leave, the state is left half changed."""
    for i in range(pods.shape[0]):
        if not may_be_ejected(s, pods[i]):
            return False
        remove_pod(s, pods[i])
        # Without a home its eviction stays counted.
        s.home_node[pods[i]] = -1
    return True
