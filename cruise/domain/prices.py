"""What resources and disturbances cost, in dollars unless somebody states other prices; reasons in docs/backtest.md."""

from dataclasses import dataclass

CORE_HOUR = 0.0145
GIBIBYTE_HOUR = 0.00724


@dataclass(frozen=True, slots=True)
class BacktestPrices:
    """Prices of an hour of a core and of a GiB, of a starved container-minute, and of single kills, evictions, resizes.

    The fields are the settings of the same names with `price_` before them.
    """

    core_hour: float = CORE_HOUR
    gibibyte_hour: float = GIBIBYTE_HOUR
    starved_minute: float = 0.01
    kill: float = 1.0
    eviction: float = 0.05
    resize: float = 0.0002
