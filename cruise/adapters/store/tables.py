"""The schema, as statements name it; `migrations/versions` makes it.

Key columns compare byte by byte whatever the database's locale, and columns that each pass updates are in no index,
so that an update stays on its page.
"""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Double,
    Identity,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
)
from sqlalchemy.dialects.postgresql import JSONB

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
intervention = Table(
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
steering = Table(
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
schema_promise = Table(
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
