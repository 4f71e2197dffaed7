"""What two configurations make of the same recording, and how sure that is."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # The command line names the figures, and starts without numpy.
    from cruise.domain.backtest import BacktestResult


class Figure(StrEnum):
    """What is compared; less is better of each."""

    CPU_SLACK = "cpu-slack"
    MEMORY_SLACK = "memory-slack"
    STARVED = "starved"
    KILLS = "kills"
    WRITES = "writes"
    OWN_EVICTIONS = "own-evictions"
    NODES = "nodes"


SHARES = frozenset({Figure.CPU_SLACK, Figure.MEMORY_SLACK, Figure.STARVED})
"""The figures that are shares, and differ by percentage points."""


class Verdict(StrEnum):
    """How a difference stands to its bound."""

    HOLDS = "holds"
    OPEN = "open"  # the difference is within the bound, and its interval reaches beyond
    BROKEN = "broken"
    NOT_RECORDED = "not-recorded"


@dataclass(frozen=True, slots=True)
class FigureDifference:
    """One figure: `delta` is this configuration's less the other's, `low` and `high` the ends of its interval.

    Of `forecasts` made from the first part of the recording, `held` had what came next within their interval.
    """

    here: float
    against: float
    delta: float
    low: float
    high: float
    forecasts: int
    held: int


@dataclass(frozen=True, slots=True)
class Judged:
    """The largest difference that was stated for a figure, and how it stands."""

    bound: float
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Difference:
    """A recording's figures that were recorded, in order; `block_hours` is how long the blocks were, for each."""

    result: "BacktestResult"
    figures: Mapping[Figure, FigureDifference]
    block_hours: Mapping[Figure, int]
    skipped_hours: int
    bounds: Mapping[Figure, Judged] = field(default_factory=dict)

    def broken(self, whole_interval: bool) -> list[Figure]:
        """Return the figures whose bound is broken; with `whole_interval` those as well that may break it."""
        wrong = {Verdict.BROKEN, Verdict.NOT_RECORDED} | ({Verdict.OPEN} if whole_interval else set())
        return [figure for figure, judged in self.bounds.items() if judged.verdict in wrong]
