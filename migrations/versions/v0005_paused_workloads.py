"""Pauses of workloads in place of overrides, whose settings are policy objects now.

A workload that had overrides is paused, so that none is sized without them.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_KEY = sa.Text(collation="C")
_WORKLOAD = ("namespace", "workload_kind", "workload_name")
_KINDS = {"put-override": "put-policy", "delete-override": "delete-policy"}


def upgrade() -> None:
    op.create_table(
        "paused_workload",
        *(sa.Column(name, _KEY, primary_key=True) for name in _WORKLOAD),
        sa.Column("since", sa.DateTime(timezone=True), nullable=False),
    )
    columns = ", ".join(_WORKLOAD)
    op.execute(f"INSERT INTO paused_workload ({columns}, since) SELECT {columns}, now() FROM workload_override")
    op.drop_table("workload_override")
    _rename_user_actions(_KINDS)


def downgrade() -> None:
    op.create_table(
        "workload_override",
        *(sa.Column(name, _KEY, primary_key=True) for name in _WORKLOAD),
        sa.Column("override", JSONB, nullable=False),
    )
    op.drop_table("paused_workload")
    _rename_user_actions({new: old for old, new in _KINDS.items()})


def _rename_user_actions(names: dict[str, str]) -> None:
    for before, after in names.items():
        op.execute(f"UPDATE user_action SET kind = '{after}' WHERE kind = '{before}'")
