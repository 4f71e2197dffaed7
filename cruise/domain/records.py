"""What is published about a workload's sizes: targets between bounds, as a VerticalPodAutoscaler shows them."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cruise.domain.cluster import WorkloadRef
from cruise.domain.resources import ResourceName, Resources

# The sums of the cluster by the hour, as they are kept.


@dataclass(frozen=True, slots=True)
class HourlyClusterTotals:
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


def get_clock_hour(at: datetime) -> int:
    """Return the clock hour of a time."""
    return int(at.timestamp()) // 3600


# What is kept of how stated risks were kept, and of how headroom is shared.


@dataclass(frozen=True, slots=True)
class RiskDay:
    """How often demand passed the requests in force on one day, over all nodes.

    `day` counts days since the Unix epoch. Of `intervals` (one for each node and pass) `short` were passed; `level` is
    the level of headroom at the end of the day.
    """

    resource: ResourceName
    day: int
    intervals: int
    short: int
    level: float


@dataclass(frozen=True, slots=True)
class HeadroomSharing:
    """What a container gets of its own headroom on an average node, from 0 to 1: the node's pods share the rest."""

    cpu: float
    memory: float

    def get_share(self, resource: ResourceName) -> float:
        """Return one resource's share."""
        return self.cpu if resource is ResourceName.CPU else self.memory


# How long each kind of record is kept.


@dataclass(frozen=True, slots=True)
class RetentionPeriods:
    """The age past which `Store.prune` drops a record."""

    sample_blocks: timedelta = timedelta(minutes=70)  # the 60-minute window and two passes
    hourly_peaks: timedelta = timedelta(days=8)  # the 7-day windows and the hours of a day on either side
    oom_records: timedelta = timedelta(days=8)
    statistics: timedelta = timedelta(days=8)
    partitions: timedelta = timedelta(days=8)  # nothing left to continue from: read anew
    outcomes: timedelta = timedelta(days=30)
    user_actions: timedelta = timedelta(days=90)
    refused_resizes: timedelta = timedelta(days=1)
    original_sizes: timedelta = timedelta(days=90)  # since the pod's last resize; few pods live as long unchanged
    signing_key: timedelta = timedelta(days=30)  # then another one signs; it is dropped `original_sizes` later
    risk_days: timedelta = timedelta(days=29)  # the level of headroom, and how risks were kept
    cluster_hours: timedelta = timedelta(days=90)  # a row an hour
    packing_plans: timedelta = timedelta(days=1)  # one may be of thousands of moves


RETENTION = RetentionPeriods()

# A target that moves by less is not worth a write.
_WORTH_SHARE, _WORTH_CPU_MILLICORES, _WORTH_MEMORY_BYTES = 0.05, 10, 16 << 20


@dataclass(frozen=True, slots=True)
class ContainerRecommendation:
    """One container: what it usually uses, what it should request, what it used most; `uncapped` without any bound."""

    name: str
    lower: Resources
    target: Resources
    upper: Resources
    uncapped: Resources

    def differs(self, other: "ContainerRecommendation") -> bool:
        """Tell whether the targets are far enough apart to be worth a write."""
        mine, theirs = self.target, other.target
        return (
            self.name != other.name
            or _far(mine.cpu_millicores, theirs.cpu_millicores, _WORTH_CPU_MILLICORES)
            or _far(mine.memory_bytes, theirs.memory_bytes, _WORTH_MEMORY_BYTES)
        )


@dataclass(frozen=True, slots=True)
class WorkloadRecommendation:
    """What is published about one workload, whose `uid` it is; `is_confident` tells whether a day was seen."""

    namespace: str
    workload: WorkloadRef
    uid: str
    containers: tuple[ContainerRecommendation, ...]
    is_confident: bool
    api_version: str = "apps/v1"

    @property
    def name(self) -> str:
        """What its VerticalPodAutoscaler is called: like none of a user's, and one for each kind."""
        return f"cruise-{self.workload.kind.lower()}-{self.workload.name}"

    def differs(self, other: "WorkloadRecommendation | None") -> bool:
        """Tell whether it is worth a write after another one."""
        if other is None or (self.uid, self.is_confident) != (other.uid, other.is_confident):
            return True
        if len(self.containers) != len(other.containers):
            return True
        return any(mine.differs(theirs) for mine, theirs in zip(self.containers, other.containers, strict=True))


def _far(one: int, other: int, least: int) -> bool:
    return abs(one - other) > max(least, _WORTH_SHARE * max(one, other))


# What a database says of its own past, so that a copy of an earlier state is recognised.


@dataclass(frozen=True, slots=True)
class DatabaseHistory:
    """`epoch` grows with each stored read of usage, intent and kill; a database with a smaller one is an earlier state.

    `lost_until` (Unix seconds, 0 for never) is until when usage and evictions were missing the last time that the
    database was found to be at an earlier state; `regained` tells whether that usage was read again since.
    """

    epoch: int = 0
    lost_until: int = 0
    regained: bool = True
