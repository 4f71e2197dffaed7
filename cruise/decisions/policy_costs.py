"""What a policy costs in a backtest: its slack and the harm that it does at stated prices, in one number."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace

from cruise.decisions.pareto import NEVER_RIVALS
from cruise.domain.backtest import PolicyScore
from cruise.domain.prices import BacktestPrices

FACTORS = (3.0, 1 / 3)
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
    kills: float
    evictions: float
    resizes: float

    @property
    def total(self) -> float:
        """The sum of all causes."""
        return sum(self.by_cause.values())

    @property
    def by_cause(self) -> Mapping[str, float]:
        """Each cause's part, in the order of the fields."""
        return {cause.name: getattr(self, cause.name) for cause in fields(self)}


@dataclass(frozen=True, slots=True)
class OrderChange:
    """Another price, and the pairs of policies that change places by it: the first now costs less than the second."""

    price: str
    factor: float
    swaps: Sequence[tuple[str, str]]


def cost_of(score: PolicyScore, prices: BacktestPrices) -> PolicyCost:
    """Return what a policy's 1,000 container-days cost."""
    cores = score.cpu.mean_slack / 1000 * 1000 * _DAY_HOURS
    gibibytes = score.memory.mean_slack / _GIBIBYTE * 1000 * _DAY_HOURS if score.memory is not None else 0.0
    return PolicyCost(
        cpu_slack=cores * prices.core_hour,
        memory_slack=gibibytes * prices.gibibyte_hour,
        starvation=score.cpu.starved_share * 1000 * _DAY_MINUTES * prices.starved_minute,
        kills=score.oom_per_1000_container_days * prices.kill if score.memory is not None else 0.0,
        evictions=score.own_evictions_per_1000_pod_days * prices.eviction,
        resizes=score.resizes_per_container_day * 1000 * prices.resize,
    )


def order_by_cost(policies: Mapping[str, PolicyScore], prices: BacktestPrices) -> Sequence[str]:
    """Return the policies that can be chosen, the cheapest first."""
    totals = {name: cost_of(score, prices).total for name, score in policies.items() if name not in NEVER_RIVALS}
    return sorted(totals, key=totals.__getitem__)


def order_changes(policies: Mapping[str, PolicyScore], prices: BacktestPrices) -> Sequence[OrderChange]:
    """Return what each price times and divided by three changes in the order of the policies, the changes alone."""
    usual = order_by_cost(policies, prices)
    changes = []
    for price in fields(prices):
        for factor in FACTORS:
            varied = replace(prices, **{price.name: getattr(prices, price.name) * factor})
            place = {name: at for at, name in enumerate(order_by_cost(policies, varied))}
            swaps = [
                (later, earlier)
                for at, later in enumerate(usual)
                for earlier in usual[:at]
                if place[later] < place[earlier]
            ]
            if swaps:
                changes.append(OrderChange(price.name, factor, swaps))
    return changes
