"""What the Vertical Pod Autoscaler recommends, given percentiles of what was used.

Source: kubernetes/autoscaler, tag vertical-pod-autoscaler/v1.7.1, pkg/recommender/logic: estimator.go, recommender.go,
and pkg/recommender/model/types.go. Amounts are whole millicores or bytes, cut off after every step as upstream does it.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cruise.domain.arrays import Float64Array, Int64Array

LOWER_SHARE, TARGET_SHARE, UPPER_SHARE = 0.5, 0.9, 0.95
POD_MINIMUM_MILLICORES = 25
POD_MINIMUM_BYTES = 250 * 1024 * 1024  # "250 MB" upstream, which counts them with 1024
_MARGIN = 0.15
_LARGEST = 1e14
_DAY_SECONDS = 86400
_SAMPLES_A_DAY = 1440


@dataclass(frozen=True, slots=True)
class Recommendation:
    """What containers should request of one resource, one entry each; from `lower` to `upper` there is no hurry."""

    lower: Int64Array
    target: Int64Array
    upper: Int64Array

    def take(self, places: Int64Array) -> "Recommendation":
        """Return the entries at some places."""
        return Recommendation(self.lower[places], self.target[places], self.upper[places])


def amount_of(value: NDArray[np.floating]) -> Int64Array:
    """Return whole units, between 0 and the largest amount that upstream knows; what is no number is 0."""
    amount: Int64Array = np.clip(np.nan_to_num(value, nan=0.0, posinf=_LARGEST), 0, _LARGEST).astype(np.int64)
    return amount


def with_margin(amount: Int64Array, margin: float = _MARGIN) -> Int64Array:
    """Add a share of an amount to it."""
    return np.add(amount, amount_of(amount * margin))


def confidence_of(first_at: Int64Array, last_at: Int64Array, samples: Int64Array) -> Float64Array:
    """Return how many days of history there are: with samples every minute; fewer samples count for less time."""
    return np.minimum((last_at - first_at) / _DAY_SECONDS, samples / _SAMPLES_A_DAY)


def with_confidence(amount: Int64Array, confidence: Float64Array, multiplier: float, exponent: float) -> Int64Array:
    """Widen a bound where there is little history; without any it is the largest amount, or 0 for `exponent` < 0."""
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        factor: Float64Array = np.power(1 + multiplier / confidence, exponent)
        return amount_of(amount.astype(np.float64) * factor)


def recommend(percentiles: Float64Array, confidence: Float64Array, smallest: int, largest: int) -> Recommendation:
    """Return recommendations from a matrix (lower, target and upper share; containers) of percentiles.

    `smallest` is the container's part of the pod's minimum, `largest` the most that may be recommended.
    """
    lower, target, upper = (with_margin(amount_of(row)) for row in percentiles)
    lower = with_confidence(lower, confidence, 0.001, -2.0)
    upper = with_confidence(upper, confidence, 1.0, 1.0)
    return Recommendation(*(np.minimum(np.maximum(one, smallest), largest) for one in (lower, target, upper)))
