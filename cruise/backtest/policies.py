"""The policies that a backtest compares, by name, in the order of its table."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from cruise.backtest.baselines.as_requested import AsRequested
from cruise.backtest.recording import Recording
from cruise.backtest.sizing import Sizing
from cruise.backtest.terms import Terms

POLICIES: Mapping[str, Callable[[Recording, Terms], Sizing]] = MappingProxyType(
    {
        "as-requested": AsRequested,
    }
)
