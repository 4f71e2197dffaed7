"""Statistics, usage, kills, the audit, and what the operator has stored."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_KEY = sa.Text(collation="C")
_FIGURES = (
    "updated_at",
    "history_since",
    "cpu_base_millicores",
    "cpu_peak_millicores",
    "memory_base_bytes",
    "memory_peak_bytes",
    "memory_7d_max_bytes",
    "oom_memory_bytes",
    "memory_last_bytes",
)
# Every row is written again by each pass: with half of a page free, the new version finds room beside the old.
_REWRITTEN = {"fillfactor": "50"}
# In the hour that is going on rows still rise, a few times each.
_RISING = {"fillfactor": "85"}


def upgrade() -> None:
    _statistics()
    _usage()
    op.create_table(
        "oom_record",
        sa.Column("pod_uid", _KEY, primary_key=True),
        sa.Column("container", _KEY, primary_key=True),
        sa.Column("finished_at", sa.DateTime(timezone=True), primary_key=True),
        sa.Column("namespace", sa.Text, nullable=False),
        sa.Column("pod", sa.Text, nullable=False),
        sa.Column("workload", sa.Text, nullable=False),
        sa.Column("identity", sa.Text, nullable=False),
        sa.Column("node", sa.Text),
        sa.Column("memory_limit_bytes", sa.BigInteger),
        sa.Column("memory_request_bytes", sa.BigInteger),
        sa.Column("last_working_set_bytes", sa.BigInteger),
        sa.Column("oom_memory_bytes", sa.BigInteger, nullable=False),
    )
    op.create_index("oom_record_by_time", "oom_record", ["finished_at"])
    op.create_table(
        "outcome",
        sa.Column("id", sa.BigInteger, sa.Identity(), primary_key=True),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("verdict", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("detail", sa.Text, nullable=False),
        sa.Column("namespace", sa.Text),
        sa.Column("pod", sa.Text),
        sa.Column("pod_uid", sa.Text),
        sa.Column("node", sa.Text),
        sa.Column("workload", sa.Text),
        sa.Column("action", JSONB, nullable=False),
    )
    op.create_index("outcome_by_time", "outcome", ["at", "id"])
    op.create_index("outcome_of_pod", "outcome", ["namespace", "pod", "at", "id"])
    op.create_index(
        "outcome_of_evictions", "outcome", ["at"], postgresql_where=sa.text("kind = 'evict' AND verdict = 'done'")
    )
    op.create_table(
        "workload_override",
        sa.Column("namespace", _KEY, primary_key=True),
        sa.Column("workload_kind", _KEY, primary_key=True),
        sa.Column("workload_name", _KEY, primary_key=True),
        sa.Column("override", JSONB, nullable=False),
    )
    op.create_table(
        "refused_target",
        sa.Column("pod_uid", _KEY, primary_key=True),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("containers", JSONB, nullable=False),
    )
    op.create_table(
        "control",
        sa.Column("singleton", sa.Boolean, sa.CheckConstraint("singleton", name="one_row"), primary_key=True),
        sa.Column("paused", sa.Boolean, nullable=False),
    )


def _statistics() -> None:
    for table, leading, trailing in (
        ("pod_statistic", ("namespace", "pod", "container"), ("workload", "identity")),
        ("workload_statistic", ("namespace", "workload", "identity", "container"), ()),
    ):
        op.create_table(
            table,
            *(sa.Column(name, _KEY, primary_key=True) for name in leading),
            *(sa.Column(name, _KEY, nullable=False) for name in trailing),
            *(sa.Column(name, sa.BigInteger, nullable=False) for name in _FIGURES),
            sa.Column("psi_known", sa.Boolean, nullable=False),
            postgresql_with=_REWRITTEN,
        )


def _usage() -> None:
    op.create_table(
        "peak_key",
        sa.Column("id", sa.Integer, sa.Identity(), primary_key=True),
        sa.Column("namespace", _KEY, nullable=False),
        sa.Column("workload", _KEY, nullable=False),
        sa.Column("container", _KEY, nullable=False),
        sa.Column("identity", _KEY, nullable=False),
        sa.UniqueConstraint("namespace", "workload", "container", "identity", name="peak_key_once"),
    )
    op.create_table(
        "hourly_peak",
        sa.Column("hour", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("key_id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("cpu_demand_millicores", sa.Double),
        sa.Column("memory_bytes", sa.Double),
        postgresql_with=_RISING,
    )
    op.create_table(
        "usage_partition",
        sa.Column("partition", _KEY, primary_key=True),
        sa.Column("read_from", sa.BigInteger, nullable=False),
        sa.Column("read_until", sa.BigInteger, nullable=False),
        sa.Column("gaps", JSONB, nullable=False),
        sa.Column("tail", sa.LargeBinary),
        postgresql_with=_REWRITTEN,
    )
    op.create_table(
        "sample_block",
        sa.Column("id", sa.BigInteger, sa.Identity(), primary_key=True),
        sa.Column("last_time", sa.BigInteger, nullable=False),
        sa.Column("samples", sa.LargeBinary, nullable=False),
    )
    op.create_index("sample_block_by_time", "sample_block", ["last_time", "id"])
    # These bytes are compressed already.
    op.execute("ALTER TABLE usage_partition ALTER COLUMN tail SET STORAGE EXTERNAL")
    op.execute("ALTER TABLE sample_block ALTER COLUMN samples SET STORAGE EXTERNAL")


def downgrade() -> None:
    for table in (
        "control",
        "refused_target",
        "workload_override",
        "outcome",
        "oom_record",
        "sample_block",
        "usage_partition",
        "hourly_peak",
        "peak_key",
        "workload_statistic",
        "pod_statistic",
    ):
        op.drop_table(table)
