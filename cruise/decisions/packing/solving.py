"""The packer: the best plan for an instance, priority after priority, and the proof that it is."""

from collections.abc import Callable

import numpy as np

from cruise.decisions.packing.answering import answer_phase
from cruise.decisions.packing.budget import Budget, Meter
from cruise.decisions.packing.certificate import Solution, certify, named_bounds
from cruise.decisions.packing.greedy import start
from cruise.decisions.packing.instance import Instance, IntArray
from cruise.decisions.packing.plan import most_possible, plan_of, vector_of
from cruise.decisions.packing.residual import residual_of
from cruise.decisions.packing.search import Search, search_of

_LAST_ITERATIONS = 400_000
_TIER_ITERATIONS = 200_000
# Of what is left, a tier before the last may use this share.
_TIER_SHARE = 0.6
_COUNT_SHARE = 0.6
_ROUNDS = 6

# Called with an assignment, and with the bounds on the entries of its vector.
Listener = Callable[[IntArray, IntArray], None]


def _nobody(_assignment: IntArray, _bounds: IntArray) -> None:
    """Nobody listens."""


def solve(
    instance: Instance, budget: Budget, incumbent: IntArray | None = None, listen: Listener = _nobody
) -> Solution:
    """The best plan found within the budget, with the bounds that were proved.

    It is never worse than what runs now, nor than the assignment `incumbent`. `listen` hears of better ones.
    """
    meter = Meter(budget.deadline_seconds, budget.work_units)
    generator = np.random.default_rng(budget.seed)
    draws = generator.integers(1, 2**63, 1, dtype=np.uint64)
    tier_count = len(instance.tiers())
    residual = residual_of(instance)
    search = search_of(residual, tier_count, draws, start(residual))
    if incumbent is not None:
        search.offer(residual.part(incumbent))
    most, bounds = most_possible(instance), most_possible(instance)
    nailed: frozenset[int] = frozenset()
    for tier in range(tier_count):
        both = slice(2 * tier, 2 * tier + 2)
        if (_figures(search)[both] < most[both]).any() and not meter.over():
            last = tier == tier_count - 1
            search = _refocused(search, nailed)
            search.run(search.best, _LAST_ITERATIONS if last else _TIER_ITERATIONS, meter, from_tier=tier)
            with meter.part(1.0 if last else _TIER_SHARE) as mine:
                _answer_tier(search, tier, most, bounds, generator, mine)
            listen(search.residual.whole(search.best), bounds)
        if _figures(search)[2 * tier + 1] == most[2 * tier + 1]:
            nailed |= {tier}
    plan = plan_of(instance, search.residual.whole(search.best))
    return certify(plan, vector_of(instance, instance.running), named_bounds(instance, bounds))


def _answer_tier(
    search: Search, tier: int, most: IntArray, bounds: IntArray, generator: np.random.Generator, meter: Meter
) -> None:
    """Ask for the tier's count, then for its stays, even where the count stays open, and again while time is left."""
    for figure in (2 * tier, 2 * tier + 1) * _ROUNDS:
        figures = _figures(search)
        nailed_copies = int(figures[figure] - search.best_vector[figure])
        if figures[figure] >= min(bounds[figure], most[figure]) or meter.over():
            continue
        with meter.part(_COUNT_SHARE if figure % 2 == 0 else 1.0) as part:
            before = int(search.best_vector[figure])
            bound = answer_phase(search, tier, figure % 2 == 1, generator, part) + nailed_copies
        bounds[figure] = min(bounds[figure], bound)
        if figure % 2 == 0 and search.best_vector[figure] > before:
            # With more placed, the bound on stays that was found for fewer is loose.
            bounds[figure + 1] = most[figure + 1]


def _figures(search: Search) -> IntArray:
    """Places and stays of each tier in turn, nailed copies included."""
    instance, vector = search.residual.instance, search.best_vector.copy()
    for tier, priority in enumerate(instance.tiers()):
        vector[2 * tier : 2 * tier + 2] += search.residual.nailed[instance.priorities == priority].sum()
    return vector


def _refocused(search: Search, nailed: frozenset[int]) -> Search:
    """The same best plan, on what is left to decide once the tiers are nailed."""
    residual = residual_of(search.residual.instance, nailed)
    assignment = residual.part(search.residual.whole(search.best))
    return search_of(residual, search.tier_count, search.state, assignment)
