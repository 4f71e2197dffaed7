"""What figures that two configurations are compared by are called, and how their values are written."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from datetime import timedelta
from enum import Enum

from cruise.domain.backtest_difference import SHARES, Difference, Figure, FigureDifference, Verdict
from cruise.domain.policy import Policy
from cruise.domain.rules import Rules
from cruise.interfaces.amounts import count_text, percent_text, rate_text
from cruise.interfaces.backtest.words import seconds_text

NAMES: Mapping[Figure, str] = {
    Figure.CPU_SLACK: "CPU slack %",
    Figure.MEMORY_SLACK: "memory slack %",
    Figure.STARVED: "CPU starved %",
    Figure.KILLS: "OOM kills /1,000 c·d",
    Figure.WRITES: "writes /c·d",
    Figure.OWN_EVICTIONS: "own evictions /1,000 p·d",
    Figure.NODES: "nodes, mean",
}
VERDICTS: Mapping[Verdict, str] = {
    Verdict.HOLDS: "holds",
    Verdict.OPEN: "open",
    Verdict.BROKEN: "BROKEN",
    Verdict.NOT_RECORDED: "NOT RECORDED",
}
HEADINGS = ("figure", "against", "here", "Δ", "95 % interval", "bound", "verdict", "forecasts held")
_UNKNOWN = "–"
# Shorter recordings hold no two weeks, or not even two days, that could differ.
_FEW_HOURS = 96


def rows(difference: Difference) -> Iterator[Sequence[str]]:
    """Yield a row for each figure, and for each bound on what was not recorded."""
    for figure, found in difference.figures.items():
        judged = difference.bounds.get(figure)
        yield (
            NAMES[figure],
            value_text(figure, found.against),
            value_text(figure, found.here),
            delta_text(figure, found.delta),
            interval_text(figure, found),
            f"≤ {delta_text(figure, judged.bound)}" if judged is not None else "",
            VERDICTS[judged.verdict] if judged is not None else "",
            f"{found.held} of {found.forecasts}" if found.forecasts else _UNKNOWN,
        )
    for figure, judged in difference.bounds.items():
        if figure not in difference.figures:
            bound = f"≤ {delta_text(figure, judged.bound)}"
            yield (NAMES[figure], *[_UNKNOWN] * 4, bound, VERDICTS[judged.verdict], _UNKNOWN)


def delta_text(figure: Figure, delta: float) -> str:
    """Write a difference with its sign: in percentage points where the figure is a share."""
    size = value_text(figure, abs(delta))
    return size if size == "0" else f"{'+' if delta > 0 else '−'}{size}"


def interval_text(figure: Figure, found: FigureDifference) -> str:
    """Write an interval: `−1.20 … +0.31`."""
    return f"{delta_text(figure, found.low)} … {delta_text(figure, found.high)}"


def value_text(figure: Figure, value: float) -> str:
    """Write a figure: shares in percent."""
    return percent_text(value) if figure in SHARES else rate_text(value)


def changed_settings(here: Policy, against: Policy) -> Sequence[tuple[str, str, str]]:
    """Return the settings of decisions that differ: name, value against, value here."""
    return [
        (entry.name, _setting(getattr(against, entry.name)), _setting(getattr(here, entry.name)))
        for entry in fields(Policy)
        if entry.name != "mode" and getattr(here, entry.name) != getattr(against, entry.name)
    ]


def _setting(value: object) -> str:
    match value:
        case None:
            return "none"
        case timedelta():
            return seconds_text(round(value.total_seconds()))
        case Rules():
            return value.name
        case Enum():
            return str(value.value)
        case frozenset():
            return ", ".join(sorted(map(str, value))) or "none"
    return str(value)


def settings_line(changed: Sequence[tuple[str, str, str]]) -> str:
    """Say in a sentence what differs."""
    if not changed:
        return "Both have the same settings of decisions."
    told = (f"{name} is {here} here, {against} there" for name, against, here in changed)
    return f"What differs: {'; '.join(told)}."


def bound_line(difference: Difference, figure: Figure) -> str:
    """Say in a line how a bound is broken, or may be."""
    judged, found = difference.bounds[figure], difference.figures.get(figure)
    name, bound = NAMES[figure], delta_text(figure, judged.bound)
    if found is None:
        return f"{difference.result.trace}: {name} was not recorded, so its bound of {bound} cannot be judged"
    return (
        f"{difference.result.trace}: {name} changes by {delta_text(figure, found.delta)} "
        f"({interval_text(figure, found)}), {'beyond' if judged.verdict is Verdict.BROKEN else 'perhaps beyond'} "
        f"the bound of {bound}"
    )


def caveats(difference: Difference) -> Iterator[str]:
    """Say what a reader should know of the intervals of one recording."""
    hours = difference.result.days * 24
    if hours < _FEW_HOURS:
        yield (
            f"{difference.result.trace} has {hours:.3g} hours: how a day differs from the next is not in its intervals"
        )
    elif difference.skipped_hours:
        yield f"the first {count_text(difference.skipped_hours, 'hour')} of {difference.result.trace} are left out"


METHOD = (
    "Δ is this configuration's figure less the other's: less is better everywhere. The interval is where the Δ of as "
    "much time again is expected in 95 of 100 cases, by a bootstrap of blocks of hours, the same for both; shares "
    "differ by percentage points. Forecasts held: of those made from a first part of the recording, how many had what "
    "came next within their interval."
)
