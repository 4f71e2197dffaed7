"""Nodes at a price for each class: what is gained where copies leave them for that price and others arrive for it."""

import math
from typing import NamedTuple

from cruise.packer.arrays import BoolArray, FloatArray, IntArray
from cruise.packer.kernels.balancing import balance, critical, trim
from cruise.packer.kernels.clock import seconds
from cruise.packer.kernels.compiling import inlined, lean
from cruise.packer.kernels.pricing import fill
from cruise.packer.kernels.shelf import Shelf, alone

_FAR = 1e300
# Prices and costs are whole numbers: what is less than this more is nothing more, and rounding errs by far less.
_HALF = 0.5
# So many looks at a class, or a tenth as many items to arrange, take as long as one step of a search.
_LOOKS = 4


class Present(NamedTuple):
    """What runs on each node and may leave it, and what each class may do.

    On a node run `copies[k]` of class `of[k]`, for each k from `first[node]` to below `first[node + 1]`.
    `admits[site[class], node]` tells where a class may arrive, `total[class]` how many copies there are, `most[class]`
    how many of them one node holds. `free[node, resource]` is what the node has left beside what runs there, `beside`
    what it has as long as nothing leaves, and `floor` the headroom of what stays there in any case. `here[class]` is
    scratch, all zero between nodes. `rate[node, resource]` is what room was worth in a node's last search.
    """

    first: IntArray
    of: IntArray
    copies: IntArray
    site: IntArray
    admits: BoolArray
    total: IntArray
    most: IntArray
    free: IntArray
    beside: IntArray
    floor: IntArray
    here: IntArray
    rate: FloatArray


@inlined
def _arriving(s: Shelf, p: Present, g: int, c: int) -> int:
    """How many copies of a class may come to a node that has nothing else to hold."""
    most = min(p.most[c], p.total[c] - p.here[c])
    if most <= 0 or not p.admits[p.site[c], g]:
        return 0
    return alone(s, g, c, most)


@inlined
def _fits_beside(s: Shelf, p: Present, g: int, c: int) -> bool:
    """Tell whether a node holds one copy more of a class as it is now."""
    for r in range(s.demands.shape[1]):
        if s.demands[c, r] > p.beside[g, r]:
            return False
    return True


@inlined
def _put(s: Shelf, i: int, c: int, copies: int, value: float) -> None:
    s.item_class[i], s.item_bound[i], s.item_value[i] = c, copies, value
    for r in range(s.demands.shape[1]):
        s.item_weight[i, r] = s.demands[c, r]
        if s.headroom.shape[0] > 0:
            s.item_head[i, r] = s.headroom[c, r]


@inlined
def _worth(s: Shelf, rate: FloatArray, c: int) -> float:
    worth = 0.0
    for r in range(len(rate)):
        worth += rate[r] * s.demands[c, r]
    return worth


@inlined
def _estimate(
    s: Shelf,
    p: Present,
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


@inlined
def _gather(
    s: Shelf,
    p: Present,
    g: int,
    priced: IntArray,
    price: FloatArray,
    cost: FloatArray,
    rate: FloatArray,
    most_gain: float,
    kept: BoolArray,
) -> tuple[int, float]:
    """Gather what may change on a node in a way that gains, and set aside room for what is kept there.

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
        if most_gain + min(price[c] - _worth(s, rate, c), 0.0) > _HALF:
            most = _arriving(s, p, g, c)
            if most > 0:
                _put(s, count, c, most, price[c])
                count += 1
    return count, known


@inlined
def _reserve(s: Shelf, p: Present, g: int, k: int) -> None:
    """Set room aside for what runs on a node."""
    for r in range(s.demands.shape[1]):
        s.room[g, r] -= p.copies[k] * s.demands[p.of[k], r]
        if s.headroom.shape[0] > 0:
            s.floor[g, r] = max(s.floor[g, r], s.headroom[p.of[k], r])


@inlined
def _give_back(s: Shelf, p: Present, g: int, kept: BoolArray) -> None:
    for k in range(p.first[g], p.first[g + 1]):
        if kept[k - p.first[g]]:
            for r in range(s.demands.shape[1]):
                s.room[g, r] += p.copies[k] * s.demands[p.of[k], r]
    for r in range(s.demands.shape[1]):
        s.floor[g, r] = p.floor[g, r]


@inlined
def _add_up(s: Shelf, p: Present, g: int, count: int, kept: BoolArray, net: IntArray, left: IntArray) -> None:
    """Count what left and what arrived in the best filling of a node."""
    for k in range(p.first[g], p.first[g + 1]):
        c = p.of[k]
        if not kept[k - p.first[g]]:
            net[c] -= p.copies[k]
            left[c] += max(p.copies[k] - s.found[0, c], 0)
    for i in range(count):
        c = s.item_class[i]
        net[c] += s.found[0, c]
        # A class that stays and arrives is two items.
        s.found[0, c] = 0


@inlined
def _look(
    s: Shelf,
    p: Present,
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


@inlined
def _mark_kept(
    s: Shelf,
    p: Present,
    g: int,
    price: FloatArray,
    cost: FloatArray,
    rate: FloatArray,
    most_gain: float,
    kept: BoolArray,
) -> None:
    """Mark what leaves a node in no way that gains."""
    for k in range(p.first[g], p.first[g + 1]):
        c = p.of[k]
        kept[k - p.first[g]] = most_gain + min(_worth(s, rate, c) - price[c] - cost[c], 0.0) <= _HALF


@lean
def price_nodes(
    s: Shelf,
    p: Present,
    priced: IntArray,
    price: FloatArray,
    cost: FloatArray,
    rates: FloatArray,
    above: IntArray,
    kept: BoolArray,
    net: IntArray,
    left: IntArray,
    gains: FloatArray,
    most_nodes: int,
    deadline: float,
) -> int:
    """The most that each node gains: the prices of what arrives, less the prices and costs of what leaves.

    Prices and costs are whole numbers, and so are `gains[node]`, which are upper bounds where a search met its limit.
    `net[class]` becomes what arrived less what left on all nodes, `left[class]` what left; `priced` are the classes
    that may arrive. `rates[rate, resource]` are tried to see that a node gains nothing, with the classes `above[rate]`
    them, a list that ends at -1, on nodes that no search has given a rate of their own. `kept` is scratch. Returns
    how many nodes were searched, or -1 when the deadline came first.
    """
    for c in range(len(net)):
        net[c] = left[c] = 0
    searched = 0
    for g in range(len(gains)):
        if g % 16 == 0 and seconds() > deadline:
            return -1
        for k in range(p.first[g], p.first[g + 1]):
            p.here[p.of[k]] = p.copies[k]
        best, most_gain, most = _look(s, p, g, priced, price, cost, rates, above)
        gains[g] = math.floor(most + _HALF)
        if gains[g] > 0.0:
            searched += 1
            rate = p.rate[g] if best < 0 else rates[best]
            _mark_kept(s, p, g, price, cost, rate, most_gain, kept)
            count, known = _gather(s, p, g, priced, price, cost, rate, most_gain, kept)
            s.nodes[0] += 10 * count // _LOOKS
            top = balance(s, g, count)
            worth = critical(s, count)
            for r in range(s.demands.shape[1]):
                p.rate[g, r] = worth * s.mix[g, r] / max(s.room[g, r], 1)
            gains[g] = max(math.floor(min(top - known, most) + _HALF), 0.0)
            if gains[g] > 0.0:
                count = trim(s, count, worth, top - known - _HALF)
                _, bound, found = fill(s, g, count, known, 0, 1, most_nodes)
                gains[g] = math.floor(min(bound - known, gains[g]) + _HALF)
                if found > 0:
                    _add_up(s, p, g, count, kept, net, left)
            _give_back(s, p, g, kept)
        for k in range(p.first[g], p.first[g + 1]):
            p.here[p.of[k]] = 0
    return searched
