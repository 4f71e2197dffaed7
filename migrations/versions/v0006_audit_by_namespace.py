"""An index of the audit by namespace: the newest lines of one are read without those of all others."""

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("audit_by_namespace", "audit", ["namespace", "at", "id"])


def downgrade() -> None:
    op.drop_index("audit_by_namespace", "audit")
