"""The store in Postgres: every method is one transaction."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import chain, repeat
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from alembic.script import ScriptDirectory
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from cruise.adapters.store import (
    audit,
    packing_plans,
    peaks,
    pods,
    statistics,
    usage,
)
from cruise.adapters.store import (
    audit as interventions,
)
from cruise.adapters.store import (
    peaks as cluster_hours,
)
from cruise.adapters.store import (
    peaks as headroom,
)
from cruise.adapters.store import (
    usage as history,
)
from cruise.adapters.store.connection import (
    CONNECTION_TIMEOUT,
    STATEMENT_TIMEOUT,
    Database,
    convert_to_dsn,
    describe_database,
    verifies_server,
)
from cruise.adapters.store.embedded_postgres import EmbeddedPostgres
from cruise.adapters.store.schema import build_alembic_configuration, metadata, migrate_schema, read_current_revision
from cruise.domain.preflight import StoreFacts
from cruise.domain.records import RETENTION, DatabaseHistory, get_clock_hour
from cruise.errors import BadInputError, UnavailableError

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
            epoch = await history.advance_epoch(connection, self.epoch)
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
        async with self._database.transaction(CONNECTION_TIMEOUT) as connection:
            found = await history.read_history(connection, self.epoch)
        self.expect(found.epoch)
        return found

    async def note_lost(self, until: int, *, regained: bool = False) -> None:
        async with self._database.transaction(CONNECTION_TIMEOUT) as connection:
            epoch = await history.record_lost_usage(connection, self.epoch, until, regained=regained)
        self.expect(epoch)

    write_statistics = _one_transaction(statistics.write_statistics)
    read_statistics = _one_transaction(statistics.read_all_statistics)
    workload_statistics = _one_transaction(statistics.read_workload_statistics)
    statistics_of_pod = _one_transaction(statistics.read_pod_statistics, CONNECTION_TIMEOUT)
    record_usage = _advancing(usage.insert_usage)
    usage_progress = _one_transaction(usage.read_progress)
    recent_blocks = _one_transaction(usage.read_recent_blocks)
    peak_summary = _one_transaction(peaks.summarize_peaks)
    hourly_peaks = _one_transaction(peaks.read_peaks_of_workload)
    peaks_of_hour = _one_transaction(peaks.read_peaks_of_hour)
    record_sharing = _one_transaction(headroom.write_sharing, CONNECTION_TIMEOUT)
    record_risk_days = _one_transaction(headroom.insert_risk_days)
    risk_days = _one_transaction(headroom.read_risk_days)
    record_cluster_hour = _one_transaction(cluster_hours.insert_cluster_hour, CONNECTION_TIMEOUT)
    cluster_hours = _one_transaction(cluster_hours.read_cluster_hours, CONNECTION_TIMEOUT)
    record_oom = _advancing(pods.insert_oom_record, CONNECTION_TIMEOUT)
    has_oom_record = _one_transaction(pods.has_oom_record, CONNECTION_TIMEOUT)
    oom_records = _one_transaction(pods.read_oom_records)
    begin_writes = _advancing(audit.insert_intents, CONNECTION_TIMEOUT)
    check_writable = _one_transaction(audit.check_audit_writable, CONNECTION_TIMEOUT)
    open_intents = _one_transaction(audit.read_open_intents, CONNECTION_TIMEOUT)
    record_outcomes = _one_transaction(audit.append_outcomes)
    outcomes = _one_transaction(audit.read_newest_outcomes)
    outcomes_of_pod = _one_transaction(audit.read_outcomes_of_pod, CONNECTION_TIMEOUT)
    record_user_action = _one_transaction(interventions.insert_user_action, CONNECTION_TIMEOUT)
    user_actions = _one_transaction(interventions.read_newest_user_actions, CONNECTION_TIMEOUT)
    evictions_since = _one_transaction(audit.read_evictions_since, CONNECTION_TIMEOUT)
    put_override = _one_transaction(pods.write_override, CONNECTION_TIMEOUT)
    paused = _one_transaction(pods.read_paused, CONNECTION_TIMEOUT)
    set_paused = _one_transaction(pods.write_paused, CONNECTION_TIMEOUT)
    overrides = _one_transaction(pods.read_overrides, CONNECTION_TIMEOUT)
    refused_targets = _one_transaction(pods.read_refused_resizes, CONNECTION_TIMEOUT)
    remember_refused = _one_transaction(pods.write_refused_resizes, CONNECTION_TIMEOUT)
    remember_original_sizes = _one_transaction(pods.insert_original_sizes)
    original_sizes = _one_transaction(pods.read_original_sizes)
    signing_keys = _one_transaction(pods.read_signing_keys, CONNECTION_TIMEOUT)
    save_packing = _one_transaction(packing_plans.write_plan, CONNECTION_TIMEOUT)
    packing = _one_transaction(packing_plans.read_last_plan, CONNECTION_TIMEOUT)
    placement_hints = _one_transaction(packing_plans.read_placement_hints, CONNECTION_TIMEOUT)

    async def prune(self, now: datetime) -> None:
        kept = RETENTION
        async with self._database.transaction() as connection:
            await statistics.prune_statistics(connection, int((now - kept.statistics).timestamp()))
            await statistics.prune_revisions(connection, int((now - kept.statistics).timestamp()))
            await usage.prune_usage(
                connection,
                blocks_until=int((now - kept.sample_blocks).timestamp()),
                partitions_before=int((now - kept.partitions).timestamp()),
            )
            await peaks.prune_peaks(connection, int((now - kept.hourly_peaks).timestamp()) // 3600)
            await headroom.prune_risk_days(connection, int((now - kept.risk_days).timestamp()) // 86400)
            await cluster_hours.prune_cluster_hours(connection, get_clock_hour(now - kept.cluster_hours))
            await pods.prune_oom_records(connection, now - kept.oom_records)
            await audit.prune_outcomes(connection, now - kept.outcomes)
            await interventions.prune_user_actions(connection, now - kept.user_actions)
            await pods.prune_refused_resizes(connection, now - kept.refused_targets)
            await pods.prune_original_sizes(connection, now - kept.original_sizes)
            await pods.renew_signing_key(connection, now)
            await packing_plans.prune_plans(connection, now - kept.packing_plans)

    async def clear(self) -> None:
        """Drop every record, for a store of made-up ones."""
        names = ", ".join(table.name for table in metadata.sorted_tables)
        async with self._database.transaction() as connection:
            await connection.execute(text(f"TRUNCATE {names}"))
        self.epoch = 0


# Opening the store: wait for the server, bring the schema up to date, hand it out, close it.

_PAUSES_SECONDS = (0.2, 0.5, 1.0, 2.0, 4.0, 8.0)
_LONGEST_PAUSE_SECONDS = 15.0


@asynccontextmanager
async def open_store(
    database_url: str | None,
    data_dir: Path,
    on_wait: Callable[[str], None],
    statement_timeout: timedelta = STATEMENT_TIMEOUT,
) -> AsyncIterator[PostgresStore]:
    """Open the database of a URL, or without one the embedded Postgres of `data_dir`, which is started for it.

    Waits as long as the server is not there, or its schema is behind and another role owns it, and calls `on_wait` each
    time the reason changes. Raises BadInputError for what waiting does not heal, and Unavailable where the embedded server
    does not start.
    """
    if database_url is None:
        server = EmbeddedPostgres(data_dir)
        database = Database(server.dsn, server, statement_timeout)
    else:
        database = Database(convert_to_dsn(database_url), statement_timeout=statement_timeout)
    try:
        await database.start_server()
        await _ready(database, on_wait)
        yield PostgresStore(database)
    finally:
        await database.close()


async def _ready(database: Database, on_wait: Callable[[str], None]) -> None:
    said = ""
    for pause_seconds in chain(_PAUSES_SECONDS, repeat(_LONGEST_PAUSE_SECONDS)):
        try:
            await database.check()
            async with database.transaction() as connection:
                await migrate_schema(connection, database.location)
        except UnavailableError as error:
            if str(error) != said:
                said = str(error)
                on_wait(f"waiting: {said}")
            await asyncio.sleep(pause_seconds)
        else:
            if said:
                on_wait(f"Postgres at {database.location} is there")
            return


# Whether the database can be used, and how old its tables are; nothing is made or changed there.


async def probe_store(database_url: str | None, data_dir: Path) -> StoreFacts:
    """Look at the database of a URL, or without one at the embedded one of `data_dir`, which is started if it exists.

    What keeps it from being used is in the answer.
    """
    if database_url is None:
        place = f"an embedded Postgres under {data_dir}"
        if not (data_dir / "postgres").exists():
            return StoreFacts(place, embedded=True, exists=False)
        server = EmbeddedPostgres(data_dir)
        return await _looked_at(Database(server.dsn, server), place, embedded=True)
    try:
        dsn = convert_to_dsn(database_url)
    except BadInputError as error:
        return StoreFacts("database_url", embedded=False, problem=str(error))
    found = await _looked_at(Database(dsn), f"Postgres at {describe_database(dsn)}", embedded=False)
    return replace(found, verified=verifies_server(dsn))


async def _looked_at(database: Database, place: str, embedded: bool) -> StoreFacts:
    try:
        await database.start_server()
        await database.check()
        async with database.transaction() as connection:
            revision = await connection.run_sync(read_current_revision)
            risk_days = await peaks.read_risk_days(connection) if revision == _head() else []
    except (BadInputError, UnavailableError) as error:
        return StoreFacts(place, embedded, problem=str(error))
    finally:
        await database.close()
    return StoreFacts(place, embedded, revision=revision, expected=_head(), risk_days=risk_days)


def _head() -> str | None:
    return ScriptDirectory.from_config(build_alembic_configuration()).get_current_head()
