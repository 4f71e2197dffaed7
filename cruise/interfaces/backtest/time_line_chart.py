"""The charts of a node over time, downsampled without losing a peak."""

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
_MAX_TICKS = 6


@dataclass(frozen=True, slots=True)
class TimeSeriesPath:
    """One series: its label and path, a band from the minimum to the maximum of each column, usage from zero."""

    kind: str
    label: str
    path: str


@dataclass(frozen=True, slots=True)
class AxisLabel:
    """A label of an axis, at a position in percent from the left or the top."""

    percent: float
    text: str


@dataclass(frozen=True, slots=True)
class NodeTimeChart:
    """One resource of a node over time; paths are in a frame of MAX_COLUMNS × CHART_HEIGHT."""

    title: str
    unit: str
    description: str
    lines: Sequence[TimeSeriesPath]
    x_labels: Sequence[AxisLabel]
    y_labels: Sequence[AxisLabel]


def build_node_charts(line: NodeTimeLine, memory: bool = True) -> Sequence[NodeTimeChart]:
    """Return the charts of CPU and, if it was recorded, memory."""
    if not len(line.times):
        return ()
    cpu = _Amounts(
        line.allocatable.cpu_millicores,
        line.requested_cpu_millicores,
        line.peak_cpu_millicores,
        line.base_cpu_millicores,
        line.headroom_cpu_millicores,
    )
    charts = [_build_chart("CPU", "cores", 1000, cpu, line)]
    if memory:
        amounts = _Amounts(
            line.allocatable.memory_bytes,
            line.requested_memory_bytes,
            line.peak_memory_bytes,
            line.base_memory_bytes,
            line.headroom_memory_bytes,
        )
        charts.append(_build_chart("Memory", "GiB", 1 << 30, amounts, line))
    return charts


def format_start(line: NodeTimeLine) -> str:
    """Write the start of the time line."""
    return f"{datetime.fromtimestamp(int(line.times[0]), UTC):%Y-%m-%d %H:%M} UTC"


def downsample(values: Int64Array, max_columns: int = MAX_COLUMNS) -> tuple[Int64Array, Int64Array]:
    """Return the minimum and the maximum of each column of consecutive values."""
    if len(values) <= max_columns:
        return values, values
    starts = np.arange(max_columns, dtype=np.int64) * len(values) // max_columns
    return np.minimum.reduceat(values, starts), np.maximum.reduceat(values, starts)


@dataclass(frozen=True, slots=True)
class _Amounts:
    allocatable: int
    requested: Int64Array
    peak: Int64Array
    base: Int64Array | None
    headroom: Int64Array | None


def _build_chart(title: str, unit: str, unit_size: int, amounts: _Amounts, line: NodeTimeLine) -> NodeTimeChart:
    allocatable = np.full(len(line.times), amounts.allocatable, dtype=np.int64)
    series = [("peak", "maximum used", amounts.peak)]
    if amounts.base is not None:
        series.append(("base", "base", amounts.base))
        if amounts.headroom is not None:
            series.append(("headroom", "base and headroom", amounts.base + amounts.headroom))
    series += [("requested", "requested", amounts.requested), ("allocatable", "allocatable", allocatable)]
    maximum = max(float(values.max()) for _, _, values in series)
    write = format_cores if unit == "cores" else format_gibibytes
    scale = create_linear_scale([maximum / unit_size], lambda value: f"{value:g}", ticks=4)
    description = (
        f"{title} of {line.node}, {unit}: at most {write(int(amounts.peak.max()))} used "
        f"and {write(int(amounts.requested.max()))} requested of {write(amounts.allocatable)}"
    )
    return NodeTimeChart(
        title,
        unit,
        description,
        [
            TimeSeriesPath(kind, label, _build_path(values, scale, unit_size, kind == "peak"))
            for kind, label, values in series
        ],
        _build_time_labels(line.times),
        [AxisLabel(round(100 * (1 - scale.place(value)), 2), text) for value, text in scale.ticks],
    )


def _build_path(values: Int64Array, scale: AxisScale, unit_size: int, from_zero: bool) -> str:
    """Return the path along the maximum of each column, and back along the minimum or zero."""
    low, high = downsample(values)
    x_step = MAX_COLUMNS / max(len(high) - 1, 1)

    def write_point(column: int, value: int) -> str:
        return f"{column * x_step:.0f} {CHART_HEIGHT * (1 - scale.place(value / unit_size)):.0f}"

    upper = list(enumerate(high.tolist()))
    if len(upper) == 1:
        upper.append((1, upper[0][1]))
    if from_zero:
        lower = [(upper[-1][0], 0), (0, 0)]
    else:
        lower = list(enumerate(low.tolist()))[::-1] if len(values) > len(low) else []
    points = [write_point(column, value) for column, value in _drop_level_points(upper) + _drop_level_points(lower)]
    return f"M{'L'.join(points)}" + ("Z" if lower else "")


def _drop_level_points(points: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the points without those inside a level stretch."""
    return [
        point
        for index, point in enumerate(points)
        if index in (0, len(points) - 1) or not points[index - 1][1] == point[1] == points[index + 1][1]
    ]


def _build_time_labels(times: Int64Array) -> Sequence[AxisLabel]:
    """Return labels at whole hours or days from the start."""
    length = int(times[-1] - times[0])
    if length <= 0:
        return ()
    unit, name = (_DAY, "d") if length > 2 * _DAY else (_HOUR, "h")
    step = max(1, round(choose_round_step(length / unit / _MAX_TICKS)))
    return [AxisLabel(round(100 * n * unit / length, 2), f"{n} {name}") for n in range(0, length // unit + 1, step)]
