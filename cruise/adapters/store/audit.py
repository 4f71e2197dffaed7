"""The audit: every action as it ended."""

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime

import msgspec
from sqlalchemy import ColumnElement, Row, delete, func, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from cruise.adapters.store.connection import driver_in_transaction
from cruise.adapters.store.documents import (
    EVICTION,
    Document,
    action_document,
    kind_of,
    read_action,
    read_targets,
    targets_document,
)
from cruise.adapters.store.tables import intent, outcome
from cruise.domain.actions import EvictPod, Intent, Outcome, Reason, ResizePod, Verdict, evictions_spent

_COLUMNS = [name for name in outcome.c.keys() if name != "id"]
# Of a resize's document, beside what the action itself states.
_BEFORE = "before"

# Lines that go on, by the place of each among those given; the index of a pod's lines, or of a node's, finds them.
_GO_ON = """
UPDATE outcome SET at = going.at, first_at = going.first_at, times = going.times
FROM unnest($1::int[], $2::timestamptz[], $3::timestamptz[], $4::int[], $5::text[], $6::text[], $7::text[],
            $8::text[], $9::text[], $10::text[], $11::text[])
  AS going (place, at, first_at, times, kind, verdict, reason, namespace, pod, pod_uid, node)
WHERE {whose} AND outcome.at BETWEEN going.first_at AND going.at AND outcome.kind = going.kind
  AND outcome.verdict = going.verdict AND outcome.reason = going.reason
  AND coalesce(outcome.first_at, outcome.at) = going.first_at
RETURNING going.place
"""
_GO_ON_OF_PODS = _GO_ON.format(
    whose="outcome.namespace = going.namespace AND outcome.pod = going.pod AND outcome.pod_uid = going.pod_uid"
)
_GO_ON_OF_NODES = _GO_ON.format(whose="outcome.pod IS NULL AND going.pod IS NULL AND outcome.node = going.node")


async def append(connection: AsyncConnection, outcomes: Sequence[Outcome], completed: Collection[int] = ()) -> None:
    """Append outcomes in their order, and close intents; outcomes that go on take the place of their lines."""
    if not outcomes and not completed:
        return
    driver = await driver_in_transaction(connection)
    if completed:
        await driver.execute("DELETE FROM intent WHERE id = ANY($1::bigint[])", list(completed))
    last = {line.line: line for line in outcomes if line.count > 1}
    new = [line for line in outcomes if last.get(line.line, line) is line]
    if last:
        going = list(last.values())
        columns = list(zip(*map(_going, range(len(going)), going), strict=True))
        found = {row[0] for one in (_GO_ON_OF_PODS, _GO_ON_OF_NODES) for row in await driver.fetch(one, *columns)}
        known = {going[place].line for place in found}
        new = [line for line in new if line.line not in known]
    await driver.copy_records_to_table(outcome.name, columns=_COLUMNS, records=_records(new))


async def begin(connection: AsyncConnection, intents: Sequence[Intent]) -> None:
    """Record writes before they are sent."""
    driver = await driver_in_transaction(connection)
    await driver.copy_records_to_table(intent.name, columns=list(intent.c.keys()), records=_begun(intents))


async def check_writable(connection: AsyncConnection) -> None:
    """Write a row and remove it again, in one transaction."""
    probe = {"id": -1, "at": func.now(), "kind": "", "action": {}}
    await connection.execute(insert(intent).values(probe))
    await connection.execute(delete(intent).where(intent.c.id == -1))


async def not_ended(connection: AsyncConnection) -> Sequence[Intent]:
    """Return the writes of which no outcome is recorded, oldest first."""
    rows = await connection.execute(select(intent).order_by(intent.c.at, intent.c.id))
    return [_intent(row) for row in rows]


def _begun(intents: Sequence[Intent]) -> Iterator[tuple[object, ...]]:
    for one in intents:
        action = one.action
        whose = action if isinstance(action, ResizePod | EvictPod) else None
        document = msgspec.json.encode(_document(one)).decode()
        yield one.id, one.at, kind_of(action), whose and whose.namespace, whose and whose.pod, action.node, document


def _intent(row: Row[tuple[object, ...]]) -> Intent:
    return Intent(row.id, row.at, read_action(row.kind, row.action), read_targets(row.action.get(_BEFORE, [])))


def _going(place: int, line: Outcome) -> tuple[object, ...]:
    action = line.action
    whose = (action.namespace, action.pod, action.uid) if isinstance(action, ResizePod | EvictPod) else (None,) * 3
    kind, verdict, reason = kind_of(action), line.verdict.value, line.reason.value
    return (place, line.at, line.since, line.count, kind, verdict, reason, *whose, action.node)


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
            msgspec.json.encode(_document(line)).decode(),
            line.first_at,
            line.count,
        )


def _document(line: Outcome | Intent) -> Document:
    """Return an action as a document, with the sizes that it found."""
    document = action_document(line.action)
    return document | {_BEFORE: targets_document(line.before)} if line.before else document


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


async def evictions_begun(connection: AsyncConnection, since: datetime) -> Sequence[Outcome]:
    """Return the evictions that were begun not before a time, oldest first, one line for each pod."""
    spent: ColumnElement[bool] = (outcome.c.kind == EVICTION) & outcome.c.verdict.in_([Verdict.DONE, Verdict.FAILED])
    statement = select(outcome).where(spent, outcome.c.at >= since).order_by(outcome.c.at, outcome.c.id)
    lines = [_outcome(row) for row in await connection.execute(statement)]
    begun = select(intent).where(intent.c.kind == EVICTION, intent.c.at >= since)
    lines += [_intent(row).begun for row in await connection.execute(begun)]
    return evictions_spent(lines)


def _outcome(row: Row[tuple[object, ...]]) -> Outcome:
    return Outcome(
        at=row.at,
        action=read_action(row.kind, row.action),
        verdict=Verdict(row.verdict),
        reason=Reason(row.reason),
        detail=row.detail,
        first_at=row.first_at,
        count=row.times,
        before=read_targets(row.action.get(_BEFORE, [])),
    )


async def prune(connection: AsyncConnection, before: datetime) -> None:
    """Drop the lines before a time."""
    await connection.execute(delete(outcome).where(outcome.c.at < before))
