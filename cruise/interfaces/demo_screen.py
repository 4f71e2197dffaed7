"""The demo's live picture and its closing summary, for a terminal."""

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

from cruise.decisions.sizing.risk_level import ObservedRisk
from cruise.domain.resources import ResourceName, Resources
from cruise.interfaces.reasons import describe_observed_risk

GIBIBYTE = 1 << 30
# Ticks are not even, so the speed of some seconds is not quite the pace.
_NEARLY = 0.9
_USED = Style(color="green")
_IDLE = Style(color="yellow")
_FREE = Style(color="bright_black")
_OVER = Style(color="red")


@dataclass(frozen=True, slots=True)
class DemoNode:
    """One node: what it has, what its pods request as kube-scheduler counts, what they use."""

    name: str
    allocatable: Resources
    requested: Resources
    used: Resources
    pods: int
    overloaded: bool


@dataclass(frozen=True, slots=True)
class DemoEvent:
    """One thing that happened, for people."""

    at: datetime
    kind: str
    object_name: str
    reason: str


@dataclass(frozen=True, slots=True)
class ClusterTotals:
    """Sums over the cluster at one moment, and what has happened until then."""

    requested: Resources
    used: Resources
    allocatable: Resources
    pending: int
    resizes: int = 0
    evictions: int = 0
    oom_kills: int = 0


@dataclass(frozen=True, slots=True)
class DemoFrame:
    """What the demo shows at one moment.

    `simulated` is the simulated time since it began, `speed` how many times real time it has been lately: less than
    `pace` where the passes take this machine longer.
    `before` is the cluster as requested, before cruise wrote anything; `without` is the same cluster, at the same
    moment, left alone; `kills_by_cruise` are out-of-memory kills that the original limits would have spared, and
    `kept_risks` tells how stated risks were kept.
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
    """A bar of used, requested but idle, and free."""

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
    """Return the whole picture for a terminal `width` columns wide."""
    return Group(_headline(frame), _nodes(frame.nodes, width), _totals(frame), _events(frame.events, width))


def render_demo_summary(frame: DemoFrame) -> Group:
    """Return the closing summary: before, with cruise, and the same cluster without it."""
    table = Table(title="What cruise did", title_justify="left")
    table.add_column("")
    for name in ("before", "with cruise", "without"):
        table.add_column(name, justify="right")
    columns = (frame.before, frame.with_cruise, frame.without_cruise)
    table.add_row("CPU requested", *(format_cores(tally.requested.cpu_millicores) for tally in columns))
    table.add_row("CPU used", *(format_cores(tally.used.cpu_millicores) for tally in columns))
    table.add_row("memory requested", *(format_gibibytes(tally.requested.memory_bytes) for tally in columns))
    table.add_row("memory used", *(format_gibibytes(tally.used.memory_bytes) for tally in columns))
    table.add_row("pods pending", *(str(tally.pending) for tally in columns))
    table.add_row("resized in place", "-", str(frame.with_cruise.resizes), "-")
    table.add_row("evicted", "-", str(frame.with_cruise.evictions), "-")
    table.add_row("OOM kills", "-", str(frame.with_cruise.oom_kills), str(frame.without_cruise.oom_kills))
    told: list[RenderableType] = [table, Text(describe_summary(frame))]
    if frame.observed_risks:
        told.append(Text("What the nodes keep free for peaks"))
    for resource, risk in frame.observed_risks.items():
        told.append(Padding(Text(describe_observed_risk(resource, risk)), (0, 0, 0, 2)))
    return Group(*told)


def render_summary_json(frame: DemoFrame) -> bytes:
    """Return the summary as one JSON document."""
    document = {
        "simulatedSeconds": round(frame.simulated.total_seconds()),
        "before": _tally_json(frame.before),
        "withCruise": _tally_json(frame.with_cruise),
        "without": _tally_json(frame.without_cruise),
        "oomKillsThatOriginalLimitsWouldHaveSpared": frame.oom_kills_by_cruise,
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"


def _tally_json(tally: ClusterTotals) -> dict[str, int]:
    return {
        "cpuRequestedMillicores": tally.requested.cpu_millicores,
        "cpuUsedMillicores": tally.used.cpu_millicores,
        "cpuAllocatableMillicores": tally.allocatable.cpu_millicores,
        "memoryRequestedBytes": tally.requested.memory_bytes,
        "memoryUsedBytes": tally.used.memory_bytes,
        "memoryAllocatableBytes": tally.allocatable.memory_bytes,
        "podsPending": tally.pending,
        "resizes": tally.resizes,
        "evictions": tally.evictions,
        "oomKills": tally.oom_kills,
    }


def describe_status(frame: DemoFrame) -> str:
    """Return one line on how things stand, for output that is no terminal."""
    now, before = frame.with_cruise, frame.before
    return (
        f"{frame.at:%a %H:%M}  {frame.speed:.0f}x  requested CPU {_cores_change(before, now)}, "
        f"memory {_memory_change(before, now)}; resized {now.resizes}, evicted {now.evictions}, "
        f"pending {now.pending}, OOM kills {now.oom_kills}"
    )


def describe_summary(frame: DemoFrame) -> str:
    """Return the summary in one sentence."""
    cpu = _change(frame.before.requested.cpu_millicores, frame.with_cruise.requested.cpu_millicores)
    memory = _change(frame.before.requested.memory_bytes, frame.with_cruise.requested.memory_bytes)
    return (
        f"In {format_duration(frame.simulated)} of simulated time requested CPU went {cpu}, requested memory {memory}; "
        f"{frame.oom_kills_by_cruise} OOM kills that the original limits would have spared."
    )


def format_cores(millicores: int) -> str:
    """Write CPU for people."""
    return f"{millicores / 1000:.1f} cores"


def format_gibibytes(size_bytes: int) -> str:
    """Write memory for people."""
    return f"{size_bytes / GIBIBYTE:.1f} GiB"


def format_duration(time: timedelta) -> str:
    """Write a duration for people, to the minute."""
    minutes = round(time.total_seconds() / 60)
    return f"{minutes // 60} h {minutes % 60:02} min" if minutes >= 60 else f"{minutes} min"


def _change(before: int, now: int) -> str:
    share = (now - before) / before if before > 0 else 0.0
    if round(share, 2) == 0:
        return "unchanged"
    return f"{'down' if share < 0 else 'up'} {abs(share):.0%}"


def _headline(frame: DemoFrame) -> Text:
    left = "" if frame.remaining is None else f", ends in {max(0, round(frame.remaining.total_seconds()))} s"
    text = Text.assemble(("cruise demo ", "bold"), f"{frame.at:%a %H:%M} simulated, {_speed(frame)}{left}")
    text.append(f"  store: {frame.store}", style="bright_black")
    text.no_wrap, text.overflow = True, "ellipsis"
    return text


def _speed(frame: DemoFrame) -> str:
    """Say how fast simulated time passes, and why no faster."""
    if frame.speed >= _NEARLY * frame.pace:
        return f"{frame.pace:g} times real time"
    return f"{frame.speed:.0f} times real time (not {frame.pace:g}: it waits for the passes)"


def _nodes(nodes: Sequence[DemoNode], width: int) -> Table:
    table = Table(expand=True, pad_edge=False, box=None, padding=(0, 1))
    table.add_column("node", no_wrap=True)
    table.add_column("pods", justify="right", no_wrap=True)
    table.add_column("CPU", ratio=1)
    table.add_column("used/req", justify="right", no_wrap=True)
    table.add_column("memory", ratio=1)
    table.add_column("used/req", justify="right", no_wrap=True)
    for node in nodes:
        name = Text(node.name, style="red" if node.overloaded else "")
        used, requested, whole = node.used, node.requested, node.allocatable
        table.add_row(
            name,
            str(node.pods),
            UsageBar(used.cpu_millicores, requested.cpu_millicores, whole.cpu_millicores),
            f"{used.cpu_millicores / 1000:.1f}/{requested.cpu_millicores / 1000:.1f}",
            UsageBar(used.memory_bytes, requested.memory_bytes, whole.memory_bytes),
            f"{used.memory_bytes / GIBIBYTE:.0f}/{requested.memory_bytes / GIBIBYTE:.0f}",
        )
    return table


def _totals(frame: DemoFrame) -> Panel:
    now, before = frame.with_cruise, frame.before
    kills = f"OOM kills {now.oom_kills} (without cruise {frame.without_cruise.oom_kills})"
    lines = (
        f"requested: CPU {_cores_change(before, now)}, memory {_memory_change(before, now)}",
        f"resized {now.resizes}, evicted {now.evictions}, pending {before.pending} → {now.pending}, {kills}",
    )
    return Panel(Group(*(Text(line, no_wrap=True, overflow="ellipsis") for line in lines)), border_style="bright_black")


def _cores_change(before: ClusterTotals, now: ClusterTotals) -> str:
    return f"{before.requested.cpu_millicores / 1000:.1f} → {format_cores(now.requested.cpu_millicores)}"


def _memory_change(before: ClusterTotals, now: ClusterTotals) -> str:
    return f"{before.requested.memory_bytes / GIBIBYTE:.1f} → {format_gibibytes(now.requested.memory_bytes)}"


def _events(events: Sequence[DemoEvent], width: int) -> Table:
    table = Table(expand=True, pad_edge=False, box=None, padding=(0, 1))
    table.add_column("time", no_wrap=True)
    table.add_column("event", no_wrap=True)
    table.add_column("what", no_wrap=True, overflow="ellipsis", ratio=3)
    table.add_column("why", no_wrap=True, overflow="ellipsis", ratio=1 if width < 120 else 2)
    for event in events:
        table.add_row(f"{event.at:%H:%M}", event.kind, event.object_name, event.reason)
    return table
