"""What pods asked for before their first resize."""

import asyncio
import secrets
from collections.abc import Collection, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import Row, Text, cast, column, delete, func, select, table, text
from sqlalchemy.dialects.postgresql import ARRAY, insert
from sqlalchemy.ext.asyncio import AsyncConnection

from cruise.adapters.store.audit import deserialize_override, deserialize_targets, serialize_override, serialize_targets
from cruise.adapters.store.connection import get_driver_connection
from cruise.adapters.store.schema import (
    control,
    oom_record,
    original_size,
    refused_target,
    signing_key,
    workload_override,
)
from cruise.domain.actions import OriginalSizes, ReasonCode, RefusedTarget
from cruise.domain.annotations import Overrides
from cruise.domain.cluster import WorkloadRef
from cruise.domain.records import RETENTION
from cruise.domain.resources import Resources
from cruise.domain.usage import OomRecord
from cruise.errors import pause_garbage_collection

# Kills for lack of memory, each remembered once.


async def insert_oom_record(connection: AsyncConnection, record: OomRecord) -> bool:
    """Remember a kill; False if it is known already."""
    statement = insert(oom_record).values(asdict(record)).on_conflict_do_nothing().returning(oom_record.c.pod_uid)
    return await connection.scalar(statement) is not None


async def has_oom_record(connection: AsyncConnection, pod_uid: str, container: str, finished_at: datetime) -> bool:
    """Tell whether a kill is remembered."""
    key = {"pod_uid": pod_uid, "container": container, "finished_at": finished_at}
    return await connection.scalar(select(oom_record.c.pod_uid).filter_by(**key)) is not None


async def read_oom_records(
    connection: AsyncConnection, since: datetime, of: tuple[str, str] | None = None
) -> Sequence[OomRecord]:
    """Return the kills finished not before a time, oldest first: all, or those of a namespace's workload."""
    statement = (
        select(oom_record)
        .where(oom_record.c.finished_at >= since)
        .order_by(oom_record.c.finished_at, oom_record.c.pod_uid, oom_record.c.container)
    )
    if of is not None:
        statement = statement.filter_by(namespace=of[0], workload=of[1])
    return [OomRecord(**row) for row in (await connection.execute(statement)).mappings()]


async def prune_oom_records(connection: AsyncConnection, before: datetime) -> None:
    """Drop the kills finished before a time."""
    await connection.execute(delete(oom_record).where(oom_record.c.finished_at < before))


_COLUMNS = ("pod_uid", "namespace", "pod", "containers", "at")


async def insert_original_sizes(connection: AsyncConnection, originals: Sequence[OriginalSizes]) -> None:
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
            msgspec.json.encode(serialize_targets(one.containers)).decode(),
            one.at,
        )
        for one in of_pod.values()
    ]
    driver = await get_driver_connection(connection)
    await driver.copy_records_to_table(incoming.name, columns=_COLUMNS, records=records)
    # In one order, since two writers of the same pods could wait for each other for ever.
    statement = insert(original_size).from_select(_COLUMNS, select(incoming).order_by(incoming.c.pod_uid))
    later = func.greatest(original_size.c.at, statement.excluded.at)
    await connection.execute(statement.on_conflict_do_update(index_elements=["pod_uid"], set_={"at": later}))


async def read_original_sizes(
    connection: AsyncConnection, pod_uids: Collection[str] | None = None
) -> dict[str, OriginalSizes]:
    """Return the remembered sizes by pod uid, of all pods or of some."""
    statement = select(original_size)
    if pod_uids is not None:
        # One parameter, however many they are.
        uids = cast(list(pod_uids), ARRAY(Text(collation="C")))
        statement = statement.where(original_size.c.pod_uid == func.any(uids))
    with pause_garbage_collection():
        rows = (await connection.execute(statement)).all()
        # Of 170,000 pods it takes seconds, for which nothing else waits.
        return await asyncio.to_thread(_read, rows)


def _read(rows: Sequence[Row[Any]]) -> dict[str, OriginalSizes]:
    return {
        row.pod_uid: OriginalSizes(row.pod_uid, row.namespace, row.pod, deserialize_targets(row.containers), row.at)
        for row in rows
    }


async def prune_original_sizes(connection: AsyncConnection, resized_before: datetime) -> None:
    """Drop the sizes of pods that were not resized since a time."""
    await connection.execute(delete(original_size).where(original_size.c.at < resized_before))


# Resizes that the cluster refused, so that they are not asked for again.

_ROOM = ("room_cpu_millicores", "room_memory_bytes")


async def read_refused_resizes(connection: AsyncConnection) -> dict[str, RefusedTarget]:
    """Return the refused resize of each pod uid."""
    return {
        row.pod_uid: RefusedTarget(
            row.pod_uid,
            deserialize_targets(row.containers),
            ReasonCode(row.reason),
            row.at,
            None if row.room_memory_bytes is None else Resources(row.room_cpu_millicores, row.room_memory_bytes),
        )
        for row in await connection.execute(select(refused_target))
    }


async def write_refused_resizes(connection: AsyncConnection, refused: Sequence[RefusedTarget]) -> None:
    """Remember refused resizes, each in place of an earlier one for its pod."""
    of_pod = {one.pod_uid: one for one in refused}
    # In one order, since two writers of the same pods could wait for each other for ever.
    rows = [
        {
            "pod_uid": uid,
            "at": of_pod[uid].at,
            "reason": of_pod[uid].reason.value,
            "containers": serialize_targets(of_pod[uid].containers),
            "room_cpu_millicores": None if room is None else room.cpu_millicores,
            "room_memory_bytes": None if room is None else room.memory_bytes,
        }
        for uid in sorted(of_pod)
        for room in [of_pod[uid].free_capacity]
    ]
    if rows:
        statement = insert(refused_target)
        replaced = {name: statement.excluded[name] for name in ("at", "reason", "containers", *_ROOM)}
        await connection.execute(statement.on_conflict_do_update(index_elements=["pod_uid"], set_=replaced), rows)


async def prune_refused_resizes(connection: AsyncConnection, refused_before: datetime) -> None:
    """Drop refusals older than a time."""
    await connection.execute(delete(refused_target).where(refused_target.c.at < refused_before))


# What the operator sets: overrides of single workloads, and the pause of everything.


async def read_overrides(connection: AsyncConnection) -> dict[tuple[str, WorkloadRef], Overrides]:
    """Return the stored overrides by (namespace, workload)."""
    return {
        (row.namespace, WorkloadRef(row.workload_kind, row.workload_name)): deserialize_override(row.override)
        for row in await connection.execute(select(workload_override))
    }


async def write_override(
    connection: AsyncConnection, namespace: str, workload: WorkloadRef, override: Overrides | None
) -> None:
    """Store one override, or remove it with None."""
    key = {"namespace": namespace, "workload_kind": workload.kind, "workload_name": workload.name}
    if override is None:
        await connection.execute(delete(workload_override).filter_by(**key))
        return
    document = serialize_override(override)
    statement = insert(workload_override).values(**key, override=document)
    await connection.execute(statement.on_conflict_do_update(index_elements=list(key), set_={"override": document}))


async def read_paused(connection: AsyncConnection) -> bool:
    """Tell whether every write is stopped; false where nothing is stored."""
    return bool(await connection.scalar(select(control.c.paused)))


async def write_paused(connection: AsyncConnection, paused: bool) -> None:
    """Stop every write, or let them go on."""
    statement = insert(control).values(singleton=True, paused=paused)
    await connection.execute(statement.on_conflict_do_update(index_elements=["singleton"], set_={"paused": paused}))


# What the webhook signs its annotations with: made here, so that no account needs a right for it.

_BYTES = 32


async def read_signing_keys(connection: AsyncConnection) -> Sequence[bytes]:
    """Return the keys, the one that signs first."""
    found = await connection.execute(select(signing_key.c.key).order_by(signing_key.c.since.desc()))
    return [bytes(row.key) for row in found]


async def renew_signing_key(connection: AsyncConnection, now: datetime) -> None:
    """Make a key where there is none or the latest is old, and drop those that nothing in use was signed with."""
    latest = (await connection.execute(select(func.max(signing_key.c.since)))).scalar()
    if latest is None or now - latest >= RETENTION.signing_key:
        made = insert(signing_key).values(since=now, key=secrets.token_bytes(_BYTES))
        await connection.execute(made.on_conflict_do_nothing())
    lasting = RETENTION.signing_key + RETENTION.original_sizes
    await connection.execute(delete(signing_key).where(signing_key.c.since < now - lasting))
