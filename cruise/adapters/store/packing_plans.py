"""The packer's plans with their progress, and the pods that the current one steers."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, TypeVar, get_type_hints

import msgspec
from sqlalchemy import Row, delete, insert, select
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection

from cruise.adapters.store.audit import Document
from cruise.adapters.store.schema import packing_plan, placement_hint
from cruise.domain.packing_plan import (
    PackingPlan,
    PackingProposal,
    PlacementHint,
    PlannedPlacement,
    PlannedPreemption,
    PlanStage,
)
from cruise.domain.reasons import PlanCondition, PlanStatusReason, UnplacedPod, UnschedulableCode
from cruise.packer.answer import PackingNote, PackingNoteCode

T = TypeVar("T")

# What has a column of its own, for queries by hand; the rest of a plan but its proposal is its progress.
_COLUMNS = ("id", "at", "phase", "changed_at")
_LISTS = ("placed", "moves", "preempted", "resizes")
_STEERING_COLUMNS = ("replaces", "plan", "until")


async def write_plan(connection: AsyncConnection, plan: PackingPlan) -> None:
    """Store a plan, or the progress of one that is stored; only the pods that it steers are steered from then on."""
    document: Document = msgspec.to_builtins(plan)
    proposal = serialize_proposal(document.pop("proposal"), plan.proposal)
    progress = {name: value for name, value in document.items() if name not in _COLUMNS}
    changes = {"phase": plan.phase.value, "changed_at": plan.changed_at, "progress": progress}
    statement = upsert(packing_plan).values(id=plan.id, at=plan.at, proposal=proposal, **changes)
    # A plan's proposal never changes, and may be large.
    await connection.execute(statement.on_conflict_do_update(index_elements=["id"], set_=changes))
    await connection.execute(delete(placement_hint))
    if plan.placement_hints:
        await connection.execute(insert(placement_hint), [_steering_row(one) for one in plan.placement_hints])


def serialize_proposal(document: Document, proposal: PackingProposal) -> Document:
    """Return the document of a proposal with what releases before this one read of it: lists of what its stages do."""
    document |= {name: msgspec.to_builtins(getattr(proposal, name)) for name in _LISTS}
    # A release that reads words finds none, and shows the obstacles.
    for unplaced in document["unplaced"]:
        unplaced["words"] = ""
    document["coded_notes"], document["notes"] = document["notes"], []
    return document


async def read_last_plan(connection: AsyncConnection) -> PackingPlan | None:
    """Return the plan of the latest look at the cluster."""
    newest = select(packing_plan).order_by(packing_plan.c.at.desc(), packing_plan.c.changed_at.desc()).limit(1)
    row = (await connection.execute(newest)).first()
    return None if row is None else _plan(row)


async def read_placement_hints(connection: AsyncConnection) -> Sequence[PlacementHint]:
    """Return the pods that are steered, by the uid of the pod that each replaces."""
    rows = await connection.execute(select(placement_hint).order_by(placement_hint.c.replaces))
    return [_filled(PlacementHint, {**row.steering, **_columns(row, _STEERING_COLUMNS)}) for row in rows]


async def prune_plans(connection: AsyncConnection, before: datetime) -> None:
    """Drop the plans of looks before a time."""
    await connection.execute(delete(packing_plan).where(packing_plan.c.at < before))


def _columns(row: Row[tuple[Any, ...]], names: Sequence[str]) -> Document:
    return {name: getattr(row, name) for name in names}


def _steering_row(one: PlacementHint) -> Document:
    document: Document = msgspec.to_builtins(one)
    rest = {name: value for name, value in document.items() if name not in _STEERING_COLUMNS}
    return {"replaces": one.replaces, "plan": one.plan, "until": one.expires_at, "steering": rest}


def _plan(row: Row[tuple[Any, ...]]) -> PackingPlan:
    stages = tuple(_stage(document) for document in row.proposal["stages"])
    unplaced = tuple(deserialize_unplaced(document) for document in row.proposal["unplaced"])
    proposal = _filled(
        PackingProposal, row.proposal, stages=stages, unplaced=unplaced, notes=deserialize_notes(row.proposal)
    )
    progress = {**row.progress, **_columns(row, _COLUMNS)}
    return _filled(PackingPlan, progress, proposal=proposal, halt=deserialize_condition(progress))


def _stage(document: Document) -> PlanStage:
    """Read a stage; of its leaves, which are of two kinds, a pod that moves has a target."""
    leaves = tuple(
        msgspec.convert(one, PlannedPlacement if "target" in one else PlannedPreemption) for one in document["leaves"]
    )
    return _filled(PlanStage, document, leaves=leaves)


def deserialize_unplaced(document: Document) -> UnplacedPod:
    """Read a pod that stays pending; releases before this one stored why in words."""
    stated = {"finding": {"pattern": UnschedulableCode.OTHER.value, "stated": document["words"]}}
    return msgspec.convert({**stated, **document}, UnplacedPod)


def deserialize_notes(document: Document) -> tuple[PackingNote, ...]:
    """Read a proposal's notes; releases before this one stored them in words."""
    if "coded_notes" in document:
        return msgspec.convert(document["coded_notes"], tuple[PackingNote, ...])
    return tuple(PackingNote(PackingNoteCode.OTHER, words) for words in document["notes"])


def deserialize_condition(document: Document) -> PlanCondition | None:
    """Read why a plan goes no further; releases before this one stored that in words."""
    words = document.get("detail")
    return (
        PlanCondition(PlanStatusReason.OTHER, detail=words)
        if words
        else msgspec.convert(document.get("halt"), PlanCondition | None)
    )


def _filled(kind: type[T], document: Document, **given: object) -> T:
    """Read a dataclass field by field, but those that are given: a union of dataclasses cannot be read as a whole.

    What a release before this one did not store has its default.
    """
    types = get_type_hints(kind)
    read = {
        name: msgspec.convert(document[name], types[name]) for name in types if name not in given and name in document
    }
    return kind(**read, **given)
