"""What a container gets of its own headroom on an average node."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "headroom_sharing",
        sa.Column("singleton", sa.Boolean, primary_key=True),
        sa.Column("cpu", sa.Double, nullable=False),
        sa.Column("memory", sa.Double, nullable=False),
    )


def downgrade() -> None:
    op.drop_table("headroom_sharing")
