"""The packer's plans with their progress, and the pods that the current one steers."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, TypeVar, get_type_hints

import msgspec
from sqlalchemy import Row, delete, insert, select
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection

from cruise.adapters.store.documents import Document
from cruise.adapters.store.tables import packing_plan, steering
from cruise.domain.halts import Halt, HaltCode
from cruise.domain.packing import Arrival, PackingPlan, Preemption, Proposal, Stage, Steering
from cruise.domain.unplaced import Pattern, Unplaced
from cruise.packer.answer import Note, NoteCode

T = TypeVar("T")

# What has a column of its own, for queries by hand; the rest of a plan but its proposal is its progress.
_COLUMNS = ("id", "at", "phase", "changed_at")
_LISTS = ("placed", "moves", "preempted", "resizes")
_STEERING_COLUMNS = ("replaces", "plan", "until")


async def save(connection: AsyncConnection, plan: PackingPlan) -> None:
    """Store a plan, or the progress of one that is stored; only the pods that it steers are steered from then on."""
    document: Document = msgspec.to_builtins(plan)
    proposal = stored_proposal(document.pop("proposal"), plan.proposal)
    progress = {name: value for name, value in document.items() if name not in _COLUMNS}
    changes = {"phase": plan.phase.value, "changed_at": plan.changed_at, "progress": progress}
    statement = upsert(packing_plan).values(id=plan.id, at=plan.at, proposal=proposal, **changes)
    # A plan's proposal never changes, and may be large.
    await connection.execute(statement.on_conflict_do_update(index_elements=["id"], set_=changes))
    await connection.execute(delete(steering))
    if plan.steered:
        await connection.execute(insert(steering), [_steering_row(one) for one in plan.steered])


def stored_proposal(document: Document, proposal: Proposal) -> Document:
    """Return the document of a proposal with what releases before this one read of it: lists of what its stages do."""
    document |= {name: msgspec.to_builtins(getattr(proposal, name)) for name in _LISTS}
    # A release that reads words finds none, and shows the obstacles.
    for unplaced in document["unplaced"]:
        unplaced["words"] = ""
    document["coded_notes"], document["notes"] = document["notes"], []
    return document


async def last(connection: AsyncConnection) -> PackingPlan | None:
    """Return the plan of the latest look at the cluster."""
    newest = select(packing_plan).order_by(packing_plan.c.at.desc(), packing_plan.c.changed_at.desc()).limit(1)
    row = (await connection.execute(newest)).first()
    return None if row is None else _plan(row)


async def steered(connection: AsyncConnection) -> Sequence[Steering]:
    """Return the pods that are steered, by the uid of the pod that each replaces."""
    rows = await connection.execute(select(steering).order_by(steering.c.replaces))
    return [_filled(Steering, {**row.steering, **_columns(row, _STEERING_COLUMNS)}) for row in rows]


async def prune(connection: AsyncConnection, before: datetime) -> None:
    """Drop the plans of looks before a time."""
    await connection.execute(delete(packing_plan).where(packing_plan.c.at < before))


def _columns(row: Row[tuple[Any, ...]], names: Sequence[str]) -> Document:
    return {name: getattr(row, name) for name in names}


def _steering_row(one: Steering) -> Document:
    document: Document = msgspec.to_builtins(one)
    rest = {name: value for name, value in document.items() if name not in _STEERING_COLUMNS}
    return {"replaces": one.replaces, "plan": one.plan, "until": one.until, "steering": rest}


def _plan(row: Row[tuple[Any, ...]]) -> PackingPlan:
    stages = tuple(_stage(document) for document in row.proposal["stages"])
    unplaced = tuple(read_unplaced(document) for document in row.proposal["unplaced"])
    proposal = _filled(Proposal, row.proposal, stages=stages, unplaced=unplaced, notes=read_notes(row.proposal))
    progress = {**row.progress, **_columns(row, _COLUMNS)}
    return _filled(PackingPlan, progress, proposal=proposal, halt=read_halt(progress))


def _stage(document: Document) -> Stage:
    """Read a stage; of its leaves, which are of two kinds, a pod that moves has a target."""
    leaves = tuple(msgspec.convert(one, Arrival if "target" in one else Preemption) for one in document["leaves"])
    return _filled(Stage, document, leaves=leaves)


def read_unplaced(document: Document) -> Unplaced:
    """Read a pod that stays pending; releases before this one stored why in words."""
    stated = {"finding": {"pattern": Pattern.STATED.value, "stated": document["words"]}}
    return msgspec.convert({**stated, **document}, Unplaced)


def read_notes(document: Document) -> tuple[Note, ...]:
    """Read a proposal's notes; releases before this one stored them in words."""
    if "coded_notes" in document:
        return msgspec.convert(document["coded_notes"], tuple[Note, ...])
    return tuple(Note(NoteCode.STATED, words) for words in document["notes"])


def read_halt(document: Document) -> Halt | None:
    """Read why a plan goes no further; releases before this one stored that in words."""
    words = document.get("detail")
    return Halt(HaltCode.STATED, detail=words) if words else msgspec.convert(document.get("halt"), Halt | None)


def _filled(kind: type[T], document: Document, **given: object) -> T:
    """Read a dataclass field by field, but those that are given: a union of dataclasses cannot be read as a whole.

    What a release before this one did not store has its default.
    """
    types = get_type_hints(kind)
    read = {
        name: msgspec.convert(document[name], types[name]) for name in types if name not in given and name in document
    }
    return kind(**read, **given)
