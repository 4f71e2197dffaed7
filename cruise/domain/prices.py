"""Prices of CPU and memory, from which money is computed in scans, the dashboard and backtests."""

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field

from cruise.domain.resources import Resources

# Default prices in dollars; reasons in docs/backtest.md.
CORE_HOUR = 0.0145
GIBIBYTE_HOUR = 0.00724
DOLLAR = "$"
HOURS_A_MONTH = 730
SPOT_SUFFIX = "/spot"
"""Follows an instance type in the name of its price on spot nodes."""


@dataclass(frozen=True, slots=True)
class ResourcePrices:
    """The price of an hour of each resource in a currency, which is a sign or letters."""

    cpu_core_hour: float
    memory_gib_hour: float
    currency: str = DOLLAR

    def compute_monthly_cost(self, amount: Resources) -> float:
        """Return the price of an amount for a month of 730 hours."""
        return self.compute_hourly_cost(amount) * HOURS_A_MONTH

    def compute_hourly_cost(self, amount: Resources) -> float:
        """Return the price of an amount for an hour."""
        return (
            amount.cpu_millicores / 1000 * self.cpu_core_hour + amount.memory_bytes / (1 << 30) * self.memory_gib_hour
        )


def format_money(amount: float, currency: str) -> str:
    """Write an amount of money, below ten with two decimals: `$1,204`, `€3.20`, `-EUR 12`."""
    size = abs(amount)
    number = f"{size:,.0f}" if size >= 10 else f"{size:.2f}"
    return ("-" if amount < 0 else "") + _add_currency(number, currency)


def format_prices(prices: ResourcePrices) -> str:
    """Write both prices: `$0.0145 a core-hour, $0.00724 a GiB-hour`."""
    core, gib = (_add_currency(f"{one:.4g}", prices.currency) for one in (prices.cpu_core_hour, prices.memory_gib_hour))
    return f"{core} a core-hour, {gib} a GiB-hour"


def _add_currency(number: str, currency: str) -> str:
    return f"{currency}{number}" if is_currency_sign(currency[-1]) else f"{currency} {number}"


def is_currency_sign(character: str) -> bool:
    """Return whether a character is a sign such as $ or €."""
    return unicodedata.category(character) == "Sc"


LIST_PRICES = ResourcePrices(CORE_HOUR, GIBIBYTE_HOUR)


@dataclass(frozen=True, slots=True)
class PriceSettings:
    """The prices that settings state: of resources on any node, and of an hour of a node by its instance type.

    A type with `SPOT_SUFFIX` has the price of spot nodes.
    """

    resources: ResourcePrices | None = None
    nodes: Mapping[str, float] = field(default_factory=dict)
