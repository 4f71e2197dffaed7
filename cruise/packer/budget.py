"""How long a solve may go on: until a moment of the monotonic clock, or for an amount of work that repeats exactly."""

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from cruise.packer.kernels.clock import seconds

# What one unit of work stands for, in the counters that kernels return; about a nanosecond each on a current core.
ANNEALING_STEP = 100
PRICING_STEP = 20
PIVOT_CELL = 1
# For each class of a filling that is listed; for each row of a column.
LISTED_CELL, COLUMN_CELL = 10, 10
# For each part of a tree that prices are found for, whatever they take.
PART_STEP = 1_000_000


@dataclass(frozen=True, slots=True)
class Threads:
    """Where calls go that share nothing: `each(function, arguments)` is like `map`, on up to `count` threads."""

    count: int
    each: Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]


ALONE = Threads(1, map)


@dataclass(frozen=True, slots=True)
class Budget:
    """A deadline on the clock of `time.monotonic` (infinite for replay), work units, and the seed of every draw.

    What divides well is divided among `threads`; that changes no answer within work units.
    """

    deadline_seconds: float = math.inf
    work_units: float = math.inf
    seed: int = 1
    threads: Threads = ALONE


@dataclass(slots=True)
class Meter:
    """The work that is left of a budget, spent by the solver as it goes."""

    deadline_seconds: float
    work_left: float
    threads: Threads = ALONE

    def over(self) -> bool:
        """Tell whether the deadline or the work has run out."""
        return self.work_left <= 0 or (self.deadline_seconds < math.inf and seconds() > self.deadline_seconds)

    @contextmanager
    def part(self, share: float) -> Iterator["Meter"]:
        """A meter for a share of what is left, whose work is taken off here in the end."""
        deadline = self.deadline_seconds
        if deadline < math.inf:
            now = seconds()
            deadline = now + (deadline - now) * share
        part = Meter(deadline, self.work_left * share, self.threads)
        begun = part.work_left
        yield part
        if begun < math.inf:
            # What a part overdrew is not taken from what comes after it.
            self.spend(min(begun - part.work_left, begun))

    def remaining_seconds(self) -> float:
        """Seconds to the deadline; infinite in replay."""
        return self.deadline_seconds - seconds() if self.deadline_seconds < math.inf else math.inf

    def spend(self, units: float) -> None:
        """Take work off what is left."""
        self.work_left -= units
