"""What is left to decide of an instance once some copies are nailed to where they run."""

from dataclasses import dataclass

import numpy as np

from cruise.packer.arrays import FloatArray, IntArray
from cruise.packer.dense.entries import Entries, entries_of, tiers_of
from cruise.packer.dense.instance import Instance

# In energies, which only guide, a tier outweighs the next one by this factor.
TIER_RATIO = 12.0


@dataclass(frozen=True, slots=True, eq=False)
class Residual:
    """The free part of an instance; `nailed[class, node]` is the rest of every plan made from it.

    Its classes are rows of the instance (`origin`) in the same order, without their nailed copies. `tiers[class]`
    counts priorities from the highest, 0; `least[class]` of its copies are placed in every plan.
    `limits[class, node]` already covers what may stay. `room[node, resource]` is never below `floor[node, resource]`,
    the headroom that nailed copies keep. `headroom` has no rows where nothing has any. Resources that cannot run out
    are left out.
    """

    instance: Instance
    nailed: IntArray
    origin: IntArray
    demands: IntArray
    headroom: IntArray
    tiers: IntArray
    counts: IntArray
    least: IntArray
    running: IntArray
    limits: IntArray
    room: IntArray
    floor: IntArray
    entries: Entries
    base: IntArray

    @property
    def worth(self) -> FloatArray:
        """What a staying copy of each class is worth, in copies placed of the last tier."""
        if self.instance.stays_last:
            return np.asarray(self.entries.weight / max(int(self.entries.weight.max(initial=1)), 1))
        below = len(self.instance.tiers()) - 1 - self.tiers
        return np.asarray(np.power(TIER_RATIO, below.astype(np.float64)))

    def vector(self, assignment: IntArray) -> IntArray:
        """What the whole plan made from an assignment achieves."""
        return self.base + self.entries.vector(self.running, assignment)

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
    tiers = tiers_of(instance)
    settled = np.isin(tiers, np.array(sorted(nailed_tiers), dtype=np.int64))
    nailed = np.where((~instance.movable | settled)[:, None], instance.running, 0)
    stuck = nailed.sum(axis=1)
    counts = instance.counts - stuck
    most = np.maximum(instance.most, instance.running) - nailed
    floor = _floor_of(instance, nailed)
    room = np.maximum(instance.capacities - nailed.T @ instance.demands, floor)
    # What can go nowhere is no variable.
    alone = np.ones_like(most, dtype=np.bool_)
    for r in range(room.shape[1]):
        shared = np.maximum(instance.headroom[:, r, None], floor[None, :, r])
        alone &= instance.demands[:, r, None] + shared <= room[None, :, r]
    limits = np.where(alone, np.minimum(most, counts[:, None]), 0)
    keep = np.flatnonzero(limits.any(axis=1) & (counts > 0))
    columns = _scarce(
        instance.demands[keep],
        counts[keep],
        room,
        room - np.maximum(floor, instance.headroom[keep].max(axis=0, initial=0)),
    )
    headroom = instance.headroom[keep][:, columns]
    if not headroom.any():
        headroom, room, floor = headroom[:0], room - floor, np.zeros_like(floor)
    must = np.where(instance.preemptible, 0, np.maximum(instance.running.sum(axis=1) - stuck, 0))
    entries = entries_of(instance)
    return Residual(
        instance=instance,
        nailed=nailed,
        origin=keep,
        demands=np.ascontiguousarray(instance.demands[keep][:, columns]),
        headroom=np.ascontiguousarray(headroom),
        tiers=tiers[keep],
        counts=counts[keep],
        least=must[keep],
        running=np.ascontiguousarray((instance.running - nailed)[keep]),
        limits=np.ascontiguousarray(limits[keep]),
        room=np.ascontiguousarray(room[:, columns]),
        floor=np.ascontiguousarray(floor[:, columns]),
        entries=entries.of(keep),
        base=entries.vector(nailed, nailed),
    )


def _floor_of(instance: Instance, nailed: IntArray) -> IntArray:
    """The largest headroom of the nailed copies on each node."""
    floor = np.zeros_like(instance.capacities)
    for c in np.flatnonzero(instance.headroom.any(axis=1) & nailed.any(axis=1)).tolist():
        here = nailed[c] > 0
        floor[here] = np.maximum(floor[here], instance.headroom[c])
    return floor


def _scarce(demands: IntArray, counts: IntArray, whole: IntArray, room: IntArray) -> IntArray:
    """The resources that may run out on some node, of whose `whole` room `room` is left under any headroom.

    Another resource limits how much of one can come together: by the greatest ratio of the two that a class asks for.
    """
    scarce: list[int] = []
    nodes, resources = room.shape
    if not nodes or not len(demands):
        return np.arange(resources)
    for r in range(resources):
        most = np.full(nodes, int(counts @ demands[:, r]), dtype=np.float64)
        for other in range(resources):
            # What was left out limits all the same, but two must not rule each other out.
            asking = demands[:, r] > 0
            if other != r and (other > r or other in scarce) and (demands[asking, other] > 0).all():
                ratio = float((demands[asking, r] / demands[asking, other]).max(initial=0.0))
                most = np.minimum(most, ratio * whole[:, other])
        if (most * (1 + 1e-9) > room[:, r]).any():
            scarce.append(r)
    return np.array(scarce or range(min(1, resources)), dtype=np.int64)
