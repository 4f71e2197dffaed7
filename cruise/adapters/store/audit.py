"""The audit: every action as it ended."""

from collections.abc import Iterator, Sequence
from datetime import datetime

import msgspec
from sqlalchemy import ColumnElement, Row, delete, select
from sqlalchemy.ext.asyncio import AsyncConnection

from cruise.adapters.store.connection import driver_in_transaction
from cruise.adapters.store.documents import EVICTION, action_document, kind_of, read_action
from cruise.adapters.store.tables import outcome
from cruise.domain.actions import EvictPod, Outcome, Reason, ResizePod, Verdict

_COLUMNS = [name for name in outcome.c.keys() if name != "id"]


async def append(connection: AsyncConnection, outcomes: Sequence[Outcome]) -> None:
    """Append outcomes in their order."""
    if outcomes:
        driver = await driver_in_transaction(connection)
        await driver.copy_records_to_table(outcome.name, columns=_COLUMNS, records=_records(outcomes))


def _records(outcomes: Sequence[Outcome]) -> Iterator[tuple[object, ...]]:
    for line in outcomes:
        action = line.action
        whose = action if isinstance(action, ResizePod | EvictPod) else None
        yield (
            line.at,
            kind_of(action),
            line.verdict.value,
            line.reason.value,
            line.detail,
            whose and whose.namespace,
            whose and whose.pod,
            whose and whose.uid,
            action.node,
            str(whose.workload) if whose and whose.workload else None,
            msgspec.json.encode(action_document(action)).decode(),
        )


async def newest(connection: AsyncConnection, since: datetime, limit: int = 1000) -> Sequence[Outcome]:
    """Return the newest lines not before a time, newest first."""
    statement = select(outcome).where(outcome.c.at >= since).order_by(outcome.c.at.desc(), outcome.c.id.desc())
    return [_outcome(row) for row in await connection.execute(statement.limit(limit))]


async def of_pod(connection: AsyncConnection, namespace: str, pod: str, since: datetime) -> Sequence[Outcome]:
    """Return the lines about one pod not before a time, newest first."""
    whose = (outcome.c.namespace == namespace) & (outcome.c.pod == pod)
    statement = select(outcome).where(whose, outcome.c.at >= since)
    newest_first = statement.order_by(outcome.c.at.desc(), outcome.c.id.desc())
    return [_outcome(row) for row in await connection.execute(newest_first)]


async def evictions_done(connection: AsyncConnection, since: datetime) -> Sequence[Outcome]:
    """Return the evictions that were done not before a time, oldest first."""
    done: ColumnElement[bool] = (outcome.c.kind == EVICTION) & (outcome.c.verdict == Verdict.DONE.value)
    statement = select(outcome).where(done, outcome.c.at >= since).order_by(outcome.c.at, outcome.c.id)
    return [_outcome(row) for row in await connection.execute(statement)]


def _outcome(row: Row[tuple[object, ...]]) -> Outcome:
    return Outcome(
        at=row.at,
        action=read_action(row.kind, row.action),
        verdict=Verdict(row.verdict),
        reason=Reason(row.reason),
        detail=row.detail,
    )


async def prune(connection: AsyncConnection, before: datetime) -> None:
    """Drop the lines before a time."""
    await connection.execute(delete(outcome).where(outcome.c.at < before))
