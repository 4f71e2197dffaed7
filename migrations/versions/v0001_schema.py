"""Create the schema, and the first key that the webhook signs with."""

import secrets

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_KEY = sa.Text(collation="C")
_TIME = sa.DateTime(timezone=True)
_STATISTICS = (
    "updated_at",
    "history_since",
    "cpu_base_millicores",
    "cpu_peak_millicores",
    "memory_base_bytes",
    "memory_peak_bytes",
    "memory_7d_max_bytes",
    "oom_memory_bytes",
    "memory_last_bytes",
    "rejected_percent",
    "rejected_reasons",
)
# Each pass rewrites every row: with half of a page free, the new row version fits next to the old one.
_REWRITTEN = {"fillfactor": "50"}
# Rows of the current hour are updated a few times each.
_UPDATED = {"fillfactor": "85"}
_TABLES = (
    "pod_statistic",
    "workload_statistic",
    "workload_revision",
    "peak_key",
    "hourly_peak",
    "usage_partition",
    "sample_block",
    "risk_day",
    "headroom_sharing",
    "oom_record",
    "audit",
    "intent",
    "user_action",
    "workload_override",
    "refused_resize",
    "original_size",
    "signing_key",
    "packing_plan",
    "placement_hint",
    "cluster_hour",
    "database_history",
    "control",
)


def upgrade() -> None:
    _create_usage()
    _create_headroom_and_totals()
    _create_audit()
    _create_pods()
    _create_packing()
    op.create_table("control", _singleton(), sa.Column("paused", sa.Boolean, nullable=False))


def downgrade() -> None:
    for table in reversed(_TABLES):
        op.drop_table(table)


def _singleton() -> sa.Column[bool]:
    return sa.Column("singleton", sa.Boolean, sa.CheckConstraint("singleton"), primary_key=True)


def _keys(*names: str) -> list[sa.Column[str]]:
    return [sa.Column(name, _KEY, primary_key=True) for name in names]


def _create_usage() -> None:
    for table, primary, others in (
        ("pod_statistic", ("namespace", "pod", "container"), ("workload", "identity")),
        ("workload_statistic", ("namespace", "workload", "identity", "container"), ()),
    ):
        op.create_table(
            table,
            *_keys(*primary),
            *(sa.Column(name, _KEY, nullable=False) for name in others),
            *(sa.Column(name, sa.BigInteger, nullable=False) for name in _STATISTICS),
            sa.Column("psi_known", sa.Boolean, nullable=False),
            postgresql_with=_REWRITTEN,
        )
    op.create_table(
        "workload_revision",
        *_keys("namespace", "workload", "container", "identity", "original_resources"),
        sa.Column("since", sa.BigInteger, nullable=False),
        sa.Column("last_seen", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "peak_key",
        sa.Column("id", sa.Integer, sa.Identity(), primary_key=True),
        *(sa.Column(name, _KEY, nullable=False) for name in ("namespace", "workload", "container", "identity")),
        sa.UniqueConstraint("namespace", "workload", "container", "identity", name="peak_key_unique"),
    )
    op.create_table(
        "hourly_peak",
        sa.Column("hour", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("key_id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("cpu_demand_millicores", sa.Double),
        sa.Column("memory_bytes", sa.Double),
        postgresql_with=_UPDATED,
    )
    op.create_table(
        "usage_partition",
        *_keys("partition"),
        sa.Column("read_from", sa.BigInteger, nullable=False),
        sa.Column("read_until", sa.BigInteger, nullable=False),
        sa.Column("gaps", JSONB, nullable=False),
        sa.Column("counter_tail", sa.LargeBinary),
        postgresql_with=_REWRITTEN,
    )
    op.create_table(
        "sample_block",
        sa.Column("id", sa.BigInteger, sa.Identity(), primary_key=True),
        sa.Column("last_time", sa.BigInteger, nullable=False),
        sa.Column("samples", sa.LargeBinary, nullable=False),
    )
    op.create_index("sample_block_by_time", "sample_block", ["last_time", "id"])
    # cruise compresses these bytes itself.
    op.execute("ALTER TABLE usage_partition ALTER COLUMN counter_tail SET STORAGE EXTERNAL")
    op.execute("ALTER TABLE sample_block ALTER COLUMN samples SET STORAGE EXTERNAL")
    op.create_table(
        "database_history",
        _singleton(),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("lost_until", sa.BigInteger, nullable=False),
        sa.Column("regained", sa.Boolean, nullable=False),
    )


def _create_headroom_and_totals() -> None:
    op.create_table(
        "risk_day",
        *_keys("resource"),
        sa.Column("day", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("intervals", sa.BigInteger, nullable=False),
        sa.Column("short", sa.BigInteger, nullable=False),
        sa.Column("level", sa.Double, nullable=False),
    )
    op.create_table(
        "headroom_sharing",
        _singleton(),
        sa.Column("cpu", sa.Double, nullable=False),
        sa.Column("memory", sa.Double, nullable=False),
    )
    op.create_table(
        "cluster_hour",
        sa.Column("hour", sa.Integer, primary_key=True, autoincrement=False),
        *(
            sa.Column(f"{name}_{resource}", sa.BigInteger, nullable=False)
            for name in ("allocatable", "requested", "used", "saved")
            for resource in ("cpu_millicores", "memory_bytes")
        ),
    )


def _create_audit() -> None:
    op.create_table(
        "audit",
        sa.Column("id", sa.BigInteger, sa.Identity(), primary_key=True),
        sa.Column("at", _TIME, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("result", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("detail", sa.Text, nullable=False),
        sa.Column("namespace", sa.Text),
        sa.Column("pod", sa.Text),
        sa.Column("pod_uid", sa.Text),
        sa.Column("node", sa.Text),
        sa.Column("workload", sa.Text),
        sa.Column("action", JSONB, nullable=False),
        sa.Column("first_at", _TIME),
        sa.Column("occurrences", sa.Integer, nullable=False),
    )
    op.create_index("audit_by_time", "audit", ["at", "id"])
    op.create_index("audit_by_pod", "audit", ["namespace", "pod", "at", "id"])
    op.create_index("audit_by_node", "audit", ["node", "at"], postgresql_where=sa.text("pod IS NULL"))
    evicted = sa.text("kind = 'evict' AND result = 'done'")
    op.create_index("audit_of_evictions", "audit", ["at"], postgresql_where=evicted)
    op.create_table(
        "intent",
        sa.Column("id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("at", _TIME, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("namespace", sa.Text),
        sa.Column("pod", sa.Text),
        sa.Column("node", sa.Text),
        sa.Column("action", JSONB, nullable=False),
    )
    op.create_table(
        "user_action",
        sa.Column("id", sa.BigInteger, sa.Identity(), primary_key=True),
        sa.Column("at", _TIME, nullable=False, index=True),
        sa.Column("caller", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("namespace", sa.Text),
        sa.Column("workload_kind", sa.Text),
        sa.Column("workload_name", sa.Text),
        sa.Column("detail", sa.Text, nullable=False),
    )


def _create_pods() -> None:
    op.create_table(
        "oom_record",
        *_keys("pod_uid", "container"),
        sa.Column("finished_at", _TIME, primary_key=True),
        sa.Column("namespace", sa.Text, nullable=False),
        sa.Column("pod", sa.Text, nullable=False),
        sa.Column("workload", sa.Text, nullable=False),
        sa.Column("identity", sa.Text, nullable=False),
        sa.Column("node", sa.Text),
        sa.Column("memory_limit_bytes", sa.BigInteger),
        sa.Column("memory_request_bytes", sa.BigInteger),
        sa.Column("last_working_set_bytes", sa.BigInteger),
        sa.Column("oom_memory_bytes", sa.BigInteger, nullable=False),
        sa.Column("applies_to_workload", sa.Boolean, nullable=False),
    )
    op.create_index("oom_record_by_time", "oom_record", ["finished_at"])
    op.create_table(
        "workload_override",
        *_keys("namespace", "workload_kind", "workload_name"),
        sa.Column("override", JSONB, nullable=False),
    )
    op.create_table(
        "refused_resize",
        *_keys("pod_uid"),
        sa.Column("at", _TIME, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("containers", JSONB, nullable=False),
        sa.Column("free_cpu_millicores", sa.BigInteger),
        sa.Column("free_memory_bytes", sa.BigInteger),
    )
    op.create_table(
        "original_size",
        *_keys("pod_uid"),
        sa.Column("namespace", sa.Text, nullable=False),
        sa.Column("pod", sa.Text, nullable=False),
        sa.Column("containers", JSONB, nullable=False),
        sa.Column("at", _TIME, nullable=False),
    )
    keys = op.create_table(
        "signing_key",
        sa.Column("since", _TIME, primary_key=True),
        sa.Column("key", sa.LargeBinary, nullable=False),
    )
    # The webhook signs from the first pod on; `prune` renews the key later.
    op.execute(sa.insert(keys).values(since=sa.func.now(), key=secrets.token_bytes(32)))


def _create_packing() -> None:
    op.create_table(
        "packing_plan",
        *_keys("id"),
        sa.Column("at", _TIME, nullable=False),
        sa.Column("phase", sa.Text, nullable=False),
        sa.Column("changed_at", _TIME, nullable=False),
        sa.Column("proposal", JSONB, nullable=False),
        sa.Column("progress", JSONB, nullable=False),
    )
    op.create_index("packing_plan_by_time", "packing_plan", ["at"])
    op.create_table(
        "placement_hint",
        *_keys("replaces"),
        sa.Column("plan", sa.Text, nullable=False),
        sa.Column("expires_at", _TIME, nullable=False),
        sa.Column("hint", JSONB, nullable=False),
    )
