"""The database as `runtime.ports.StorePort`, and how it is opened and probed."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import chain, repeat
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from cruise.adapters.store import audit, peaks, records, statistics, usage
from cruise.adapters.store.connection import (
    CONNECTION_TIMEOUT,
    IDLE_TIMEOUT,
    STATEMENT_TIMEOUT,
    Database,
    convert_to_dsn,
    describe_database,
    end_hung_sessions,
    verifies_server,
)
from cruise.adapters.store.embedded_postgres import EmbeddedPostgres
from cruise.adapters.store.schema import get_newest_revision, metadata, migrate_schema, read_current_revision
from cruise.domain.preflight import StoreFacts
from cruise.domain.records import CONTAINER_STARTS_KEPT, RETENTION, EpochAndLostUsage, get_clock_hour
from cruise.errors import BadInputError, UnavailableError

P = ParamSpec("P")
T = TypeVar("T")

_RETRY_SECONDS = (0.2, 0.5, 1.0, 2.0, 4.0, 8.0)
_MAX_RETRY_SECONDS = 15.0


def _in_transaction(
    query: Callable[Concatenate[AsyncConnection, P], Awaitable[T]],
    timeout: timedelta | None = None,
    idle_timeout: timedelta = IDLE_TIMEOUT,
) -> Callable[Concatenate["PostgresStore", P], Coroutine[Any, Any, T]]:
    """Return a method that runs the query in its own transaction."""

    async def method(self: "PostgresStore", /, *args: P.args, **kwargs: P.kwargs) -> T:
        async with self._database.transaction(timeout, idle_timeout) as connection:
            return await query(connection, *args, **kwargs)

    return method


def _reading_all(
    query: Callable[Concatenate[AsyncConnection, P], Awaitable[T]],
) -> Callable[Concatenate["PostgresStore", P], Coroutine[Any, Any, T]]:
    """Return a method that reads many rows: it decodes them in its transaction, which holds no lock meanwhile."""
    return _in_transaction(query, idle_timeout=STATEMENT_TIMEOUT)


def _advancing_epoch(
    query: Callable[Concatenate[AsyncConnection, P], Awaitable[T]], timeout: timedelta | None = None
) -> Callable[Concatenate["PostgresStore", P], Coroutine[Any, Any, T]]:
    """Return a method that runs the query and then advances the epoch, last, because that row blocks other writers."""

    async def method(self: "PostgresStore", /, *args: P.args, **kwargs: P.kwargs) -> T:
        async with self._database.transaction(timeout) as connection:
            result = await query(connection, *args, **kwargs)
            epoch = await usage.advance_epoch(connection, self.epoch)
        self.expect_epoch(epoch)
        return result

    return method


class PostgresStore:
    """Implements `runtime.ports.StorePort`: each method is one transaction, and stores nothing if it raises."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.epoch = 0

    def expect_epoch(self, epoch: int) -> None:
        self.epoch = max(self.epoch, epoch)

    async def read_epoch_and_lost_usage(self) -> EpochAndLostUsage:
        async with self._database.transaction(CONNECTION_TIMEOUT) as connection:
            history = await usage.read_epoch_and_lost_usage(connection, self.epoch)
        self.expect_epoch(history.epoch)
        return history

    async def record_lost_usage(self, until: int, *, regained: bool = False) -> None:
        async with self._database.transaction(CONNECTION_TIMEOUT) as connection:
            epoch = await usage.record_lost_usage(connection, self.epoch, until, regained=regained)
        self.expect_epoch(epoch)

    write_statistics = _in_transaction(statistics.write_statistics)
    read_statistics = _reading_all(statistics.read_all_statistics)
    read_workload_statistics = _reading_all(statistics.read_workload_statistics)
    read_pod_statistics = _in_transaction(statistics.read_pod_statistics, CONNECTION_TIMEOUT)
    record_usage = _advancing_epoch(usage.insert_usage)
    read_usage_progress = _reading_all(usage.read_partition_progress)
    read_recent_blocks = _reading_all(usage.read_recent_blocks)
    read_container_starts = _reading_all(usage.read_container_starts)
    read_peak_summary = _reading_all(peaks.summarize_peaks)
    read_workload_peaks = _reading_all(peaks.read_peaks_of_workload)
    read_peaks_of_hour = _reading_all(peaks.read_peaks_of_hour)
    record_average_headroom_share = _in_transaction(peaks.write_average_headroom_share, CONNECTION_TIMEOUT)
    record_risk_days = _in_transaction(peaks.insert_risk_days)
    read_risk_days = _in_transaction(peaks.read_risk_days)
    store_hourly_totals = _in_transaction(peaks.insert_hourly_totals, CONNECTION_TIMEOUT)
    read_hourly_totals = _in_transaction(peaks.read_hourly_totals, CONNECTION_TIMEOUT)
    record_oom_kill = _advancing_epoch(records.insert_oom_record, CONNECTION_TIMEOUT)
    has_oom_record = _in_transaction(records.has_oom_record, CONNECTION_TIMEOUT)
    read_oom_records = _reading_all(records.read_oom_records)
    record_intents = _advancing_epoch(audit.insert_intents, CONNECTION_TIMEOUT)
    check_writable = _in_transaction(audit.check_audit_writable, CONNECTION_TIMEOUT)
    end_hung_sessions = _in_transaction(end_hung_sessions, CONNECTION_TIMEOUT)
    read_open_intents = _in_transaction(audit.read_open_intents, CONNECTION_TIMEOUT)
    record_outcomes = _in_transaction(audit.append_outcomes)
    read_outcomes = _reading_all(audit.read_newest_outcomes)
    read_audited_namespaces = _in_transaction(audit.read_audited_namespaces)
    read_done_outcomes = _reading_all(audit.read_done_outcomes)
    count_outcomes = _in_transaction(audit.count_outcomes)
    read_pod_outcomes = _in_transaction(audit.read_outcomes_of_pod, CONNECTION_TIMEOUT)
    record_user_action = _in_transaction(audit.insert_user_action, CONNECTION_TIMEOUT)
    read_user_actions = _in_transaction(audit.read_newest_user_actions, CONNECTION_TIMEOUT)
    read_evictions_since = _in_transaction(audit.read_evictions_since, CONNECTION_TIMEOUT)
    read_unanswered_resizes = _in_transaction(audit.read_unanswered_resizes, CONNECTION_TIMEOUT)
    write_workload_pause = _in_transaction(records.write_workload_pause, CONNECTION_TIMEOUT)
    is_paused = _in_transaction(records.read_global_pause, CONNECTION_TIMEOUT)
    set_paused = _in_transaction(records.write_global_pause, CONNECTION_TIMEOUT)
    read_paused_workloads = _in_transaction(records.read_paused_workloads, CONNECTION_TIMEOUT)
    read_refused_resizes = _in_transaction(records.read_refused_resizes, CONNECTION_TIMEOUT)
    record_refused_resizes = _in_transaction(records.write_refused_resizes, CONNECTION_TIMEOUT)
    record_original_sizes = _in_transaction(records.insert_original_sizes)
    read_original_sizes = _reading_all(records.read_original_sizes)
    read_last_resizes = _reading_all(records.read_last_resizes)
    read_signing_keys = _in_transaction(records.read_signing_keys, CONNECTION_TIMEOUT)
    write_packing_plan = _in_transaction(records.insert_packing_plan, CONNECTION_TIMEOUT)
    read_packing_plan = _in_transaction(records.read_last_plan, CONNECTION_TIMEOUT)
    read_placement_hints = _in_transaction(records.read_placement_hints, CONNECTION_TIMEOUT)

    async def prune(self, now: datetime) -> None:
        periods = RETENTION
        async with self._database.transaction() as connection:
            oldest = int((now - periods.statistics).timestamp())
            await statistics.prune_statistics(connection, int((now - periods.pod_statistics).timestamp()), oldest)
            await statistics.prune_revisions(connection, oldest)
            await usage.prune_usage(
                connection,
                blocks_until=int((now - periods.sample_blocks).timestamp()),
                partitions_before=int((now - periods.partitions).timestamp()),
            )
            await usage.prune_container_starts(
                connection, int((now - periods.container_starts).timestamp()), CONTAINER_STARTS_KEPT
            )
            await peaks.prune_peaks(connection, int((now - periods.hourly_peaks).timestamp()) // 3600)
            await peaks.prune_risk_days(connection, int((now - periods.risk_days).timestamp()) // 86400)
            await peaks.prune_cluster_hours(connection, get_clock_hour(now - periods.cluster_hours))
            await records.prune_oom_records(connection, now - periods.oom_records)
            await audit.prune_outcomes(connection, now - periods.outcomes)
            await audit.prune_user_actions(connection, now - periods.user_actions)
            await records.prune_refused_resizes(connection, now - periods.refused_resizes)
            await records.prune_original_sizes(connection, now - periods.original_sizes)
            await records.renew_signing_key(connection, now)
            await records.prune_packing_plans(connection, now - periods.packing_plans)

    async def clear(self) -> None:
        """Delete every record; for the database of a simulated cluster."""
        names = ", ".join(table.name for table in metadata.sorted_tables)
        async with self._database.transaction() as connection:
            await connection.execute(text(f"TRUNCATE {names}"))
        self.epoch = 0


@asynccontextmanager
async def open_store(
    database_url: str | None,
    data_dir: Path,
    on_wait: Callable[[str], None],
    statement_timeout: timedelta = STATEMENT_TIMEOUT,
) -> AsyncIterator[PostgresStore]:
    """Open the database of a URL; without a URL, start and open the embedded Postgres of `data_dir`.

    Waits while the server does not answer, or while migrations are missing that another role must run, and calls
    `on_wait` when the reason changes. Raises BadInputError for what waiting does not fix, and UnavailableError if the
    embedded server does not start.
    """
    if database_url is None:
        server = EmbeddedPostgres(data_dir)
        database = Database(server.dsn, server, statement_timeout)
    else:
        database = Database(convert_to_dsn(database_url), statement_timeout=statement_timeout)
    try:
        await database.start_server()
        await _wait_until_ready(database, on_wait)
        yield PostgresStore(database)
    finally:
        await database.close()


async def _wait_until_ready(database: Database, on_wait: Callable[[str], None]) -> None:
    reported = ""
    for retry_seconds in chain(_RETRY_SECONDS, repeat(_MAX_RETRY_SECONDS)):
        try:
            await database.check()
            async with database.transaction() as connection:
                await migrate_schema(connection, database.location)
        except UnavailableError as error:
            if str(error) != reported:
                reported = str(error)
                on_wait(f"waiting: {reported}")
            await asyncio.sleep(retry_seconds)
        else:
            if reported:
                on_wait(f"Postgres at {database.location} is available")
            return


async def probe_store(database_url: str | None, data_dir: Path) -> StoreFacts:
    """Report whether the database can be used and the revision of its schema; change nothing.

    Without a URL the database is the embedded one of `data_dir`, which is started if it exists.
    """
    if database_url is None:
        place = f"an embedded Postgres under {data_dir}"
        if not (data_dir / "postgres").exists():
            return StoreFacts(place, is_embedded=True, exists=False)
        server = EmbeddedPostgres(data_dir)
        return await _read_facts(Database(server.dsn, server), place, embedded=True)
    try:
        dsn = convert_to_dsn(database_url)
    except BadInputError as error:
        return StoreFacts("database_url", is_embedded=False, problem=str(error))
    facts = await _read_facts(Database(dsn), f"Postgres at {describe_database(dsn)}", embedded=False)
    return replace(facts, is_server_verified=verifies_server(dsn))


async def _read_facts(database: Database, place: str, embedded: bool) -> StoreFacts:
    newest = get_newest_revision()
    try:
        await database.start_server()
        await database.check()
        async with database.transaction(idle_timeout=STATEMENT_TIMEOUT) as connection:
            revision = await connection.run_sync(read_current_revision, database.location)
            is_current = revision == newest
            risk_days = await peaks.read_risk_days(connection) if is_current else []
            known = await statistics.read_all_statistics(connection) if is_current else None
    except (BadInputError, UnavailableError) as error:
        return StoreFacts(place, embedded, problem=str(error))
    finally:
        await database.close()
    return StoreFacts(
        place, embedded, revision=revision, expected_revision=newest, risk_days=risk_days, statistics=known
    )
