"""How far demand went beyond what was expected, counted by day."""

from collections.abc import Sequence

from sqlalchemy import delete, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from cruise.adapters.store.packing import pack_counts, unpack_counts
from cruise.adapters.store.tables import headroom_score
from cruise.domain.headroom import DayScores
from cruise.domain.resources import ResourceName


async def record(connection: AsyncConnection, days: Sequence[DayScores]) -> None:
    """Store the scores of days, each in place of what was counted of it before."""
    of_day = {(one.resource.value, one.day): one for one in days}
    # In one order, since two writers of the same days could wait for each other for ever.
    rows = [
        {"resource": resource, "day": day, "measure": one.measure, "counts": pack_counts(one.counts)}
        for (resource, day), one in sorted(of_day.items(), key=lambda item: item[0])
    ]
    if rows:
        statement = insert(headroom_score)
        replaced = {name: statement.excluded[name] for name in ("measure", "counts")}
        await connection.execute(
            statement.on_conflict_do_update(index_elements=["resource", "day"], set_=replaced), rows
        )


async def of_days(connection: AsyncConnection) -> list[DayScores]:
    """Return the scores of all days."""
    return [
        DayScores(ResourceName(row.resource), row.day, row.measure, unpack_counts(row.counts))
        for row in await connection.execute(select(headroom_score))
    ]


async def prune(connection: AsyncConnection, before_day: int) -> None:
    """Drop the scores of days before one."""
    await connection.execute(delete(headroom_score).where(headroom_score.c.day < before_day))
