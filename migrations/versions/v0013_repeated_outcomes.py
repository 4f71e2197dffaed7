"""What ended like that several times is one line of the audit; a release before it adds lines, and shows the last time.

The lines that are there are taken as they are: each ended like that once.
"""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("outcome", sa.Column("first_at", sa.DateTime(timezone=True)))
    op.add_column("outcome", sa.Column("times", sa.Integer, nullable=False, server_default="1"))
    op.create_index("outcome_of_node", "outcome", ["node", "at"], postgresql_where=sa.text("pod IS NULL"))


def downgrade() -> None:
    op.drop_index("outcome_of_node", "outcome")
    op.drop_column("outcome", "times")
    op.drop_column("outcome", "first_at")
