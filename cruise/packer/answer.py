"""Represents what the packer answers, and bounds it by counting capacity."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from cruise.packer.problem import (
    BoolArray,
    FloatArray,
    IntArray,
    PackingObjective,
    PackingProblem,
    compute_loads,
    compute_price,
)


class PackingStatus(StrEnum):
    """What is known about a packing."""

    OPTIMAL = "optimal"
    ALREADY_OPTIMAL = "already-optimal"
    FEASIBLE = "feasible"
    NO_IMPROVEMENT = "no-improvement"

    @property
    def is_proved(self) -> bool:
        """Return whether no packing is better."""
        return self in (PackingStatus.OPTIMAL, PackingStatus.ALREADY_OPTIMAL)


@dataclass(frozen=True, slots=True, order=True)
class PriorityFigures:
    """What a packing achieves for one priority: pods placed, and pods that stay on their node."""

    priority: int
    placed: int
    not_moved: int


@dataclass(frozen=True, slots=True)
class PackingFigures:
    """What a packing achieves: figures by priority, highest first, the eviction weight and the nodes' price."""

    priorities: tuple[PriorityFigures, ...]
    eviction_weight: int
    price: int = 0

    @property
    def placed(self) -> tuple[int, ...]:
        """Return how many pods of each priority are placed."""
        return tuple(priority.placed for priority in self.priorities)

    def get_key(self, objective: PackingObjective) -> tuple[int, ...]:
        """Return the key by which packings are compared, entry by entry; a greater one is better."""
        if objective is PackingObjective.PAPER:
            return tuple(figure for priority in self.priorities for figure in (priority.placed, priority.not_moved))
        price = (-self.price,) if objective is PackingObjective.CONSOLIDATION else ()
        return (*self.placed, *price, -self.eviction_weight)


class PackingNoteCode(StrEnum):
    """Remarks about a packing or a plan in addition to its figures."""

    # of the search
    NO_TIME = "no-time"
    OVER_TIME = "over-time"
    STILL_COMPILING = "still-compiling"
    COMPILES_ONCE = "compiles-once"
    SOLVER_NOT_STARTED = "solver-not-started"
    SOLVER_ENDED = "solver-ended"
    # of what was found
    EVICTIONS_NEEDED = "evictions-needed"
    EVICTIONS_NOT_PROVED = "evictions-not-proved"
    PACKING_DROPPED = "packing-dropped"
    PLAN_DROPPED = "plan-dropped"
    NODES_KEPT = "nodes-kept"
    OTHER_ORDERS = "other-orders"
    # of the cluster
    PODS_IGNORED = "pods-ignored"
    NODES_MISSING = "nodes-missing"


@dataclass(frozen=True, slots=True)
class PackingNote:
    """A remark; `detail` is its cause, `count` the number of pods it is about."""

    code: PackingNoteCode
    detail: str = ""
    count: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Packing:
    """An assignment that obeys every rule of its problem; `pod_node[pod]` is -1 for a pod without a node.

    `bound` has for each entry of the key what no packing exceeds that is as good in the entries before.
    `needs_evictions` indicates that no packing without evictions is as good. `min_evicted` is the number of pods that
    every plan evicts that places as many of each priority. `notes` tell what was left out, and why.
    """

    pod_node: IntArray
    current: PackingFigures
    planned: PackingFigures
    bound: tuple[int, ...]
    status: PackingStatus
    needs_evictions: bool = False
    notes: tuple[PackingNote, ...] = ()
    min_evicted: int = 0


# Called with every packing that is better than the one before, or has a better bound.
ReportFunction = Callable[[Packing], None]


def ignore_packing(packing: Packing) -> None:
    """Report nothing: the packing may break a rule, or be no better than the known one."""


def compute_figures(problem: PackingProblem, pod_node: IntArray) -> PackingFigures:
    """Return what an assignment achieves."""
    priorities = problem.priorities[problem.pod_class]
    placed, was_running = pod_node >= 0, problem.pod_node >= 0
    stayed = was_running & (pod_node == problem.pod_node)
    figures = tuple(
        PriorityFigures(priority, int((mine & placed).sum()), int((mine & stayed).sum()))
        for priority in np.unique(problem.priorities)[::-1].tolist()
        for mine in (priorities == priority,)
    )
    weight = int(problem.weights[problem.pod_class[was_running & ~stayed]].sum())
    return PackingFigures(figures, weight, compute_price(problem, pod_node))


def build_packing(
    problem: PackingProblem, pod_node: IntArray, bound: tuple[int, ...], notes: tuple[PackingNote, ...] = ()
) -> Packing:
    """Return the packing of an assignment and its bound."""
    current, planned = compute_figures(problem, problem.pod_node), compute_figures(problem, pod_node)
    is_better = planned.get_key(problem.objective) > current.get_key(problem.objective)
    is_proved = planned.get_key(problem.objective) == bound
    if is_better:
        status = PackingStatus.OPTIMAL if is_proved else PackingStatus.FEASIBLE
    else:
        status = PackingStatus.ALREADY_OPTIMAL if is_proved else PackingStatus.NO_IMPROVEMENT
    needs_evictions = problem.objective is PackingObjective.OPERATOR and bound[-1] < 0
    return Packing(
        pod_node, current, planned, bound, status, needs_evictions, notes, _get_min_evicted(problem, current, bound)
    )


def _get_min_evicted(problem: PackingProblem, now: PackingFigures, bound: tuple[int, ...]) -> int:
    """Return how many pods every plan evicts that places as many, if the bound of one entry tells it."""
    if problem.objective is PackingObjective.OPERATOR:
        return -(bound[-1] // max(int(problem.weights.max(initial=1)), 1))
    if problem.objective is PackingObjective.PAPER and len(now.priorities) == 1:
        return now.priorities[0].not_moved - bound[1]
    return 0


def compute_counting_bound(problem: PackingProblem) -> tuple[int, ...]:
    """Return for each entry of the key what no packing exceeds, whatever the entries before.

    No more pods are placed than fit all nodes taken as one, the smallest first, in addition to pods that cannot be
    evicted.
    """
    placed = _bound_placed(problem)
    priorities = problem.priorities[problem.pod_class]
    if problem.objective is PackingObjective.PAPER:
        running = problem.pod_node >= 0
        tiers = np.unique(problem.priorities)[::-1].tolist()
        running_count = [int((running & (priorities == priority)).sum()) for priority in tiers]
        return tuple(entry for pair in zip(placed, running_count, strict=True) for entry in pair)
    if problem.objective is PackingObjective.CONSOLIDATION:
        immovable = (problem.pod_node >= 0) & ~problem.movable[problem.pod_class]
        return (*placed, -compute_price(problem, np.where(immovable, problem.pod_node, -1)), 0)
    return (*placed, 0)


class BestKnown:
    """The key of the best assignment so far and its bound: each entry's bound is for packings as good before it.

    `upper_bounds` is what no packing exceeds, whatever the entries before.
    """

    __slots__ = ("bound", "key", "upper_bounds")

    def __init__(self, key: tuple[int, ...], upper_bounds: tuple[int, ...]) -> None:
        self.key, self.upper_bounds, self.bound = key, upper_bounds, upper_bounds

    @property
    def is_proved(self) -> bool:
        """Return whether no packing is better."""
        return self.key == self.bound

    def set_key(self, key: tuple[int, ...]) -> None:
        """Replace the key by a better one; after an entry in which it is worse, the bounds do not hold."""
        first_worse = next((entry for entry, value in enumerate(self.key) if key[entry] < value), len(key))
        self.bound = (*self.bound[: first_worse + 1], *self.upper_bounds[first_worse + 1 :])
        self.key = key

    def update_bound(self, key: tuple[int, ...], bound: Sequence[int]) -> bool:
        """Apply a bound that was proved for a key; return whether it improves the known one.

        After the first entry in which that key differs, it is about packings that are not as good.
        """
        first_different = next((entry for entry, value in enumerate(self.key) if key[entry] != value), len(key))
        known = self.bound
        self.bound = (*map(min, bound[: first_different + 1], known), *known[first_different + 1 :])
        return self.bound != known


def build_alternative_packing(
    problem: PackingProblem, packing: Packing, pod_node: IntArray, notes: tuple[PackingNote, ...]
) -> Packing:
    """Return the packing of another assignment, which may be worse, with the bound that still holds."""
    known = BestKnown(packing.planned.get_key(problem.objective), compute_counting_bound(problem))
    known.bound = packing.bound
    known.set_key(compute_figures(problem, pod_node).get_key(problem.objective))
    return build_packing(problem, pod_node, known.bound, notes)


def compute_min_evictions(problem: PackingProblem) -> int:
    """Return the least eviction weight with which all pods can be placed.

    A pod that fits on no node needs evictions, and then uses at most what was free on these nodes and what they free.
    """
    without_node = _find_pods_without_node(problem)
    needs = problem.demands[problem.pod_class[without_node]].sum(axis=0)
    movable_pods = np.flatnonzero((problem.pod_node >= 0) & problem.movable[problem.pod_class])
    used, _ = compute_loads(problem, problem.pod_node)
    free = np.maximum(problem.capacities - used, 0)
    gains = free[problem.pod_node[movable_pods]] + problem.demands[problem.pod_class[movable_pods]]
    weights = problem.weights[problem.pod_class[movable_pods]].astype(np.float64)
    min_weight, smallest_weight = 0.0, float(weights.min(initial=np.inf)) if len(weights) else 0.0
    for r in np.flatnonzero(needs).tolist():
        # Evictions are whole: as many as the greatest gains take, each of at least the least weight.
        largest_gains = np.cumsum(np.sort(gains[:, r])[::-1])
        pods = int(np.searchsorted(largest_gains, needs[r])) + 1
        min_weight = max(
            min_weight, pods * smallest_weight, _compute_fractional_weight(gains[:, r], weights, int(needs[r]))
        )
    return int(np.ceil(min_weight - 1e-6))


def _compute_fractional_weight(gains: IntArray, weights: FloatArray, need: int) -> float:
    """Return the least weight whose gains cover the need, if fractions of pods count."""
    order = np.argsort(-gains / np.maximum(weights, 1e-9), kind="stable")
    sums = np.cumsum(gains[order])
    whole = int(np.searchsorted(sums, need))
    total = float(weights[order[:whole]].sum())
    if whole < len(order):
        rest = (need - (int(sums[whole - 1]) if whole else 0)) / max(int(gains[order[whole]]), 1)
        total += float(rest * weights[order[whole]])
    return total


def _find_pods_without_node(problem: PackingProblem) -> IntArray:
    """Return the pending pods that fit on no node as it is."""
    used, _ = compute_loads(problem, problem.pod_node)
    free = problem.capacities - used
    pending = np.flatnonzero(problem.pod_node < 0)
    fits_nowhere = np.zeros(problem.class_count, dtype=np.bool_)
    for c in np.unique(problem.pod_class[pending]).tolist():
        needed = problem.demands[c] > 0
        has_capacity = (free[:, needed] >= problem.demands[c, needed]).all(axis=1)
        fits_nowhere[c] = not (has_capacity & problem.allowed_nodes[problem.node_mask_of_class[c]]).any()
    return pending[fits_nowhere[problem.pod_class[pending]]]


def _bound_placed(problem: PackingProblem) -> list[int]:
    """Return for each priority, highest first, an upper bound of the placed pods."""
    always_placed = _find_always_placed(problem)
    placeable = always_placed | _fits_somewhere(problem)[problem.pod_class] | (problem.pod_node >= 0)
    base = problem.demands[problem.pod_class[always_placed]].sum(axis=0)
    # Pods that stay on an overcommitted node take no capacity from other nodes.
    used, _ = compute_loads(problem, problem.pod_node)
    free = np.maximum(problem.capacities, used).sum(axis=0) - base
    resources = np.flatnonzero(problem.demands.any(axis=0)).tolist()
    bounds = []
    for priority in np.unique(problem.priorities)[::-1].tolist():
        mine = problem.priorities[problem.pod_class] == priority
        copies = np.bincount(problem.pod_class[mine & placeable & ~always_placed], minlength=problem.class_count)
        fitting = min(
            (_count_fitting(problem.demands[:, r], copies, int(free[r])) for r in resources), default=int(copies.sum())
        )
        bounds.append(int((mine & always_placed).sum()) + fitting)
    return bounds


def _count_fitting(demands: IntArray, copies: IntArray, capacity: int) -> int:
    """Return how many copies fit at most, the smallest first."""
    order = np.argsort(demands, kind="stable")
    sums = np.cumsum(demands[order] * copies[order])
    whole_classes = int(np.searchsorted(sums, capacity, side="right"))
    count = int(copies[order[:whole_classes]].sum())
    if whole_classes == len(order):
        return count
    left = capacity - (int(sums[whole_classes - 1]) if whole_classes else 0)
    return count + max(left // int(demands[order[whole_classes]]), 0)


def _find_always_placed(problem: PackingProblem) -> BoolArray:
    """Return the pods that every plan places."""
    stuck = ~problem.movable | ~problem.preemptible
    return (problem.pod_node >= 0) & stuck[problem.pod_class]


def _fits_somewhere(problem: PackingProblem) -> BoolArray:
    """Return for each class whether an empty allowed node would hold one pod."""
    fits = np.zeros(problem.class_count, dtype=np.bool_)
    for mask in np.unique(problem.node_mask_of_class).tolist():
        classes = problem.node_mask_of_class == mask
        capacities = np.unique(problem.capacities[problem.allowed_nodes[mask]], axis=0)
        needs = problem.demands[classes] + problem.headroom[classes]
        for capacity in capacities:
            fits[classes] |= (needs <= capacity).all(axis=1)
    return fits & (problem.max_on_node > 0)
