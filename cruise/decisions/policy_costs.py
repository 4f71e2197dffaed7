"""What a policy costs in a backtest: its slack and the harm that it does at stated prices, in one number."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace

from cruise.domain.backtest import ObjectivePrices, PolicyScore

# Which of several policies no one would choose: another is as good in everything, and better in something.

REFERENCE_POLICIES = frozenset({"clairvoyant", "clairvoyant-1h", "clairvoyant-24h", "oracle"})
"""Policies that know the future: nobody can choose them, so they put nobody else out of the question."""

NEGLIGIBLE_RESIZES = 5.0
"""So many a container and day are as good as none: no API server and no operator feels them."""

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
"""What policies are compared by, less is better; None where nothing was recorded.

Resizes count, since any policy wastes less that follows use at every pass.
Consolidation's moves are left out: the less a policy requests, the more nodes can be emptied, and that is the point.
"""


def find_dominated_policies(policies: Mapping[str, PolicyScore]) -> Mapping[str, str]:
    """Return the dominated policies, each with the first that dominates it and is not dominated itself.

    Axes on which some policy has no figure do not count.
    """
    rows = {name: [axis(score) for axis in COST_AXES.values()] for name, score in policies.items()}
    known = [at for at in range(len(COST_AXES)) if all(row[at] is not None for row in rows.values())]
    costs = {name: [row[at] or 0.0 for at in known] for name, row in rows.items()}
    rivals = [name for name in costs if name not in REFERENCE_POLICIES]
    front = [name for name in rivals if not any(is_dominating(costs[rival], costs[name]) for rival in rivals)]
    found = {}
    for name, row in costs.items():
        winner = next((rival for rival in front if is_dominating(costs[rival], row)), None)
        if winner is not None:
            found[name] = winner
    return found


def is_dominating(one: Sequence[float], other: Sequence[float]) -> bool:
    """Tell whether one row of costs is nowhere above another, and somewhere below it."""
    pairs = list(zip(one, other, strict=True))
    return all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)


PRICE_FACTORS = (3.0, 1 / 3)
"""By how much each price is varied to see whether the order of policies depends on it."""

_GIBIBYTE = 1 << 30
_DAY_HOURS, _DAY_MINUTES = 24, 1440


@dataclass(frozen=True, slots=True)
class PolicyCost:
    """What 1,000 container-days cost, by cause; what was not recorded costs nothing.

    Slack is what was requested and not used, at the prices of a core-hour and a GiB-hour. Evictions are the policy's
    own: those of consolidation save nodes.
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
        return sum(self.get_by_cause.values())

    @property
    def get_by_cause(self) -> Mapping[str, float]:
        """Each cause's part, in the order of the fields."""
        return {cause.name: getattr(self, cause.name) for cause in fields(self)}


@dataclass(frozen=True, slots=True)
class RankChange:
    """Another price, and the pairs of policies that change places by it: the first now costs less than the second."""

    price: str
    factor: float
    swaps: Sequence[tuple[str, str]]


def compute_policy_cost(score: PolicyScore, prices: ObjectivePrices) -> PolicyCost:
    """Return what a policy's 1,000 container-days cost."""
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


def find_rank_changes(policies: Mapping[str, PolicyScore], prices: ObjectivePrices) -> Sequence[RankChange]:
    """Return what each price times and divided by three changes in the order of the policies, the changes alone."""
    usual = rank_by_cost(policies, prices)
    changes = []
    for price in fields(prices):
        for factor in PRICE_FACTORS:
            varied = replace(prices, **{price.name: getattr(prices, price.name) * factor})
            place = {name: at for at, name in enumerate(rank_by_cost(policies, varied))}
            swaps = [
                (later, earlier)
                for at, later in enumerate(usual)
                for earlier in usual[:at]
                if place[later] < place[earlier]
            ]
            if swaps:
                changes.append(RankChange(price.name, factor, swaps))
    return changes


# How far a policy has come from VPA's slack to the clairvoyant's, who knows the future of each node.

START, BOUND = "vpa", "clairvoyant"


@dataclass(frozen=True, slots=True)
class SlackReduction:
    """Shares of the way for CPU and memory slack: 0 is VPA's slack, 1 the clairvoyant's; None where not known."""

    cpu: float | None
    memory: float | None


def compute_slack_reduction(policies: Mapping[str, PolicyScore]) -> Mapping[str, SlackReduction]:
    """Return each policy's (vpa - slack) / (vpa - clairvoyant); empty where one of the two was not replayed.

    A resource has no progress where the clairvoyant leaves no less unused than VPA.
    """
    start, bound = policies.get(START), policies.get(BOUND)
    if start is None or bound is None:
        return {}

    def share(score: PolicyScore, slack: Callable[[PolicyScore], float | None]) -> float | None:
        at, of, to = slack(score), slack(start), slack(bound)
        return (of - at) / (of - to) if at is not None and of is not None and to is not None and of > to else None

    return {name: SlackReduction(share(score, _cpu), share(score, _memory)) for name, score in policies.items()}


def _cpu(score: PolicyScore) -> float | None:
    return score.cpu.relative_slack


def _memory(score: PolicyScore) -> float | None:
    return score.memory.relative_slack if score.memory is not None else None
