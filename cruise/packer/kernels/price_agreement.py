"""Finds prices at which the known changes of nodes meet demand, near other prices.

Known changes gain no more than the best ones, so these prices are a guess; a search of the nodes at them gives the
bound.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cruise.packer.kernels.compilation import compile_inline, compile_without_allocation
from cruise.packer.problem import FloatArray, IntArray


class NodeChanges(NamedTuple):
    """The known changes of each node, the first of which is none.

    By change k of a node there are `added_copies[node, k, i]` more copies (fewer if negative) of class `pod_class[node,
    k, i]`, for each i below `length[node, k]`; it costs `cost[node, k]`. `change_count[node]` counts them. `share[node,
    k]` of the node, 1 in total, has the change.
    """

    pod_class: NDArray[np.int32]
    added_copies: NDArray[np.int32]
    length: IntArray
    cost: FloatArray
    share: FloatArray
    change_count: IntArray


def create_node_changes(nodes: int, most: int, width: int) -> NodeChanges:
    """Return no changes, with space for `most` per node, of at most `width` classes each."""
    share = np.zeros((nodes, most))
    share[:, 0] = 1.0
    return NodeChanges(
        pod_class=np.zeros((nodes, most, width), dtype=np.int32),
        added_copies=np.zeros((nodes, most, width), dtype=np.int32),
        length=np.zeros((nodes, most), dtype=np.int64),
        cost=np.zeros((nodes, most)),
        share=share,
        change_count=np.ones(nodes, dtype=np.int64),
    )


@compile_inline
def compute_gain(c: NodeChanges, g: int, k: int, price: FloatArray) -> float:
    """Return what a change of a node gains at prices."""
    gain = -float(c.cost[g, k])
    for i in range(c.length[g, k]):
        gain += c.added_copies[g, k, i] * price[c.pod_class[g, k, i]]
    return gain


@compile_inline
def find_best_change(c: NodeChanges, g: int, price: FloatArray) -> tuple[int, float]:
    """Return the change of a node that gains most at prices, and how much."""
    best, most = 0, 0.0
    for k in range(1, c.change_count[g]):
        gain = compute_gain(c, g, k, price)
        if gain > most:
            best, most = k, gain
    return best, most


@compile_inline
def choose_change_slot(c: NodeChanges, g: int, price: FloatArray) -> int:
    """Return where to store a change: a free slot of a node, or that of the unused change that gains least."""
    if c.change_count[g] < c.pod_class.shape[1]:
        c.change_count[g] += 1
        return int(c.change_count[g]) - 1
    worst, least = 0, np.inf
    for k in range(1, c.pod_class.shape[1]):
        gain = compute_gain(c, g, k, price)
        if c.share[g, k] <= 0.0 and gain < least:
            worst, least = k, gain
    if worst == 0:
        worst = 1
        for k in range(2, c.pod_class.shape[1]):
            if c.share[g, k] < c.share[g, worst]:
                worst = k
        c.share[g, 0] += c.share[g, worst]
        c.share[g, worst] = 0.0
    return worst


# Gains that differ by less count as equal.
_EVEN = 1.0


@compile_inline
def _apply_change(c: NodeChanges, g: int, k: int, part: float, lacks: FloatArray) -> None:
    for i in range(c.length[g, k]):
        lacks[c.pod_class[g, k, i]] -= part * c.added_copies[g, k, i]


@compile_inline
def _compute_price(one: int, lacks: FloatArray, near: FloatArray, step: float, most: FloatArray) -> float:
    return float(min(max(near[one] + step * lacks[one], 0.0), most[one]))


@compile_inline
def _update_prices(
    c: NodeChanges,
    g: int,
    k: int,
    lacks: FloatArray,
    near: FloatArray,
    step: float,
    most: FloatArray,
    price: FloatArray,
) -> None:
    for i in range(c.length[g, k]):
        one = c.pod_class[g, k, i]
        price[one] = _compute_price(one, lacks, near, step, most)


@compile_inline
def _distance(c: NodeChanges, g: int, a: int, b: int, scratch: FloatArray) -> float:
    """Return the squared distance between two changes of a node."""
    for i in range(c.length[g, a]):
        scratch[c.pod_class[g, a, i]] += c.added_copies[g, a, i]
    for i in range(c.length[g, b]):
        scratch[c.pod_class[g, b, i]] -= c.added_copies[g, b, i]
    total = 0.0
    for k in (a, b):
        for i in range(c.length[g, k]):
            total += scratch[c.pod_class[g, k, i]] * scratch[c.pod_class[g, k, i]]
            scratch[c.pod_class[g, k, i]] = 0.0
    return total


@compile_inline
def _extremes(c: NodeChanges, g: int, price: FloatArray) -> tuple[int, int, float]:
    """Return the change of a node that gains most, the one with a share that gains least, and the difference."""
    best, worst, top, low = 0, 0, -1e300, 1e300
    for k in range(c.change_count[g]):
        gain = compute_gain(c, g, k, price)
        if gain > top:
            best, top = k, gain
        if c.share[g, k] > 0.0 and gain < low:
            worst, low = k, gain
    return best, worst, top - low


@compile_inline
def _initialise(
    c: NodeChanges,
    wanted: FloatArray,
    near: FloatArray,
    step: float,
    most: FloatArray,
    lacks: FloatArray,
    price: FloatArray,
) -> None:
    """Compute the excess demand at the present shares, and its prices."""
    for one in range(len(lacks)):
        lacks[one] = wanted[one]
    for g in range(len(c.change_count)):
        for k in range(c.change_count[g]):
            if c.share[g, k] > 0.0:
                _apply_change(c, g, k, c.share[g, k], lacks)
    for one in range(len(price)):
        price[one] = _compute_price(one, lacks, near, step, most)


@compile_without_allocation
def improve_prices(
    c: NodeChanges,
    wanted: FloatArray,
    near: FloatArray,
    step: float,
    most: FloatArray,
    lacks: FloatArray,
    price: FloatArray,
    scratch: FloatArray,
    passes: int,
    spent: IntArray,
) -> float:
    """Return the largest gain of nodes by known changes, after moving shares to better ones so many times.

    `price` becomes that of `near`, plus `step` for each missing copy in `lacks`: the demand `wanted` beyond what the
    shares supply; at least 0 and at most `most`. `scratch` is all zero. `spent` counts steps.
    """
    _initialise(c, wanted, near, step, most, lacks, price)
    for _ in range(passes):
        moved = False
        for g in range(len(c.change_count)):
            if c.change_count[g] < 2:
                continue
            spent[0] += c.change_count[g]
            best, worst, gap = _extremes(c, g, price)
            if gap < _EVEN:
                continue
            moved = True
            part = min(c.share[g, worst], gap / (step * max(_distance(c, g, best, worst, scratch), 1.0)))
            c.share[g, worst] -= part
            c.share[g, best] += part
            _apply_change(c, g, worst, -part, lacks)
            _apply_change(c, g, best, part, lacks)
            _update_prices(c, g, worst, lacks, near, step, most, price)
            _update_prices(c, g, best, lacks, near, step, most, price)
        if not moved:
            break
    total = 0.0
    for g in range(len(c.change_count)):
        total += find_best_change(c, g, price)[1]
    return total
