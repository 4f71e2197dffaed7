"""Who paused, resumed and overrode."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import delete, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from cruise.adapters.store.tables import intervention
from cruise.domain.callers import Deed, Intervention
from cruise.domain.cluster import WorkloadRef


async def record(connection: AsyncConnection, done: Intervention) -> None:
    """Append a line."""
    workload = done.workload
    await connection.execute(
        insert(intervention).values(
            at=done.at,
            caller=_kept(done.caller),
            deed=done.deed.value,
            namespace=done.namespace,
            workload_kind=workload.kind if workload is not None else None,
            workload_name=workload.name if workload is not None else None,
            detail=_kept(done.detail),
        )
    )


async def newest(connection: AsyncConnection, since: datetime, limit: int = 1000) -> Sequence[Intervention]:
    """Return the newest lines not before a time, newest first."""
    table = intervention.c
    statement = select(intervention).where(table.at >= since).order_by(table.at.desc(), table.id.desc()).limit(limit)
    return [
        Intervention(
            row.at,
            row.caller,
            Deed(row.deed),
            row.namespace,
            WorkloadRef(row.workload_kind, row.workload_name) if row.workload_kind is not None else None,
            row.detail,
        )
        for row in await connection.execute(statement)
    ]


async def prune(connection: AsyncConnection, before: datetime) -> None:
    """Drop the lines before a time."""
    await connection.execute(delete(intervention).where(intervention.c.at < before))


def _kept(text: str) -> str:
    """Leave out what Postgres has no room for."""
    return text.replace("\0", "")
