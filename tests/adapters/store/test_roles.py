"""The roles of deploy/database.sql: the owner creates tables, serve writes rows, the webhook reads."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import asyncpg
import msgspec
import pytest

from cruise.adapters.store.connection import Database, convert_to_dsn, end_hung_sessions
from cruise.adapters.store.postgres import PostgresStore, open_store
from cruise.adapters.store.schema import migrate_schema
from cruise.cli.program import main
from cruise.errors import CruiseError, UnavailableError
from tests.builders import NOW, make_statistic, make_table
from tests.postgres_servers import DebianServer, LeastRoles, least_roles


@pytest.fixture
def roles(debian_postgres: DebianServer) -> Iterator[LeastRoles]:
    with least_roles(debian_postgres) as found:
        yield found


def give_up(line: str) -> None:
    raise UnavailableError(line)


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[PostgresStore]:
    async with open_store(url, Path("/nowhere"), give_up) as store:
        yield store


def run_migrate(roles: LeastRoles, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> object:
    """Return the output of `cruise migrate`."""
    monkeypatch.setenv("CRUISE_DATABASE_URL", roles.owner)
    assert main(["migrate", "--format", "json"]) == 0
    return msgspec.json.decode(capsys.readouterr().out)


async def try_statement(url: str, statement: str) -> str:
    """Return the name of the error that the statement raises, or "done"."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statement)
    except asyncpg.PostgresError as error:
        return type(error).__name__
    finally:
        await connection.close()
    return "done"


def test_the_owner_migrates_and_other_roles_wait(roles, monkeypatch, capsys):
    async def report(url: str) -> str:
        with pytest.raises(UnavailableError) as refused:
            async with opened(url):
                pass
        return str(refused.value)

    for url in (roles.serve, roles.webhook):
        assert "run `cruise migrate` as the role that owns the schema" in asyncio.run(report(url))
    first, second = (run_migrate(roles, monkeypatch, capsys) for _ in range(2))
    assert isinstance(first, dict)
    assert first["before"] is None
    assert first["after"]
    assert second == {"before": first["after"], "after": first["after"]}
    asyncio.run(_served(roles))


async def _served(roles: LeastRoles) -> None:
    """Check that serve may write rows but change no table, and that the webhook may only read."""
    table = make_table(make_statistic("web-1", "shop"))
    async with opened(roles.serve) as serve, opened(roles.webhook) as webhook:
        await serve.write_statistics(table)
        await serve.set_paused(True)
        await serve.prune(NOW)
        assert await webhook.is_paused() is True
        assert not await webhook.read_placement_hints()
        assert (await webhook.read_statistics()).keys == table.keys
        assert await webhook.read_workload_statistics() is not None
        assert await webhook.read_paused_workloads() == {}
        with pytest.raises(CruiseError, match="read-only transaction"):
            await webhook.set_paused(False)
    answers = {
        statement: [await try_statement(url, statement) for url in (roles.serve, roles.webhook)]
        for statement in (
            "CREATE TABLE own (a int)",
            "DROP TABLE control",
            "ALTER TABLE control ADD COLUMN a int",
            "TRUNCATE control",
            "CREATE ROLE other",
            "COPY control TO PROGRAM 'true'",
            "SELECT pg_read_file('/etc/passwd')",
        )
    }
    refused = ["InsufficientPrivilegeError"] * 2
    read_only = ["InsufficientPrivilegeError", "ReadOnlySQLTransactionError"]
    assert {statement: found for statement, found in answers.items() if found not in (refused, read_only)} == {}
    # A role may switch off its read-only setting, but it cannot grant itself rights.
    for statement in ("INSERT INTO control DEFAULT VALUES", "UPDATE control SET paused = false", "DELETE FROM audit"):
        found = await try_statement(roles.webhook, f"BEGIN READ WRITE; {statement}")
        assert found == "InsufficientPrivilegeError", statement


async def test_a_statement_that_waits_for_a_lock_times_out(debian_postgres: DebianServer):
    holder = await asyncpg.connect(debian_postgres.url)
    database = Database(convert_to_dsn(debian_postgres.url), statement_timeout=timedelta(seconds=1))
    try:
        await holder.execute("SELECT pg_advisory_lock(77)")
        with pytest.raises(UnavailableError, match=r"statement timeout|no answer in time"):
            async with database.transaction() as connection:
                await connection.exec_driver_sql("SELECT pg_advisory_xact_lock(77)")
    finally:
        await holder.close()
        await database.close()


async def test_a_short_transaction_limits_its_statements_on_the_server_too(debian_postgres: DebianServer):
    database = Database(convert_to_dsn(debian_postgres.url), statement_timeout=timedelta(seconds=7))
    try:
        for timeout, expected in ((timedelta(seconds=3), "3s"), (timedelta(seconds=9), "7s"), (None, "7s")):
            async with database.transaction(timeout) as connection:
                found = await connection.exec_driver_sql("SHOW statement_timeout")
                assert found.scalar() == expected
    finally:
        await database.close()


@pytest.mark.parametrize("place", ["within a statement", "within a COPY"])
async def test_the_sessions_of_clients_that_hang_where_no_limit_applies_are_ended(
    debian_postgres: DebianServer, place: str
):
    database, dsn = Database(convert_to_dsn(debian_postgres.url)), debian_postgres.url
    # Its own connection: the test leaves it in the middle of a message.
    hung = await asyncpg.connect(dsn, server_settings={"application_name": "cruise"})
    released = asyncio.Event()

    async def silent_rows() -> AsyncIterator[tuple[int]]:
        yield (1,)
        await released.wait()

    try:
        await hung.execute("CREATE TABLE hung (a int)")
        transaction = hung.transaction()
        await transaction.start()
        await hung.execute("SELECT pg_advisory_xact_lock(79)")
        if place == "within a COPY":
            copying = asyncio.ensure_future(hung.copy_records_to_table("hung", records=silent_rows()))
        else:
            await hung.prepare("SELECT $1::int")
        await asyncio.sleep(1.5)
        async with database.transaction() as connection:
            assert await end_hung_sessions(connection, timedelta(minutes=1)) == 0
            assert await end_hung_sessions(connection, timedelta(seconds=1)) == 1
        async with database.transaction(timedelta(seconds=10)) as connection:
            await connection.exec_driver_sql("SELECT pg_advisory_xact_lock(79)")
        released.set()
        if place == "within a COPY":
            with pytest.raises(Exception, match=r"terminat|closed"):
                await copying
    finally:
        hung.terminate()
        async with database.transaction() as connection:
            await connection.exec_driver_sql("DROP TABLE hung")
        await database.close()


async def test_a_migration_does_not_wait_for_a_long_read(debian_postgres: DebianServer):
    database, reader = Database(convert_to_dsn(debian_postgres.url)), await asyncpg.connect(debian_postgres.url)
    try:
        async with database.transaction() as connection:
            await migrate_schema(connection, database.location)
        reading = reader.transaction()
        await reading.start()
        await reader.execute("SELECT FROM pod_statistic")
        with pytest.raises(UnavailableError, match="lock timeout"):
            async with database.transaction() as connection:
                await migrate_schema(connection, database.location)
                await connection.exec_driver_sql("ALTER TABLE pod_statistic ADD COLUMN another int")
    finally:
        await reader.close()
        await database.close()


async def test_a_client_that_hangs_in_a_transaction_loses_its_locks(debian_postgres: DebianServer):
    hanging = Database(convert_to_dsn(debian_postgres.url))
    other = Database(convert_to_dsn(debian_postgres.url))
    lock = "SELECT pg_advisory_xact_lock(78)"
    try:
        with pytest.raises(UnavailableError):
            async with hanging.transaction(idle_timeout=timedelta(seconds=1)) as held:
                await held.exec_driver_sql(lock)
                async with other.transaction() as connection:
                    await connection.exec_driver_sql(lock)
    finally:
        await hanging.close()
        await other.close()
