"""Which containers have samples that cannot be true, by why."""

from dataclasses import dataclass

import numpy as np

from cruise.domain.usage import Refusal, StatisticsTable


@dataclass(frozen=True, slots=True)
class Implausible:
    """How many containers had samples refused for a reason; of the one with the most, how much of a window."""

    reason: Refusal
    containers: int
    namespace: str
    pod: str
    container: str
    percent: int


def find_implausible(statistics: StatisticsTable) -> tuple[Implausible, ...]:
    """Return what is implausible, the reason with the most containers first."""
    rows = [row for row in np.flatnonzero(statistics.refused_percent).tolist() if statistics.keys[row].pod]
    found = []
    for reason in Refusal:
        of_reason = [statistic for row in rows if reason in (statistic := statistics.row(row)).refusals]
        if of_reason:
            worst = min(of_reason, key=lambda one: (-one.refused_percent, one.key))
            key = worst.key
            found.append(
                Implausible(reason, len(of_reason), key.namespace, key.pod, key.container, worst.refused_percent)
            )
    return tuple(sorted(found, key=lambda one: -one.containers))
