"""What no packing surpasses, by counting alone: valid at any size, tight where everything can be placed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations

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

# What the packer answers: a node for every pod, what that achieves, and what is proved about it.


class PackingStatus(StrEnum):
    """What is known about a packing."""

    OPTIMAL = "optimal"
    ALREADY_OPTIMAL = "already-optimal"
    FEASIBLE = "feasible"
    NO_IMPROVEMENT = "no-improvement"

    @property
    def is_proved(self) -> bool:
        """Tell whether no packing is better."""
        return self in (PackingStatus.OPTIMAL, PackingStatus.ALREADY_OPTIMAL)


@dataclass(frozen=True, slots=True, order=True)
class PriorityFigures:
    """What a plan achieves for one priority: copies placed, and copies left where they are."""

    priority: int
    placed: int
    not_moved: int


@dataclass(frozen=True, slots=True)
class PackingFigures:
    """What an assignment achieves: for each priority from the highest, the weight of evictions, the nodes' price."""

    priorities: tuple[PriorityFigures, ...]
    eviction_weight: int
    price: int = 0

    @property
    def get_placed(self) -> tuple[int, ...]:
        """How many pods of each priority have a place."""
        return tuple(tier.placed for tier in self.priorities)

    def get_key(self, objective: PackingObjective) -> tuple[int, ...]:
        """What decides which of two is better: the greater one, entry by entry."""
        if objective is PackingObjective.PAPER:
            return tuple(figure for tier in self.priorities for figure in (tier.placed, tier.not_moved))
        price = (-self.price,) if objective is PackingObjective.FLEET else ()
        return (*self.get_placed, *price, -self.eviction_weight)


class PackingNoteCode(StrEnum):
    """What there may be to say of a packing or a plan besides its figures."""

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
    """One such thing; `detail` is what is behind it, `count` how many pods it is about, where that says something."""

    code: PackingNoteCode
    detail: str = ""
    count: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Packing:
    """An assignment that obeys every rule of its problem; `pod_node[pod]` is -1 where a pod has no place.

    `bound` has for each entry of the figures' key what no assignment surpasses that is as good in the entries before.
    `needs_evictions` tells that it is proved that none without evictions is as good, even where more stays open.
    `least_evicted` pods at least are evicted by every plan that places as many of each priority. `notes` say
    what was left out, and why.
    """

    pod_node: IntArray
    current: PackingFigures
    planned: PackingFigures
    bound: tuple[int, ...]
    status: PackingStatus
    needs_evictions: bool = False
    notes: tuple[PackingNote, ...] = ()
    least_evicted: int = 0


# Called with every packing that is better, or whose bound is, than the one before.
ReportFunction = Callable[[Packing], None]


def compute_figures(problem: PackingProblem, pod_node: IntArray) -> PackingFigures:
    """What an assignment achieves."""
    priorities = problem.priorities[problem.pod_class]
    placed, ran = pod_node >= 0, problem.pod_node >= 0
    stayed = ran & (pod_node == problem.pod_node)
    tiers = tuple(
        PriorityFigures(priority, int((mine & placed).sum()), int((mine & stayed).sum()))
        for priority in np.unique(problem.priorities)[::-1].tolist()
        for mine in (priorities == priority,)
    )
    weight = int(problem.weights[problem.pod_class[ran & ~stayed]].sum())
    return PackingFigures(tiers, weight, compute_price(problem, pod_node))


def build_packing(
    problem: PackingProblem, pod_node: IntArray, bound: tuple[int, ...], notes: tuple[PackingNote, ...] = ()
) -> Packing:
    """The packing that an assignment and its bound make."""
    now, after = compute_figures(problem, problem.pod_node), compute_figures(problem, pod_node)
    better = after.get_key(problem.objective) > now.get_key(problem.objective)
    proved = after.get_key(problem.objective) == bound
    if better:
        status = PackingStatus.OPTIMAL if proved else PackingStatus.FEASIBLE
    else:
        status = PackingStatus.ALREADY_OPTIMAL if proved else PackingStatus.NO_IMPROVEMENT
    needs_evictions = problem.objective is PackingObjective.OPERATOR and bound[-1] < 0
    return Packing(pod_node, now, after, bound, status, needs_evictions, notes, _least_evicted(problem, now, bound))


def _least_evicted(problem: PackingProblem, now: PackingFigures, bound: tuple[int, ...]) -> int:
    """How many pods a plan evicts that places as many, as far as the bound of one entry says so."""
    if problem.objective is PackingObjective.OPERATOR:
        return -(bound[-1] // max(int(problem.weights.max(initial=1)), 1))
    if problem.objective is PackingObjective.PAPER and len(now.priorities) == 1:
        return now.priorities[0].not_moved - bound[1]
    return 0


# Demands count in whole parts of all room, so small that what rounding leaves out is nothing, and sums are exact.
_WHOLE_ROOM = 1 << 36
# Two resources are weighed together in so many ways.
_MIXES = 16


def compute_counting_bound(problem: PackingProblem) -> tuple[int, ...]:
    """For each entry of the objective's key, what no assignment surpasses, whatever the entries before.

    Pods placed: no more than fit all nodes taken as one, the smallest first, beside what cannot go.
    """
    placed = _placed_bounds(problem)
    priorities = problem.priorities[problem.pod_class]
    if problem.objective is PackingObjective.PAPER:
        running = problem.pod_node >= 0
        tiers = np.unique(problem.priorities)[::-1].tolist()
        stays = [int((running & (priorities == priority)).sum()) for priority in tiers]
        return tuple(entry for pair in zip(placed, stays, strict=True) for entry in pair)
    if problem.objective is PackingObjective.FLEET:
        stuck = (problem.pod_node >= 0) & ~problem.movable[problem.pod_class]
        return (*placed, -compute_price(problem, np.where(stuck, problem.pod_node, -1)), 0)
    return (*placed, 0)


class BestKnown:
    """The key of the best assignment so far, and what bounds it: each entry's bound is for what is as good before it.

    `most` is what no assignment surpasses, however good in the entries before.
    """

    __slots__ = ("bound", "key", "upper_bounds")

    def __init__(self, key: tuple[int, ...], most: tuple[int, ...]) -> None:
        self.key, self.upper_bounds, self.bound = key, most, most

    @property
    def is_proved(self) -> bool:
        """Whether nothing is better."""
        return self.key == self.bound

    def is_better(self, key: tuple[int, ...]) -> None:
        """Take a better key. Where it is worse in an entry, bounds of those behind say nothing about it."""
        falls = next((entry for entry, value in enumerate(self.key) if key[entry] < value), len(key))
        self.bound = (*self.bound[: falls + 1], *self.upper_bounds[falls + 1 :])
        self.key = key

    def update_bound(self, key: tuple[int, ...], bound: Sequence[int]) -> bool:
        """Take a bound that was proved beside a key; tell whether it says more than what is known.

        Behind the first entry in which that key differs it speaks of assignments that are as good as another one.
        """
        same = next((entry for entry, value in enumerate(self.key) if key[entry] != value), len(key))
        known = self.bound
        self.bound = (*map(min, bound[: same + 1], known), *known[same + 1 :])
        return self.bound != known


def build_alternative_packing(
    problem: PackingProblem, packing: Packing, pod_node: IntArray, notes: tuple[PackingNote, ...]
) -> Packing:
    """Another assignment than that of a packing, which may be worse, with what the packing proves of it."""
    known = BestKnown(packing.planned.get_key(problem.objective), compute_counting_bound(problem))
    known.bound = packing.bound
    known.is_better(compute_figures(problem, pod_node).get_key(problem.objective))
    return build_packing(problem, pod_node, known.bound, notes)


def compute_min_evictions(problem: PackingProblem) -> int:
    """The least weight of evictions with which all pods can be placed.

    What fits on no node as it is goes where something leaves, and takes no more than was free there and left.
    """
    stranded = _stranded(problem)
    needs = problem.demands[problem.pod_class[stranded]].sum(axis=0)
    runs = np.flatnonzero((problem.pod_node >= 0) & problem.movable[problem.pod_class])
    used, _ = compute_loads(problem, problem.pod_node)
    free = np.maximum(problem.capacities - used, 0)
    gains = free[problem.pod_node[runs]] + problem.demands[problem.pod_class[runs]]
    weights = problem.weights[problem.pod_class[runs]].astype(np.float64)
    least, lightest = 0.0, float(weights.min(initial=np.inf)) if len(weights) else 0.0
    for r in np.flatnonzero(needs).tolist():
        # Evictions are whole: as many as the greatest gains take, each of at least the least weight.
        most = np.cumsum(np.sort(gains[:, r])[::-1])
        pods = int(np.searchsorted(most, needs[r])) + 1
        least = max(least, pods * lightest, _fractional(gains[:, r], weights, int(needs[r])))
    return int(np.ceil(least - 1e-6))


def _fractional(gains: IntArray, weights: FloatArray, need: int) -> float:
    """The least weight whose gains make up the need, if parts count as well."""
    order = np.argsort(-gains / np.maximum(weights, 1e-9), kind="stable")
    sums = np.cumsum(gains[order])
    whole = int(np.searchsorted(sums, need))
    total = float(weights[order[:whole]].sum())
    if whole < len(order):
        rest = (need - (int(sums[whole - 1]) if whole else 0)) / max(int(gains[order[whole]]), 1)
        total += float(rest * weights[order[whole]])
    return total


def _stranded(problem: PackingProblem) -> IntArray:
    """The pending pods that fit on no node as it is now."""
    used, _ = compute_loads(problem, problem.pod_node)
    free = problem.capacities - used
    pending = np.flatnonzero(problem.pod_node < 0)
    lonely = np.zeros(problem.class_count, dtype=np.bool_)
    for c in np.unique(problem.pod_class[pending]).tolist():
        wanted = problem.demands[c] > 0
        rooms = (free[:, wanted] >= problem.demands[c, wanted]).all(axis=1)
        lonely[c] = not (rooms & problem.allowed_nodes[problem.node_mask_of_class[c]]).any()
    return pending[lonely[problem.pod_class[pending]]]


def _placed_bounds(problem: PackingProblem) -> list[int]:
    """For each priority from the highest, how many pods can be placed at most."""
    fixed = _fixed(problem)
    possible = fixed | _fits_somewhere(problem)[problem.pod_class] | (problem.pod_node >= 0)
    base = problem.demands[problem.pod_class[fixed]].sum(axis=0)
    # What stays on a node that is too full already is no measure for the others.
    used, _ = compute_loads(problem, problem.pod_node)
    room = np.maximum(problem.capacities, used).sum(axis=0)
    mixed = _mixed(problem, room - base)
    bounds = []
    for priority in np.unique(problem.priorities)[::-1].tolist():
        mine = problem.priorities[problem.pod_class] == priority
        sure = int((mine & fixed).sum())
        copies = np.bincount(problem.pod_class[mine & possible & ~fixed], minlength=problem.class_count)
        bounds.append(
            sure + min((_most(demands, copies, whole) for demands, whole in mixed), default=int(copies.sum()))
        )
    return bounds


def _mixed(problem: PackingProblem, room: IntArray) -> list[tuple[IntArray, int]]:
    """What each class takes of a room and how much that is: of each resource, and of any two by several weights.

    Where both are short, pods that take much of one and little of the other cannot all be left out for nothing.
    """
    kinds = []
    for r in range(len(room)):
        demands, whole = problem.demands[:, r], int(room[r])
        if whole <= 0:
            kinds.append((demands, whole))
        elif demands.any():
            parts = (demands.astype(object) * _WHOLE_ROOM) // whole
            kinds.append((np.minimum(parts, _WHOLE_ROOM + 1).astype(np.int64), _WHOLE_ROOM))
    scarce = [demands for demands, whole in kinds if whole == _WHOLE_ROOM]
    for first, second in combinations(scarce, 2):
        kinds += [(k * first + (_MIXES - k) * second, _MIXES * _WHOLE_ROOM) for k in range(1, _MIXES)]
    return kinds


def _most(demands: IntArray, copies: IntArray, room: int) -> int:
    """How many copies fit into a room at most, the smallest first."""
    order = np.argsort(demands, kind="stable")
    sums = np.cumsum(demands[order] * copies[order])
    full = int(np.searchsorted(sums, room, side="right"))
    most = int(copies[order[:full]].sum())
    if full == len(order):
        return most
    left = room - (int(sums[full - 1]) if full else 0)
    return most + max(left // int(demands[order[full]]), 0)


def _fixed(problem: PackingProblem) -> BoolArray:
    """The pods that every plan places."""
    stuck = ~problem.movable | ~problem.preemptible
    return (problem.pod_node >= 0) & stuck[problem.pod_class]


def _fits_somewhere(problem: PackingProblem) -> BoolArray:
    """Tell of each class whether an empty node that admits it would hold one pod."""
    fits = np.zeros(problem.class_count, dtype=np.bool_)
    for site in np.unique(problem.node_mask_of_class).tolist():
        mine = problem.node_mask_of_class == site
        kinds = np.unique(problem.capacities[problem.allowed_nodes[site]], axis=0)
        needs = problem.demands[mine] + problem.headroom[mine]
        for kind in kinds:
            fits[mine] |= (needs <= kind).all(axis=1)
    return fits & (problem.max_on_node > 0)
