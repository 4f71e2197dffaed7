"""The store in Postgres: every method is one transaction."""

from collections.abc import Awaitable, Callable, Coroutine
from datetime import datetime, timedelta
from typing import Any, Concatenate, ParamSpec, TypeVar

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from cruise.adapters.store import (
    audit,
    cluster_hours,
    headroom,
    history,
    interventions,
    oom,
    original_sizes,
    overrides,
    packing_plans,
    peaks,
    refusals,
    revisions,
    signing_keys,
    statistic_rows,
    usage,
)
from cruise.adapters.store.connection import SHORT, Database
from cruise.adapters.store.tables import metadata
from cruise.domain.cluster_hours import hour_of
from cruise.domain.database_history import DatabaseHistory
from cruise.domain.retention import RETENTION

P = ParamSpec("P")
T = TypeVar("T")


def _one_transaction(
    work: Callable[Concatenate[AsyncConnection, P], Awaitable[T]], longest: timedelta | None = None
) -> Callable[Concatenate["PostgresStore", P], Coroutine[Any, Any, T]]:
    """Make a method that does this work in a transaction of its own, given up after `longest`."""

    async def method(self: "PostgresStore", /, *args: P.args, **kwargs: P.kwargs) -> T:
        async with self._database.transaction(longest) as connection:
            return await work(connection, *args, **kwargs)

    return method


def _advancing(
    work: Callable[Concatenate[AsyncConnection, P], Awaitable[T]], longest: timedelta | None = None
) -> Callable[Concatenate["PostgresStore", P], Coroutine[Any, Any, T]]:
    """Make a method that does this work and advances the epoch, last, since others wait for that row."""

    async def method(self: "PostgresStore", /, *args: P.args, **kwargs: P.kwargs) -> T:
        async with self._database.transaction(longest) as connection:
            done = await work(connection, *args, **kwargs)
            epoch = await history.advance(connection, self.epoch)
        self.expect(epoch)
        return done

    return method


class PostgresStore:
    """Implements `runtime.ports.Store`; every method may raise Unavailable, and then nothing of it is stored."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.epoch = 0

    def expect(self, epoch: int) -> None:
        self.epoch = max(self.epoch, epoch)

    async def history(self) -> DatabaseHistory:
        async with self._database.transaction(SHORT) as connection:
            found = await history.read(connection, self.epoch)
        self.expect(found.epoch)
        return found

    async def note_lost(self, until: int, *, regained: bool = False) -> None:
        async with self._database.transaction(SHORT) as connection:
            epoch = await history.note_lost(connection, self.epoch, until, regained=regained)
        self.expect(epoch)

    write_statistics = _one_transaction(statistic_rows.write)
    read_statistics = _one_transaction(statistic_rows.read_all)
    workload_statistics = _one_transaction(statistic_rows.read_of_workloads)
    statistics_of_pod = _one_transaction(statistic_rows.read_of_pod, SHORT)
    record_usage = _advancing(usage.record)
    usage_progress = _one_transaction(usage.progress)
    recent_blocks = _one_transaction(usage.recent_blocks)
    peak_summary = _one_transaction(peaks.summary)
    hourly_peaks = _one_transaction(peaks.of_workload)
    peaks_of_hour = _one_transaction(peaks.of_hour)
    record_sharing = _one_transaction(headroom.record_sharing, SHORT)
    record_risk_days = _one_transaction(headroom.record_risk_days)
    risk_days = _one_transaction(headroom.risk_days)
    record_cluster_hour = _one_transaction(cluster_hours.record, SHORT)
    cluster_hours = _one_transaction(cluster_hours.since, SHORT)
    record_oom = _advancing(oom.remember, SHORT)
    knows_oom = _one_transaction(oom.known, SHORT)
    oom_records = _one_transaction(oom.finished_since)
    begin_writes = _advancing(audit.begin, SHORT)
    check_writable = _one_transaction(audit.check_writable, SHORT)
    open_intents = _one_transaction(audit.not_ended, SHORT)
    record_outcomes = _one_transaction(audit.append)
    outcomes = _one_transaction(audit.newest)
    outcomes_of_pod = _one_transaction(audit.of_pod, SHORT)
    record_intervention = _one_transaction(interventions.record, SHORT)
    interventions = _one_transaction(interventions.newest, SHORT)
    evictions_since = _one_transaction(audit.evictions_begun, SHORT)
    put_override = _one_transaction(overrides.put, SHORT)
    paused = _one_transaction(overrides.paused, SHORT)
    set_paused = _one_transaction(overrides.set_paused, SHORT)
    overrides = _one_transaction(overrides.of_workloads, SHORT)
    refused_targets = _one_transaction(refusals.of_pods, SHORT)
    remember_refused = _one_transaction(refusals.remember, SHORT)
    remember_original_sizes = _one_transaction(original_sizes.remember)
    original_sizes = _one_transaction(original_sizes.of_pods)
    signing_keys = _one_transaction(signing_keys.latest_first, SHORT)
    save_packing = _one_transaction(packing_plans.save, SHORT)
    packing = _one_transaction(packing_plans.last, SHORT)
    steered = _one_transaction(packing_plans.steered, SHORT)

    async def prune(self, now: datetime) -> None:
        kept = RETENTION
        async with self._database.transaction() as connection:
            await statistic_rows.prune(connection, int((now - kept.statistics).timestamp()))
            await revisions.prune(connection, int((now - kept.statistics).timestamp()))
            await usage.prune(
                connection,
                blocks_until=int((now - kept.sample_blocks).timestamp()),
                partitions_before=int((now - kept.partitions).timestamp()),
            )
            await peaks.prune(connection, int((now - kept.hourly_peaks).timestamp()) // 3600)
            await headroom.prune(connection, int((now - kept.risk_days).timestamp()) // 86400)
            await cluster_hours.prune(connection, hour_of(now - kept.cluster_hours))
            await oom.prune(connection, now - kept.oom_records)
            await audit.prune(connection, now - kept.outcomes)
            await interventions.prune(connection, now - kept.interventions)
            await refusals.prune(connection, now - kept.refused_targets)
            await original_sizes.prune(connection, now - kept.original_sizes)
            await signing_keys.renew(connection, now)
            await packing_plans.prune(connection, now - kept.packing_plans)

    async def clear(self) -> None:
        """Drop every record, for a store of made-up ones."""
        names = ", ".join(table.name for table in metadata.sorted_tables)
        async with self._database.transaction() as connection:
            await connection.execute(text(f"TRUNCATE {names}"))
        self.epoch = 0
