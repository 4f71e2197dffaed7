"""How long a solve may go on: until a moment of the monotonic clock, or for an amount of work that repeats exactly."""

import math
from dataclasses import dataclass

# What one unit of work stands for, in the counters that kernels return; about a nanosecond each on a current core.
ANNEALING_STEP = 100
PRICING_STEP = 20
PIVOT_CELL = 1


@dataclass(frozen=True, slots=True)
class Budget:
    """A deadline on the clock of `time.monotonic` (infinite for replay), work units, and the seed of every draw."""

    deadline_seconds: float = math.inf
    work_units: float = math.inf
    seed: int = 1


@dataclass(slots=True)
class Meter:
    """The work that is left of a budget, spent by the solver as it goes."""

    deadline_seconds: float
    work_left: float

    def spend(self, units: float) -> None:
        """Take work off what is left."""
        self.work_left -= units
