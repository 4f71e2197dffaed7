"""The demo's live view and its closing summary, for a terminal."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import msgspec
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.panel import Panel
from rich.segment import Segment
from rich.style import Style
from rich.table import Table
from rich.text import Text

from cruise.decisions.sizing.headroom_level import ObservedRisk
from cruise.domain.resources import ResourceName, Resources
from cruise.interfaces.plan_table import create_plain_table
from cruise.interfaces.reasons import describe_observed_risk

GIBIBYTE = 1 << 30
# Ticks are uneven, so a speed slightly below the pace is normal.
_NORMAL_SPEED_SHARE = 0.9
_USED = Style(color="green")
_IDLE = Style(color="yellow")
_FREE = Style(color="bright_black")
_OVER = Style(color="red")


@dataclass(frozen=True, slots=True)
class DemoNode:
    """One node: its allocatable resources, and the requests and usage of its pods."""

    name: str
    allocatable: Resources
    requested: Resources
    used: Resources
    pods: int
    overloaded: bool


@dataclass(frozen=True, slots=True)
class DemoEvent:
    """One event in the list."""

    at: datetime
    kind: str
    object_name: str
    reason: str


@dataclass(frozen=True, slots=True)
class ClusterTotals:
    """Sums over the cluster at one time, and counts up to then."""

    requested: Resources
    used: Resources
    allocatable: Resources
    pending: int
    resizes: int = 0
    evictions: int = 0
    oom_kills: int = 0


@dataclass(frozen=True, slots=True)
class DemoFrame:
    """The state of the demo at one time.

    `simulated` is the simulated time since its start. `speed` is the recent multiple of real time, below `pace` if the
    machine is slower. `before` is the cluster before cruise wrote anything, `without_cruise` the same cluster at the
    same time without cruise. `oom_kills_by_cruise` would not have happened with the original limits.
    """

    at: datetime
    running: timedelta
    remaining: timedelta | None
    simulated: timedelta
    pace: float
    speed: float
    store: str
    nodes: Sequence[DemoNode]
    before: ClusterTotals
    with_cruise: ClusterTotals
    without_cruise: ClusterTotals
    oom_kills_by_cruise: int
    events: Sequence[DemoEvent]
    observed_risks: Mapping[ResourceName, ObservedRisk] = field(default_factory=dict)


class UsageBar:
    """A bar of used, reclaimable and free capacity."""

    def __init__(self, used: int, requested: int, whole: int) -> None:
        self._used, self._requested, self._whole = used, requested, max(whole, 1)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width
        requested = min(width, round(width * self._requested / self._whole))
        used = min(width, round(width * self._used / self._whole))
        within = min(used, requested)
        yield Segment("█" * within, _USED)
        yield Segment("█" * (used - within), _OVER)
        yield Segment("▒" * (requested - within - (used - within) if requested > used else 0), _IDLE)
        yield Segment("·" * (width - max(used, requested)), _FREE)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(6, options.max_width)


def render_demo_frame(frame: DemoFrame, width: int) -> Group:
    """Return the live view for a terminal `width` columns wide."""
    nodes, events = _build_node_table(frame.nodes), _build_event_table(frame.events, width)
    return Group(_build_headline(frame), nodes, _build_totals(frame), events)


def render_demo_summary(frame: DemoFrame) -> Group:
    """Return the closing summary: before, with cruise, and the same cluster without it."""
    table = create_plain_table("Summary")
    table.add_column("")
    for heading in ("BEFORE", "WITH CRUISE", "WITHOUT CRUISE"):
        table.add_column(heading, justify="right", no_wrap=True)
    columns = (frame.before, frame.with_cruise, frame.without_cruise)
    table.add_row("CPU requested", *(format_cores_with_unit(totals.requested.cpu_millicores) for totals in columns))
    table.add_row("CPU used", *(format_cores_with_unit(totals.used.cpu_millicores) for totals in columns))
    table.add_row(
        "memory requested", *(format_gibibytes_with_unit(totals.requested.memory_bytes) for totals in columns)
    )
    table.add_row("memory used", *(format_gibibytes_with_unit(totals.used.memory_bytes) for totals in columns))
    table.add_row("pods pending", *(str(totals.pending) for totals in columns))
    table.add_row("resized in place", "–", str(frame.with_cruise.resizes), "–")
    table.add_row("evicted", "–", str(frame.with_cruise.evictions), "–")
    table.add_row("OOM kills", "–", str(frame.with_cruise.oom_kills), str(frame.without_cruise.oom_kills))
    parts: list[RenderableType] = [table, Text(describe_summary(frame))]
    if frame.observed_risks:
        parts.append(Text("Headroom and observed risk of the nodes"))
    for resource, risk in frame.observed_risks.items():
        parts.append(Padding(Text(describe_observed_risk(resource, risk)), (0, 0, 0, 2)))
    return Group(*parts)


def render_summary_json(frame: DemoFrame) -> bytes:
    """Return the summary as one JSON document."""
    document = {
        "simulatedSeconds": round(frame.simulated.total_seconds()),
        "before": _build_totals_document(frame.before),
        "withCruise": _build_totals_document(frame.with_cruise),
        "withoutCruise": _build_totals_document(frame.without_cruise),
        "oomKillsAvoidableWithOriginalLimits": frame.oom_kills_by_cruise,
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"


def _build_totals_document(totals: ClusterTotals) -> dict[str, int]:
    return {
        "cpuRequestedMillicores": totals.requested.cpu_millicores,
        "cpuUsedMillicores": totals.used.cpu_millicores,
        "cpuAllocatableMillicores": totals.allocatable.cpu_millicores,
        "memoryRequestedBytes": totals.requested.memory_bytes,
        "memoryUsedBytes": totals.used.memory_bytes,
        "memoryAllocatableBytes": totals.allocatable.memory_bytes,
        "podsPending": totals.pending,
        "resizes": totals.resizes,
        "evictions": totals.evictions,
        "oomKills": totals.oom_kills,
    }


def describe_status(frame: DemoFrame) -> str:
    """Return the state in one line, for output that is not a terminal."""
    now, before = frame.with_cruise, frame.before
    return (
        f"{frame.at:%a %H:%M}  {frame.speed:.0f}x  requested CPU {_cores_change(before, now)}, "
        f"memory {_memory_change(before, now)}; resized {now.resizes}, evicted {now.evictions}, "
        f"pending {now.pending}, OOM kills {now.oom_kills}"
    )


def describe_summary(frame: DemoFrame) -> str:
    """Return the summary in one sentence."""
    cpu = _format_relative_change(frame.before.requested.cpu_millicores, frame.with_cruise.requested.cpu_millicores)
    memory = _format_relative_change(frame.before.requested.memory_bytes, frame.with_cruise.requested.memory_bytes)
    return (
        f"In {format_duration(frame.simulated)} of simulated time: requested CPU {cpu}, requested memory {memory}; "
        f"{frame.oom_kills_by_cruise} OOM kills avoidable with the original limits."
    )


def format_cores_with_unit(millicores: int) -> str:
    """Write CPU in cores."""
    return f"{millicores / 1000:.1f} cores"


def format_gibibytes_with_unit(size_bytes: int) -> str:
    """Write memory in GiB."""
    return f"{size_bytes / GIBIBYTE:.1f} GiB"


def format_duration(time: timedelta) -> str:
    """Write a duration to the minute."""
    minutes = round(time.total_seconds() / 60)
    return f"{minutes // 60} h {minutes % 60:02} min" if minutes >= 60 else f"{minutes} min"


def _format_relative_change(before: int, now: int) -> str:
    share = (now - before) / before if before > 0 else 0.0
    if round(share, 2) == 0:
        return "unchanged"
    return f"{'down' if share < 0 else 'up'} {abs(share):.0%}"


def _build_headline(frame: DemoFrame) -> Text:
    remaining = "" if frame.remaining is None else f", ends in {max(0, round(frame.remaining.total_seconds()))} s"
    text = Text.assemble(
        ("cruise demo ", "bold"), f"{frame.at:%a %H:%M} simulated, {_describe_speed(frame)}{remaining}"
    )
    text.append(f"  database: {frame.store}", style="bright_black")
    text.no_wrap, text.overflow = True, "ellipsis"
    return text


def _describe_speed(frame: DemoFrame) -> str:
    if frame.speed >= _NORMAL_SPEED_SHARE * frame.pace:
        return f"{frame.pace:g} times real time"
    return f"{frame.speed:.0f} times real time (not {frame.pace:g}, because the passes take longer)"


def _build_node_table(nodes: Sequence[DemoNode]) -> Table:
    table = Table(expand=True, pad_edge=False, box=None, padding=(0, 1))
    table.add_column("node", no_wrap=True)
    table.add_column("pods", justify="right", no_wrap=True)
    table.add_column("CPU", ratio=1)
    table.add_column("cores used/\nrequested", justify="right", no_wrap=True)
    table.add_column("memory", ratio=1)
    table.add_column("GiB used/\nrequested", justify="right", no_wrap=True)
    for node in nodes:
        name = Text(node.name, style="red" if node.overloaded else "")
        used, requested, allocatable = node.used, node.requested, node.allocatable
        table.add_row(
            name,
            str(node.pods),
            UsageBar(used.cpu_millicores, requested.cpu_millicores, allocatable.cpu_millicores),
            f"{used.cpu_millicores / 1000:.1f}/{requested.cpu_millicores / 1000:.1f}",
            UsageBar(used.memory_bytes, requested.memory_bytes, allocatable.memory_bytes),
            f"{used.memory_bytes / GIBIBYTE:.0f}/{requested.memory_bytes / GIBIBYTE:.0f}",
        )
    return table


def _build_totals(frame: DemoFrame) -> Panel:
    now, before = frame.with_cruise, frame.before
    kills = f"OOM kills {now.oom_kills} (without cruise {frame.without_cruise.oom_kills})"
    lines = (
        f"requested: CPU {_cores_change(before, now)}, memory {_memory_change(before, now)}",
        f"resized {now.resizes}, evicted {now.evictions}, pending {before.pending} → {now.pending}, {kills}",
    )
    return Panel(Group(*(Text(line, no_wrap=True, overflow="ellipsis") for line in lines)), border_style="bright_black")


def _cores_change(before: ClusterTotals, now: ClusterTotals) -> str:
    return f"{before.requested.cpu_millicores / 1000:.1f} → {format_cores_with_unit(now.requested.cpu_millicores)}"


def _memory_change(before: ClusterTotals, now: ClusterTotals) -> str:
    return f"{before.requested.memory_bytes / GIBIBYTE:.1f} → {format_gibibytes_with_unit(now.requested.memory_bytes)}"


def _build_event_table(events: Sequence[DemoEvent], width: int) -> Table:
    table = Table(expand=True, pad_edge=False, box=None, padding=(0, 1))
    table.add_column("time", no_wrap=True)
    table.add_column("event", no_wrap=True)
    table.add_column("object", no_wrap=True, overflow="ellipsis", ratio=3)
    table.add_column("reason", no_wrap=True, overflow="ellipsis", ratio=1 if width < 120 else 2)
    for event in events:
        table.add_row(f"{event.at:%H:%M}", event.kind, event.object_name, event.reason)
    return table
