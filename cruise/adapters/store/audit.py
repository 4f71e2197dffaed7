"""The audit: every action as it ended."""

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Row, delete, func, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from cruise.adapters.store.connection import get_driver_connection
from cruise.adapters.store.schema import intent, outcome, user_action
from cruise.domain.actions import (
    Action,
    ActionResult,
    ContainerTarget,
    EvictPod,
    Outcome,
    ReasonCode,
    ResizePod,
    TaintNode,
    UntaintNode,
    WriteIntent,
    find_counted_evictions,
)
from cruise.domain.annotations import Overrides
from cruise.domain.cluster import WorkloadRef
from cruise.domain.policy import EvictionRanking, Mode
from cruise.domain.users import UserAction, UserActionKind

# Actions, targets and overrides as JSON documents: what has no table of its own. Numbers that stand for names in the code (modes, rankings) are stored by name, so that documents read by themselves and outlive a renumbering.

Document = dict[str, Any]

_ACTIONS: dict[str, type[Action]] = {
    "resize": ResizePod,
    "evict": EvictPod,
    "taint": TaintNode,
    "untaint": UntaintNode,
}
_KINDS = {action: kind for kind, action in _ACTIONS.items()}
EVICTION = _KINDS[EvictPod]


def get_action_kind(action: Action) -> str:
    """Return the name under which an action of its type is stored."""
    return _KINDS[type(action)]


def serialize_action(action: Action) -> Document:
    """Return an action as a document."""
    return _named(msgspec.to_builtins(action))


def deserialize_action(kind: str, document: Document) -> Action:
    """Return the action of a kind that `action_document` wrote."""
    action: Action = msgspec.convert(_numbered(document), type=_ACTIONS[kind])
    return action


def serialize_targets(containers: Sequence[ContainerTarget]) -> list[Document]:
    """Return the targets of a pod's containers as documents."""
    documents: list[Document] = msgspec.to_builtins(containers)
    return documents


def deserialize_targets(documents: list[Document]) -> tuple[ContainerTarget, ...]:
    """Return the targets that `targets_document` wrote."""
    return msgspec.convert(documents, type=tuple[ContainerTarget, ...])


def serialize_override(override: Overrides) -> Document:
    """Return an override as a document."""
    document = _named(msgspec.to_builtins(override))
    if override.resources is not None:
        document["resources"] = sorted(document["resources"])
    return document


def deserialize_override(document: Document) -> Overrides:
    """Return the override that `override_document` wrote."""
    return msgspec.convert(_numbered(document), type=Overrides)


def _named(document: Document) -> Document:
    # Of a moment, and known right before a write is sent.
    document.pop("version", None)
    if document.get("mode") is not None:
        document["mode"] = Mode(document["mode"]).label
    if document.get("ranking") is not None:
        document["ranking"] = EvictionRanking(document["ranking"]).label
    return document


def _numbered(document: Document) -> Document:
    document = dict(document)
    if document.get("mode") is not None:
        document["mode"] = Mode[document["mode"].upper()]
    if document.get("ranking") is not None:
        document["ranking"] = EvictionRanking[document["ranking"].upper()]
    return document


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


async def append_outcomes(
    connection: AsyncConnection, outcomes: Sequence[Outcome], completed: Collection[int] = ()
) -> None:
    """Append outcomes in their order, and close intents; outcomes that go on take the place of their lines."""
    if not outcomes and not completed:
        return
    driver = await get_driver_connection(connection)
    if completed:
        await driver.execute("DELETE FROM intent WHERE id = ANY($1::bigint[])", list(completed))
    last = {line.audit_key: line for line in outcomes if line.count > 1}
    new = [line for line in outcomes if last.get(line.audit_key, line) is line]
    if last:
        going = list(last.values())
        columns = list(zip(*map(_going, range(len(going)), going), strict=True))
        found = {row[0] for one in (_GO_ON_OF_PODS, _GO_ON_OF_NODES) for row in await driver.fetch(one, *columns)}
        known = {going[place].line for place in found}
        new = [line for line in new if line.audit_key not in known]
    await driver.copy_records_to_table(outcome.name, columns=_COLUMNS, records=_records(new))


async def insert_intents(connection: AsyncConnection, intents: Sequence[WriteIntent]) -> None:
    """Record writes before they are sent."""
    driver = await get_driver_connection(connection)
    await driver.copy_records_to_table(intent.name, columns=list(intent.c.keys()), records=_begun(intents))


async def check_audit_writable(connection: AsyncConnection) -> None:
    """Write a row and remove it again, in one transaction."""
    probe = {"id": -1, "at": func.now(), "kind": "", "action": {}}
    await connection.execute(insert(intent).values(probe))
    await connection.execute(delete(intent).where(intent.c.id == -1))


async def read_open_intents(connection: AsyncConnection) -> Sequence[WriteIntent]:
    """Return the writes of which no outcome is recorded, oldest first."""
    rows = await connection.execute(select(intent).order_by(intent.c.at, intent.c.id))
    return [_intent(row) for row in rows]


def _begun(intents: Sequence[WriteIntent]) -> Iterator[tuple[object, ...]]:
    for one in intents:
        action = one.action
        whose = action if isinstance(action, ResizePod | EvictPod) else None
        document = msgspec.json.encode(_document(one)).decode()
        yield (
            one.id,
            one.at,
            get_action_kind(action),
            whose and whose.namespace,
            whose and whose.pod,
            action.node,
            document,
        )


def _intent(row: Row[tuple[object, ...]]) -> WriteIntent:
    return WriteIntent(
        row.id, row.at, deserialize_action(row.kind, row.action), deserialize_targets(row.action.get(_BEFORE, []))
    )


def _going(place: int, line: Outcome) -> tuple[object, ...]:
    action = line.action
    whose = (action.namespace, action.pod, action.uid) if isinstance(action, ResizePod | EvictPod) else (None,) * 3
    kind, verdict, reason = get_action_kind(action), line.result.value, line.reason.value
    return (place, line.at, line.since, line.count, kind, verdict, reason, *whose, action.node)


def _records(outcomes: Sequence[Outcome]) -> Iterator[tuple[object, ...]]:
    for line in outcomes:
        action = line.action
        whose = action if isinstance(action, ResizePod | EvictPod) else None
        yield (
            line.at,
            get_action_kind(action),
            line.result.value,
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


def _document(line: Outcome | WriteIntent) -> Document:
    """Return an action as a document, with the sizes that it found."""
    document = serialize_action(line.action)
    return document | {_BEFORE: serialize_targets(line.before)} if line.before else document


async def read_newest_outcomes(connection: AsyncConnection, since: datetime, limit: int = 1000) -> Sequence[Outcome]:
    """Return the newest lines not before a time, newest first."""
    statement = select(outcome).where(outcome.c.at >= since).order_by(outcome.c.at.desc(), outcome.c.id.desc())
    return [_outcome(row) for row in await connection.execute(statement.limit(limit))]


async def read_outcomes_of_pod(
    connection: AsyncConnection, namespace: str, pod: str, since: datetime
) -> Sequence[Outcome]:
    """Return the lines about one pod not before a time, newest first."""
    whose = (outcome.c.namespace == namespace) & (outcome.c.pod == pod)
    statement = select(outcome).where(whose, outcome.c.at >= since)
    newest_first = statement.order_by(outcome.c.at.desc(), outcome.c.id.desc())
    return [_outcome(row) for row in await connection.execute(newest_first)]


async def read_evictions_since(connection: AsyncConnection, since: datetime) -> Sequence[Outcome]:
    """Return the evictions that were begun not before a time, oldest first, one line for each pod."""
    spent: ColumnElement[bool] = (outcome.c.kind == EVICTION) & outcome.c.verdict.in_(
        [ActionResult.DONE, ActionResult.FAILED]
    )
    statement = select(outcome).where(spent, outcome.c.at >= since).order_by(outcome.c.at, outcome.c.id)
    lines = [_outcome(row) for row in await connection.execute(statement)]
    begun = select(intent).where(intent.c.kind == EVICTION, intent.c.at >= since)
    lines += [_intent(row).started_outcome for row in await connection.execute(begun)]
    return find_counted_evictions(lines)


def _outcome(row: Row[tuple[object, ...]]) -> Outcome:
    return Outcome(
        at=row.at,
        action=deserialize_action(row.kind, row.action),
        result=ActionResult(row.verdict),
        reason=ReasonCode(row.reason),
        detail=row.detail,
        first_at=row.first_at,
        count=row.times,
        before=deserialize_targets(row.action.get(_BEFORE, [])),
    )


async def prune_outcomes(connection: AsyncConnection, before: datetime) -> None:
    """Drop the lines before a time."""
    await connection.execute(delete(outcome).where(outcome.c.at < before))


# Who paused, resumed and overrode.


async def insert_user_action(connection: AsyncConnection, done: UserAction) -> None:
    """Append a line."""
    workload = done.workload
    await connection.execute(
        insert(user_action).values(
            at=done.at,
            caller=_kept(done.caller),
            deed=done.kind.value,
            namespace=done.namespace,
            workload_kind=workload.kind if workload is not None else None,
            workload_name=workload.name if workload is not None else None,
            detail=_kept(done.detail),
        )
    )


async def read_newest_user_actions(
    connection: AsyncConnection, since: datetime, limit: int = 1000
) -> Sequence[UserAction]:
    """Return the newest lines not before a time, newest first."""
    table = user_action.c
    statement = select(user_action).where(table.at >= since).order_by(table.at.desc(), table.id.desc()).limit(limit)
    return [
        UserAction(
            row.at,
            row.caller,
            UserActionKind(row.deed),
            row.namespace,
            WorkloadRef(row.workload_kind, row.workload_name) if row.workload_kind is not None else None,
            row.detail,
        )
        for row in await connection.execute(statement)
    ]


async def prune_user_actions(connection: AsyncConnection, before: datetime) -> None:
    """Drop the lines before a time."""
    await connection.execute(delete(user_action).where(user_action.c.at < before))


def _kept(text: str) -> str:
    """Leave out what Postgres has no room for."""
    return text.replace("\0", "")
