"""What a controller and its packing process say to each other through two pipes."""

from dataclasses import dataclass

from cruise.packer.answer import Packing
from cruise.packer.problem import Problem

PICKLE_PROTOCOL = 5
# The process says how long each of its messages is before it.
HEADER_BYTES = 8


@dataclass(frozen=True, slots=True, eq=False)
class Order:
    """A problem to solve until a moment of the monotonic clock, or for an amount of work; `number` comes back."""

    number: int
    problem: Problem
    deadline_seconds: float
    work_units: float
    seed: int


@dataclass(frozen=True, slots=True)
class Warmth:
    """Whether every kernel is in memory; until then the process loads them, or has to compile them first."""

    warm: bool
    compiling: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Reply:
    """The best packing of an order so far, or None where the solver raised: the error in one line, and from where.

    The `last` one ends the order.
    """

    number: int
    packing: Packing | None
    last: bool = True
    error: str = ""
    trace: str = ""
