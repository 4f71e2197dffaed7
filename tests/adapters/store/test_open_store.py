"""Database servers that are not running or stop, and schemas of other versions and roles."""

import asyncio
import subprocess
import sys
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import text

from cruise.adapters.store.connection import Database, convert_to_dsn
from cruise.adapters.store.postgres import open_store, probe_store
from cruise.adapters.store.schema import get_newest_revision, metadata
from cruise.domain.cluster import WorkloadRef
from cruise.domain.users import UserActionKind
from cruise.errors import BadInputError, UnavailableError
from tests.postgres_servers import dsn_below, emptied

ROOT = Path(__file__).parents[3]
OPEN_ONCE = """
import asyncio, sys
from pathlib import Path
from cruise.adapters.store import open_store

async def main():
    async with open_store(None, Path(sys.argv[1]), print) as store:
        print("paused:", await store.is_paused())

asyncio.run(main())
"""


@pytest.fixture
def server(debian_postgres):
    emptied(debian_postgres.url)
    return debian_postgres


@pytest.fixture
def data_dir(embedded_postgres):
    emptied(dsn_below(embedded_postgres))
    return embedded_postgres


def database_of(data_dir: Path) -> Database:
    return Database(dsn_below(data_dir))


async def run(database: Database, *statements: str) -> None:
    async with database.transaction() as connection:
        for statement in statements:
            await connection.execute(text(statement))


async def test_waits_for_a_server_and_reports_each_reason_once(server):
    reported: list[str] = []
    with server.away() as start_again:

        async def start_later() -> None:
            await asyncio.sleep(1.5)
            await asyncio.to_thread(start_again)

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(start_later())
            async with open_store(server.url, server.directory, reported.append) as store:
                assert await store.is_paused() is False
    place = f"Postgres at 127.0.0.1:{server.port}/postgres"
    assert reported[0] == f"waiting: {place}: nothing listens there"
    assert reported[-1] == f"{place} is available"
    assert len(reported) == len(set(reported)) <= 3


async def test_reconnects_to_a_server_that_restarted(server):
    async with open_store(server.url, server.directory, pytest.fail) as store:
        await store.set_paused(True)
        with server.away():
            for _ in range(2):
                with pytest.raises(UnavailableError, match=r"nothing listens there|closed|terminat"):
                    await store.is_paused()
        assert await store.is_paused() is True


async def test_two_processes_that_start_together_create_one_schema(data_dir):
    database = database_of(data_dir)
    for _ in range(3):
        await run(database, "DROP SCHEMA public CASCADE", "CREATE SCHEMA public")
        processes = [
            await asyncio.create_subprocess_exec(
                sys.executable, "-c", OPEN_ONCE, str(data_dir), stdout=subprocess.PIPE, cwd=ROOT
            )
            for _ in range(2)
        ]
        printed = [(await process.communicate())[0] for process in processes]
        assert printed == [b"paused: False\n"] * 2
        assert [process.returncode for process in processes] == [0, 0]
    await database.close()


async def test_migrations_create_the_tables_of_the_code(data_dir):
    async with open_store(None, data_dir, pytest.fail):
        database = database_of(data_dir)
        async with database.transaction() as connection:
            difference = await connection.run_sync(
                lambda sync: compare_metadata(MigrationContext.configure(sync, opts={"compare_type": True}), metadata)
            )
        await database.close()
    # Only the migration has indexes and constraints other than keys.
    assert [change for change in difference if change[0] not in ("remove_index", "remove_constraint")] == []


async def test_refuses_a_schema_of_another_version_in_one_line_and_writes_nothing(data_dir):
    async with open_store(None, data_dir, pytest.fail) as store:
        await store.set_paused(True)
    database = database_of(data_dir)
    await run(database, "UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(
        BadInputError,
        match=r"schema .* has revision 9999, which this version of cruise does not know \(.*\d\): run the",
    ) as refused:
        async with open_store(None, data_dir, pytest.fail):
            pass
    assert "\n" not in str(refused.value)
    facts = await probe_store(None, data_dir)
    assert facts.problem == str(refused.value)
    async with database.transaction() as connection:
        assert await connection.scalar(text("SELECT paused FROM control")) is True
        assert await connection.scalar(text("SELECT version_num FROM alembic_version")) == "9999"
    await database.close()


@pytest.mark.parametrize("which", ["by URL", "embedded"])
async def test_alembic_by_hand_upgrades_and_downgrades(server, data_dir, which):
    url = server.url if which == "by URL" else None
    environment = {"CRUISE_DATABASE_URL": url} if url else {"CRUISE_DATA_DIR": str(data_dir)}
    database = Database(convert_to_dsn(url)) if url else database_of(data_dir)
    for direction, tables in (("downgrade base", 0), ("upgrade head", len(metadata.tables)), ("downgrade base", 0)):
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "alembic", *direction.split(), cwd=ROOT, env=environment
        )
        assert await process.wait() == 0
        async with database.transaction() as connection:
            found = await connection.scalar(
                text("SELECT count(*) FROM pg_tables WHERE schemaname = 'public' AND tablename <> 'alembic_version'")
            )
        assert found == tables
    await database.close()


async def migrate(data_dir: Path, direction: str) -> None:
    environment = {"CRUISE_DATA_DIR": str(data_dir)}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "alembic", *direction.split(), cwd=ROOT, env=environment
    )
    assert await process.wait() == 0


async def test_workloads_that_had_overrides_are_paused_and_user_actions_are_still_readable(data_dir):
    database = database_of(data_dir)
    await migrate(data_dir, "upgrade 0004")
    await run(
        database,
        """INSERT INTO workload_override VALUES ('shop', 'Deployment', 'web', '{"mode": "off"}')""",
        "INSERT INTO user_action (at, caller, kind, namespace, workload_kind, workload_name, detail) "
        "VALUES (now(), 'ann', 'put-override', 'shop', 'Deployment', 'web', '{}')",
    )
    await migrate(data_dir, "upgrade head")
    async with open_store(None, data_dir, print) as store:
        assert list(await store.read_paused_workloads()) == [("shop", WorkloadRef("Deployment", "web"))]
        [action] = await store.read_user_actions(datetime(2026, 1, 1, tzinfo=UTC))
        assert (action.caller, action.kind) == ("ann", UserActionKind.PUT_POLICY)
    await migrate(data_dir, "downgrade base")
    await database.close()


async def test_rejects_a_server_that_is_too_old(server):
    database = Database(convert_to_dsn(server.url))
    with pytest.raises(BadInputError, match=r"is version 1\d: cruise needs 99 or newer"):
        await database.check(min_version=99)
    await database.close()


async def test_a_role_that_may_not_create_tables_waits_for_the_owner(server):
    database = Database(convert_to_dsn(server.url))
    await run(
        database,
        "DROP TABLE IF EXISTS alembic_version",
        "REVOKE CREATE ON SCHEMA public FROM PUBLIC",
        "CREATE ROLE reader LOGIN PASSWORD 'reader'",
    )
    await database.close()
    url = server.url.replace(server.url.split("//")[1].split("@")[0], "reader:reader")
    reported: list[str] = []
    with pytest.raises(UnavailableError):
        async with open_store(url, server.directory, partial(give_up, reported)):
            pass
    assert f"does not exist, and this version of cruise needs {get_newest_revision()}" in reported[0]
    assert reported[0].endswith("run `cruise migrate` as the role that owns the schema")


def give_up(reported: list[str], line: str) -> None:
    """Stop waiting."""
    reported.append(line)
    raise UnavailableError(line)
