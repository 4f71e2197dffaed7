"""The sums of the cluster by the hour, as they are kept."""

from dataclasses import dataclass
from datetime import UTC, datetime

from cruise.domain.resources import Resources


@dataclass(frozen=True, slots=True)
class ClusterHour:
    """The cluster at the first pass of a clock hour that knew what is used; `hour` counts them since the epoch.

    `used` is the sum of bases, `saved` what pods of known original sizes requested before cruise less what they
    request now, so below zero where they needed more.
    """

    hour: int
    allocatable: Resources
    requested: Resources
    used: Resources
    saved: Resources

    @property
    def at(self) -> datetime:
        """When the hour began."""
        return datetime.fromtimestamp(self.hour * 3600, UTC)


def hour_of(at: datetime) -> int:
    """Return the clock hour of a time."""
    return int(at.timestamp()) // 3600
