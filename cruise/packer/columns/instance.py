"""What is left to decide of an instance once some copies are nailed to where they run."""

from dataclasses import dataclass

import numpy as np

from cruise.packer.problem import (
    BoolArray,
    FloatArray,
    IntArray,
    PackingObjective,
    PackingProblem,
    compute_loads,
    count_copies,
)

# A packing problem as plain arrays: classes of identical pods, nodes, and where copies run now.


@dataclass(frozen=True, slots=True, eq=False)
class PackingInstance:
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
    maximum: IntArray
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

    def count_priority_levels(self) -> list[int]:
        """Every priority that some class has, the highest first."""
        return sorted({int(priority) for priority in self.priorities}, reverse=True)


# From pods on nodes to copies of classes on nodes.


def build_instance(problem: PackingProblem) -> PackingInstance:
    """The problem's classes and nodes, without rules between pods.

    Two rules of arrivals are left out, which a filling of one node cannot express: what is over its capacity takes
    nothing more, here it takes as much as runs there, and all classes preempt.
    """
    running, (sums, largest) = count_copies(problem, problem.pod_node), compute_loads(problem, problem.pod_node)
    counts = np.bincount(problem.pod_class, minlength=problem.class_count).astype(np.int64)
    most = np.where(
        problem.allowed_nodes[problem.node_mask_of_class], np.minimum(problem.max_on_node, counts)[:, None], 0
    )
    return PackingInstance(
        demands=problem.demands,
        headroom=problem.headroom,
        priorities=problem.priorities,
        counts=counts,
        movable=problem.movable,
        preemptible=problem.preemptible,
        weights=problem.weights // get_eviction_weight_unit(problem),
        running=running,
        maximum=most,
        capacities=np.maximum(problem.capacities, sums + largest),
        stays_last=problem.objective is PackingObjective.OPERATOR,
    )


def get_eviction_weight_unit(problem: PackingProblem) -> int:
    """What all weights of evictions are multiples of."""
    return max(int(np.gcd.reduce(problem.weights)), 1) if len(problem.weights) else 1


def convert_entry(problem: PackingProblem, entry: int, value: int) -> int:
    """An entry of the instance's vector in the problem's key: weights of evictions, where those of stays are found."""
    if problem.objective is PackingObjective.PAPER or entry < len(np.unique(problem.priorities)):
        return value
    ran = problem.pod_class[problem.pod_node >= 0]
    return get_eviction_weight_unit(problem) * value - int(problem.weights[ran].sum())


# The entries of the vector that decides between plans: the greater one is better, entry by entry.


@dataclass(frozen=True, slots=True, eq=False)
class ObjectiveEntries:
    """What copies add: a placed one 1 to entry `place[class]`, a staying one `weight[class]` to entry `stay[class]`.

    `tier[entry]` is the tier that an entry is about (the last one where it is about all), `stays[entry]` tells whether
    it is about staying.
    """

    place_entry: IntArray
    stay_entry: IntArray
    weight: IntArray
    priority_level: tuple[int, ...]
    stays: tuple[bool, ...]

    def compute_vector(self, running: IntArray, assignment: IntArray) -> IntArray:
        """What an assignment of copies to nodes achieves."""
        vector = np.zeros(len(self.priority_level), dtype=np.int64)
        np.add.at(vector, self.place_entry, assignment.sum(axis=1))
        np.add.at(vector, self.stay_entry, self.weight * np.minimum(assignment, running).sum(axis=1))
        return vector

    def compute(self, classes: IntArray) -> "ObjectiveEntries":
        """The same entries for some of the classes."""
        return ObjectiveEntries(
            self.place_entry[classes], self.stay_entry[classes], self.weight[classes], self.priority_level, self.stays
        )


def get_priority_levels(instance: PackingInstance) -> IntArray:
    """The tier of each class, counted from the highest priority, 0."""
    order = np.unique(instance.priorities)
    return np.asarray(len(order) - 1 - np.searchsorted(order, instance.priorities), dtype=np.int64)


def build_entries(instance: PackingInstance) -> ObjectiveEntries:
    """The entries of an instance."""
    tiers, count = get_priority_levels(instance), len(instance.count_priority_levels())
    if instance.stays_last:
        every = (*range(count), max(count - 1, 0))
        stays = (*(False,) * count, True)
        return ObjectiveEntries(tiers, np.full_like(tiers, count), instance.weights, every, stays)
    pairs = tuple(tier for tier in range(count) for _ in range(2))
    return ObjectiveEntries(2 * tiers, 2 * tiers + 1, np.ones_like(tiers), pairs, (False, True) * count)


def find_complete_levels(instance: PackingInstance, assignment: IntArray, entry: int) -> frozenset[int]:
    """The tiers of which an assignment leaves all that runs, as what is as good before an entry does as well."""
    entries = build_entries(instance)
    stayed, ran = (entries.compute_vector(instance.running, one) for one in (assignment, instance.running))
    return frozenset(entries.priority_level[e] for e in range(entry) if entries.stays[e] and stayed[e] == ran[e])


# In energies, which only guide, a tier outweighs the next one by this factor.
PRIORITY_RATIO = 12.0


@dataclass(frozen=True, slots=True, eq=False)
class ResidualInstance:
    """The free part of an instance; `nailed[class, node]` is the rest of every plan made from it.

    Its classes are rows of the instance (`origin`) in the same order, without their nailed copies. `tiers[class]`
    counts priorities from the highest, 0; `least[class]` of its copies are placed in every plan.
    `limits[class, node]` already covers what may stay. `room[node, resource]` is never below `floor[node, resource]`,
    the headroom that nailed copies keep. `headroom` has no rows where nothing has any. Resources that cannot run out
    are left out.
    """

    instance: PackingInstance
    fixed: IntArray
    origin: IntArray
    demands: IntArray
    headroom: IntArray
    tiers: IntArray
    counts: IntArray
    minimum: IntArray
    running: IntArray
    limits: IntArray
    free_capacity: IntArray
    floor: IntArray
    entries: ObjectiveEntries
    base: IntArray

    @property
    def compute_value(self) -> FloatArray:
        """What a staying copy of each class is worth, in copies placed of the last tier."""
        if self.instance.stays_last:
            return np.asarray(self.entries.weight / max(int(self.entries.weight.max(initial=1)), 1))
        below = len(self.instance.count_priority_levels()) - 1 - self.tiers
        return np.asarray(np.power(PRIORITY_RATIO, below.astype(np.float64)))

    def vector(self, assignment: IntArray) -> IntArray:
        """What the whole plan made from an assignment achieves."""
        return self.base + self.entries.compute_vector(self.running, assignment)

    def to_whole(self, assignment: IntArray) -> IntArray:
        """The instance's assignment for one of the residual."""
        total = self.fixed.copy()
        total[self.origin] += assignment
        return total

    def to_residual(self, assignment: IntArray) -> IntArray:
        """The residual's assignment for one of the instance that keeps the nailed copies."""
        return np.ascontiguousarray(assignment[self.origin] - self.fixed[self.origin])


def build_residual(instance: PackingInstance, nailed_tiers: frozenset[int] = frozenset()) -> ResidualInstance:
    """Nail what cannot move, and every running copy of the given tiers."""
    tiers = get_priority_levels(instance)
    settled = np.isin(tiers, np.array(sorted(nailed_tiers), dtype=np.int64))
    nailed = np.where((~instance.movable | settled)[:, None], instance.running, 0)
    stuck = nailed.sum(axis=1)
    counts = instance.counts - stuck
    most = np.maximum(instance.maximum, instance.running) - nailed
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
    entries = build_entries(instance)
    return ResidualInstance(
        instance=instance,
        fixed=nailed,
        origin=keep,
        demands=np.ascontiguousarray(instance.demands[keep][:, columns]),
        headroom=np.ascontiguousarray(headroom),
        tiers=tiers[keep],
        counts=counts[keep],
        minimum=must[keep],
        running=np.ascontiguousarray((instance.running - nailed)[keep]),
        limits=np.ascontiguousarray(limits[keep]),
        free_capacity=np.ascontiguousarray(room[:, columns]),
        floor=np.ascontiguousarray(floor[:, columns]),
        entries=entries.compute(keep),
        base=entries.compute_vector(nailed, nailed),
    )


def _floor_of(instance: PackingInstance, nailed: IntArray) -> IntArray:
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
