"""The sums of the cluster by the hour."""

from collections.abc import Sequence

from sqlalchemy import delete, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from cruise.adapters.store.tables import cluster_hour
from cruise.collection import uncollected
from cruise.domain.cluster_hours import ClusterHour
from cruise.domain.resources import Resources

_SUMS = ("allocatable", "requested", "used", "saved")


async def record(connection: AsyncConnection, one: ClusterHour) -> None:
    """Store an hour; what is stored of it already stays."""
    sums = {name: getattr(one, name) for name in _SUMS}
    values = {f"{name}_cpu_millicores": amount.cpu_millicores for name, amount in sums.items()}
    values |= {f"{name}_memory_bytes": amount.memory_bytes for name, amount in sums.items()}
    await connection.execute(insert(cluster_hour).values(hour=one.hour, **values).on_conflict_do_nothing())


async def since(connection: AsyncConnection, hour: int) -> Sequence[ClusterHour]:
    """Return the hours from one on, oldest first."""
    rows = await connection.execute(
        select(cluster_hour).where(cluster_hour.c.hour >= hour).order_by(cluster_hour.c.hour)
    )
    with uncollected():
        return [
            ClusterHour(
                row["hour"],
                **{name: Resources(row[f"{name}_cpu_millicores"], row[f"{name}_memory_bytes"]) for name in _SUMS},
            )
            for row in rows.mappings()
        ]


async def prune(connection: AsyncConnection, before_hour: int) -> None:
    """Drop the hours before one."""
    await connection.execute(delete(cluster_hour).where(cluster_hour.c.hour < before_hour))
