"""What containers demanded at the times that count: the last hour, and the same clock hours of the days before."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cruise.decisions.usage.usage_columns import RecentUsage
from cruise.domain.arrays import Float32Array, Int64Array
from cruise.domain.resources import ResourceName

# The largest samples of 5 minutes stand for them, as those of a whole hour do for the days before.
PART_SECONDS = 300


@dataclass(frozen=True, slots=True)
class PastDemand:
    """Demand at past times, one row for each row of the statistics, NaN where nothing was sampled.

    `recent` has one column for each 5 minutes of the last hour, oldest first, `hours` one for each clock hour that
    counts: the largest samples in them.
    """

    recent: Mapping[ResourceName, Float32Array]
    hours: Mapping[ResourceName, Float32Array]

    @staticmethod
    def empty(rows: int) -> "PastDemand":
        """Return the past of containers of which nothing was sampled."""
        nothing = np.empty((rows, 0), dtype=np.float32)
        return PastDemand(dict.fromkeys(ResourceName, nothing), dict.fromkeys(ResourceName, nothing))

    @staticmethod
    def of(
        usage: RecentUsage, rows: Int64Array, numbers: Int64Array, hours: Mapping[ResourceName, NDArray[np.floating]]
    ) -> "PastDemand":
        """Take what belongs to each row of the statistics out of the windows and the peaks of hours.

        `rows` and `numbers` have the row in `usage` and the column in `hours`, matrices (hours, numbers), of each row
        of the statistics; -1 where there is none.
        """
        parts = max(1, len(usage.columns) * PART_SECONDS // 3600)
        return PastDemand(
            recent={
                ResourceName.CPU: _parts(usage.cpu_demand_millicores, usage.columns, rows, parts),
                ResourceName.MEMORY: _parts(usage.memory_bytes, usage.columns, rows, parts),
            },
            hours={resource: _of_numbers(peaks, numbers) for resource, peaks in hours.items()},
        )


def _parts(samples: NDArray[np.floating], columns: Int64Array, rows: Int64Array, size: int) -> Float32Array:
    """Return the largest sample of each `size` columns, for some rows."""
    firsts = np.arange(0, len(columns), size)
    largest = np.fmax.reduceat(samples[:, columns], firsts, axis=1).astype(np.float32)
    found = np.full((len(rows), len(firsts)), np.nan, dtype=np.float32)
    known = rows >= 0
    found[known] = largest[rows[known]]
    return found


def _of_numbers(peaks: NDArray[np.floating], numbers: Int64Array) -> Float32Array:
    found = np.full((len(numbers), len(peaks)), np.nan, dtype=np.float32)
    known = numbers >= 0
    if len(peaks):
        found[known] = peaks.T[numbers[known]]
    return found
