"""A placement that kernels change copy by copy, its exact vector always at hand."""

from typing import NamedTuple

import numpy as np

from cruise.packer.arrays import FloatArray, IntArray
from cruise.packer.kernels.bonds import BROKEN, count_bonds
from cruise.packer.kernels.compiling import inlined, kernel, lean

# The most copies that one proposal puts and takes.
LOG_LENGTH = 16
MOST_EJECTED = 2
_SPARE = 4


class Placement(NamedTuple):
    """Copies on nodes and copies that wait.

    `x[class, node]`, `free[node, resource]` without headroom, of which the largest there, `peak[node, resource]`, has
    to fit in; `items[node, slot]` are the classes of the `sizes[node]` copies there; the first `waits[0]` of `waiting`
    are the classes of waiting copies. `vector` is compared entry by entry, exact for any number of pods: a placed copy
    adds 1 to entry `place[class]`, a staying one `weight[class]` to entry `stay[class]`. `worth` and `loyalty` are
    the energies of a placed and of a staying copy. `headroom` has no rows where nothing has any. At least
    `least[class]` copies are placed in whatever is remembered; `musts` are the classes where that is some.
    `homes[home_starts[c]:home_starts[c + 1]]` are the nodes where copies of c run. `log[k]` is (class, node, +1 put
    or -1 taken) of the first `logged[0]` changes since the last decision; `ejected` is scratch. `bonds` has the
    tables of rules between pods, and is empty without any.
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
    bonds: IntArray


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
    bonds: IntArray,
) -> Placement:
    """Lay out a placement `x`, which kernels then change in place.

    A node never holds more than `deepest` copies. `vector` comes with what copies outside of it add.
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
            for copy in range(copies):
                items[n, sizes[n]] = c
                sizes[n] += 1
                if bonds.shape[0] > 0:
                    count_bonds(bonds, c, n, 1, copy >= running[c, n])
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
    return Placement(
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
        bonds,
    )


@inlined
def put(placement: Placement, c: int, n: int) -> float:
    """Place one copy; the energy that this takes away."""
    gain = placement.worth[c]
    placement.vector[placement.place[c]] += 1
    if placement.x[c, n] < placement.running[c, n]:
        placement.vector[placement.stay[c]] += placement.weight[c]
        gain += placement.loyalty[c]
    if placement.bonds.shape[0] > 0:
        gain -= count_bonds(placement.bonds, c, n, 1, placement.x[c, n] >= placement.running[c, n])
    placement.x[c, n] += 1
    for r in range(placement.free.shape[1]):
        placement.free[n, r] -= placement.demands[c, r]
    if placement.headroom.shape[0] > 0:
        for r in range(placement.free.shape[1]):
            placement.peak[n, r] = max(placement.peak[n, r], placement.headroom[c, r])
    placement.items[n, placement.sizes[n]] = c
    placement.sizes[n] += 1
    return float(gain)


@inlined
def take(placement: Placement, slot: int, n: int) -> float:
    """Remove the copy in a slot, which the last copy takes over; the energy that this adds."""
    c = placement.items[n, slot]
    loss = placement.worth[c]
    placement.vector[placement.place[c]] -= 1
    if placement.x[c, n] <= placement.running[c, n]:
        placement.vector[placement.stay[c]] -= placement.weight[c]
        loss += placement.loyalty[c]
    if placement.bonds.shape[0] > 0:
        loss += count_bonds(placement.bonds, c, n, -1, placement.x[c, n] > placement.running[c, n])
    placement.x[c, n] -= 1
    for r in range(placement.free.shape[1]):
        placement.free[n, r] += placement.demands[c, r]
    placement.sizes[n] -= 1
    placement.items[n, slot] = placement.items[n, placement.sizes[n]]
    if placement.headroom.shape[0] > 0 and placement.x[c, n] == 0:
        _lower(placement, c, n)
    return float(loss)


@lean
def _lower(placement: Placement, c: int, n: int) -> None:
    """Find the largest headroom on a node anew, once the last copy of a class has left it."""
    for r in range(placement.free.shape[1]):
        if placement.headroom[c, r] < placement.peak[n, r]:
            continue
        top = placement.floor[n, r]
        for k in range(placement.sizes[n]):
            top = max(top, placement.headroom[placement.items[n, k], r])
        placement.peak[n, r] = top


@inlined
def note(placement: Placement, c: int, n: int, sign: int) -> None:
    """Write a change into the log."""
    k = placement.logged[0]
    placement.log[k, 0], placement.log[k, 1], placement.log[k, 2] = c, n, sign
    placement.logged[0] = k + 1


@inlined
def find(placement: Placement, c: int, n: int) -> int:
    """The slot of some copy of a class on a node that holds one."""
    slot = 0
    while placement.items[n, slot] != c:
        slot += 1
    return slot


@inlined
def carry_out(placement: Placement) -> float:
    """Make the changes of the log in their order; the energy that this adds."""
    energy = 0.0
    for k in range(placement.logged[0]):
        c, n = placement.log[k, 0], placement.log[k, 1]
        if placement.log[k, 2] < 0:
            energy += take(placement, find(placement, c, n), n)
        else:
            energy -= put(placement, c, n)
    return energy


@inlined
def undo(placement: Placement) -> None:
    """Take back the changes of the log, the last one first."""
    for k in range(placement.logged[0] - 1, -1, -1):
        c, n = placement.log[k, 0], placement.log[k, 1]
        if placement.log[k, 2] < 0:
            put(placement, c, n)
        else:
            take(placement, find(placement, c, n), n)


@inlined
def lacks_room(placement: Placement, c: int, n: int) -> bool:
    """Tell whether a node has too little room for one more copy of a class."""
    if placement.headroom.shape[0] > 0:
        for r in range(placement.free.shape[1]):
            if placement.demands[c, r] + max(placement.peak[n, r], placement.headroom[c, r]) > placement.free[n, r]:
                return True
        return False
    for r in range(placement.free.shape[1]):
        if placement.demands[c, r] > placement.free[n, r]:
            return True
    return False


@inlined
def fits(placement: Placement, c: int, n: int) -> bool:
    """Tell whether one more copy of a class may be placed on a node."""
    return placement.x[c, n] < placement.limits[c, n] and not lacks_room(placement, c, n)


@inlined
def bursts(placement: Placement) -> bool:
    """Tell whether headroom no longer fits in on a node of the log."""
    if placement.headroom.shape[0] == 0:
        return False
    for k in range(placement.logged[0]):
        n = placement.log[k, 1]
        for r in range(placement.free.shape[1]):
            if placement.peak[n, r] > placement.free[n, r]:
                return True
    return False


@lean
def keeps(placement: Placement) -> bool:
    """Tell whether as many copies of each class are placed as have to be, and no rule between pods is broken."""
    if placement.bonds.shape[0] > 0 and placement.bonds[BROKEN] > 0:
        return False
    for k in range(len(placement.musts)):
        c, placed = placement.musts[k], 0
        for n in range(placement.x.shape[1]):
            placed += placement.x[c, n]
        if placed < placement.least[c]:
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
def remember(placement: Placement, best: IntArray, best_vector: IntArray) -> None:
    """Copy the placement and its vector to the best seen, without a view, which would be an allocation."""
    for c in range(placement.x.shape[0]):
        for n in range(placement.x.shape[1]):
            best[c, n] = placement.x[c, n]
    for k in range(len(best_vector)):
        best_vector[k] = placement.vector[k]
