"""Emptying one node after the other: what occupies it finds other places, by ejections where it has to."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from cruise.packer.answer import Packing, ReportFunction, build_packing, compute_counting_bound
from cruise.packer.budget import BudgetMeter
from cruise.packer.kernels.cluster_state import PackedClusterState, remove_pods
from cruise.packer.kernels.ejection import place_by_ejection
from cruise.packer.kernels.preemption import return_pods_home
from cruise.packer.large.solving import ANY_PRIORITY, ClusterSearch, build_cluster_state
from cruise.packer.problem import BoolArray, FloatArray, IntArray, PackingProblem, compute_loads, find_nodes_in_use
from cruise.packer.rules.by_class import build_rules_by_class

# What no packing's nodes cost less than: which nodes have to be there for all that has a place to have one.

# Up to so many sites have rows of their own, those of the largest demand.
_MOST_SITES = 16
# A resource whose demand is below this share of what all nodes have is no reason to keep one.
_SCARCE = 0.02


def find_nodes_that_stay(problem: PackingProblem) -> BoolArray:
    """The nodes that no plan empties: something occupies them that stays, or more than may be evicted from there."""
    assert problem.node_prices is not None
    here = (problem.pod_node >= 0) & problem.node_prices.keeps_node_in_use[problem.pod_class]
    stuck = here & ~problem.movable[problem.pod_class]
    kept = np.zeros(problem.node_count, dtype=np.bool_)
    kept[problem.pod_node[stuck]] = True
    most = problem.rules.max_evicted_by_node
    if most is not None:
        kept |= np.bincount(problem.pod_node[here], minlength=problem.node_count) > most
    return kept


def compute_min_price(problem: PackingProblem, meter: BudgetMeter, *, all_placed: bool) -> int:
    """Return a lower bound of the price of the nodes in use, whose capacity holds the sums of all placed pods.

    `all_placed` is for packings that place all pending pods; running pods are placed in any case.
    """
    # It takes longer to load than most problems take that do without it.
    from cruise.packer.budget import compute_min_cover

    assert problem.node_prices is not None
    prices, kept = problem.node_prices.prices, find_nodes_that_stay(problem)
    rows = [(need, offers) for need, offers in _covers(problem, all_placed) if need > 0]
    rows += [(int(here.sum()) - allowed, here) for here, allowed in _evictions(problem)]
    kinds, counts = np.unique(np.vstack([prices, kept, *(offers for _, offers in rows)]), axis=1, return_counts=True)
    bound = compute_min_cover(
        kinds[0], np.where(kinds[1], counts, 0), counts, list(kinds[2:]), [need for need, _ in rows], meter
    )
    sure = int(prices[kept].sum())
    return sure if bound is None else max(sure, math.ceil(bound - 1e-6))


# A sum that the nodes in use have to offer, and what each node offers.
_Cover = tuple[int, IntArray]


def _covers(problem: PackingProblem, all_placed: bool) -> Iterator[_Cover]:
    """What all pods that occupy nodes, and those of them that may go to some only, need of each resource."""
    assert problem.node_prices is not None
    runs = problem.pod_node >= 0
    stuck = runs & ~problem.movable[problem.pod_class]
    sure = runs & ~stuck & (~problem.preemptible[problem.pod_class] | all_placed)
    wanted = (sure | (~runs & all_placed)) & problem.node_prices.keeps_node_in_use[problem.pod_class]
    now, _ = compute_loads(problem, problem.pod_node)
    fixed, _ = compute_loads(problem, np.where(stuck, problem.pod_node, -1))
    # What runs on a node that is too full may stay there.
    room = np.maximum(np.maximum(problem.capacities, now) - fixed, 0)
    total = np.maximum(room.sum(axis=0), 1)
    for classes, nodes in _regions(problem, wanted):
        pods = wanted & classes[problem.pod_class]
        demands = problem.demands[problem.pod_class[pods]]
        for resource in np.flatnonzero(demands.sum(axis=0) > _SCARCE * total).tolist():
            offers = np.where(nodes, room[:, resource], 0)
            yield int(demands[:, resource].sum()), offers


def _regions(problem: PackingProblem, wanted: BoolArray) -> Iterator[tuple[BoolArray, BoolArray]]:
    """Yield sets of classes with all nodes where one of them can be: all of them, and those of single sites."""
    used = np.unique(problem.node_mask_of_class[problem.pod_class[wanted]])
    yield np.ones(problem.class_count, dtype=np.bool_), np.ones(problem.node_count, dtype=np.bool_)
    weight = np.zeros(problem.allowed_nodes.shape[0])
    total = np.maximum(problem.capacities.sum(axis=0), 1)
    shares = (problem.demands / total).max(axis=1)
    np.add.at(weight, problem.node_mask_of_class[problem.pod_class[wanted]], shares[problem.pod_class[wanted]])
    for site in sorted(used.tolist(), key=lambda one: -weight[one])[:_MOST_SITES]:
        there = problem.allowed_nodes[site]
        if there.all():
            continue
        within = ~(problem.allowed_nodes & ~there).any(axis=1)
        classes = within[problem.node_mask_of_class]
        homes = problem.pod_node[wanted & classes[problem.pod_class] & (problem.pod_node >= 0)]
        nodes = there.copy()
        nodes[homes] = True
        if not nodes.all():
            yield classes, nodes


def _evictions(problem: PackingProblem) -> Iterator[tuple[IntArray, int]]:
    """Yield for each limit how many of its pods occupy each node, and how many may be evicted."""
    assert problem.node_prices is not None
    here = (
        (problem.pod_node >= 0)
        & problem.node_prices.keeps_node_in_use[problem.pod_class]
        & problem.movable[problem.pod_class]
    )
    for limit in problem.rules.eviction_limits:
        mine = here & np.isin(problem.pod_class, limit.members)
        yield np.bincount(problem.pod_node[mine], minlength=problem.node_count), limit.allowed


# How deep others make room for pods of a node that is emptied: at first, and then.
_SHALLOW, _DEEP = (0,), (0, 1, 2)
# How much a later order differs from that of the fullest nodes last.
_SHAKE = 0.35
# So many orders in a row without a gain end the search.
_PATIENCE = 8
_CHANGED = (
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
    """Empty as many nodes as can be, from `start`, which obeys every rule; the best packing found.

    One by one: first without chains, then with them, in one order after the other.
    """
    search = _DrainSearch(problem, start, meter, report)
    search.drain_one_by_one(search.load(), _SHALLOW)
    generator, vain = np.random.default_rng(seed), 0
    search.save_best()
    while vain < _PATIENCE and not meter.is_exhausted():
        before = search.packing
        search.drain_one_by_one(search.load() * np.exp(generator.normal(0.0, _SHAKE, problem.node_count)), _DEEP)
        vain = 0 if search.packing is not before else vain + 1
    return search.packing


@dataclass(slots=True)
class _SavedState:
    """The arrays of a state as they were."""

    arrays: dict[str, IntArray]

    @classmethod
    def save(cls, state: PackedClusterState) -> "_SavedState":
        return cls({name: getattr(state, name).copy() for name in _CHANGED})

    def restore(self, state: PackedClusterState) -> None:
        for name, array in self.arrays.items():
            np.copyto(getattr(state, name), array)


class _DrainSearch(ClusterSearch):
    """The board, as it was at first and as it is."""

    def __init__(self, problem: PackingProblem, start: IntArray, meter: BudgetMeter, report: ReportFunction) -> None:
        assert problem.node_prices is not None
        super().__init__(problem, start, build_packing(problem, start, compute_counting_bound(problem)), meter, report)
        self.occupies = problem.node_prices.keeps_node_in_use[problem.pod_class]
        self.prices = problem.node_prices.prices
        self.kept: BoolArray = find_nodes_that_stay(problem)
        self.state = _own(self.state)
        self.first, self.admits = _SavedState.save(self.state), problem.allowed_nodes

    def load(self) -> FloatArray:
        """For each node how much of it is taken by what would have to go, for its price."""
        total = np.maximum(self.problem.capacities.sum(axis=0), 1)
        shares = (self.problem.demands / total).max(axis=1)
        load = np.zeros(self.problem.node_count)
        here = (self.state.node >= 0) & self.occupies
        np.add.at(load, self.state.node[here], shares[self.problem.pod_class[here]])
        return load / np.maximum(self.prices, 1)

    def drain_one_by_one(self, rank: FloatArray, depths: tuple[int, ...]) -> None:
        """Empty what can be emptied, the nodes of the lowest rank first."""
        self._restart()
        emptied = False
        for depth in depths:
            for node in np.argsort(rank, kind="stable").tolist():
                if self.meter.is_exhausted():
                    break
                if not self.kept[node]:
                    emptied |= self._empty(node, depth)
        if emptied:
            self._offer()

    def save_best(self) -> None:
        """From now on begin with the best packing so far."""
        self.state = _own(build_cluster_state(self.problem, build_rules_by_class(self.problem), self.packing.pod_node))
        unused = ~find_nodes_in_use(self.problem, self.packing.pod_node)
        self._forbid(unused & ~self.kept)
        self.first, self.admits = _SavedState.save(self.state), self.state.admits.copy()

    def _restart(self) -> None:
        np.copyto(self.state.admits, self.admits)
        self.first.restore(self.state)

    def _empty(self, node: int, depth: int) -> bool:
        state = self.state
        pods = np.flatnonzero((state.node == node) & self.occupies)
        if not len(pods):
            return False
        before, closed = _SavedState.save(state), state.admits[:, node].copy()
        alone = np.zeros(self.problem.node_count, dtype=np.bool_)
        alone[node] = True
        self._forbid(alone)
        if remove_pods(state, pods) and self._place(pods, depth):
            return True
        before.restore(state)
        state.admits[:, node] = closed
        return False

    def _forbid(self, closed: BoolArray) -> None:
        """Let nothing arrive on some nodes, nor what ran there come back."""
        state = self.state
        state.admits[:, closed] = False
        away = (state.home_node >= 0) & (state.node != state.home_node) & closed[state.home_node]
        state.home_node[away] = -1

    def _place(self, pods: IntArray, depth: int) -> bool:
        """Place pods, the largest first, by ejections so deep; tell whether all have a place."""
        state = self.state
        shares = (self.problem.demands[self.problem.pod_class[pods]] * state.shares).sum(axis=1)
        waiting = pods[np.argsort(-shares, kind="stable")]
        self.run_kernel(self.meter, partial(place_by_ejection, state, waiting, depth, ANY_PRIORITY))
        return bool((state.node[waiting] >= 0).all())

    def _bring_home(self) -> None:
        state, problem = self.state, self.problem
        came = 1
        while came and not self.meter.is_exhausted():
            away = np.flatnonzero((state.home_node >= 0) & (state.node != state.home_node) & (state.node >= 0))
            order = away[np.argsort(-problem.weights[problem.pod_class[away]], kind="stable")]
            came = self.run_kernel(self.meter, partial(return_pods_home, state, order))

    def _offer(self) -> None:
        self._bring_home()
        self.offer_best()


def _own(state: PackedClusterState) -> PackedClusterState:
    """The state with what closing nodes changes of its own, apart from the problem's."""
    return state._replace(admits=state.admits.copy(), home_node=state.home_node.copy())
