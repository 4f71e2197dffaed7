"""What the store remembers of a pod, for people."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from rich.console import RenderableType
from rich.text import Text

from cruise.decisions.explaining.past import HourProfile, Past
from cruise.domain.actions import EvictPod, ResizePod, Verdict
from cruise.domain.resources import ResourceName
from cruise.domain.usage import StatisticsTable
from cruise.interfaces.amounts import age_text, cpu_text, exact_text, memory_text
from cruise.interfaces.explain.steps import grid, statistic_line
from cruise.interfaces.reasons import in_words
from cruise.interfaces.resize_words import changes_text, why_resized

_MOST_OUTCOMES = 10
_BARS = "▁▂▃▄▅▆▇█"


def past_text(past: Past, now: datetime) -> Iterator[RenderableType]:
    """Yield what was done to the pod, its kills, and its workload's day."""
    if past.outcomes:
        yield Text("\nWhat was done", style="bold")
        rows = grid(4)
        for outcome in past.outcomes[:_MOST_OUTCOMES]:
            action = "evict" if isinstance(outcome.action, EvictPod) else "resize"
            why = in_words(outcome.reason, outcome.detail)
            if isinstance(outcome.action, ResizePod) and outcome.verdict is Verdict.DONE:
                why = f"{changes_text(outcome.action, outcome.before, '→')}: {why_resized(outcome.action)}"
            if outcome.count > 1:
                why = f"{why} ({outcome.count:,} times, first {age_text(now, outcome.since)})"
            rows.add_row(f"  {age_text(now, outcome.at)}", action, outcome.verdict.value, why)
        yield rows
    if past.kills:
        yield Text("\nKilled for lack of memory", style="bold")
        rows = grid(4)
        for kill in past.kills[:_MOST_OUTCOMES]:
            limit = "no limit" if kill.memory_limit_bytes is None else f"limit {memory_text(kill.memory_limit_bytes)}"
            rows.add_row(f"  {age_text(now, kill.finished_at)}", kill.pod, kill.container, limit)
        yield rows
    if past.profiles:
        yield Text.assemble(
            ("\nPeaks by clock hour", "bold"), ("  00 to 23 UTC, the largest of the days that are kept", "dim")
        )
        rows = grid(4)
        for profile in past.profiles:
            rows.add_row(*_profile(profile, "CPU", profile.cpu_millicores, ResourceName.CPU))
            rows.add_row(*_profile(profile, "memory", profile.memory_bytes, ResourceName.MEMORY))
        yield rows


def stored_text(
    namespace: str, pod: str, statistics: StatisticsTable, past: Past, now: datetime
) -> Iterator[RenderableType]:
    """Yield what the store alone knows of a pod."""
    yield Text.assemble(
        (f"{namespace}/{pod}", "bold"), "  from the store alone; with --snapshot its sizes are explained as well"
    )
    yield Text("\nStatistics", style="bold")
    for row in range(len(statistics.keys)):
        statistic = statistics.row(row)
        whose = "" if statistic.key.pod else f" (all pods of {statistic.key.workload})"
        yield Text(f"  {statistic.key.container}{whose}: {statistic_line(statistic, now)}")
    yield from past_text(past, now)


def _profile(
    profile: HourProfile, name: str, values: Sequence[float | None], resource: ResourceName
) -> tuple[str, str, str, str]:
    known = [value for value in values if value is not None]
    largest = max(known, default=0.0)
    if not known:
        return f"  {profile.container}", name, "no samples", ""
    bars = "".join(" " if value is None else _BARS[_step(value, largest)] for value in values)
    top = cpu_text(round(largest)) if resource is ResourceName.CPU else exact_text(resource, largest)
    identity = f" of {profile.identity}" if profile.identity else ""
    return f"  {profile.container}{identity}", name, bars, f"up to {top}"


def _step(value: float, largest: float) -> int:
    return min(len(_BARS) - 1, int(value / largest * len(_BARS))) if largest > 0 else 0
