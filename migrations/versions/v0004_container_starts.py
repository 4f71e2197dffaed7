"""Add the starts of containers, and the CPU that a workload's start needs; 0 is unknown until enough are seen."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_STATISTICS = ("pod_statistic", "workload_statistic")
_COLUMN = "cpu_start_millicores"
_TABLE = "container_start"


def upgrade() -> None:
    for table in _STATISTICS:
        op.add_column(table, sa.Column(_COLUMN, sa.BigInteger, nullable=False, server_default="0"))
        op.alter_column(table, _COLUMN, server_default=None)
    op.create_table(
        _TABLE,
        *(
            sa.Column(name, sa.Text(collation="C"), primary_key=True, nullable=False)
            for name in ("namespace", "workload", "container", "pod_uid")
        ),
        *(sa.Column(name, sa.BigInteger, nullable=False) for name in ("started_at", "ends_at", "sampled_until")),
        sa.Column("cpu_peak_millicores", sa.Double, nullable=False),
    )


def downgrade() -> None:
    op.drop_table(_TABLE)
    for table in _STATISTICS:
        op.drop_column(table, _COLUMN)
