"""Packing plans with their progress, and the placement hints of the current plan."""

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

T = TypeVar("T")

# Fields with their own column, for queries by hand. The other fields of a plan, except its proposal, are its progress.
_PLAN_COLUMNS = ("id", "at", "phase", "changed_at")
_HINT_COLUMNS = ("replaces", "plan", "expires_at")


async def write_plan(connection: AsyncConnection, plan: PackingPlan) -> None:
    """Store a plan, or the progress of a stored one, and replace all placement hints with those of this plan."""
    document: Document = msgspec.to_builtins(plan)
    proposal = document.pop("proposal")
    progress = {name: value for name, value in document.items() if name not in _PLAN_COLUMNS}
    changes = {"phase": plan.phase.value, "changed_at": plan.changed_at, "progress": progress}
    statement = upsert(packing_plan).values(id=plan.id, at=plan.at, proposal=proposal, **changes)
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


async def prune_plans(connection: AsyncConnection, before: datetime) -> None:
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
