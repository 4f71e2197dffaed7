"""What the pods of workloads were created to ask for, and since when such pods have run."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "revision",
        sa.Column("namespace", sa.Text(collation="C"), primary_key=True),
        sa.Column("workload", sa.Text(collation="C"), primary_key=True),
        sa.Column("container", sa.Text(collation="C"), primary_key=True),
        sa.Column("identity", sa.Text(collation="C"), primary_key=True),
        sa.Column("stated", sa.Text(collation="C"), primary_key=True),
        sa.Column("since", sa.BigInteger, nullable=False),
        sa.Column("seen", sa.BigInteger, nullable=False),
    )


def downgrade() -> None:
    op.drop_table("revision")
