"""How late samples come, measured from what was read: after a time that is too short, the last steps are missing."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from cruise.domain.usage import CounterTail

# What comes later than this does not come in time for its pass; nobody's statistics should be much older either.
LONGEST_SECONDS = 300
# Of all series: so that single nodes, which may be down, do not make all others wait.
MOST = 0.9


@dataclass(slots=True)
class Settling:
    """By how much longer than stated reads stay behind the present; it only grows while the process runs."""

    seconds: int = 0
    _unsettled: int = 0
    _read_until: int = 0
    _sampled_until: int = 0

    def learn(self, tails: Iterable[CounterTail | None], at: int) -> None:
        """Take over how much was missing at the end of two reads in a row: once is a scrape that was missed.

        Nothing is learned while no newer samples come: scrapes have ceased then, and waiting longer would not help.
        """
        if at <= self._read_until:
            return
        unsettled = unsettled_seconds(tails, at)
        more = 0
        if at - unsettled > self._sampled_until:
            more = min(unsettled, self._unsettled, LONGEST_SECONDS - self.seconds)
        self.seconds += more
        self._unsettled = unsettled - more
        self._read_until, self._sampled_until = at, at - unsettled


def unsettled_seconds(tails: Iterable[CounterTail | None], at: int) -> int:
    """Return by when before `at` most series had their last scrape; those at rest do not tell."""
    changed_at = [tail.changed_at for tail in tails if tail is not None and tail.at == at]
    ages = at - np.concatenate([np.empty(0, dtype=np.int64), *changed_at])
    ages = ages[ages <= LONGEST_SECONDS]
    return int(np.quantile(ages, MOST, method="lower")) if len(ages) else 0
