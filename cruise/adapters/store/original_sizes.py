"""What pods asked for before their first resize."""

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import Row, Text, cast, column, delete, func, select, table, text
from sqlalchemy.dialects.postgresql import ARRAY, insert
from sqlalchemy.ext.asyncio import AsyncConnection

from cruise.adapters.store.connection import driver_in_transaction
from cruise.adapters.store.documents import read_targets, targets_document
from cruise.adapters.store.tables import original_size
from cruise.collection import uncollected
from cruise.domain.actions import OriginalSizes

_COLUMNS = ("pod_uid", "namespace", "pod", "containers", "at")


async def remember(connection: AsyncConnection, originals: Sequence[OriginalSizes]) -> None:
    """Remember sizes, the first of each pod for good; by COPY, since a pass may resize tens of thousands."""
    of_pod: dict[str, OriginalSizes] = {}
    for one in originals:
        first = of_pod.get(one.pod_uid, one)
        of_pod[one.pod_uid] = replace(first, at=max(first.at, one.at))
    if not of_pod:
        return
    incoming = table("incoming_original_size", *(column(name) for name in _COLUMNS))
    await connection.execute(
        text(f"CREATE TEMPORARY TABLE {incoming.name} (LIKE original_size INCLUDING DEFAULTS) ON COMMIT DROP")
    )
    records = [
        (
            one.pod_uid,
            one.namespace,
            one.pod,
            msgspec.json.encode(targets_document(one.containers)).decode(),
            one.at,
        )
        for one in of_pod.values()
    ]
    driver = await driver_in_transaction(connection)
    await driver.copy_records_to_table(incoming.name, columns=_COLUMNS, records=records)
    # In one order, since two writers of the same pods could wait for each other for ever.
    statement = insert(original_size).from_select(_COLUMNS, select(incoming).order_by(incoming.c.pod_uid))
    later = func.greatest(original_size.c.at, statement.excluded.at)
    await connection.execute(statement.on_conflict_do_update(index_elements=["pod_uid"], set_={"at": later}))


async def of_pods(connection: AsyncConnection, pod_uids: Collection[str] | None = None) -> dict[str, OriginalSizes]:
    """Return the remembered sizes by pod uid, of all pods or of some."""
    statement = select(original_size)
    if pod_uids is not None:
        # One parameter, however many they are.
        uids = cast(list(pod_uids), ARRAY(Text(collation="C")))
        statement = statement.where(original_size.c.pod_uid == func.any(uids))
    with uncollected():
        rows = (await connection.execute(statement)).all()
        # Of 170,000 pods it takes seconds, for which nothing else waits.
        return await asyncio.to_thread(_read, rows)


def _read(rows: Sequence[Row[Any]]) -> dict[str, OriginalSizes]:
    return {
        row.pod_uid: OriginalSizes(row.pod_uid, row.namespace, row.pod, read_targets(row.containers), row.at)
        for row in rows
    }


async def prune(connection: AsyncConnection, resized_before: datetime) -> None:
    """Drop the sizes of pods that were not resized since a time."""
    await connection.execute(delete(original_size).where(original_size.c.at < resized_before))
