"""Writes are recorded before they are sent; a release before it goes on without, and leaves the open ones."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "intent",
        sa.Column("id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("namespace", sa.Text),
        sa.Column("pod", sa.Text),
        sa.Column("node", sa.Text),
        sa.Column("action", JSONB, nullable=False),
    )


def downgrade() -> None:
    op.drop_table("intent")
