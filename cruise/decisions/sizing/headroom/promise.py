"""Whether the stated risk is kept: what the last two days passed of what was promised before them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from cruise.decisions.sizing.headroom.margins import Margin, margin_for, margin_of, scores_above
from cruise.decisions.sizing.headroom.prior import Prior
from cruise.decisions.sizing.headroom.scores import BUCKETS
from cruise.domain.arrays import Int64Array

RECENT_DAYS = 2
# One event of a minute or two is seen on many nodes, and says little. On traces where nothing changed, two days passed
# up to 2.6 times of 1 in 100 on twenty nodes, and up to 1.7 times of 7 in 100.
_LEAST_PASSED = 20
_TIMES_ASKED = 3.0
_ABOVE_ASKED = 0.06


@dataclass(frozen=True, slots=True)
class Promise:
    """Of the `scores` of the last two days, how many `passed` the margin for the `asked` risk of the days before.

    `margin` is the one that holds now; of what it rests on, `borrowed` is the share of other places' scores.
    """

    asked: float
    margin: float
    borrowed: float
    scores: int
    passed: int

    @property
    def observed(self) -> float:
        """The share of intervals in which the margin was passed, 0 where nothing is known."""
        return self.passed / self.scores if self.scores else 0.0

    @property
    def is_kept(self) -> bool:
        """Whether the margin was passed no more often than asked."""
        return self.observed <= self.asked

    @property
    def is_unspent(self) -> bool:
        """Whether it was passed less than half as often as asked: requests are larger than they would have to be."""
        return self.observed < self.asked / 2

    @property
    def drifts(self) -> bool:
        """Whether the past, or what stands in for it, no longer fits."""
        most = min(_TIMES_ASKED * self.asked, self.asked + _ABOVE_ASKED)
        return self.passed >= _LEAST_PASSED and self.observed > most


def promised(days: Mapping[int, Int64Array], today: int, risk: float, prior: Prior | None) -> tuple[Margin, Promise]:
    """Return the margin by the scores counted on days, and how the promise of the risk was kept.

    Where the past does not fit, the margin is at least what the last two days leave by themselves.
    """
    margin = margin_for(days, today, risk, prior)
    recent = np.zeros(BUCKETS, dtype=np.int64)
    for day in range(today - RECENT_DAYS + 1, today + 1):
        recent += days.get(day, 0)
    before = {day: counts for day, counts in days.items() if day <= today - RECENT_DAYS}
    then = margin_for(before, today - RECENT_DAYS, risk, prior)
    judged = then.score > 0
    promise = Promise(
        asked=risk,
        margin=margin.score,
        borrowed=margin.borrowed,
        scores=int(recent.sum()) if judged else 0,
        passed=scores_above(then, recent) if judged else 0,
    )
    if promise.drifts:
        margin = replace(margin, score=max(margin.score, margin_of(recent, risk, cautious=True).score))
    return margin, replace(promise, margin=margin.score)
