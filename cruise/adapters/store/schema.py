"""The schema, as statements name it; `migrations/versions` makes it.

Key columns compare byte by byte whatever the database's locale, and columns that each pass updates are in no index,
so that an update stays on its page.
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
    inspect,
    select,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.ext.asyncio import AsyncConnection

from cruise.errors import BadInputError, UnavailableError

metadata = MetaData()


def _key(name: str, *, primary: bool = True) -> Column[str]:
    return Column(name, Text(collation="C"), primary_key=primary, nullable=False)


def _figures() -> list[Column[int]]:
    names = (
        "updated_at",
        "history_since",
        "cpu_base_millicores",
        "cpu_peak_millicores",
        "memory_base_bytes",
        "memory_peak_bytes",
        "memory_7d_max_bytes",
        "oom_memory_bytes",
        "memory_last_bytes",
        "refused_percent",
        "refused_reasons",
    )
    return [Column(name, BigInteger, nullable=False) for name in names]


def _statistics(name: str, *key: Column[str]) -> Table:
    return Table(name, metadata, *key, *_figures(), Column("psi_known", Boolean, nullable=False))


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

# Revisions of workloads, told by what their containers state; times in Unix seconds.
revision = Table(
    "revision",
    metadata,
    _key("namespace"),
    _key("workload"),
    _key("container"),
    _key("identity"),
    _key("stated"),
    Column("since", BigInteger, nullable=False),
    Column("seen", BigInteger, nullable=False),
)

# What hourly peaks belong to, identified by a number of four bytes: there are 192 rows of peaks for each.
peak_key = Table(
    "peak_key",
    metadata,
    Column("id", Integer, Identity(), primary_key=True),
    _key("namespace", primary=False),
    _key("workload", primary=False),
    _key("container", primary=False),
    _key("identity", primary=False),
)

# `hour` counts hours since the Unix epoch. It leads the primary key: writes and pruning each stay in one place of it.
hourly_peak = Table(
    "hourly_peak",
    metadata,
    Column("hour", Integer, primary_key=True, autoincrement=False),
    Column("key_id", Integer, primary_key=True, autoincrement=False),
    Column("cpu_demand_millicores", Double),
    Column("memory_bytes", Double),
)

# Times in Unix seconds; `gaps` as [[start, end, times asked], ...]; `tail` is packed by `packing`.
usage_partition = Table(
    "usage_partition",
    metadata,
    _key("partition"),
    Column("read_from", BigInteger, nullable=False),
    Column("read_until", BigInteger, nullable=False),
    Column("gaps", JSONB, nullable=False),
    Column("tail", LargeBinary),
)

# One read's samples; `last_time` in Unix seconds, `samples` packed by `packing`.
sample_block = Table(
    "sample_block",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("last_time", BigInteger, nullable=False),
    Column("samples", LargeBinary, nullable=False),
)

# How stated risks were kept, by day (since the Unix epoch).
risk_day = Table(
    "risk_day",
    metadata,
    _key("resource"),
    Column("day", Integer, primary_key=True, autoincrement=False),
    Column("intervals", BigInteger, nullable=False),
    Column("short", BigInteger, nullable=False),
    Column("level", Double, nullable=False),
)

# One row: what a container gets of its own headroom on an average node.
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
    Column("teaches_workload", Boolean, nullable=False),
)

# The audit. `action` is the whole action as JSON; the columns beside it are for queries by hand. `at` is when it ended
# like that last, `first_at` when first, null where it did once.
outcome = Table(
    "outcome",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("at", DateTime(timezone=True), nullable=False),
    Column("kind", Text, nullable=False),
    Column("verdict", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("detail", Text, nullable=False),
    Column("namespace", Text),
    Column("pod", Text),
    Column("pod_uid", Text),
    Column("node", Text),
    Column("workload", Text),
    Column("action", JSONB, nullable=False),
    Column("first_at", DateTime(timezone=True)),
    Column("times", Integer, nullable=False),
)

# Writes that were begun and whose outcome is not recorded; few rows, since the outcome removes its own.
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

# What people did to cruise itself, each line there before the change.
user_action = Table(
    "intervention",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("at", DateTime(timezone=True), nullable=False, index=True),
    Column("caller", Text, nullable=False),
    Column("deed", Text, nullable=False),
    Column("namespace", Text),
    Column("workload_kind", Text),
    Column("workload_name", Text),
    Column("detail", Text, nullable=False),
)

workload_override = Table(
    "workload_override",
    metadata,
    _key("namespace"),
    _key("workload_kind"),
    _key("workload_name"),
    Column("override", JSONB, nullable=False),
)

refused_target = Table(
    "refused_target",
    metadata,
    _key("pod_uid"),
    Column("at", DateTime(timezone=True), nullable=False),
    Column("reason", Text, nullable=False),
    Column("containers", JSONB, nullable=False),
    # What the node had for the pod then; null where it is not known.
    Column("room_cpu_millicores", BigInteger),
    Column("room_memory_bytes", BigInteger),
)

# What pods asked for before their first resize; `at` is the time of the last one.
original_size = Table(
    "original_size",
    metadata,
    _key("pod_uid"),
    Column("namespace", Text, nullable=False),
    Column("pod", Text, nullable=False),
    Column("containers", JSONB, nullable=False),
    Column("at", DateTime(timezone=True), nullable=False),
)

# What the webhook signs with from `since` on: the latest; the others still verify.
signing_key = Table(
    "signing_key",
    metadata,
    Column("since", DateTime(timezone=True), primary_key=True),
    Column("key", LargeBinary, nullable=False),
)

# The packer's plans: `proposal` as it was made, `progress` how far it is carried out.
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

# Pods that the plan under way expects, each by the uid of the pod that it replaces, and where they are sent.
placement_hint = Table(
    "steering",
    metadata,
    _key("replaces"),
    Column("plan", Text, nullable=False),
    Column("until", DateTime(timezone=True), nullable=False),
    Column("steering", JSONB, nullable=False),
)

# The cluster's sums by clock hours since the epoch.
cluster_hour = Table(
    "cluster_hour",
    metadata,
    Column("hour", Integer, primary_key=True, autoincrement=False),
    *(
        Column(f"{name}_{resource}", BigInteger, nullable=False)
        for name in ("allocatable", "requested", "used", "saved")
        for resource in ("cpu_millicores", "memory_bytes")
    ),
)

# One row: how much was stored, and until when usage was lost the last time that an earlier state was found.
database_history = Table(
    "database_history",
    metadata,
    Column("singleton", Boolean, primary_key=True),
    Column("epoch", BigInteger, nullable=False),
    Column("lost_until", BigInteger, nullable=False),
    Column("regained", Boolean, nullable=False),
)

# One row: the oldest schema whose release can use this one as it is.
schema_compatibility = Table(
    "schema_promise",
    metadata,
    Column("singleton", Boolean, primary_key=True),
    Column("usable_from", Text, nullable=False),
)

# One row: what the operator has switched for the whole installation.
control = Table(
    "control",
    metadata,
    Column("singleton", Boolean, primary_key=True),
    Column("paused", Boolean, nullable=False),
)

# The schema brought up to date at start by who may, by one process at a time.

MIGRATION_LOCK = 0x6372_7569_7365_0001  # "cruise", 1
_MAY_MAKE_TABLES = text("SELECT has_schema_privilege(current_schema(), 'CREATE')")


async def migrate_schema(connection: AsyncConnection, place: str) -> None:
    """Run the migrations that are missing, in the connection's transaction: all of them or none.

    A schema that is newer is used as it is where it says that it may be; elsewhere BadInputError is raised, and Unavailable
    where it is older and this role may make no tables: another role owns it then. `place` names the database.
    """
    await connection.execute(select(func.pg_advisory_xact_lock(MIGRATION_LOCK)))
    await connection.run_sync(_upgrade, place)


def find_migrations_directory() -> Path:
    """Return the directory of the migrations: inside an installed package, else beside it in the checkout."""
    packaged = Path(__file__).parent / "migrations"
    return packaged if packaged.is_dir() else Path(__file__).parents[3] / "migrations"


def build_alembic_configuration() -> Config:
    """Return Alembic's configuration for these migrations."""
    config = Config()
    config.set_main_option("script_location", str(find_migrations_directory()).replace("%", "%%"))
    return config


def read_current_revision(connection: Connection) -> str | None:
    """Return the revision of the schema, None where there is none yet."""
    return MigrationContext.configure(connection).get_current_revision()


def _usable_from(connection: Connection) -> str | None:
    """Return the oldest schema whose release can use this one, None where nothing is promised."""
    if not inspect(connection).has_table(schema_compatibility.name):
        return None
    promised: str | None = connection.scalar(select(schema_compatibility.c.usable_from))
    return promised


def _upgrade(connection: Connection, place: str) -> None:
    config = build_alembic_configuration()
    config.attributes["connection"] = connection
    scripts = ScriptDirectory.from_config(config)
    current = read_current_revision(connection)
    if current == scripts.get_current_head():
        return
    if current is not None and current not in {script.revision for script in scripts.walk_revisions()}:
        usable_from, head = _usable_from(connection), scripts.get_current_head() or ""
        if usable_from is not None and usable_from <= head:
            return
        raise BadInputError(
            f"the schema of Postgres at {place} ({current}) is newer than this cruise ({head}) can use: "
            f"start one of schema {usable_from or current} or newer, or use another database"
        )
    if not connection.scalar(_MAY_MAKE_TABLES):
        raise UnavailableError(
            f"the schema of Postgres at {place} is {current or 'not there'}, this cruise's is "
            f"{scripts.get_current_head()}: run `cruise migrate` as the role that owns it"
        )
    command.upgrade(config, "head")
