"""Records in the database: hourly totals, counts of outcomes, observed risks, recommendations, and retention."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cruise.domain.actions import Action, ActionResult, ReasonCode, ResizeCause
from cruise.domain.cluster import WorkloadRef
from cruise.domain.resources import ResourceName, Resources

# Hourly totals of the cluster.


@dataclass(frozen=True, slots=True)
class HourlyClusterTotals:
    """The cluster at the first pass of a clock hour with statistics; `hour` counts hours since the epoch.

    `used` is the sum of bases. `saved` is original minus present requests of the pods with known original sizes;
    negative if they needed more.
    """

    hour: int
    allocatable: Resources
    requested: Resources
    used: Resources
    saved: Resources

    @property
    def at(self) -> datetime:
        """The start of the hour."""
        return datetime.fromtimestamp(self.hour * 3600, UTC)


def truncate_to_minute(at: datetime) -> datetime:
    """Return the begin of the minute of a time, as `date_trunc` does."""
    return at.replace(second=0, microsecond=0)


def get_clock_hour(at: datetime) -> int:
    """Return the clock hour of a time."""
    return int(at.timestamp()) // 3600


# Counts of the audit.


@dataclass(frozen=True, slots=True)
class OutcomeCount:
    """The number of audit rows of one type of action with one result, without skips.

    `namespace` is None for actions on nodes. `purpose` is the reason for the action, `reason` that for its result,
    `cause` that of a resize where it is known.
    """

    namespace: str | None
    action_type: type[Action]
    purpose: ReasonCode
    cause: ResizeCause | None
    result: ActionResult
    reason: ReasonCode
    count: int


# Observed risks, and the average share of headroom.


@dataclass(frozen=True, slots=True)
class RiskDay:
    """How often demand exceeded requests on one day, over all nodes.

    `day` counts days since the Unix epoch. `intervals` counts one for each node and pass; in `short` of them demand was
    higher. `level` is the level of headroom at the end of the day.
    """

    resource: ResourceName
    day: int
    intervals: int
    short: int
    level: float


@dataclass(frozen=True, slots=True)
class AverageHeadroomShare:
    """The share of its own headroom that a container requests on an average node, 0 to 1; pods share the rest."""

    cpu: float
    memory: float

    def get_share(self, resource: ResourceName) -> float:
        """Return the share of one resource."""
        return self.cpu if resource is ResourceName.CPU else self.memory


# Retention.


@dataclass(frozen=True, slots=True)
class RetentionPeriods:
    """The age at which `Store.prune` deletes a record."""

    sample_blocks: timedelta = timedelta(minutes=70)  # the 60-minute window and two passes
    hourly_peaks: timedelta = timedelta(days=8)  # the 7-day windows and the hours of a day on either side
    oom_records: timedelta = timedelta(days=8)
    statistics: timedelta = timedelta(days=8)
    pod_statistics: timedelta = timedelta(hours=3)  # written in each usage pass while the pod exists
    container_starts: timedelta = timedelta(days=28)  # many workloads are deployed once in two weeks
    partitions: timedelta = timedelta(days=8)  # older ones cannot be continued and are read again
    outcomes: timedelta = timedelta(days=30)
    user_actions: timedelta = timedelta(days=90)
    refused_resizes: timedelta = timedelta(days=1)
    original_sizes: timedelta = timedelta(days=90)  # since the pod's last resize; few pods live as long unchanged
    signing_key: timedelta = timedelta(days=30)  # then a new key signs; the old one is deleted `original_sizes` later
    risk_days: timedelta = timedelta(days=29)  # the level of headroom, and observed risks
    cluster_hours: timedelta = timedelta(days=90)  # a row an hour
    packing_plans: timedelta = timedelta(days=1)  # a plan may have thousands of moves


RETENTION = RetentionPeriods()
# The newest starts of each workload's container: older ones belong to earlier versions of the program.
CONTAINER_STARTS_KEPT = 10

# A smaller change of a target is not written.
_UPDATE_SHARE, _UPDATE_CPU_MILLICORES, _UPDATE_MEMORY_BYTES = 0.05, 10, 16 << 20


@dataclass(frozen=True, slots=True)
class ContainerRecommendation:
    """One container's base, target and peak, as a VPA's bounds; `uncapped` is without minimum and maximum."""

    name: str
    lower: Resources
    target: Resources
    upper: Resources
    uncapped: Resources

    def differs(self, other: "ContainerRecommendation") -> bool:
        """Return whether the targets differ by more than the update threshold."""
        mine, theirs = self.target, other.target
        return (
            self.name != other.name
            or _exceeds_threshold(mine.cpu_millicores, theirs.cpu_millicores, _UPDATE_CPU_MILLICORES)
            or _exceeds_threshold(mine.memory_bytes, theirs.memory_bytes, _UPDATE_MEMORY_BYTES)
        )


@dataclass(frozen=True, slots=True)
class WorkloadRecommendation:
    """The published recommendation of the workload with this `uid`; `is_confident`: it has a day of history."""

    namespace: str
    workload: WorkloadRef
    uid: str
    containers: tuple[ContainerRecommendation, ...]
    is_confident: bool
    api_version: str = "apps/v1"

    @property
    def name(self) -> str:
        """The name of its VerticalPodAutoscaler, which differs from users' names and between kinds."""
        return f"cruise-{self.workload.kind.lower()}-{self.workload.name}"

    def differs(self, other: "WorkloadRecommendation | None") -> bool:
        """Return whether it differs enough from another one to be written."""
        if other is None or (self.uid, self.is_confident) != (other.uid, other.is_confident):
            return True
        if len(self.containers) != len(other.containers):
            return True
        return any(mine.differs(theirs) for mine, theirs in zip(self.containers, other.containers, strict=True))


def _exceeds_threshold(one: int, other: int, least: int) -> bool:
    return abs(one - other) > max(least, _UPDATE_SHARE * max(one, other))


# History of the database, to detect a restored backup.


@dataclass(frozen=True, slots=True)
class EpochAndLostUsage:
    """`epoch` increases with each stored read of usage, intent and kill; a smaller one means an earlier state.

    `lost_until` (Unix seconds, 0: never) is the end of the time whose usage and evictions were missing when an earlier
    state was last detected; `regained`: that usage was read again.
    """

    epoch: int = 0
    lost_until: int = 0
    regained: bool = True
