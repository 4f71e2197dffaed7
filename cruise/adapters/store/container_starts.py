"""The starts of containers: one row per container of a pod, of which only the newest are kept."""

from collections.abc import Sequence

from sqlalchemy import delete, func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from cruise.adapters.store.schema import container_start
from cruise.domain.usage import ContainerStart

_KEY = ("namespace", "workload", "container", "pod_uid")
_MERGED = ("ends_at", "sampled_until", "cpu_peak_millicores")
# The driver sends each row's values separately.
_ROWS_PER_STATEMENT = 5_000


async def merge_starts(connection: AsyncConnection, starts: Sequence[ContainerStart]) -> None:
    """Merge starts into the stored ones: the larger figures count."""
    # Sorted, because two writers that lock the same rows in different orders would deadlock.
    ordered = sorted(starts, key=lambda one: (one.namespace, one.workload, one.container, one.pod_uid))
    rows = [{name: getattr(one, name) for name in (*_KEY, "started_at", *_MERGED)} for one in ordered]
    statement = insert(container_start)
    merged = {name: func.greatest(container_start.c[name], statement.excluded[name]) for name in _MERGED}
    statement = statement.on_conflict_do_update(index_elements=_KEY, set_=merged)
    for first in range(0, len(rows), _ROWS_PER_STATEMENT):
        await connection.execute(statement, rows[first : first + _ROWS_PER_STATEMENT])


async def read_starts(connection: AsyncConnection) -> list[ContainerStart]:
    """Return all starts, in no order."""
    return [ContainerStart(**row) for row in (await connection.execute(select(container_start))).mappings()]


async def prune_starts(connection: AsyncConnection, before: int, most: int) -> None:
    """Delete the starts before a time in Unix seconds, and all but the `most` newest of each workload's container."""
    table = container_start
    await connection.execute(delete(table).where(table.c.started_at < before))
    newer = func.row_number().over(
        partition_by=(table.c.namespace, table.c.workload, table.c.container), order_by=table.c.started_at.desc()
    )
    ranked = select(table.c.namespace, table.c.container, table.c.workload, table.c.pod_uid, newer.label("rank"))
    surplus = ranked.subquery()
    await connection.execute(
        delete(table).where(*(table.c[name] == surplus.c[name] for name in _KEY), surplus.c.rank > most)
    )
