"""The time lines of a node, made as narrow as a picture without losing a peak."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from cruise.domain.arrays import Int64Array
from cruise.domain.backtest import NodeTimeLine
from cruise.interfaces.backtest.pareto_chart import AxisScale, choose_round_step, create_linear_scale
from cruise.interfaces.text import format_cores, format_gibibytes

MAX_COLUMNS = 600
CHART_HEIGHT = 1000
_HOUR, _DAY = 3600, 86_400
_MOST_TICKS = 6


@dataclass(frozen=True, slots=True)
class TimeSeriesPath:
    """One line: what it is, and its path: a band from the least to the most of each column, use from nothing."""

    kind: str
    label: str
    path: str


@dataclass(frozen=True, slots=True)
class AxisLabel:
    """A value beside an axis, at its place in percent of the axis, from the left or the top."""

    percent: float
    text: str


@dataclass(frozen=True, slots=True)
class NodeTimeChart:
    """One resource of a node over time; paths are in a frame of COLUMNS × HEIGHT."""

    title: str
    unit: str
    message: str
    lines: Sequence[TimeSeriesPath]
    x_labels: Sequence[AxisLabel]
    y_labels: Sequence[AxisLabel]


def build_node_charts(line: NodeTimeLine, memory: bool = True) -> Sequence[NodeTimeChart]:
    """Return the pictures of CPU and, unless it was not recorded, memory."""
    if not len(line.times):
        return ()
    cpu = _Amounts(
        line.allocatable.cpu_millicores,
        line.requested_cpu_millicores,
        line.peak_cpu_millicores,
        line.base_cpu_millicores,
        line.headroom_cpu_millicores,
    )
    found = [_picture("CPU", "cores", 1000, cpu, line)]
    if memory:
        amounts = _Amounts(
            line.allocatable.memory_bytes,
            line.requested_memory_bytes,
            line.peak_memory_bytes,
            line.base_memory_bytes,
            line.headroom_memory_bytes,
        )
        found.append(_picture("Memory", "GiB", 1 << 30, amounts, line))
    return found


def format_start(line: NodeTimeLine) -> str:
    """Say when the time line starts."""
    return f"{datetime.fromtimestamp(int(line.times[0]), UTC):%Y-%m-%d %H:%M} UTC"


def downsample(values: Int64Array, most: int = MAX_COLUMNS) -> tuple[Int64Array, Int64Array]:
    """Return the least and the most of each of at most `most` columns of consecutive values."""
    if len(values) <= most:
        return values, values
    starts = np.arange(most, dtype=np.int64) * len(values) // most
    return np.minimum.reduceat(values, starts), np.maximum.reduceat(values, starts)


@dataclass(frozen=True, slots=True)
class _Amounts:
    allocatable: int
    requested: Int64Array
    peak: Int64Array
    base: Int64Array | None
    headroom: Int64Array | None


def _picture(title: str, unit: str, one: int, amounts: _Amounts, line: NodeTimeLine) -> NodeTimeChart:
    allocatable = np.full(len(line.times), amounts.allocatable, dtype=np.int64)
    drawn = [("peak", "used at most", amounts.peak)]
    if amounts.base is not None:
        drawn.append(("base", "base", amounts.base))
        if amounts.headroom is not None:
            drawn.append(("headroom", "base and headroom", amounts.base + amounts.headroom))
    drawn += [("requested", "requested", amounts.requested), ("allocatable", "allocatable", allocatable)]
    highest = max(float(values.max()) for _, _, values in drawn)
    write = format_cores if unit == "cores" else format_gibibytes
    scale = create_linear_scale([highest / one], lambda value: f"{value:g}", ticks=4)
    words = (
        f"{title} of {line.node}, {unit}: at most {write(int(amounts.peak.max()))} used "
        f"and {write(int(amounts.requested.max()))} requested of {write(amounts.allocatable)}"
    )
    return NodeTimeChart(
        title,
        unit,
        words,
        [TimeSeriesPath(kind, name, _path(values, scale, one, kind == "peak")) for kind, name, values in drawn],
        _times(line.times),
        [AxisLabel(round(100 * (1 - scale.place(value)), 2), text) for value, text in scale.ticks],
    )


def _path(values: Int64Array, scale: AxisScale, one: int, from_nothing: bool) -> str:
    """Return the path along the most of each column and back along the least, or along nothing."""
    low, high = downsample(values)
    across = MAX_COLUMNS / max(len(high) - 1, 1)

    def point(at: int, value: int) -> str:
        return f"{at * across:.0f} {CHART_HEIGHT * (1 - scale.place(value / one)):.0f}"

    there = list(enumerate(high.tolist()))
    if len(there) == 1:
        there.append((1, there[0][1]))
    if from_nothing:
        back = [(there[-1][0], 0), (0, 0)]
    else:
        back = list(enumerate(low.tolist()))[::-1] if len(values) > len(low) else []
    points = [point(at, value) for at, value in _turns(there) + _turns(back)]
    return f"M{'L'.join(points)}" + ("Z" if back else "")


def _turns(points: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Leave out the points of a level stretch but its ends."""
    return [
        point
        for at, point in enumerate(points)
        if at in (0, len(points) - 1) or not points[at - 1][1] == point[1] == points[at + 1][1]
    ]


def _times(times: Int64Array) -> Sequence[AxisLabel]:
    """Return places of whole hours or days from the start."""
    length = int(times[-1] - times[0])
    if length <= 0:
        return ()
    unit, name = (_DAY, "d") if length > 2 * _DAY else (_HOUR, "h")
    step = max(1, round(choose_round_step(length / unit / _MOST_TICKS)))
    return [AxisLabel(round(100 * at * unit / length, 2), f"{at} {name}") for at in range(0, length // unit + 1, step)]
