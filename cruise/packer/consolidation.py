"""Drains nodes one after the other, by ejections if needed, and bounds the price of the nodes in use."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from cruise.packer.answer import Packing, ReportFunction, build_packing, compute_counting_bound
from cruise.packer.budget import BudgetMeter
from cruise.packer.kernels.cluster_state import ClusterStateArrays, remove_pods
from cruise.packer.kernels.ejection import place_by_ejection
from cruise.packer.kernels.preemption import return_pods_home
from cruise.packer.large.solving import ANY_PRIORITY, ClusterSearch, build_cluster_state
from cruise.packer.problem import BoolArray, FloatArray, IntArray, PackingProblem, compute_loads, find_nodes_in_use
from cruise.packer.rules.by_class import build_rules_by_class

# So many masks of nodes have a row of their own, those with the largest demand.
_MAX_MASKS = 16
# Resources with a demand below this share of all capacity are ignored.
_SCARCE = 0.02


def find_nodes_that_stay(problem: PackingProblem) -> BoolArray:
    """Return the nodes that no plan drains: with immovable pods, or more pods than may be evicted."""
    assert problem.node_prices is not None
    keeps_in_use = (problem.pod_node >= 0) & problem.node_prices.keeps_node_in_use[problem.pod_class]
    immovable = keeps_in_use & ~problem.movable[problem.pod_class]
    kept = np.zeros(problem.node_count, dtype=np.bool_)
    kept[problem.pod_node[immovable]] = True
    limits = problem.rules.max_evicted_by_node
    if limits is not None:
        kept |= np.bincount(problem.pod_node[keeps_in_use], minlength=problem.node_count) > limits
    return kept


def compute_min_price(problem: PackingProblem, meter: BudgetMeter, *, all_placed: bool) -> int:
    """Return a lower bound of the price of the nodes in use, whose capacity holds the sums of all placed pods.

    `all_placed` is for packings that place all pending pods; running pods are placed in any case.
    """
    # Loading CP-SAT takes longer than most problems need without it.
    from cruise.packer.exact.solver import compute_min_cover_price

    assert problem.node_prices is not None
    prices, kept = problem.node_prices.prices, find_nodes_that_stay(problem)
    covers = [(need, offers) for need, offers in _list_covers(problem, all_placed) if need > 0]
    covers += [
        (int(pods_on_node.sum()) - allowed, pods_on_node) for pods_on_node, allowed in _list_eviction_covers(problem)
    ]
    distinct, counts = np.unique(
        np.vstack([prices, kept, *(offers for _, offers in covers)]), axis=1, return_counts=True
    )
    bound = compute_min_cover_price(
        distinct[0], np.where(distinct[1], counts, 0), counts, list(distinct[2:]), [need for need, _ in covers], meter
    )
    kept_price = int(prices[kept].sum())
    return kept_price if bound is None else max(kept_price, math.ceil(bound - 1e-6))


# A sum that the nodes in use must offer, and what each node offers.
_Cover = tuple[int, IntArray]


def _list_covers(problem: PackingProblem, all_placed: bool) -> Iterator[_Cover]:
    """Yield what all pods that keep nodes in use, and those that may run on some nodes only, need of each resource."""
    assert problem.node_prices is not None
    running = problem.pod_node >= 0
    immovable = running & ~problem.movable[problem.pod_class]
    always_placed = running & ~immovable & (~problem.preemptible[problem.pod_class] | all_placed)
    needed = (always_placed | (~running & all_placed)) & problem.node_prices.keeps_node_in_use[problem.pod_class]
    loads, _ = compute_loads(problem, problem.pod_node)
    fixed, _ = compute_loads(problem, np.where(immovable, problem.pod_node, -1))
    # Pods of an overcommitted node may stay there.
    free = np.maximum(np.maximum(problem.capacities, loads) - fixed, 0)
    total = np.maximum(free.sum(axis=0), 1)
    for classes, nodes in _list_regions(problem, needed):
        pods = needed & classes[problem.pod_class]
        demands = problem.demands[problem.pod_class[pods]]
        for resource in np.flatnonzero(demands.sum(axis=0) > _SCARCE * total).tolist():
            offers = np.where(nodes, free[:, resource], 0)
            yield int(demands[:, resource].sum()), offers


def _list_regions(problem: PackingProblem, needed: BoolArray) -> Iterator[tuple[BoolArray, BoolArray]]:
    """Yield sets of classes with all nodes on which one of them can be: all classes, and those of single masks."""
    masks = np.unique(problem.node_mask_of_class[problem.pod_class[needed]])
    yield np.ones(problem.class_count, dtype=np.bool_), np.ones(problem.node_count, dtype=np.bool_)
    weight = np.zeros(problem.allowed_nodes.shape[0])
    total = np.maximum(problem.capacities.sum(axis=0), 1)
    shares = (problem.demands / total).max(axis=1)
    np.add.at(weight, problem.node_mask_of_class[problem.pod_class[needed]], shares[problem.pod_class[needed]])
    for mask in sorted(masks.tolist(), key=lambda one: -weight[one])[:_MAX_MASKS]:
        allowed = problem.allowed_nodes[mask]
        if allowed.all():
            continue
        within = ~(problem.allowed_nodes & ~allowed).any(axis=1)
        classes = within[problem.node_mask_of_class]
        running_nodes = problem.pod_node[needed & classes[problem.pod_class] & (problem.pod_node >= 0)]
        nodes = allowed.copy()
        nodes[running_nodes] = True
        if not nodes.all():
            yield classes, nodes


def _list_eviction_covers(problem: PackingProblem) -> Iterator[tuple[IntArray, int]]:
    """Yield for each limit how many of its pods are on each node, and how many may be evicted."""
    assert problem.node_prices is not None
    movable = (
        (problem.pod_node >= 0)
        & problem.node_prices.keeps_node_in_use[problem.pod_class]
        & problem.movable[problem.pod_class]
    )
    for limit in problem.rules.eviction_limits:
        covered = movable & np.isin(problem.pod_class, limit.members)
        yield np.bincount(problem.pod_node[covered], minlength=problem.node_count), limit.allowed


# Depths of the ejections for pods of a drained node: in the first order, and in later ones.
_SHALLOW, _DEEP = (0,), (0, 1, 2)
# How much later orders differ from that by load.
_SHAKE = 0.35
# The search ends after so many orders without a gain.
_MAX_FAILED_ORDERS = 8
_SAVED_FIELDS = (
    "remaining_evictions",
    "remaining_evictions_on_node",
    "home_node",
    "node",
    "first_pod",
    "next_pod",
    "previous_pod",
    "free",
    "largest",
    "preempted_count",
    "never_preempts",
    "foreign_pods",
    "dropped",
    "protected_nodes",
    "tables",
)


def drain_nodes(
    problem: PackingProblem, start: IntArray, meter: BudgetMeter, seed: int, report: ReportFunction
) -> Packing:
    """Return the best packing found by draining nodes, from `start`, which obeys every rule.

    Nodes are drained one by one: first without chains, then with them, in different orders.
    """
    search = _DrainSearch(problem, start, meter, report)
    search.drain_one_by_one(search.load(), _SHALLOW)
    generator, failed_orders = np.random.default_rng(seed), 0
    search.save_best()
    while failed_orders < _MAX_FAILED_ORDERS and not meter.is_exhausted():
        before = search.packing
        search.drain_one_by_one(search.load() * np.exp(generator.normal(0.0, _SHAKE, problem.node_count)), _DEEP)
        failed_orders = 0 if search.packing is not before else failed_orders + 1
    return search.packing


@dataclass(slots=True)
class _SavedState:
    """A copy of the arrays of a state."""

    arrays: dict[str, IntArray]

    @classmethod
    def save(cls, state: ClusterStateArrays) -> "_SavedState":
        return cls({name: getattr(state, name).copy() for name in _SAVED_FIELDS})

    def restore(self, state: ClusterStateArrays) -> None:
        for name, array in self.arrays.items():
            np.copyto(getattr(state, name), array)


class _DrainSearch(ClusterSearch):
    """The initial and the current state of a search that drains nodes."""

    def __init__(self, problem: PackingProblem, start: IntArray, meter: BudgetMeter, report: ReportFunction) -> None:
        assert problem.node_prices is not None
        super().__init__(problem, start, build_packing(problem, start, compute_counting_bound(problem)), meter, report)
        self.keeps_in_use = problem.node_prices.keeps_node_in_use[problem.pod_class]
        self.prices = problem.node_prices.prices
        self.kept: BoolArray = find_nodes_that_stay(problem)
        self.state = _copy_own_arrays(self.state)
        self.first, self.allowed_nodes = _SavedState.save(self.state), problem.allowed_nodes

    def load(self) -> FloatArray:
        """Return for each node the load that must be evicted, relative to its price."""
        total = np.maximum(self.problem.capacities.sum(axis=0), 1)
        shares = (self.problem.demands / total).max(axis=1)
        load = np.zeros(self.problem.node_count)
        counted = (self.state.node >= 0) & self.keeps_in_use
        np.add.at(load, self.state.node[counted], shares[self.problem.pod_class[counted]])
        return load / np.maximum(self.prices, 1)

    def drain_one_by_one(self, rank: FloatArray, depths: tuple[int, ...]) -> None:
        """Drain the nodes that can be drained, in the order of `rank`."""
        self._restart()
        has_drained = False
        for depth in depths:
            for node in np.argsort(rank, kind="stable").tolist():
                if self.meter.is_exhausted():
                    break
                if not self.kept[node]:
                    has_drained |= self._drain(node, depth)
        if has_drained:
            self._offer()

    def save_best(self) -> None:
        """Start from the best packing from now on."""
        self.state = _copy_own_arrays(
            build_cluster_state(self.problem, build_rules_by_class(self.problem), self.packing.pod_node)
        )
        unused = ~find_nodes_in_use(self.problem, self.packing.pod_node)
        self._forbid(unused & ~self.kept)
        self.first, self.allowed_nodes = _SavedState.save(self.state), self.state.allowed_nodes.copy()

    def _restart(self) -> None:
        np.copyto(self.state.allowed_nodes, self.allowed_nodes)
        self.first.restore(self.state)

    def _drain(self, node: int, depth: int) -> bool:
        state = self.state
        pods = np.flatnonzero((state.node == node) & self.keeps_in_use)
        if not len(pods):
            return False
        before, closed = _SavedState.save(state), state.allowed_nodes[:, node].copy()
        only_node = np.zeros(self.problem.node_count, dtype=np.bool_)
        only_node[node] = True
        self._forbid(only_node)
        if remove_pods(state, pods) and self._place(pods, depth):
            return True
        before.restore(state)
        state.allowed_nodes[:, node] = closed
        return False

    def _forbid(self, closed: BoolArray) -> None:
        """Let no pod arrive on these nodes, nor return to them."""
        state = self.state
        state.allowed_nodes[:, closed] = False
        moved = (state.home_node >= 0) & (state.node != state.home_node) & closed[state.home_node]
        state.home_node[moved] = -1

    def _place(self, pods: IntArray, depth: int) -> bool:
        """Place pods, the largest first, by ejections of this depth; return whether all are placed."""
        state = self.state
        shares = (self.problem.demands[self.problem.pod_class[pods]] * state.shares).sum(axis=1)
        unplaced = pods[np.argsort(-shares, kind="stable")]
        self.run_kernel(self.meter, partial(place_by_ejection, state, unplaced, depth, ANY_PRIORITY))
        return bool((state.node[unplaced] >= 0).all())

    def _undo_moves(self) -> None:
        state, problem = self.state, self.problem
        returned = 1
        while returned and not self.meter.is_exhausted():
            moved = np.flatnonzero((state.home_node >= 0) & (state.node != state.home_node) & (state.node >= 0))
            order = moved[np.argsort(-problem.weights[problem.pod_class[moved]], kind="stable")]
            returned = self.run_kernel(self.meter, partial(return_pods_home, state, order))

    def _offer(self) -> None:
        self._undo_moves()
        self.offer_best()


def _copy_own_arrays(state: ClusterStateArrays) -> ClusterStateArrays:
    """Return the state with its own copies of the arrays that draining changes."""
    return state._replace(allowed_nodes=state.allowed_nodes.copy(), home_node=state.home_node.copy())
