"""Simulated annealing over placements with ejections, keeping the best by the exact vector."""

import math

import numpy as np
from numpy.typing import NDArray

from cruise.packer.instance import IntArray
from cruise.packer.kernels.board import (
    MOST_EJECTED,
    Board,
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
from cruise.packer.kernels.clock import seconds
from cruise.packer.kernels.compiling import inlined, lean
from cruise.packer.kernels.drawing import draw, draw_unit

# How many nodes an ejected copy tries before it waits.
_TRIES = 4
_CHECK_EVERY = 2048
# Of eight proposals three insert (while something waits), and one each of the others twice.
_KINDS, _INSERTS, _SHIFT, _PAIR, _CYCLE = 8, 3, 3, 6, 7


@inlined
def _other_node(board: Board, state: NDArray[np.uint64], c: int) -> int:
    """A node for a copy: half of the time one where copies of its class run."""
    first = board.home_starts[c]
    homes = board.home_starts[c + 1] - first
    if homes > 0 and draw(state, 2) == 0:
        return int(board.homes[first + draw(state, homes)])
    return draw(state, board.free.shape[0])


@inlined
def _insert(board: Board, state: NDArray[np.uint64], temperature: float) -> float:
    """Let a waiting copy in, ejecting up to two; the energy gained, 0 when nothing changed."""
    waits, waiting, out = board.waits, board.waiting, board.ejected
    index = draw(state, waits[0])
    c = waiting[index]
    n = _other_node(board, state, c)
    if board.x[c, n] >= board.limits[c, n]:
        return 0.0
    energy, ejected = 0.0, 0
    while lacks_room(board, c, n):
        if ejected == MOST_EJECTED or board.sizes[n] == 0:
            undo(board)
            return 0.0
        slot = draw(state, board.sizes[n])
        out[ejected] = board.items[n, slot]
        note(board, out[ejected], n, -1)
        energy += take(board, slot, n)
        ejected += 1
    energy -= put(board, c, n)
    note(board, c, n, 1)
    left = 0
    for k in range(ejected):
        found = -1
        for _ in range(_TRIES):
            m = draw(state, board.free.shape[0])
            if fits(board, out[k], m):
                found = m
                break
        if found < 0:
            out[left] = out[k]
            left += 1
        else:
            energy -= put(board, out[k], found)
            note(board, out[k], found, 1)
    if energy > 0.0 and draw_unit(state) >= math.exp(-energy / temperature):
        undo(board)
        return 0.0
    waits[0] -= 1
    waiting[index] = waiting[waits[0]]
    for k in range(left):
        waiting[waits[0]] = out[k]
        waits[0] += 1
    return energy


@inlined
def _exchange_fits(board: Board, n: int, comes: int, goes: int) -> bool:
    """Tell whether demands and limits allow one copy in for another; headroom is looked at afterwards."""
    if board.x[comes, n] >= board.limits[comes, n]:
        return False
    for r in range(board.free.shape[1]):
        if board.demands[comes, r] > board.free[n, r] + board.demands[goes, r]:
            return False
    return True


@inlined
def _pair_fits(board: Board, n: int, other: int, a: int, d: int, b: int) -> bool:
    """Tell whether copies a and d of node n may change places with copy b of the other node."""
    x, limits = board.x, board.limits
    if x[b, n] >= limits[b, n] or x[a, other] + (1 if a == d else 0) >= limits[a, other]:
        return False
    if x[d, other] >= limits[d, other]:
        return False
    for r in range(board.free.shape[1]):
        both = board.demands[a, r] + board.demands[d, r]
        if both > board.free[other, r] + board.demands[b, r] or board.demands[b, r] > board.free[n, r] + both:
            return False
    return True


@inlined
def _propose_pair(board: Board, state: NDArray[np.uint64], n: int, slot: int, other: int, b: int) -> None:
    """Write two copies of one node for one of another into the log, if that is possible."""
    a, second = board.items[n, slot], draw(state, board.sizes[n])
    d = board.items[n, second]
    if second == slot or a == b or b == d or not _pair_fits(board, n, other, a, d, b):
        return
    note(board, a, n, -1)
    note(board, d, n, -1)
    note(board, b, other, -1)
    note(board, a, other, 1)
    note(board, d, other, 1)
    note(board, b, n, 1)


@inlined
def _propose_cycle(board: Board, state: NDArray[np.uint64], n: int, a: int, m: int, b: int) -> None:
    """Write a round of three nodes, each giving one copy to the next, into the log, if that is possible."""
    last = draw(state, board.free.shape[0])
    if last == n or last == m or board.sizes[last] == 0:
        return
    d = board.items[last, draw(state, board.sizes[last])]
    if a == b or b == d or a == d:
        return
    if _exchange_fits(board, m, a, b) and _exchange_fits(board, last, b, d) and _exchange_fits(board, n, d, a):
        note(board, a, n, -1)
        note(board, b, m, -1)
        note(board, d, last, -1)
        note(board, a, m, 1)
        note(board, b, last, 1)
        note(board, d, n, 1)


@inlined
def _propose(board: Board, state: NDArray[np.uint64], kind: int) -> None:
    """Write a change among placed copies into the log, if the one drawn is possible."""
    n = draw(state, board.free.shape[0])
    if board.sizes[n] == 0:
        return
    slot = draw(state, board.sizes[n])
    a = board.items[n, slot]
    m = _other_node(board, state, a)
    if m == n:
        return
    if kind == _SHIFT:
        if fits(board, a, m):
            note(board, a, n, -1)
            note(board, a, m, 1)
        return
    if board.sizes[m] == 0:
        return
    b = board.items[m, draw(state, board.sizes[m])]
    if kind == _CYCLE:
        _propose_cycle(board, state, n, a, m, b)
    elif kind == _PAIR:
        _propose_pair(board, state, n, slot, m, b)
    elif a != b and _exchange_fits(board, m, a, b) and _exchange_fits(board, n, b, a):
        note(board, a, n, -1)
        note(board, b, m, -1)
        note(board, a, m, 1)
        note(board, b, n, 1)


@inlined
def _rearrange(board: Board, state: NDArray[np.uint64], temperature: float, kind: int) -> float:
    """Change something among placed copies; the energy gained, 0 when nothing changed."""
    _propose(board, state, kind)
    if board.logged[0] == 0:
        return 0.0
    energy = carry_out(board)
    if bursts(board) or (energy > 0.0 and draw_unit(state) >= math.exp(-energy / temperature)):
        undo(board)
        return 0.0
    return energy


@lean
def anneal(
    board: Board,
    best: IntArray,
    best_vector: IntArray,
    state: NDArray[np.uint64],
    stop: IntArray,
    iterations: int,
    hot: float,
    cold: float,
    deadline: float,
) -> int:
    """Change the board for some iterations, while the temperature falls geometrically from `hot` to `cold`.

    `best` and `best_vector` keep the best placement ever seen. Ends early once `stop[0]` is set or the clock is past
    the deadline; returns the iterations done.
    """
    if board.free.shape[0] == 0 or len(board.waiting) == 0:
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
        board.logged[0] = 0
        kind = draw(state, _KINDS)
        if kind < _INSERTS and board.waits[0] > 0:
            energy = _insert(board, state, temperature)
        else:
            energy = _rearrange(board, state, temperature, _INSERTS + draw(state, _KINDS - _INSERTS))
        if energy < 0.0 and surpasses(board.vector, best_vector) and keeps(board):
            remember(board, best, best_vector)
    return done
