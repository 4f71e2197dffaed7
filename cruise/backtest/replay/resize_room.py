"""Which grows of a pass have room now: what the guards of a live application let through, in columns."""

import numpy as np

from cruise.backtest.replay.policy import Sizes
from cruise.decisions.sizing.dead_band import DeadBand
from cruise.domain.arrays import BoolArray, Int64Array
from cruise.domain.resources import ResourceName


def held_to_room(
    patched: BoolArray,
    wanted: Sizes,
    current: Sizes,
    node: Int64Array,
    free: tuple[Int64Array, Int64Array],
    band: DeadBand,
) -> BoolArray:
    """Cut, in place, what grows without room to the part that takes none; return which are left to be written.

    One entry a pod, in the order in which they take room; `free` is what each node has left over what it counts before
    anything of this pass is done: what shrinks frees its room only once it is actual. As in `Guards.has_room` and
    `without_growth` on a live cluster.
    """  # fmt: skip
    growth = tuple(
        np.maximum(np.where(patched, want - now, 0), 0)
        for want, now in (
            (wanted.cpu_millicores, current.cpu_millicores),
            (wanted.memory_bytes, current.memory_bytes),
        )
    )
    refused = _refused(growth, node, free)
    if not refused.size:
        return patched
    limit, before = wanted.memory_limit_bytes, current.memory_limit_bytes
    # A limit that was raised for the request alone stays with it.
    idle = refused[(limit == wanted.memory_bytes)[refused] & (growth[1] > 0)[refused] & (before > 0)[refused]]
    limit[idle] = before[idle]
    for want, now in ((wanted.cpu_millicores, current.cpu_millicores), (wanted.memory_bytes, current.memory_bytes)):
        want[refused] = np.minimum(want[refused], now[refused])
    # A request that is not stated must stay so, and has no limit either.
    bare = refused[wanted.memory_bytes[refused] == 0]
    wanted.memory_limit_bytes[bare] = 0
    left = patched.copy()
    left[refused] = leave_dead_band(wanted, current, band)[refused]
    return left


def _refused(growth: tuple[Int64Array, ...], node: Int64Array, free: tuple[Int64Array, Int64Array]) -> Int64Array:
    crowded = np.zeros(len(free[0]), dtype=np.bool_)
    for more, left in zip(growth, free, strict=True):
        wanted = np.zeros(len(left), dtype=np.int64)
        np.add.at(wanted, node, more)
        crowded |= (wanted > 0) & (wanted > left)
    growers = np.flatnonzero(crowded[node] & ((growth[0] > 0) | (growth[1] > 0)))
    room_cpu, room_memory = free[0].tolist(), free[1].tolist()
    refused = []
    columns = (growers, node[growers], growth[0][growers], growth[1][growers])
    for at, on, cpu, memory in zip(*(column.tolist() for column in columns), strict=True):
        if (cpu == 0 or cpu <= room_cpu[on]) and (memory == 0 or memory <= room_memory[on]):
            room_cpu[on] -= cpu
            room_memory[on] -= memory
        else:
            refused.append(at)
    return np.array(refused, dtype=np.int64)


def leave_dead_band(wanted: Sizes, current: Sizes, band: DeadBand) -> BoolArray:
    """Tell for each pod whether any of its sizes moves far enough to be written."""
    return (
        band.leaves(ResourceName.CPU, current.cpu_millicores, wanted.cpu_millicores)
        | band.leaves(ResourceName.MEMORY, current.memory_bytes, wanted.memory_bytes)
        | band.leaves(ResourceName.MEMORY, current.memory_limit_bytes, wanted.memory_limit_bytes)
    )
