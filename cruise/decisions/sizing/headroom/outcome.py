"""What became of a forecast: the largest demand that its pods had together in the interval after it."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cruise.decisions.sizing.headroom.risk import Forecast, forecast_of
from cruise.domain.arrays import Float64Array, Int64Array
from cruise.domain.resources import ResourceName


@dataclass(frozen=True, slots=True)
class Expectation:
    """What a pass expects of the interval after `at`, in Unix seconds.

    `rows` tells where the containers' samples will stand, -1 for one that has none, and `nodes` where each one is.
    """

    at: int
    rows: Int64Array
    nodes: Int64Array
    forecasts: Mapping[ResourceName, Forecast]

    @staticmethod
    def of(
        at: int,
        rows: Int64Array,
        nodes: Int64Array,
        bases: Mapping[ResourceName, Int64Array],
        extras: Mapping[ResourceName, Float64Array],
    ) -> "Expectation":
        """Remember a pass by the sums over each node's pods that stay, as the model `Risk` was given them."""
        return Expectation(at, rows, nodes, {one: forecast_of(bases[one], extras[one]) for one in ResourceName})

    def scores(self, resource: ResourceName, samples: NDArray[np.floating]) -> Float64Array:
        """Return the score of each node that was sampled, from the samples (rows, times) of the interval."""
        forecast = self.forecasts[resource]
        largest = largest_sums(samples, self.rows, self.nodes, len(forecast.expected))
        sampled = ~np.isnan(largest)
        return forecast.scores(largest)[sampled]


def largest_sums(samples: NDArray[np.floating], rows: Int64Array, nodes: Int64Array, count: int) -> Float64Array:
    """Return the largest over the times of what each node's containers used together, NaN where none was sampled."""
    known = rows >= 0
    if not known.any() or not samples.shape[1]:
        return np.full(count, np.nan)
    at = nodes[known]
    of_rows = samples[rows[known]]
    missing = np.isnan(of_rows)
    sums = np.stack(
        [np.bincount(at, weights=used, minlength=count) for used in np.where(missing, 0.0, of_rows).T], axis=1
    )
    sampled = np.bincount(at, weights=~missing.all(axis=1), minlength=count) > 0
    return np.where(sampled, sums.max(axis=1), np.nan)
