"""A packing problem as plain arrays: classes of identical pods, nodes, and where copies run now."""

from dataclasses import dataclass

from cruise.packer.arrays import BoolArray, IntArray


@dataclass(frozen=True, slots=True, eq=False)
class Instance:
    """Classes of identical pods, and the nodes that may hold them.

    `demands[class, resource]` and `capacities[node, resource]` are in each resource's own whole unit; on a node the
    demands of its copies sum up, and the largest `headroom[class, resource]` among them is kept once. A greater
    `priorities[class]` matters more. `counts[class]` copies exist, of which `running[class, node]` are bound.
    `most[class, node]` is how many copies a node may hold: 0 where the class is not allowed; what runs there
    already may stay all the same. Running copies of a class that is not `movable` stay, even on a node that
    they overfill; such a node takes nothing more of the resource that is short. Of a class that is not `preemptible`
    as many copies are placed as run now. Staying matters for each priority right after placing; where `stays_last`,
    by the `weights[class]` of all staying copies after everything placed.
    """

    demands: IntArray
    headroom: IntArray
    priorities: IntArray
    counts: IntArray
    movable: BoolArray
    preemptible: BoolArray
    weights: IntArray
    running: IntArray
    most: IntArray
    capacities: IntArray
    stays_last: bool = False

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
