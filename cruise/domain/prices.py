"""Prices of CPU and memory, from which money is computed in scans, the dashboard and backtests."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from cruise.domain.resources import Resources

# Default prices in dollars; reasons in docs/backtest.md.
CORE_HOUR = 0.0145
GIBIBYTE_HOUR = 0.00724
HOURS_A_MONTH = 730
SPOT_SUFFIX = "/spot"
"""Follows an instance type in the name of its price on spot nodes."""


@dataclass(frozen=True, slots=True)
class ResourcePrices:
    """The price of an hour of each resource, in the configured currency."""

    cpu_core_hour: float
    memory_gib_hour: float

    def compute_monthly_cost(self, amount: Resources) -> float:
        """Return the price of an amount for a month of 730 hours."""
        return self.compute_hourly_cost(amount) * HOURS_A_MONTH

    def compute_hourly_cost(self, amount: Resources) -> float:
        """Return the price of an amount for an hour."""
        return (
            amount.cpu_millicores / 1000 * self.cpu_core_hour + amount.memory_bytes / (1 << 30) * self.memory_gib_hour
        )


LIST_PRICES = ResourcePrices(CORE_HOUR, GIBIBYTE_HOUR)


@dataclass(frozen=True, slots=True)
class PriceSettings:
    """The prices that settings state: of resources on any node, and of an hour of a node by its instance type.

    A type with `SPOT_SUFFIX` has the price of spot nodes.
    """

    resources: ResourcePrices | None = None
    nodes: Mapping[str, float] = field(default_factory=dict)
