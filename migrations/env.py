"""Runs migrations: on the connection that cruise passes, or by hand with `alembic upgrade head`.

By hand, the database is `-x database_url=…`, else CRUISE_DATABASE_URL, else the embedded Postgres of CRUISE_DATA_DIR
or of the default data directory.
"""

import asyncio
import os
from pathlib import Path

from alembic import context
from sqlalchemy import Connection

from cruise.adapters.store.connection import Database, convert_to_dsn
from cruise.adapters.store.embedded_postgres import EmbeddedPostgres, get_default_data_dir
from cruise.adapters.store.schema import lock_for_migration, metadata


def migrate(connection: Connection) -> None:
    """Run the requested migrations on one connection."""
    context.configure(connection=connection, target_metadata=metadata)
    with context.begin_transaction():
        context.run_migrations()


async def migrate_by_hand() -> None:
    """Open the database that the environment names, and run the requested migrations in one transaction."""
    url = context.get_x_argument(as_dictionary=True).get("database_url") or os.environ.get("CRUISE_DATABASE_URL")
    if url:
        database = Database(convert_to_dsn(url))
    else:
        data_dir = os.environ.get("CRUISE_DATA_DIR")
        server = EmbeddedPostgres(Path(data_dir) if data_dir else get_default_data_dir(os.environ))
        database = Database(server.dsn, server)
    try:
        async with database.transaction() as connection:
            await lock_for_migration(connection)
            await connection.run_sync(migrate)
    finally:
        await database.close()


if context.is_offline_mode():
    context.configure(dialect_name="postgresql", target_metadata=metadata, literal_binds=True)
    with context.begin_transaction():
        context.run_migrations()
elif "connection" in context.config.attributes:
    migrate(context.config.attributes["connection"])
else:
    asyncio.run(migrate_by_hand())
