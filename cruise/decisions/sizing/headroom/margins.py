"""What scores say of the next one: the margin that it passes in at most a stated share of intervals.

Vovk, Gammerman and Shafer, Algorithmic Learning in a Random World (2005): of n + 1 exchangeable scores the next one is
above the k-th smallest of the n others with a probability of at most 1 - k / (n + 1). Scores of other places have a
weight in it: Barber, Candès, Ramdas and Tibshirani, Conformal prediction beyond exchangeability (2023).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from cruise.decisions.sizing.headroom.prior import Prior
from cruise.decisions.sizing.headroom.scores import BUCKETS, GROWTH, LEAST, WANTED
from cruise.domain.arrays import Int64Array

# A score has the weight of those of a week; where that is too few to tell a rare one, of up to four.
LEAST_DAYS = 7
MOST_DAYS = 28
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Margin:
    """The score that is passed in at most the share wanted.

    Not `proven` where there are too few scores to tell, nor `settled` where they are of less than a week. Of what it
    rests on, `borrowed` is the share that is other places'.
    """

    score: float
    proven: bool
    settled: bool = False
    borrowed: float = 0.0


UNKNOWN = Margin(0.0, False)


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
    return Margin(_edge(counts, min(place, total)), proven)


def margin_with(prior: Prior, days_seen: int, counts: Int64Array, risk: float, cautious: bool = False) -> Margin:
    """Return the margin where the prior's scores stand in for those that are missing, and count for nothing then.

    It is never below the one of the cluster's own scores. A risk that the prior has too few scores for as well is
    not proven.
    """
    own = margin_of(counts, risk, cautious)
    wanted = WANTED / risk
    missing = wanted - int(counts.sum())
    if missing <= 0:
        return own
    together = counts + missing * prior.shares(days_seen)
    place = min((wanted + 1) * (1 - risk), wanted)
    score = max(own.score, _edge(together, place))
    return Margin(score, own.proven or risk >= prior.least_risk, borrowed=missing / wanted)


def margin_for(days: Mapping[int, Int64Array], today: int, risk: float, prior: Prior | None = None) -> Margin:
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
    if prior is None:
        found = margin_of(counts, risk, cautious=not settled)
    else:
        found = margin_with(prior, seen, counts, risk, cautious=not settled)
    return replace(found, settled=settled)


def scores_above(margin: Margin, counts: Int64Array) -> int:
    """Return how many of the scores counted are above a margin."""
    return int(counts[_bucket(margin.score) + 1 :].sum())


def _edge(weights: NDArray[np.floating] | Int64Array, place: float) -> float:
    """Return the upper edge of the bucket at which the weights add up to a place."""
    bucket = int(np.searchsorted(np.cumsum(weights), place - _ROUNDING))
    return LEAST * GROWTH ** min(bucket, BUCKETS - 1)


def _bucket(edge: float) -> int:
    return round(math.log(edge / LEAST) / math.log(GROWTH)) if edge >= LEAST else 0
