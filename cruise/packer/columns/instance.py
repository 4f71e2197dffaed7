"""Converts a problem to copies of classes on nodes, and reduces it to what is not fixed."""

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


@dataclass(frozen=True, slots=True, eq=False)
class PackingInstance:
    """Classes of identical pods, and the nodes that may hold them.

    Amounts are in the whole unit of each resource; on a node the `demands` of its copies add up, and the largest
    `headroom` counts once. `counts[class]` copies exist, of which `running[class, node]` are bound. `maximum[class,
    node]` is how many a node may hold, 0 if the class is not allowed; running copies may stay anyway. Copies that are
    not `movable` stay, even on an overcommitted node, which takes nothing more of the scarce resource. Of a class that
    is not `preemptible` as many copies are placed as run now. Staying matters for each priority right after placing;
    with `stays_last`, by the `weights[class]` of all staying copies after everything placed.
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
        """Return the number of classes."""
        return int(self.demands.shape[0])

    @property
    def node_count(self) -> int:
        """Return the number of nodes."""
        return int(self.capacities.shape[0])

    def list_priorities(self) -> list[int]:
        """Return the distinct priorities, the highest first."""
        return sorted({int(priority) for priority in self.priorities}, reverse=True)


def build_instance(problem: PackingProblem) -> PackingInstance:
    """Return the classes and nodes of a problem, without rules between pods.

    Two rules about arrivals are omitted, because a pattern of one node cannot express them: an overcommitted node takes
    as much as runs there now, and all classes preempt.
    """
    running, (sums, largest) = count_copies(problem, problem.pod_node), compute_loads(problem, problem.pod_node)
    counts = np.bincount(problem.pod_class, minlength=problem.class_count).astype(np.int64)
    maximum = np.where(
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
        maximum=maximum,
        capacities=np.maximum(problem.capacities, sums + largest),
        stays_last=problem.objective is PackingObjective.OPERATOR,
    )


def get_eviction_weight_unit(problem: PackingProblem) -> int:
    """Return the greatest common divisor of all eviction weights."""
    return max(int(np.gcd.reduce(problem.weights)), 1) if len(problem.weights) else 1


def convert_objective_entry(problem: PackingProblem, entry: int, value: int) -> int:
    """Return the value of an entry of the problem's key from that of the instance."""
    if problem.objective is PackingObjective.PAPER or entry < len(np.unique(problem.priorities)):
        return value
    running = problem.pod_class[problem.pod_node >= 0]
    return get_eviction_weight_unit(problem) * value - int(problem.weights[running].sum())


@dataclass(frozen=True, slots=True, eq=False)
class ObjectiveEntries:
    """How copies count: placed ones add 1 to `place_entry[class]`, staying ones `weight[class]` to `stay_entry[class]`.

    `priority_level[entry]` is the priority level of an entry (the last one if it is about all), `stays[entry]` tells
    whether it counts staying copies.
    """

    place_entry: IntArray
    stay_entry: IntArray
    weight: IntArray
    priority_level: tuple[int, ...]
    stays: tuple[bool, ...]

    def compute_vector(self, running: IntArray, assignment: IntArray) -> IntArray:
        """Return what an assignment of copies achieves."""
        vector = np.zeros(len(self.priority_level), dtype=np.int64)
        np.add.at(vector, self.place_entry, assignment.sum(axis=1))
        np.add.at(vector, self.stay_entry, self.weight * np.minimum(assignment, running).sum(axis=1))
        return vector

    def compute(self, classes: IntArray) -> "ObjectiveEntries":
        """Return the entries for some of the classes."""
        return ObjectiveEntries(
            self.place_entry[classes], self.stay_entry[classes], self.weight[classes], self.priority_level, self.stays
        )


def get_priority_levels(instance: PackingInstance) -> IntArray:
    """Return the level of each class: 0 for the highest priority."""
    order = np.unique(instance.priorities)
    return np.asarray(len(order) - 1 - np.searchsorted(order, instance.priorities), dtype=np.int64)


def build_objective_entries(instance: PackingInstance) -> ObjectiveEntries:
    """Return the entries of an instance."""
    tiers, count = get_priority_levels(instance), len(instance.list_priorities())
    if instance.stays_last:
        entry_levels = (*range(count), max(count - 1, 0))
        stays = (*(False,) * count, True)
        return ObjectiveEntries(tiers, np.full_like(tiers, count), instance.weights, entry_levels, stays)
    pairs = tuple(tier for tier in range(count) for _ in range(2))
    return ObjectiveEntries(2 * tiers, 2 * tiers + 1, np.ones_like(tiers), pairs, (False, True) * count)


def find_complete_levels(instance: PackingInstance, assignment: IntArray, entry: int) -> frozenset[int]:
    """Return the levels of which all running copies stay in every plan that is as good before an entry."""
    entries = build_objective_entries(instance)
    stayed, all_running = (entries.compute_vector(instance.running, one) for one in (assignment, instance.running))
    return frozenset(
        entries.priority_level[e] for e in range(entry) if entries.stays[e] and stayed[e] == all_running[e]
    )


# In energies, which only guide the search, a priority outweighs the next one by this factor.
PRIORITY_RATIO = 12.0


@dataclass(frozen=True, slots=True, eq=False)
class ResidualInstance:
    """The part of an instance that is not fixed; `fixed[class, node]` is the rest of every plan.

    Its classes are rows of the instance (`origin`), without their fixed copies. `minimum[class]` of its copies are
    placed in every plan. `limits[class, node]` includes copies that may stay. `free_capacity[node, resource]` is never
    below `floor`, the headroom of fixed copies. `headroom` has no rows if it is all zero. Resources that cannot run out
    are omitted.
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
        """Return the value of a staying copy of each class, in placed copies of the lowest priority."""
        if self.instance.stays_last:
            return np.asarray(self.entries.weight / max(int(self.entries.weight.max(initial=1)), 1))
        below = len(self.instance.list_priorities()) - 1 - self.tiers
        return np.asarray(np.power(PRIORITY_RATIO, below.astype(np.float64)))

    def compute_vector(self, assignment: IntArray) -> IntArray:
        """Return what the whole plan of an assignment achieves."""
        return self.base + self.entries.compute_vector(self.running, assignment)

    def to_whole(self, assignment: IntArray) -> IntArray:
        """Return the instance's assignment for one of the residual."""
        total = self.fixed.copy()
        total[self.origin] += assignment
        return total

    def to_residual(self, assignment: IntArray) -> IntArray:
        """Return the residual's assignment for one of the instance that keeps the fixed copies."""
        return np.ascontiguousarray(assignment[self.origin] - self.fixed[self.origin])


def fix_running_copies(instance: PackingInstance, fixed_levels: frozenset[int] = frozenset()) -> ResidualInstance:
    """Fix immovable copies, and every running copy of some priority levels."""
    tiers = get_priority_levels(instance)
    is_fixed_level = np.isin(tiers, np.array(sorted(fixed_levels), dtype=np.int64))
    fixed = np.where((~instance.movable | is_fixed_level)[:, None], instance.running, 0)
    fixed_counts = fixed.sum(axis=1)
    counts = instance.counts - fixed_counts
    maximum = np.maximum(instance.maximum, instance.running) - fixed
    floor = _compute_floor(instance, fixed)
    free_capacity = np.maximum(instance.capacities - fixed.T @ instance.demands, floor)
    # A class that fits nowhere has no variable.
    fits_alone = np.ones_like(maximum, dtype=np.bool_)
    for r in range(free_capacity.shape[1]):
        shared = np.maximum(instance.headroom[:, r, None], floor[None, :, r])
        fits_alone &= instance.demands[:, r, None] + shared <= free_capacity[None, :, r]
    limits = np.where(fits_alone, np.minimum(maximum, counts[:, None]), 0)
    keep = np.flatnonzero(limits.any(axis=1) & (counts > 0))
    columns = _find_scarce_resources(
        instance.demands[keep],
        counts[keep],
        free_capacity,
        free_capacity - np.maximum(floor, instance.headroom[keep].max(axis=0, initial=0)),
    )
    headroom = instance.headroom[keep][:, columns]
    if not headroom.any():
        headroom, free_capacity, floor = headroom[:0], free_capacity - floor, np.zeros_like(floor)
    minimum = np.where(instance.preemptible, 0, np.maximum(instance.running.sum(axis=1) - fixed_counts, 0))
    entries = build_objective_entries(instance)
    return ResidualInstance(
        instance=instance,
        fixed=fixed,
        origin=keep,
        demands=np.ascontiguousarray(instance.demands[keep][:, columns]),
        headroom=np.ascontiguousarray(headroom),
        tiers=tiers[keep],
        counts=counts[keep],
        minimum=minimum[keep],
        running=np.ascontiguousarray((instance.running - fixed)[keep]),
        limits=np.ascontiguousarray(limits[keep]),
        free_capacity=np.ascontiguousarray(free_capacity[:, columns]),
        floor=np.ascontiguousarray(floor[:, columns]),
        entries=entries.compute(keep),
        base=entries.compute_vector(fixed, fixed),
    )


def _compute_floor(instance: PackingInstance, fixed: IntArray) -> IntArray:
    """Return the largest headroom of the fixed copies on each node."""
    floor = np.zeros_like(instance.capacities)
    for c in np.flatnonzero(instance.headroom.any(axis=1) & fixed.any(axis=1)).tolist():
        nodes = fixed[c] > 0
        floor[nodes] = np.maximum(floor[nodes], instance.headroom[c])
    return floor


def _find_scarce_resources(demands: IntArray, counts: IntArray, capacity: IntArray, free: IntArray) -> IntArray:
    """Return the resources that may run out on some node; `free` is left of `capacity` under any headroom.

    Another resource limits how much of one can be needed together: by the largest ratio of the two in a class.
    """
    scarce: list[int] = []
    nodes, resources = free.shape
    if not nodes or not len(demands):
        return np.arange(resources)
    for r in range(resources):
        max_demand = np.full(nodes, int(counts @ demands[:, r]), dtype=np.float64)
        for other in range(resources):
            # An omitted resource limits as well, but two must not omit each other.
            needs_it = demands[:, r] > 0
            if other != r and (other > r or other in scarce) and (demands[needs_it, other] > 0).all():
                ratio = float((demands[needs_it, r] / demands[needs_it, other]).max(initial=0.0))
                max_demand = np.minimum(max_demand, ratio * capacity[:, other])
        if (max_demand * (1 + 1e-9) > free[:, r]).any():
            scarce.append(r)
    return np.array(scarce or range(min(1, resources)), dtype=np.int64)
