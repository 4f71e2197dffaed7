"""Each figure as a ratio of sums over hours and groups of workloads, so that it can be had of any part of them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from cruise.domain.arrays import Float64Array
from cruise.domain.backtest_cells import Cells, Count
from cruise.domain.backtest_difference import Figure

_DAY_MINUTES = 1440.0


@dataclass(frozen=True, slots=True)
class Ratio:
    """Σ above / Σ below: a row an hour, summed over groups of workloads; 0 of nothing."""

    above: Float64Array
    below: Float64Array

    def between(self, first: int, end: int) -> float:
        """Return the figure of some hours."""
        return float(self.weighted(np.ones((1, end - first)), first, end)[0])

    def weighted(self, weights: Float64Array, first: int, end: int) -> Float64Array:
        """Return the figure of each row of weights, which say how often each of some hours counts."""
        above, below = weights @ self.above[first:end], weights @ self.below[first:end]
        found: Float64Array = np.divide(above, below, out=np.zeros_like(above), where=below > 0)
        return found


def ratios_of(cells: Cells) -> Mapping[Figure, Ratio]:
    """Return the figures that were recorded, as ratios."""
    counts = {count: matrix.sum(axis=1) for count, matrix in cells.counts.items()}
    return {figure: make(counts) for figure, (needs, make) in _RATIOS.items() if needs in counts}


_Counts = Mapping[Count, Float64Array]


def _a_day(above: Float64Array, counts: _Counts) -> Ratio:
    return Ratio(above * _DAY_MINUTES, counts[Count.CONTAINER_MINUTES])


_RATIOS: Mapping[Figure, tuple[Count, Callable[[_Counts], Ratio]]] = MappingProxyType(
    {
        Figure.CPU_SLACK: (
            Count.CPU_REQUESTED,
            lambda counts: Ratio(counts[Count.CPU_REQUESTED] - counts[Count.CPU_USED], counts[Count.CPU_REQUESTED]),
        ),
        Figure.MEMORY_SLACK: (
            Count.MEMORY_REQUESTED,
            lambda counts: Ratio(
                counts[Count.MEMORY_REQUESTED] - counts[Count.MEMORY_USED], counts[Count.MEMORY_REQUESTED]
            ),
        ),
        Figure.STARVED: (
            Count.CPU_STARVED,
            lambda counts: Ratio(counts[Count.CPU_STARVED], counts[Count.CPU_SAMPLES]),
        ),
        Figure.KILLS: (Count.KILLS, lambda counts: _a_day(1000 * counts[Count.KILLS], counts)),
        Figure.WRITES: (Count.RESIZES, lambda counts: _a_day(counts[Count.RESIZES], counts)),
        Figure.OWN_EVICTIONS: (
            Count.EVICTIONS,
            lambda counts: _a_day(1000 * (counts[Count.EVICTIONS] - counts[Count.MOVES]), counts),
        ),
        Figure.NODES: (Count.NODE_MINUTES, lambda counts: Ratio(counts[Count.NODE_MINUTES], counts[Count.MINUTES])),
    }
)
