"""How many samples of a container's latest windows could not be true, and why."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_TABLES = ("pod_statistic", "workload_statistic")
_COLUMNS = ("refused_percent", "refused_reasons")


def upgrade() -> None:
    for table in _TABLES:
        for column in _COLUMNS:
            op.add_column(table, sa.Column(column, sa.BigInteger, nullable=False, server_default="0"))


def downgrade() -> None:
    for table in _TABLES:
        for column in _COLUMNS:
            op.drop_column(table, column)
