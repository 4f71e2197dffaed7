"""Draws the charts of the documentation from cruise's own decisions: `python -m scripts.pictures`."""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from cruise.cli.inputs.sources import load_snapshot_with_node_autoscaler, load_usage_of_snapshot
from cruise.decisions.admission.replacement_pods import predict_replacement_pods
from cruise.decisions.sizing.node_plans import decide_node_plans
from cruise.domain.policy import Mode, Policy
from cruise.interfaces.backtest.pareto_chart import LabelBox, place_labels
from cruise.interfaces.text import format_cores

DOCS = Path(__file__).resolve().parent.parent / "docs"
PLACE = DOCS / "pictures"
_COLOURS = ("#1b6ca8", "#4f9dd0", "#c8553d", "#e08d6d", "#3f7d3a", "#a0791a", "#7b4ea3", "#2a9d8f")
_FIXED, _HEADROOM, _INK, _FAINT = "#8a8f98", "#ffd166", "#24292f", "#6b7280"
_WIDTH = 800


@dataclass(frozen=True, slots=True)
class _Part:
    name: str
    millicores: int
    colour: str
    headroom: bool = False


@dataclass(frozen=True, slots=True)
class _Node:
    """One node of the example, with a part per pod for each way of counting."""

    allocatable: int
    bars: Mapping[str, Sequence[_Part]]


def _node() -> _Node:
    policy = Policy(mode=Mode.FULL)
    snapshot = load_snapshot_with_node_autoscaler(str(DOCS / "example" / "cluster.json"), policy.node_autoscaler)
    statistics, at = load_usage_of_snapshot(str(DOCS / "example" / "usage.json"), snapshot, None, policy)
    (plan,) = decide_node_plans(snapshot, statistics, policy, at, replacements=predict_replacement_pods)
    (node,) = snapshot.nodes
    running = {pod.name: pod for pod in snapshot.pods if pod.node == node.name}
    requested = {name: pod.containers[0].requests.cpu_millicores or 0 for name, pod in running.items()}
    sizes = list(plan.targets)
    sized = {one.pod for one in sizes}
    fixed = _Part("fixed", sum(size for name, size in requested.items() if name not in sized), _FIXED)
    named = [(one, _short(one.pod), _COLOURS[place % len(_COLOURS)]) for place, one in enumerate(sizes)]
    bases = [_Part(name, one.cpu_base_millicores, colour) for one, name, colour in named]
    rooms = [_Part(name, one.cpu_headroom_millicores, colour, headroom=True) for one, name, colour in named]
    once = _Part("headroom for all", max(one.cpu_headroom_millicores for one in sizes), _HEADROOM)
    return _Node(
        node.allocatable.cpu_millicores,
        {
            "requested today": [fixed, *(_Part(name, requested[one.pod], colour) for one, name, colour in named)],
            "each its own peak": [fixed, *(part for pair in zip(bases, rooms, strict=True) for part in pair)],
            "bases, and the largest headroom once": [fixed, *bases, once],
            "requested after": [fixed, *(_Part(name, one.cpu_millicores, colour) for one, name, colour in named)],
        },
    )


def _short(pod: str) -> str:
    return re.sub(r"-7c9d5f-(\w)\w*$", r" \1", pod)


def node_picture() -> str:
    """Draw one node: its pods' requests today, their targets without and with shared headroom."""
    node = _node()
    left, top, pitch, high = 20, 64, 84, 34
    most = max(node.allocatable, *(sum(part.millicores for part in bar) for bar in node.bars.values()))
    scale = (_WIDTH - 2 * left) / (most * 1.02)
    height = top + pitch * len(node.bars) + 12
    limit = left + node.allocatable * scale
    parts = [_text(left, 24, "CPU of one node, counted in four ways", size=16, weight="bold")]
    parts.append(_text(limit, 46, f"allocatable {format_cores(node.allocatable)} cores", anchor="end", fill=_FAINT))
    for number, (title, bar) in enumerate(node.bars.items()):
        y, x = top + pitch * number + 22, float(left)
        total = sum(part.millicores for part in bar)
        over = total > node.allocatable
        words = f"{title}: {format_cores(total)} cores" + (", more than there is" if over else "")
        parts.append(_text(left, y - 8, words, weight="bold", fill="#b42318" if over else _INK))
        for part in bar:
            wide = part.millicores * scale
            parts.append(_box(x, y, wide, high, part))
            if wide > 7 * len(part.name) + 8:
                ink = _INK if part.colour == _HEADROOM or part.headroom else "#ffffff"
                parts.append(_text(x + wide / 2, y + high / 2 + 4, part.name, size=12, anchor="middle", fill=ink))
            x += wide
    parts.append(
        f'<line x1="{limit:.1f}" y1="52" x2="{limit:.1f}" y2="{height - 14}" stroke="{_INK}" stroke-dasharray="5 4"/>'
    )
    return _svg("What the pods of one node request today, and after cruise has sized them", height, parts)


def _box(x: float, y: float, wide: float, high: float, part: _Part) -> str:
    faded = ' fill-opacity="0.4"' if part.headroom else ""
    return (
        f'<rect x="{x:.1f}" y="{y}" width="{wide:.1f}" height="{high}" fill="{part.colour}"{faded} stroke="#ffffff">'
        f"<title>{escape(part.name)}: {part.millicores} m</title></rect>"
    )


_SHOWN = ("as-requested", "vpa", "cruisekube", "autopilot", "eks", "cruise-seeds", "cruise")
_COLUMNS: Sequence[tuple[str, str, bool]] = (
    ("CPU slack %", "CPU requested and not used, %", False),
    ("memory slack %", "memory requested and not used, %", False),
    ("resizes / c·d", "resizes a container and day", True),
)


def policies_picture() -> str:
    """Draw the backtest's results: a row per policy, a mark per trace."""
    results = list(_results((DOCS / "backtest-results.md").read_text(encoding="utf-8")))
    left, top, pitch, wide, gap = 110, 84, 40, 190, 40
    height = top + pitch * len(_SHOWN) + 30
    parts = [_text(20, 24, "Eight recorded traces, replayed under seven policies", size=16, weight="bold")]
    parts.append(_text(20, 44, "a mark for each trace; less is better in all three", fill=_FAINT))
    for row, policy in enumerate(_SHOWN):
        y = top + pitch * row + pitch / 2
        parts.append(_text(left - 12, y + 4, policy, anchor="end", weight="bold" if policy == "cruise" else "normal"))
        parts.append(f'<line x1="{left}" y1="{y}" x2="{_WIDTH - 15}" y2="{y}" stroke="#e5e7eb"/>')
    for number, (column, title, logarithmic) in enumerate(_COLUMNS):
        x = left + number * (wide + gap)
        across = _logarithmic(x, wide) if logarithmic else _linear(x, wide)
        parts.append(_text(x, top - 12, title, size=12, fill=_INK))
        for tick in (0, 1, 10, 100) if logarithmic else (0, 25, 50, 75, 100):
            parts.append(f'<path d="M{across(tick):.1f} {top}V{height - 28}" stroke="#e5e7eb"/>')
            parts.append(_text(across(tick), height - 12, f"{tick}", size=11, anchor="middle", fill=_FAINT))
        for _, policy, figures in results:
            if policy in _SHOWN and figures[column] is not None:
                y = top + pitch * _SHOWN.index(policy) + pitch / 2
                fill = "#c8553d" if policy == "cruise" else "#1b6ca8"
                parts.append(
                    f'<circle cx="{across(figures[column] or 0.0):.1f}" cy="{y}" r="6" fill="{fill}" '
                    'fill-opacity="0.65" stroke="#ffffff"/>'
                )
    return _svg("Slack and resizes of seven policies on eight recorded traces", height, parts)


def writes_picture() -> str:
    """Draw slack against resizes: a panel per trace, with its policies by CPU slack and resizes."""
    results = list(_results((DOCS / "backtest-results.md").read_text(encoding="utf-8")))
    traces = list(dict.fromkeys(trace for trace, *_ in results))
    left, top, wide, high, across, down = 44, 76, 205, 150, 255, 214
    rows = -(-len(traces) // 3)
    parts = [_text(20, 24, "Waste against writes, trace by trace", size=16, weight="bold")]
    parts.append(_text(20, 44, "to the left: less waste; down: fewer writes", fill=_FAINT))
    for number, trace in enumerate(traces):
        x, y = left + number % 3 * across, top + number // 3 * down
        slack, writes = _linear(x, wide), _logarithmic(0, high)
        parts.append(_text(x, y - 10, trace, weight="bold"))
        for tick in (0, 25, 50, 75, 100):
            parts.append(f'<path d="M{slack(tick):.1f} {y}v{high}" stroke="#e5e7eb"/>')
            parts.append(_text(slack(tick), y + high + 14, f"{tick}", size=11, anchor="middle", fill=_FAINT))
        for tick in (0, 1, 10, 100):
            parts.append(f'<path d="M{x} {y + high - writes(tick):.1f}h{wide}" stroke="#e5e7eb"/>')
            parts.append(_text(x - 6, y + high - writes(tick) + 4, f"{tick}", size=11, anchor="end", fill=_FAINT))
        named = {policy: figures for one, policy, figures in results if one == trace and policy in _SHOWN}
        points = [
            (slack(one["CPU slack %"] or 0.0), y + high - writes(one["resizes / c·d"] or 0.0)) for one in named.values()
        ]
        labels = place_labels(
            points, [6.2 * len(name) for name in named], 12, [4.0] * len(points), LabelBox(x, y, wide, high)
        )
        for name, (at, up), label in zip(named, points, labels, strict=True):
            fill = "#c8553d" if name == "cruise" else "#1b6ca8"
            parts.append(f'<circle cx="{at:.1f}" cy="{up:.1f}" r="4" fill="{fill}"/>')
            parts.append(_text(label.x + label.width / 2, label.y + 10, name, size=11, anchor="middle", fill=fill))
    height = top + rows * down
    parts.append(
        _text(20, height - 8, "across: CPU requested and not used, %; up: resizes a container and day", size=12)
    )
    return _svg("CPU slack and resizes of seven policies on each of eight recorded traces", height + 6, parts)


def _linear(x: float, wide: float) -> Callable[[float], float]:
    return lambda value: x + value / 100 * wide


def _logarithmic(x: float, wide: float) -> Callable[[float], float]:
    """Return a logarithmic scale that also has 0: values below one a day are linear."""
    return lambda value: x + wide * (0.08 + 0.92 * math.log10(value) / math.log10(200) if value >= 1 else 0.08 * value)


def _results(page: str) -> Iterator[tuple[str, str, dict[str, float | None]]]:
    """Yield the trace, the policy and the figures of every row of the first table on the page of results."""
    headings: list[str] = []
    for line in page.partition("## Cost")[0].splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| trace |"):
            headings = cells
        elif headings and line.startswith("| "):
            figures = (None if cell == "–" else float(cell.replace(",", "")) for cell in cells[2:])
            yield cells[0], cells[1].removesuffix(" ×").strip("*"), dict(zip(headings[2:], figures, strict=True))


def _text(
    x: float, y: float, words: str, *, size: int = 13, anchor: str = "start", fill: str = _INK, weight: str = "normal"
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{fill}" '
        f'font-weight="{weight}">{escape(words)}</text>'
    )


def _svg(title: str, height: float, parts: Sequence[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height:g}" font-family="sans-serif">'
        f'<title>{escape(title)}</title><rect width="{_WIDTH}" height="{height:g}" rx="8" fill="#ffffff"/>'
    )
    return "\n".join([head, *parts, "</svg>", ""])


PICTURES: Mapping[str, Callable[[], str]] = {
    "node.svg": node_picture,
    "policies.svg": policies_picture,
    "writes.svg": writes_picture,
}


if __name__ == "__main__":
    PLACE.mkdir(exist_ok=True)
    for file, draw in PICTURES.items():
        (PLACE / file).write_text(draw(), encoding="utf-8")
