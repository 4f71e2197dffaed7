"""A pooler of connections, as managed databases have one, may carry out each transaction on another connection."""

import asyncio
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import text

from cruise.adapters.store.connection import Database, convert_to_dsn, get_driver_connection
from cruise.adapters.store.postgres import PostgresStore, open_store
from tests.postgres_servers import PASSWORD, DebianServer, change, free_port, open_directory

NOW = datetime(2026, 3, 4, tzinfo=UTC)
_SETTINGS = """
[databases]
cruise = host=127.0.0.1 port={server_port} dbname=pooled user=postgres password='{password}'
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 3
"""


@contextmanager
def pooled(server: DebianServer) -> Iterator[str]:
    """Yield the URL of a PgBouncer in front of an empty database; skips where it is not installed."""
    program = shutil.which("pgbouncer")
    if program is None:
        pytest.skip("no PgBouncer on this machine (apt install pgbouncer)")
    with open_directory() as directory:
        port, settings = free_port(), directory / "pgbouncer.ini"
        settings.write_text(_SETTINGS.format(server_port=server.port, port=port, password=PASSWORD))
        change(server.url, "CREATE DATABASE pooled")
        # It refuses to run as root.
        user = ("-u", "nobody") if os.geteuid() == 0 else ()
        running = subprocess.Popen([program, "-q", *user, str(settings)], stderr=subprocess.DEVNULL)
        try:
            yield f"postgresql://postgres@127.0.0.1:{port}/cruise"
        finally:
            running.terminate()
            running.wait()
            change(server.url, "DROP DATABASE pooled WITH (FORCE)")


async def test_nothing_outlives_a_transaction_on_the_server(debian_postgres: DebianServer):
    database = Database(convert_to_dsn(debian_postgres.url), statement_timeout=timedelta(seconds=7))
    try:
        async with database.transaction() as connection:
            driver = await get_driver_connection(connection)
            for number in range(3):
                await connection.execute(text("SELECT :number + 1"), {"number": number})
                await driver.fetch("SELECT $1::int + 1", number)
            limits = await connection.execute(
                text(
                    "SELECT current_setting('statement_timeout'),"
                    " current_setting('idle_in_transaction_session_timeout')"
                )
            )
            assert tuple(limits.one()) == ("7s", "10s")
        assert await driver.fetchval("SELECT count(*) FROM pg_prepared_statements") == 0
        assert await driver.fetchval("SELECT current_setting('statement_timeout')") == "0"
    finally:
        await database.close()


async def test_two_processes_share_the_connections_of_a_pooler(debian_postgres: DebianServer):
    async def work(store: PostgresStore) -> None:
        for _ in range(10):
            await store.is_paused()
            await store.record_lost_usage(1)
            await store.prune(NOW)

    with pooled(debian_postgres) as url:
        async with open_store(url, Path("/nowhere"), print) as one, open_store(url, Path("/nowhere"), print) as other:
            await asyncio.gather(*(work(store) for store in (one, other) for _ in range(3)))
            assert (await one.read_epoch_and_lost_usage()).epoch == 60
