"""Nodes at a price for each class: what is gained where copies leave them for that price and others arrive for it."""

import math
from typing import NamedTuple

from cruise.packer.kernels.compilation import compile_inline, compile_without_allocation, read_monotonic_seconds
from cruise.packer.kernels.knapsack import solve_knapsack
from cruise.packer.kernels.knapsack_items import (
    KnapsackItems,
    balance_resource_mix,
    count_fitting_alone,
    drop_worthless_items,
    sort_items,
    sum_items,
    weigh_items,
)
from cruise.packer.kernels.price_agreement import NodeChanges, choose_slot, compute_gain, find_best_change
from cruise.packer.problem import BoolArray, FloatArray, IntArray

_FAR = 1e300
# Prices and costs are whole numbers: what is less than this more is nothing more, and rounding errs by far less.
_HALF = 0.5
# So many looks at a class, or a tenth as many items to arrange, take as long as one step of a search.
_LOOKS = 4
# A search of a node has so many steps at first, then so many times as many.
_FIRST_STEPS, _LONGER = 64, 8


class RunningPods(NamedTuple):
    """What runs on each node and may leave it, and what each class may do.

    On a node run `copies[k]` of class `of[k]`, for each k from `first[node]` to below `first[node + 1]`.
    `admits[site[class], node]` tells where a class may arrive, `total[class]` how many copies there are, `most[class]`
    how many of them one node holds. `free[node, resource]` is what the node has left beside what runs there, `beside`
    what it has as long as nothing leaves, and `floor` the headroom of what stays there in any case. `here[class]` is
    scratch, all zero between nodes. `rate[node, resource]` is what room was worth in a node's last search. What leaves
    of a class counts against the limits `limits[k]`, for each k from `limit_first[class]` to below
    `limit_first[class + 1]`, which are numbered behind the classes.
    """

    first: IntArray
    of: IntArray
    copies: IntArray
    site: IntArray
    admits: BoolArray
    total: IntArray
    maximum: IntArray
    free: IntArray
    beside: IntArray
    floor: IntArray
    here: IntArray
    rate: FloatArray
    limit_first: IntArray
    limits: IntArray


@compile_inline
def _arriving(s: KnapsackItems, p: RunningPods, g: int, c: int) -> int:
    """How many copies of a class may come to a node that has nothing else to hold."""
    most = min(p.maximum[c], p.total[c] - p.here[c])
    if most <= 0 or not p.admits[p.site[c], g]:
        return 0
    return count_fitting_alone(s, g, c, most)


@compile_inline
def _fits_beside(s: KnapsackItems, p: RunningPods, g: int, c: int) -> bool:
    """Tell whether a node holds one copy more of a class as it is now."""
    for r in range(s.demands.shape[1]):
        if s.demands[c, r] > p.beside[g, r]:
            return False
    return True


@compile_inline
def _put(s: KnapsackItems, i: int, c: int, copies: int, value: float) -> None:
    s.item_class[i], s.item_bound[i], s.item_value[i] = c, copies, value
    for r in range(s.demands.shape[1]):
        s.item_weight[i, r] = s.demands[c, r]
        if s.headroom.shape[0] > 0:
            s.item_head[i, r] = s.headroom[c, r]


@compile_inline
def _worth(s: KnapsackItems, rate: FloatArray, c: int) -> float:
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
    """What a node gains at most where room has a rate: in any way, and in ways in which something leaves.

    `above` holds the classes whose price is above what their room is worth at that rate, and maybe others. What is no
    less than is `known` may be given up.
    """
    leavers, nearest = 0.0, -_FAR
    for k in range(p.first[g], p.first[g + 1]):
        c = p.of[k]
        gain = _worth(s, rate, c) - price[c] - cost[c]
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
        more = price[c] - _worth(s, rate, c)
        if more > 0.0:
            top += _arriving(s, p, g, c) * more
    s.nodes[0] += looked // _LOOKS
    return top, top + first


@compile_inline
def _gather(
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
    """Gather what may change on a node in a way that gains more than is `sure`, and set aside room for what stays.

    Returns how many items there are, and what those that run there are worth.
    """
    count, known = 0, 0.0
    for k in range(p.first[g], p.first[g + 1]):
        c = p.of[k]
        value = price[c] + cost[c]
        if kept[k - p.first[g]]:
            _reserve(s, p, g, k)
        elif value > 0.0:
            known += p.copies[k] * value
            _put(s, count, c, p.copies[k], value)
            count += 1
    for c in priced:
        if most_gain + min(price[c] - _worth(s, rate, c), 0.0) > sure + _HALF:
            most = _arriving(s, p, g, c)
            if most > 0:
                _put(s, count, c, most, price[c])
                count += 1
    return count, known


@compile_inline
def _reserve(s: KnapsackItems, p: RunningPods, g: int, k: int) -> None:
    """Set room aside for what runs on a node."""
    for r in range(s.demands.shape[1]):
        s.free_capacity[g, r] -= p.copies[k] * s.demands[p.of[k], r]
        if s.headroom.shape[0] > 0:
            s.floor[g, r] = max(s.floor[g, r], s.headroom[p.of[k], r])


@compile_inline
def _give_back(s: KnapsackItems, p: RunningPods, g: int, kept: BoolArray) -> None:
    for k in range(p.first[g], p.first[g + 1]):
        if kept[k - p.first[g]]:
            for r in range(s.demands.shape[1]):
                s.free_capacity[g, r] += p.copies[k] * s.demands[p.of[k], r]
    for r in range(s.demands.shape[1]):
        s.floor[g, r] = p.floor[g, r]


@compile_inline
def _note(changes: NodeChanges, g: int, slot: int, length: int, one: int, more: int) -> int:
    """Write down one part of a change as far as there is space; how long the change is with it."""
    if length < changes.of.shape[2]:
        changes.of[g, slot, length], changes.more[g, slot, length] = one, more
    return length + 1


@compile_inline
def _keep(
    s: KnapsackItems,
    p: RunningPods,
    changes: NodeChanges,
    g: int,
    count: int,
    kept: BoolArray,
    price: FloatArray,
    cost: FloatArray,
) -> int:
    """Keep the change by which the best filling of a node came about; which one it is, 0 where it is too long."""
    slot = choose_slot(changes, g, price)
    length, costs = 0, 0.0
    for k in range(p.first[g], p.first[g + 1]):
        c = p.of[k]
        if kept[k - p.first[g]]:
            continue
        more = s.found[0, c] - p.copies[k]
        if more < 0:
            costs -= more * cost[c]
            for i in range(p.limit_first[c], p.limit_first[c + 1]):
                length = _note(changes, g, slot, length, p.limits[i], more)
        if more != 0:
            length = _note(changes, g, slot, length, c, more)
        # What arrives of it beside is counted already.
        s.found[0, c] = 0
    for i in range(count):
        c = s.item_class[i]
        if s.found[0, c] > 0:
            length = _note(changes, g, slot, length, c, s.found[0, c])
            s.found[0, c] = 0
    changes.cost[g, slot], changes.length[g, slot] = costs, length
    if length > changes.of.shape[2]:
        changes.cost[g, slot], changes.length[g, slot] = 0.0, 0
        return 0
    return slot


@compile_inline
def _look(
    s: KnapsackItems,
    p: RunningPods,
    g: int,
    priced: IntArray,
    price: FloatArray,
    cost: FloatArray,
    rates: FloatArray,
    above: IntArray,
) -> tuple[int, float, float]:
    """The rate by which a node gains least, how much that is, and what it gains at most by all rates.

    The rate of its last search is number -1.
    """
    beside, looked = False, 0
    for c in priced:
        looked += 1
        if _fits_beside(s, p, g, c):
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
    # Where nothing fits beside what runs there, nothing gains unless something leaves.
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
    """Mark what leaves a node in no way that gains more than is `sure`."""
    for k in range(p.first[g], p.first[g + 1]):
        c = p.of[k]
        kept[k - p.first[g]] = most_gain + min(_worth(s, rate, c) - price[c] - cost[c], 0.0) <= sure + _HALF


@compile_inline
def _fill_by_stages(
    s: KnapsackItems, g: int, count: int, known: float, rates: tuple[float, float, float], most_nodes: int
) -> tuple[float, bool]:
    """An upper bound of what fillings of a node are worth beyond `known`, and whether one is more than is sure.

    The more a filling is worth that was found early, the fewer items are left to search.
    """
    worth, top, sure = rates
    least, steps, better = known + sure, _FIRST_STEPS, False
    while True:
        count = drop_worthless_items(s, count, worth, top - least - _HALF)
        sum_items(s, count)
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
    """What a node gains at most, and by which change if it is none that `gains` knows the best of."""
    most_gain, most, sure = gains
    _mark_kept(s, p, g, price, leaving, rate, most_gain, sure, kept)
    count, known = _gather(s, p, g, priced, price, leaving, rate, most_gain, sure, kept)
    s.nodes[0] += 10 * count // _LOOKS
    guess, change = 0.0, -1
    for r in range(s.demands.shape[1]):
        guess += p.rate[g, r] * s.free_capacity[g, r]
    top, worth = balance_resource_mix(s, g, count, guess)
    for r in range(s.demands.shape[1]):
        p.rate[g, r] = worth * s.mix[g, r] / max(s.free_capacity[g, r], 1)
    gain = max(math.floor(min(top - known, most) + _HALF), sure)
    if gain > sure:
        weigh_items(s, g, count, s.mix[g])
        some = drop_worthless_items(s, count, worth, top - known - sure - _HALF)
        sort_items(s, g, some, s.mix[g])
        bound, better = _fill_by_stages(s, g, some, known, (worth, top, sure), most_nodes)
        gain = math.floor(min(bound - known, gain) + _HALF)
        if better:
            change = _keep(s, p, changes, g, count, kept, price, cost)
    _give_back(s, p, g, kept)
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
    """The most that each of some nodes gains: the prices of what arrives, less the prices and costs of what leaves.

    Prices and costs are whole numbers, and so are `gains[node]`, which are upper bounds where a search met its limit.
    `leaving[class]` is the cost of leaving with the prices of the limits that it counts against. To `net[class]` is
    added what arrived less what left, and for a limit less what left that counts; `priced` are the classes that may
    arrive. `changes` are those known before, at the same costs; what is found joins them. `rates[rate, resource]`
    are tried to see that a node gains nothing, with the classes `above[rate]` them, a list that ends at -1, on nodes
    that no search has given a rate of their own. `kept` is scratch.

    To `surplus` is added how much more nodes gain than by changes known before, and of that what no change is known
    for yet. The nodes are `count` from `begin` on, round the end; False when the deadline came first.
    """
    nodes = len(gains)
    for looked in range(count):
        if looked % 16 == 0 and read_monotonic_seconds() > deadline:
            return False
        g = (begin + looked) % nodes
        for k in range(p.first[g], p.first[g + 1]):
            p.here[p.of[k]] = p.copies[k]
        change, sure = find_best_change(changes, g, price)
        best, most_gain, most = _look(s, p, g, priced, price, leaving, rates, above)
        gains[g] = max(math.floor(most + _HALF), sure)
        if gains[g] > sure:
            rate = p.rate[g] if best < 0 else rates[best]
            known = (most_gain, most, sure)
            gains[g], found = _search(s, p, changes, g, priced, price, cost, leaving, rate, known, kept, most_nodes)
            change = found if found >= 0 else change
            surplus[0] += gains[g] - sure
            surplus[1] += gains[g] - compute_gain(changes, g, change, price)
        for i in range(changes.length[g, change]):
            net[changes.of[g, change, i]] += changes.more[g, change, i]
        for k in range(p.first[g], p.first[g + 1]):
            p.here[p.of[k]] = 0
    return True
