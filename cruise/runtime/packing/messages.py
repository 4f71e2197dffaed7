"""What a controller and its packing process say to each other through two pipes."""

import pickle
from dataclasses import dataclass

from cruise.packer.answer import Packing
from cruise.packer.problem import Problem

HEADER_BYTES = 8
_PICKLE_PROTOCOL = 5


@dataclass(frozen=True, slots=True, eq=False)
class Order:
    """A problem to solve until a moment of the monotonic clock, or for an amount of work; `number` comes back."""

    number: int
    problem: Problem
    deadline_seconds: float
    work_units: float
    seed: int


@dataclass(frozen=True, slots=True)
class Warming:
    """The process is loading its kernels, or has to compile them first."""

    compiling: bool


@dataclass(frozen=True, slots=True)
class Ready:
    """Every kernel is in memory."""


@dataclass(frozen=True, slots=True, eq=False)
class Better:
    """The best packing so far."""

    number: int
    packing: Packing


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """The last packing of an order."""

    number: int
    packing: Packing


@dataclass(frozen=True, slots=True)
class Failed:
    """The solver raised: the error in one line, and where it came from."""

    number: int
    message: str
    trace: str


Message = Order | Warming | Ready | Better | Answer | Failed


def framed(message: Message) -> bytes:
    """A message behind its length."""
    body = pickle.dumps(message, protocol=_PICKLE_PROTOCOL)
    return len(body).to_bytes(HEADER_BYTES, "big") + body


def length_of(header: bytes) -> int:
    """How many bytes follow a header."""
    return int.from_bytes(header, "big")


def unframed(body: bytes) -> Message:
    """The message in the bytes behind a header; only ever from a process of one's own."""
    message: Message = pickle.loads(body)
    return message
