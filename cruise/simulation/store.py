"""The Store port in memory: for `scan` and `plan`, for backtests, and for tests."""

from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import replace
from datetime import datetime
from hashlib import sha256
from itertools import islice
from operator import attrgetter

from cruise.domain.actions import (
    ActionResult,
    EvictPod,
    LastResizes,
    OriginalSizes,
    Outcome,
    RefusedResize,
    ResizePod,
    WriteIntent,
    find_counted_evictions,
)
from cruise.domain.cluster import WorkloadRef
from cruise.domain.packing_plan import PackingPlan, PlacementHint
from cruise.domain.records import (
    CONTAINER_STARTS_KEPT,
    RETENTION,
    AverageHeadroomShare,
    EpochAndLostUsage,
    HourlyClusterTotals,
    OutcomeCount,
    RiskDay,
    get_clock_hour,
    truncate_to_minute,
)
from cruise.domain.resources import ResourceName
from cruise.domain.usage import (
    ContainerStart,
    HourlyPeaks,
    OomRecord,
    PartitionProgress,
    PeakSummary,
    SampleBlock,
    StatisticsTable,
    UsageUpdate,
)
from cruise.domain.users import UserAction, is_in_namespaces
from cruise.errors import DatabaseRestoredError, UnknownUsageError
from cruise.simulation.peak_store import InMemoryPeaks
from cruise.simulation.statistics_store import InMemoryStatistics

_at = attrgetter("at")


class InMemoryStore:
    """Implements `runtime.ports.Store`; it keeps the given objects, which must not be changed afterwards."""

    def __init__(self) -> None:
        self._statistics = InMemoryStatistics()
        self._progress: dict[str, PartitionProgress] = {}
        self._blocks: list[SampleBlock] = []  # by last time
        self._peaks = InMemoryPeaks()
        self._starts: dict[tuple[str, str, str, str], ContainerStart] = {}
        self._risk_days: dict[tuple[ResourceName, int], RiskDay] = {}
        self._hours: dict[int, HourlyClusterTotals] = {}
        self._oom_records: dict[tuple[str, str, datetime], OomRecord] = {}
        self._outcomes: list[Outcome] = []  # by time, as are the evictions among them
        self._evictions: list[Outcome] = []
        self._intents: dict[int, WriteIntent] = {}
        self._user_actions: list[UserAction] = []
        self._paused_workloads: dict[tuple[str, WorkloadRef], datetime] = {}
        self._rejected_resizes: dict[str, RefusedResize] = {}
        self._originals: dict[str, OriginalSizes] = {}
        self._packings: dict[str, PackingPlan] = {}
        self._placement_hints: tuple[PlacementHint, ...] = ()
        self._signing_keys: list[tuple[datetime, bytes]] = []  # the latest first
        self._paused = False
        self._history = EpochAndLostUsage()
        self.epoch = 0

    def expect_epoch(self, epoch: int) -> None:
        self.epoch = max(self.epoch, epoch)

    async def read_epoch_and_lost_usage(self) -> EpochAndLostUsage:
        if self._history.epoch < self.epoch:
            raise DatabaseRestoredError(f"the database is at epoch {self._history.epoch}, but was at {self.epoch}")
        return self._history

    async def record_lost_usage(self, until: int, *, regained: bool = False) -> None:
        self.epoch = max(self._history.epoch, self.epoch) + 1
        self._history = EpochAndLostUsage(self.epoch, max(self._history.lost_until, until), regained)

    async def _advance(self) -> None:
        self.epoch = (await self.read_epoch_and_lost_usage()).epoch + 1
        self._history = replace(self._history, epoch=self.epoch)

    async def write_statistics(self, table: StatisticsTable) -> None:
        self._statistics.write(table)

    async def read_statistics(self) -> StatisticsTable:
        return self._statistics.table

    async def read_workload_statistics(self) -> StatisticsTable:
        return self._statistics.select_workloads()

    async def read_pod_statistics(self, namespace: str, pod: str, workload: str, identity: str) -> StatisticsTable:
        return self._statistics.select_pod(namespace, pod, workload, identity)

    async def record_average_headroom_share(self, average_share: AverageHeadroomShare) -> None:
        self._statistics.record_average_headroom_share(average_share)

    async def end_hung_sessions(self) -> int:
        return 0

    async def record_usage(self, update: UsageUpdate) -> None:
        expected = update.continues_from
        read_until = known.read_until if (known := self._progress.get(update.partition)) else None
        if expected is not None and expected != read_until:
            error = DatabaseRestoredError if (read_until or 0) < expected else UnknownUsageError
            raise error(f"usage of {update.partition} was stored until {expected}, not {read_until}")
        await self._advance()
        self._peaks.merge(update.peaks)
        for start in update.starts:
            key = (start.namespace, start.workload, start.container, start.pod_uid)
            stored = self._starts.get(key)
            self._starts[key] = start if stored is None else stored.merge(start)
        if update.block is not None and len(update.block.times):
            insort(self._blocks, update.block, key=_last_time)
        self._progress[update.partition] = update.progress

    async def read_usage_progress(self) -> Mapping[str, PartitionProgress]:
        return dict(self._progress)

    async def read_recent_blocks(self, since: int) -> Sequence[SampleBlock]:
        return self._blocks[bisect_right(self._blocks, since, key=_last_time) :]

    async def read_container_starts(self) -> Sequence[ContainerStart]:
        return list(self._starts.values())

    async def read_peak_summary(self, hours: Collection[int], since_hour: int) -> PeakSummary:
        return self._peaks.summarize(hours, since_hour)

    async def read_workload_peaks(self, namespace: str, workload: str, since_hour: int) -> HourlyPeaks:
        return self._peaks.get_for_workload(namespace, workload, since_hour)

    async def read_peaks_of_hour(self, hour: int) -> HourlyPeaks:
        return self._peaks.get_for_hour(hour)

    async def record_risk_days(self, days: Sequence[RiskDay]) -> None:
        self._risk_days |= {(one.resource, one.day): one for one in days}

    async def read_risk_days(self) -> Sequence[RiskDay]:
        return list(self._risk_days.values())

    async def store_hourly_totals(self, totals: HourlyClusterTotals) -> None:
        self._hours.setdefault(totals.hour, totals)

    async def read_hourly_totals(self, since_hour: int) -> Sequence[HourlyClusterTotals]:
        return [one for hour, one in sorted(self._hours.items()) if hour >= since_hour]

    async def record_oom_kill(self, record: OomRecord) -> bool:
        await self._advance()
        key = (record.pod_uid, record.container, record.finished_at)
        if key in self._oom_records:
            return False
        self._oom_records[key] = record
        return True

    async def has_oom_record(self, pod_uid: str, container: str, finished_at: datetime) -> bool:
        return (pod_uid, container, finished_at) in self._oom_records

    async def read_oom_records(
        self, since: datetime, workload: tuple[str, str] | None = None, most_of_container: int | None = None
    ) -> Sequence[OomRecord]:
        by_container: dict[tuple[str, ...], list[OomRecord]] = {}
        for one in sorted(self._oom_records.values(), key=lambda kill: (-kill.oom_memory_bytes, kill.finished_at)):
            if one.finished_at >= since and workload in (None, (one.namespace, one.workload)):
                key = (one.namespace, one.workload, one.identity, one.pod, one.container)
                by_container.setdefault(key, []).append(one)
        records = [one for kills in by_container.values() for one in kills[:most_of_container]]
        return sorted(records, key=lambda record: (record.finished_at, record.pod_uid, record.container))

    async def record_intents(self, intents: Sequence[WriteIntent]) -> None:
        await self._advance()
        self._intents |= {one.id: one for one in intents}

    async def check_writable(self) -> None:
        """Return: memory is always writable."""

    async def read_open_intents(self) -> Sequence[WriteIntent]:
        return sorted(self._intents.values(), key=attrgetter("at", "id"))

    async def record_outcomes(self, outcomes: Sequence[Outcome], completed: Collection[int] = ()) -> None:
        for done in completed:
            self._intents.pop(done, None)
        last = {outcome.audit_key: outcome for outcome in outcomes if outcome.count > 1}
        if last:
            self._outcomes = [known for known in self._outcomes if known.audit_key not in last]
        for outcome in outcomes:
            if last.get(outcome.audit_key, outcome) is not outcome:
                continue
            insort(self._outcomes, outcome, key=_at)
            if isinstance(outcome.action, EvictPod) and outcome.result in (ActionResult.DONE, ActionResult.FAILED):
                insort(self._evictions, outcome, key=_at)

    async def read_outcomes(
        self, since: datetime, limit: int = 1000, namespaces: Set[str] | None = None
    ) -> Sequence[Outcome]:
        first = bisect_left(self._outcomes, since, key=_at)
        found = islice(reversed(self._outcomes), len(self._outcomes) - first)
        return list(islice((one for one in found if is_in_namespaces(one.namespace, namespaces)), limit))

    async def read_audited_namespaces(self) -> Set[str]:
        found = {one.namespace for one in self._outcomes} | {one.namespace for one in self._user_actions}
        return {namespace for namespace in found if namespace is not None}

    async def read_done_outcomes(
        self, since: datetime, limit: int, namespaces: Set[str] | None = None
    ) -> Sequence[Outcome]:
        newest = await self.read_outcomes(since, len(self._outcomes), namespaces)
        of_pods = (one for one in newest if namespaces is None or one.namespace is not None)
        return [one for one in of_pods if one.result is ActionResult.DONE][:limit]

    async def count_outcomes(self, since: datetime) -> Sequence[OutcomeCount]:
        found = self._outcomes[bisect_left(self._outcomes, since, key=_at) :]
        counts = Counter(
            (
                one.namespace,
                type(one.action),
                one.action.reason,
                one.action.cause if isinstance(one.action, ResizePod) else None,
                one.result,
                one.reason,
            )
            for one in found
            if one.result is not ActionResult.SKIPPED
        )
        return [OutcomeCount(*key, count) for key, count in counts.items()]

    async def read_pod_outcomes(self, namespace: str, pod: str, since: datetime) -> Sequence[Outcome]:
        found = await self.read_outcomes(since, len(self._outcomes), {namespace})
        return [one for one in found if isinstance(one.action, ResizePod | EvictPod) and one.action.pod == pod]

    async def read_evictions_since(self, since: datetime) -> Sequence[Outcome]:
        ended = self._evictions[bisect_left(self._evictions, since, key=_at) :]
        begun = [one for one in self._intents.values() if isinstance(one.action, EvictPod) and one.at >= since]
        return find_counted_evictions([*ended, *(one.started_outcome for one in begun)])

    async def read_unanswered_resizes(self, since: datetime) -> Sequence[Outcome]:
        first = bisect_left(self._outcomes, since, key=_at)
        return [
            one
            for one in self._outcomes[first:]
            if isinstance(one.action, ResizePod) and one.result is ActionResult.FAILED
        ]

    async def record_user_action(self, action: UserAction) -> None:
        self._user_actions.append(action)

    async def read_user_actions(
        self, since: datetime, limit: int = 1000, namespaces: Set[str] | None = None
    ) -> Sequence[UserAction]:
        found = [one for one in self._user_actions if one.at >= since and is_in_namespaces(one.namespace, namespaces)]
        return sorted(reversed(found), key=_at, reverse=True)[:limit]

    async def read_paused_workloads(self) -> Mapping[tuple[str, WorkloadRef], datetime]:
        return dict(self._paused_workloads)

    async def write_workload_pause(self, namespace: str, workload: WorkloadRef, since: datetime | None) -> None:
        if since is None:
            self._paused_workloads.pop((namespace, workload), None)
        else:
            self._paused_workloads.setdefault((namespace, workload), since)

    async def is_paused(self) -> bool:
        return self._paused

    async def set_paused(self, paused: bool) -> None:
        self._paused = paused

    async def read_refused_resizes(self) -> Mapping[str, RefusedResize]:
        return dict(self._rejected_resizes)

    async def record_refused_resizes(self, refused: Sequence[RefusedResize]) -> None:
        self._rejected_resizes |= {one.pod_uid: one for one in refused}

    async def record_original_sizes(self, originals: Sequence[OriginalSizes]) -> None:
        for one in originals:
            first = self._originals.get(one.pod_uid, one)
            self._originals[one.pod_uid] = replace(first, at=max(first.at, one.at))

    async def read_original_sizes(self, pod_uids: Collection[str]) -> Mapping[str, OriginalSizes]:
        return {uid: self._originals[uid] for uid in set(pod_uids) & self._originals.keys()}

    async def read_last_resizes(self, pod_uids: Collection[str], since: datetime) -> LastResizes:
        times = {uid: one.at for uid, one in self._originals.items() if one.at >= since}
        by_pod = {uid: times.pop(uid) for uid in times.keys() & set(pod_uids)}
        return LastResizes(by_pod, Counter(map(truncate_to_minute, times.values())))

    async def read_signing_keys(self) -> Sequence[bytes]:
        return [key for _, key in self._signing_keys]

    async def write_packing_plan(self, plan: PackingPlan) -> None:
        known = self._packings.get(plan.id, plan)
        self._packings[plan.id] = replace(plan, at=known.at, proposal=known.proposal)
        self._placement_hints = tuple(sorted(plan.placement_hints, key=attrgetter("replaces")))

    async def read_packing_plan(self) -> PackingPlan | None:
        return max(self._packings.values(), key=attrgetter("at", "changed_at"), default=None)

    async def read_placement_hints(self) -> Sequence[PlacementHint]:
        return self._placement_hints

    async def prune(self, now: datetime) -> None:
        kept = RETENTION
        self._statistics.prune(now)
        self._blocks = list(await self.read_recent_blocks(int((now - kept.sample_blocks).timestamp())))
        read_since = int((now - kept.partitions).timestamp())
        self._progress = {name: known for name, known in self._progress.items() if known.read_until >= read_since}
        self._starts = _keep_newest_starts(self._starts, int((now - kept.container_starts).timestamp()))
        self._peaks.prune(int((now - kept.hourly_peaks).timestamp()) // 3600)
        risks_since = int((now - kept.risk_days).timestamp()) // 86400
        self._risk_days = {key: one for key, one in self._risk_days.items() if one.day >= risks_since}
        self._hours = {at: one for at, one in self._hours.items() if at >= get_clock_hour(now - kept.cluster_hours)}
        killed_since, refused_since = now - kept.oom_records, now - kept.refused_resizes
        self._oom_records = {key: one for key, one in self._oom_records.items() if one.finished_at >= killed_since}
        for lines in (self._outcomes, self._evictions):
            del lines[: bisect_left(lines, now - kept.outcomes, key=_at)]
        self._user_actions = [one for one in self._user_actions if one.at >= now - kept.user_actions]
        self._rejected_resizes = {uid: one for uid, one in self._rejected_resizes.items() if one.at >= refused_since}
        self._originals = {uid: one for uid, one in self._originals.items() if one.at >= now - kept.original_sizes}
        self._packings = {key: plan for key, plan in self._packings.items() if plan.at >= now - kept.packing_plans}
        if not self._signing_keys or now - self._signing_keys[0][0] >= kept.signing_key:
            self._signing_keys.insert(0, (now, _key_since(now)))
        lasting = kept.signing_key + kept.original_sizes
        self._signing_keys = [one for one in self._signing_keys if now - one[0] <= lasting]


def _key_since(at: datetime) -> bytes:
    """Return a key that is not secret, the same in each simulation."""
    return sha256(at.isoformat().encode()).digest()


def _last_time(block: SampleBlock) -> int:
    return int(block.times[-1])


def _keep_newest_starts(
    starts: Mapping[tuple[str, str, str, str], ContainerStart], since: int
) -> dict[tuple[str, str, str, str], ContainerStart]:
    kept: Counter[tuple[str, str, str]] = Counter()
    newest = {}
    for key, start in sorted(starts.items(), key=lambda item: -item[1].started_at):
        kept[key[:3]] += 1
        if start.started_at >= since and kept[key[:3]] <= CONTAINER_STARTS_KEPT:
            newest[key] = start
    return newest
