"""Kills for lack of memory, each remembered once."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime

from sqlalchemy import delete, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from cruise.adapters.store.tables import oom_record
from cruise.domain.usage import OomRecord


async def remember(connection: AsyncConnection, record: OomRecord) -> bool:
    """Remember a kill; False if it is known already."""
    statement = insert(oom_record).values(asdict(record)).on_conflict_do_nothing().returning(oom_record.c.pod_uid)
    return await connection.scalar(statement) is not None


async def known(connection: AsyncConnection, pod_uid: str, container: str, finished_at: datetime) -> bool:
    """Tell whether a kill is remembered."""
    key = {"pod_uid": pod_uid, "container": container, "finished_at": finished_at}
    return await connection.scalar(select(oom_record.c.pod_uid).filter_by(**key)) is not None


async def finished_since(
    connection: AsyncConnection, since: datetime, of: tuple[str, str] | None = None
) -> Sequence[OomRecord]:
    """Return the kills finished not before a time, oldest first: all, or those of a namespace's workload."""
    statement = (
        select(oom_record)
        .where(oom_record.c.finished_at >= since)
        .order_by(oom_record.c.finished_at, oom_record.c.pod_uid, oom_record.c.container)
    )
    if of is not None:
        statement = statement.filter_by(namespace=of[0], workload=of[1])
    return [OomRecord(**row) for row in (await connection.execute(statement)).mappings()]


async def prune(connection: AsyncConnection, before: datetime) -> None:
    """Drop the kills finished before a time."""
    await connection.execute(delete(oom_record).where(oom_record.c.finished_at < before))
