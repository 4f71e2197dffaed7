"""How far demand went beyond what was expected, counted by day, and how headroom is shared now."""

from collections.abc import Sequence

from sqlalchemy import delete, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from cruise.adapters.store.packing import pack_counts, unpack_counts
from cruise.adapters.store.tables import headroom_score, headroom_sharing
from cruise.domain.headroom import DayScores, Sharing
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


async def record_sharing(connection: AsyncConnection, sharing: Sharing) -> None:
    """Remember how headroom is shared now."""
    values = {"cpu": sharing.cpu, "memory": sharing.memory}
    statement = insert(headroom_sharing).values(singleton=True, **values)
    await connection.execute(statement.on_conflict_do_update(index_elements=["singleton"], set_=values))


async def sharing(connection: AsyncConnection) -> Sharing | None:
    """Return how headroom is shared, None where no pass has said so yet."""
    row = (await connection.execute(select(headroom_sharing))).one_or_none()
    return None if row is None else Sharing(row.cpu, row.memory)
