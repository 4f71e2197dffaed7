"""The three ports through which passes see the world."""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from cruise.domain.actions import Action, OriginalSizes, Outcome, RefusedTarget, WriteIntent
from cruise.domain.annotations import Overrides
from cruise.domain.cluster import ClusterSnapshot, OomKill, Pod, WorkloadRef
from cruise.domain.packing_plan import PackingPlan, PlacementHint
from cruise.domain.records import DatabaseHistory, HeadroomSharing, HourlyClusterTotals, RiskDay, WorkloadRecommendation
from cruise.domain.usage import (
    CounterTail,
    HourlyPeaks,
    NodeLoadSample,
    NodeUsage,
    OomRecord,
    PartitionProgress,
    PeakSummary,
    SampleBlock,
    StatisticsTable,
    UsageUpdate,
)
from cruise.domain.users import UserAction


class SnapshotSource(Protocol):
    """What a cluster is read from."""

    async def snapshot(self) -> ClusterSnapshot:
        """Return the cluster as it is now."""


class ClusterPort(SnapshotSource, Protocol):
    """The cluster: one snapshot to decide from, single pods to re-validate, actions to perform."""

    async def read_pod(self, namespace: str, name: str) -> Pod | None:
        """Return one pod freshly read, None if there is none of that name."""

    def get_cached_pod(self, namespace: str, name: str) -> Pod | None:
        """Return one pod as the cluster's watch has it now, without a request; None if there is none of that name."""

    def oom_kills(self) -> AsyncIterator[OomKill]:
        """Yield out-of-memory kills as they are seen; the same kill may come again."""

    async def perform(self, action: Action) -> None:
        """Do one action. Raises Conflict, NotFoundError, Refused, Throttled, Unavailable."""


class RecommendationPublisher(Protocol):
    """Where sizes are shown to others; adapters.kube.actions."""

    async def publish(self, wanted: WorkloadRecommendation, since: datetime, *, is_there: bool) -> None:
        """Show one workload's sizes, known `since` a time; `is_there` where they were shown before.

        Raises Conflict, NotFoundError, Refused, Throttled, Unavailable.
        """


class UsageSourcePort(Protocol):
    """Where usage samples come from; a partition is a part of the cluster that one query may cover."""

    async def partitions(self, snapshot: ClusterSnapshot) -> Sequence[str]:
        """Return the partitions that cover the snapshot's pods, stable from call to call for the same pods."""

    async def read(
        self, partition: str, start: int, end: int, tail: CounterTail | None
    ) -> tuple[SampleBlock, CounterTail | None]:
        """Return the samples of the grid times in (start, end] and the tail to continue from.

        `start` and `end` are Unix seconds on the grid; `tail` continues counters read up to `start`.
        Raises BadInputError, Throttled, Unavailable.
        """

    async def node_use(self, nodes: Collection[str], start: int, end: int) -> NodeUsage:
        """Return what nodes used in all at the grid times after `start` up to `end` (Unix seconds), as far as known.

        Raises BadInputError, Throttled, Unavailable.
        """

    async def node_loads(self, at: int) -> Mapping[str, NodeLoadSample]:
        """Return the newest 1-minute load average of each node that has one."""


class StorePort(Protocol):
    """What outlives a process.

    `record_usage`, `record_oom` and `begin_writes` advance the epoch, and raise HistoryChangedError where the store's is
    before `epoch`: then it is at an earlier state than it was.
    """

    @property
    def epoch(self) -> int:
        """The latest epoch that the store is known to have had."""

    def expect(self, epoch: int) -> None:
        """Take note that the store had this epoch."""

    async def history(self) -> DatabaseHistory:
        """Return what the store says of its past. Raises HistoryChangedError where it is at an earlier state."""

    async def note_lost(self, until: int, *, regained: bool = False) -> None:
        """Put on record that usage until a time (Unix seconds) was lost, and whether it was read again.

        The store's present state is the latest from then on.
        """

    async def write_statistics(self, table: StatisticsTable) -> None:
        """Replace the statistics of the table's containers and workloads; others stay.

        A container of a pod has one row, whatever workload it is written under. The table's revisions are added to
        those that are known, each with the earliest beginning and the latest sight.
        """

    async def read_statistics(self) -> StatisticsTable:
        """Return all statistics, with all revisions."""

    async def workload_statistics(self) -> StatisticsTable:
        """Return the rows of workloads alone, without a pod, and all revisions: what admission decides from."""

    async def statistics_of_pod(self, namespace: str, pod: str, workload: str, identity: str) -> StatisticsTable:
        """Return the statistics that may speak for one pod, in two indexed look-ups.

        They are its own and those of its workload (Kind/name) for its identity or for none.
        """

    async def record_sharing(self, sharing: HeadroomSharing) -> None:
        """Remember how headroom is shared now; it is read with the statistics."""

    async def record_usage(self, advance: UsageUpdate) -> None:
        """Store one read whole or not at all; peaks are merged by maximum.

        Raises Conflict where the store has another progress than the one that the read continues: then it is not the
        store that it was, or another process reads as well.
        """

    async def usage_progress(self) -> Mapping[str, PartitionProgress]:
        """Return how far each partition was read."""

    async def recent_blocks(self, since: int) -> Sequence[SampleBlock]:
        """Return stored sample blocks with a time after `since` (Unix seconds), oldest first."""

    async def peak_summary(self, hours: Collection[int], since_hour: int) -> PeakSummary:
        """Sum up hourly peaks over `hours`, and over all hours from `since_hour` on; none before it counts."""

    async def hourly_peaks(self, namespace: str, workload: str, since_hour: int) -> HourlyPeaks:
        """Return one workload's hourly peaks, for explanations; sorted by key and hour."""

    async def peaks_of_hour(self, hour: int) -> HourlyPeaks:
        """Return every key's peaks of one clock hour."""

    async def record_risk_days(self, days: Sequence[RiskDay]) -> None:
        """Store how risks were kept on days, each in place of what was counted of it before."""

    async def risk_days(self) -> Sequence[RiskDay]:
        """Return how risks were kept on all days."""

    async def record_cluster_hour(self, one: HourlyClusterTotals) -> None:
        """Remember the cluster's sums of an hour; the first of an hour stay."""

    async def cluster_hours(self, since_hour: int) -> Sequence[HourlyClusterTotals]:
        """Return the cluster's sums from an hour on, oldest first."""

    async def record_oom(self, record: OomRecord) -> bool:
        """Remember a kill; False if the same (pod uid, container, finished_at) is known already."""

    async def has_oom_record(self, pod_uid: str, container: str, finished_at: datetime) -> bool:
        """Tell whether a kill is remembered."""

    async def oom_records(self, since: datetime, of: tuple[str, str] | None = None) -> Sequence[OomRecord]:
        """Return the kills finished since a time, oldest first: all, or those of a namespace's workload."""

    async def begin_writes(self, intents: Sequence[WriteIntent]) -> None:
        """Record writes before they are sent; all of them are open from then on, or none is."""

    async def check_writable(self) -> None:
        """Write and take back a row: for changes to the cluster that leave no intent. Raises what a write raises."""

    async def open_intents(self) -> Sequence[WriteIntent]:
        """Return the writes that were begun and whose outcome is not recorded, in the order of their times."""

    async def record_outcomes(self, outcomes: Sequence[Outcome], completed: Collection[int] = ()) -> None:
        """Append to the audit and close the `completed` intents, both or neither.

        An outcome that goes on (`count` above 1) takes the place of its line, if it has one. Its line is of the same
        pod (its uid) or node, kind of action, verdict and reason, and of the same first time.
        """

    async def outcomes(self, since: datetime, limit: int = 1000) -> Sequence[Outcome]:
        """Return the newest audit lines since a time, newest first."""

    async def outcomes_of_pod(self, namespace: str, pod: str, since: datetime) -> Sequence[Outcome]:
        """Return every audit line about a pod's name since a time, newest first, by an indexed look-up."""

    async def evictions_since(self, since: datetime) -> Sequence[Outcome]:
        """Return the evictions begun since a time, oldest first: what the budgets have spent.

        They are those that were done, and for each other pod one line if its intent is open (`begun`) or the end was
        not seen (`failed`).
        """

    async def record_user_action(self, done: UserAction) -> None:
        """Put on record what somebody did to cruise itself."""

    async def user_actions(self, since: datetime, limit: int = 1000) -> Sequence[UserAction]:
        """Return the newest interventions not before a time, newest first."""

    async def overrides(self) -> Mapping[tuple[str, WorkloadRef], Overrides]:
        """Return the stored overrides by (namespace, workload)."""

    async def put_override(self, namespace: str, workload: WorkloadRef, override: Overrides | None) -> None:
        """Store one override, or remove it with None."""

    async def paused(self) -> bool:
        """Tell whether every write is stopped."""

    async def set_paused(self, paused: bool) -> None:
        """Stop every write, or let them go on."""

    async def refused_targets(self) -> Mapping[str, RefusedTarget]:
        """Return the refused resize of each pod uid."""

    async def remember_refused(self, refused: Sequence[RefusedTarget]) -> None:
        """Remember refused resizes, each in place of an earlier one for its pod."""

    async def remember_original_sizes(self, originals: Sequence[OriginalSizes]) -> None:
        """Remember what pods requested before they are resized.

        The first sizes of a pod uid stay; its time becomes the latest.
        """

    async def original_sizes(self, pod_uids: Collection[str] | None = None) -> Mapping[str, OriginalSizes]:
        """Return the remembered original sizes by pod uid, of all pods or of some."""

    async def signing_keys(self) -> Sequence[bytes]:
        """Return the keys by which the webhook's annotations are known, the one that signs first.

        `prune` makes a new one when it is due, and keeps those before it as long as original sizes.
        """

    async def save_packing(self, plan: PackingPlan) -> None:
        """Store a plan of the packer, or how far it is carried out now; its proposal does not change.

        The pods that it steers take the place of those that any plan steered before.
        """

    async def packing(self) -> PackingPlan | None:
        """Return the plan of the latest look at the cluster, None if there is none."""

    async def placement_hints(self) -> Sequence[PlacementHint]:
        """Return the pods that are to be steered, by the uid of the pod that each replaces."""

    async def prune(self, now: datetime) -> None:
        """Drop what is past its retention."""
