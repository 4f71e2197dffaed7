"""Represents a whole cluster that kernels change pod by pod, with pods in linked lists."""

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

# The maximum of a class that no node can exceed.
UNLIMITED = 1 << 30


class ClusterStateArrays(NamedTuple):
    """Pods on nodes, what they need, and what may be done with them.

    `free[node, resource]` is the capacity without the sum of demands, `largest` the largest headroom there.
    `first_pod[node]`, `next_pod[pod]` and `previous_pod[pod]` link the pods of a node; `node[pod]` is where a pod is,
    `home_node[pod]` where it ran. `ranks[class]` counts priorities from the highest, 0. `remaining_evictions[limit]`
    and `remaining_evictions_on_node[node]` are what limits leave; `limits[limit_starts[c]:limit_starts[c + 1]]` are the
    limits of a class. `preempted_count[node]` counts the pods preempted there (`dropped[pod]`), `foreign_pods[node]`
    the pods that arrived there, `never_preempts[node]` those of them that do not preempt. `shares[resource]` weights
    scarce resources more.

    `skyline[line[mask], bucket]` is the most of the second scarce resource on a node with that many `unit` of the
    first; `scarcity` are the two. Pods in `protected_nodes` must not be ejected; with `rooted[0]`, no pod that is on
    its home node. Placements are searched on the home node and on each `span[1]`-th node from `span[0]` on. `log[k]` is
    (pod, node before, dropped before) of the first `logged[0]` changes since the last decision. `spent[0]` counts
    steps, `tables` have the rules.
    """

    demands: IntArray
    headroom: IntArray
    ranks: IntArray
    movable: BoolArray
    preemptible: BoolArray
    preempt: BoolArray
    maximum: IntArray
    mask_of_class: IntArray
    allowed_nodes: BoolArray
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
def link_pods(s: ClusterStateArrays) -> None:
    """Link the pods to their nodes, from empty lists, full capacities and whole limits."""
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
def remove_pod(s: ClusterStateArrays, p: int) -> None:
    """Remove a pod from its node."""
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
def add_pod(s: ClusterStateArrays, p: int, n: int) -> None:
    """Place a pod that is on no node."""
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
def mark_preempted(s: ClusterStateArrays, p: int, dropped: bool) -> None:
    """Record whether a pod counts as preempted."""
    if s.dropped[p] != dropped:
        s.dropped[p] = dropped
        s.preempted_count[s.home_node[p]] += 1 if dropped else -1


@compile_without_allocation
def move_pod(s: ClusterStateArrays, p: int, to: int) -> None:
    """Move a pod to a node, or off its node (-1), and log the change."""
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
def undo_changes(s: ClusterStateArrays, down_to: int) -> None:
    """Undo all changes but the first so many."""
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
def has_capacity(s: ClusterStateArrays, c: int, n: int) -> bool:
    """Return whether a node has capacity for one more pod of a class."""
    for r in range(s.free.shape[1]):
        d, h = s.demands[c, r], s.headroom[c, r]
        if (d > 0 or h > 0) and d + max(h, s.largest[n, r]) > s.free[n, r]:
            return False
    return True


@compile_without_allocation
def is_allowed(s: ClusterStateArrays, p: int, n: int) -> bool:
    """Return whether every rule except capacity allows a pod to arrive on a node, or to return to it."""
    c = s.pod_class[p]
    if s.tables[s.tables[TIED] + c] and (
        s.tables[s.tables[CLOSED] + c]
        or not _is_not_excluded(s, c, n)
        or not may_arrive(s.tables, c, n, n == s.home_node[p])
    ):
        return False
    at_home = n == s.home_node[p]
    if not at_home and (not s.allowed_nodes[s.mask_of_class[c], n] or (s.preempted_count[n] > 0 and not s.preempt[c])):
        return False
    if s.maximum[c] < UNLIMITED:
        there, arrived, other = 0, 0, s.first_pod[n]
        while other >= 0:
            if s.pod_class[other] == c:
                there += 1
                arrived += s.home_node[other] != n
            other = s.next_pod[other]
        # Pods that ran together may do so again, unless a pod of the class arrived meanwhile.
        if there >= s.maximum[c] and (not at_home or arrived > 0):
            return False
    return True


@compile_without_allocation
def _is_not_excluded(s: ClusterStateArrays, c: int, n: int) -> bool:
    """Return whether no pod on a node excludes a class from that node."""
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
def may_be_ejected(s: ClusterStateArrays, p: int) -> bool:
    """Return whether a pod may be ejected: freely from another node than its home, otherwise within limits."""
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
def compute_leftover(s: ClusterStateArrays, c: int, n: int) -> float:
    """Return how much a node has left with one more pod of the class, weighted by scarcity."""
    total = 0.0
    for r in range(s.free.shape[1]):
        total += (s.free[n, r] - s.demands[c, r] - max(s.largest[n, r], s.headroom[c, r])) * s.shares[r]
    return total


@compile_without_allocation
def compute_shortage(s: ClusterStateArrays, c: int, n: int, gone: int) -> float:
    """Return how much a node lacks for a class, weighted, once a pod of class `gone` (-1: none) has left."""
    total = 0.0
    for r in range(s.free.shape[1]):
        d, h = s.demands[c, r], s.headroom[c, r]
        if d > 0 or h > 0:
            freed = s.demands[gone, r] if gone >= 0 else 0
            total += max(0, d + max(h, s.largest[n, r]) - s.free[n, r] - freed) * s.shares[r]
    return total


@compile_without_allocation
def find_best_node(s: ClusterStateArrays, p: int, ban: int) -> int:
    """Return the home node if a pod fits there, else the node of the span that it fills best; -1 for none."""
    c, home = s.pod_class[p], s.home_node[p]
    s.spent[0] += 1
    if home >= 0 and home != ban and has_capacity(s, c, home) and is_allowed(s, p, home):
        return int(home)
    best, least = -1, np.inf
    s.spent[0] += s.free.shape[0] // s.span[1]
    for n in range(s.span[0], s.free.shape[0], s.span[1]):
        if n != ban and has_capacity(s, c, n) and is_allowed(s, p, n):
            left = compute_leftover(s, c, n)
            if left < least:
                best, least = n, left
    return best


@compile_without_allocation
def update_skyline(s: ClusterStateArrays) -> None:
    """Recompute the skyline of the span."""
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
            if s.allowed_nodes[site, n]:
                s.skyline[s.line[site], b] = max(s.skyline[s.line[site], b], rest)
    for row in range(s.skyline.shape[0]):
        for b in range(top - 1, -1, -1):
            s.skyline[row, b] = max(s.skyline[row, b], s.skyline[row, b + 1])


@compile_without_allocation
def may_have_capacity(s: ClusterStateArrays, c: int) -> bool:
    """Return whether the skyline allows that a node of the span has capacity for the class; False is certain."""
    b = min(s.demands[c, s.scarcity[0]] // s.unit[0], s.skyline.shape[1] - 1)
    return bool(s.skyline[s.line[s.mask_of_class[c]], b] >= s.demands[c, s.scarcity[1]])


@compile_kernel
def remove_pods(s: ClusterStateArrays, pods: IntArray) -> bool:
    """Remove pods permanently; if one must not be evicted, the state is left half changed."""
    for i in range(pods.shape[0]):
        if not may_be_ejected(s, pods[i]):
            return False
        remove_pod(s, pods[i])
        # Without a home node its eviction stays counted.
        s.home_node[pods[i]] = -1
    return True
