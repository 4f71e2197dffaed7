"""Add the 7-day maximum of CPU to the statistics; 0 is unknown until the next usage pass."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_TABLES = ("pod_statistic", "workload_statistic")
_COLUMN = "cpu_7d_max_millicores"


def upgrade() -> None:
    for table in _TABLES:
        op.add_column(table, sa.Column(_COLUMN, sa.BigInteger, nullable=False, server_default="0"))
        op.alter_column(table, _COLUMN, server_default=None)


def downgrade() -> None:
    for table in _TABLES:
        op.drop_column(table, _COLUMN)
