"""Limits a solve by a deadline or by reproducible work."""

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from cruise.packer.kernels.compilation import read_monotonic_seconds

# Work units of the counters that kernels return; a unit is about a nanosecond on a current core.
ANNEALING_STEP = 100
PRICING_STEP = 20
PIVOT_CELL = 1
# For each class of a listed pattern; for each row of a column.
LISTED_CELL, COLUMN_CELL = 10, 10
# For each node of a branch-and-price tree.
SUBPROBLEM_STEP = 1_000_000


@dataclass(frozen=True, slots=True)
class ThreadPool:
    """Runs independent calls: `map(function, arguments)` on up to `count` threads."""

    count: int
    map: Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]


SINGLE_THREAD = ThreadPool(1, map)


@dataclass(frozen=True, slots=True)
class SolveBudget:
    """A deadline of `time.monotonic` (infinite for replay), work units, and the seed of all random draws.

    Threads change no answer within work units.
    """

    deadline_seconds: float = math.inf
    work_units: float = math.inf
    seed: int = 1
    threads: ThreadPool = SINGLE_THREAD


@dataclass(slots=True)
class BudgetMeter:
    """The remaining work of a budget."""

    deadline_seconds: float
    work_left: float
    threads: ThreadPool = SINGLE_THREAD

    def is_exhausted(self) -> bool:
        """Return whether the deadline or the work has run out."""
        return self.work_left <= 0 or (
            self.deadline_seconds < math.inf and read_monotonic_seconds() > self.deadline_seconds
        )

    @contextmanager
    def get_part(self, share: float) -> Iterator["BudgetMeter"]:
        """Yield a meter for a share of the remainder, whose work is subtracted in the end."""
        deadline = self.deadline_seconds
        if deadline < math.inf:
            now = read_monotonic_seconds()
            deadline = now + (deadline - now) * share
        part = BudgetMeter(deadline, self.work_left * share, self.threads)
        begun = part.work_left
        yield part
        if begun < math.inf:
            # Work that a part overran is not subtracted from later parts.
            self.spend(min(begun - part.work_left, begun))

    def get_remaining_seconds(self) -> float:
        """Return the seconds to the deadline; infinite in replay."""
        return self.deadline_seconds - read_monotonic_seconds() if self.deadline_seconds < math.inf else math.inf

    def spend(self, units: float) -> None:
        """Subtract work."""
        self.work_left -= units
