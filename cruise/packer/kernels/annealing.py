"""Simulated annealing over placements with ejections, keeping the best by the exact vector.

A temperature decides in energies which changes are kept; what is best is decided by the vector alone.
"""

import math

import numpy as np
from numpy.typing import NDArray

from cruise.packer.arrays import IntArray
from cruise.packer.kernels.clock import seconds
from cruise.packer.kernels.compiling import inlined, lean
from cruise.packer.kernels.drawing import draw, draw_unit
from cruise.packer.kernels.placement import (
    MOST_EJECTED,
    Placement,
    bursts,
    carry_out,
    fits,
    keeps,
    lacks_room,
    note,
    put,
    remember,
    surpasses,
    take,
    undo,
)

# How many nodes an ejected copy tries before it waits.
_TRIES = 4
_CHECK_EVERY = 2048
# Of eight proposals three insert (while something waits), and one each of the others twice.
_KINDS, _INSERTS, _SHIFT, _PAIR, _CYCLE = 8, 3, 3, 6, 7


@inlined
def _other_node(placement: Placement, state: NDArray[np.uint64], c: int) -> int:
    """A node for a copy: half of the time one where copies of its class run."""
    first = placement.home_starts[c]
    homes = placement.home_starts[c + 1] - first
    if homes > 0 and draw(state, 2) == 0:
        return int(placement.homes[first + draw(state, homes)])
    return draw(state, placement.free.shape[0])


@inlined
def _insert(placement: Placement, state: NDArray[np.uint64], temperature: float) -> float:
    """Let a waiting copy in, ejecting up to two; the energy gained, 0 when nothing changed."""
    waits, waiting, out = placement.waits, placement.waiting, placement.ejected
    index = draw(state, waits[0])
    c = waiting[index]
    n = _other_node(placement, state, c)
    if placement.x[c, n] >= placement.limits[c, n]:
        return 0.0
    energy, ejected = 0.0, 0
    while lacks_room(placement, c, n):
        if ejected == MOST_EJECTED or placement.sizes[n] == 0:
            undo(placement)
            return 0.0
        slot = draw(state, placement.sizes[n])
        out[ejected] = placement.items[n, slot]
        note(placement, out[ejected], n, -1)
        energy += take(placement, slot, n)
        ejected += 1
    energy -= put(placement, c, n)
    note(placement, c, n, 1)
    left = 0
    for k in range(ejected):
        found = -1
        for _ in range(_TRIES):
            m = draw(state, placement.free.shape[0])
            if fits(placement, out[k], m):
                found = m
                break
        if found < 0:
            out[left] = out[k]
            left += 1
        else:
            energy -= put(placement, out[k], found)
            note(placement, out[k], found, 1)
    if energy > 0.0 and draw_unit(state) >= math.exp(-energy / temperature):
        undo(placement)
        return 0.0
    waits[0] -= 1
    waiting[index] = waiting[waits[0]]
    for k in range(left):
        waiting[waits[0]] = out[k]
        waits[0] += 1
    return energy


@inlined
def _exchange_fits(placement: Placement, n: int, comes: int, goes: int) -> bool:
    """Tell whether demands and limits allow one copy in for another; headroom is looked at afterwards."""
    if placement.x[comes, n] >= placement.limits[comes, n]:
        return False
    for r in range(placement.free.shape[1]):
        if placement.demands[comes, r] > placement.free[n, r] + placement.demands[goes, r]:
            return False
    return True


@inlined
def _pair_fits(placement: Placement, n: int, other: int, a: int, d: int, b: int) -> bool:
    """Tell whether copies a and d of node n may change places with copy b of the other node."""
    x, limits = placement.x, placement.limits
    if x[b, n] >= limits[b, n] or x[a, other] + (1 if a == d else 0) >= limits[a, other]:
        return False
    if x[d, other] >= limits[d, other]:
        return False
    for r in range(placement.free.shape[1]):
        both = placement.demands[a, r] + placement.demands[d, r]
        if (
            both > placement.free[other, r] + placement.demands[b, r]
            or placement.demands[b, r] > placement.free[n, r] + both
        ):
            return False
    return True


@inlined
def _propose_pair(placement: Placement, state: NDArray[np.uint64], n: int, slot: int, other: int, b: int) -> None:
    """Write two copies of one node for one of another into the log, if that is possible."""
    a, second = placement.items[n, slot], draw(state, placement.sizes[n])
    d = placement.items[n, second]
    if second == slot or a == b or b == d or not _pair_fits(placement, n, other, a, d, b):
        return
    note(placement, a, n, -1)
    note(placement, d, n, -1)
    note(placement, b, other, -1)
    note(placement, a, other, 1)
    note(placement, d, other, 1)
    note(placement, b, n, 1)


@inlined
def _propose_cycle(placement: Placement, state: NDArray[np.uint64], n: int, a: int, m: int, b: int) -> None:
    """Write a round of three nodes, each giving one copy to the next, into the log, if that is possible."""
    last = draw(state, placement.free.shape[0])
    if last == n or last == m or placement.sizes[last] == 0:
        return
    d = placement.items[last, draw(state, placement.sizes[last])]
    if a == b or b == d or a == d:
        return
    if (
        _exchange_fits(placement, m, a, b)
        and _exchange_fits(placement, last, b, d)
        and _exchange_fits(placement, n, d, a)
    ):
        note(placement, a, n, -1)
        note(placement, b, m, -1)
        note(placement, d, last, -1)
        note(placement, a, m, 1)
        note(placement, b, last, 1)
        note(placement, d, n, 1)


@inlined
def _propose(placement: Placement, state: NDArray[np.uint64], kind: int) -> None:
    """Write a change among placed copies into the log, if the one drawn is possible."""
    n = draw(state, placement.free.shape[0])
    if placement.sizes[n] == 0:
        return
    slot = draw(state, placement.sizes[n])
    a = placement.items[n, slot]
    m = _other_node(placement, state, a)
    if m == n:
        return
    if kind == _SHIFT:
        if fits(placement, a, m):
            note(placement, a, n, -1)
            note(placement, a, m, 1)
        return
    if placement.sizes[m] == 0:
        return
    b = placement.items[m, draw(state, placement.sizes[m])]
    if kind == _CYCLE:
        _propose_cycle(placement, state, n, a, m, b)
    elif kind == _PAIR:
        _propose_pair(placement, state, n, slot, m, b)
    elif a != b and _exchange_fits(placement, m, a, b) and _exchange_fits(placement, n, b, a):
        note(placement, a, n, -1)
        note(placement, b, m, -1)
        note(placement, a, m, 1)
        note(placement, b, n, 1)


@inlined
def _rearrange(placement: Placement, state: NDArray[np.uint64], temperature: float, kind: int) -> float:
    """Change something among placed copies; the energy gained, 0 when nothing changed."""
    _propose(placement, state, kind)
    if placement.logged[0] == 0:
        return 0.0
    energy = carry_out(placement)
    if bursts(placement) or (energy > 0.0 and draw_unit(state) >= math.exp(-energy / temperature)):
        undo(placement)
        return 0.0
    return energy


@lean
def anneal(
    placement: Placement,
    best: IntArray,
    best_vector: IntArray,
    state: NDArray[np.uint64],
    stop: IntArray,
    iterations: int,
    hot: float,
    cold: float,
    deadline: float,
) -> int:
    """Change the placement for some iterations, while the temperature falls geometrically from `hot` to `cold`.

    `best` and `best_vector` keep the best placement ever seen. Ends early once `stop[0]` is set or the clock is past
    the deadline; returns the iterations done.
    """
    if placement.free.shape[0] == 0 or len(placement.waiting) == 0:
        return 0
    temperature = hot
    cooling = (cold / hot) ** (_CHECK_EVERY / max(iterations, _CHECK_EVERY))
    done = 0
    while done < iterations:
        if done % _CHECK_EVERY == 0:
            if stop[0] != 0 or seconds() > deadline:
                break
            if done > 0:
                temperature *= cooling
        done += 1
        placement.logged[0] = 0
        kind = draw(state, _KINDS)
        if kind < _INSERTS and placement.waits[0] > 0:
            energy = _insert(placement, state, temperature)
        else:
            energy = _rearrange(placement, state, temperature, _INSERTS + draw(state, _KINDS - _INSERTS))
        if energy < 0.0 and surpasses(placement.vector, best_vector) and keeps(placement):
            remember(placement, best, best_vector)
    return done
