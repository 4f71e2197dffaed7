"""Emptying one node after the other: what occupies it finds other places, by ejections where it has to."""

from dataclasses import dataclass
from functools import partial

import numpy as np

from cruise.packer.answer import Packing, Report, packing_of
from cruise.packer.arrays import BoolArray, FloatArray, IntArray
from cruise.packer.bounds import counted_bound
from cruise.packer.budget import Meter
from cruise.packer.fleet.bounding import kept_in_use
from cruise.packer.kernels.clearing import send_off
from cruise.packer.kernels.cluster_state import ClusterState
from cruise.packer.kernels.ejecting import place_pods
from cruise.packer.kernels.preempting import bring_home
from cruise.packer.large.board import ANY_RANK, Board
from cruise.packer.large.state import state_of
from cruise.packer.problem import Problem, in_use
from cruise.packer.rules.by_class import rules_by_class

# How deep others make room for pods of a node that is emptied: at first, and then.
_SHALLOW, _DEEP = (0,), (0, 1, 2)
# How much a later order differs from that of the fullest nodes last.
_SHAKE = 0.35
# So many orders in a row without a gain end the search.
_PATIENCE = 8
_CHANGED = (
    "left", "left_on", "home", "at", "head", "after", "before", "free", "largest", "lost", "timid", "guests",
    "dropped", "pinned", "tables",
)  # fmt: skip


def empty_nodes(problem: Problem, start: IntArray, meter: Meter, seed: int, report: Report) -> Packing:
    """Empty as many nodes as can be, from `start`, which obeys every rule; the best packing found.

    One by one: first without chains, then with them, in one order after the other.
    """
    search = _Search(problem, start, meter, report)
    search.empty_one_by_one(search.load(), _SHALLOW)
    generator, vain = np.random.default_rng(seed), 0
    search.keep_best()
    while vain < _PATIENCE and not meter.over():
        before = search.packing
        search.empty_one_by_one(search.load() * np.exp(generator.normal(0.0, _SHAKE, problem.node_count)), _DEEP)
        vain = 0 if search.packing is not before else vain + 1
    return search.packing


@dataclass(slots=True)
class _Kept:
    """The arrays of a state as they were."""

    arrays: dict[str, IntArray]

    @classmethod
    def of(cls, state: ClusterState) -> "_Kept":
        return cls({name: getattr(state, name).copy() for name in _CHANGED})

    def restore(self, state: ClusterState) -> None:
        for name, array in self.arrays.items():
            np.copyto(getattr(state, name), array)


class _Search(Board):
    """The board, as it was at first and as it is."""

    def __init__(self, problem: Problem, start: IntArray, meter: Meter, report: Report) -> None:
        assert problem.fleet is not None
        super().__init__(problem, start, packing_of(problem, start, counted_bound(problem)), meter, report)
        self.occupies = problem.fleet.occupies[problem.pod_class]
        self.prices = problem.fleet.prices
        self.kept: BoolArray = kept_in_use(problem)
        self.state = _own(self.state)
        self.first, self.admits = _Kept.of(self.state), problem.admits

    def load(self) -> FloatArray:
        """For each node how much of it is taken by what would have to go, for its price."""
        total = np.maximum(self.problem.capacities.sum(axis=0), 1)
        shares = (self.problem.demands / total).max(axis=1)
        load = np.zeros(self.problem.node_count)
        here = (self.state.at >= 0) & self.occupies
        np.add.at(load, self.state.at[here], shares[self.problem.pod_class[here]])
        return load / np.maximum(self.prices, 1)

    def empty_one_by_one(self, rank: FloatArray, depths: tuple[int, ...]) -> None:
        """Empty what can be emptied, the nodes of the lowest rank first."""
        self._restart()
        emptied = False
        for depth in depths:
            for node in np.argsort(rank, kind="stable").tolist():
                if self.meter.over():
                    break
                if not self.kept[node]:
                    emptied |= self._empty(node, depth)
        if emptied:
            self._offer()

    def keep_best(self) -> None:
        """From now on begin with the best packing so far."""
        self.state = _own(state_of(self.problem, rules_by_class(self.problem), self.packing.pod_node))
        unused = ~in_use(self.problem, self.packing.pod_node)
        self._forbid(unused & ~self.kept)
        self.first, self.admits = _Kept.of(self.state), self.state.admits.copy()

    def _restart(self) -> None:
        np.copyto(self.state.admits, self.admits)
        self.first.restore(self.state)

    def _empty(self, node: int, depth: int) -> bool:
        state = self.state
        pods = np.flatnonzero((state.at == node) & self.occupies)
        if not len(pods):
            return False
        before, closed = _Kept.of(state), state.admits[:, node].copy()
        alone = np.zeros(self.problem.node_count, dtype=np.bool_)
        alone[node] = True
        self._forbid(alone)
        if send_off(state, pods) and self._place(pods, depth):
            return True
        before.restore(state)
        state.admits[:, node] = closed
        return False

    def _forbid(self, closed: BoolArray) -> None:
        """Let nothing arrive on some nodes, nor what ran there come back."""
        state = self.state
        state.admits[:, closed] = False
        away = (state.home >= 0) & (state.at != state.home) & closed[state.home]
        state.home[away] = -1

    def _place(self, pods: IntArray, depth: int) -> bool:
        """Place pods, the largest first, by ejections so deep; tell whether all have a place."""
        state = self.state
        shares = (self.problem.demands[self.problem.pod_class[pods]] * state.shares).sum(axis=1)
        waiting = pods[np.argsort(-shares, kind="stable")]
        self.act(self.meter, partial(place_pods, state, waiting, depth, ANY_RANK))
        return bool((state.at[waiting] >= 0).all())

    def _bring_home(self) -> None:
        state, problem = self.state, self.problem
        came = 1
        while came and not self.meter.over():
            away = np.flatnonzero((state.home >= 0) & (state.at != state.home) & (state.at >= 0))
            order = away[np.argsort(-problem.weights[problem.pod_class[away]], kind="stable")]
            came = self.act(self.meter, partial(bring_home, state, order))

    def _offer(self) -> None:
        self._bring_home()
        self.offer()


def _own(state: ClusterState) -> ClusterState:
    """The state with what closing nodes changes of its own, apart from the problem's."""
    return state._replace(admits=state.admits.copy(), home=state.home.copy())
