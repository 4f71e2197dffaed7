"""Statistics: one row per container of a pod, and one per container of a workload and identity.

A usage pass replaces nearly all rows. The fastest way measured is COPY into a temporary table and one upsert from it.
Half of each page is free, so new row versions stay on their page and no index changes.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from sqlalchemy import CompoundSelect, Select, Table, TableClause, delete, func, literal, or_, select, union_all
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from cruise.adapters.store import peaks
from cruise.adapters.store.connection import copy_incoming, get_driver_connection
from cruise.adapters.store.schema import pod_statistic, workload_revision, workload_statistic
from cruise.domain.original_resources import RevisionPeriod, WorkloadContainer, WorkloadRevisions
from cruise.domain.usage import STATISTIC_COLUMNS, StatisticColumns, StatisticKey, StatisticsTable
from cruise.errors import pause_garbage_collection

STATISTICS_LOCK = 0x6372_7569_7365_0002

_POD_KEY = ("namespace", "pod", "container", "workload", "identity")
_WORKLOAD_KEY = ("namespace", "workload", "identity", "container")
_COLUMNS = (*StatisticKey._fields, *STATISTIC_COLUMNS)
_REVISION_KEY = ("namespace", "workload", "container", "identity", "original_resources")
# The driver sends each row's values separately, and a first pass may have tens of thousands of revisions.
_REVISIONS_PER_STATEMENT = 5_000


async def write_statistics(connection: AsyncConnection, table: StatisticsTable) -> None:
    """Replace the rows of the table's containers and workloads; the later of two rows with one key counts."""
    pods = {(key.namespace, key.pod, key.container): row for row, key in enumerate(table.keys) if key.pod}
    workloads = {
        (key.namespace, key.workload, key.identity, key.container): row
        for row, key in enumerate(table.keys)
        if not key.pod
    }
    # Before any lock: no limit of the server ends a COPY whose client has stopped.
    incoming = [
        (target, await copy_incoming(connection, target, (*key, *STATISTIC_COLUMNS), _to_records(table, key, rows)))
        for target, key, rows in (
            (pod_statistic, _POD_KEY, list(pods.values())),
            (workload_statistic, _WORKLOAD_KEY, list(workloads.values())),
        )
        if rows
    ]
    # Two writers would lock the same rows in different orders.
    await connection.execute(select(func.pg_advisory_xact_lock(STATISTICS_LOCK)))
    for target, copied in incoming:
        await _upsert(connection, target, copied)
    if table.revisions is not None:
        await merge_revisions(connection, table.revisions)


async def read_all_statistics(connection: AsyncConnection) -> StatisticsTable:
    """Return every row, in no particular order."""
    return await _fetch_table(connection, union_all(_select_rows(pod_statistic), _select_rows(workload_statistic)))


async def read_workload_statistics(connection: AsyncConnection) -> StatisticsTable:
    """Return the rows of workloads, in no particular order."""
    return await _fetch_table(connection, _select_rows(workload_statistic))


async def read_pod_statistics(
    connection: AsyncConnection, namespace: str, pod: str, workload: str, identity: str
) -> StatisticsTable:
    """Return the rows that may apply to one pod: its own, and its workload's for its identity or for none."""
    own = _select_rows(pod_statistic).where(pod_statistic.c.namespace == namespace, pod_statistic.c.pod == pod)
    shared = _select_rows(workload_statistic).where(
        workload_statistic.c.namespace == namespace,
        workload_statistic.c.workload == workload,
        or_(workload_statistic.c.identity == identity, workload_statistic.c.identity == ""),
    )
    rows = await connection.execute(union_all(own, shared))
    return _to_table(rows.all())


async def prune_statistics(connection: AsyncConnection, pods_before: int, workloads_before: int) -> None:
    """Delete the rows of pods and of workloads last updated before a time in Unix seconds."""
    for statistic, before in ((pod_statistic, pods_before), (workload_statistic, workloads_before)):
        await connection.execute(delete(statistic).where(statistic.c.updated_at < before))


async def _upsert(connection: AsyncConnection, target: Table, incoming: TableClause) -> None:
    """Replace or insert the rows of a temporary table."""
    names, primary = [one.name for one in incoming.columns], [part.name for part in target.primary_key]
    statement = insert(target).from_select(names, select(incoming))
    replaced = {name: statement.excluded[name] for name in names if name not in primary}
    await connection.execute(statement.on_conflict_do_update(index_elements=primary, set_=replaced))


def _to_records(statistics: StatisticsTable, key: Sequence[str], rows: Sequence[int]) -> Iterable[tuple[object, ...]]:
    selected = np.asarray(rows)
    positions = [StatisticKey._fields.index(name) for name in key]
    keys = [statistics.keys[row] for row in rows]
    names = ([entry[position] for entry in keys] for position in positions)
    values = (getattr(statistics, name)[selected].tolist() for name in STATISTIC_COLUMNS)
    return zip(*names, *values, strict=True)


def _select_rows(source: Table) -> Select[tuple[object, ...]]:
    """Select the rows of a table in the order of `_COLUMNS`; rows of workloads have an empty pod."""
    return select(*(source.c[name] if name in source.c else literal("").label(name) for name in _COLUMNS))


async def _fetch_table(connection: AsyncConnection, statement: Select[Any] | CompoundSelect[Any]) -> StatisticsTable:
    """Fetch many rows through the driver itself, which creates no object per row."""
    driver = await get_driver_connection(connection)
    compiled = statement.compile(dialect=connection.dialect, compile_kwargs={"literal_binds": True})
    with pause_garbage_collection():
        found = _to_table(await driver.fetch(str(compiled)))
    return replace(
        found,
        revisions=await read_revisions(connection),
        average_headroom_share=await peaks.read_average_headroom_share(connection),
    )


def _to_table(rows: Sequence[Sequence[object]]) -> StatisticsTable:
    columns: Mapping[str, Sequence[object]] = dict(
        zip(_COLUMNS, zip(*rows, strict=True) if rows else [()] * len(_COLUMNS), strict=True)
    )
    keys = list(map(StatisticKey._make, zip(*(columns[name] for name in StatisticKey._fields), strict=True)))
    return StatisticsTable.from_columns(StatisticColumns.from_getter(columns.__getitem__), keys)


async def merge_revisions(connection: AsyncConnection, revisions: WorkloadRevisions) -> None:
    """Merge revisions into the stored ones: the earliest start and the latest time seen of each count."""
    # Sorted, because two writers that lock the same rows in different orders would deadlock.
    rows = [
        dict(zip(_REVISION_KEY, (*key, resources), strict=True)) | {"since": run.since, "last_seen": run.last_seen}
        for key, runs in sorted(revisions.runs.items())
        for resources, run in sorted(runs.items())
    ]
    statement = insert(workload_revision)
    merged = {
        "since": func.least(workload_revision.c.since, statement.excluded.since),
        "last_seen": func.greatest(workload_revision.c.last_seen, statement.excluded.last_seen),
    }
    statement = statement.on_conflict_do_update(index_elements=_REVISION_KEY, set_=merged)
    for first in range(0, len(rows), _REVISIONS_PER_STATEMENT):
        await connection.execute(statement, rows[first : first + _REVISIONS_PER_STATEMENT])


async def read_revisions(connection: AsyncConnection) -> WorkloadRevisions | None:
    """Return all revisions, None if none are stored."""
    runs: dict[WorkloadContainer, dict[str, RevisionPeriod]] = {}
    for row in await connection.execute(select(workload_revision)):
        key = WorkloadContainer(row.namespace, row.workload, row.container, row.identity)
        runs.setdefault(key, {})[row.original_resources] = RevisionPeriod(row.since, row.last_seen)
    return WorkloadRevisions(runs) if runs else None


async def prune_revisions(connection: AsyncConnection, before: int) -> None:
    """Delete the revisions last seen before a time in Unix seconds."""
    await connection.execute(delete(workload_revision).where(workload_revision.c.last_seen < before))
