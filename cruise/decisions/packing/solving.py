"""The packer: the best plan for an instance, priority after priority, and the proof that it is."""

import numpy as np

from cruise.decisions.packing.answering import answer_phase
from cruise.decisions.packing.budget import Budget, Meter
from cruise.decisions.packing.certificate import Solution, TierBound, certify
from cruise.decisions.packing.greedy import start
from cruise.decisions.packing.instance import Instance, IntArray
from cruise.decisions.packing.plan import plan_of, vector_of
from cruise.decisions.packing.residual import residual_of
from cruise.decisions.packing.search import Search, search_of

_LAST_ITERATIONS = 400_000
_TIER_ITERATIONS = 200_000
# Of what is left, a tier before the last may use this share.
_TIER_SHARE = 0.6
_COUNT_SHARE = 0.6
_ROUNDS = 6


def greedy_solution(instance: Instance) -> Solution:
    """A whole feasible plan in milliseconds; its bounds are what exists."""
    residual = residual_of(instance)
    plan = plan_of(instance, residual.whole(start(residual)))
    return certify(plan, vector_of(instance, instance.running), _named(instance, _most_possible(instance)))


def solve(instance: Instance, budget: Budget) -> Solution:
    """The best plan found within the budget, never worse than what runs now, with the bounds that were proved."""
    meter = Meter(budget.deadline_seconds, budget.work_units)
    generator = np.random.default_rng(budget.seed)
    draws = generator.integers(1, 2**63, 1, dtype=np.uint64)
    tier_count = len(instance.tiers())
    residual = residual_of(instance)
    search = search_of(residual, tier_count, draws, start(residual))
    most, bounds = _most_possible(instance), _most_possible(instance)
    nailed: frozenset[int] = frozenset()
    for tier in range(tier_count):
        both = slice(2 * tier, 2 * tier + 2)
        if (_figures(search)[both] < most[both]).any() and not meter.over():
            last = tier == tier_count - 1
            search = _refocused(search, nailed)
            search.run(search.best, _LAST_ITERATIONS if last else _TIER_ITERATIONS, meter, from_tier=tier)
            with meter.part(1.0 if last else _TIER_SHARE) as mine:
                _answer_tier(search, tier, most, bounds, generator, mine)
        if _figures(search)[2 * tier + 1] == most[2 * tier + 1]:
            nailed |= {tier}
    plan = plan_of(instance, search.residual.whole(search.best))
    return certify(plan, vector_of(instance, instance.running), _named(instance, bounds))


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


def _most_possible(instance: Instance) -> IntArray:
    """Copies that exist and copies that run, of each tier in turn."""
    figures = []
    for priority in instance.tiers():
        mine = instance.priorities == priority
        figures += [int(instance.counts[mine].sum()), int(instance.running[mine].sum())]
    return np.array(figures, dtype=np.int64)


def _named(instance: Instance, bounds: IntArray) -> tuple[TierBound, ...]:
    figures = bounds.tolist()
    return tuple(
        TierBound(priority, figures[2 * tier], figures[2 * tier + 1]) for tier, priority in enumerate(instance.tiers())
    )


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
