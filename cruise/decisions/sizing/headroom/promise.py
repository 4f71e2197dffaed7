"""Whether the stated risk is kept: what the last two days passed of what was promised before them."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from cruise.decisions.sizing.headroom.margins import margin_for, scores_above
from cruise.decisions.sizing.headroom.prior import Prior
from cruise.decisions.sizing.headroom.scores import BUCKETS
from cruise.domain.arrays import Int64Array

RECENT_DAYS = 2
# One event of a minute or two is seen on many nodes, and says little; so does a share that is a bit above.
_LEAST_PASSED = 20
_TIMES_ASKED = 3.0


@dataclass(frozen=True, slots=True)
class Promise:
    """Of the `scores` of the last two days, how many `passed` the margin for the `asked` risk of the days before.

    `borrowed` is the share of other places' scores in the margin that holds now, `margin` that margin.
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
    def drifts(self) -> bool:
        """Whether the past, or what stands in for it, no longer fits."""
        return self.passed >= _LEAST_PASSED and self.observed > _TIMES_ASKED * self.asked


def promise_of(days: Mapping[int, Int64Array], today: int, risk: float, prior: Prior | None) -> Promise:
    """Judge the promise of a risk by the scores counted on days."""
    now = margin_for(days, today, risk, prior)
    recent = np.zeros(BUCKETS, dtype=np.int64)
    for day in range(today - RECENT_DAYS + 1, today + 1):
        recent += days.get(day, 0)
    before = {day: counts for day, counts in days.items() if day <= today - RECENT_DAYS}
    then = margin_for(before, today - RECENT_DAYS, risk, prior)
    judged = then.score > 0
    return Promise(
        asked=risk,
        margin=now.score,
        borrowed=now.borrowed,
        scores=int(recent.sum()) if judged else 0,
        passed=scores_above(then, recent) if judged else 0,
    )
