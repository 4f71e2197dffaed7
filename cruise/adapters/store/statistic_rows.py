"""Statistics: one indexed row for each container of a pod, and one for each container of a workload and identity.

A pass replaces nearly all of them. COPY into a temporary table and one upsert from it is the fastest way measured;
half of each page is free, so that new versions stay beside the old ones and no index is touched.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from sqlalchemy import CompoundSelect, Select, Table, column, func, literal, or_, select, table, text, union_all
from sqlalchemy import delete as sql_delete
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from cruise.adapters.store import headroom, revisions
from cruise.adapters.store.connection import driver_in_transaction
from cruise.adapters.store.tables import pod_statistic, workload_statistic
from cruise.collection import uncollected
from cruise.domain.usage import FIGURES, StatisticColumns, StatisticKey, StatisticsTable

STATISTICS_LOCK = 0x6372_7569_7365_0002

_POD_KEY = ("namespace", "pod", "container", "workload", "identity")
_WORKLOAD_KEY = ("namespace", "workload", "identity", "container")
_COLUMNS = (*StatisticKey._fields, *FIGURES)


async def write(connection: AsyncConnection, table: StatisticsTable) -> None:
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
        await revisions.write(connection, table.revisions)


async def _upsert(
    connection: AsyncConnection, into: Table, key: Sequence[str], statistics: StatisticsTable, rows: Sequence[int]
) -> None:
    if not rows:
        return
    names = (*key, *FIGURES)
    incoming = table(f"incoming_{into.name}", *(column(name) for name in names))
    await connection.execute(
        text(f"CREATE TEMPORARY TABLE {incoming.name} (LIKE {into.name} INCLUDING DEFAULTS) ON COMMIT DROP")
    )
    driver = await driver_in_transaction(connection)
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
    figures = (getattr(statistics, name)[chosen].tolist() for name in FIGURES)
    return zip(*names, *figures, strict=True)


def _as_table_rows(of: Table) -> Select[tuple[object, ...]]:
    """Select a table's rows in the order of `_COLUMNS`; a workload's rows have no pod."""
    return select(*(of.c[name] if name in of.c else literal("").label(name) for name in _COLUMNS))


async def read_all(connection: AsyncConnection) -> StatisticsTable:
    """Return every row, in no order."""
    return await _fetched(connection, union_all(_as_table_rows(pod_statistic), _as_table_rows(workload_statistic)))


async def read_of_workloads(connection: AsyncConnection) -> StatisticsTable:
    """Return the rows of workloads, in no order."""
    return await _fetched(connection, _as_table_rows(workload_statistic))


async def _fetched(connection: AsyncConnection, statement: Select[Any] | CompoundSelect[Any]) -> StatisticsTable:
    """Read many rows by the driver itself, which makes no objects of them."""
    driver = await driver_in_transaction(connection)
    compiled = statement.compile(dialect=connection.dialect, compile_kwargs={"literal_binds": True})
    with uncollected():
        found = _table(await driver.fetch(str(compiled)))
    return replace(
        found,
        revisions=await revisions.of_workloads(connection),
        sharing=await headroom.sharing(connection),
    )


async def read_of_pod(
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
    return StatisticsTable.of_columns(StatisticColumns.of(columns.__getitem__), keys)


async def prune(connection: AsyncConnection, before: int) -> None:
    """Drop the rows last updated before a time in Unix seconds."""
    for statistic in (pod_statistic, workload_statistic):
        await connection.execute(sql_delete(statistic).where(statistic.c.updated_at < before))
