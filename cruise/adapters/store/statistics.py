"""Statistics: one indexed row for each container of a pod, and one for each container of a workload and identity.

A pass replaces nearly all of them. COPY into a temporary table and one upsert from it is the fastest way measured;
half of each page is free, so that new versions stay beside the old ones and no index is touched.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from sqlalchemy import CompoundSelect, Select, Table, column, delete, func, literal, or_, select, table, text, union_all
from sqlalchemy import delete as sql_delete
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from cruise.adapters.store import peaks
from cruise.adapters.store.connection import get_driver_connection
from cruise.adapters.store.schema import pod_statistic, revision, workload_statistic
from cruise.domain.original_resources import RevisionRun, WorkloadContainer, WorkloadRevisions
from cruise.domain.usage import STATISTIC_COLUMNS, StatisticColumns, StatisticKey, StatisticsTable
from cruise.errors import pause_garbage_collection

# Revisions of workloads: since when pods have run that state some resources, and when the last was seen.

_KEY = ("namespace", "workload", "container", "identity", "stated")
# The driver sends a batch at once, but each row's values travel apart: a first pass may have tens of thousands.
_BATCH = 5_000


async def merge_revisions(connection: AsyncConnection, revisions: WorkloadRevisions) -> None:
    """Merge revisions into those that are stored: the earliest beginning and the latest sight of each count."""
    # In one order, since two writers of the same rows could wait for each other for ever.
    rows = [
        dict(zip(_KEY, (*key, stated), strict=True)) | {"since": run.since, "seen": run.last_seen}
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


async def read_revisions(connection: AsyncConnection) -> WorkloadRevisions | None:
    """Return all revisions, None where none were ever stored."""
    runs: dict[WorkloadContainer, dict[str, RevisionRun]] = {}
    for row in await connection.execute(select(revision)):
        key = WorkloadContainer(row.namespace, row.workload, row.container, row.identity)
        runs.setdefault(key, {})[row.stated] = RevisionRun(row.since, row.seen)
    return WorkloadRevisions(runs) if runs else None


async def prune_revisions(connection: AsyncConnection, before: int) -> None:
    """Drop the revisions last seen before a time in Unix seconds."""
    await connection.execute(delete(revision).where(revision.c.seen < before))


STATISTICS_LOCK = 0x6372_7569_7365_0002

_POD_KEY = ("namespace", "pod", "container", "workload", "identity")
_WORKLOAD_KEY = ("namespace", "workload", "identity", "container")
_COLUMNS = (*StatisticKey._fields, *STATISTIC_COLUMNS)


async def write_statistics(connection: AsyncConnection, table: StatisticsTable) -> None:
    """Replace the rows of the table's containers and workloads; of two rows for one, the later counts."""
    pods = {(key.namespace, key.pod, key.container): row for row, key in enumerate(table.keys) if key.pod}
    workloads = {
        (key.namespace, key.workload, key.identity, key.container): row
        for row, key in enumerate(table.keys)
        if not key.pod
    }
    # Two writers would lock the same rows in different orders.
    await connection.execute(select(func.pg_advisory_xact_lock(STATISTICS_LOCK)))
    await _upsert(connection, pod_statistic, _POD_KEY, table, list(pods.values()))
    await _upsert(connection, workload_statistic, _WORKLOAD_KEY, table, list(workloads.values()))
    if table.revisions is not None:
        await merge_revisions(connection, table.revisions)


async def _upsert(
    connection: AsyncConnection, into: Table, key: Sequence[str], statistics: StatisticsTable, rows: Sequence[int]
) -> None:
    if not rows:
        return
    names = (*key, *STATISTIC_COLUMNS)
    incoming = table(f"incoming_{into.name}", *(column(name) for name in names))
    await connection.execute(
        text(f"CREATE TEMPORARY TABLE {incoming.name} (LIKE {into.name} INCLUDING DEFAULTS) ON COMMIT DROP")
    )
    driver = await get_driver_connection(connection)
    await driver.copy_records_to_table(incoming.name, columns=names, records=_records(statistics, key, rows))
    primary = [part.name for part in into.primary_key]
    statement = insert(into).from_select(names, select(incoming))
    replaced = {name: statement.excluded[name] for name in names if name not in primary}
    await connection.execute(statement.on_conflict_do_update(index_elements=primary, set_=replaced))


def _records(statistics: StatisticsTable, key: Sequence[str], rows: Sequence[int]) -> Iterable[tuple[object, ...]]:
    chosen = np.asarray(rows)
    positions = [StatisticKey._fields.index(name) for name in key]
    keys = [statistics.keys[row] for row in rows]
    names = ([entry[position] for entry in keys] for position in positions)
    figures = (getattr(statistics, name)[chosen].tolist() for name in STATISTIC_COLUMNS)
    return zip(*names, *figures, strict=True)


def _as_table_rows(of: Table) -> Select[tuple[object, ...]]:
    """Select a table's rows in the order of `_COLUMNS`; a workload's rows have no pod."""
    return select(*(of.c[name] if name in of.c else literal("").label(name) for name in _COLUMNS))


async def read_all_statistics(connection: AsyncConnection) -> StatisticsTable:
    """Return every row, in no order."""
    return await _fetched(connection, union_all(_as_table_rows(pod_statistic), _as_table_rows(workload_statistic)))


async def read_workload_statistics(connection: AsyncConnection) -> StatisticsTable:
    """Return the rows of workloads, in no order."""
    return await _fetched(connection, _as_table_rows(workload_statistic))


async def _fetched(connection: AsyncConnection, statement: Select[Any] | CompoundSelect[Any]) -> StatisticsTable:
    """Read many rows by the driver itself, which makes no objects of them."""
    driver = await get_driver_connection(connection)
    compiled = statement.compile(dialect=connection.dialect, compile_kwargs={"literal_binds": True})
    with pause_garbage_collection():
        found = _table(await driver.fetch(str(compiled)))
    return replace(
        found,
        revisions=await read_revisions(connection),
        sharing=await peaks.read_sharing(connection),
    )


async def read_pod_statistics(
    connection: AsyncConnection, namespace: str, pod: str, workload: str, identity: str
) -> StatisticsTable:
    """Return the rows that may speak for one pod: its own, and its workload's for its identity or for none."""
    own = _as_table_rows(pod_statistic).where(pod_statistic.c.namespace == namespace, pod_statistic.c.pod == pod)
    shared = _as_table_rows(workload_statistic).where(
        workload_statistic.c.namespace == namespace,
        workload_statistic.c.workload == workload,
        or_(workload_statistic.c.identity == identity, workload_statistic.c.identity == ""),
    )
    rows = await connection.execute(union_all(own, shared))
    return _table(rows.all())


def _table(rows: Sequence[Sequence[object]]) -> StatisticsTable:
    columns: Mapping[str, Sequence[object]] = dict(
        zip(_COLUMNS, zip(*rows, strict=True) if rows else [()] * len(_COLUMNS), strict=True)
    )
    keys = list(map(StatisticKey._make, zip(*(columns[name] for name in StatisticKey._fields), strict=True)))
    return StatisticsTable.from_columns(StatisticColumns.from_getter(columns.__getitem__), keys)


async def prune_statistics(connection: AsyncConnection, before: int) -> None:
    """Drop the rows last updated before a time in Unix seconds."""
    for statistic in (pod_statistic, workload_statistic):
        await connection.execute(sql_delete(statistic).where(statistic.c.updated_at < before))
