"""Anneals placements of copies with ejections, and keeps the best by the exact key.

The temperature decides by energies which changes are kept; the key alone decides which placement is best.
"""

import math

import numpy as np
from numpy.typing import NDArray

from cruise.packer.kernels.compilation import (
    compile_inline,
    compile_without_allocation,
    draw_integer_below,
    draw_unit_interval,
    read_monotonic_seconds,
)
from cruise.packer.kernels.placement import (
    MAX_EJECTED,
    CopyPlacement,
    apply_log,
    exceeds_headroom,
    is_greater,
    keeps_requirements,
    lacks_capacity,
    log_change,
    may_place,
    place_copy,
    remove_copy,
    save_best,
    undo_log,
)
from cruise.packer.problem import IntArray

# Nodes that an ejected copy tries before it stays unplaced.
_TRIES = 4
_CHECK_EVERY = 2048
# Of eight proposals three insert (while a copy is unplaced), and each of the others is one, two of them twice.
_KINDS, _INSERTS, _SHIFT, _PAIR, _CYCLE = 8, 3, 3, 6, 7


@compile_inline
def _other_node(placement: CopyPlacement, state: NDArray[np.uint64], c: int) -> int:
    """Return a node for a copy: half of the time one where copies of its class run."""
    first = placement.home_starts[c]
    homes = placement.home_starts[c + 1] - first
    if homes > 0 and draw_integer_below(state, 2) == 0:
        return int(placement.home_nodes[first + draw_integer_below(state, homes)])
    return draw_integer_below(state, placement.free.shape[0])


@compile_inline
def _insert(placement: CopyPlacement, state: NDArray[np.uint64], temperature: float) -> float:
    """Place an unplaced copy, ejecting up to two; return the gained energy, 0 if nothing changed."""
    waits, waiting, out = placement.waiting_count, placement.waiting, placement.ejected
    index = draw_integer_below(state, waits[0])
    c = waiting[index]
    n = _other_node(placement, state, c)
    if placement.x[c, n] >= placement.limits[c, n]:
        return 0.0
    energy, ejected = 0.0, 0
    while lacks_capacity(placement, c, n):
        if ejected == MAX_EJECTED or placement.sizes[n] == 0:
            undo_log(placement)
            return 0.0
        slot = draw_integer_below(state, placement.sizes[n])
        out[ejected] = placement.items[n, slot]
        log_change(placement, out[ejected], n, -1)
        energy += remove_copy(placement, slot, n)
        ejected += 1
    energy -= place_copy(placement, c, n)
    log_change(placement, c, n, 1)
    left = 0
    for k in range(ejected):
        found = -1
        for _ in range(_TRIES):
            m = draw_integer_below(state, placement.free.shape[0])
            if may_place(placement, out[k], m):
                found = m
                break
        if found < 0:
            out[left] = out[k]
            left += 1
        else:
            energy -= place_copy(placement, out[k], found)
            log_change(placement, out[k], found, 1)
    if energy > 0.0 and draw_unit_interval(state) >= math.exp(-energy / temperature):
        undo_log(placement)
        return 0.0
    waits[0] -= 1
    waiting[index] = waiting[waits[0]]
    for k in range(left):
        waiting[waits[0]] = out[k]
        waits[0] += 1
    return energy


@compile_inline
def _exchange_fits(placement: CopyPlacement, n: int, arriving: int, leaving: int) -> bool:
    """Return whether demands and limits allow one copy instead of another, headroom apart."""
    if placement.x[arriving, n] >= placement.limits[arriving, n]:
        return False
    for r in range(placement.free.shape[1]):
        if placement.demands[arriving, r] > placement.free[n, r] + placement.demands[leaving, r]:
            return False
    return True


@compile_inline
def _pair_fits(placement: CopyPlacement, n: int, other: int, a: int, d: int, b: int) -> bool:
    """Return whether copies a and d of node n may be exchanged for copy b of the other node."""
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


@compile_inline
def _propose_pair(placement: CopyPlacement, state: NDArray[np.uint64], n: int, slot: int, other: int, b: int) -> None:
    """Log two copies of one node for one of another, if that is possible."""
    a, second = placement.items[n, slot], draw_integer_below(state, placement.sizes[n])
    d = placement.items[n, second]
    if second == slot or a == b or b == d or not _pair_fits(placement, n, other, a, d, b):
        return
    log_change(placement, a, n, -1)
    log_change(placement, d, n, -1)
    log_change(placement, b, other, -1)
    log_change(placement, a, other, 1)
    log_change(placement, d, other, 1)
    log_change(placement, b, n, 1)


@compile_inline
def _propose_cycle(placement: CopyPlacement, state: NDArray[np.uint64], n: int, a: int, m: int, b: int) -> None:
    """Log a cycle of three nodes, each passing one copy to the next, if that is possible."""
    last = draw_integer_below(state, placement.free.shape[0])
    if last == n or last == m or placement.sizes[last] == 0:
        return
    d = placement.items[last, draw_integer_below(state, placement.sizes[last])]
    if a == b or b == d or a == d:
        return
    if (
        _exchange_fits(placement, m, a, b)
        and _exchange_fits(placement, last, b, d)
        and _exchange_fits(placement, n, d, a)
    ):
        log_change(placement, a, n, -1)
        log_change(placement, b, m, -1)
        log_change(placement, d, last, -1)
        log_change(placement, a, m, 1)
        log_change(placement, b, last, 1)
        log_change(placement, d, n, 1)


@compile_inline
def _propose(placement: CopyPlacement, state: NDArray[np.uint64], kind: int) -> None:
    """Log a change among placed copies, if the random one is possible."""
    n = draw_integer_below(state, placement.free.shape[0])
    if placement.sizes[n] == 0:
        return
    slot = draw_integer_below(state, placement.sizes[n])
    a = placement.items[n, slot]
    m = _other_node(placement, state, a)
    if m == n:
        return
    if kind == _SHIFT:
        if may_place(placement, a, m):
            log_change(placement, a, n, -1)
            log_change(placement, a, m, 1)
        return
    if placement.sizes[m] == 0:
        return
    b = placement.items[m, draw_integer_below(state, placement.sizes[m])]
    if kind == _CYCLE:
        _propose_cycle(placement, state, n, a, m, b)
    elif kind == _PAIR:
        _propose_pair(placement, state, n, slot, m, b)
    elif a != b and _exchange_fits(placement, m, a, b) and _exchange_fits(placement, n, b, a):
        log_change(placement, a, n, -1)
        log_change(placement, b, m, -1)
        log_change(placement, a, m, 1)
        log_change(placement, b, n, 1)


@compile_inline
def _rearrange(placement: CopyPlacement, state: NDArray[np.uint64], temperature: float, kind: int) -> float:
    """Change something among placed copies; return the gained energy, 0 if nothing changed."""
    _propose(placement, state, kind)
    if placement.logged[0] == 0:
        return 0.0
    energy = apply_log(placement)
    if exceeds_headroom(placement) or (energy > 0.0 and draw_unit_interval(state) >= math.exp(-energy / temperature)):
        undo_log(placement)
        return 0.0
    return energy


@compile_without_allocation
def anneal(
    placement: CopyPlacement,
    best: IntArray,
    best_vector: IntArray,
    state: NDArray[np.uint64],
    iterations: int,
    hot: float,
    cold: float,
    deadline: float,
) -> int:
    """Change the placement for some iterations, while the temperature decreases geometrically from `hot` to `cold`.

    `best` and `best_vector` keep the best placement seen. It ends early once the deadline is reached.
    Returns the number of iterations.
    """
    if placement.free.shape[0] == 0 or len(placement.waiting) == 0:
        return 0
    temperature = hot
    cooling = (cold / hot) ** (_CHECK_EVERY / max(iterations, _CHECK_EVERY))
    done = 0
    while done < iterations:
        if done % _CHECK_EVERY == 0:
            if read_monotonic_seconds() > deadline:
                break
            if done > 0:
                temperature *= cooling
        done += 1
        placement.logged[0] = 0
        kind = draw_integer_below(state, _KINDS)
        if kind < _INSERTS and placement.waiting_count[0] > 0:
            energy = _insert(placement, state, temperature)
        else:
            energy = _rearrange(placement, state, temperature, _INSERTS + draw_integer_below(state, _KINDS - _INSERTS))
        if energy < 0.0 and is_greater(placement.vector, best_vector) and keeps_requirements(placement):
            save_best(placement, best, best_vector)
    return done
