"""Plans of the packer with their progress, and who is steered where."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "packing_plan",
        sa.Column("id", sa.Text(collation="C"), primary_key=True),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("phase", sa.Text, nullable=False),
        sa.Column("changed_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("proposal", JSONB, nullable=False),
        sa.Column("progress", JSONB, nullable=False),
    )
    op.create_index("packing_plan_by_time", "packing_plan", ["at"])
    op.create_table(
        "steering",
        sa.Column("replaces", sa.Text(collation="C"), primary_key=True),
        sa.Column("plan", sa.Text, nullable=False),
        sa.Column("until", sa.DateTime(timezone=True), nullable=False),
        sa.Column("steering", JSONB, nullable=False),
    )


def downgrade() -> None:
    op.drop_table("steering")
    op.drop_table("packing_plan")
