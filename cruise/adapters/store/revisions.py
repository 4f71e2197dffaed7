"""Revisions of workloads: since when pods have run that state some resources, and when the last was seen."""

from sqlalchemy import delete, func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from cruise.adapters.store.tables import revision
from cruise.domain.revisions import Revisions, Run, WorkloadContainer

_KEY = ("namespace", "workload", "container", "identity", "stated")
# The driver sends a batch at once, but each row's values travel apart: a first pass may have tens of thousands.
_BATCH = 5_000


async def write(connection: AsyncConnection, revisions: Revisions) -> None:
    """Merge revisions into those that are stored: the earliest beginning and the latest sight of each count."""
    # In one order, since two writers of the same rows could wait for each other for ever.
    rows = [
        dict(zip(_KEY, (*key, stated), strict=True)) | {"since": run.since, "seen": run.seen}
        for key, runs in sorted(revisions.runs.items())
        for stated, run in sorted(runs.items())
    ]
    statement = insert(revision)
    merged = {
        "since": func.least(revision.c.since, statement.excluded.since),
        "seen": func.greatest(revision.c.seen, statement.excluded.seen),
    }
    statement = statement.on_conflict_do_update(index_elements=_KEY, set_=merged)
    for first in range(0, len(rows), _BATCH):
        await connection.execute(statement, rows[first : first + _BATCH])


async def of_workloads(connection: AsyncConnection) -> Revisions | None:
    """Return all revisions, None where none were ever stored."""
    runs: dict[WorkloadContainer, dict[str, Run]] = {}
    for row in await connection.execute(select(revision)):
        key = WorkloadContainer(row.namespace, row.workload, row.container, row.identity)
        runs.setdefault(key, {})[row.stated] = Run(row.since, row.seen)
    return Revisions(runs) if runs else None


async def prune(connection: AsyncConnection, before: int) -> None:
    """Drop the revisions last seen before a time in Unix seconds."""
    await connection.execute(delete(revision).where(revision.c.seen < before))
