"""Prices that bound well: up by what is lacking at first, then to where the nodes' known changes agree."""

import math

import numpy as np

from cruise.packer.budget import SINGLE_THREAD, BudgetMeter, ThreadPool
from cruise.packer.kernels.price_agreement import NodeChanges, improve_prices
from cruise.packer.problem import FloatArray, IntArray, PackingObjective, PackingProblem
from cruise.packer.relaxed.dual import (
    SCALE,
    BoundQuestion,
    LagrangianDual,
    ask_fewest_unplaced,
    ask_min_eviction_weight,
)

# Classes by their sizes: what is nearly alike is worth nearly the same.

# Sizes in each of the two scarcest resources at which prices are known, from coarse to fine; between, they blend.
_KNOTS = (2, 4, 8)


def split_prices_by_size(problem: PackingProblem) -> FloatArray:
    """How much of a class's price is that of each corner of the nets over all sizes: a row for each class."""
    total = np.maximum(problem.capacities.sum(axis=0), 1)
    wanted = problem.demands[problem.pod_class].sum(axis=0) / total
    scarce = np.argsort(-wanted, kind="stable")[:2]
    nets = []
    for knots in _KNOTS:
        net = np.ones((problem.class_count, 1))
        for r in scarce.tolist():
            share = _shares(problem.demands[:, r].astype(np.float64), knots)
            net = (net[:, :, None] * share[:, None, :]).reshape(len(net), -1)
        nets.append(net)
    # What is small fits into gaps for nothing: its price follows that of the others less.
    room = (problem.demands[:, scarce] / total[scarce]).sum(axis=1)
    every = np.minimum(room / max(room.mean(), 1e-12), 1.0)[:, None] * np.concatenate(nets, axis=1)
    return np.asarray(every[:, every.any(axis=0)], dtype=np.float64)


def _shares(sizes: FloatArray, knots: int) -> FloatArray:
    """Each size as a blend of the two knots beside it, which have equally many classes between them."""
    at = np.unique(np.quantile(sizes, np.linspace(0.0, 1.0, knots))) if len(sizes) else np.zeros(1)
    shares = np.zeros((len(sizes), len(at)))
    if len(at) == 1:
        return shares + 1.0
    below = np.clip(np.searchsorted(at, sizes, side="right") - 1, 0, len(at) - 2)
    blend = (sizes - at[below]) / (at[below + 1] - at[below])
    every = np.arange(len(sizes))
    shares[every, below], shares[every, below + 1] = 1.0 - blend, blend
    return shares


# How far a price, or its part by size, goes at first, in costs of an eviction; how much of its last direction it keeps.
_STEP, _KEPT = 0.1, 0.7
# So many steps may bound nothing.
_PATIENCE = 20
# Nodes are searched for no longer than this until something is bounded, then for more, up to a limit.
_QUICK_SEARCH, _SEARCH, _LONGER, _LONGEST_SEARCH = 500, 4_000, 3, 400_000
# How far from the best prices known changes may move one for each copy that lacks, in costs of an eviction, at first
# and at most before nothing is promised.
_REACH, _MOST_REACH = 0.03, 10.0
# Farther where that gained this share of what they promised, or nearly all.
_GOOD, _FARTHER, _BEST, _FARTHEST = 0.3, 1.5, 0.8, 3.0
# Nearer where it gained nothing, most where nodes gain so many times as much more as was promised.
_NEAR, _TOO_FAR, _NEARER = 0.85, 2.0, 0.6
# Where so much of what nodes gain more is not sure, their search is too short.
_UNSURE = 0.5
# No price is more than so many whole ones, so that sums stay far from where rounding would count.
_MOST_PRICE = 1024.0
# How often known changes are weighed anew for one search of the nodes, and what goes without a place between these.
_ROUNDS, _PASSES = 4, 60
# A search of all nodes ends where they gain so much of what was promised more: little is left for the bound.
_ENOUGH = 0.9
_MOST_STEPS = 10_000
# A promise of less than this of an eviction is none.
_PROMISE = 0.003
# What one known change of a node takes to weigh, in units of work.
_WEIGHING = 25


def compute_lower_bound(dual: LagrangianDual, question: BoundQuestion, known: int, meter: BudgetMeter) -> int:
    """The greatest bound found until it meets what a plan is known to reach, nothing gains, or the budget ends."""
    dual.drop_changes()
    climb, bound, vain, best = _SubgradientAscent(dual, question), 0, 0, np.zeros(len(dual.supply))
    while math.ceil(bound / SCALE) < known and not meter.is_exhausted():
        prices = climb.prices()
        value = dual.evaluate(question, prices, _SEARCH if bound > 0 else _QUICK_SEARCH, meter)
        if value is None:
            break
        if value.bound > bound:
            bound, best = value.bound, prices
        elif bound > 0 or vain > _PATIENCE:
            # From here on it goes up and down.
            bound = _BundleMethod(dual, question, best).improve(bound, known, meter)
            break
        vain += bound == 0
        climb.follow(value.slope)
    return -(-bound // SCALE)


class _BundleMethod:
    """Prices near the best ones at which known changes of nodes bring what is wanted: a proximal bundle method.

    The changes that are known of a node bound what it gains from below, so they promise too much; the search at the
    prices that they agree on adds the changes that they lack.
    """

    def __init__(self, dual: LagrangianDual, question: BoundQuestion, best: FloatArray) -> None:
        self._dual, self._question = dual, question
        self._best = np.where(dual.supply, np.maximum(best, 0.0) * SCALE, 0.0)
        # Nobody pays more for a place than what it costs to have none.
        self._most = np.full(len(best), _MOST_PRICE * SCALE)
        self._most[np.flatnonzero(question.missed)] = SCALE
        self._most[~dual.supply] = 0.0
        self._unit = SCALE * float(max(question.cost.max(initial=0), 1))
        self._missing = dual.get_missing(question, np.rint(self._best).astype(np.int64)).astype(np.float64)
        self._lacks, self._prices = np.zeros(len(best)), np.zeros(len(best))
        self._scratch, self._spent = np.zeros(len(best)), np.zeros(1, dtype=np.int64)

    def improve(self, bound: int, known: int, meter: BudgetMeter) -> int:
        """The greatest bound found, no less than one that is known at the best prices so far."""
        reach, search, left = _REACH, _SEARCH, _MOST_STEPS
        while left > 0 and math.ceil(bound / SCALE) < known and search <= _LONGEST_SEARCH and not meter.is_exhausted():
            left -= 1
            promise = self._agree(reach * self._unit, meter) - bound
            if promise < _PROMISE * SCALE:
                # Where even far from the best prices nothing is promised, there is nothing.
                if reach > _MOST_REACH:
                    break
                reach *= _FARTHEST
                continue
            value = self._dual.evaluate(self._question, self._prices / SCALE, search, meter, _ENOUGH * promise)
            if value is None:
                break
            gained = value.bound - bound
            if gained > 0:
                bound, self._best = value.bound, np.rint(self._prices)
                reach *= _FARTHEST if gained > _BEST * promise else _FARTHER if gained > _GOOD * promise else 1.0
            elif value.surplus > _TOO_FAR * promise * value.nodes_searched:
                reach *= _NEARER**value.nodes_searched
            elif value.uncertainty > _UNSURE * value.surplus:
                search *= _LONGER
            else:
                reach *= _NEAR**value.nodes_searched
        return bound

    def _agree(self, step: float, meter: BudgetMeter) -> float:
        """The bound that known changes promise at the prices that they agree on."""
        dual, gains = self._dual, 0.0
        for _ in range(_ROUNDS):
            wanted = np.concatenate([dual.pending - self._missing, -dual.allowed])
            self._spent[0] = 0
            gains = improve_prices(
                dual.changes,
                wanted,
                self._best,
                step,
                self._most,
                self._lacks,
                self._prices,
                self._scratch,
                _PASSES,
                self._spent,
            )
            meter.spend(_WEIGHING * float(self._spent[0]))
            if not self._leave_out(step):
                break
        return float(wanted @ self._prices) - gains

    def _leave_out(self, step: float) -> bool:
        """Move what goes without a place towards what would be cheapest; tell whether it moved."""
        cheapest = self._dual.get_missing(self._question, np.rint(self._prices).astype(np.int64))
        more = np.where(self._question.missed, 0.0, cheapest - self._missing)
        gain = float(more @ self._prices[: len(more)])
        if gain < 1.0:
            return False
        self._missing = self._missing + min(gain / (step * float(more @ more)), 1.0) * more
        return True


class _SubgradientAscent:
    """Prices on their way up: each is the sum of parts by size and one of its own."""

    def __init__(self, dual: LagrangianDual, question: BoundQuestion) -> None:
        # What limits cost has nothing to do with sizes.
        sizes = split_prices_by_size(dual.problem)
        self._sizes = np.concatenate([sizes, np.zeros((len(dual.allowed), sizes.shape[1]))])
        self.parts = np.zeros(self._sizes.shape[1] + len(self._sizes))
        self._swings, self._direction = np.ones(len(self.parts)), np.zeros(len(self.parts))
        self._step = _STEP * float(max(question.cost.max(initial=0), 1))

    def prices(self) -> FloatArray:
        """The price of each class, below 0 where even 0 is too much."""
        mine = self._sizes.shape[1]
        return np.asarray(self._sizes @ self.parts[:mine] + self.parts[mine:], dtype=np.float64)

    def follow(self, slope: IntArray) -> None:
        """Go where what classes lack points, where prices can."""
        lacks = np.where((self.prices() <= 0.0) & (slope < 0), 0, slope)
        every = np.concatenate([self._sizes.T @ lacks, lacks])
        self._direction = _KEPT * self._direction + (1.0 - _KEPT) * every
        self._swings += np.square(every)
        self.parts = self.parts + self._step * self._direction / np.sqrt(self._swings)


# What no plan surpasses beside one that is known: entry by entry of what decides, each by a dual of its own.

# Counting bounds how many have a place about as well as prices do: what stays has so many times as long.
_LONGER_bounding = 4


class RelaxedBounds:
    """Bounds of a problem that hold for plans that are as good as a known one in what counts more."""

    def __init__(self, problem: PackingProblem, threads: ThreadPool = SINGLE_THREAD) -> None:
        self.problem = problem
        self._dual = LagrangianDual(problem, threads)
        tiers = np.unique(problem.priorities)[::-1]
        self._tier: IntArray = np.searchsorted(-tiers, -problem.priorities)
        self._pods = np.bincount(self._tier[problem.pod_class], minlength=len(tiers))
        # Of equal weights the greatest common part counts: bounds are whole numbers of it.
        self._unit = max(int(np.gcd.reduce(problem.weights)), 1) if len(problem.weights) else 1

    @property
    def node_changes(self) -> NodeChanges:
        """The changes of nodes that the last bound came of."""
        return self._dual.changes

    def compute(self, key: tuple[int, ...], known: tuple[int, ...], meter: BudgetMeter) -> tuple[int, ...]:
        """Bounds of each entry beside a plan of this key, no worse than those that are known."""
        bounds, each = list(known), 2 if self.problem.objective is PackingObjective.PAPER else 1
        tiers = len(self._pods)
        placed = key[: each * tiers : each]
        open_entries = [entry for entry, (mine, most) in enumerate(zip(key, known, strict=True)) if mine < most]
        turns = [1 if self._counts_placed(entry, each) else _LONGER_bounding for entry in open_entries]
        for number, entry in enumerate(open_entries):
            with meter.get_part(turns[number] / sum(turns[number:])) as part:
                bounds[entry] = min(known[entry], self._most(key, placed, entry, each, part))
        return tuple(bounds)

    def compute_min_evicted(self, placed: tuple[int, ...], evicted: int, meter: BudgetMeter) -> int:
        """How many pods every plan evicts that places as many of each priority; `evicted` is what a known one does."""
        question = ask_min_eviction_weight(self.problem, placed, np.ones(self.problem.class_count, dtype=np.int64))
        return compute_lower_bound(self._dual, question, evicted, meter)

    def _counts_placed(self, entry: int, each: int) -> bool:
        return entry < each * len(self._pods) and entry % each == 0

    def _most(self, key: tuple[int, ...], placed: tuple[int, ...], entry: int, each: int, meter: BudgetMeter) -> int:
        problem, tier = self.problem, entry // each
        if entry >= each * len(self._pods):
            question = ask_min_eviction_weight(problem, placed, problem.weights // self._unit)
            return -self._unit * compute_lower_bound(self._dual, question, -key[entry] // self._unit, meter)
        if self._counts_placed(entry, each):
            question = ask_fewest_unplaced(problem, placed[:tier])
            missing = int(self._pods[tier]) - key[entry]
            return int(self._pods[tier]) - compute_lower_bound(self._dual, question, missing, meter)
        ran = int((self._tier[problem.pod_class[problem.pod_node >= 0]] == tier).sum())
        question = ask_min_eviction_weight(problem, placed[: tier + 1], (self._tier == tier).astype(np.int64))
        return ran - compute_lower_bound(self._dual, question, ran - key[entry], meter)
