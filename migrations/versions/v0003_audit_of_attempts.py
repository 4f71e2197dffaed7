"""An index of the audit without skips, which are most of its rows: the first page counts the others of a day."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("audit_of_attempts", "audit", ["at", "id"], postgresql_where=sa.text("result <> 'skipped'"))


def downgrade() -> None:
    op.drop_index("audit_of_attempts", "audit")
