"""Changes of nodes that were met before: what came and what left, as a stock to choose from at other prices."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cruise.packer.arrays import FloatArray, IntArray
from cruise.packer.kernels.compiling import inlined


class Changes(NamedTuple):
    """Up to so many changes of each node, the first of them none.

    By change k of a node there are `more[node, k, i]` copies more of class `of[node, k, i]`, or fewer where that is
    below 0, for each i below `length[node, k]`; it costs `cost[node, k]`. `known[node]` counts them. `share[node, k]`
    of the node, one whole in all, has the change.
    """

    of: NDArray[np.int32]
    more: NDArray[np.int32]
    length: IntArray
    cost: FloatArray
    share: FloatArray
    known: IntArray


def changes_of(nodes: int, most: int, width: int) -> Changes:
    """No changes yet; up to `most` a node, of at most `width` classes each."""
    share = np.zeros((nodes, most))
    share[:, 0] = 1.0
    return Changes(
        of=np.zeros((nodes, most, width), dtype=np.int32),
        more=np.zeros((nodes, most, width), dtype=np.int32),
        length=np.zeros((nodes, most), dtype=np.int64),
        cost=np.zeros((nodes, most)),
        share=share,
        known=np.ones(nodes, dtype=np.int64),
    )


@inlined
def gain_of(c: Changes, g: int, k: int, price: FloatArray) -> float:
    """What a change of a node gains at prices."""
    gain = -float(c.cost[g, k])
    for i in range(c.length[g, k]):
        gain += c.more[g, k, i] * price[c.of[g, k, i]]
    return gain


@inlined
def best_of(c: Changes, g: int, price: FloatArray) -> tuple[int, float]:
    """The change of a node that gains most at prices, and how much."""
    best, most = 0, 0.0
    for k in range(1, c.known[g]):
        gain = gain_of(c, g, k, price)
        if gain > most:
            best, most = k, gain
    return best, most


@inlined
def slot_for(c: Changes, g: int, price: FloatArray) -> int:
    """Where to keep one more change of a node: where there is none, or instead of what gains least of no share."""
    if c.known[g] < c.of.shape[1]:
        c.known[g] += 1
        return int(c.known[g]) - 1
    worst, least = 0, np.inf
    for k in range(1, c.of.shape[1]):
        gain = gain_of(c, g, k, price)
        if c.share[g, k] <= 0.0 and gain < least:
            worst, least = k, gain
    if worst == 0:
        worst = 1
        for k in range(2, c.of.shape[1]):
            if c.share[g, k] < c.share[g, worst]:
                worst = k
        c.share[g, 0] += c.share[g, worst]
        c.share[g, worst] = 0.0
    return worst
