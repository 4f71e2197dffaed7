"""What is left to decide of an instance once some copies are nailed to where they run."""

from dataclasses import dataclass

import numpy as np

from cruise.decisions.packing.instance import Instance, IntArray


@dataclass(frozen=True, slots=True, eq=False)
class Residual:
    """The free part of an instance; `nailed[class, node]` is the rest of every plan made from it.

    Its classes are rows of the instance (`origin`) in the same order, without their nailed copies. `tiers[class]`
    counts priorities from the highest, 0.
    `limits[class, node]` already covers what may stay, and `room[node, resource]` is never negative.
    """

    instance: Instance
    nailed: IntArray
    origin: IntArray
    demands: IntArray
    tiers: IntArray
    counts: IntArray
    running: IntArray
    limits: IntArray
    room: IntArray

    def whole(self, assignment: IntArray) -> IntArray:
        """The instance's assignment for one of the residual."""
        total = self.nailed.copy()
        total[self.origin] += assignment
        return total

    def part(self, assignment: IntArray) -> IntArray:
        """The residual's assignment for one of the instance that keeps the nailed copies."""
        return np.ascontiguousarray(assignment[self.origin] - self.nailed[self.origin])


def residual_of(instance: Instance, nailed_tiers: frozenset[int] = frozenset()) -> Residual:
    """Nail what cannot move, and every running copy of the given tiers."""
    order = {priority: index for index, priority in enumerate(instance.tiers())}
    tiers = np.array([order[int(priority)] for priority in instance.priorities], dtype=np.int64)
    settled = np.isin(tiers, np.array(sorted(nailed_tiers), dtype=np.int64))
    nailed = np.where((~instance.movable | settled)[:, None], instance.running, 0)
    counts = instance.counts - nailed.sum(axis=1)
    most = np.maximum(instance.most, instance.running) - nailed
    room = np.maximum(instance.capacities - nailed.T @ instance.demands, 0)
    # What can go nowhere is no variable.
    alone = (instance.demands[:, None, :] <= room[None, :, :]).all(axis=2)
    limits = np.where(alone, np.minimum(most, counts[:, None]), 0)
    keep = np.flatnonzero(limits.any(axis=1) & (counts > 0))
    return Residual(
        instance=instance,
        nailed=nailed,
        origin=keep,
        demands=np.ascontiguousarray(instance.demands[keep]),
        tiers=tiers[keep],
        counts=counts[keep],
        running=np.ascontiguousarray((instance.running - nailed)[keep]),
        limits=np.ascontiguousarray(limits[keep]),
        room=np.ascontiguousarray(room),
    )
