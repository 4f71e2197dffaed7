"""Kills of pods that do not run again teach their whole workload; a release before it teaches by single pods alone."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("oom_record", sa.Column("teaches_workload", sa.Boolean, nullable=False, server_default=sa.false()))


def downgrade() -> None:
    op.drop_column("oom_record", "teaches_workload")
