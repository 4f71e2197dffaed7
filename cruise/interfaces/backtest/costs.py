"""The cost of policies and their way to the bound, for people: a row a policy, and how far the order can be trusted."""

from collections.abc import Iterator, Sequence

from cruise.decisions.bound_progress import BoundProgress
from cruise.decisions.policy_costs import PolicyCost, cost_of, order_by_cost, order_changes
from cruise.domain.backtest import BacktestResult
from cruise.domain.prices import BacktestPrices
from cruise.interfaces.amounts import money_text, percent_text

_UNKNOWN = "–"


def cost_figures(cost: PolicyCost) -> Sequence[str]:
    """Return what 1,000 container-days cost, and the share of each cause in percent: none where nothing is paid."""
    total = cost.total
    shares = (percent_text(part / total) if total > 0 else _UNKNOWN for part in cost.by_cause.values())
    return (money_text(total), *shares)


def progress_figures(progress: BoundProgress | None) -> Sequence[str]:
    """Return the way to the bound in percent, for CPU and for memory."""
    shares = (progress.cpu, progress.memory) if progress is not None else (None, None)
    return tuple(_UNKNOWN if share is None else percent_text(share) for share in shares)


def order_lines(result: BacktestResult, prices: BacktestPrices) -> Iterator[str]:
    """Say in sentences which policy costs least, and which prices would change the order."""
    order = order_by_cost(result.policies, prices)
    if len(order) < 2:
        return
    cheapest = cost_of(result.policies[order[0]], prices).total
    yield f"By cost: {', '.join(order)}. The first costs {money_text(cheapest)} for 1,000 container-days."
    changes = order_changes(result.policies, prices)
    for change in changes:
        swaps = "; ".join(f"{cheaper} before {dearer}" for cheaper, dearer in change.swaps)
        yield f"With price_{change.price} {factor_text(change.factor)}: {swaps}."
    unchanged = "No other price" if changes else "No price"
    yield f"{unchanged} × 3 or ÷ 3 changes the order."


def cost_note(prices: BacktestPrices) -> str:
    """Say what the cost is made of."""
    return (
        f"Cost: slack, starvation, kills, own evictions and resizes of 1,000 container-days, at {prices_text(prices)}"
    )


def factor_text(factor: float) -> str:
    """Write a factor: `× 3`, `÷ 3`."""
    return f"× {factor:g}" if factor >= 1 else f"÷ {1 / factor:.3g}"


def prices_text(prices: BacktestPrices) -> str:
    """Write all prices."""
    return (
        f"{prices.core_hour:g} for a core-hour, {prices.gibibyte_hour:g} for a GiB-hour, {prices.starved_minute:g} "
        f"for a starved container-minute, {prices.kill:g} for a kill, {prices.eviction:g} for an eviction, "
        f"{prices.resize:g} for a resize"
    )
