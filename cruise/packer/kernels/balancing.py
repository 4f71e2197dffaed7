"""The mix of resources that bounds one node best, and what a search of the node can leave out with it."""

import math

from cruise.packer.arrays import FloatArray
from cruise.packer.kernels.compiling import inlined
from cruise.packer.kernels.shelf import Shelf, swap_items

_TURNS = 8
# How far a mix turns at first, and how much of a resource is overused where it turns as far.
_FIRST, _SHARP = 0.4, 20.0
# Overused by less than this is even.
_EVEN = 0.0002
# Items worth so much less for their load than the last one are no candidates at first, and so much less at last.
_NEARLY, _LEAST = 0.9, 0.5


@inlined
def _scarcest(s: Shelf) -> int:
    """The resource of which the fractional filling uses most."""
    scarcest = 0
    for r in range(len(s.use)):
        if s.use[r] > s.use[scarcest]:
            scarcest = r
    return scarcest


@inlined
def _turn(s: Shelf, step: float) -> None:
    """Turn the mix that is tried towards what is overused."""
    total = 0.0
    for r in range(len(s.trial)):
        over = min(max(_SHARP * (s.use[r] - 1.0), -1.0), 1.0)
        s.trial[r] = max(s.trial[r], 1e-4) * math.exp(step * over)
        total += s.trial[r]
    for r in range(len(s.trial)):
        s.trial[r] /= total


@inlined
def _candidates(s: Shelf, count: int, least: float) -> int:
    """List the items that are worth more than `least` for their load, the most first; how many there are."""
    listed = 0
    for i in range(count):
        if s.full_value[i] > least:
            s.stack[listed] = i
            listed += 1
    gap = 1
    while gap < listed // 3:
        gap = 3 * gap + 1
    while gap > 0:
        for a in range(gap, listed):
            i, k = s.stack[a], a
            while k >= gap and s.full_value[i] > s.full_value[s.stack[k - gap]]:
                s.stack[k] = s.stack[k - gap]
                k -= gap
            s.stack[k] = i
        gap //= 3
    return listed


@inlined
def _fraction(s: Shelf, g: int, count: int, mix: FloatArray, rate: float) -> tuple[float, float]:
    """The value of the fractional filling of an empty node for a mix, and that for its load of its last item.

    `use` becomes the share of each resource that it takes. Only the few items that are worth nearly as much for
    their load as at the `rate` are sorted, or all of them where those do not fill the node.
    """
    for r in range(len(mix)):
        s.use[r] = mix[r] / max(s.room[g, r], 1)
    for i in range(count):
        load = 0.0
        for r in range(len(mix)):
            load += s.use[r] * s.item_weight[i, r]
        s.item_load[i] = max(load, 1e-12)
        s.full_value[i] = s.item_value[i] / s.item_load[i]
    least = _NEARLY * rate
    while True:
        space, value, last = 1.0, 0.0, 0.0
        for r in range(len(mix)):
            s.use[r] = 0.0
        for k in range(_candidates(s, count, least)):
            i = s.stack[k]
            part = min(float(s.item_bound[i]), space / s.item_load[i])
            space -= part * s.item_load[i]
            value += part * s.item_value[i]
            for r in range(len(mix)):
                s.use[r] += part * s.item_weight[i, r] / max(s.room[g, r], 1)
            if space <= 0.0:
                last = s.full_value[i]
                break
        if space <= 0.0 or least <= 0.0:
            return value, last
        least = least * _NEARLY if least > _LEAST * rate else 0.0


@inlined
def balance(s: Shelf, g: int, count: int, rate: float) -> tuple[float, float]:
    """Turn a node's mix until the fractional filling uses the scarce resources alike.

    Returns the least bound, and what its last item is worth for its load, for which `rate` is a guess; `item_load` is
    by another mix then.

    Where many items are worth about the same for their room, a mix that is off by little bounds badly, and a search
    looks at a multiple: the few small turns of `tune`, which serve where prices change little, do not get there.
    """
    bound, critical = _fraction(s, g, count, s.mix[g], rate)
    rate, step, last = critical, _FIRST, -1
    for r in range(len(s.trial)):
        s.trial[r] = s.mix[g, r]
    for _ in range(_TURNS):
        scarcest = _scarcest(s)
        if s.use[scarcest] - 1.0 < _EVEN:
            break
        # Where another one is overused now, that was too far.
        if last >= 0 and scarcest != last:
            step *= 0.5
        last = scarcest
        _turn(s, step)
        tried, rate = _fraction(s, g, count, s.trial, rate)
        if tried < bound - 1e-12:
            bound, critical = tried, rate
            for r in range(len(s.trial)):
                s.mix[g, r] = s.trial[r]
    return bound, critical


@inlined
def trim(s: Shelf, count: int, rate: float, surplus: float) -> int:
    """Leave out each item of which one copy is worth less than its load at a rate by a surplus or more."""
    kept = 0
    for i in range(count):
        if rate * s.item_load[i] - s.item_value[i] < surplus:
            if kept < i:
                swap_items(s, kept, i)
            kept += 1
    return kept
