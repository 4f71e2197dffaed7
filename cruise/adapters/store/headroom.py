"""How stated risks were kept by day, and how headroom is shared now."""

from collections.abc import Sequence

from sqlalchemy import delete, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from cruise.adapters.store.tables import headroom_sharing, risk_day
from cruise.domain.headroom import RiskDay, Sharing
from cruise.domain.resources import ResourceName


async def record_risk_days(connection: AsyncConnection, days: Sequence[RiskDay]) -> None:
    """Store days, each in place of what was counted of it before."""
    of_day = {(one.resource.value, one.day): one for one in days}
    # In one order, since two writers of the same days could wait for each other for ever.
    rows = [
        {"resource": resource, "day": day, "intervals": one.intervals, "short": one.short, "level": one.level}
        for (resource, day), one in sorted(of_day.items(), key=lambda item: item[0])
    ]
    if rows:
        statement = insert(risk_day)
        replaced = {name: statement.excluded[name] for name in ("intervals", "short", "level")}
        await connection.execute(
            statement.on_conflict_do_update(index_elements=["resource", "day"], set_=replaced), rows
        )


async def risk_days(connection: AsyncConnection) -> list[RiskDay]:
    """Return all days."""
    return [
        RiskDay(ResourceName(row.resource), row.day, row.intervals, row.short, row.level)
        for row in await connection.execute(select(risk_day))
    ]


async def prune(connection: AsyncConnection, before_day: int) -> None:
    """Drop the days before one."""
    await connection.execute(delete(risk_day).where(risk_day.c.day < before_day))


async def record_sharing(connection: AsyncConnection, sharing: Sharing) -> None:
    """Remember how headroom is shared now."""
    values = {"cpu": sharing.cpu, "memory": sharing.memory}
    statement = insert(headroom_sharing).values(singleton=True, **values)
    await connection.execute(statement.on_conflict_do_update(index_elements=["singleton"], set_=values))


async def sharing(connection: AsyncConnection) -> Sharing | None:
    """Return how headroom is shared, None where no pass has said so yet."""
    row = (await connection.execute(select(headroom_sharing))).one_or_none()
    return None if row is None else Sharing(row.cpu, row.memory)
