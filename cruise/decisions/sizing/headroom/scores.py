"""Scores: how far demand went beyond what was expected, counted in buckets.

The counts are all that is kept of the past: they do not grow with the cluster, and say nothing of which pods were on
which node, so that they hold on when pods move.
"""

import math

import numpy as np

from cruise.domain.arrays import Float64Array, Int64Array

# Another meaning of a score takes another number, and what was counted before is left aside.
MEASURE = 1
# Two per cent from bucket to bucket, from a thousandth to a hundred thousand times the scale.
GROWTH = 1.02
LEAST = 1e-3
BUCKETS = 2 + math.ceil(math.log(1e8) / math.log(GROWTH))
# A promise of 1 in 1,000 wants 1,000 scores to be stated, and twice that not to rest on a single one.
WANTED = 2.0
_ROUNDING = 1e-9


def count_scores(scores: Float64Array) -> Int64Array:
    """Count scores by bucket: a bucket holds what is at most its edge and above the edge before."""
    places = np.ceil(np.log(np.maximum(scores, LEAST) / LEAST) / math.log(GROWTH) - _ROUNDING).astype(np.int64)
    return np.bincount(np.clip(places, 0, BUCKETS - 1), minlength=BUCKETS).astype(np.int64)
