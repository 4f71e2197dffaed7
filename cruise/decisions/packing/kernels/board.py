"""A placement that kernels change copy by copy, its exact vector always at hand."""

from typing import NamedTuple

import numpy as np

from cruise.decisions.packing.instance import FloatArray, IntArray
from cruise.decisions.packing.kernels.compiling import kernel, lean

# The most copies that one proposal puts and takes.
LOG_LENGTH = 16
MOST_EJECTED = 2
_SPARE = 4


class Board(NamedTuple):
    """Copies on nodes and copies that wait.

    `x[class, node]`, `free[node, resource]`; `items[node, slot]` are the classes of the `sizes[node]` copies there;
    the first `waits[0]` of `waiting` are the classes of waiting copies. `vector` holds places and stays of each tier
    in turn: compared entry by entry it is exact for any number of pods. `worth` and `loyalty` are the energies of a
    placed and of a staying copy. `homes[home_starts[c]:home_starts[c + 1]]` are the nodes where copies of c run.
    `log[k]` is (class, node, +1 put or -1 taken) of the first `logged[0]` changes since the last decision; `ejected`
    is scratch.
    """

    x: IntArray
    free: IntArray
    items: IntArray
    sizes: IntArray
    waiting: IntArray
    waits: IntArray
    vector: IntArray
    demands: IntArray
    running: IntArray
    limits: IntArray
    tiers: IntArray
    worth: FloatArray
    loyalty: FloatArray
    homes: IntArray
    home_starts: IntArray
    log: IntArray
    logged: IntArray
    ejected: IntArray


@kernel
def lay_out(
    x: IntArray,
    demands: IntArray,
    counts: IntArray,
    running: IntArray,
    limits: IntArray,
    room: IntArray,
    tiers: IntArray,
    tier_count: int,
    worth: FloatArray,
    loyalty: FloatArray,
) -> Board:
    """The board of a placement `x`, which it goes on to change in place."""
    classes, nodes = x.shape
    free = room.copy()
    total = 0
    for c in range(classes):
        total += counts[c]
    sizes = np.zeros(nodes, np.int64)
    items = np.empty((nodes, total + _SPARE), np.int64)
    waiting = np.empty(total + _SPARE, np.int64)
    waits = np.zeros(1, np.int64)
    vector = np.zeros(2 * tier_count, np.int64)
    home_starts = np.zeros(classes + 1, np.int64)
    homes = np.empty(np.count_nonzero(running), np.int64)
    for c in range(classes):
        home_starts[c + 1] = home_starts[c]
        placed = 0
        for n in range(nodes):
            copies = x[c, n]
            placed += copies
            vector[2 * tiers[c] + 1] += min(copies, running[c, n])
            for _ in range(copies):
                items[n, sizes[n]] = c
                sizes[n] += 1
            for r in range(free.shape[1]):
                free[n, r] -= copies * demands[c, r]
            if running[c, n] > 0:
                homes[home_starts[c + 1]] = n
                home_starts[c + 1] += 1
        vector[2 * tiers[c]] += placed
        for _ in range(counts[c] - placed):
            waiting[waits[0]] = c
            waits[0] += 1
    log, logged = np.zeros((LOG_LENGTH, 3), np.int64), np.zeros(1, np.int64)
    return Board(
        x,
        free,
        items,
        sizes,
        waiting,
        waits,
        vector,
        demands,
        running,
        limits,
        tiers,
        worth,
        loyalty,
        homes,
        home_starts,
        log,
        logged,
        np.empty(MOST_EJECTED, np.int64),
    )


@lean
def put(board: Board, c: int, n: int) -> float:
    """Place one copy; the energy that this takes away."""
    gain = board.worth[c]
    tier = board.tiers[c]
    board.vector[2 * tier] += 1
    if board.x[c, n] < board.running[c, n]:
        board.vector[2 * tier + 1] += 1
        gain += board.loyalty[c]
    board.x[c, n] += 1
    for r in range(board.free.shape[1]):
        board.free[n, r] -= board.demands[c, r]
    board.items[n, board.sizes[n]] = c
    board.sizes[n] += 1
    return float(gain)


@lean
def take(board: Board, slot: int, n: int) -> float:
    """Remove the copy in a slot, which the last copy takes over; the energy that this adds."""
    c = board.items[n, slot]
    tier = board.tiers[c]
    loss = board.worth[c]
    board.vector[2 * tier] -= 1
    if board.x[c, n] <= board.running[c, n]:
        board.vector[2 * tier + 1] -= 1
        loss += board.loyalty[c]
    board.x[c, n] -= 1
    for r in range(board.free.shape[1]):
        board.free[n, r] += board.demands[c, r]
    board.sizes[n] -= 1
    board.items[n, slot] = board.items[n, board.sizes[n]]
    return float(loss)


@lean
def note(board: Board, c: int, n: int, sign: int) -> None:
    """Write a change into the log."""
    k = board.logged[0]
    board.log[k, 0], board.log[k, 1], board.log[k, 2] = c, n, sign
    board.logged[0] = k + 1


@lean
def find(board: Board, c: int, n: int) -> int:
    """The slot of some copy of a class on a node that holds one."""
    slot = 0
    while board.items[n, slot] != c:
        slot += 1
    return slot


@lean
def carry_out(board: Board) -> float:
    """Make the changes of the log in their order; the energy that this adds."""
    energy = 0.0
    for k in range(board.logged[0]):
        c, n = board.log[k, 0], board.log[k, 1]
        if board.log[k, 2] < 0:
            energy += take(board, find(board, c, n), n)
        else:
            energy -= put(board, c, n)
    return energy


@lean
def undo(board: Board) -> None:
    """Take back the changes of the log, the last one first."""
    for k in range(board.logged[0] - 1, -1, -1):
        c, n = board.log[k, 0], board.log[k, 1]
        if board.log[k, 2] < 0:
            put(board, c, n)
        else:
            take(board, find(board, c, n), n)


@lean
def fits(board: Board, c: int, n: int) -> bool:
    """Tell whether one more copy of a class may be placed on a node."""
    if board.x[c, n] >= board.limits[c, n]:
        return False
    for r in range(board.free.shape[1]):
        if board.demands[c, r] > board.free[n, r]:
            return False
    return True


@lean
def surpasses(vector: IntArray, other: IntArray) -> bool:
    """Tell whether a vector is lexicographically greater than another."""
    for k in range(len(vector)):
        if vector[k] != other[k]:
            return bool(vector[k] > other[k])
    return False


@lean
def remember(board: Board, best: IntArray, best_vector: IntArray) -> None:
    """Copy the board's placement and vector to the best seen, without a view, which would be an allocation."""
    for c in range(board.x.shape[0]):
        for n in range(board.x.shape[1]):
            best[c, n] = board.x[c, n]
    for k in range(len(best_vector)):
        best_vector[k] = board.vector[k]
