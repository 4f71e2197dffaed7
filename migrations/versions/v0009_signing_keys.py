"""What the webhook signs with, and the first key."""

import secrets

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    keys = op.create_table(
        "signing_key",
        sa.Column("since", sa.DateTime(timezone=True), primary_key=True),
        sa.Column("key", sa.LargeBinary, nullable=False),
    )
    # From the first pod on; later ones are made by `prune`.
    op.execute(sa.insert(keys).values(since=sa.func.now(), key=secrets.token_bytes(32)))


def downgrade() -> None:
    op.drop_table("signing_key")
