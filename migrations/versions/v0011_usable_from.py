"""From which schema on a release can use this one: what makes a release that was bad go back on its database."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    table = op.create_table(
        "schema_promise",
        sa.Column("singleton", sa.Boolean, primary_key=True),
        sa.Column("usable_from", sa.Text, nullable=False),
    )
    op.bulk_insert(table, [{"singleton": True, "usable_from": revision}])


def downgrade() -> None:
    op.drop_table("schema_promise")
