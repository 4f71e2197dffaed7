"""A database says how much was stored in it, so that an older copy is noticed; a release before it goes on without."""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    table = op.create_table(
        "database_history",
        sa.Column("singleton", sa.Boolean, sa.CheckConstraint("singleton"), primary_key=True),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("lost_until", sa.BigInteger, nullable=False),
        sa.Column("regained", sa.Boolean, nullable=False),
    )
    op.bulk_insert(table, [{"singleton": True, "epoch": 0, "lost_until": 0, "regained": True}])


def downgrade() -> None:
    op.drop_table("database_history")
