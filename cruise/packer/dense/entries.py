"""The entries of the vector that decides between plans: the greater one is better, entry by entry."""

from dataclasses import dataclass

import numpy as np

from cruise.packer.arrays import IntArray
from cruise.packer.dense.instance import Instance


@dataclass(frozen=True, slots=True, eq=False)
class Entries:
    """What copies add: a placed one 1 to entry `place[class]`, a staying one `weight[class]` to entry `stay[class]`.

    `tier[entry]` is the tier that an entry is about (the last one where it is about all), `stays[entry]` tells whether
    it is about staying.
    """

    place: IntArray
    stay: IntArray
    weight: IntArray
    tier: tuple[int, ...]
    stays: tuple[bool, ...]

    def vector(self, running: IntArray, assignment: IntArray) -> IntArray:
        """What an assignment of copies to nodes achieves."""
        vector = np.zeros(len(self.tier), dtype=np.int64)
        np.add.at(vector, self.place, assignment.sum(axis=1))
        np.add.at(vector, self.stay, self.weight * np.minimum(assignment, running).sum(axis=1))
        return vector

    def of(self, classes: IntArray) -> "Entries":
        """The same entries for some of the classes."""
        return Entries(self.place[classes], self.stay[classes], self.weight[classes], self.tier, self.stays)


def tiers_of(instance: Instance) -> IntArray:
    """The tier of each class, counted from the highest priority, 0."""
    order = np.unique(instance.priorities)
    return np.asarray(len(order) - 1 - np.searchsorted(order, instance.priorities), dtype=np.int64)


def entries_of(instance: Instance) -> Entries:
    """The entries of an instance."""
    tiers, count = tiers_of(instance), len(instance.tiers())
    if instance.stays_last:
        every = (*range(count), max(count - 1, 0))
        stays = (*(False,) * count, True)
        return Entries(tiers, np.full_like(tiers, count), instance.weights, every, stays)
    pairs = tuple(tier for tier in range(count) for _ in range(2))
    return Entries(2 * tiers, 2 * tiers + 1, np.ones_like(tiers), pairs, (False, True) * count)


def settled(instance: Instance, assignment: IntArray, entry: int) -> frozenset[int]:
    """The tiers of which an assignment leaves all that runs, as what is as good before an entry does as well."""
    entries = entries_of(instance)
    stayed, ran = (entries.vector(instance.running, one) for one in (assignment, instance.running))
    return frozenset(entries.tier[e] for e in range(entry) if entries.stays[e] and stayed[e] == ran[e])
