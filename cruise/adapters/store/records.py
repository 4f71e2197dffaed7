"""Records of pods (OOM records, original sizes, refused resizes), packing plans, and settings that users store."""

import asyncio
import secrets
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from typing import Any, TypeVar, get_type_hints

import msgspec
from sqlalchemy import ColumnElement, Row, Text, cast, delete, func, select
from sqlalchemy.dialects.postgresql import ARRAY, insert
from sqlalchemy.ext.asyncio import AsyncConnection

from cruise.adapters.store.audit import Document, deserialize_targets, serialize_targets
from cruise.adapters.store.connection import copy_incoming
from cruise.adapters.store.schema import (
    control,
    oom_record,
    original_size,
    packing_plan,
    paused_workload,
    placement_hint,
    refused_resize,
    signing_key,
)
from cruise.domain.actions import LastResizes, OriginalSizes, ReasonCode, RefusedResize
from cruise.domain.cluster import WorkloadRef
from cruise.domain.packing_plan import (
    PackingPlan,
    PackingProposal,
    PlacementHint,
    PlannedPlacement,
    PlannedPreemption,
    PlanStage,
)
from cruise.domain.records import RETENTION, truncate_to_minute
from cruise.domain.resources import Resources
from cruise.domain.usage import OomRecord
from cruise.errors import pause_garbage_collection


async def insert_oom_record(connection: AsyncConnection, record: OomRecord) -> bool:
    """Store an out-of-memory kill; return False if it is stored already."""
    statement = insert(oom_record).values(asdict(record)).on_conflict_do_nothing().returning(oom_record.c.pod_uid)
    return await connection.scalar(statement) is not None


async def has_oom_record(connection: AsyncConnection, pod_uid: str, container: str, finished_at: datetime) -> bool:
    """Return whether a kill is stored."""
    key = {"pod_uid": pod_uid, "container": container, "finished_at": finished_at}
    return await connection.scalar(select(oom_record.c.pod_uid).filter_by(**key)) is not None


async def read_oom_records(
    connection: AsyncConnection,
    since: datetime,
    workload: tuple[str, str] | None = None,
    most_of_container: int | None = None,
) -> Sequence[OomRecord]:
    """Return the kills since a time, oldest first: all, or those of one (namespace, workload)."""
    kill = oom_record.c
    container = (kill.namespace, kill.workload, kill.identity, kill.pod, kill.container)
    rank = func.row_number().over(partition_by=container, order_by=(kill.oom_memory_bytes.desc(), kill.finished_at))
    since_then = select(oom_record, rank.label("rank")).where(kill.finished_at >= since)
    if workload is not None:
        since_then = since_then.filter_by(namespace=workload[0], workload=workload[1])
    found = since_then.subquery().c
    statement = select(*(found[one.name] for one in kill)).order_by(found.finished_at, found.pod_uid, found.container)
    if most_of_container is not None:
        statement = statement.where(found.rank <= most_of_container)
    return [OomRecord(**row) for row in (await connection.execute(statement)).mappings()]


async def prune_oom_records(connection: AsyncConnection, before: datetime) -> None:
    """Delete the kills before a time."""
    await connection.execute(delete(oom_record).where(oom_record.c.finished_at < before))


_ORIGINAL_COLUMNS = ("pod_uid", "namespace", "pod", "containers", "at")


async def insert_original_sizes(connection: AsyncConnection, originals: Sequence[OriginalSizes]) -> None:
    """Store the sizes of pods that have none stored, and the time of the last resize for all.

    Uses COPY, because one pass may resize tens of thousands of pods.
    """
    by_pod: dict[str, OriginalSizes] = {}
    for original in originals:
        first = by_pod.get(original.pod_uid, original)
        by_pod[original.pod_uid] = replace(first, at=max(first.at, original.at))
    if not by_pod:
        return
    records = [
        (
            original.pod_uid,
            original.namespace,
            original.pod,
            msgspec.json.encode(serialize_targets(original.containers)).decode(),
            original.at,
        )
        for original in by_pod.values()
    ]
    incoming = await copy_incoming(connection, original_size, _ORIGINAL_COLUMNS, records)
    # Sorted, because two writers that lock the same rows in different orders would deadlock.
    statement = insert(original_size).from_select(_ORIGINAL_COLUMNS, select(incoming).order_by(incoming.c.pod_uid))
    later = func.greatest(original_size.c.at, statement.excluded.at)
    await connection.execute(statement.on_conflict_do_update(index_elements=["pod_uid"], set_={"at": later}))


async def read_original_sizes(connection: AsyncConnection, pod_uids: Collection[str]) -> dict[str, OriginalSizes]:
    """Return the original sizes of these pods, by pod uid."""
    statement = select(original_size).where(_is_of_any(pod_uids))
    with pause_garbage_collection():
        rows = (await connection.execute(statement)).all()
        # In a thread: 170,000 pods take seconds.
        return await asyncio.to_thread(_to_original_sizes, rows)


def _is_of_any(pod_uids: Collection[str]) -> ColumnElement[bool]:
    # One array parameter, because statements have a limited number of parameters.
    return original_size.c.pod_uid == func.any(cast(list(pod_uids), ARRAY(Text(collation="C"))))


async def read_last_resizes(connection: AsyncConnection, pod_uids: Collection[str], since: datetime) -> LastResizes:
    """Return when these pods were last resized, and how many others were, each at or after a time."""
    uid, at = original_size.c.pod_uid, original_size.c.at
    minute = func.date_trunc("minute", at)
    counted = select(minute, func.count()).where(at >= since).group_by(minute)
    by_minute = Counter({row[0]: row[1] for row in await connection.execute(counted)})
    found = await connection.execute(select(uid, at).where(at >= since, _is_of_any(pod_uids)))
    by_pod = {row[0]: row[1] for row in found}
    by_minute.subtract(map(truncate_to_minute, by_pod.values()))
    return LastResizes(by_pod, +by_minute)


def _to_original_sizes(rows: Sequence[Row[Any]]) -> dict[str, OriginalSizes]:
    return {
        row.pod_uid: OriginalSizes(row.pod_uid, row.namespace, row.pod, deserialize_targets(row.containers), row.at)
        for row in rows
    }


async def prune_original_sizes(connection: AsyncConnection, resized_before: datetime) -> None:
    """Delete the sizes of pods whose last resize was before a time."""
    await connection.execute(delete(original_size).where(original_size.c.at < resized_before))


async def read_refused_resizes(connection: AsyncConnection) -> dict[str, RefusedResize]:
    """Return the refused resizes by pod uid."""
    return {
        row.pod_uid: RefusedResize(
            row.pod_uid,
            deserialize_targets(row.containers),
            ReasonCode(row.reason),
            row.at,
            None if row.free_memory_bytes is None else Resources(row.free_cpu_millicores, row.free_memory_bytes),
        )
        for row in await connection.execute(select(refused_resize))
    }


async def write_refused_resizes(connection: AsyncConnection, refused: Sequence[RefusedResize]) -> None:
    """Store refused resizes; each replaces an earlier one of its pod."""
    by_pod = {one.pod_uid: one for one in refused}
    # Sorted, because two writers that lock the same rows in different orders would deadlock.
    rows = [_refused_row(by_pod[uid]) for uid in sorted(by_pod)]
    if rows:
        statement = insert(refused_resize)
        replaced = {name: statement.excluded[name] for name in rows[0] if name != "pod_uid"}
        await connection.execute(statement.on_conflict_do_update(index_elements=["pod_uid"], set_=replaced), rows)


def _refused_row(refused: RefusedResize) -> dict[str, object]:
    free = refused.free_capacity
    return {
        "pod_uid": refused.pod_uid,
        "at": refused.at,
        "reason": refused.reason.value,
        "containers": serialize_targets(refused.containers),
        "free_cpu_millicores": None if free is None else free.cpu_millicores,
        "free_memory_bytes": None if free is None else free.memory_bytes,
    }


async def prune_refused_resizes(connection: AsyncConnection, refused_before: datetime) -> None:
    """Delete the refused resizes before a time."""
    await connection.execute(delete(refused_resize).where(refused_resize.c.at < refused_before))


async def read_paused_workloads(connection: AsyncConnection) -> dict[tuple[str, WorkloadRef], datetime]:
    """Return since when workloads are paused, by namespace and reference."""
    return {
        (row.namespace, WorkloadRef(row.workload_kind, row.workload_name)): row.since
        for row in await connection.execute(select(paused_workload))
    }


async def write_workload_pause(
    connection: AsyncConnection, namespace: str, workload: WorkloadRef, since: datetime | None
) -> None:
    """Pause a workload, or resume it with None; one that is paused stays so since then."""
    key = {"namespace": namespace, "workload_kind": workload.kind, "workload_name": workload.name}
    if since is None:
        await connection.execute(delete(paused_workload).filter_by(**key))
        return
    await connection.execute(insert(paused_workload).values(**key, since=since).on_conflict_do_nothing())


async def read_global_pause(connection: AsyncConnection) -> bool:
    """Return whether writes are paused; False if nothing is stored."""
    return bool(await connection.scalar(select(control.c.paused)))


async def write_global_pause(connection: AsyncConnection, paused: bool) -> None:
    """Pause or resume writes."""
    statement = insert(control).values(singleton=True, paused=paused)
    await connection.execute(statement.on_conflict_do_update(index_elements=["singleton"], set_={"paused": paused}))


_SIGNING_KEY_BYTES = 32


async def read_signing_keys(connection: AsyncConnection) -> Sequence[bytes]:
    """Return the keys that sign the webhook's annotations, newest first; the first one signs."""
    found = await connection.execute(select(signing_key.c.key).order_by(signing_key.c.since.desc()))
    return [bytes(row.key) for row in found]


async def renew_signing_key(connection: AsyncConnection, now: datetime) -> None:
    """Create a key if there is none or the newest is old, and delete keys that no annotation in use was signed with."""
    newest = (await connection.execute(select(func.max(signing_key.c.since)))).scalar()
    if newest is None or now - newest >= RETENTION.signing_key:
        created = insert(signing_key).values(since=now, key=secrets.token_bytes(_SIGNING_KEY_BYTES))
        await connection.execute(created.on_conflict_do_nothing())
    in_use = RETENTION.signing_key + RETENTION.original_sizes
    await connection.execute(delete(signing_key).where(signing_key.c.since < now - in_use))


T = TypeVar("T")

# Fields with their own column, for queries by hand. The other fields of a plan, except its proposal, are its progress.
_PLAN_COLUMNS = ("id", "at", "phase", "changed_at")
_HINT_COLUMNS = ("replaces", "plan", "expires_at")


async def insert_packing_plan(connection: AsyncConnection, plan: PackingPlan) -> None:
    """Store a plan, or the progress of a stored one, and replace all placement hints with those of this plan."""
    document: Document = msgspec.to_builtins(plan)
    proposal = document.pop("proposal")
    progress = {name: value for name, value in document.items() if name not in _PLAN_COLUMNS}
    changes = {"phase": plan.phase.value, "changed_at": plan.changed_at, "progress": progress}
    statement = insert(packing_plan).values(id=plan.id, at=plan.at, proposal=proposal, **changes)
    # The proposal of a plan never changes, and may be large.
    await connection.execute(statement.on_conflict_do_update(index_elements=["id"], set_=changes))
    await connection.execute(delete(placement_hint))
    if plan.placement_hints:
        await connection.execute(insert(placement_hint), [_hint_row(hint) for hint in plan.placement_hints])


async def read_last_plan(connection: AsyncConnection) -> PackingPlan | None:
    """Return the plan that was made from the latest snapshot."""
    newest = select(packing_plan).order_by(packing_plan.c.at.desc(), packing_plan.c.changed_at.desc()).limit(1)
    row = (await connection.execute(newest)).first()
    if row is None:
        return None
    stages = tuple(_deserialize_stage(document) for document in row.proposal["stages"])
    proposal = _deserialize(PackingProposal, row.proposal, stages=stages)
    return _deserialize(PackingPlan, {**row.progress, **_columns(row, _PLAN_COLUMNS)}, proposal=proposal)


async def read_placement_hints(connection: AsyncConnection) -> Sequence[PlacementHint]:
    """Return the placement hints, by the uid of the pod that is replaced."""
    rows = await connection.execute(select(placement_hint).order_by(placement_hint.c.replaces))
    return [_deserialize(PlacementHint, {**row.hint, **_columns(row, _HINT_COLUMNS)}) for row in rows]


async def prune_packing_plans(connection: AsyncConnection, before: datetime) -> None:
    """Delete the plans of snapshots before a time."""
    await connection.execute(delete(packing_plan).where(packing_plan.c.at < before))


def _columns(row: Row[tuple[Any, ...]], names: Sequence[str]) -> Document:
    return {name: getattr(row, name) for name in names}


def _hint_row(hint: PlacementHint) -> Document:
    document: Document = msgspec.to_builtins(hint)
    rest = {name: value for name, value in document.items() if name not in _HINT_COLUMNS}
    return {"replaces": hint.replaces, "plan": hint.plan, "expires_at": hint.expires_at, "hint": rest}


def _deserialize_stage(document: Document) -> PlanStage:
    """Read a stage; an eviction with a target is a move, one without is a preemption."""
    evictions = tuple(
        msgspec.convert(one, PlannedPlacement if "target" in one else PlannedPreemption)
        for one in document["evictions"]
    )
    return _deserialize(PlanStage, document, evictions=evictions)


def _deserialize(kind: type[T], document: Document, **given: object) -> T:
    """Read a dataclass field by field except `given`, because msgspec cannot read a union of dataclasses."""
    types = get_type_hints(kind)
    read = {name: msgspec.convert(document[name], types[name]) for name in types if name not in given}
    return kind(**read, **given)
