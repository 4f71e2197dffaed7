"""The tables of the database, and the migrations that create them (`migrations/versions`).

Key columns use the collation "C", so that they compare byte by byte in every locale. No index covers a column that
each pass updates, so that Postgres can keep the new row version on the same page (a HOT update).
"""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    DateTime,
    Double,
    Identity,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    func,
    select,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.ext.asyncio import AsyncConnection

from cruise.domain.usage import STATISTIC_COLUMNS
from cruise.errors import BadInputError, UnavailableError

metadata = MetaData()

CLUSTER_TOTALS = ("allocatable", "requested", "used", "saved")


def _key(name: str, *, primary: bool = True) -> Column[str]:
    return Column(name, Text(collation="C"), primary_key=primary, nullable=False)


def _statistics(name: str, *key: Column[str]) -> Table:
    columns = (
        Column(column, Boolean if column == "psi_known" else BigInteger, nullable=False) for column in STATISTIC_COLUMNS
    )
    return Table(name, metadata, *key, *columns)


# One row per container of a pod, and one per container of a workload and identity.
pod_statistic = _statistics(
    "pod_statistic",
    _key("namespace"),
    _key("pod"),
    _key("container"),
    _key("workload", primary=False),
    _key("identity", primary=False),
)
workload_statistic = _statistics(
    "workload_statistic", _key("namespace"), _key("workload"), _key("identity"), _key("container")
)

# Revisions of workloads, identified by the resources that their containers were created with; times in Unix seconds.
workload_revision = Table(
    "workload_revision",
    metadata,
    _key("namespace"),
    _key("workload"),
    _key("container"),
    _key("identity"),
    _key("original_resources"),
    Column("since", BigInteger, nullable=False),
    Column("last_seen", BigInteger, nullable=False),
)

# The CPU of containers while their pods started; times in Unix seconds, `ends_at` 0 until the pod has been ready.
container_start = Table(
    "container_start",
    metadata,
    _key("namespace"),
    _key("workload"),
    _key("container"),
    _key("pod_uid"),
    Column("started_at", BigInteger, nullable=False),
    Column("ends_at", BigInteger, nullable=False),
    Column("sampled_until", BigInteger, nullable=False),
    Column("cpu_peak_millicores", Double, nullable=False),
)

# The container that hourly peaks belong to. Its id has four bytes, because each container has 192 rows of peaks.
peak_key = Table(
    "peak_key",
    metadata,
    Column("id", Integer, Identity(), primary_key=True),
    _key("namespace", primary=False),
    _key("workload", primary=False),
    _key("container", primary=False),
    _key("identity", primary=False),
)

# `hour` counts hours since the Unix epoch. It leads the primary key, so that writes and pruning each touch one part of
# the index.
hourly_peak = Table(
    "hourly_peak",
    metadata,
    Column("hour", Integer, primary_key=True, autoincrement=False),
    Column("key_id", Integer, primary_key=True, autoincrement=False),
    Column("cpu_demand_millicores", Double),
    Column("memory_bytes", Double),
)

# Times in Unix seconds; `gaps` as [[start, end, attempts], ...]; `counter_tail` is written by `serialize_counter_tail`.
usage_partition = Table(
    "usage_partition",
    metadata,
    _key("partition"),
    Column("read_from", BigInteger, nullable=False),
    Column("read_until", BigInteger, nullable=False),
    Column("gaps", JSONB, nullable=False),
    Column("counter_tail", LargeBinary),
)

# The samples of one read; `last_time` in Unix seconds, `samples` packed by `usage.serialize_sample_block`.
sample_block = Table(
    "sample_block",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("last_time", BigInteger, nullable=False),
    Column("samples", LargeBinary, nullable=False),
)

# In how many intervals demand exceeded requests (`short`), by day since the Unix epoch.
risk_day = Table(
    "risk_day",
    metadata,
    _key("resource"),
    Column("day", Integer, primary_key=True, autoincrement=False),
    Column("intervals", BigInteger, nullable=False),
    Column("short", BigInteger, nullable=False),
    Column("level", Double, nullable=False),
)

# One row: the share of its own headroom that a container gets on an average node.
headroom_sharing = Table(
    "headroom_sharing",
    metadata,
    Column("singleton", Boolean, primary_key=True),
    Column("cpu", Double, nullable=False),
    Column("memory", Double, nullable=False),
)

oom_record = Table(
    "oom_record",
    metadata,
    _key("pod_uid"),
    _key("container"),
    Column("finished_at", DateTime(timezone=True), primary_key=True),
    Column("namespace", Text, nullable=False),
    Column("pod", Text, nullable=False),
    Column("workload", Text, nullable=False),
    Column("identity", Text, nullable=False),
    Column("node", Text),
    Column("memory_limit_bytes", BigInteger),
    Column("memory_request_bytes", BigInteger),
    Column("last_working_set_bytes", BigInteger),
    Column("oom_memory_bytes", BigInteger, nullable=False),
    Column("applies_to_workload", Boolean, nullable=False),
)

# The audit: one row per outcome of an action. Equal outcomes in a row share one: `at` is the time of the last,
# `first_at` that of the first (null for a single one), `occurrences` their number. `action` is the whole action; the
# other columns are for queries by hand.
audit = Table(
    "audit",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("at", DateTime(timezone=True), nullable=False),
    Column("kind", Text, nullable=False),
    Column("result", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("detail", Text, nullable=False),
    Column("namespace", Text),
    Column("pod", Text),
    Column("pod_uid", Text),
    Column("node", Text),
    Column("workload", Text),
    Column("action", JSONB, nullable=False),
    Column("first_at", DateTime(timezone=True)),
    Column("occurrences", Integer, nullable=False),
)

# Writes that were started and have no outcome yet. The transaction that stores an outcome deletes its intent.
intent = Table(
    "intent",
    metadata,
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("at", DateTime(timezone=True), nullable=False),
    Column("kind", Text, nullable=False),
    Column("namespace", Text),
    Column("pod", Text),
    Column("node", Text),
    Column("action", JSONB, nullable=False),
)

# What users did to cruise itself; a row is stored before the change is made.
user_action = Table(
    "user_action",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("at", DateTime(timezone=True), nullable=False, index=True),
    Column("caller", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("namespace", Text),
    Column("workload_kind", Text),
    Column("workload_name", Text),
    Column("detail", Text, nullable=False),
)

paused_workload = Table(
    "paused_workload",
    metadata,
    _key("namespace"),
    _key("workload_kind"),
    _key("workload_name"),
    Column("since", DateTime(timezone=True), nullable=False),
)

# The last rejected resize of a pod. `free_…` is the free capacity of its node at that time, null if unknown.
refused_resize = Table(
    "refused_resize",
    metadata,
    _key("pod_uid"),
    Column("at", DateTime(timezone=True), nullable=False),
    Column("reason", Text, nullable=False),
    Column("containers", JSONB, nullable=False),
    Column("free_cpu_millicores", BigInteger),
    Column("free_memory_bytes", BigInteger),
)

# The requests and limits of pods before their first resize; `at` is the time of the last resize.
original_size = Table(
    "original_size",
    metadata,
    _key("pod_uid"),
    Column("namespace", Text, nullable=False),
    Column("pod", Text, nullable=False),
    Column("containers", JSONB, nullable=False),
    Column("at", DateTime(timezone=True), nullable=False),
)

# The webhook signs with the newest key; older ones still verify.
signing_key = Table(
    "signing_key",
    metadata,
    Column("since", DateTime(timezone=True), primary_key=True),
    Column("key", LargeBinary, nullable=False),
)

# `proposal` is the plan as the packer made it, `progress` how far it is carried out.
packing_plan = Table(
    "packing_plan",
    metadata,
    _key("id"),
    Column("at", DateTime(timezone=True), nullable=False),
    Column("phase", Text, nullable=False),
    Column("changed_at", DateTime(timezone=True), nullable=False),
    Column("proposal", JSONB, nullable=False),
    Column("progress", JSONB, nullable=False),
)

# The placement hints of the current packing plan, by the uid of the pod that a replacement pod replaces.
placement_hint = Table(
    "placement_hint",
    metadata,
    _key("replaces"),
    Column("plan", Text, nullable=False),
    Column("expires_at", DateTime(timezone=True), nullable=False),
    Column("hint", JSONB, nullable=False),
)

# Totals of the cluster by clock hour since the Unix epoch.
cluster_hour = Table(
    "cluster_hour",
    metadata,
    Column("hour", Integer, primary_key=True, autoincrement=False),
    *(
        Column(f"{name}_{resource}", BigInteger, nullable=False)
        for name in CLUSTER_TOTALS
        for resource in ("cpu_millicores", "memory_bytes")
    ),
)

# One row: the number of stored updates, and until when usage was lost the last time an earlier state was found.
database_history = Table(
    "database_history",
    metadata,
    Column("singleton", Boolean, primary_key=True),
    Column("epoch", BigInteger, nullable=False),
    Column("lost_until", BigInteger, nullable=False),
    Column("regained", Boolean, nullable=False),
)

# One row: switches for the whole installation.
control = Table(
    "control",
    metadata,
    Column("singleton", Boolean, primary_key=True),
    Column("paused", Boolean, nullable=False),
)

MIGRATION_LOCK = 0x6372_7569_7365_0001  # "cruise", 1
_MAY_CREATE_TABLES = text("SELECT has_schema_privilege(current_schema(), 'CREATE')")


async def migrate_schema(connection: AsyncConnection, place: str) -> None:
    """Run the missing migrations in the transaction of `connection`, one process at a time.

    `place` names the database in messages. Raises BadInputError if the schema is of another version of cruise, and
    UnavailableError if migrations are missing and this role may not create tables: then another role owns the schema.
    """
    await lock_for_migration(connection)
    await connection.run_sync(_upgrade, place)


async def lock_for_migration(connection: AsyncConnection) -> None:
    """Let one process at a time change the schema, and give up soon where a table is in use."""
    await connection.execute(select(func.pg_advisory_xact_lock(MIGRATION_LOCK)))
    # All that use a table queue behind a change of it that waits for a long read.
    await connection.execute(text("SELECT set_config('lock_timeout', '3s', true)"))


def find_migrations_directory() -> Path:
    """Return the directory of the migrations: inside the installed package, or in the root of the checkout."""
    packaged = Path(__file__).parent / "migrations"
    return packaged if packaged.is_dir() else Path(__file__).parents[3] / "migrations"


def build_alembic_configuration() -> Config:
    """Return the configuration of Alembic for these migrations."""
    config = Config()
    config.set_main_option("script_location", str(find_migrations_directory()).replace("%", "%%"))
    return config


def get_newest_revision() -> str | None:
    """Return the revision that this version of cruise uses."""
    return ScriptDirectory.from_config(build_alembic_configuration()).get_current_head()


def read_current_revision(connection: Connection, place: str) -> str | None:
    """Return the revision of the schema, None for an empty database.

    `place` names the database. Raises BadInputError for a revision that this version of cruise does not have.
    """
    current = MigrationContext.configure(connection).get_current_revision()
    scripts = ScriptDirectory.from_config(build_alembic_configuration())
    if current is not None and current not in {script.revision for script in scripts.walk_revisions()}:
        raise BadInputError(
            f"the schema of Postgres at {place} has revision {current}, which this version of cruise does not "
            "know (its "
            f"own is {scripts.get_current_head()}): run the version that migrated it, or use another database"
        )
    return current


def _upgrade(connection: Connection, place: str) -> None:
    current, newest = read_current_revision(connection, place), get_newest_revision()
    if current == newest:
        return
    if not connection.scalar(_MAY_CREATE_TABLES):
        found = f"has revision {current}" if current else "does not exist"
        raise UnavailableError(
            f"the schema of Postgres at {place} {found}, and this version of cruise needs {newest}: run `cruise "
            "migrate` "
            "as the role that owns the schema"
        )
    config = build_alembic_configuration()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
