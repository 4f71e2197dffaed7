"""What no packing surpasses, by counting alone: valid at any size, tight where everything can be placed."""

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from cruise.packer.answer import Note, Packing, figures_of, packing_of
from cruise.packer.arrays import BoolArray, FloatArray, IntArray
from cruise.packer.problem import Objective, Problem, loads_of, price_of

# Demands count in whole parts of all room, so small that what rounding leaves out is nothing, and sums are exact.
_WHOLE_ROOM = 1 << 36
# Two resources are weighed together in so many ways.
_MIXES = 16


def counted_bound(problem: Problem) -> tuple[int, ...]:
    """For each entry of the objective's key, what no assignment surpasses, whatever the entries before.

    Pods placed: no more than fit all nodes taken as one, the smallest first, beside what cannot go.
    """
    placed = _placed_bounds(problem)
    priorities = problem.priorities[problem.pod_class]
    if problem.objective is Objective.PAPER:
        running = problem.pod_node >= 0
        tiers = np.unique(problem.priorities)[::-1].tolist()
        stays = [int((running & (priorities == priority)).sum()) for priority in tiers]
        return tuple(entry for pair in zip(placed, stays, strict=True) for entry in pair)
    if problem.objective is Objective.FLEET:
        stuck = (problem.pod_node >= 0) & ~problem.movable[problem.pod_class]
        return (*placed, -price_of(problem, np.where(stuck, problem.pod_node, -1)), 0)
    return (*placed, 0)


class Known:
    """The key of the best assignment so far, and what bounds it: each entry's bound is for what is as good before it.

    `most` is what no assignment surpasses, however good in the entries before.
    """

    __slots__ = ("bound", "key", "most")

    def __init__(self, key: tuple[int, ...], most: tuple[int, ...]) -> None:
        self.key, self.most, self.bound = key, most, most

    @property
    def proved(self) -> bool:
        """Whether nothing is better."""
        return self.key == self.bound

    def better(self, key: tuple[int, ...]) -> None:
        """Take a better key. Where it is worse in an entry, bounds of those behind say nothing about it."""
        falls = next((entry for entry, value in enumerate(self.key) if key[entry] < value), len(key))
        self.bound = (*self.bound[: falls + 1], *self.most[falls + 1 :])
        self.key = key

    def learn(self, key: tuple[int, ...], bound: Sequence[int]) -> bool:
        """Take a bound that was proved beside a key; tell whether it says more than what is known.

        Behind the first entry in which that key differs it speaks of assignments that are as good as another one.
        """
        same = next((entry for entry, value in enumerate(self.key) if key[entry] != value), len(key))
        known = self.bound
        self.bound = (*map(min, bound[: same + 1], known), *known[same + 1 :])
        return self.bound != known


def beside(problem: Problem, packing: Packing, pod_node: IntArray, notes: tuple[Note, ...]) -> Packing:
    """Another assignment than that of a packing, which may be worse, with what the packing proves of it."""
    known = Known(packing.after.key(problem.objective), counted_bound(problem))
    known.bound = packing.bound
    known.better(figures_of(problem, pod_node).key(problem.objective))
    return packing_of(problem, pod_node, known.bound, notes)


def least_evictions(problem: Problem) -> int:
    """The least weight of evictions with which all pods can be placed.

    What fits on no node as it is goes where something leaves, and takes no more than was free there and left.
    """
    stranded = _stranded(problem)
    needs = problem.demands[problem.pod_class[stranded]].sum(axis=0)
    runs = np.flatnonzero((problem.pod_node >= 0) & problem.movable[problem.pod_class])
    used, _ = loads_of(problem, problem.pod_node)
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


def _stranded(problem: Problem) -> IntArray:
    """The pending pods that fit on no node as it is now."""
    used, _ = loads_of(problem, problem.pod_node)
    free = problem.capacities - used
    pending = np.flatnonzero(problem.pod_node < 0)
    lonely = np.zeros(problem.class_count, dtype=np.bool_)
    for c in np.unique(problem.pod_class[pending]).tolist():
        wanted = problem.demands[c] > 0
        rooms = (free[:, wanted] >= problem.demands[c, wanted]).all(axis=1)
        lonely[c] = not (rooms & problem.admits[problem.sites[c]]).any()
    return pending[lonely[problem.pod_class[pending]]]


def _placed_bounds(problem: Problem) -> list[int]:
    """For each priority from the highest, how many pods can be placed at most."""
    fixed = _fixed(problem)
    possible = fixed | _fits_somewhere(problem)[problem.pod_class] | (problem.pod_node >= 0)
    base = problem.demands[problem.pod_class[fixed]].sum(axis=0)
    # What stays on a node that is too full already is no measure for the others.
    used, _ = loads_of(problem, problem.pod_node)
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


def _mixed(problem: Problem, room: IntArray) -> list[tuple[IntArray, int]]:
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


def _fixed(problem: Problem) -> BoolArray:
    """The pods that every plan places."""
    stuck = ~problem.movable | ~problem.preemptible
    return (problem.pod_node >= 0) & stuck[problem.pod_class]


def _fits_somewhere(problem: Problem) -> BoolArray:
    """Tell of each class whether an empty node that admits it would hold one pod."""
    fits = np.zeros(problem.class_count, dtype=np.bool_)
    for site in np.unique(problem.sites).tolist():
        mine = problem.sites == site
        kinds = np.unique(problem.capacities[problem.admits[site]], axis=0)
        needs = problem.demands[mine] + problem.headroom[mine]
        for kind in kinds:
            fits[mine] |= (needs <= kind).all(axis=1)
    return fits & (problem.most_on_node > 0)
