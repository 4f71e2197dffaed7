"""The store in Postgres: every method is one transaction."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from sqlalchemy import text

from cruise.adapters.store import (
    audit,
    headroom_scores,
    oom,
    original_sizes,
    overrides,
    packing_plans,
    peaks,
    refusals,
    statistic_rows,
    usage,
)
from cruise.adapters.store.connection import Database
from cruise.adapters.store.tables import metadata
from cruise.domain.actions import OriginalSizes, Outcome, RefusedTarget
from cruise.domain.annotations import Overrides
from cruise.domain.cluster import WorkloadRef
from cruise.domain.headroom import DayScores
from cruise.domain.packing import PackingPlan, Steering
from cruise.domain.retention import RETENTION
from cruise.domain.usage import (
    HourlyPeaks,
    OomRecord,
    PartitionProgress,
    PeakSummary,
    SampleBlock,
    StatisticsTable,
    UsageAdvance,
)


class PostgresStore:
    """Implements `runtime.ports.Store`; every method may raise Unavailable, and then nothing of it is stored."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def write_statistics(self, table: StatisticsTable) -> None:
        async with self._database.transaction() as connection:
            await statistic_rows.write(connection, table)

    async def read_statistics(self) -> StatisticsTable:
        async with self._database.transaction() as connection:
            return await statistic_rows.read_all(connection)

    async def workload_statistics(self) -> StatisticsTable:
        async with self._database.transaction() as connection:
            return await statistic_rows.read_of_workloads(connection)

    async def statistics_of_pod(self, namespace: str, pod: str, workload: str, identity: str) -> StatisticsTable:
        async with self._database.transaction() as connection:
            return await statistic_rows.read_of_pod(connection, namespace, pod, workload, identity)

    async def record_usage(self, advance: UsageAdvance) -> None:
        async with self._database.transaction() as connection:
            await usage.record(connection, advance)

    async def usage_progress(self) -> Mapping[str, PartitionProgress]:
        async with self._database.transaction() as connection:
            return await usage.progress(connection)

    async def recent_blocks(self, since: int) -> Sequence[SampleBlock]:
        async with self._database.transaction() as connection:
            return await usage.recent_blocks(connection, since)

    async def peak_summary(self, hours: Collection[int], since_hour: int) -> PeakSummary:
        async with self._database.transaction() as connection:
            return await peaks.summary(connection, hours, since_hour)

    async def hourly_peaks(self, namespace: str, workload: str, since_hour: int) -> HourlyPeaks:
        async with self._database.transaction() as connection:
            return await peaks.of_workload(connection, namespace, workload, since_hour)

    async def peaks_of_hour(self, hour: int) -> HourlyPeaks:
        async with self._database.transaction() as connection:
            return await peaks.of_hour(connection, hour)

    async def record_headroom_scores(self, days: Sequence[DayScores]) -> None:
        async with self._database.transaction() as connection:
            await headroom_scores.record(connection, days)

    async def headroom_scores(self) -> Sequence[DayScores]:
        async with self._database.transaction() as connection:
            return await headroom_scores.of_days(connection)

    async def record_oom(self, record: OomRecord) -> bool:
        async with self._database.transaction() as connection:
            return await oom.remember(connection, record)

    async def knows_oom(self, pod_uid: str, container: str, finished_at: datetime) -> bool:
        async with self._database.transaction() as connection:
            return await oom.known(connection, pod_uid, container, finished_at)

    async def oom_records(self, since: datetime) -> Sequence[OomRecord]:
        async with self._database.transaction() as connection:
            return await oom.since(connection, since)

    async def record_outcomes(self, outcomes: Sequence[Outcome]) -> None:
        async with self._database.transaction() as connection:
            await audit.append(connection, outcomes)

    async def outcomes(self, since: datetime, limit: int = 1000) -> Sequence[Outcome]:
        async with self._database.transaction() as connection:
            return await audit.newest(connection, since, limit)

    async def outcomes_of_pod(self, namespace: str, pod: str, since: datetime) -> Sequence[Outcome]:
        async with self._database.transaction() as connection:
            return await audit.of_pod(connection, namespace, pod, since)

    async def evictions_since(self, since: datetime) -> Sequence[Outcome]:
        async with self._database.transaction() as connection:
            return await audit.evictions_done(connection, since)

    async def overrides(self) -> Mapping[tuple[str, WorkloadRef], Overrides]:
        async with self._database.transaction() as connection:
            return await overrides.of_workloads(connection)

    async def put_override(self, namespace: str, workload: WorkloadRef, override: Overrides | None) -> None:
        async with self._database.transaction() as connection:
            await overrides.put(connection, namespace, workload, override)

    async def paused(self) -> bool:
        async with self._database.transaction() as connection:
            return await overrides.paused(connection)

    async def set_paused(self, paused: bool) -> None:
        async with self._database.transaction() as connection:
            await overrides.set_paused(connection, paused)

    async def refused_targets(self) -> Mapping[str, RefusedTarget]:
        async with self._database.transaction() as connection:
            return await refusals.of_pods(connection)

    async def remember_refused(self, refused: Sequence[RefusedTarget]) -> None:
        async with self._database.transaction() as connection:
            await refusals.remember(connection, refused)

    async def remember_original_sizes(self, originals: Sequence[OriginalSizes]) -> None:
        async with self._database.transaction() as connection:
            await original_sizes.remember(connection, originals)

    async def original_sizes(self) -> Mapping[str, OriginalSizes]:
        async with self._database.transaction() as connection:
            return await original_sizes.of_pods(connection)

    async def save_packing(self, plan: PackingPlan) -> None:
        async with self._database.transaction() as connection:
            await packing_plans.save(connection, plan)

    async def packing(self) -> PackingPlan | None:
        async with self._database.transaction() as connection:
            return await packing_plans.last(connection)

    async def steered(self) -> Sequence[Steering]:
        async with self._database.transaction() as connection:
            return await packing_plans.steered(connection)

    async def prune(self, now: datetime) -> None:
        kept = RETENTION
        async with self._database.transaction() as connection:
            await statistic_rows.prune(connection, int((now - kept.statistics).timestamp()))
            await usage.prune(
                connection,
                blocks_until=int((now - kept.sample_blocks).timestamp()),
                partitions_before=int((now - kept.partitions).timestamp()),
            )
            await peaks.prune(connection, int((now - kept.hourly_peaks).timestamp()) // 3600)
            await headroom_scores.prune(connection, int((now - kept.headroom_scores).timestamp()) // 86400)
            await oom.prune(connection, now - kept.oom_records)
            await audit.prune(connection, now - kept.outcomes)
            await refusals.prune(connection, now - kept.refused_targets)
            await original_sizes.prune(connection, now - kept.original_sizes)
            await packing_plans.prune(connection, now - kept.packing_plans)

    async def clear(self) -> None:
        """Drop every record, for a store of made-up ones."""
        names = ", ".join(table.name for table in metadata.sorted_tables)
        async with self._database.transaction() as connection:
            await connection.execute(text(f"TRUNCATE {names}"))
