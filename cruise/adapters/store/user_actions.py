"""The actions of users on cruise itself."""

from collections.abc import Sequence, Set
from datetime import datetime

from sqlalchemy import delete, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from cruise.adapters.store.schema import user_action
from cruise.domain.cluster import WorkloadRef
from cruise.domain.users import UserAction, UserActionKind


async def insert_user_action(connection: AsyncConnection, action: UserAction) -> None:
    """Append the action of a user."""
    workload = action.workload
    await connection.execute(
        insert(user_action).values(
            at=action.at,
            caller=_without_nul(action.caller),
            kind=action.kind.value,
            namespace=action.namespace,
            workload_kind=workload.kind if workload is not None else None,
            workload_name=workload.name if workload is not None else None,
            detail=_without_nul(action.detail),
        )
    )


async def read_newest_user_actions(
    connection: AsyncConnection, since: datetime, limit: int = 1000, namespaces: Set[str] | None = None
) -> Sequence[UserAction]:
    """Return the newest actions of users since a time, newest first; with namespaces, in these or in none."""
    table = user_action.c
    statement = select(user_action).where(table.at >= since).order_by(table.at.desc(), table.id.desc()).limit(limit)
    if namespaces is not None:
        statement = statement.where(table.namespace.is_(None) | table.namespace.in_(sorted(namespaces)))
    return [
        UserAction(
            row.at,
            row.caller,
            UserActionKind(row.kind),
            row.namespace,
            WorkloadRef(row.workload_kind, row.workload_name) if row.workload_kind is not None else None,
            row.detail,
        )
        for row in await connection.execute(statement)
    ]


async def prune_user_actions(connection: AsyncConnection, before: datetime) -> None:
    """Delete the actions of users before a time."""
    await connection.execute(delete(user_action).where(user_action.c.at < before))


def _without_nul(text: str) -> str:
    """Return the text without NUL characters, which Postgres cannot store."""
    return text.replace("\0", "")
