"""The Pareto picture: every policy a mark, its waste to the right, its harm upwards, its resizes by its size."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from cruise.decisions.pareto import NEVER_RIVALS
from cruise.domain.backtest import PolicyScore
from cruise.interfaces.amounts import percent_text, rate_text
from cruise.interfaces.backtest.labels import Box, place_labels
from cruise.interfaces.backtest.scales import decades_scale, linear_scale

_SMALLEST, _DECADE = 3.5, 4.0
_LABEL_HEIGHT = 14.0
# Of the page's letters of 12 px in the widest of its fonts; cruise's own names are bold.
_LETTER, _BOLD_LETTER = 7.0, 7.8
_LEFT, _RIGHT, _TOP, _BOTTOM = 50.0, 14.0, 30.0, 40.0
_NEAR = 8.0


@dataclass(frozen=True, slots=True)
class Mark:
    """One policy: where it stands, where its name is written, and the line between them where that is far away.

    The more it resizes, the larger its `radius`.
    """

    name: str
    kind: str
    words: str
    x: float
    y: float
    radius: float
    text_x: float
    text_y: float
    anchor: str
    line_to: tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class Tick:
    """A value beside an axis, at its place on it."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class ParetoPicture:
    """All that is drawn, in pixels of the picture; `front` joins the policies that no other beats in both.

    `calm` is where no policy does any harm.
    """

    width: float
    height: float
    plot: Box
    across_title: str
    up_title: str
    across: Sequence[Tick]
    up: Sequence[Tick]
    front: Sequence[tuple[float, float]]
    marks: Sequence[Mark]
    calm: bool


@dataclass(frozen=True, slots=True)
class Pair:
    """What is drawn against what: each with its title, figure and words."""

    across_title: str
    up_title: str
    across: Callable[[PolicyScore], float]
    up: Callable[[PolicyScore], float]
    write_up: Callable[[float], str]
    up_tick: Callable[[float], str]


STARVATION = Pair(
    "CPU slack, % of the requests",
    "starved container-minutes, %",
    lambda score: score.cpu.relative_slack,
    lambda score: score.cpu.starved_share,
    percent_text,
    lambda share: f"{100 * share:g}",
)
KILLS = Pair(
    "memory slack, % of the requests",
    "out-of-memory kills for 1,000 container-days",
    lambda score: score.memory.relative_slack if score.memory is not None else math.nan,
    lambda score: score.oom_per_1000_container_days,
    rate_text,
    lambda rate: f"{rate:,g}",
)


def radius_of(resizes: float) -> float:
    """Return the radius, in pixels, of who resizes a container so often a day: ten times as often is a step larger."""
    return round(_SMALLEST + _DECADE * math.log10(1 + resizes), 1)


def pareto_picture(
    policies: Mapping[str, PolicyScore], dominated: Mapping[str, str], pair: Pair, width: float, height: float
) -> ParetoPicture | None:
    """Lay out the picture; None where no policy has both figures."""
    places = {name: (pair.across(score), pair.up(score)) for name, score in policies.items()}
    known = {name: place for name, place in places.items() if all(map(math.isfinite, place))}
    if not known:
        return None
    plot = Box(_LEFT, _TOP, width - _LEFT - _RIGHT, height - _TOP - _BOTTOM)
    across = linear_scale([x for x, _ in known.values()], lambda share: f"{100 * share:g}", ticks=5)
    up = decades_scale([y for _, y in known.values()], pair.up_tick)

    def pixel(place: tuple[float, float]) -> tuple[float, float]:
        x, y = place
        return round(plot.x + plot.width * across.place(x), 1), round(plot.y + plot.height * (1 - up.place(y)), 1)

    points = {name: pixel(place) for name, place in known.items()}
    kinds = {name: _kind(name, dominated) for name in points}
    widths = [len(name) * (_BOLD_LETTER if kinds[name].startswith("own") else _LETTER) for name in points]
    room = Box(_LEFT + 3, 2, width - _LEFT - 5, plot.y + plot.height - 2)
    radii = [radius_of(policies[name].resizes_per_container_day) for name in points]
    labels = place_labels(list(points.values()), widths, _LABEL_HEIGHT, radii, room)
    marks = []
    for (name, point), radius, label in zip(points.items(), radii, labels, strict=True):
        words = (
            f"{name}: {percent_text(known[name][0])} {pair.across_title.split(',')[0]}, "
            f"{pair.write_up(known[name][1])} {pair.up_title}, "
            f"{rate_text(policies[name].resizes_per_container_day)} resizes a container and day"
        )
        marks.append(_mark(name, kinds[name], words, point, radius, label))
    return ParetoPicture(
        width,
        height,
        plot,
        pair.across_title,
        pair.up_title,
        [Tick(round(pixel((value, 0.0))[0], 1), text) for value, text in across.ticks],
        [Tick(round(plot.y + plot.height * (1 - up.place(value)), 1), text) for value, text in up.ticks],
        [pixel(place) for place in _front([place for name, place in known.items() if name not in NEVER_RIVALS])],
        marks,
        calm=not any(y for _, y in known.values()),
    )


def _mark(name: str, kind: str, words: str, point: tuple[float, float], radius: float, label: Box) -> Mark:
    near = label.nearest(*point)
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
    return Mark(name, kind, words, *point, radius, round(text_x, 1), round(text_y, 1), anchor, line_to)


def _kind(name: str, dominated: Mapping[str, str]) -> str:
    if name in NEVER_RIVALS:
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
