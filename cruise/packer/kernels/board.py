"""A placement that kernels change copy by copy, its exact vector always at hand."""

from typing import NamedTuple

import numpy as np

from cruise.packer.instance import FloatArray, IntArray
from cruise.packer.kernels.compiling import inlined, kernel, lean

# The most copies that one proposal puts and takes.
LOG_LENGTH = 16
MOST_EJECTED = 2
_SPARE = 4


class Board(NamedTuple):
    """Copies on nodes and copies that wait.

    `x[class, node]`, `free[node, resource]` without headroom, of which the largest there, `peak[node, resource]`, has
    to fit in; `items[node, slot]` are the classes of the `sizes[node]` copies there; the first `waits[0]` of `waiting`
    are the classes of waiting copies. `vector` is compared entry by entry, exact for any number of pods: a placed copy
    adds 1 to entry `place[class]`, a staying one `weight[class]` to entry `stay[class]`. `worth` and `loyalty` are
    the energies of a placed and of a staying copy. `headroom` has no rows where nothing has any. At least
    `least[class]` copies are placed in whatever is remembered; `musts` are the classes where that is some.
    `homes[home_starts[c]:home_starts[c + 1]]` are the nodes where copies of c run. `log[k]` is (class, node, +1 put
    or -1 taken) of the first `logged[0]` changes since the last decision; `ejected` is scratch.
    """

    x: IntArray
    free: IntArray
    peak: IntArray
    items: IntArray
    sizes: IntArray
    waiting: IntArray
    waits: IntArray
    vector: IntArray
    demands: IntArray
    headroom: IntArray
    floor: IntArray
    least: IntArray
    musts: IntArray
    running: IntArray
    limits: IntArray
    place: IntArray
    stay: IntArray
    weight: IntArray
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
    headroom: IntArray,
    counts: IntArray,
    least: IntArray,
    running: IntArray,
    limits: IntArray,
    room: IntArray,
    floor: IntArray,
    deepest: int,
    place: IntArray,
    stay: IntArray,
    weight: IntArray,
    vector: IntArray,
    worth: FloatArray,
    loyalty: FloatArray,
) -> Board:
    """The board of a placement `x`, which it goes on to change in place.

    A node never holds more than `deepest` copies. `vector` comes with what the copies that are not on the board add.
    """
    classes, nodes = x.shape
    free, peak = room.copy(), floor.copy()
    total = 0
    for c in range(classes):
        total += counts[c]
    sizes = np.zeros(nodes, np.int64)
    items = np.empty((nodes, min(total, deepest) + _SPARE), np.int64)
    waiting = np.empty(total + _SPARE, np.int64)
    waits = np.zeros(1, np.int64)
    home_starts = np.zeros(classes + 1, np.int64)
    homes = np.empty(np.count_nonzero(running), np.int64)
    for c in range(classes):
        home_starts[c + 1] = home_starts[c]
        placed = 0
        for n in range(nodes):
            copies = x[c, n]
            placed += copies
            vector[stay[c]] += weight[c] * min(copies, running[c, n])
            for _ in range(copies):
                items[n, sizes[n]] = c
                sizes[n] += 1
            for r in range(free.shape[1]):
                free[n, r] -= copies * demands[c, r]
                if copies > 0 and headroom.shape[0] > 0:
                    peak[n, r] = max(peak[n, r], headroom[c, r])
            if running[c, n] > 0:
                homes[home_starts[c + 1]] = n
                home_starts[c + 1] += 1
        vector[place[c]] += placed
        for _ in range(counts[c] - placed):
            waiting[waits[0]] = c
            waits[0] += 1
    log, logged = np.zeros((LOG_LENGTH, 3), np.int64), np.zeros(1, np.int64)
    return Board(
        x,
        free,
        peak,
        items,
        sizes,
        waiting,
        waits,
        vector,
        demands,
        headroom,
        floor,
        least,
        np.flatnonzero(least),
        running,
        limits,
        place,
        stay,
        weight,
        worth,
        loyalty,
        homes,
        home_starts,
        log,
        logged,
        np.empty(MOST_EJECTED, np.int64),
    )


@inlined
def put(board: Board, c: int, n: int) -> float:
    """Place one copy; the energy that this takes away."""
    gain = board.worth[c]
    board.vector[board.place[c]] += 1
    if board.x[c, n] < board.running[c, n]:
        board.vector[board.stay[c]] += board.weight[c]
        gain += board.loyalty[c]
    board.x[c, n] += 1
    for r in range(board.free.shape[1]):
        board.free[n, r] -= board.demands[c, r]
    if board.headroom.shape[0] > 0:
        for r in range(board.free.shape[1]):
            board.peak[n, r] = max(board.peak[n, r], board.headroom[c, r])
    board.items[n, board.sizes[n]] = c
    board.sizes[n] += 1
    return float(gain)


@inlined
def take(board: Board, slot: int, n: int) -> float:
    """Remove the copy in a slot, which the last copy takes over; the energy that this adds."""
    c = board.items[n, slot]
    loss = board.worth[c]
    board.vector[board.place[c]] -= 1
    if board.x[c, n] <= board.running[c, n]:
        board.vector[board.stay[c]] -= board.weight[c]
        loss += board.loyalty[c]
    board.x[c, n] -= 1
    for r in range(board.free.shape[1]):
        board.free[n, r] += board.demands[c, r]
    board.sizes[n] -= 1
    board.items[n, slot] = board.items[n, board.sizes[n]]
    if board.headroom.shape[0] > 0 and board.x[c, n] == 0:
        _lower(board, c, n)
    return float(loss)


@lean
def _lower(board: Board, c: int, n: int) -> None:
    """Find the largest headroom on a node anew, once the last copy of a class has left it."""
    for r in range(board.free.shape[1]):
        if board.headroom[c, r] < board.peak[n, r]:
            continue
        top = board.floor[n, r]
        for k in range(board.sizes[n]):
            top = max(top, board.headroom[board.items[n, k], r])
        board.peak[n, r] = top


@inlined
def note(board: Board, c: int, n: int, sign: int) -> None:
    """Write a change into the log."""
    k = board.logged[0]
    board.log[k, 0], board.log[k, 1], board.log[k, 2] = c, n, sign
    board.logged[0] = k + 1


@inlined
def find(board: Board, c: int, n: int) -> int:
    """The slot of some copy of a class on a node that holds one."""
    slot = 0
    while board.items[n, slot] != c:
        slot += 1
    return slot


@inlined
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


@inlined
def undo(board: Board) -> None:
    """Take back the changes of the log, the last one first."""
    for k in range(board.logged[0] - 1, -1, -1):
        c, n = board.log[k, 0], board.log[k, 1]
        if board.log[k, 2] < 0:
            put(board, c, n)
        else:
            take(board, find(board, c, n), n)


@inlined
def lacks_room(board: Board, c: int, n: int) -> bool:
    """Tell whether a node has too little room for one more copy of a class."""
    if board.headroom.shape[0] > 0:
        for r in range(board.free.shape[1]):
            if board.demands[c, r] + max(board.peak[n, r], board.headroom[c, r]) > board.free[n, r]:
                return True
        return False
    for r in range(board.free.shape[1]):
        if board.demands[c, r] > board.free[n, r]:
            return True
    return False


@inlined
def fits(board: Board, c: int, n: int) -> bool:
    """Tell whether one more copy of a class may be placed on a node."""
    return board.x[c, n] < board.limits[c, n] and not lacks_room(board, c, n)


@inlined
def bursts(board: Board) -> bool:
    """Tell whether headroom no longer fits in on a node of the log."""
    if board.headroom.shape[0] == 0:
        return False
    for k in range(board.logged[0]):
        n = board.log[k, 1]
        for r in range(board.free.shape[1]):
            if board.peak[n, r] > board.free[n, r]:
                return True
    return False


@lean
def keeps(board: Board) -> bool:
    """Tell whether as many copies of each class are placed as have to be."""
    for k in range(len(board.musts)):
        c, placed = board.musts[k], 0
        for n in range(board.x.shape[1]):
            placed += board.x[c, n]
        if placed < board.least[c]:
            return False
    return True


@inlined
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
