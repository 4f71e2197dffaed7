"""What people did to cruise itself."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "intervention",
        sa.Column("id", sa.BigInteger, sa.Identity(), primary_key=True),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False, index=True),
        sa.Column("caller", sa.Text, nullable=False),
        sa.Column("deed", sa.Text, nullable=False),
        sa.Column("namespace", sa.Text),
        sa.Column("workload_kind", sa.Text),
        sa.Column("workload_name", sa.Text),
        sa.Column("detail", sa.Text, nullable=False),
    )


def downgrade() -> None:
    op.drop_table("intervention")
