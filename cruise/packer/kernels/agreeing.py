"""Prices at which the changes that are known of nodes agree: near to other prices, and to what is wanted of each class.

What known changes gain is no more than what nodes gain at most, so these prices are a guess at the best ones: what
bounds is a search of the nodes at them.
"""

from cruise.packer.arrays import FloatArray, IntArray
from cruise.packer.kernels.changes import Changes, best_of, gain_of
from cruise.packer.kernels.compiling import inlined, lean

# Gains that differ by less are the same.
_EVEN = 1.0


@inlined
def _bring(c: Changes, g: int, k: int, part: float, lacks: FloatArray) -> None:
    for i in range(c.length[g, k]):
        lacks[c.of[g, k, i]] -= part * c.more[g, k, i]


@inlined
def _price(one: int, lacks: FloatArray, near: FloatArray, step: float, most: FloatArray) -> float:
    return float(min(max(near[one] + step * lacks[one], 0.0), most[one]))


@inlined
def _reprice(
    c: Changes, g: int, k: int, lacks: FloatArray, near: FloatArray, step: float, most: FloatArray, price: FloatArray
) -> None:
    for i in range(c.length[g, k]):
        one = c.of[g, k, i]
        price[one] = _price(one, lacks, near, step, most)


@inlined
def _distance(c: Changes, g: int, a: int, b: int, scratch: FloatArray) -> float:
    """The squares of how two changes of a node differ, summed up."""
    for i in range(c.length[g, a]):
        scratch[c.of[g, a, i]] += c.more[g, a, i]
    for i in range(c.length[g, b]):
        scratch[c.of[g, b, i]] -= c.more[g, b, i]
    total = 0.0
    for k in (a, b):
        for i in range(c.length[g, k]):
            total += scratch[c.of[g, k, i]] * scratch[c.of[g, k, i]]
            scratch[c.of[g, k, i]] = 0.0
    return total


@inlined
def _extremes(c: Changes, g: int, price: FloatArray) -> tuple[int, int, float]:
    """The change of a node that gains most, that of a share which gains least, and by how much these differ."""
    best, worst, top, low = 0, 0, -1e300, 1e300
    for k in range(c.known[g]):
        gain = gain_of(c, g, k, price)
        if gain > top:
            best, top = k, gain
        if c.share[g, k] > 0.0 and gain < low:
            worst, low = k, gain
    return best, worst, top - low


@inlined
def _begin(
    c: Changes,
    wanted: FloatArray,
    near: FloatArray,
    step: float,
    most: FloatArray,
    lacks: FloatArray,
    price: FloatArray,
) -> None:
    """What is lacking where nodes have the shares that they have, and its prices."""
    for one in range(len(lacks)):
        lacks[one] = wanted[one]
    for g in range(len(c.known)):
        for k in range(c.known[g]):
            if c.share[g, k] > 0.0:
                _bring(c, g, k, c.share[g, k], lacks)
    for one in range(len(price)):
        price[one] = _price(one, lacks, near, step, most)


@lean
def agree(
    c: Changes,
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
    """What nodes gain at most by known changes, once shares have moved towards those that gain more, so many times.

    `price` becomes that of `near`, and `step` more for each copy that `lacks`: what is `wanted` of a class beyond
    what the shares bring; at least 0 and at most `most`. `scratch` is all zero. `spent` counts what is looked at.
    """
    _begin(c, wanted, near, step, most, lacks, price)
    for _ in range(passes):
        moved = False
        for g in range(len(c.known)):
            if c.known[g] < 2:
                continue
            spent[0] += c.known[g]
            best, worst, gap = _extremes(c, g, price)
            if gap < _EVEN:
                continue
            moved = True
            part = min(c.share[g, worst], gap / (step * max(_distance(c, g, best, worst, scratch), 1.0)))
            c.share[g, worst] -= part
            c.share[g, best] += part
            _bring(c, g, worst, -part, lacks)
            _bring(c, g, best, part, lacks)
            _reprice(c, g, worst, lacks, near, step, most, price)
            _reprice(c, g, best, lacks, near, step, most, price)
        if not moved:
            break
    total = 0.0
    for g in range(len(c.known)):
        total += best_of(c, g, price)[1]
    return total
