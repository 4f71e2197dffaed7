"""Percentiles and maxima over many rows at once, ignoring what is missing."""

import numpy as np
from numpy.typing import NDArray

from cruise.domain.arrays import Float64Array, Int64Array


def percentile_of_rows(rows: NDArray[np.floating], share: float) -> tuple[Float64Array, Int64Array]:
    """Return each row's percentile and the number of its samples; a row without samples has NaN.

    The same as numpy.nanpercentile with linear interpolation, as PromQL's quantile_over_time does it too: sorting puts
    NaN last, so one sort serves rows of any number of samples.
    """
    counts: Int64Array = np.count_nonzero(~np.isnan(rows), axis=1)
    if rows.shape[1] == 0:
        return np.full(len(rows), np.nan), counts
    ordered = np.sort(rows, axis=1)
    position = np.maximum(counts - 1, 0) * share
    below = position.astype(np.int64)
    above = np.minimum(below + 1, np.maximum(counts - 1, 0))
    at = np.arange(len(rows))
    low = ordered[at, below].astype(np.float64)
    high = ordered[at, above].astype(np.float64)
    return low + (high - low) * (position - below), counts


def largest_of_groups(values: Float64Array, groups: Int64Array, count: int) -> Float64Array:
    """Return the largest value of each of `count` groups, NaN where a group has none; group -1 is nobody's."""
    largest = np.full(count, np.nan)
    known = (groups >= 0) & ~np.isnan(values)
    np.fmax.at(largest, groups[known], values[known])
    return largest
