"""A packing problem as plain arrays: classes of identical pods, nodes, and where copies run now."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Instance:
    """Classes of identical pods, and the nodes that may hold them.

    `demands[class, resource]` and `capacities[node, resource]` are in each resource's own whole unit. A greater
    `priorities[class]` matters more. `counts[class]` copies exist, of which `running[class, node]` are bound.
    `most[class, node]` is how many copies a node may hold: 0 where the class is not allowed; what runs there
    already may stay all the same. Running copies of a class that is not `movable` stay, even on a node that
    they overfill; such a node takes nothing more of the resource that is short.
    """

    demands: IntArray
    priorities: IntArray
    counts: IntArray
    movable: BoolArray
    running: IntArray
    most: IntArray
    capacities: IntArray

    @property
    def class_count(self) -> int:
        """How many classes there are."""
        return int(self.demands.shape[0])

    @property
    def node_count(self) -> int:
        """How many nodes there are."""
        return int(self.capacities.shape[0])

    def tiers(self) -> list[int]:
        """Every priority that some class has, the highest first."""
        return sorted({int(priority) for priority in self.priorities}, reverse=True)


def find_faults(instance: Instance) -> list[str]:
    """What makes the arrays no problem at all, in words; an empty list for a sound instance."""
    classes, nodes = instance.class_count, instance.node_count
    resources = instance.demands.shape[1] if instance.demands.ndim == 2 else 0
    shapes = {
        "demands": (instance.demands.shape, (classes, resources)),
        "priorities": (instance.priorities.shape, (classes,)),
        "counts": (instance.counts.shape, (classes,)),
        "movable": (instance.movable.shape, (classes,)),
        "running": (instance.running.shape, (classes, nodes)),
        "most": (instance.most.shape, (classes, nodes)),
        "capacities": (instance.capacities.shape, (nodes, resources)),
    }
    faults = [f"{name} has shape {found}, not {wanted}" for name, (found, wanted) in shapes.items() if found != wanted]
    if faults:
        return faults
    for name in ("demands", "counts", "running", "most", "capacities"):
        if (getattr(instance, name) < 0).any():
            faults.append(f"{name} has a negative entry")
    if (instance.running.sum(axis=1) > instance.counts).any():
        faults.append("more copies run than exist")
    return faults
