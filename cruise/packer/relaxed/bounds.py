"""Computes lower bounds by Lagrangian prices: first by subgradient ascent, then by a proximal bundle method."""

import math

import numpy as np

from cruise.packer.budget import SINGLE_THREAD, BudgetMeter, ThreadPool
from cruise.packer.kernels.price_agreement import NodeChanges, improve_prices
from cruise.packer.problem import FloatArray, IntArray, PackingObjective, PackingProblem
from cruise.packer.relaxed.dual import (
    SCALE,
    BoundObjective,
    LagrangianDual,
    create_eviction_objective,
    create_unplaced_objective,
)

# Sizes in each of the two scarcest resources at which prices are parameters, from coarse to fine; in between they are
# interpolated.
_GRID_SIZES = (2, 4, 8)


def split_prices_by_size(problem: PackingProblem) -> FloatArray:
    """Return how much the price of each class depends on each point of the size grids: a row per class."""
    total = np.maximum(problem.capacities.sum(axis=0), 1)
    demand = problem.demands[problem.pod_class].sum(axis=0) / total
    scarce = np.argsort(-demand, kind="stable")[:2]
    grids = []
    for grid_size in _GRID_SIZES:
        grid = np.ones((problem.class_count, 1))
        for r in scarce.tolist():
            weights = _interpolate(problem.demands[:, r].astype(np.float64), grid_size)
            grid = (grid[:, :, None] * weights[:, None, :]).reshape(len(grid), -1)
        grids.append(grid)
    # Small pods fit into gaps at no cost, so their price depends less on the others.
    size = (problem.demands[:, scarce] / total[scarce]).sum(axis=1)
    all_weights = np.minimum(size / max(size.mean(), 1e-12), 1.0)[:, None] * np.concatenate(grids, axis=1)
    return np.asarray(all_weights[:, all_weights.any(axis=0)], dtype=np.float64)


def _interpolate(sizes: FloatArray, grid_size: int) -> FloatArray:
    """Return each size as a blend of its two neighbouring grid points, with equally many classes between points."""
    points = np.unique(np.quantile(sizes, np.linspace(0.0, 1.0, grid_size))) if len(sizes) else np.zeros(1)
    weights = np.zeros((len(sizes), len(points)))
    if len(points) == 1:
        return weights + 1.0
    below = np.clip(np.searchsorted(points, sizes, side="right") - 1, 0, len(points) - 2)
    blend = (sizes - points[below]) / (points[below + 1] - points[below])
    rows = np.arange(len(sizes))
    weights[rows, below], weights[rows, below + 1] = 1.0 - blend, blend
    return weights


# Initial step of a price, in costs of an eviction, and the momentum of its direction.
_STEP, _MOMENTUM = 0.1, 0.7
# Steps without any bound before the method changes.
_MAX_FAILED_STEPS = 20
# Steps of a node's search until something is bounded, then more, up to a limit.
_QUICK_SEARCH, _SEARCH, _SEARCH_FACTOR, _MAX_SEARCH = 500, 4_000, 3, 400_000
# How far known changes may move a price per missing copy, in costs of an eviction: at first, and at most while nothing
# is predicted.
_RADIUS, _MAX_RADIUS = 0.03, 10.0
# The radius grows if a step gained this share of the predicted gain, or nearly all.
_GOOD, _FARTHER, _BEST, _FARTHEST = 0.3, 1.5, 0.8, 3.0
# It shrinks if a step gained nothing, most if nodes gain so many times more than predicted.
_NEAR, _TOO_FAR, _NEARER = 0.85, 2.0, 0.6
# If so much of the additional gain is uncertain, the search is too short.
_UNSURE = 0.5
# Limit of prices, so that sums stay far from rounding.
_MAX_PRICE = 1024.0
# Rounds of known changes for one search of the nodes, and passes between updates of unplaced pods.
_ROUNDS, _PASSES = 4, 60
# A search of all nodes ends once they gain this share of the prediction more: little is left for the bound.
_ENOUGH = 0.9
_MAX_STEPS = 10_000
# A predicted gain of less than this share of an eviction counts as none.
_MIN_PREDICTED_GAIN = 0.003
# Work units of evaluating one known change of a node.
_EVALUATION_STEP = 25


def compute_lower_bound(dual: LagrangianDual, question: BoundObjective, known: int, meter: BudgetMeter) -> int:
    """Return the largest bound found until it meets a known plan, nothing gains, or the budget ends."""
    dual.drop_changes()
    ascent, bound, failed, best = _SubgradientAscent(dual, question), 0, 0, np.zeros(len(dual.supply))
    while math.ceil(bound / SCALE) < known and not meter.is_exhausted():
        prices = ascent.prices()
        value = dual.evaluate(question, prices, _SEARCH if bound > 0 else _QUICK_SEARCH, meter)
        if value is None:
            break
        if value.bound > bound:
            bound, best = value.bound, prices
        elif bound > 0 or failed > _MAX_FAILED_STEPS:
            # From here on the bound oscillates.
            bound = _BundleMethod(dual, question, best).improve(bound, known, meter)
            break
        failed += bound == 0
        ascent.follow(value.slope)
    return -(-bound // SCALE)


class _BundleMethod:
    """Finds prices near the best ones at which known changes of nodes meet demand: a proximal bundle method.

    Known changes bound the gain of a node from below, so they predict too large a bound; a search at the agreed prices
    adds missing changes.
    """

    def __init__(self, dual: LagrangianDual, question: BoundObjective, best: FloatArray) -> None:
        self._dual, self._question = dual, question
        self._best = np.where(dual.supply, np.maximum(best, 0.0) * SCALE, 0.0)
        # No price exceeds the cost of an unplaced pod.
        self._most = np.full(len(best), _MAX_PRICE * SCALE)
        self._most[np.flatnonzero(question.missed)] = SCALE
        self._most[~dual.supply] = 0.0
        self._unit = SCALE * float(max(question.cost.max(initial=0), 1))
        self._missing = dual.get_missing(question, np.rint(self._best).astype(np.int64)).astype(np.float64)
        self._excess_demand, self._prices = np.zeros(len(best)), np.zeros(len(best))
        self._scratch, self._spent = np.zeros(len(best)), np.zeros(1, dtype=np.int64)

    def improve(self, bound: int, known: int, meter: BudgetMeter) -> int:
        """Return the largest bound found, at least the known one at the best prices so far."""
        radius, search, steps_left = _RADIUS, _SEARCH, _MAX_STEPS
        while (
            steps_left > 0 and math.ceil(bound / SCALE) < known and search <= _MAX_SEARCH and not meter.is_exhausted()
        ):
            steps_left -= 1
            predicted_gain = self._agree(radius * self._unit, meter) - bound
            if predicted_gain < _MIN_PREDICTED_GAIN * SCALE:
                # If nothing is predicted even far from the best prices, nothing gains.
                if radius > _MAX_RADIUS:
                    break
                radius *= _FARTHEST
                continue
            value = self._dual.evaluate(self._question, self._prices / SCALE, search, meter, _ENOUGH * predicted_gain)
            if value is None:
                break
            gained = value.bound - bound
            if gained > 0:
                bound, self._best = value.bound, np.rint(self._prices)
                radius *= (
                    _FARTHEST
                    if gained > _BEST * predicted_gain
                    else _FARTHER
                    if gained > _GOOD * predicted_gain
                    else 1.0
                )
            elif value.surplus > _TOO_FAR * predicted_gain * value.nodes_searched:
                radius *= _NEARER**value.nodes_searched
            elif value.uncertainty > _UNSURE * value.surplus:
                search *= _SEARCH_FACTOR
            else:
                radius *= _NEAR**value.nodes_searched
        return bound

    def _agree(self, step: float, meter: BudgetMeter) -> float:
        """Return the bound that known changes predict at the prices on which they agree."""
        dual, gains = self._dual, 0.0
        for _ in range(_ROUNDS):
            demand = np.concatenate([dual.pending - self._missing, -dual.allowed])
            self._spent[0] = 0
            gains = improve_prices(
                dual.changes,
                demand,
                self._best,
                step,
                self._most,
                self._excess_demand,
                self._prices,
                self._scratch,
                _PASSES,
                self._spent,
            )
            meter.spend(_EVALUATION_STEP * float(self._spent[0]))
            if not self._update_unplaced(step):
                break
        return float(demand @ self._prices) - gains

    def _update_unplaced(self, step: float) -> bool:
        """Move the unplaced pods towards the cheapest choice; return whether they changed."""
        cheapest = self._dual.get_missing(self._question, np.rint(self._prices).astype(np.int64))
        change = np.where(self._question.missed, 0.0, cheapest - self._missing)
        gain = float(change @ self._prices[: len(change)])
        if gain < 1.0:
            return False
        self._missing = self._missing + min(gain / (step * float(change @ change)), 1.0) * change
        return True


class _SubgradientAscent:
    """Increases prices, each the sum of parts by size and its own part."""

    def __init__(self, dual: LagrangianDual, question: BoundObjective) -> None:
        # Prices of limits do not depend on sizes.
        sizes = split_prices_by_size(dual.problem)
        self._sizes = np.concatenate([sizes, np.zeros((len(dual.allowed), sizes.shape[1]))])
        self.parts = np.zeros(self._sizes.shape[1] + len(self._sizes))
        self._squared_slopes, self._direction = np.ones(len(self.parts)), np.zeros(len(self.parts))
        self._step = _STEP * float(max(question.cost.max(initial=0), 1))

    def prices(self) -> FloatArray:
        """Return the price of each class, below 0 if even 0 is too high."""
        size_parts = self._sizes.shape[1]
        return np.asarray(self._sizes @ self.parts[:size_parts] + self.parts[size_parts:], dtype=np.float64)

    def follow(self, slope: IntArray) -> None:
        """Step in the direction of excess demand, where prices can move."""
        excess_demand = np.where((self.prices() <= 0.0) & (slope < 0), 0, slope)
        slopes = np.concatenate([self._sizes.T @ excess_demand, excess_demand])
        self._direction = _MOMENTUM * self._direction + (1.0 - _MOMENTUM) * slopes
        self._squared_slopes += np.square(slopes)
        self.parts = self.parts + self._step * self._direction / np.sqrt(self._squared_slopes)


# The bound of placed pods is close to the counting bound, so entries of staying pods get so many times as long.

_STAY_ENTRY_FACTOR = 4


class RelaxedBounds:
    """Bounds of a problem for plans that are as good as a known one in earlier entries."""

    def __init__(self, problem: PackingProblem, threads: ThreadPool = SINGLE_THREAD) -> None:
        self.problem = problem
        self._dual = LagrangianDual(problem, threads)
        tiers = np.unique(problem.priorities)[::-1]
        self._tier: IntArray = np.searchsorted(-tiers, -problem.priorities)
        self._pods = np.bincount(self._tier[problem.pod_class], minlength=len(tiers))
        # Bounds are multiples of the greatest common divisor of the weights.
        self._unit = max(int(np.gcd.reduce(problem.weights)), 1) if len(problem.weights) else 1

    @property
    def node_changes(self) -> NodeChanges:
        """Return the node changes of the last bound."""
        return self._dual.changes

    def compute(self, key: tuple[int, ...], known: tuple[int, ...], meter: BudgetMeter) -> tuple[int, ...]:
        """Return bounds of each entry for plans as good as this key before it, no worse than the known ones."""
        bounds, entries_per_priority = list(known), 2 if self.problem.objective is PackingObjective.PAPER else 1
        priority_count = len(self._pods)
        placed = key[: entries_per_priority * priority_count : entries_per_priority]
        open_entries = [entry for entry, (value, bound) in enumerate(zip(key, known, strict=True)) if value < bound]
        shares = [
            1 if self._counts_placed(entry, entries_per_priority) else _STAY_ENTRY_FACTOR for entry in open_entries
        ]
        for number, entry in enumerate(open_entries):
            with meter.get_part(shares[number] / sum(shares[number:])) as part:
                bounds[entry] = min(known[entry], self._bound_entry(key, placed, entry, entries_per_priority, part))
        return tuple(bounds)

    def compute_min_evicted(self, placed: tuple[int, ...], evicted: int, meter: BudgetMeter) -> int:
        """Return how many pods every plan evicts that places as many of each priority; a known one evicts `evicted`."""
        question = create_eviction_objective(self.problem, placed, np.ones(self.problem.class_count, dtype=np.int64))
        return compute_lower_bound(self._dual, question, evicted, meter)

    def _counts_placed(self, entry: int, entries_per_priority: int) -> bool:
        return entry < entries_per_priority * len(self._pods) and entry % entries_per_priority == 0

    def _bound_entry(
        self, key: tuple[int, ...], placed: tuple[int, ...], entry: int, entries_per_priority: int, meter: BudgetMeter
    ) -> int:
        problem, level = self.problem, entry // entries_per_priority
        if entry >= entries_per_priority * len(self._pods):
            question = create_eviction_objective(problem, placed, problem.weights // self._unit)
            return -self._unit * compute_lower_bound(self._dual, question, -key[entry] // self._unit, meter)
        if self._counts_placed(entry, entries_per_priority):
            question = create_unplaced_objective(problem, placed[:level])
            missing = int(self._pods[level]) - key[entry]
            return int(self._pods[level]) - compute_lower_bound(self._dual, question, missing, meter)
        running_count = int((self._tier[problem.pod_class[problem.pod_node >= 0]] == level).sum())
        question = create_eviction_objective(problem, placed[: level + 1], (self._tier == level).astype(np.int64))
        return running_count - compute_lower_bound(self._dual, question, running_count - key[entry], meter)
