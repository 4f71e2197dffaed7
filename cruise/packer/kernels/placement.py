"""Represents a placement that kernels change copy by copy, with its exact key."""

from typing import NamedTuple

import numpy as np

from cruise.packer.kernels.compilation import compile_inline, compile_kernel, compile_without_allocation
from cruise.packer.problem import FloatArray, IntArray

# Violations of the rules between pods by a placement, as energies that guide a search; verification decides.

# They are one array, as with the tables of `rule_counts`. t[BROKEN] is the sum of all violations. The rules of class c
# are listed from t[LISTED] + t[STARTS + c] on, each as 4 * rule + role: 1 for holders, 2 for targets, 3 for both.
# t[t[ROW + k] + node] is the domain d of rule k (-1: none). It counts holders that arrived at t[FIRST + k] + d, and
# targets t[DOMAINS + k] later. MOST is the rule's limit, WEIGHT the energy of one pod too many in thousandths, NOW the
# number of pods too many.
BROKEN, STARTS, LISTED, KIND, FIRST, DOMAINS, MOST, WEIGHT, NOW, ROW = range(10)
RULE_ENERGY_TABLES = 10
# The kinds of rules. In the domain of a holder that arrived there are at most so many targets, or at most so many more
# than in the smallest domain, or at least one target, where the first holder may arrive alone or not. At least so many
# running pods stay.
MAX_TARGETS, SKEW, AFFINITY, SELF_AFFINITY, STAYING = range(5)


@compile_without_allocation
def _count_broken(t: IntArray, k: int) -> int:
    kind, first, domains, most = t[t[KIND] + k], t[t[FIRST] + k], t[t[DOMAINS] + k], t[t[MOST] + k]
    if kind == STAYING:
        return int(max(most - t[first + 1], 0))
    broken, min_count = 0, 0
    if kind == SKEW:
        min_count = t[first + domains]
        for d in range(1, domains):
            min_count = min(min_count, t[first + domains + d])
    if kind <= SKEW:
        for d in range(domains):
            if t[first + d] > 0:
                broken += max(t[first + domains + d] - min_count - most, 0)
        return broken
    # Holders among the targets do not count for each other, unless one may be the first.
    others, largest = 0, 0
    for d in range(domains):
        arrived_count = t[first + d]
        target_count = t[first + domains + d] - (arrived_count if kind == SELF_AFFINITY else 0)
        others += target_count
        largest = max(largest, arrived_count)
        if target_count <= 0:
            broken += arrived_count
    return int(broken - largest if kind == SELF_AFFINITY and others == 0 else broken)


@compile_without_allocation
def update_rule_energy(t: IntArray, c: int, n: int, step: int, arrived: bool) -> float:
    """Count a copy of a class that arrives on a node (`step` 1) or leaves it (-1); return the energy this adds."""
    energy = 0
    for i in range(t[t[STARTS] + c], t[t[STARTS] + c + 1]):
        k, role = t[t[LISTED] + i] >> 2, t[t[LISTED] + i] & 3
        d = t[t[t[ROW] + k] + n]
        stays = t[t[KIND] + k] == STAYING
        if d < 0 or (arrived and (stays or role == 0)):
            continue
        if role & 1 and arrived:
            t[t[t[FIRST] + k] + d] += step
        if role & 2:
            t[t[t[FIRST] + k] + t[t[DOMAINS] + k] + d] += step
        broken = _count_broken(t, k)
        change = broken - t[t[NOW] + k]
        if change != 0:
            t[t[NOW] + k] = broken
            t[BROKEN] += change
            energy += change * t[t[WEIGHT] + k]
    return energy / 1000.0


# The most copies that one proposal places and removes.
LOG_LENGTH = 16
MAX_EJECTED = 2
_SPARE = 4


class CopyPlacement(NamedTuple):
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
    waiting_count: IntArray
    vector: IntArray
    demands: IntArray
    headroom: IntArray
    floor: IntArray
    minimum: IntArray
    required: IntArray
    running: IntArray
    limits: IntArray
    place: IntArray
    stay: IntArray
    weight: IntArray
    value: FloatArray
    home_bonus: FloatArray
    home_nodes: IntArray
    home_starts: IntArray
    log: IntArray
    logged: IntArray
    ejected: IntArray
    rule_energies: IntArray


@compile_kernel
def initialise_placement(
    x: IntArray,
    demands: IntArray,
    headroom: IntArray,
    counts: IntArray,
    min_count: IntArray,
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
) -> CopyPlacement:
    """Initialize a placement `x`, which kernels then change in place.

    A node never holds more than `deepest` copies. `vector` already includes copies outside of it.
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
                    update_rule_energy(bonds, c, n, 1, copy >= running[c, n])
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
    return CopyPlacement(
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
        min_count,
        np.flatnonzero(min_count),
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
        np.empty(MAX_EJECTED, np.int64),
        bonds,
    )


@compile_inline
def place_copy(placement: CopyPlacement, c: int, n: int) -> float:
    """Place one copy; return the energy this removes."""
    gain = placement.value[c]
    placement.vector[placement.place[c]] += 1
    if placement.x[c, n] < placement.running[c, n]:
        placement.vector[placement.stay[c]] += placement.weight[c]
        gain += placement.home_bonus[c]
    if placement.rule_energies.shape[0] > 0:
        gain -= update_rule_energy(placement.rule_energies, c, n, 1, placement.x[c, n] >= placement.running[c, n])
    placement.x[c, n] += 1
    for r in range(placement.free.shape[1]):
        placement.free[n, r] -= placement.demands[c, r]
    if placement.headroom.shape[0] > 0:
        for r in range(placement.free.shape[1]):
            placement.peak[n, r] = max(placement.peak[n, r], placement.headroom[c, r])
    placement.items[n, placement.sizes[n]] = c
    placement.sizes[n] += 1
    return float(gain)


@compile_inline
def remove_copy(placement: CopyPlacement, slot: int, n: int) -> float:
    """Remove the copy in a slot, which the last copy takes over; return the energy this adds."""
    c = placement.items[n, slot]
    loss = placement.value[c]
    placement.vector[placement.place[c]] -= 1
    if placement.x[c, n] <= placement.running[c, n]:
        placement.vector[placement.stay[c]] -= placement.weight[c]
        loss += placement.home_bonus[c]
    if placement.rule_energies.shape[0] > 0:
        loss += update_rule_energy(placement.rule_energies, c, n, -1, placement.x[c, n] > placement.running[c, n])
    placement.x[c, n] -= 1
    for r in range(placement.free.shape[1]):
        placement.free[n, r] += placement.demands[c, r]
    placement.sizes[n] -= 1
    placement.items[n, slot] = placement.items[n, placement.sizes[n]]
    if placement.headroom.shape[0] > 0 and placement.x[c, n] == 0:
        _recompute_headroom(placement, c, n)
    return float(loss)


@compile_without_allocation
def _recompute_headroom(placement: CopyPlacement, c: int, n: int) -> None:
    """Recompute the largest headroom on a node after the last copy of a class has left."""
    for r in range(placement.free.shape[1]):
        if placement.headroom[c, r] < placement.peak[n, r]:
            continue
        top = placement.floor[n, r]
        for k in range(placement.sizes[n]):
            top = max(top, placement.headroom[placement.items[n, k], r])
        placement.peak[n, r] = top


@compile_inline
def log_change(placement: CopyPlacement, c: int, n: int, sign: int) -> None:
    """Log a change."""
    k = placement.logged[0]
    placement.log[k, 0], placement.log[k, 1], placement.log[k, 2] = c, n, sign
    placement.logged[0] = k + 1


@compile_inline
def find_copy_slot(placement: CopyPlacement, c: int, n: int) -> int:
    """Return the slot of a copy of a class on a node that holds one."""
    slot = 0
    while placement.items[n, slot] != c:
        slot += 1
    return slot


@compile_inline
def apply_log(placement: CopyPlacement) -> float:
    """Apply the logged changes in order; return the energy this adds."""
    energy = 0.0
    for k in range(placement.logged[0]):
        c, n = placement.log[k, 0], placement.log[k, 1]
        if placement.log[k, 2] < 0:
            energy += remove_copy(placement, find_copy_slot(placement, c, n), n)
        else:
            energy -= place_copy(placement, c, n)
    return energy


@compile_inline
def undo_log(placement: CopyPlacement) -> None:
    """Undo the logged changes, the last one first."""
    for k in range(placement.logged[0] - 1, -1, -1):
        c, n = placement.log[k, 0], placement.log[k, 1]
        if placement.log[k, 2] < 0:
            place_copy(placement, c, n)
        else:
            remove_copy(placement, find_copy_slot(placement, c, n), n)


@compile_inline
def lacks_capacity(placement: CopyPlacement, c: int, n: int) -> bool:
    """Return whether a node has too little capacity for one more copy of a class."""
    if placement.headroom.shape[0] > 0:
        for r in range(placement.free.shape[1]):
            if placement.demands[c, r] + max(placement.peak[n, r], placement.headroom[c, r]) > placement.free[n, r]:
                return True
        return False
    for r in range(placement.free.shape[1]):
        if placement.demands[c, r] > placement.free[n, r]:
            return True
    return False


@compile_inline
def may_place(placement: CopyPlacement, c: int, n: int) -> bool:
    """Return whether one more copy of a class may be placed on a node."""
    return placement.x[c, n] < placement.limits[c, n] and not lacks_capacity(placement, c, n)


@compile_inline
def exceeds_headroom(placement: CopyPlacement) -> bool:
    """Return whether headroom no longer fits on a node of the log."""
    if placement.headroom.shape[0] == 0:
        return False
    for k in range(placement.logged[0]):
        n = placement.log[k, 1]
        for r in range(placement.free.shape[1]):
            if placement.peak[n, r] > placement.free[n, r]:
                return True
    return False


@compile_without_allocation
def keeps_requirements(placement: CopyPlacement) -> bool:
    """Return whether as many copies of each class are placed as required, and no rule between pods is broken."""
    if placement.rule_energies.shape[0] > 0 and placement.rule_energies[BROKEN] > 0:
        return False
    for k in range(len(placement.required)):
        c, placed = placement.required[k], 0
        for n in range(placement.x.shape[1]):
            placed += placement.x[c, n]
        if placed < placement.minimum[c]:
            return False
    return True


@compile_inline
def is_greater(vector: IntArray, other: IntArray) -> bool:
    """Return whether a vector is lexicographically greater than another."""
    for k in range(len(vector)):
        if vector[k] != other[k]:
            return bool(vector[k] > other[k])
    return False


@compile_without_allocation
def save_best(placement: CopyPlacement, best: IntArray, best_vector: IntArray) -> None:
    """Copy the placement and its vector to the best seen, without a view, which would be an allocation."""
    for c in range(placement.x.shape[0]):
        for n in range(placement.x.shape[1]):
            best[c, n] = placement.x[c, n]
    for k in range(len(best_vector)):
        best_vector[k] = placement.vector[k]
