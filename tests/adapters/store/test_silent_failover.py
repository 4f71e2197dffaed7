"""Dead connections that stay open are detected within seconds and dropped."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import text

from cruise.adapters.store.connection import CONNECTION_TIMEOUT, POOL_SIZE, Database, convert_to_dsn
from cruise.adapters.store.embedded_postgres import EmbeddedPostgres
from cruise.adapters.store.postgres import PostgresStore, open_store
from cruise.errors import CruiseError, UnavailableError
from tests.e2e.live.faults import SocketProxy, proxied_database

# A wait for a dead connection ends long before the statement timeout.
WITHIN_SECONDS = 20.0


@pytest.fixture
def proxied(embedded_postgres: Path) -> Iterator[tuple[str, SocketProxy]]:
    with proxied_database(EmbeddedPostgres(embedded_postgres).dsn) as found:
        yield found


@pytest.fixture
async def store(proxied: tuple[str, SocketProxy]) -> AsyncIterator[PostgresStore]:
    async with open_store(proxied[0], Path("/nowhere"), print) as opened:
        yield opened


async def outcome_of(work: object) -> str:
    try:
        await work  # type: ignore[misc]
    except CruiseError as error:
        return str(error)
    return "done"


async def test_replaces_dead_idle_connections_within_one_ping(proxied: tuple[str, SocketProxy], store: PostgresStore):
    await asyncio.gather(*(store.is_paused() for _ in range(POOL_SIZE)))
    proxied[1].fail_over()
    async with asyncio.timeout(WITHIN_SECONDS):
        for _ in range(POOL_SIZE):
            assert await store.is_paused() is False


async def test_transactions_in_progress_end_when_a_connection_is_found_dead(proxied: tuple[str, SocketProxy]):
    database = Database(convert_to_dsn(proxied[0]))

    async def long() -> None:
        async with database.transaction() as connection:
            await connection.execute(text("SELECT pg_sleep(600)"))

    async def short() -> None:
        async with database.transaction(CONNECTION_TIMEOUT) as connection:
            await connection.execute(text("SELECT 1"))

    try:
        await asyncio.gather(short(), short())
        in_progress = asyncio.ensure_future(outcome_of(long()))
        await asyncio.sleep(0.5)
        proxied[1].fail_over()
        async with asyncio.timeout(WITHIN_SECONDS):
            await short()
            assert "Postgres at" in await in_progress
    finally:
        await database.close()


async def test_a_short_transaction_ends_in_time_wherever_it_hangs(proxied: tuple[str, SocketProxy]):
    database = Database(convert_to_dsn(proxied[0]))
    try:
        async with asyncio.timeout(WITHIN_SECONDS):
            with pytest.raises(UnavailableError, match="no answer in time"):
                async with database.transaction(timedelta(seconds=2)) as connection:
                    await connection.execute(text("SELECT 1"))
                    proxied[1].fail_over()
                    await connection.execute(text("SELECT 2"))
            async with database.transaction(timedelta(seconds=5)) as connection:
                assert await connection.scalar(text("SELECT 3")) == 3
    finally:
        await database.close()


async def test_closing_does_not_wait_for_dead_connections(proxied: tuple[str, SocketProxy]):
    database = Database(convert_to_dsn(proxied[0]))

    async def short() -> None:
        async with database.transaction(CONNECTION_TIMEOUT) as connection:
            await connection.execute(text("SELECT pg_sleep(0.1)"))

    await asyncio.gather(*(short() for _ in range(POOL_SIZE)))
    proxied[1].fail_over()
    async with asyncio.timeout(WITHIN_SECONDS):
        await database.close()
