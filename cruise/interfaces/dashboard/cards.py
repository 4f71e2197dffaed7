"""The cards at the top of a page: what is saved and reclaimable, coverage, and what cruise did lately."""

from collections.abc import Sequence
from dataclasses import dataclass

from cruise.decisions.scan.waste import RequestSavings
from cruise.domain.prices import HOURS_A_MONTH, ResourcePrices
from cruise.domain.resources import ResourceName, Resources
from cruise.interfaces.coverage import CoverageRow
from cruise.interfaces.http.audit import RecentActions
from cruise.interfaces.text import format_cores, format_count, format_gibibytes, format_money, format_share

_SAVED = "What pods requested before cruise, minus what they request now. Below zero, they needed more."
_RECLAIMABLE = "Requested minus target. What some workloads need more of is subtracted; below zero, more is needed."
_COVERAGE = "The share of all requested {} that cruise sizes. The rest is skipped, for the reasons in the table below."
_PRICES_ARE_UNKNOWN = "Money appears once price_core_hour and price_gibibyte_hour, or node_prices, are set."


@dataclass(frozen=True, slots=True)
class Figure:
    """A number with its unit, and what it means."""

    value: str
    unit: str
    explanation: str


@dataclass(frozen=True, slots=True)
class FigureCard:
    """A card with one to three figures and a line below them; `page` is where their parts are shown."""

    title: str
    figures: Sequence[Figure]
    note: str
    page: str = ""


def build_saved_card(savings: RequestSavings, prices: ResourcePrices | None) -> FigureCard:
    """Return the card of what is saved."""
    if not savings.pods:
        figures = [Figure("–", "", f"{_SAVED} No pod on these nodes is resized yet.")]
        return FigureCard("Saved", figures, "no pod is resized yet", "actions")
    pods = format_count(savings.pods, "resized pod")
    note = f"{pods}, compared with before cruise"
    if prices is None:
        return FigureCard("Saved", _list_amounts(savings.saved, _SAVED, prices), note, "actions")
    note = f"{_format_amounts(savings.saved)} of {pods}"
    return FigureCard("Saved", _list_amounts(savings.saved, _SAVED, prices), note, "actions")


def build_reclaimable_card(
    reclaimable: Resources, requested: Resources, prices: ResourcePrices | None, page: str
) -> FigureCard:
    """Return the card of what is still reclaimable."""
    figures = _list_amounts(reclaimable, _RECLAIMABLE, prices)
    note = f"of {_format_amounts(requested)} requested"
    if prices is not None:
        note = f"{_format_amounts(reclaimable)} {note}"
        needs_more = prices.compute_monthly_cost(reclaimable) < 0
    else:
        needs_more = reclaimable.cpu_millicores < 0 or reclaimable.memory_bytes < 0
    if needs_more:
        note = f"below zero: requests will grow by so much; {note}"
    return FigureCard("Reclaimable", figures, note, page)


def build_coverage_card(sized: CoverageRow, page: str = "#coverage") -> FigureCard:
    """Return the card of the coverage."""
    shares = [
        Figure(
            format_share(sized.group.requested.get(resource), sized.total.get(resource)), name, _COVERAGE.format(name)
        )
        for resource, name in ((ResourceName.CPU, "CPU"), (ResourceName.MEMORY, "memory"))
    ]
    return FigureCard("Coverage", shares, "of the requests are sized", page)


def build_recent_actions_card(recent: RecentActions, page: str = "actions") -> FigureCard:
    """Return the card of what cruise did in the last 24 hours."""
    causes = ", ".join(f"{number:,} {cause}" for cause, number in recent.causes.items())
    figures = [
        Figure(
            f"{recent.resizes:,}",
            "resize" if recent.resizes == 1 else "resizes",
            f"Pods resized in place in the last 24 hours{f', by cause: {causes}' if causes else ''}.",
        ),
        Figure(
            f"{recent.evictions:,}",
            "eviction" if recent.evictions == 1 else "evictions",
            "Pods evicted in the last 24 hours, because their node could not hold all its pods or after an OOM kill.",
        ),
        Figure(
            f"{recent.oom_kills_answered:,}",
            "OOM kill answered" if recent.oom_kills_answered == 1 else "OOM kills answered",
            "OOM kills in the last 24 hours after which cruise resized or evicted the pod.",
        ),
    ]
    refused = f"{recent.refused:,} refused or failed" if recent.refused else "none refused"
    return FigureCard("Last 24 hours", figures, refused, page)


def _list_amounts(amount: Resources, explanation: str, prices: ResourcePrices | None) -> Sequence[Figure]:
    if prices is None:
        words = f"{explanation} {_PRICES_ARE_UNKNOWN}"
        return [
            Figure(_format_sign(format_cores(amount.cpu_millicores)), "cores", words),
            Figure(_format_sign(format_gibibytes(amount.memory_bytes)), "GiB", words),
        ]
    month = (
        f"{explanation} At ${prices.cpu_core_hour:.4g} a core-hour and ${prices.memory_gib_hour:.4g} a GiB-hour, for a "
        f"month of {HOURS_A_MONTH} hours: an estimate, because nodes are what is billed."
    )
    return [Figure(_format_sign(format_money(prices.compute_monthly_cost(amount))), "a month", month)]


def _format_amounts(amount: Resources) -> str:
    cores, gib = format_cores(amount.cpu_millicores), format_gibibytes(amount.memory_bytes)
    return _format_sign(f"{cores} cores and {gib} GiB")


def _format_sign(text: str) -> str:
    return text.replace("-", "−")
