"""The roles of deploy/database.sql: the owner makes tables, serve writes rows, the webhook reads."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import asyncpg
import msgspec
import pytest

from cruise.adapters.store import PostgresStore, open_store
from cruise.adapters.store.connection import Database, dsn_of
from cruise.cli.program import main
from cruise.errors import CruiseError, Unavailable
from tests.builders import NOW, make_statistic, make_table
from tests.postgres_servers import DebianServer, change

ROLES = OWNER, SERVE, WEBHOOK = "cruise_owner", "cruise_serve", "cruise_webhook"
SQL = (Path(__file__).parents[3] / "deploy" / "database.sql").read_text()


@dataclass(frozen=True, slots=True)
class Prepared:
    """A database as deploy/database.sql leaves it."""

    server: DebianServer
    name: str
    password: str

    def url(self, role: str) -> str:
        return f"postgresql://{role}:{self.password}@127.0.0.1:{self.server.port}/{self.name}"

    def administrator(self) -> str:
        return self.server.url.removesuffix("postgres") + self.name


@pytest.fixture
def prepared(debian_postgres: DebianServer) -> Iterator[Prepared]:
    found = Prepared(debian_postgres, f"roles_{secrets.token_hex(4)}", secrets.token_hex(8))
    change(debian_postgres.url, f"CREATE DATABASE {found.name}")
    passwords = [f"ALTER ROLE {role} PASSWORD '{found.password}'" for role in ROLES]
    change(found.administrator(), SQL, *passwords)
    yield found
    change(debian_postgres.url, f"DROP DATABASE {found.name} WITH (FORCE)", f"DROP ROLE {', '.join(ROLES)}")


def give_up(line: str) -> None:
    raise Unavailable(line)


@asynccontextmanager
async def opened(prepared: Prepared, role: str) -> AsyncIterator[PostgresStore]:
    async with open_store(prepared.url(role), Path("/nowhere"), give_up) as store:
        yield store


def migrated(prepared: Prepared, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> object:
    """What `cruise migrate` says."""
    monkeypatch.setenv("CRUISE_DATABASE_URL", prepared.url(OWNER))
    assert main(["migrate", "--format", "json"]) == 0
    return msgspec.json.decode(capsys.readouterr().out)


async def attempted(url: str, statement: str) -> str:
    """How the server answers a statement."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statement)
    except asyncpg.PostgresError as error:
        return type(error).__name__
    finally:
        await connection.close()
    return "done"


def test_the_owner_migrates_and_the_others_wait_for_it(prepared, monkeypatch, capsys):
    async def told(role: str) -> str:
        with pytest.raises(Unavailable) as refused:
            async with opened(prepared, role):
                pass
        return str(refused.value)

    for role in (SERVE, WEBHOOK):
        assert "run `cruise migrate` as the role that owns it" in asyncio.run(told(role))
    first, second = (migrated(prepared, monkeypatch, capsys) for _ in range(2))
    assert isinstance(first, dict)
    assert first["before"] is None
    assert first["after"]
    assert second == {"before": first["after"], "after": first["after"]}
    asyncio.run(_served(prepared))


async def _served(prepared: Prepared) -> None:
    """Serve writes rows and changes no table; the webhook reads them and writes none."""
    table = make_table(make_statistic("web-1", "shop"))
    async with opened(prepared, SERVE) as serve, opened(prepared, WEBHOOK) as webhook:
        await serve.write_statistics(table)
        await serve.set_paused(True)
        await serve.prune(NOW)
        assert await webhook.paused() is True
        assert not await webhook.steered()
        assert (await webhook.read_statistics()).keys == table.keys
        assert await webhook.workload_statistics() is not None
        assert await webhook.overrides() == {}
        with pytest.raises(CruiseError, match="read-only transaction"):
            await webhook.set_paused(False)
    answers = {
        statement: [await attempted(prepared.url(role), statement) for role in (SERVE, WEBHOOK)]
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
    # The setting that makes its transactions read only is the role's to change; its rights are not.
    for statement in ("INSERT INTO control DEFAULT VALUES", "UPDATE control SET paused = false", "DELETE FROM outcome"):
        found = await attempted(prepared.url(WEBHOOK), f"BEGIN READ WRITE; {statement}")
        assert found == "InsufficientPrivilegeError", statement


async def test_a_statement_that_waits_for_another_ends_in_time(debian_postgres: DebianServer):
    holder = await asyncpg.connect(debian_postgres.url)
    database = Database(dsn_of(debian_postgres.url), statement_timeout=timedelta(seconds=1))
    try:
        await holder.execute("SELECT pg_advisory_lock(77)")
        with pytest.raises(Unavailable, match=r"statement timeout|no answer in time"):
            async with database.transaction() as connection:
                await connection.exec_driver_sql("SELECT pg_advisory_xact_lock(77)")
        async with database.transaction() as connection:
            found = await connection.exec_driver_sql("SHOW idle_in_transaction_session_timeout")
            assert found.scalar() == "1s"
    finally:
        await holder.close()
        await database.close()
