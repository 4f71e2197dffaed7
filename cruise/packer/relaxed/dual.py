"""Evaluates the Lagrangian dual: a lower bound at any prices of classes, exact because prices are whole numbers."""

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from cruise.packer.budget import BudgetMeter, ThreadPool
from cruise.packer.kernels.knapsack_items import KnapsackItems, create_knapsack_items
from cruise.packer.kernels.price_agreement import NodeChanges, create_node_changes
from cruise.packer.kernels.relaxation import RunningPods, price_nodes
from cruise.packer.problem import BoolArray, FloatArray, IntArray, PackingProblem, compute_loads


@dataclass(frozen=True, slots=True, eq=False)
class BoundObjective:
    """The least cost of plans that place enough pods.

    A copy that leaves its node costs `cost[class]`; an unplaced copy costs 1 if its class is `missed`. Of the classes
    in row `k` of `members` at most `spare[k]` copies are unplaced; of all others any number.
    """

    cost: IntArray
    missed: BoolArray
    members: BoolArray
    spare: IntArray


def create_unplaced_objective(problem: PackingProblem, placed: tuple[int, ...]) -> BoundObjective:
    """Ask how many pods of a priority stay unplaced at least, if as many of each higher one are placed."""
    priorities = np.unique(problem.priorities)[::-1]
    members = priorities[: len(placed), None] == problem.priorities
    return BoundObjective(
        cost=np.zeros(problem.class_count, dtype=np.int64),
        missed=problem.priorities == priorities[len(placed)],
        members=members,
        spare=_compute_spare(problem, members, placed),
    )


def create_eviction_objective(problem: PackingProblem, placed: tuple[int, ...], weights: IntArray) -> BoundObjective:
    """Ask for the least weight of evictions, if as many of each priority, highest first, are placed."""
    priorities = np.unique(problem.priorities)[::-1]
    members = priorities[: len(placed), None] == problem.priorities
    missed = np.zeros(problem.class_count, dtype=np.bool_)
    return BoundObjective(weights, missed, members, _compute_spare(problem, members, placed))


def _compute_spare(problem: PackingProblem, members: BoolArray, placed: tuple[int, ...]) -> IntArray:
    counts = np.bincount(problem.pod_class, minlength=problem.class_count)
    return np.asarray(members @ counts - np.array(placed, dtype=np.int64), dtype=np.int64)


# Spans of all nodes, after each of which a search may end, and how many are searched in any case.
_SPANS, _MIN_SPANS = 16, 2


@dataclass(frozen=True, slots=True, eq=False)
class DualPrices:
    """The prices of classes and limits, and the costs, of a search, as `kernels.relaxation` needs them."""

    priced: IntArray
    price: FloatArray
    cost: FloatArray
    leaving: FloatArray
    rates: FloatArray
    above: IntArray


class _ThreadScratch:
    """Scratch arrays and sums of one thread."""

    def __init__(self, items: KnapsackItems, present: RunningPods, prices: int) -> None:
        own = create_knapsack_items(
            items.demands, items.headroom, items.free_capacity, items.floor, items.limits, items.running, 1
        )
        # Each node is searched by one thread, so what belongs to a node may be shared.
        self.items = own._replace(mix=items.mix)
        self.present = present._replace(scratch=np.zeros_like(present.scratch))
        self.kept = np.zeros(int(np.diff(present.first).max(initial=0)), dtype=np.bool_)
        self.net, self.surplus = np.zeros(prices, dtype=np.int64), np.zeros(2)


class NodeSearches:
    """Searches all nodes; `gains`, `net` and `surplus` are of the last search.

    The result does not depend on the number of threads, because whole numbers are added.
    """

    def __init__(
        self, items: KnapsackItems, present: RunningPods, changes: NodeChanges, prices: int, threads: ThreadPool
    ) -> None:
        self._changes, self._nodes, self._threads = changes, len(items.free_capacity), threads
        self._scratches = [_ThreadScratch(items, present, prices) for _ in range(threads.count)]
        self._begin = 0
        self.gains = np.zeros(self._nodes)

    @property
    def net(self) -> IntArray:
        """Return for each class what arrived minus what left."""
        return np.asarray(np.sum([scratch.net for scratch in self._scratches], axis=0))

    @property
    def surplus(self) -> tuple[float, float]:
        """Return how much more nodes gain than by known changes, and how much of that is uncertain."""
        more, unsure = np.sum([scratch.surplus for scratch in self._scratches], axis=0).tolist()
        return more, unsure

    @property
    def steps(self) -> int:
        """Return the steps of all searches so far."""
        return sum(int(scratch.items.nodes[0]) for scratch in self._scratches)

    def run(self, prices: DualPrices, enough: float, most_steps: int, deadline: float) -> int | None:
        """Search until the surplus is `enough`; return how many nodes were searched, None at the deadline."""
        for scratch in self._scratches:
            scratch.net[:], scratch.surplus[:] = 0, 0.0
        ends = [0, self._nodes] if enough == math.inf else np.linspace(0, self._nodes, _SPANS + 1).astype(int).tolist()
        for span, (begin, end) in enumerate(pairwise(ends)):
            if span >= _MIN_SPANS and self.surplus[0] > enough:
                self._begin = (self._begin + begin) % self._nodes
                return int(begin)
            edges = np.linspace(begin, end, len(self._scratches) + 1).astype(int).tolist()
            parts = zip(self._scratches, edges[:-1], edges[1:], strict=True)
            if not all(list(self._threads.map(lambda part: self._search(prices, part, most_steps, deadline), parts))):
                return None
        return self._nodes

    def _search(
        self, prices: DualPrices, part: tuple[_ThreadScratch, int, int], most_steps: int, deadline: float
    ) -> bool:
        scratch, begin, end = part
        return price_nodes(
            scratch.items,
            scratch.present,
            self._changes,
            prices.priced,
            prices.price,
            prices.cost,
            prices.leaving,
            prices.rates,
            prices.above,
            scratch.kept,
            scratch.net,
            self.gains,
            scratch.surplus,
            (self._begin + begin) % self._nodes,
            end - begin,
            most_steps,
            deadline,
        )


# Prices are multiples of 1 / SCALE, a power of two, so that sums are exact.
SCALE = 1 << 16
# Work units of one step of a node's search.
_STEP = 100
# Work units of an evaluation in addition to its steps.
_CALL = 200_000
# Rates of capacity: mixes of the two scarcest resources, at levels that such a share of the classes does not exceed.
_MIXES = (0.0, 0.25, 0.5, 0.75, 1.0)
_LEVELS = (1.0, 0.97, 0.9, 0.75, 0.5)
# Known changes per node, and classes and limits per change.
_MAX_CHANGES, _MAX_WIDTH = 24, 64


@dataclass(frozen=True, slots=True, eq=False)
class DualValue:
    """The dual at some prices, in parts of SCALE: `bound`, and its `slope` in each price.

    Nodes gain `surplus` more than by known changes; of that `uncertainty` may be an artifact of short searches.
    `nodes_searched` is the share of nodes that were searched: below 1 there is no bound and no slope.
    """

    bound: int
    slope: IntArray
    surplus: float
    uncertainty: float
    nodes_searched: float


class LagrangianDual:
    """A problem whose nodes are coupled only by prices.

    Rules between pods and the order of arrivals are ignored. Each class has a price that a copy pays when it leaves a
    node and earns when it arrives. After the classes, each binding eviction limit has a price that copies pay when they
    leave. At any prices, the sum of the largest gains of all nodes bounds every plan.
    """

    def __init__(self, problem: PackingProblem, threads: ThreadPool) -> None:
        running = problem.pod_node >= 0
        has_exhausted_limit = np.zeros(problem.class_count, dtype=np.bool_)
        for limit in problem.rules.eviction_limits:
            if limit.allowed <= 0:
                has_exhausted_limit[limit.members] = True
        fixed = running & (~problem.movable | has_exhausted_limit)[problem.pod_class]
        if problem.rules.max_evicted_by_node is not None:
            fixed |= running & (problem.rules.max_evicted_by_node <= 0)[problem.pod_node]
        movable = running & ~fixed
        cells, copies = np.unique(
            problem.pod_node[movable] * problem.class_count + problem.pod_class[movable], return_counts=True
        )
        self.problem = problem
        self.total = np.bincount(problem.pod_class, minlength=problem.class_count)
        self.pending = np.bincount(problem.pod_class[~running], minlength=problem.class_count)
        movable_copies = np.bincount(problem.pod_class[movable], minlength=problem.class_count)
        # Running copies of a class that must not be preempted are placed in every plan.
        self.droppable = self.pending + np.where(problem.preemptible, movable_copies, 0)
        binding = [
            limit
            for limit in problem.rules.eviction_limits
            if 0 < limit.allowed < int(movable_copies[np.unique(limit.members)].sum())
        ]
        self.allowed = np.array([limit.allowed for limit in binding], dtype=np.int64)
        self.supply: BoolArray = np.concatenate([self.pending + movable_copies, self.allowed]) > 0
        limit_first, limits = _index_limits(problem.class_count, [np.unique(limit.members) for limit in binding])
        items, free, beside = _create_node_items(problem, fixed)
        self._present = RunningPods(
            first=np.searchsorted(cells, np.arange(problem.node_count + 1) * problem.class_count).astype(np.int64),
            pod_class=(cells % problem.class_count).astype(np.int64),
            copies=copies.astype(np.int64),
            site=problem.node_mask_of_class,
            admits=problem.allowed_nodes,
            total=self.total - np.bincount(problem.pod_class[fixed], minlength=problem.class_count),
            maximum=problem.max_on_node,
            free=free,
            free_if_all_stay=beside,
            floor=items.floor.copy(),
            scratch=np.zeros(problem.class_count, dtype=np.int64),
            rate=np.zeros(problem.capacities.shape),
            limit_first=limit_first,
            limits=limits,
        )
        self._list_resource_mixes = _list_resource_mixes(problem)
        self.changes = create_node_changes(problem.node_count, _MAX_CHANGES, _MAX_WIDTH)
        self._searches = NodeSearches(items, self._present, self.changes, len(self.supply), threads)

    def drop_changes(self) -> None:
        """Forget the known changes of nodes, because the cost of evictions changes."""
        self.changes.change_count[:] = 1
        self.changes.share[:] = 0.0
        self.changes.share[:, 0] = 1.0

    def evaluate(
        self,
        question: BoundObjective,
        prices: FloatArray,
        most_steps: int,
        meter: BudgetMeter,
        enough: float = math.inf,
    ) -> DualValue | None:
        """Return the dual at prices rounded to parts of SCALE; None if the budget ends first.

        The search of each node ends after `most_steps`, and that of all nodes once their surplus is `enough`.
        """
        whole = np.where(self.supply, np.rint(np.maximum(prices, 0.0) * SCALE), 0.0).astype(np.int64)
        searches, before, classes = self._searches, self._searches.steps, self.problem.class_count
        price, cost = whole[:classes], question.cost * SCALE
        rates, above = self._compute_rates(price)
        dual_prices = DualPrices(
            priced=np.flatnonzero(price),
            price=whole.astype(np.float64),
            cost=cost.astype(np.float64),
            leaving=(cost + self._sum_limit_prices(whole)).astype(np.float64),
            rates=rates,
            above=above,
        )
        searched_count = searches.run(dual_prices, enough, most_steps, meter.deadline_seconds)
        meter.spend(_STEP * (searches.steps - before) + 1000 * (searched_count or 0) + _CALL)
        if searched_count is None:
            return None
        surplus, unsure = searches.surplus
        if searched_count < self.problem.node_count:
            return DualValue(
                0, np.zeros(len(whole), dtype=np.int64), surplus, unsure, searched_count / self.problem.node_count
            )
        missing = self.get_missing(question, whole)
        demand = np.concatenate([self.pending - missing, -self.allowed])
        cost_of_missing = int(whole @ demand) + SCALE * int(missing[question.missed].sum())
        return DualValue(cost_of_missing - int(searches.gains.sum()), demand - searches.net, surplus, unsure, 1.0)

    def _sum_limit_prices(self, whole: IntArray) -> IntArray:
        """Return what one copy of each class pays for all limits when it leaves."""
        sums = np.concatenate([[0], np.cumsum(whole[self._present.limits])])
        return np.asarray(np.diff(sums[self._present.limit_first]), dtype=np.int64)

    def _compute_rates(self, whole: IntArray) -> tuple[FloatArray, IntArray]:
        """Return rates of capacity at which most classes, or all, are not worth their prices, and the exceptions."""
        priced = np.flatnonzero(whole)
        if len(priced) == 0:
            return np.zeros((1, self.problem.demands.shape[1])), np.full((1, 1), -1, dtype=np.int64)
        ratios = [
            whole[priced] / np.maximum(self.problem.demands[priced] @ mix, 1e-12) for mix in self._list_resource_mixes
        ]
        # Rates with the fewest exceptions first: they decide most nodes.
        levels = np.array([np.quantile(ratio, _LEVELS) for ratio in ratios]).T
        found = np.concatenate([level[:, None] * np.array(self._list_resource_mixes) for level in levels])
        over = whole[priced][:, None] > self.problem.demands[priced] @ found.T
        above = np.full((len(found), int(over.sum(axis=0).max()) + 1), -1, dtype=np.int64)
        for k, column in enumerate(over.T):
            mine = priced[column]
            above[k, : len(mine)] = mine
        return found, above

    def get_missing(self, question: BoundObjective, whole: IntArray) -> IntArray:
        """Return how many copies of each class stay unplaced where that is cheapest: those of the highest prices."""
        whole = whole[: self.problem.class_count]
        missing = np.where(question.missed, np.where(whole > SCALE, self.droppable, 0), self.droppable)
        for members, spare in zip(question.members, question.spare.tolist(), strict=True):
            mine = np.flatnonzero(members)
            order = mine[np.argsort(-whole[mine], kind="stable")]
            before = np.cumsum(self.droppable[order]) - self.droppable[order]
            missing[order] = np.clip(spare - before, 0, self.droppable[order])
        return missing


def _index_limits(classes: int, members: list[IntArray]) -> tuple[IntArray, IntArray]:
    """Return the start of each class in the list of limits, and the limits, numbered after the classes."""
    each = np.concatenate([np.zeros(0, dtype=np.int64), *members])
    limits = classes + np.repeat(np.arange(len(members)), [len(some) for some in members])
    order = np.argsort(each, kind="stable")
    return np.searchsorted(each[order], np.arange(classes + 1)).astype(np.int64), limits[order].astype(np.int64)


def _create_node_items(problem: PackingProblem, fixed: BoolArray) -> tuple[KnapsackItems, IntArray, IntArray]:
    """Return every node with its immovable pods, and what is free next to all running pods with and without evictions.

    An overcommitted node can hold as much as runs there.
    """
    now, peaks = compute_loads(problem, problem.pod_node)
    kept, floor = compute_loads(problem, np.where(fixed, problem.pod_node, -1))
    whole = np.maximum(problem.capacities, now + peaks)
    headroom = problem.headroom if problem.headroom.any() else np.zeros((0, problem.capacities.shape[1]), np.int64)
    none = np.zeros((0, 0), dtype=np.int64)
    items = create_knapsack_items(np.ascontiguousarray(problem.demands), headroom, whole - kept, floor, none, none, 1)
    return items, whole - now - floor, whole - now - peaks


def _list_resource_mixes(problem: PackingProblem) -> list[FloatArray]:
    """Return mixes of the two scarcest resources, per unit of each."""
    total = np.maximum(problem.capacities.sum(axis=0), 1)
    demand = problem.demands[problem.pod_class].sum(axis=0) / total
    scarce = np.argsort(-demand, kind="stable")[:2]
    mixes = []
    for share in _MIXES:
        mix = np.zeros(len(total))
        mix[scarce] = np.array([share, 1.0 - share])[: len(scarce)] / total[scarce]
        mixes.append(mix)
    return mixes
