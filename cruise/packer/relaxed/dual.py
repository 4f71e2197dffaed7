"""The dual of a problem: a lower bound for any prices of classes, exact because prices are whole numbers."""

import math
from dataclasses import dataclass

import numpy as np

from cruise.packer.arrays import BoolArray, FloatArray, IntArray
from cruise.packer.budget import Meter, Threads
from cruise.packer.kernels.changes import changes_of
from cruise.packer.kernels.relaxing import Present
from cruise.packer.kernels.shelf import Shelf, shelf_of
from cruise.packer.problem import Problem, loads_of
from cruise.packer.relaxed.question import Question
from cruise.packer.relaxed.searching import Prices, Searches

# Prices are multiples of one part in so many of a whole: a power of two, so that sums of them are exact.
SCALE = 1 << 16
# What one step of a node's search stands for in units of work, with all that is arranged for it.
_STEP = 100
# What asking for a bound takes beside.
_CALL = 200_000
# Rates of room: mixes of the scarcest resources, at levels that so large a share of the classes are not worth.
_MIXES = (0.0, 0.25, 0.5, 0.75, 1.0)
_LEVELS = (1.0, 0.97, 0.9, 0.75, 0.5)
# Changes that are known of a node, and how many classes and limits one of them is about.
_CHANGES, _WIDTH = 24, 64


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """The dual at some prices, in parts of SCALE: `bound`, and how it grows with each of them.

    Nodes gain `surplus` more than by changes known before; of that `unsure` is what longer searches might deny. Where
    not all nodes were `looked` at, of which it is the share, nothing is bounded and no slope is known.
    """

    bound: int
    slope: IntArray
    surplus: float
    unsure: float
    looked: float


class Dual:
    """A problem whose nodes know of each other by prices alone.

    Whatever holds between pods is left out, and so is the order of arrivals. Each class has a price that a copy
    pays where it leaves a node and brings where it arrives; what has no place in the end is short of it. Behind the
    classes each limit of evictions that may bind has one, which whatever leaves and counts against it pays beside. At
    any prices the sum over nodes of what they gain at most bounds every plan.
    """

    def __init__(self, problem: Problem, threads: Threads) -> None:
        running = problem.pod_node >= 0
        shut = np.zeros(problem.class_count, dtype=np.bool_)
        for limit in problem.rules.eviction_limits:
            if limit.allowed <= 0:
                shut[limit.members] = True
        fixed = running & (~problem.movable | shut)[problem.pod_class]
        if problem.rules.most_evicted is not None:
            fixed |= running & (problem.rules.most_evicted <= 0)[problem.pod_node]
        loose = running & ~fixed
        cells, copies = np.unique(
            problem.pod_node[loose] * problem.class_count + problem.pod_class[loose], return_counts=True
        )
        self.problem = problem
        self.total = np.bincount(problem.pod_class, minlength=problem.class_count)
        self.pending = np.bincount(problem.pod_class[~running], minlength=problem.class_count)
        loose_copies = np.bincount(problem.pod_class[loose], minlength=problem.class_count)
        # Of a class that may not be preempted what runs has a place in every plan.
        self.droppable = self.pending + np.where(problem.preemptible, loose_copies, 0)
        binding = [
            limit
            for limit in problem.rules.eviction_limits
            if 0 < limit.allowed < int(loose_copies[np.unique(limit.members)].sum())
        ]
        self.allowed = np.array([limit.allowed for limit in binding], dtype=np.int64)
        self.supply: BoolArray = np.concatenate([self.pending + loose_copies, self.allowed]) > 0
        limit_first, limits = _limits_of(problem.class_count, [np.unique(limit.members) for limit in binding])
        shelf, free, beside = _shelf(problem, fixed)
        self._present = Present(
            first=np.searchsorted(cells, np.arange(problem.node_count + 1) * problem.class_count).astype(np.int64),
            of=(cells % problem.class_count).astype(np.int64),
            copies=copies.astype(np.int64),
            site=problem.sites,
            admits=problem.admits,
            total=self.total - np.bincount(problem.pod_class[fixed], minlength=problem.class_count),
            most=problem.most_on_node,
            free=free,
            beside=beside,
            floor=shelf.floor.copy(),
            here=np.zeros(problem.class_count, dtype=np.int64),
            rate=np.zeros(problem.capacities.shape),
            limit_first=limit_first,
            limits=limits,
        )
        self._mixes = _mixes(problem)
        self.changes = changes_of(problem.node_count, _CHANGES, _WIDTH)
        self._searches = Searches(shelf, self._present, self.changes, len(self.supply), threads)

    def forget(self) -> None:
        """Forget what changes of nodes are known, where leaving costs something else from now on."""
        self.changes.known[:] = 1
        self.changes.share[:] = 0.0
        self.changes.share[:, 0] = 1.0

    def value(
        self, question: Question, prices: FloatArray, most_steps: int, meter: Meter, enough: float = math.inf
    ) -> Value | None:
        """The bound at prices that are rounded to parts of SCALE first; None when the budget ended before.

        The search of each node ends after so many steps, and that of all once their surplus is `enough`.
        """
        whole = np.where(self.supply, np.rint(np.maximum(prices, 0.0) * SCALE), 0.0).astype(np.int64)
        searches, before, classes = self._searches, self._searches.spent, self.problem.class_count
        price, cost = whole[:classes], question.cost * SCALE
        rates, above = self._rates(price)
        at = Prices(
            priced=np.flatnonzero(price),
            price=whole.astype(np.float64),
            cost=cost.astype(np.float64),
            leaving=(cost + self._limits_prices(whole)).astype(np.float64),
            rates=rates,
            above=above,
        )
        done = searches.run(at, enough, most_steps, meter.deadline_seconds)
        meter.spend(_STEP * (searches.spent - before) + 1000 * (done or 0) + _CALL)
        if done is None:
            return None
        surplus, unsure = searches.surplus
        if done < self.problem.node_count:
            return Value(0, np.zeros(len(whole), dtype=np.int64), surplus, unsure, done / self.problem.node_count)
        missing = self.missing(question, whole)
        wanted = np.concatenate([self.pending - missing, -self.allowed])
        short = int(whole @ wanted) + SCALE * int(missing[question.missed].sum())
        return Value(short - int(searches.gains.sum()), wanted - searches.net, surplus, unsure, 1.0)

    def _limits_prices(self, whole: IntArray) -> IntArray:
        """What one copy of each class pays for all limits where it leaves."""
        sums = np.concatenate([[0], np.cumsum(whole[self._present.limits])])
        return np.asarray(np.diff(sums[self._present.limit_first]), dtype=np.int64)

    def _rates(self, whole: IntArray) -> tuple[FloatArray, IntArray]:
        """Rates of room in the two scarcest resources at which most classes, or all, are not worth their prices."""
        priced = np.flatnonzero(whole)
        if len(priced) == 0:
            return np.zeros((1, self.problem.demands.shape[1])), np.full((1, 1), -1, dtype=np.int64)
        ratios = [whole[priced] / np.maximum(self.problem.demands[priced] @ mix, 1e-12) for mix in self._mixes]
        # Those with the fewest classes above them first: most nodes are seen through by one of these.
        levels = np.array([np.quantile(ratio, _LEVELS) for ratio in ratios]).T
        found = np.concatenate([level[:, None] * np.array(self._mixes) for level in levels])
        over = whole[priced][:, None] > self.problem.demands[priced] @ found.T
        above = np.full((len(found), int(over.sum(axis=0).max()) + 1), -1, dtype=np.int64)
        for k, column in enumerate(over.T):
            mine = priced[column]
            above[k, : len(mine)] = mine
        return found, above

    def missing(self, question: Question, whole: IntArray) -> IntArray:
        """How many copies of each class go without a place where that is cheapest: those of the highest prices."""
        whole = whole[: self.problem.class_count]
        missing = np.where(question.missed, np.where(whole > SCALE, self.droppable, 0), self.droppable)
        for members, spare in zip(question.members, question.spare.tolist(), strict=True):
            mine = np.flatnonzero(members)
            order = mine[np.argsort(-whole[mine], kind="stable")]
            before = np.cumsum(self.droppable[order]) - self.droppable[order]
            missing[order] = np.clip(spare - before, 0, self.droppable[order])
        return missing


def _limits_of(classes: int, members: list[IntArray]) -> tuple[IntArray, IntArray]:
    """The limits that each class counts against, numbered behind the classes: where those of a class begin, and all."""
    each = np.concatenate([np.zeros(0, dtype=np.int64), *members])
    limits = classes + np.repeat(np.arange(len(members)), [len(some) for some in members])
    order = np.argsort(each, kind="stable")
    return np.searchsorted(each[order], np.arange(classes + 1)).astype(np.int64), limits[order].astype(np.int64)


def _shelf(problem: Problem, fixed: BoolArray) -> tuple[Shelf, IntArray, IntArray]:
    """Every node with what stays there on it, what is free beside all that runs there, and if nothing leaves.

    A node that is too full takes as much as runs there.
    """
    now, peaks = loads_of(problem, problem.pod_node)
    kept, floor = loads_of(problem, np.where(fixed, problem.pod_node, -1))
    whole = np.maximum(problem.capacities, now + peaks)
    headroom = problem.headroom if problem.headroom.any() else np.zeros((0, problem.capacities.shape[1]), np.int64)
    none = np.zeros((0, 0), dtype=np.int64)
    shelf = shelf_of(np.ascontiguousarray(problem.demands), headroom, whole - kept, floor, none, none, 1)
    return shelf, whole - now - floor, whole - now - peaks


def _mixes(problem: Problem) -> list[FloatArray]:
    """Mixes of the two resources that are scarcest, per unit of each."""
    total = np.maximum(problem.capacities.sum(axis=0), 1)
    wanted = problem.demands[problem.pod_class].sum(axis=0) / total
    scarce = np.argsort(-wanted, kind="stable")[:2]
    mixes = []
    for share in _MIXES:
        mix = np.zeros(len(total))
        mix[scarce] = np.array([share, 1.0 - share])[: len(scarce)] / total[scarce]
        mixes.append(mix)
    return mixes
