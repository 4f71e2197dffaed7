"""What a node had for a pod when it refused the pod's resize."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("refused_target", sa.Column("room_cpu_millicores", sa.BigInteger))
    op.add_column("refused_target", sa.Column("room_memory_bytes", sa.BigInteger))


def downgrade() -> None:
    op.drop_column("refused_target", "room_memory_bytes")
    op.drop_column("refused_target", "room_cpu_millicores")
