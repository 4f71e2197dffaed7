"""The three ports of the passes: the cluster, the usage source and the database."""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from cruise.domain.actions import Action, LastResizes, OriginalSizes, Outcome, RefusedResize, WriteIntent
from cruise.domain.cluster import ClusterSnapshot, HorizontalPodAutoscaler, OomKill, Pod, WorkloadRef
from cruise.domain.packing_plan import PackingPlan, PlacementHint
from cruise.domain.policy import Policy
from cruise.domain.records import (
    AverageHeadroomShare,
    EpochAndLostUsage,
    HourlyClusterTotals,
    OutcomeCount,
    RiskDay,
    WorkloadRecommendation,
)
from cruise.domain.rightsizing_policies import PolicyStatus, RightsizingPolicy
from cruise.domain.usage import (
    ContainerStart,
    HourlyPeaks,
    NodeLoadAverage,
    NodeUsage,
    OomRecord,
    PartitionCounterTail,
    PartitionProgress,
    PeakSummary,
    SampleBlock,
    StatisticsTable,
    UsageUpdate,
)
from cruise.domain.users import UserAction


class SnapshotSource(Protocol):
    """Reads a cluster."""

    async def snapshot(self) -> ClusterSnapshot:
        """Return the cluster's present state."""


class ClusterPort(SnapshotSource, Protocol):
    """The cluster: a snapshot to decide from, single pods to check again, and actions to perform."""

    async def read_pod(self, namespace: str, name: str) -> Pod | None:
        """Return one pod, read from the API server; None if it does not exist."""

    def get_cached_pod(self, namespace: str, name: str) -> Pod | None:
        """Return one pod as the watch has it, without a request; None if it does not exist."""

    def get_cached_autoscalers(self) -> tuple[HorizontalPodAutoscaler, ...]:
        """Return all HPAs as the watch has them, without a request; the snapshot's tuple if none has changed."""

    def watch_oom_kills(self) -> AsyncIterator[OomKill]:
        """Yield out-of-memory kills as they are observed; the same kill may be yielded again."""

    async def wait_for_write_turn(self) -> None:
        """Wait until the client's rate limit allows one more write; `perform` does not wait for it."""

    async def perform(self, action: Action) -> None:
        """Perform one action. Raises ConflictError, NotFoundError, RefusedError, ThrottledError, UnavailableError."""


class RecommendationPublisher(Protocol):
    """Publishes recommendations; adapters.kube.actions."""

    async def wait_for_write_turn(self) -> None:
        """Wait until the client's rate limit allows one more write; `publish` does not wait for its first one."""

    async def publish(self, recommendation: WorkloadRecommendation, since: datetime, *, exists: bool) -> None:
        """Write one workload's recommendation, known `since` a time; `exists` if it was published before.

        Raises ConflictError, NotFoundError, RefusedError, ThrottledError, UnavailableError.
        """


class PolicyStatusPublisher(Protocol):
    """Writes the status of policy objects; adapters.kube.actions."""

    async def write_status(self, policy: RightsizingPolicy, status: PolicyStatus, now: datetime) -> None:
        """Write one policy's status; `now` is the time of conditions that changed.

        Raises ConflictError, NotFoundError, RefusedError, ThrottledError, UnavailableError.
        """


class UsageSourcePort(Protocol):
    """Reads usage samples; a partition is a part of the cluster that one query covers."""

    async def list_partitions(self, snapshot: ClusterSnapshot) -> Sequence[str]:
        """Return the partitions that cover the snapshot's pods; the same pods give the same partitions."""

    async def read(
        self, partition: str, start: int, end: int, tail: PartitionCounterTail | None
    ) -> tuple[SampleBlock, PartitionCounterTail | None]:
        """Return the samples of the grid times in (start, end] and the counter tail to continue from.

        `start` and `end` are Unix seconds on the grid; `tail` continues counters read up to `start`.
        Raises BadInputError, ThrottledError, UnavailableError.
        """

    async def read_node_usage(self, nodes: Collection[str], start: int, end: int) -> NodeUsage:
        """Return the total usage of nodes at the grid times after `start` up to `end` (Unix seconds), where known.

        Raises BadInputError, ThrottledError, UnavailableError.
        """

    async def read_node_loads(self, at: int) -> Mapping[str, NodeLoadAverage]:
        """Return the newest 1-minute load average of each node that has one."""


class StorePort(Protocol):
    """What outlives a process; adapters.store.

    `record_usage`, `record_oom_kill` and `record_intents` advance the epoch. They raise DatabaseRestoredError if the
    database's epoch is before `epoch`: then the database was restored to an earlier state.
    """

    @property
    def epoch(self) -> int:
        """The latest epoch that the database is known to have had."""

    def expect_epoch(self, epoch: int) -> None:
        """Record that the database had this epoch."""

    async def end_hung_sessions(self) -> int:
        """Release what processes hold that stopped within a write; return how many there were."""

    async def read_epoch_and_lost_usage(self) -> EpochAndLostUsage:
        """Return which usage the database has lost. Raises DatabaseRestoredError if it is at an earlier state."""

    async def record_lost_usage(self, until: int, *, regained: bool = False) -> None:
        """Record that usage until a time (Unix seconds) was lost, and whether it was read again.

        The database's present state then counts as its latest.
        """

    async def write_statistics(self, table: StatisticsTable) -> None:
        """Replace the statistics of the table's containers and workloads; others stay.

        A container of a pod has one row, under whichever workload it is written. The table's revisions are merged with
        the stored ones: the earliest start and the latest observation count.
        """

    async def read_statistics(self) -> StatisticsTable:
        """Return all statistics and all revisions."""

    async def read_workload_statistics(self) -> StatisticsTable:
        """Return the rows of workloads, without those of pods, and all revisions: the input of admission."""

    async def read_pod_statistics(self, namespace: str, pod: str, workload: str, identity: str) -> StatisticsTable:
        """Return the statistics that apply to one pod, in two indexed queries.

        These are its own rows, and those of its workload (Kind/name) for its identity or for none.
        """

    async def record_average_headroom_share(self, average_share: AverageHeadroomShare) -> None:
        """Store how headroom is shared at present; it is read with the statistics."""

    async def record_usage(self, update: UsageUpdate) -> None:
        """Store one read in one transaction; peaks are merged by maximum.

        Raises ConflictError if the stored progress is not the one that the read continues: then the database was
        replaced, or another process reads as well.
        """

    async def read_usage_progress(self) -> Mapping[str, PartitionProgress]:
        """Return until when each partition was read."""

    async def read_recent_blocks(self, since: int) -> Sequence[SampleBlock]:
        """Return the stored sample blocks with a time after `since` (Unix seconds), oldest first."""

    async def read_container_starts(self) -> Sequence[ContainerStart]:
        """Return the stored starts, in no order; `prune` keeps the newest of each workload's container."""

    async def read_peak_summary(self, hours: Collection[int], since_hour: int) -> PeakSummary:
        """Return the largest hourly peaks over `hours`, and over all hours from `since_hour` on."""

    async def read_workload_peaks(self, namespace: str, workload: str, since_hour: int) -> HourlyPeaks:
        """Return one workload's hourly peaks, sorted by key and hour."""

    async def read_peaks_of_hour(self, hour: int) -> HourlyPeaks:
        """Return the peaks of every key in one clock hour."""

    async def record_risk_days(self, days: Sequence[RiskDay]) -> None:
        """Store the observed risks of days; each replaces the earlier record of its day."""

    async def read_risk_days(self) -> Sequence[RiskDay]:
        """Return the observed risks of all days."""

    async def store_hourly_totals(self, totals: HourlyClusterTotals) -> None:
        """Store the cluster's totals of an hour; the first record of an hour stays."""

    async def read_hourly_totals(self, since_hour: int) -> Sequence[HourlyClusterTotals]:
        """Return the cluster's totals from an hour on, oldest first."""

    async def record_oom_kill(self, record: OomRecord) -> bool:
        """Store a kill; return False if the same (pod uid, container, finished_at) is stored already."""

    async def has_oom_record(self, pod_uid: str, container: str, finished_at: datetime) -> bool:
        """Return whether a kill is stored."""

    async def read_oom_records(
        self, since: datetime, workload: tuple[str, str] | None = None, most_of_container: int | None = None
    ) -> Sequence[OomRecord]:
        """Return the kills finished since a time, oldest first: all, or those of one (namespace, Kind/name).

        `most_of_container` limits those of one container of a pod to the ones with the most OOM memory.
        """

    async def record_intents(self, intents: Sequence[WriteIntent]) -> None:
        """Store writes before they are sent; either all of them are open afterwards, or none is."""

    async def check_writable(self) -> None:
        """Write a row and remove it: for changes to the cluster without an intent. Raises what a write raises."""

    async def read_open_intents(self) -> Sequence[WriteIntent]:
        """Return the writes without a recorded outcome, in the order of their times."""

    async def record_outcomes(self, outcomes: Sequence[Outcome], completed: Collection[int] = ()) -> None:
        """Append to the audit and close the `completed` intents, in one transaction.

        A repeated outcome (`count` above 1) replaces its line, if there is one: the line of the same pod (uid) or node,
        kind of action, result, reason and first time.
        """

    async def read_outcomes(
        self, since: datetime, limit: int = 1000, namespaces: Set[str] | None = None
    ) -> Sequence[Outcome]:
        """Return the newest audit lines since a time, newest first; with namespaces, of their pods and of nodes."""

    async def read_audited_namespaces(self) -> Set[str]:
        """Return the namespaces of all audit lines and user actions."""

    async def read_done_outcomes(
        self, since: datetime, limit: int, namespaces: Set[str] | None = None
    ) -> Sequence[Outcome]:
        """Return the newest audit lines of actions that were done, newest first; with namespaces, of their pods."""

    async def count_outcomes(self, since: datetime) -> Sequence[OutcomeCount]:
        """Return the counts of the outcomes since a time, without skips, in no order."""

    async def read_pod_outcomes(self, namespace: str, pod: str, since: datetime) -> Sequence[Outcome]:
        """Return every audit line about a pod's name since a time, newest first, by an indexed query."""

    async def read_evictions_since(self, since: datetime) -> Sequence[Outcome]:
        """Return the evictions begun since a time, oldest first: those that count against the budgets.

        These are the evictions that were done, and one line for each other pod whose intent is open (`begun`) or whose
        answer was not received (`failed`).
        """

    async def read_unanswered_resizes(self, since: datetime) -> Sequence[Outcome]:
        """Return the resizes since a time whose answer was not received (`failed`), oldest first."""

    async def record_user_action(self, action: UserAction) -> None:
        """Store a user's action on cruise itself."""

    async def read_user_actions(
        self, since: datetime, limit: int = 1000, namespaces: Set[str] | None = None
    ) -> Sequence[UserAction]:
        """Return the newest user actions not before a time, newest first; with namespaces, in these or in none."""

    async def read_paused_workloads(self) -> Mapping[tuple[str, WorkloadRef], datetime]:
        """Return since when workloads are paused, by namespace and reference."""

    async def write_workload_pause(self, namespace: str, workload: WorkloadRef, since: datetime | None) -> None:
        """Pause a workload, or resume it with None; one that is paused stays so since then."""

    async def is_paused(self) -> bool:
        """Return whether writes are paused."""

    async def set_paused(self, paused: bool) -> None:
        """Pause or resume all writes."""

    async def read_refused_resizes(self) -> Mapping[str, RefusedResize]:
        """Return the refused resize of each pod uid."""

    async def record_refused_resizes(self, refused: Sequence[RefusedResize]) -> None:
        """Store refused resizes; each replaces the earlier one of its pod."""

    async def record_original_sizes(self, originals: Sequence[OriginalSizes]) -> None:
        """Store the requests of pods before their first resize.

        The first sizes of a pod uid stay; the time is updated.
        """

    async def read_original_sizes(self, pod_uids: Collection[str]) -> Mapping[str, OriginalSizes]:
        """Return the stored original sizes of these pods, by pod uid.

        There is no read of all: those of pods that are gone are kept for weeks.
        """

    async def read_last_resizes(self, pod_uids: Collection[str], since: datetime) -> LastResizes:
        """Return when these pods were last resized, and how many others were, each at or after a time."""

    async def read_signing_keys(self) -> Sequence[bytes]:
        """Return the keys that verify the webhook's annotations, the signing key first.

        `prune` creates a new key when it is due, and keeps earlier keys as long as original sizes.
        """

    async def write_packing_plan(self, plan: PackingPlan) -> None:
        """Store a packing plan or its new progress; the proposal of a stored plan does not change.

        The plan's placement hints replace the stored ones.
        """

    async def read_packing_plan(self) -> PackingPlan | None:
        """Return the latest packing plan, None if there is none."""

    async def read_placement_hints(self) -> Sequence[PlacementHint]:
        """Return the stored placement hints."""

    async def prune(self, now: datetime) -> None:
        """Delete records past their retention."""


@dataclass(frozen=True, slots=True)
class PassContext:
    """What a pass works on: the cluster, the database, the policy, and the present time."""

    cluster: ClusterPort
    store: StorePort
    policy: Policy
    now: datetime
