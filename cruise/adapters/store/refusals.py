"""Resizes that the cluster refused, so that they are not asked for again."""

from datetime import datetime

from sqlalchemy import delete, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from cruise.adapters.store.documents import read_targets, targets_document
from cruise.adapters.store.tables import refused_target
from cruise.domain.actions import Reason, RefusedTarget


async def of_pods(connection: AsyncConnection) -> dict[str, RefusedTarget]:
    """Return the refused resize of each pod uid."""
    return {
        row.pod_uid: RefusedTarget(row.pod_uid, read_targets(row.containers), Reason(row.reason), row.at)
        for row in await connection.execute(select(refused_target))
    }


async def remember(connection: AsyncConnection, refused: RefusedTarget) -> None:
    """Remember a refused resize, in place of an earlier one for the pod."""
    state = {
        "at": refused.at,
        "reason": refused.reason.value,
        "containers": targets_document(refused.containers),
    }
    statement = insert(refused_target).values(pod_uid=refused.pod_uid, **state)
    await connection.execute(statement.on_conflict_do_update(index_elements=["pod_uid"], set_=state))


async def prune(connection: AsyncConnection, refused_before: datetime) -> None:
    """Drop refusals older than a time."""
    await connection.execute(delete(refused_target).where(refused_target.c.at < refused_before))
