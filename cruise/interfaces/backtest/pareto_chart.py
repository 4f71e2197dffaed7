"""The Pareto chart: a mark for each policy, with slack on the x axis and harm on the y axis, sized by its resizes."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from cruise.decisions.policy_costs import REFERENCE_POLICIES
from cruise.domain.backtest import PolicyScore
from cruise.interfaces.text import format_percent, format_rate

# Positions of labels that do not overlap.

_GAP = 4.0
_RING_DISTANCE, _RINGS = 9.0, 8
_GRID = 7.0
# First the right, then the other sides, then the corners, in degrees.
_DIRECTIONS = (0, 180, 90, 270, 45, 315, 135, 225, 22, 338, 158, 202)


@dataclass(frozen=True, slots=True)
class LabelBox:
    """A rectangle; `x` and `y` are its upper left corner."""

    x: float
    y: float
    width: float
    height: float

    def overlaps(self, other: "LabelBox") -> bool:
        """Return whether the two share more than an edge."""
        return (
            self.x < other.x + other.width
            and other.x < self.x + self.width
            and self.y < other.y + other.height
            and other.y < self.y + self.height
        )

    def contains(self, other: "LabelBox") -> bool:
        """Return whether the other box is inside this one."""
        return (
            self.x <= other.x
            and self.y <= other.y
            and other.x + other.width <= self.x + self.width
            and other.y + other.height <= self.y + self.height
        )

    def get_nearest_point(self, x: float, y: float) -> tuple[float, float]:
        """Return the point of the box nearest to a point."""
        return min(max(x, self.x), self.x + self.width), min(max(y, self.y), self.y + self.height)


def place_labels(
    marks: Sequence[tuple[float, float]],
    widths: Sequence[float],
    height: float,
    radii: Sequence[float],
    within: LabelBox,
) -> Sequence[LabelBox]:
    """Return a box for each mark's label, as near to the mark as the earlier boxes allow.

    A label that fits nowhere is next to its mark and overlaps others.
    """
    taken = [
        LabelBox(x - radius, y - radius, 2 * radius, 2 * radius) for (x, y), radius in zip(marks, radii, strict=True)
    ]
    boxes = []
    for (x, y), width, radius in zip(marks, widths, radii, strict=True):
        candidates = chain(
            _list_boxes_around(x, y, width, height, radius), _list_all_boxes(x, y, width, height, within)
        )
        free = [box for box in candidates if _is_free(box, within, taken)]
        # A name next to another mark would be read as that mark's.
        nearest = next((box for box in free if _is_nearest(box, (x, y), marks)), None)
        box = nearest or next(iter(free), LabelBox(x + radius + _GAP, y - height / 2, width, height))
        taken.append(box)
        boxes.append(box)
    return boxes


def _is_free(box: LabelBox, within: LabelBox, taken: Sequence[LabelBox]) -> bool:
    return within.contains(box) and not any(box.overlaps(other) for other in taken)


def _is_nearest(box: LabelBox, mark: tuple[float, float], marks: Sequence[tuple[float, float]]) -> bool:
    """Return whether no other mark is nearer to a box than its own mark."""
    distance = math.dist(box.get_nearest_point(*mark), mark)
    return all(math.dist(box.get_nearest_point(*other), other) >= distance for other in marks)


def _list_boxes_around(x: float, y: float, width: float, height: float, radius: float) -> Iterator[LabelBox]:
    """Yield boxes on rings around a mark, the nearest first."""
    for ring in range(_RINGS):
        distance = radius + _GAP + ring * _RING_DISTANCE
        for degrees in _DIRECTIONS:
            dx, dy = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
            # The side or corner that faces the mark touches the ring.
            left, top = x + dx * distance + (dx - 1) * width / 2, y + dy * distance + (dy - 1) * height / 2
            yield LabelBox(left, top, width, height)


def _list_all_boxes(x: float, y: float, width: float, height: float, within: LabelBox) -> Iterator[LabelBox]:
    """Yield boxes on a grid over the chart, the nearest first."""
    columns = range(max(int((within.width - width) // _GRID) + 1, 0))
    rows = range(max(int((within.height - height) // _GRID) + 1, 0))
    boxes = [
        LabelBox(within.x + column * _GRID, within.y + row * _GRID, width, height) for column in columns for row in rows
    ]
    yield from sorted(boxes, key=lambda box: math.dist(box.get_nearest_point(x, y), (x, y)))


# Scales of the axes.

# A range of values below this ratio gets a linear scale.
_LOG_SCALE_RATIO = 20
_MAX_DECADES = 5
_ZERO_SHARE = 0.16


@dataclass(frozen=True, slots=True)
class AxisScale:
    """One axis: `place` returns a value's position as a share of the length, `ticks` are values with their labels."""

    place: Callable[[float], float]
    ticks: Sequence[tuple[float, str]]


def create_linear_scale(values: Sequence[float], write: Callable[[float], str], ticks: int = 5) -> AxisScale:
    """Return a scale from zero, or a round value below the minimum, to a round value above the maximum."""
    low, high = min(0.0, *values, 0.0), max(0.0, *values, 0.0)
    if low == high:
        return AxisScale(lambda value: 0.0, [(0.0, write(0.0))])
    step = choose_round_step((high - low) / ticks)
    first, last = math.floor(low / step), math.ceil(high / step)
    start, length = first * step, (last - first) * step
    return AxisScale(
        lambda value: (value - start) / length,
        [(number * step, write(number * step)) for number in range(first, last + 1)],
    )


def create_log_scale(values: Sequence[float], write: Callable[[float], str]) -> AxisScale:
    """Return a logarithmic scale with a separate position for zero, or a linear one for a small range."""
    positive = [value for value in values if value > 0]
    if not positive or max(positive) < _LOG_SCALE_RATIO * min(positive):
        return create_linear_scale(values, write)
    first, last = math.floor(math.log10(min(positive))), math.ceil(math.log10(max(positive)))

    def place(value: float) -> float:
        if value <= 0:
            return 0.0
        return _ZERO_SHARE + (1 - _ZERO_SHARE) * (math.log10(value) - first) / (last - first)

    every = -(-(last - first) // _MAX_DECADES)
    decades = [10.0**exponent for exponent in range(last, first - 1, -every)]
    return AxisScale(place, [(value, write(value)) for value in (0.0, *reversed(decades))])


def choose_round_step(minimum: float) -> float:
    """Return the smallest of 1, 2, 2.5 and 5 times a power of ten that is at least a minimum."""
    power: float = 10.0 ** math.floor(math.log10(minimum))
    return next(power * factor for factor in (1.0, 2.0, 2.5, 5.0, 10.0) if power * factor >= minimum * (1 - 1e-9))


_MIN_RADIUS, _RADIUS_PER_DECADE = 3.5, 4.0
_LABEL_HEIGHT = 14.0
# The width of a letter of 12 px in the widest font of the page; names of cruise's policies are bold.
_LETTER_WIDTH, _BOLD_LETTER_WIDTH = 7.0, 7.8
_LEFT, _RIGHT, _TOP, _BOTTOM = 50.0, 14.0, 30.0, 40.0
# A label farther from its mark than this is connected to it by a line.
_NEAR = 8.0


@dataclass(frozen=True, slots=True)
class PolicyMark:
    """One policy: its mark, the position of its name, and a line between both if they are far apart.

    A policy that resizes more has a larger `radius`.
    """

    name: str
    kind: str
    description: str
    x: float
    y: float
    radius: float
    text_x: float
    text_y: float
    anchor: str
    line_to: tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class AxisTick:
    """A label of an axis and its position in pixels."""

    position: float
    text: str


@dataclass(frozen=True, slots=True)
class ParetoChart:
    """The chart in pixels; `pareto_front` joins the policies that no other one is better than on both axes."""

    width: float
    height: float
    plot: LabelBox
    x_title: str
    y_title: str
    x_axis: Sequence[AxisTick]
    y_axis: Sequence[AxisTick]
    pareto_front: Sequence[tuple[float, float]]
    marks: Sequence[PolicyMark]
    has_no_harm: bool


@dataclass(frozen=True, slots=True)
class MetricPair:
    """The metrics of both axes, with their titles and formats."""

    x_title: str
    y_title: str
    x: Callable[[PolicyScore], float]
    y: Callable[[PolicyScore], float]
    format_y: Callable[[float], str]
    format_y_tick: Callable[[float], str]


STARVATION = MetricPair(
    "CPU slack, % of the requests",
    "starved container-minutes, %",
    lambda score: score.cpu.relative_slack,
    lambda score: score.cpu.starved_share,
    format_percent,
    lambda share: f"{100 * share:g}",
)
KILLS = MetricPair(
    "memory slack, % of the requests",
    "out-of-memory kills for 1,000 container-days",
    lambda score: score.memory.relative_slack if score.memory is not None else math.nan,
    lambda score: score.oom_per_1000_container_days,
    format_rate,
    lambda rate: f"{rate:,g}",
)


def compute_radius(resizes: float) -> float:
    """Return the radius in pixels for a number of resizes per container and day, on a logarithmic scale."""
    return round(_MIN_RADIUS + _RADIUS_PER_DECADE * math.log10(1 + resizes), 1)


def build_pareto_chart(
    policies: Mapping[str, PolicyScore], dominated: Mapping[str, str], pair: MetricPair, width: float, height: float
) -> ParetoChart | None:
    """Lay out the chart; None if no policy has both metrics."""
    values = {name: (pair.x(score), pair.y(score)) for name, score in policies.items()}
    known = {name: value for name, value in values.items() if all(map(math.isfinite, value))}
    if not known:
        return None
    plot = LabelBox(_LEFT, _TOP, width - _LEFT - _RIGHT, height - _TOP - _BOTTOM)
    x_scale = create_linear_scale([x for x, _ in known.values()], lambda share: f"{100 * share:g}", ticks=5)
    y_scale = create_log_scale([y for _, y in known.values()], pair.format_y_tick)

    def to_pixels(value: tuple[float, float]) -> tuple[float, float]:
        x, y = value
        return round(plot.x + plot.width * x_scale.place(x), 1), round(plot.y + plot.height * (1 - y_scale.place(y)), 1)

    points = {name: to_pixels(value) for name, value in known.items()}
    kinds = {name: _get_kind(name, dominated) for name in points}
    widths = [len(name) * (_BOLD_LETTER_WIDTH if kinds[name].startswith("own") else _LETTER_WIDTH) for name in points]
    label_area = LabelBox(_LEFT + 3, 2, width - _LEFT - 5, plot.y + plot.height - 2)
    radii = [compute_radius(policies[name].resizes_per_container_day) for name in points]
    labels = place_labels(list(points.values()), widths, _LABEL_HEIGHT, radii, label_area)
    marks = []
    for (name, point), radius, label in zip(points.items(), radii, labels, strict=True):
        description = (
            f"{name}: {format_percent(known[name][0])} {pair.x_title.split(',')[0]}, "
            f"{pair.format_y(known[name][1])} {pair.y_title}, "
            f"{format_rate(policies[name].resizes_per_container_day)} resizes a container and day"
        )
        marks.append(_create_mark(name, kinds[name], description, point, radius, label))
    front = _compute_front([value for name, value in known.items() if name not in REFERENCE_POLICIES])
    return ParetoChart(
        width,
        height,
        plot,
        pair.x_title,
        pair.y_title,
        [AxisTick(round(to_pixels((value, 0.0))[0], 1), text) for value, text in x_scale.ticks],
        [AxisTick(round(plot.y + plot.height * (1 - y_scale.place(value)), 1), text) for value, text in y_scale.ticks],
        [to_pixels(value) for value in front],
        marks,
        has_no_harm=not any(y for _, y in known.values()),
    )


def _create_mark(
    name: str, kind: str, description: str, point: tuple[float, float], radius: float, label: LabelBox
) -> PolicyMark:
    nearest = label.get_nearest_point(*point)
    line_to = (round(nearest[0], 1), round(nearest[1], 1)) if math.dist(nearest, point) > radius + _NEAR else None
    # The anchor keeps the text next to the mark if the font is narrower than assumed.
    if label.x + label.width <= point[0]:
        text_x, anchor = label.x + label.width, "end"
    elif label.x < point[0]:
        text_x, anchor = label.x + label.width / 2, "middle"
    else:
        text_x, anchor = label.x, "start"
    # The middle of the letters is a third of their size above the baseline.
    text_y = label.y + label.height / 2 + 4
    return PolicyMark(name, kind, description, *point, radius, round(text_x, 1), round(text_y, 1), anchor, line_to)


def _get_kind(name: str, dominated: Mapping[str, str]) -> str:
    if name in REFERENCE_POLICIES:
        return "bound"
    own = "own" if name.startswith("cruise") and name != "cruisekube" else "other"
    return f"{own} beaten" if name in dominated else own


def _compute_front(values: Sequence[tuple[float, float]]) -> Sequence[tuple[float, float]]:
    """Return the corners of the steps below which there is no policy, from the left."""
    steps: list[tuple[float, float]] = []
    for x, y in sorted(set(values)):
        if not steps:
            steps.append((x, y))
        elif y < steps[-1][1]:
            steps += [(x, steps[-1][1]), (x, y)]
    return steps
