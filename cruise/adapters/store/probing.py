"""Whether the database can be used, and how old its tables are; nothing is made or changed there."""

from dataclasses import replace
from pathlib import Path

from alembic.script import ScriptDirectory

from cruise.adapters.store import headroom
from cruise.adapters.store.connection import Database, dsn_of, place_of, verifies
from cruise.adapters.store.embedded_postgres import EmbeddedPostgres
from cruise.adapters.store.schema import configuration, current_revision
from cruise.domain.preflight import StoreFacts
from cruise.errors import BadInput, Unavailable


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
        dsn = dsn_of(database_url)
    except BadInput as error:
        return StoreFacts("database_url", embedded=False, problem=str(error))
    found = await _looked_at(Database(dsn), f"Postgres at {place_of(dsn)}", embedded=False)
    return replace(found, verified=verifies(dsn))


async def _looked_at(database: Database, place: str, embedded: bool) -> StoreFacts:
    try:
        await database.start_server()
        await database.check()
        async with database.transaction() as connection:
            revision = await connection.run_sync(current_revision)
            risk_days = await headroom.risk_days(connection) if revision == _head() else []
    except (BadInput, Unavailable) as error:
        return StoreFacts(place, embedded, problem=str(error))
    finally:
        await database.close()
    return StoreFacts(place, embedded, revision=revision, expected=_head(), risk_days=risk_days)


def _head() -> str | None:
    return ScriptDirectory.from_config(configuration()).get_current_head()
