"""The Pareto picture: every policy a mark, its waste to the right, its harm upwards, its resizes by its size."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from cruise.decisions.policy_costs import REFERENCE_POLICIES
from cruise.domain.backtest import PolicyScore
from cruise.interfaces.text import format_percent, format_rate

# Places for the labels of marks in a picture, so that none covers another label or a mark.

_GAP = 4.0
_STEP, _RINGS = 9.0, 8
_GRID = 7.0
# The right is where a reader looks first; then the other sides, then the corners.
_DIRECTIONS = (0, 180, 90, 270, 45, 315, 135, 225, 22, 338, 158, 202)


@dataclass(frozen=True, slots=True)
class LabelBox:
    """A rectangle; `x` and `y` are its left upper corner."""

    x: float
    y: float
    width: float
    height: float

    def overlaps(self, other: "LabelBox") -> bool:
        """Tell whether the two share more than an edge."""
        return (
            self.x < other.x + other.width
            and other.x < self.x + self.width
            and self.y < other.y + other.height
            and other.y < self.y + self.height
        )

    def contains(self, other: "LabelBox") -> bool:
        """Tell whether the other lies within this one."""
        return (
            self.x <= other.x
            and self.y <= other.y
            and other.x + other.width <= self.x + self.width
            and other.y + other.height <= self.y + self.height
        )

    def get_nearest_point(self, x: float, y: float) -> tuple[float, float]:
        """Return the point of the box that is nearest to a point."""
        return min(max(x, self.x), self.x + self.width), min(max(y, self.y), self.y + self.height)


def place_labels(
    marks: Sequence[tuple[float, float]],
    widths: Sequence[float],
    height: float,
    radii: Sequence[float],
    within: LabelBox,
) -> Sequence[LabelBox]:
    """Return a box for each mark's label, each as near to its mark as those before leave it room.

    A label for which there is no room whatever lies over others, beside its mark.
    """
    taken = [
        LabelBox(x - radius, y - radius, 2 * radius, 2 * radius) for (x, y), radius in zip(marks, radii, strict=True)
    ]
    found = []
    for (x, y), width, radius in zip(marks, widths, radii, strict=True):
        places = chain(_around(x, y, width, height, radius), _anywhere(x, y, width, height, within))
        free = [box for box in places if _is_free(box, within, taken)]
        # A name beside another mark would be read as that mark's.
        own = next((box for box in free if _is_nearest(box, (x, y), marks)), None)
        box = own or next(iter(free), LabelBox(x + radius + _GAP, y - height / 2, width, height))
        taken.append(box)
        found.append(box)
    return found


def _is_free(box: LabelBox, within: LabelBox, taken: Sequence[LabelBox]) -> bool:
    return within.contains(box) and not any(box.overlaps(other) for other in taken)


def _is_nearest(box: LabelBox, mark: tuple[float, float], marks: Sequence[tuple[float, float]]) -> bool:
    """Tell whether no other mark is nearer to a box than its own."""
    away = math.dist(box.get_nearest_point(*mark), mark)
    return all(math.dist(box.get_nearest_point(*other), other) >= away for other in marks)


def _around(x: float, y: float, width: float, height: float, radius: float) -> Iterator[LabelBox]:
    """Yield boxes on rings around a mark, the nearest first."""
    for ring in range(_RINGS):
        away = ring * _STEP
        for degrees in _DIRECTIONS:
            dx, dy = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
            reach = radius + _GAP + away
            # The box touches the ring with the side or corner that faces the mark.
            yield LabelBox(x + dx * reach + (dx - 1) * width / 2, y + dy * reach + (dy - 1) * height / 2, width, height)


def _anywhere(x: float, y: float, width: float, height: float, within: LabelBox) -> Iterator[LabelBox]:
    """Yield boxes all over the picture, the nearest first."""
    columns = range(max(int((within.width - width) // _GRID) + 1, 0))
    rows = range(max(int((within.height - height) // _GRID) + 1, 0))
    boxes = [
        LabelBox(within.x + column * _GRID, within.y + row * _GRID, width, height) for column in columns for row in rows
    ]
    yield from sorted(boxes, key=lambda box: math.dist(box.get_nearest_point(x, y), (x, y)))


# Scales of a picture's axes: where a value lies between the ends, and which values are written beside it.

_DECADES_FROM = 20
_MOST_DECADES = 5
_ZERO_ROOM = 0.16


@dataclass(frozen=True, slots=True)
class AxisScale:
    """One axis: `place` returns a share of its length, `ticks` are values with what is written at them."""

    place: Callable[[float], float]
    ticks: Sequence[tuple[float, str]]


def create_linear_scale(values: Sequence[float], write: Callable[[float], str], ticks: int = 5) -> AxisScale:
    """Return a scale from zero, or a round value below the least, to a round value above the largest.

    Where there is nothing but zero it lies at the start.
    """
    low, high = min(0.0, *values, 0.0), max(0.0, *values, 0.0)
    if low == high:
        return AxisScale(lambda value: 0.0, [(0.0, write(0.0))])
    step = choose_round_step((high - low) / ticks)
    first, last = math.floor(low / step), math.ceil(high / step)
    start, length = first * step, (last - first) * step
    return AxisScale(
        lambda value: (value - start) / length,
        [(at * step, write(at * step)) for at in range(first, last + 1)],
    )


def create_log_scale(values: Sequence[float], write: Callable[[float], str]) -> AxisScale:
    """Return a scale with decades of equal lengths and a place of its own for zero; linear where that is enough."""
    positive = [value for value in values if value > 0]
    if not positive or max(positive) < _DECADES_FROM * min(positive):
        return create_linear_scale(values, write)
    first, last = math.floor(math.log10(min(positive))), math.ceil(math.log10(max(positive)))

    def place(value: float) -> float:
        if value <= 0:
            return 0.0
        return _ZERO_ROOM + (1 - _ZERO_ROOM) * (math.log10(value) - first) / (last - first)

    every = -(-(last - first) // _MOST_DECADES)
    decades = [10.0**at for at in range(last, first - 1, -every)]
    return AxisScale(place, [(value, write(value)) for value in (0.0, *reversed(decades))])


def choose_round_step(least: float) -> float:
    """Return the least of 1, 2, 2.5 and 5 times a power of ten that is not below a length."""
    power: float = 10.0 ** math.floor(math.log10(least))
    return next(power * factor for factor in (1.0, 2.0, 2.5, 5.0, 10.0) if power * factor >= least * (1 - 1e-9))


_SMALLEST, _DECADE = 3.5, 4.0
_LABEL_HEIGHT = 14.0
# Of the page's letters of 12 px in the widest of its fonts; cruise's own names are bold.
_LETTER, _BOLD_LETTER = 7.0, 7.8
_LEFT, _RIGHT, _TOP, _BOTTOM = 50.0, 14.0, 30.0, 40.0
_NEAR = 8.0


@dataclass(frozen=True, slots=True)
class PolicyMark:
    """One policy: where it stands, where its name is written, and the line between them where that is far away.

    The more it resizes, the larger its `radius`.
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
    """A value beside an axis, at its place on it."""

    position: float
    text: str


@dataclass(frozen=True, slots=True)
class ParetoChart:
    """All that is drawn, in pixels of the picture; `front` joins the policies that no other beats in both.

    `calm` is where no policy does any harm.
    """

    width: float
    height: float
    plot: LabelBox
    x_title: str
    y_title: str
    x_axis: Sequence[AxisTick]
    y_axis: Sequence[AxisTick]
    pareto_front: Sequence[tuple[float, float]]
    marks: Sequence[PolicyMark]
    few_resizes: bool


@dataclass(frozen=True, slots=True)
class MetricPair:
    """What is drawn against what: each with its title, figure and words."""

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
    """Return the radius, in pixels, of who resizes a container so often a day: ten times as often is a step larger."""
    return round(_SMALLEST + _DECADE * math.log10(1 + resizes), 1)


def build_pareto_chart(
    policies: Mapping[str, PolicyScore], dominated: Mapping[str, str], pair: MetricPair, width: float, height: float
) -> ParetoChart | None:
    """Lay out the picture; None where no policy has both figures."""
    places = {name: (pair.x(score), pair.y(score)) for name, score in policies.items()}
    known = {name: place for name, place in places.items() if all(map(math.isfinite, place))}
    if not known:
        return None
    plot = LabelBox(_LEFT, _TOP, width - _LEFT - _RIGHT, height - _TOP - _BOTTOM)
    across = create_linear_scale([x for x, _ in known.values()], lambda share: f"{100 * share:g}", ticks=5)
    up = create_log_scale([y for _, y in known.values()], pair.format_y_tick)

    def pixel(place: tuple[float, float]) -> tuple[float, float]:
        x, y = place
        return round(plot.x + plot.width * across.place(x), 1), round(plot.y + plot.height * (1 - up.place(y)), 1)

    points = {name: pixel(place) for name, place in known.items()}
    kinds = {name: _kind(name, dominated) for name in points}
    widths = [len(name) * (_BOLD_LETTER if kinds[name].startswith("own") else _LETTER) for name in points]
    room = LabelBox(_LEFT + 3, 2, width - _LEFT - 5, plot.y + plot.height - 2)
    radii = [compute_radius(policies[name].resizes_per_container_day) for name in points]
    labels = place_labels(list(points.values()), widths, _LABEL_HEIGHT, radii, room)
    marks = []
    for (name, point), radius, label in zip(points.items(), radii, labels, strict=True):
        words = (
            f"{name}: {format_percent(known[name][0])} {pair.x_title.split(',')[0]}, "
            f"{pair.format_y(known[name][1])} {pair.y_title}, "
            f"{format_rate(policies[name].resizes_per_container_day)} resizes a container and day"
        )
        marks.append(_mark(name, kinds[name], words, point, radius, label))
    return ParetoChart(
        width,
        height,
        plot,
        pair.x_title,
        pair.y_title,
        [AxisTick(round(pixel((value, 0.0))[0], 1), text) for value, text in across.ticks],
        [AxisTick(round(plot.y + plot.height * (1 - up.place(value)), 1), text) for value, text in up.ticks],
        [pixel(place) for place in _front([place for name, place in known.items() if name not in REFERENCE_POLICIES])],
        marks,
        few_resizes=not any(y for _, y in known.values()),
    )


def _mark(name: str, kind: str, words: str, point: tuple[float, float], radius: float, label: LabelBox) -> PolicyMark:
    near = label.get_nearest_point(*point)
    line_to = (round(near[0], 1), round(near[1], 1)) if math.dist(near, point) > radius + _NEAR else None
    # A font that is narrower than was reckoned with leaves its gap on the side that is away from the mark.
    if label.x + label.width <= point[0]:
        text_x, anchor = label.x + label.width, "end"
    elif label.x < point[0]:
        text_x, anchor = label.x + label.width / 2, "middle"
    else:
        text_x, anchor = label.x, "start"
    # The middle of the letters lies a third of their size above the line that they stand on.
    text_y = label.y + label.height / 2 + 4
    return PolicyMark(name, kind, words, *point, radius, round(text_x, 1), round(text_y, 1), anchor, line_to)


def _kind(name: str, dominated: Mapping[str, str]) -> str:
    if name in REFERENCE_POLICIES:
        return "bound"
    own = "own" if name.startswith("cruise") and name != "cruisekube" else "other"
    return f"{own} beaten" if name in dominated else own


def _front(places: Sequence[tuple[float, float]]) -> Sequence[tuple[float, float]]:
    """Return the corners of the steps below which no policy lies, from the left."""
    steps: list[tuple[float, float]] = []
    for x, y in sorted(set(places)):
        if not steps:
            steps.append((x, y))
        elif y < steps[-1][1]:
            steps += [(x, steps[-1][1]), (x, y)]
    return steps
