"""The schema brought up to date at start by who may, by one process at a time."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, func, inspect, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from cruise.adapters.store.tables import schema_promise
from cruise.errors import BadInput, Unavailable

MIGRATION_LOCK = 0x6372_7569_7365_0001  # "cruise", 1
_MAY_MAKE_TABLES = text("SELECT has_schema_privilege(current_schema(), 'CREATE')")


async def bring_up_to_date(connection: AsyncConnection, place: str) -> None:
    """Run the migrations that are missing, in the connection's transaction: all of them or none.

    A schema that is newer is used as it is where it says that it may be; elsewhere BadInput is raised, and Unavailable
    where it is older and this role may make no tables: another role owns it then. `place` names the database.
    """
    await connection.execute(select(func.pg_advisory_xact_lock(MIGRATION_LOCK)))
    await connection.run_sync(_upgrade, place)


def migrations() -> Path:
    """Return the directory of the migrations: inside an installed package, else beside it in the checkout."""
    packaged = Path(__file__).parent / "migrations"
    return packaged if packaged.is_dir() else Path(__file__).parents[3] / "migrations"


def configuration() -> Config:
    """Return Alembic's configuration for these migrations."""
    config = Config()
    config.set_main_option("script_location", str(migrations()).replace("%", "%%"))
    return config


def current_revision(connection: Connection) -> str | None:
    """Return the revision of the schema, None where there is none yet."""
    return MigrationContext.configure(connection).get_current_revision()


def _usable_from(connection: Connection) -> str | None:
    """Return the oldest schema whose release can use this one, None where nothing is promised."""
    if not inspect(connection).has_table(schema_promise.name):
        return None
    promised: str | None = connection.scalar(select(schema_promise.c.usable_from))
    return promised


def _upgrade(connection: Connection, place: str) -> None:
    config = configuration()
    config.attributes["connection"] = connection
    scripts = ScriptDirectory.from_config(config)
    current = current_revision(connection)
    if current == scripts.get_current_head():
        return
    if current is not None and current not in {script.revision for script in scripts.walk_revisions()}:
        usable_from, head = _usable_from(connection), scripts.get_current_head() or ""
        if usable_from is not None and usable_from <= head:
            return
        raise BadInput(
            f"the schema of Postgres at {place} ({current}) is newer than this cruise ({head}) can use: "
            f"start one of schema {usable_from or current} or newer, or use another database"
        )
    if not connection.scalar(_MAY_MAKE_TABLES):
        raise Unavailable(
            f"the schema of Postgres at {place} is {current or 'not there'}, this cruise's is "
            f"{scripts.get_current_head()}: run `cruise migrate` as the role that owns it"
        )
    command.upgrade(config, "head")
