"""The scores of four weeks, counted by day, for as long as a process leads."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from cruise.decisions.sizing.headroom.margins import MOST_DAYS, Margin
from cruise.decisions.sizing.headroom.outcome import Expectation
from cruise.decisions.sizing.headroom.prior import Prior
from cruise.decisions.sizing.headroom.promise import Promise, promised
from cruise.decisions.sizing.headroom.scores import BUCKETS, MEASURE, count_scores
from cruise.domain.arrays import Float64Array, Int64Array
from cruise.domain.headroom import DayScores
from cruise.domain.resources import ResourceName

DAY_SECONDS = 86400


class ScoreHistory:
    """Counts scores, and gives the margin that they leave for a risk; priors stand in for those that are missing."""

    def __init__(
        self, stored: Sequence[DayScores] = (), priors: Mapping[ResourceName, Prior | None] = MappingProxyType({})
    ) -> None:
        self._priors = priors
        self._days: dict[ResourceName, dict[int, Int64Array]] = {resource: {} for resource in ResourceName}
        self._changed: set[tuple[ResourceName, int]] = set()
        for one in stored:
            if one.measure == MEASURE and len(one.counts) == BUCKETS:
                self._days[one.resource][one.day] = one.counts

    def judge(self, expected: Expectation, at: int, samples: Mapping[ResourceName, NDArray[np.floating]]) -> None:
        """Count what became of an expectation in the interval up to `at`; `samples` as `Expectation.scores` has it."""
        for resource, of_rows in samples.items():
            self.add(resource, at, expected.scores(resource, of_rows))

    def add(self, resource: ResourceName, at: int, scores: Float64Array) -> None:
        """Count the scores of one interval; what is older than four weeks goes."""
        if not len(scores):
            return
        days, day = self._days[resource], at // DAY_SECONDS
        counts = count_scores(scores)
        days[day] = days[day] + counts if day in days else counts
        self._changed.add((resource, day))
        for old in [one for one in days if one < day - MOST_DAYS]:
            del days[old]

    def margins(self, at: int, risk_of: Callable[[ResourceName], float]) -> dict[ResourceName, Margin]:
        """Return what demand passes in at most a share `risk_of` of intervals, by what was counted up to a time."""
        return {resource: margin for resource, (margin, _) in self.promised(at, risk_of).items()}

    def promised(self, at: int, risk_of: Callable[[ResourceName], float]) -> dict[ResourceName, tuple[Margin, Promise]]:
        """Return the margins, and how the risks were kept to lately."""
        return {
            resource: promised(days, at // DAY_SECONDS, risk_of(resource), self._priors.get(resource))
            for resource, days in self._days.items()
        }

    def unsaved(self) -> list[DayScores]:
        """Return the days that changed since the last call, to be stored."""
        changed, self._changed = sorted(self._changed), set()
        return [DayScores(one, day, MEASURE, self._days[one][day]) for one, day in changed if day in self._days[one]]
