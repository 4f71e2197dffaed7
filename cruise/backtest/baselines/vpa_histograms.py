"""The decaying histograms of the Vertical Pod Autoscaler, as rows of a matrix of weights.

Source: kubernetes/autoscaler, tag vertical-pod-autoscaler/v1.8.1, pkg/recommender/util: histogram.go,
decaying_histogram.go, histogram_options.go. A sample's weight is multiplied by 2^((time - reference) / half-life), so
that older samples count less without an update; if that exponent exceeds 100, the row's reference moves forward and its
weights are scaled down. A bucket that weighs less than epsilon is empty.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from cruise.domain.arrays import BoolArray, Float64Array, Int64Array

_LARGEST_EXPONENT = 100
_BEFORE_ANY_SAMPLE = -62_135_596_800  # the zero of upstream's clock, January of the year 1


class HistogramBuckets(Protocol):
    """The buckets of a histogram; the last one has no end."""

    @property
    def starts(self) -> Float64Array:
        """The start of each bucket."""
        ...

    def find(self, values: Float64Array) -> Int64Array:
        """Return the bucket of each value; values outside all buckets belong to the nearest."""
        ...


@dataclass(frozen=True, slots=True)
class ExponentialBuckets:
    """Exponential buckets: the first is [0, `first`), each is `ratio` times as wide as the previous one."""

    starts: Float64Array
    first: float
    ratio: float

    @staticmethod
    def create(largest: float, first: float, ratio: float) -> "ExponentialBuckets":
        """Return buckets up to one that starts at `largest` or above."""
        count = int(np.ceil(np.log(largest * (ratio - 1) / first + 1) / np.log(ratio))) + 1
        starts: Float64Array = first * (np.power(ratio, np.arange(count, dtype=np.float64)) - 1) / (ratio - 1)
        return ExponentialBuckets(starts, first, ratio)

    def find(self, values: Float64Array) -> Int64Array:
        """Return the bucket of each value, rounded as upstream rounds."""
        places = np.log(np.maximum(values, 0) * (self.ratio - 1) / self.first + 1) / np.log(self.ratio)
        places[values < self.first] = 0
        found: Int64Array = np.minimum(places, len(self.starts) - 1).astype(np.int64)
        return found


class DecayingHistograms:
    """One histogram per row, and percentiles of each, which are computed only for changed rows."""

    def __init__(
        self, rows: int, buckets: HistogramBuckets, shares: Sequence[float], half_life_seconds: int, epsilon: float
    ) -> None:
        """Start with empty histograms; `shares` are the percentiles to compute, from 0 to 1."""
        self._buckets = buckets
        self._ends = np.append(buckets.starts[1:], buckets.starts[-1])
        self._shares = shares
        self._half_life = half_life_seconds
        self._epsilon = epsilon
        count = len(buckets.starts)
        self._weights: Float64Array = np.zeros((rows, count))
        self._total: Float64Array = np.zeros(rows)
        self._lowest: Int64Array = np.full(rows, count - 1, dtype=np.int64)
        self._highest: Int64Array = np.zeros(rows, dtype=np.int64)
        self._reference: Int64Array = np.full(rows, _BEFORE_ANY_SAMPLE, dtype=np.int64)
        self._percentiles: Float64Array = np.zeros((len(shares), rows))
        self._changed: BoolArray = np.zeros(rows, dtype=np.bool_)

    @property
    def empty(self) -> BoolArray:
        """A mask of the rows without a weight above epsilon."""
        return self._weights[np.arange(len(self._total)), self._lowest] < self._epsilon

    def add(self, rows: Int64Array, values: Float64Array, weight: float, time: Int64Array) -> None:
        """Add one sample to each of the rows, which may repeat; `time` is in Unix seconds."""
        buckets, weights = self._buckets.find(values), weight * self._factors(rows, time)
        np.add.at(self._weights.ravel(), rows * self._weights.shape[1] + buckets, weights)
        np.add.at(self._total, rows, weights)
        full = self._weights[rows, buckets] >= self._epsilon
        np.minimum.at(self._lowest, rows[full], buckets[full])
        np.maximum.at(self._highest, rows[full], buckets[full])
        self._changed[rows] = True

    def subtract(self, rows: Int64Array, values: Float64Array, weight: float, time: Int64Array) -> None:
        """Remove samples that were added with the same values, weight and times."""
        if not rows.size:
            return
        buckets, weights = self._buckets.find(values), weight * self._factors(rows, time)
        np.subtract.at(self._weights.ravel(), rows * self._weights.shape[1] + buckets, weights)
        np.subtract.at(self._total, rows, weights)
        self._total[rows] = np.where(self._total[rows] < self._epsilon, 0, self._total[rows])
        left = self._weights[rows, buckets]
        self._weights[rows, buckets] = np.where(left < self._epsilon, 0, left)
        self._update_bounds(rows)

    def clear(self, rows: Int64Array) -> None:
        """Remove all samples of some rows."""
        self._weights[rows] = 0
        self._total[rows] = 0
        self._reference[rows] = _BEFORE_ANY_SAMPLE
        self._update_bounds(rows)

    def compute_percentiles(self) -> Float64Array:
        """Return a matrix (shares, rows) of the ends of the percentiles' buckets; 0 for an empty row."""
        rows = np.flatnonzero(self._changed)
        if rows.size:
            self._changed[rows] = False
            self._percentiles[:, rows] = 0
            rows = rows[self._weights[rows, self._lowest[rows]] >= self._epsilon]
        if rows.size:
            self._percentiles[:, rows] = self._compute_percentiles(rows)
        return self._percentiles

    def _compute_percentiles(self, rows: Int64Array) -> Float64Array:
        """Return the percentiles of rows that are not empty, computed on their common range of buckets."""
        lowest, highest = self._lowest[rows], self._highest[rows]
        start, stop = int(lowest.min()), int(highest.max()) + 1
        block = self._weights[:, start:stop]
        sums = np.cumsum(block if len(rows) == len(block) else block[rows], axis=1)
        before = np.where(lowest > start, sums[np.arange(len(rows)), np.maximum(lowest - start - 1, 0)], 0)
        found = np.empty((len(self._shares), len(rows)))
        for place, share in enumerate(self._shares):
            below = np.count_nonzero(sums < (share * self._total[rows] + before)[:, np.newaxis], axis=1)
            found[place] = self._ends[np.clip(start + below, lowest, highest)]
        return found

    def _factors(self, rows: Int64Array, time: Int64Array) -> Float64Array:
        """Return the weights of samples by age, after moving the reference of rows that need it."""
        late = time > self._reference[rows] + _LARGEST_EXPONENT * self._half_life
        if late.any():
            moved, first = np.unique(rows[late], return_index=True)
            reference = (time[late][first] + self._half_life // 2) // self._half_life * self._half_life
            halvings = (self._reference[moved] - reference) // self._half_life
            scale = np.ldexp(1.0, np.maximum(halvings, -2000))
            self._weights[moved] *= scale[:, np.newaxis]
            self._total[moved] *= scale
            self._reference[moved] = reference
            self._update_bounds(moved)
        return np.exp2((time - self._reference[rows]) / self._half_life)

    def _update_bounds(self, rows: Int64Array) -> None:
        """Update the lowest and highest bucket that is not empty, after weights decreased."""
        full = self._weights[rows] >= self._epsilon
        some = full.any(axis=1)
        last = full.shape[1] - 1
        self._lowest[rows] = np.where(some, full.argmax(axis=1), last)
        self._highest[rows] = np.where(some, last - full[:, ::-1].argmax(axis=1), 0)
        self._changed[rows] = True
