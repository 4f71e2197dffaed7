"""Resizes that the cluster refused, so that they are not asked for again."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import delete, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from cruise.adapters.store.documents import read_targets, targets_document
from cruise.adapters.store.tables import refused_target
from cruise.domain.actions import Reason, RefusedTarget
from cruise.domain.resources import Resources

_ROOM = ("room_cpu_millicores", "room_memory_bytes")


async def of_pods(connection: AsyncConnection) -> dict[str, RefusedTarget]:
    """Return the refused resize of each pod uid."""
    return {
        row.pod_uid: RefusedTarget(
            row.pod_uid,
            read_targets(row.containers),
            Reason(row.reason),
            row.at,
            None if row.room_memory_bytes is None else Resources(row.room_cpu_millicores, row.room_memory_bytes),
        )
        for row in await connection.execute(select(refused_target))
    }


async def remember(connection: AsyncConnection, refused: Sequence[RefusedTarget]) -> None:
    """Remember refused resizes, each in place of an earlier one for its pod."""
    of_pod = {one.pod_uid: one for one in refused}
    # In one order, since two writers of the same pods could wait for each other for ever.
    rows = [
        {
            "pod_uid": uid,
            "at": of_pod[uid].at,
            "reason": of_pod[uid].reason.value,
            "containers": targets_document(of_pod[uid].containers),
            "room_cpu_millicores": None if room is None else room.cpu_millicores,
            "room_memory_bytes": None if room is None else room.memory_bytes,
        }
        for uid in sorted(of_pod)
        for room in [of_pod[uid].room]
    ]
    if rows:
        statement = insert(refused_target)
        replaced = {name: statement.excluded[name] for name in ("at", "reason", "containers", *_ROOM)}
        await connection.execute(statement.on_conflict_do_update(index_elements=["pod_uid"], set_=replaced), rows)


async def prune(connection: AsyncConnection, refused_before: datetime) -> None:
    """Drop refusals older than a time."""
    await connection.execute(delete(refused_target).where(refused_target.c.at < refused_before))
