"""How far demand went beyond what was expected of it, counted by day."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "headroom_score",
        sa.Column("resource", sa.Text(collation="C"), primary_key=True),
        sa.Column("day", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("measure", sa.Integer, nullable=False),
        sa.Column("counts", sa.LargeBinary, nullable=False),
    )


def downgrade() -> None:
    op.drop_table("headroom_score")
