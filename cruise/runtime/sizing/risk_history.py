"""How stated risks were kept, by day, and the levels of headroom that follow, for as long as a process leads."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from cruise.decisions.sizing.headroom.risk_level import InForce, KeptRisk, first_level, kept_risk, next_level
from cruise.domain.headroom import RiskDay
from cruise.domain.resources import ResourceName

DAY_SECONDS = 86400
KEPT_DAYS = 28


class RiskHistory:
    """Counts the intervals in which nodes ran short, and moves the levels by them; goes on from what is `stored`."""

    def __init__(self, stored: Sequence[RiskDay] = ()) -> None:
        self._days: dict[ResourceName, dict[int, RiskDay]] = {resource: {} for resource in ResourceName}
        for one in stored:
            self._days[one.resource][one.day] = one
        self._changed: set[tuple[ResourceName, int]] = set()

    def judge(
        self,
        in_force: InForce,
        at: int,
        samples: Mapping[ResourceName, NDArray[np.floating]],
        risk_of: Callable[[ResourceName], float],
    ) -> None:
        """Take in what became of the requests in force in the interval up to `at`; see `InForce.short`."""
        day = at // DAY_SECONDS
        for resource, of_rows in samples.items():
            short = in_force.short(resource, of_rows)
            if not len(short):
                continue
            asked = risk_of(resource)
            level = next_level(self.level(resource, asked), short, asked)
            days = self._days[resource]
            seen = days.get(day, RiskDay(resource, day, 0, 0, level))
            days[day] = replace(
                seen,
                intervals=seen.intervals + len(short),
                short=seen.short + int(np.count_nonzero(short)),
                level=level,
            )
            self._changed.add((resource, day))
            for old in [one for one in days if one < day - KEPT_DAYS]:
                del days[old]

    def level(self, resource: ResourceName, asked: float) -> float:
        """Return the level of headroom that holds now, for the share `asked`."""
        days = self._days[resource]
        return days[max(days)].level if days else first_level(asked)

    def kept(self, at: int, risk_of: Callable[[ResourceName], float]) -> dict[ResourceName, KeptRisk]:
        """Return how the risks were kept lately."""
        found = {}
        for resource, days in self._days.items():
            asked = risk_of(resource)
            found[resource] = kept_risk(days, at // DAY_SECONDS, self.level(resource, asked), asked)
        return found

    def unsaved(self) -> list[RiskDay]:
        """Return the days that changed since the last call, to be stored."""
        changed, self._changed = sorted(self._changed), set()
        return [self._days[one][day] for one, day in changed if day in self._days[one]]
