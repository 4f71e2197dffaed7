"""Computes the largest gain of each node at prices of classes: copies leave for a price, and others arrive for one."""

import math
from typing import NamedTuple

from cruise.packer.kernels.compilation import compile_inline, compile_without_allocation, read_monotonic_seconds
from cruise.packer.kernels.knapsack import solve_knapsack
from cruise.packer.kernels.knapsack_items import (
    KnapsackItems,
    add_item,
    balance_resource_mix,
    compute_item_loads,
    count_fitting_alone,
    drop_worthless_items,
    precompute_item_sums,
    sort_items,
)
from cruise.packer.kernels.price_agreement import NodeChanges, choose_change_slot, compute_gain, find_best_change
from cruise.packer.problem import BoolArray, FloatArray, IntArray

_FAR = 1e300
# Prices and costs are whole numbers, so a smaller difference is none, and rounding errors are far smaller.
_HALF = 0.5
# So many checks of a class, or a tenth as many sorted items, take as long as one step of a search.
_LOOKS = 4
# Steps of a node's search at first, and the factor by which they grow.
_FIRST_STEPS, _LONGER = 64, 8


class RunningPods(NamedTuple):
    """The movable pods on each node, and what each class may do.

    On a node run `copies[k]` of class `pod_class[k]`, for each k from `first[node]` to below `first[node + 1]`.
    `admits[site[class], node]` tells where a class may arrive, `total[class]` how many copies exist, `maximum[class]`
    how many a node holds. `free[node, resource]` is what is left next to the running pods without headroom,
    `free_if_all_stay` what is left while none leaves, and `floor` the headroom of immovable pods. `scratch[class]` is
    zero between nodes. `rate[node, resource]` is the value of capacity in a node's last search. Evictions of a class
    count against the limits `limits[k]`, for each k from `limit_first[class]` to below `limit_first[class + 1]`,
    numbered after the classes.
    """

    first: IntArray
    pod_class: IntArray
    copies: IntArray
    site: IntArray
    admits: BoolArray
    total: IntArray
    maximum: IntArray
    free: IntArray
    free_if_all_stay: IntArray
    floor: IntArray
    scratch: IntArray
    rate: FloatArray
    limit_first: IntArray
    limits: IntArray


@compile_inline
def _count_arriving(s: KnapsackItems, p: RunningPods, g: int, c: int) -> int:
    """Return how many copies of a class may arrive on an otherwise empty node."""
    most = min(p.maximum[c], p.total[c] - p.scratch[c])
    if most <= 0 or not p.admits[p.site[c], g]:
        return 0
    return count_fitting_alone(s, g, c, most)


@compile_inline
def _fits_next_to_running(s: KnapsackItems, p: RunningPods, g: int, c: int) -> bool:
    """Return whether a node can hold one more copy of a class as it is."""
    for r in range(s.demands.shape[1]):
        if s.demands[c, r] > p.free_if_all_stay[g, r]:
            return False
    return True


@compile_inline
def _compute_value(s: KnapsackItems, rate: FloatArray, c: int) -> float:
    worth = 0.0
    for r in range(len(rate)):
        worth += rate[r] * s.demands[c, r]
    return worth


@compile_inline
def _estimate(
    s: KnapsackItems,
    p: RunningPods,
    g: int,
    price: FloatArray,
    cost: FloatArray,
    rate: FloatArray,
    above: IntArray,
    known: tuple[float, float],
) -> tuple[float, float]:
    """Return the largest gain of a node if capacity has a rate: in any way, and in ways in which a pod leaves.

    `above` holds the classes whose price exceeds the value of their capacity at that rate, and maybe others. It may
    stop early at `known`.
    """
    leavers, nearest = 0.0, -_FAR
    for k in range(p.first[g], p.first[g + 1]):
        c = p.pod_class[k]
        gain = _compute_value(s, rate, c) - price[c] - cost[c]
        nearest = max(nearest, gain)
        if gain > 0.0:
            leavers += p.copies[k] * gain
    top = leavers
    for r in range(len(rate)):
        top += rate[r] * p.free[g, r]
    first = nearest if leavers <= 0.0 else 0.0
    looked = p.first[g + 1] - p.first[g]
    for c in above:
        if c < 0 or (top >= known[0] and top + first >= known[1]):
            break
        looked += 1
        more = price[c] - _compute_value(s, rate, c)
        if more > 0.0:
            top += _count_arriving(s, p, g, c) * more
    s.nodes[0] += looked // _LOOKS
    return top, top + first


@compile_inline
def _collect_items(
    s: KnapsackItems,
    p: RunningPods,
    g: int,
    priced: IntArray,
    price: FloatArray,
    cost: FloatArray,
    rate: FloatArray,
    most_gain: float,
    sure: float,
    kept: BoolArray,
) -> tuple[int, float]:
    """Collect what may change on a node in a way that gains more than `sure`, and reserve capacity for what stays.

    Returns the number of items, and the value of the running pods among them.
    """
    count, known = 0, 0.0
    for k in range(p.first[g], p.first[g + 1]):
        c = p.pod_class[k]
        value = price[c] + cost[c]
        if kept[k - p.first[g]]:
            _reserve_running(s, p, g, k)
        elif value > 0.0:
            known += p.copies[k] * value
            count = add_item(s, count, c, p.copies[k], 0, value)
    for c in priced:
        if most_gain + min(price[c] - _compute_value(s, rate, c), 0.0) > sure + _HALF:
            most = _count_arriving(s, p, g, c)
            if most > 0:
                count = add_item(s, count, c, most, 0, price[c])
    return count, known


@compile_inline
def _reserve_running(s: KnapsackItems, p: RunningPods, g: int, k: int) -> None:
    """Reserve capacity for running pods."""
    for r in range(s.demands.shape[1]):
        s.free_capacity[g, r] -= p.copies[k] * s.demands[p.pod_class[k], r]
        if s.headroom.shape[0] > 0:
            s.floor[g, r] = max(s.floor[g, r], s.headroom[p.pod_class[k], r])


@compile_inline
def _return_running(s: KnapsackItems, p: RunningPods, g: int, kept: BoolArray) -> None:
    for k in range(p.first[g], p.first[g + 1]):
        if kept[k - p.first[g]]:
            for r in range(s.demands.shape[1]):
                s.free_capacity[g, r] += p.copies[k] * s.demands[p.pod_class[k], r]
    for r in range(s.demands.shape[1]):
        s.floor[g, r] = p.floor[g, r]


@compile_inline
def _append_part(changes: NodeChanges, g: int, slot: int, length: int, one: int, more: int) -> int:
    """Write one part of a change if there is space; return the new length."""
    if length < changes.pod_class.shape[2]:
        changes.pod_class[g, slot, length], changes.added_copies[g, slot, length] = one, more
    return length + 1


@compile_inline
def _store_change(
    s: KnapsackItems,
    p: RunningPods,
    changes: NodeChanges,
    g: int,
    count: int,
    kept: BoolArray,
    price: FloatArray,
    cost: FloatArray,
) -> int:
    """Store the change of a node's best pattern; return its number, 0 if it is too long."""
    slot = choose_change_slot(changes, g, price)
    length, costs = 0, 0.0
    for k in range(p.first[g], p.first[g + 1]):
        c = p.pod_class[k]
        if kept[k - p.first[g]]:
            continue
        more = s.found[0, c] - p.copies[k]
        if more < 0:
            costs -= more * cost[c]
            for i in range(p.limit_first[c], p.limit_first[c + 1]):
                length = _append_part(changes, g, slot, length, p.limits[i], more)
        if more != 0:
            length = _append_part(changes, g, slot, length, c, more)
        # Other arriving copies are counted already.
        s.found[0, c] = 0
    for i in range(count):
        c = s.item_class[i]
        if s.found[0, c] > 0:
            length = _append_part(changes, g, slot, length, c, s.found[0, c])
            s.found[0, c] = 0
    changes.cost[g, slot], changes.length[g, slot] = costs, length
    if length > changes.pod_class.shape[2]:
        changes.cost[g, slot], changes.length[g, slot] = 0.0, 0
        return 0
    return slot


@compile_inline
def _choose_rate(
    s: KnapsackItems,
    p: RunningPods,
    g: int,
    priced: IntArray,
    price: FloatArray,
    cost: FloatArray,
    rates: FloatArray,
    above: IntArray,
) -> tuple[int, float, float]:
    """Return the rate at which a node gains least, that gain, and the largest gain at all rates.

    The rate of its last search is number -1.
    """
    beside, looked = False, 0
    for c in priced:
        looked += 1
        if _fits_next_to_running(s, p, g, c):
            beside = True
            break
    s.nodes[0] += looked // _LOOKS
    best, searched = -1, False
    for r in range(s.demands.shape[1]):
        searched = searched or p.rate[g, r] > 0.0
    most_gain, most_leaving = _estimate(s, p, g, price, cost, p.rate[g], priced, (_FAR, _FAR))
    for k in range(len(rates)):
        if searched or (most_leaving <= _HALF and not beside):
            break
        any_way, leaving = _estimate(s, p, g, price, cost, rates[k], above[k], (most_gain, most_leaving))
        most_leaving = min(most_leaving, leaving)
        if any_way < most_gain:
            best, most_gain = k, any_way
    # If nothing fits next to the running pods, nothing gains unless a pod leaves.
    return best, most_gain, most_gain if beside else min(most_gain, max(most_leaving, 0.0))


@compile_inline
def _mark_kept(
    s: KnapsackItems,
    p: RunningPods,
    g: int,
    price: FloatArray,
    cost: FloatArray,
    rate: FloatArray,
    most_gain: float,
    sure: float,
    kept: BoolArray,
) -> None:
    """Mark the running pods that leave in no way that gains more than `sure`."""
    for k in range(p.first[g], p.first[g + 1]):
        c = p.pod_class[k]
        kept[k - p.first[g]] = most_gain + min(_compute_value(s, rate, c) - price[c] - cost[c], 0.0) <= sure + _HALF


@compile_inline
def _solve_in_stages(
    s: KnapsackItems, g: int, count: int, known: float, rates: tuple[float, float, float], most_nodes: int
) -> tuple[float, bool]:
    """Return an upper bound of the value of patterns beyond `known`, and whether one exceeds what is sure.

    The earlier a valuable pattern is found, the fewer items are left to search.
    """
    worth, top, sure = rates
    least, steps, better = known + sure, _FIRST_STEPS, False
    while True:
        count = drop_worthless_items(s, count, worth, top - least - _HALF)
        precompute_item_sums(s, count)
        best, bound, found = solve_knapsack(s, g, count, least, 0, 1, min(steps, most_nodes))
        better = better or found > 0
        if bound <= best + _HALF or steps >= most_nodes:
            return bound, better
        least, steps = best, _LONGER * steps


@compile_inline
def _search(
    s: KnapsackItems,
    p: RunningPods,
    changes: NodeChanges,
    g: int,
    priced: IntArray,
    price: FloatArray,
    cost: FloatArray,
    leaving: FloatArray,
    rate: FloatArray,
    gains: tuple[float, float, float],
    kept: BoolArray,
    most_nodes: int,
) -> tuple[float, int]:
    """Return the largest gain of a node, and its change if that is not the best known one."""
    most_gain, most, sure = gains
    _mark_kept(s, p, g, price, leaving, rate, most_gain, sure, kept)
    count, known = _collect_items(s, p, g, priced, price, leaving, rate, most_gain, sure, kept)
    s.nodes[0] += 10 * count // _LOOKS
    guess, change = 0.0, -1
    for r in range(s.demands.shape[1]):
        guess += p.rate[g, r] * s.free_capacity[g, r]
    top, worth = balance_resource_mix(s, g, count, guess)
    for r in range(s.demands.shape[1]):
        p.rate[g, r] = worth * s.mix[g, r] / max(s.free_capacity[g, r], 1)
    gain = max(math.floor(min(top - known, most) + _HALF), sure)
    if gain > sure:
        compute_item_loads(s, g, count, s.mix[g])
        some = drop_worthless_items(s, count, worth, top - known - sure - _HALF)
        sort_items(s, g, some, s.mix[g])
        bound, better = _solve_in_stages(s, g, some, known, (worth, top, sure), most_nodes)
        gain = math.floor(min(bound - known, gain) + _HALF)
        if better:
            change = _store_change(s, p, changes, g, count, kept, price, cost)
    _return_running(s, p, g, kept)
    return gain, change


@compile_without_allocation
def price_nodes(
    s: KnapsackItems,
    p: RunningPods,
    changes: NodeChanges,
    priced: IntArray,
    price: FloatArray,
    cost: FloatArray,
    leaving: FloatArray,
    rates: FloatArray,
    above: IntArray,
    kept: BoolArray,
    net: IntArray,
    gains: FloatArray,
    surplus: FloatArray,
    begin: int,
    count: int,
    most_nodes: int,
    deadline: float,
) -> bool:
    """Compute the largest gain of some nodes: the prices of arriving copies, minus prices and costs of leaving ones.

    Prices and costs are whole numbers, and so are `gains[node]`, which are upper bounds if a search reached its limit.
    `leaving[class]` is the cost of leaving with the prices of its limits. `net[class]` is increased by what arrived
    minus what left, and for a limit decreased by what left; `priced` are the classes that may arrive. `changes` are
    known at the same costs; new ones are added. `rates[rate, resource]` are tried to show that a node gains nothing,
    with the classes `above[rate]` them, a list that ends at -1. `kept` is scratch. `surplus` is increased by how much
    more nodes gain than by known changes, and by how much of that has no change yet. The nodes are `count` from `begin`
    on, cyclically; False at the deadline.
    """
    nodes = len(gains)
    for looked in range(count):
        if looked % 16 == 0 and read_monotonic_seconds() > deadline:
            return False
        g = (begin + looked) % nodes
        for k in range(p.first[g], p.first[g + 1]):
            p.scratch[p.pod_class[k]] = p.copies[k]
        change, sure = find_best_change(changes, g, price)
        best, most_gain, most = _choose_rate(s, p, g, priced, price, leaving, rates, above)
        gains[g] = max(math.floor(most + _HALF), sure)
        if gains[g] > sure:
            rate = p.rate[g] if best < 0 else rates[best]
            known = (most_gain, most, sure)
            gains[g], found = _search(s, p, changes, g, priced, price, cost, leaving, rate, known, kept, most_nodes)
            change = found if found >= 0 else change
            surplus[0] += gains[g] - sure
            surplus[1] += gains[g] - compute_gain(changes, g, change, price)
        for i in range(changes.length[g, change]):
            net[changes.pod_class[g, change, i]] += changes.added_copies[g, change, i]
        for k in range(p.first[g], p.first[g + 1]):
            p.scratch[p.pod_class[k]] = 0
    return True
