"""The mix of resources that bounds one node best, and what a search of the node can leave out with it."""

import math

from cruise.packer.kernels.compiling import inlined
from cruise.packer.kernels.shelf import Shelf, arrange, relaxed, sum_up, swap_items

_TURNS = 8
# How far a mix turns at first, and how much of a resource is overused where it turns as far.
_FIRST, _SHARP = 0.4, 20.0
# Overused by less than this is even.
_EVEN = 0.0002


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
def balance(s: Shelf, g: int, count: int) -> float:
    """Turn a node's mix until the fractional filling uses the scarce resources alike; the least bound.

    Where many items are worth about the same for their room, a mix that is off by little bounds badly, and a search
    looks at a multiple: the few small turns of `tune`, which serve where prices change little, do not get there.
    """
    arrange(s, g, count, s.mix[g])
    bound, step, last, arranged = relaxed(s, g, count), _FIRST, -1, True
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
        arrange(s, g, count, s.trial)
        tried = relaxed(s, g, count)
        arranged = tried < bound - 1e-12
        if arranged:
            bound = tried
            for r in range(len(s.trial)):
                s.mix[g, r] = s.trial[r]
    if not arranged:
        arrange(s, g, count, s.mix[g])
    sum_up(s, count)
    return float(bound)


@inlined
def critical(s: Shelf, count: int) -> float:
    """The value for its load of the item at which the fractional filling of an empty node ends."""
    space = 1.0
    for i in range(count):
        space -= s.full_load[i]
        if space <= 0.0:
            return float(s.item_value[i] / s.item_load[i])
    return 0.0


@inlined
def trim(s: Shelf, count: int, rate: float, surplus: float) -> int:
    """Leave out each item of which one copy is worth less than its load at a rate by a surplus or more."""
    kept = 0
    for i in range(count):
        if rate * s.item_load[i] - s.item_value[i] < surplus:
            if kept < i:
                swap_items(s, kept, i)
            kept += 1
    sum_up(s, kept)
    return kept
