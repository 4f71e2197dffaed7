"""Scores: how far demand went beyond what was expected, counted in buckets, and what they say of the next one.

The counts are all that is kept of the past: they do not grow with the cluster, and say nothing of which pods were on
which node, so that they hold on when pods move. Vovk, Gammerman and Shafer, Algorithmic Learning in a Random World
(2005): of n + 1 exchangeable scores the next one is above the k-th smallest of the n others with a probability of at
most 1 - k / (n + 1).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from cruise.domain.arrays import Float64Array, Int64Array

# Another meaning of a score takes another number, and what was counted before is left aside.
MEASURE = 1
# Two per cent from bucket to bucket, from a thousandth to a hundred thousand times the scale.
GROWTH = 1.02
LEAST = 1e-3
BUCKETS = 2 + math.ceil(math.log(1e8) / math.log(GROWTH))
# A score has the weight of those of a week; where that is too few to tell a rare one, of up to four.
LEAST_DAYS = 7
MOST_DAYS = 28
# A promise of 1 in 1,000 wants 1,000 scores to be stated, and twice that not to rest on a single one.
WANTED = 2.0


@dataclass(frozen=True, slots=True)
class Margin:
    """The score that is passed in at most the share wanted.

    Not `proven` where there are too few scores to tell, nor `settled` where they are of less than a week.
    """

    score: float
    proven: bool
    settled: bool = False


UNKNOWN = Margin(0.0, False)
_ROUNDING = 1e-9


def count_scores(scores: Float64Array) -> Int64Array:
    """Count scores by bucket: a bucket holds what is at most its edge and above the edge before."""
    places = np.ceil(np.log(np.maximum(scores, LEAST) / LEAST) / math.log(GROWTH) - _ROUNDING).astype(np.int64)
    return np.bincount(np.clip(places, 0, BUCKETS - 1), minlength=BUCKETS).astype(np.int64)


def margin_of(counts: Int64Array, risk: float, cautious: bool = False) -> Margin:
    """Return the upper edge of the bucket with the ⌈(n + 1)(1 − risk)⌉-th score, or of the largest where n is less.

    `cautious` goes one standard deviation of the number of scores above it further up.
    """
    total = int(counts.sum())
    if not total:
        return UNKNOWN
    place = math.ceil((total + 1) * (1 - risk) - _ROUNDING)
    proven = place <= total
    if cautious:
        place += math.ceil(math.sqrt(total * risk))
    bucket = int(np.searchsorted(np.cumsum(counts), min(place, total)))
    return Margin(LEAST * GROWTH**bucket, proven)


def margin_for(days: Mapping[int, Int64Array], today: int, risk: float) -> Margin:
    """Return the margin that the counts of the last week leave, or of up to four where a week's are too few.

    Less than a week has not seen every hour and every day yet, and its margin is a cautious one.
    """
    counts = np.zeros(BUCKETS, dtype=np.int64)
    seen = 0
    for age in range(MOST_DAYS + 1):
        if age > LEAST_DAYS and counts.sum() >= WANTED / risk:
            break
        if today - age in days:
            counts += days[today - age]
            seen += 1
    settled = seen >= LEAST_DAYS
    return replace(margin_of(counts, risk, cautious=not settled), settled=settled)
