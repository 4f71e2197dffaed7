"""How stated risks were kept by day, in place of the scores that margins were learned from."""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "risk_day",
        sa.Column("resource", sa.Text, primary_key=True),
        sa.Column("day", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("intervals", sa.BigInteger, nullable=False),
        sa.Column("short", sa.BigInteger, nullable=False),
        sa.Column("level", sa.Double, nullable=False),
    )
    op.drop_table("headroom_score")
    # A release before this one reads scores that are gone.
    op.execute(f"UPDATE schema_promise SET usable_from = '{revision}'")


def downgrade() -> None:
    op.create_table(
        "headroom_score",
        sa.Column("resource", sa.Text, primary_key=True),
        sa.Column("day", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("measure", sa.Integer, nullable=False),
        sa.Column("counts", sa.LargeBinary, nullable=False),
    )
    op.drop_table("risk_day")
    op.execute("UPDATE schema_promise SET usable_from = '0011'")
