"""A server that is not there yet, that goes away, and schemas that others have made."""

import asyncio
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import text

from cruise.adapters.store.connection import Database, convert_to_dsn
from cruise.adapters.store.postgres import open_store
from cruise.adapters.store.schema import metadata
from cruise.domain.annotations import Overrides
from cruise.domain.policy import Mode
from cruise.domain.records import HeadroomSharing
from cruise.errors import BadInputError, UnavailableError
from tests.builders import make_ref, make_statistic, make_table
from tests.postgres_servers import dsn_below, emptied

ROOT = Path(__file__).parents[3]
OPEN_ONCE = """
import asyncio, sys
from pathlib import Path
from cruise.adapters.store import open_store

async def main():
    async with open_store(None, Path(sys.argv[1]), print) as store:
        print("paused:", await store.paused())

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


async def test_an_absent_server_is_waited_for_with_one_line_a_change(server):
    said: list[str] = []
    with server.away() as come_back:

        async def start_later() -> None:
            await asyncio.sleep(1.5)
            await asyncio.to_thread(come_back)

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(start_later())
            async with open_store(server.url, server.directory, said.append) as store:
                assert await store.paused() is False
    place = f"Postgres at 127.0.0.1:{server.port}/postgres"
    assert said[0] == f"waiting: {place}: nothing listens there"
    assert said[-1] == f"{place} is there"
    assert len(said) == len(set(said)) <= 3


async def test_a_server_lost_on_the_way_is_unavailable_and_found_again(server):
    async with open_store(server.url, server.directory, pytest.fail) as store:
        await store.set_paused(True)
        with server.away():
            for _ in range(2):
                with pytest.raises(UnavailableError, match=r"nothing listens there|closed|terminat"):
                    await store.paused()
        assert await store.paused() is True


async def test_two_processes_that_start_at_once_make_one_schema(data_dir):
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


async def test_the_migrations_make_the_schema_that_statements_name(data_dir):
    async with open_store(None, data_dir, pytest.fail):
        database = database_of(data_dir)
        async with database.transaction() as connection:
            difference = await connection.run_sync(
                lambda sync: compare_metadata(MigrationContext.configure(sync, opts={"compare_type": True}), metadata)
            )
        await database.close()
    # Indexes and constraints other than keys are stated in the migration alone.
    assert [change for change in difference if change[0] not in ("remove_index", "remove_constraint")] == []


async def test_a_schema_that_the_next_release_has_added_to_is_used_as_it_is(data_dir):
    async with open_store(None, data_dir, pytest.fail):
        pass
    database = database_of(data_dir)
    tables = [name for name in metadata.tables if name != "schema_promise"]
    # What a next release may do: columns with a default, and tables of its own.
    await run(database, *(f"ALTER TABLE {name} ADD COLUMN later bigint NOT NULL DEFAULT 0" for name in tables))
    await run(database, "CREATE TABLE later (id int)", "UPDATE alembic_version SET version_num = '9998'")
    table = make_table(make_statistic(), make_statistic(""))
    async with open_store(None, data_dir, pytest.fail) as store:
        await store.write_statistics(table)
        await store.record_sharing(HeadroomSharing(0.5, 0.5))
        await store.set_paused(True)
        assert await store.paused()
        found = await store.read_statistics()
        assert sorted(found.keys) == sorted(table.keys)
        assert found.sharing == HeadroomSharing(0.5, 0.5)
        await store.put_override("shop", make_ref("Deployment/web"), Overrides(mode=Mode.OFF))
        assert list(await store.overrides()) == [("shop", make_ref("Deployment/web"))]
        assert len(await store.signing_keys()) == 1
    # It is the next release's still.
    async with database.transaction() as connection:
        assert await connection.scalar(text("SELECT version_num FROM alembic_version")) == "9998"
    await database.close()


async def test_the_schema_of_the_release_before_is_brought_up_to_date_with_what_is_in_it(data_dir):
    async with open_store(None, data_dir, pytest.fail) as store:
        await store.set_paused(True)
    environment = {**os.environ, "CRUISE_DATA_DIR": str(data_dir)}
    done = subprocess.run(
        [sys.executable, "-m", "alembic", "downgrade", "-1"], cwd=ROOT, env=environment, check=False, text=True
    )
    assert done.returncode == 0
    async with open_store(None, data_dir, pytest.fail) as store:
        assert await store.paused()


@pytest.mark.parametrize("change", ["UPDATE schema_promise SET usable_from = '9999'", "DROP TABLE schema_promise"])
async def test_a_schema_from_the_future_is_refused_and_left_alone(data_dir, change):
    async with open_store(None, data_dir, pytest.fail) as store:
        await store.set_paused(True)
    database = database_of(data_dir)
    await run(database, "UPDATE alembic_version SET version_num = '9999'", change)
    with pytest.raises(
        BadInputError, match=r"schema .* \(9999\) is newer than this cruise \(.*\) can use: .* 9999"
    ) as refused:
        async with open_store(None, data_dir, pytest.fail):
            pass
    assert "\n" not in str(refused.value)
    async with database.transaction() as connection:
        assert await connection.scalar(text("SELECT paused FROM control")) is True
    await database.close()


@pytest.mark.parametrize("which", ["by URL", "embedded"])
async def test_alembic_by_hand_goes_up_and_down(server, data_dir, which):
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


async def test_a_server_that_is_too_old_is_refused(server):
    database = Database(convert_to_dsn(server.url))
    with pytest.raises(BadInputError, match=r"is version 1\d: cruise needs 99 or newer"):
        await database.check(oldest=99)
    await database.close()


async def test_a_role_that_may_make_no_tables_waits_for_the_one_that_may(server):
    database = Database(convert_to_dsn(server.url))
    await run(
        database,
        "DROP TABLE IF EXISTS alembic_version",
        "REVOKE CREATE ON SCHEMA public FROM PUBLIC",
        "CREATE ROLE reader LOGIN PASSWORD 'reader'",
    )
    await database.close()
    url = server.url.replace(server.url.split("//")[1].split("@")[0], "reader:reader")
    said: list[str] = []
    with pytest.raises(UnavailableError):
        async with open_store(url, server.directory, partial(give_up, said)):
            pass
    assert "is not there, this cruise's is" in said[0]
    assert said[0].endswith("run `cruise migrate` as the role that owns it")


def give_up(said: list[str], line: str) -> None:
    """Wait no longer."""
    said.append(line)
    raise UnavailableError(line)
