"""The dual of a problem: a lower bound for any prices of classes, exact because prices are whole numbers."""

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from cruise.packer.budget import BudgetMeter, ThreadPool
from cruise.packer.kernels.knapsack_items import KnapsackItems, create_knapsack_items
from cruise.packer.kernels.price_agreement import NodeChanges, create_node_changes
from cruise.packer.kernels.relaxation import RunningPods, price_nodes
from cruise.packer.problem import BoolArray, FloatArray, IntArray, PackingProblem, compute_loads

# What is asked of a bound: what leaving costs, and which pods must have a place in the plans that it speaks of.


@dataclass(frozen=True, slots=True, eq=False)
class BoundQuestion:
    """The least cost of plans in which enough has a place.

    A copy of a class that leaves its node costs `cost[class]`, one without a place in the end costs 1 where its class
    is `missed`. Of the classes of row `tier` of `members` at most `spare[tier]` copies are without a place; of all
    others any number.
    """

    cost: IntArray
    missed: BoolArray
    members: BoolArray
    spare: IntArray


def ask_fewest_unplaced(problem: PackingProblem, placed: tuple[int, ...]) -> BoundQuestion:
    """How many pods of a priority go without a place at least, where as many of each higher one have one."""
    tiers = np.unique(problem.priorities)[::-1]
    members = tiers[: len(placed), None] == problem.priorities
    return BoundQuestion(
        cost=np.zeros(problem.class_count, dtype=np.int64),
        missed=problem.priorities == tiers[len(placed)],
        members=members,
        spare=_spare(problem, members, placed),
    )


def ask_min_eviction_weight(problem: PackingProblem, placed: tuple[int, ...], weights: IntArray) -> BoundQuestion:
    """What leaving weighs at least, where as many of each priority, the highest first, have a place."""
    tiers = np.unique(problem.priorities)[::-1]
    members = tiers[: len(placed), None] == problem.priorities
    missed = np.zeros(problem.class_count, dtype=np.bool_)
    return BoundQuestion(weights, missed, members, _spare(problem, members, placed))


def _spare(problem: PackingProblem, members: BoolArray, placed: tuple[int, ...]) -> IntArray:
    counts = np.bincount(problem.pod_class, minlength=problem.class_count)
    return np.asarray(members @ counts - np.array(placed, dtype=np.int64), dtype=np.int64)


# All nodes searched at prices, a span of them after the other, each span divided among threads.

# Spans of all nodes, after each of which a search may end, and how many are searched in any case.
_SPANS, _LEAST_SPANS = 16, 2


@dataclass(frozen=True, slots=True, eq=False)
class DualPrices:
    """What a search is at: whole prices of classes and limits, and costs, as `kernels.relaxing` has them."""

    priced: IntArray
    price: FloatArray
    cost: FloatArray
    leaving: FloatArray
    rates: FloatArray
    above: IntArray


class _ThreadScratch:
    """What one thread needs for itself: scratch, and what it adds up."""

    def __init__(self, shelf: KnapsackItems, present: RunningPods, prices: int) -> None:
        own = create_knapsack_items(
            shelf.demands, shelf.headroom, shelf.free_capacity, shelf.floor, shelf.limits, shelf.running, 1
        )
        # Nodes are searched by one thread each, so what belongs to a node may be shared.
        self.items = own._replace(mix=shelf.mix)
        self.present = present._replace(here=np.zeros_like(present.here))
        self.kept = np.zeros(int(np.diff(present.first).max(initial=0)), dtype=np.bool_)
        self.net, self.surplus = np.zeros(prices, dtype=np.int64), np.zeros(2)


class NodeSearches:
    """Searches of all nodes; `gains`, `net` and `surplus` are those of the last one, `spent` the steps of all.

    What comes of a search does not depend on the number of threads: whole numbers are added up.
    """

    def __init__(
        self, shelf: KnapsackItems, present: RunningPods, changes: NodeChanges, prices: int, threads: ThreadPool
    ) -> None:
        self._changes, self._nodes, self._threads = changes, len(shelf.free_capacity), threads
        self._hands = [_ThreadScratch(shelf, present, prices) for _ in range(threads.count)]
        self._begin = 0
        self.gains = np.zeros(self._nodes)

    @property
    def net(self) -> IntArray:
        """What arrived of each class less what left."""
        return np.asarray(np.sum([hand.net for hand in self._hands], axis=0))

    @property
    def surplus(self) -> tuple[float, float]:
        """How much more nodes gain than by changes known before, and of that what no change is known for."""
        more, unsure = np.sum([hand.surplus for hand in self._hands], axis=0).tolist()
        return more, unsure

    @property
    def steps(self) -> int:
        """The steps of all searches so far."""
        return sum(int(hand.items.nodes[0]) for hand in self._hands)

    def run(self, at: DualPrices, enough: float, most_steps: int, deadline: float) -> int | None:
        """Search until the surplus is `enough`; how many nodes that took, None where the deadline came first."""
        for hand in self._hands:
            hand.net[:], hand.surplus[:] = 0, 0.0
        ends = [0, self._nodes] if enough == math.inf else np.linspace(0, self._nodes, _SPANS + 1).astype(int).tolist()
        for span, (begin, end) in enumerate(pairwise(ends)):
            if span >= _LEAST_SPANS and self.surplus[0] > enough:
                self._begin = (self._begin + begin) % self._nodes
                return int(begin)
            edges = np.linspace(begin, end, len(self._hands) + 1).astype(int).tolist()
            parts = zip(self._hands, edges[:-1], edges[1:], strict=True)
            if not all(list(self._threads.map(lambda part: self._search(at, part, most_steps, deadline), parts))):
                return None
        return self._nodes

    def _search(self, at: DualPrices, part: tuple[_ThreadScratch, int, int], most_steps: int, deadline: float) -> bool:
        hand, begin, end = part
        return price_nodes(
            hand.items,
            hand.present,
            self._changes,
            at.priced,
            at.price,
            at.cost,
            at.leaving,
            at.rates,
            at.above,
            hand.kept,
            hand.net,
            self.gains,
            hand.surplus,
            (self._begin + begin) % self._nodes,
            end - begin,
            most_steps,
            deadline,
        )


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
class DualValue:
    """The dual at some prices, in parts of SCALE: `bound`, and how it grows with each of them.

    Nodes gain `surplus` more than by changes known before; of that `unsure` is what longer searches might deny. Where
    not all nodes were `looked` at, of which it is the share, nothing is bounded and no slope is known.
    """

    bound: int
    slope: IntArray
    surplus: float
    uncertainty: float
    nodes_searched: float


class LagrangianDual:
    """A problem whose nodes know of each other by prices alone.

    Whatever holds between pods is left out, and so is the order of arrivals. Each class has a price that a copy
    pays where it leaves a node and brings where it arrives; what has no place in the end is short of it. Behind the
    classes each limit of evictions that may bind has one, which whatever leaves and counts against it pays beside. At
    any prices the sum over nodes of what they gain at most bounds every plan.
    """

    def __init__(self, problem: PackingProblem, threads: ThreadPool) -> None:
        running = problem.pod_node >= 0
        shut = np.zeros(problem.class_count, dtype=np.bool_)
        for limit in problem.rules.eviction_limits:
            if limit.allowed <= 0:
                shut[limit.members] = True
        fixed = running & (~problem.movable | shut)[problem.pod_class]
        if problem.rules.max_evicted_by_node is not None:
            fixed |= running & (problem.rules.max_evicted_by_node <= 0)[problem.pod_node]
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
        self._present = RunningPods(
            first=np.searchsorted(cells, np.arange(problem.node_count + 1) * problem.class_count).astype(np.int64),
            of=(cells % problem.class_count).astype(np.int64),
            copies=copies.astype(np.int64),
            site=problem.node_mask_of_class,
            admits=problem.allowed_nodes,
            total=self.total - np.bincount(problem.pod_class[fixed], minlength=problem.class_count),
            maximum=problem.max_on_node,
            free=free,
            beside=beside,
            floor=shelf.floor.copy(),
            here=np.zeros(problem.class_count, dtype=np.int64),
            rate=np.zeros(problem.capacities.shape),
            limit_first=limit_first,
            limits=limits,
        )
        self._mixes = _mixes(problem)
        self.changes = create_node_changes(problem.node_count, _CHANGES, _WIDTH)
        self._searches = NodeSearches(shelf, self._present, self.changes, len(self.supply), threads)

    def drop_changes(self) -> None:
        """Forget what changes of nodes are known, where leaving costs something else from now on."""
        self.changes.known[:] = 1
        self.changes.share[:] = 0.0
        self.changes.share[:, 0] = 1.0

    def evaluate(
        self, question: BoundQuestion, prices: FloatArray, most_steps: int, meter: BudgetMeter, enough: float = math.inf
    ) -> DualValue | None:
        """The bound at prices that are rounded to parts of SCALE first; None when the budget ended before.

        The search of each node ends after so many steps, and that of all once their surplus is `enough`.
        """
        whole = np.where(self.supply, np.rint(np.maximum(prices, 0.0) * SCALE), 0.0).astype(np.int64)
        searches, before, classes = self._searches, self._searches.steps, self.problem.class_count
        price, cost = whole[:classes], question.cost * SCALE
        rates, above = self._rates(price)
        at = DualPrices(
            priced=np.flatnonzero(price),
            price=whole.astype(np.float64),
            cost=cost.astype(np.float64),
            leaving=(cost + self._limits_prices(whole)).astype(np.float64),
            rates=rates,
            above=above,
        )
        done = searches.run(at, enough, most_steps, meter.deadline_seconds)
        meter.spend(_STEP * (searches.steps - before) + 1000 * (done or 0) + _CALL)
        if done is None:
            return None
        surplus, unsure = searches.surplus
        if done < self.problem.node_count:
            return DualValue(0, np.zeros(len(whole), dtype=np.int64), surplus, unsure, done / self.problem.node_count)
        missing = self.get_missing(question, whole)
        wanted = np.concatenate([self.pending - missing, -self.allowed])
        short = int(whole @ wanted) + SCALE * int(missing[question.missed].sum())
        return DualValue(short - int(searches.gains.sum()), wanted - searches.net, surplus, unsure, 1.0)

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

    def get_missing(self, question: BoundQuestion, whole: IntArray) -> IntArray:
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


def _shelf(problem: PackingProblem, fixed: BoolArray) -> tuple[KnapsackItems, IntArray, IntArray]:
    """Every node with what stays there on it, what is free beside all that runs there, and if nothing leaves.

    A node that is too full takes as much as runs there.
    """
    now, peaks = compute_loads(problem, problem.pod_node)
    kept, floor = compute_loads(problem, np.where(fixed, problem.pod_node, -1))
    whole = np.maximum(problem.capacities, now + peaks)
    headroom = problem.headroom if problem.headroom.any() else np.zeros((0, problem.capacities.shape[1]), np.int64)
    none = np.zeros((0, 0), dtype=np.int64)
    shelf = create_knapsack_items(np.ascontiguousarray(problem.demands), headroom, whole - kept, floor, none, none, 1)
    return shelf, whole - now - floor, whole - now - peaks


def _mixes(problem: PackingProblem) -> list[FloatArray]:
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
