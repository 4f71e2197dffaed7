"""What the placed containers used in one interval, and the sums over their nodes."""

from dataclasses import dataclass

import numpy as np

from cruise.backtest.replay.pods import Places
from cruise.domain.arrays import Float32Array, Float64Array, Int64Array


@dataclass(frozen=True, slots=True)
class Demand:
    """One resource in one interval of S samples: `used` is (S, placed containers in the order of `places`).

    `sums` is (S, nodes of `places`), `samples` how many samples each container has. No sample is no use.
    """

    places: Places
    used: Float64Array
    samples: Int64Array
    sums: Float64Array

    @property
    def peaks(self) -> Float64Array:
        """The largest sum of each node."""
        peaks: Float64Array = self.sums.max(axis=0)
        return peaks


def demand_of(rows: Float32Array, places: Places) -> Demand:
    """Sum up one interval's samples, a matrix with one row a time and one column a container."""
    used = rows.take(places.order, axis=1).astype(np.float64)
    unknown = np.isnan(used)
    samples = np.full(len(places.order), len(used), dtype=np.int64)
    if unknown.any():
        used[unknown] = 0.0
        samples -= np.count_nonzero(unknown, axis=0)
    sums = np.add.reduceat(used, places.starts, axis=1) if places.starts.size else np.zeros((len(used), 0))
    return Demand(places, used, samples, sums)
