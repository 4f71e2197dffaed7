"""The sums of the cluster by the hour; a release before it neither writes nor reads them."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    sums = [
        sa.Column(f"{name}_{resource}", sa.BigInteger, nullable=False)
        for name in ("allocatable", "requested", "used", "saved")
        for resource in ("cpu_millicores", "memory_bytes")
    ]
    op.create_table("cluster_hour", sa.Column("hour", sa.Integer, primary_key=True, autoincrement=False), *sums)


def downgrade() -> None:
    op.drop_table("cluster_hour")
