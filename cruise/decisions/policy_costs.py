"""The cost of a policy in a backtest: its slack and its harm at configured prices, in one number (ADR 0037)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace

from cruise.domain.backtest import ObjectivePrices, PolicyScore

REFERENCE_POLICIES = frozenset({"clairvoyant", "clairvoyant-1h", "clairvoyant-24h", "oracle"})
"""Policies that know the future: they cannot be chosen, so they dominate no other policy."""

NEGLIGIBLE_RESIZES = 5.0
"""Resizes per container and day that count as none: they burden no API server and no operator."""

COST_AXES: Mapping[str, Callable[[PolicyScore], float | None]] = {
    "CPU slack": lambda score: score.cpu.relative_slack,
    "memory slack": lambda score: score.memory.relative_slack if score.memory is not None else None,
    "CPU starvation": lambda score: score.cpu.starved_share,
    "out-of-memory kills": lambda score: score.oom_per_1000_container_days if score.memory is not None else None,
    "own evictions": lambda score: score.own_evictions_per_1000_pod_days,
    "mean nodes": lambda score: score.nodes_mean,
    f"resizes beyond {NEGLIGIBLE_RESIZES:g} a container and day": lambda score: max(
        0.0, score.resizes_per_container_day - NEGLIGIBLE_RESIZES
    ),
}
"""The axes of comparison, less is better; None if nothing was recorded.

Resizes count: any policy that follows use at every pass has less slack. Consolidation's moves do not: the less a policy
requests, the more nodes can be drained.
"""


def find_dominated_policies(policies: Mapping[str, PolicyScore]) -> Mapping[str, str]:
    """Return the dominated policies, each with the first policy that dominates it and is not dominated itself.

    A policy dominates another that is no better on any axis and worse on one. Axes without a figure of some policy are
    ignored.
    """
    costs_by_axis = {name: [axis(score) for axis in COST_AXES.values()] for name, score in policies.items()}
    axes = [
        at for at in range(len(COST_AXES)) if all(own_costs[at] is not None for own_costs in costs_by_axis.values())
    ]
    costs = {name: [own_costs[at] or 0.0 for at in axes] for name, own_costs in costs_by_axis.items()}
    rivals = [name for name in costs if name not in REFERENCE_POLICIES]
    not_dominated = [name for name in rivals if not any(dominates(costs[rival], costs[name]) for rival in rivals)]
    winners = {}
    for name, own_costs in costs.items():
        winner = next((rival for rival in not_dominated if dominates(costs[rival], own_costs)), None)
        if winner is not None:
            winners[name] = winner
    return winners


def dominates(one: Sequence[float], other: Sequence[float]) -> bool:
    """Return whether one row of costs is nowhere above another, and somewhere below it."""
    pairs = list(zip(one, other, strict=True))
    return all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)


PRICE_FACTORS = (3.0, 1 / 3)
"""Factors by which each price is varied to find out whether the order of policies depends on it."""

_GIBIBYTE = 1 << 30
_DAY_HOURS, _DAY_MINUTES = 24, 1440


@dataclass(frozen=True, slots=True)
class PolicyCost:
    """The cost of 1,000 container-days by cause; what was not recorded costs nothing.

    Slack is what was requested and not used, priced per core-hour and GiB-hour. Evictions are the policy's own: those
    of consolidation save nodes.
    """

    cpu_slack: float
    memory_slack: float
    starvation: float
    oom_kills: float
    evictions: float
    resizes: float

    @property
    def total(self) -> float:
        """The sum of all causes."""
        return sum(self.by_cause.values())

    @property
    def by_cause(self) -> Mapping[str, float]:
        """The cost of each cause, in the order of the fields."""
        return {cause.name: getattr(self, cause.name) for cause in fields(self)}


@dataclass(frozen=True, slots=True)
class RankChange:
    """A changed price, and the pairs of policies that it reorders: the first now costs less than the second."""

    price: str
    factor: float
    swaps: Sequence[tuple[str, str]]


def compute_policy_cost(score: PolicyScore, prices: ObjectivePrices) -> PolicyCost:
    """Return the cost of a policy's 1,000 container-days."""
    cores = score.cpu.mean_slack / 1000 * 1000 * _DAY_HOURS
    gibibytes = score.memory.mean_slack / _GIBIBYTE * 1000 * _DAY_HOURS if score.memory is not None else 0.0
    return PolicyCost(
        cpu_slack=cores * prices.core_hour,
        memory_slack=gibibytes * prices.gibibyte_hour,
        starvation=score.cpu.starved_share * 1000 * _DAY_MINUTES * prices.starved_minute,
        oom_kills=score.oom_per_1000_container_days * prices.oom_kill if score.memory is not None else 0.0,
        evictions=score.own_evictions_per_1000_pod_days * prices.eviction,
        resizes=score.resizes_per_container_day * 1000 * prices.resize,
    )


def rank_by_cost(policies: Mapping[str, PolicyScore], prices: ObjectivePrices) -> Sequence[str]:
    """Return the policies that can be chosen, the cheapest first."""
    totals = {
        name: compute_policy_cost(score, prices).total
        for name, score in policies.items()
        if name not in REFERENCE_POLICIES
    }
    return sorted(totals, key=totals.__getitem__)


def find_rank_changes_at_varied_prices(
    policies: Mapping[str, PolicyScore], prices: ObjectivePrices
) -> Sequence[RankChange]:
    """Return the changes in the order of policies when single prices are multiplied or divided by three."""
    ranking = rank_by_cost(policies, prices)
    changes = []
    for price in fields(prices):
        for factor in PRICE_FACTORS:
            varied = replace(prices, **{price.name: getattr(prices, price.name) * factor})
            ranks = {name: at for at, name in enumerate(rank_by_cost(policies, varied))}
            swaps = [
                (later, earlier)
                for at, later in enumerate(ranking)
                for earlier in ranking[:at]
                if ranks[later] < ranks[earlier]
            ]
            if swaps:
                changes.append(RankChange(price.name, factor, swaps))
    return changes


START, BOUND = "vpa", "clairvoyant"


@dataclass(frozen=True, slots=True)
class SlackReduction:
    """How much of the slack between VPA and the clairvoyant policy is removed: 0 is VPA's slack, 1 the clairvoyant's.

    None if it is unknown.
    """

    cpu: float | None
    memory: float | None


def compute_slack_reduction_from_vpa(policies: Mapping[str, PolicyScore]) -> Mapping[str, SlackReduction]:
    """Return each policy's (vpa - slack) / (vpa - clairvoyant); empty if one of the two was not replayed.

    A resource has None if the clairvoyant policy has no less slack than VPA.
    """
    start, bound = policies.get(START), policies.get(BOUND)
    if start is None or bound is None:
        return {}

    def share(score: PolicyScore, slack: Callable[[PolicyScore], float | None]) -> float | None:
        at, of, to = slack(score), slack(start), slack(bound)
        return (of - at) / (of - to) if at is not None and of is not None and to is not None and of > to else None

    return {
        name: SlackReduction(share(score, COST_AXES["CPU slack"]), share(score, COST_AXES["memory slack"]))
        for name, score in policies.items()
    }
