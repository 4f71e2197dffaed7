"""Opening the store: wait for the server, bring the schema up to date, hand it out, close it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from itertools import chain, repeat
from pathlib import Path

from cruise.adapters.store.connection import STATEMENT_TIMEOUT, Database, dsn_of
from cruise.adapters.store.embedded_postgres import EmbeddedPostgres
from cruise.adapters.store.postgres import PostgresStore
from cruise.adapters.store.schema import bring_up_to_date
from cruise.errors import Unavailable

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
    time the reason changes. Raises BadInput for what waiting does not heal, and Unavailable where the embedded server
    does not start.
    """
    if database_url is None:
        server = EmbeddedPostgres(data_dir)
        database = Database(server.dsn, server, statement_timeout)
    else:
        database = Database(dsn_of(database_url), statement_timeout=statement_timeout)
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
                await bring_up_to_date(connection, database.place)
        except Unavailable as error:
            if str(error) != said:
                said = str(error)
                on_wait(f"waiting: {said}")
            await asyncio.sleep(pause_seconds)
        else:
            if said:
                on_wait(f"Postgres at {database.place} is there")
            return
