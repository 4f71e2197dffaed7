"""Places for the labels of marks in a picture, so that none covers another label or a mark."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

_GAP = 4.0
_STEP, _RINGS = 9.0, 8
_GRID = 7.0
# The right is where a reader looks first; then the other sides, then the corners.
_DIRECTIONS = (0, 180, 90, 270, 45, 315, 135, 225, 22, 338, 158, 202)


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle; `x` and `y` are its left upper corner."""

    x: float
    y: float
    width: float
    height: float

    def overlaps(self, other: "Box") -> bool:
        """Tell whether the two share more than an edge."""
        return (
            self.x < other.x + other.width
            and other.x < self.x + self.width
            and self.y < other.y + other.height
            and other.y < self.y + self.height
        )

    def holds(self, other: "Box") -> bool:
        """Tell whether the other lies within this one."""
        return (
            self.x <= other.x
            and self.y <= other.y
            and other.x + other.width <= self.x + self.width
            and other.y + other.height <= self.y + self.height
        )

    def nearest(self, x: float, y: float) -> tuple[float, float]:
        """Return the point of the box that is nearest to a point."""
        return min(max(x, self.x), self.x + self.width), min(max(y, self.y), self.y + self.height)


def place_labels(
    marks: Sequence[tuple[float, float]],
    widths: Sequence[float],
    height: float,
    radii: Sequence[float],
    within: Box,
) -> Sequence[Box]:
    """Return a box for each mark's label, each as near to its mark as those before leave it room.

    A label for which there is no room whatever lies over others, beside its mark.
    """
    taken = [Box(x - radius, y - radius, 2 * radius, 2 * radius) for (x, y), radius in zip(marks, radii, strict=True)]
    found = []
    for (x, y), width, radius in zip(marks, widths, radii, strict=True):
        places = chain(_around(x, y, width, height, radius), _anywhere(x, y, width, height, within))
        free = [box for box in places if _is_free(box, within, taken)]
        # A name beside another mark would be read as that mark's.
        own = next((box for box in free if _is_nearest(box, (x, y), marks)), None)
        box = own or next(iter(free), Box(x + radius + _GAP, y - height / 2, width, height))
        taken.append(box)
        found.append(box)
    return found


def _is_free(box: Box, within: Box, taken: Sequence[Box]) -> bool:
    return within.holds(box) and not any(box.overlaps(other) for other in taken)


def _is_nearest(box: Box, mark: tuple[float, float], marks: Sequence[tuple[float, float]]) -> bool:
    """Tell whether no other mark is nearer to a box than its own."""
    away = math.dist(box.nearest(*mark), mark)
    return all(math.dist(box.nearest(*other), other) >= away for other in marks)


def _around(x: float, y: float, width: float, height: float, radius: float) -> Iterator[Box]:
    """Yield boxes on rings around a mark, the nearest first."""
    for ring in range(_RINGS):
        away = ring * _STEP
        for degrees in _DIRECTIONS:
            dx, dy = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
            reach = radius + _GAP + away
            # The box touches the ring with the side or corner that faces the mark.
            yield Box(x + dx * reach + (dx - 1) * width / 2, y + dy * reach + (dy - 1) * height / 2, width, height)


def _anywhere(x: float, y: float, width: float, height: float, within: Box) -> Iterator[Box]:
    """Yield boxes all over the picture, the nearest first."""
    columns = range(max(int((within.width - width) // _GRID) + 1, 0))
    rows = range(max(int((within.height - height) // _GRID) + 1, 0))
    boxes = [
        Box(within.x + column * _GRID, within.y + row * _GRID, width, height) for column in columns for row in rows
    ]
    yield from sorted(boxes, key=lambda box: math.dist(box.nearest(x, y), (x, y)))
