"""The audit: outcomes of actions, intents of writes that have no outcome yet, and actions of users on cruise."""

from collections.abc import Collection, Iterator, Sequence, Set
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Row, delete, func, insert, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from cruise.adapters.store.connection import get_driver_connection
from cruise.adapters.store.schema import audit, intent, user_action
from cruise.domain.actions import (
    Action,
    ActionResult,
    ContainerTarget,
    EvictPod,
    Outcome,
    ReasonCode,
    ResizeCause,
    ResizePod,
    TaintNode,
    UntaintNode,
    WriteIntent,
    find_counted_evictions,
)
from cruise.domain.cluster import WorkloadRef
from cruise.domain.policy import EvictionRanking, Mode
from cruise.domain.records import OutcomeCount
from cruise.domain.users import UserAction, UserActionKind

# Actions and targets as JSON documents. Modes and rankings are stored by name: documents stay readable, and
# their numbers in the code may change.

Document = dict[str, Any]

_ACTIONS: dict[str, type[Action]] = {
    "resize": ResizePod,
    "evict": EvictPod,
    "taint": TaintNode,
    "untaint": UntaintNode,
}
_KINDS = {action: kind for kind, action in _ACTIONS.items()}
EVICTION, RESIZE = _KINDS[EvictPod], _KINDS[ResizePod]


def get_action_kind(action: Action) -> str:
    """Return the name under which actions of this type are stored."""
    return _KINDS[type(action)]


def serialize_action(action: Action) -> Document:
    """Return an action as a document."""
    return _enums_to_names(msgspec.to_builtins(action))


def deserialize_action(kind: str, document: Document) -> Action:
    """Return the action of a kind that `serialize_action` wrote."""
    action: Action = msgspec.convert(_names_to_enums(document), type=_ACTIONS[kind])
    return action


def serialize_targets(containers: Sequence[ContainerTarget]) -> list[Document]:
    """Return the targets of a pod's containers as documents."""
    documents: list[Document] = msgspec.to_builtins(containers)
    return documents


def deserialize_targets(documents: list[Document]) -> tuple[ContainerTarget, ...]:
    """Return the targets that `serialize_targets` wrote."""
    return msgspec.convert(documents, type=tuple[ContainerTarget, ...])


def _enums_to_names(document: Document) -> Document:
    # The resource version is read right before a write is sent.
    document.pop("resource_version", None)
    if document.get("mode") is not None:
        document["mode"] = Mode(document["mode"]).label
    if document.get("ranking") is not None:
        document["ranking"] = EvictionRanking(document["ranking"]).label
    return document


def _names_to_enums(document: Document) -> Document:
    document = dict(document)
    if document.get("mode") is not None:
        document["mode"] = Mode[document["mode"].upper()]
    if document.get("ranking") is not None:
        document["ranking"] = EvictionRanking[document["ranking"].upper()]
    return document


_COLUMNS = [name for name in audit.c.keys() if name != "id"]
# The sizes before a resize, in the document of its action.
_BEFORE = "before"

# Update the rows of repeated outcomes, and return the positions of those that have a row. The index by pod or by node
# finds the rows.
_UPDATE_REPEATED = """
UPDATE audit SET at = repeated.at, first_at = repeated.first_at, occurrences = repeated.occurrences
FROM unnest($1::int[], $2::timestamptz[], $3::timestamptz[], $4::int[], $5::text[], $6::text[], $7::text[],
            $8::text[], $9::text[], $10::text[], $11::text[])
  AS repeated (position, at, first_at, occurrences, kind, result, reason, namespace, pod, pod_uid, node)
WHERE {subject} AND audit.at BETWEEN repeated.first_at AND repeated.at AND audit.kind = repeated.kind
  AND audit.result = repeated.result AND audit.reason = repeated.reason
  AND coalesce(audit.first_at, audit.at) = repeated.first_at
RETURNING repeated.position
"""
_UPDATE_REPEATED_OF_PODS = _UPDATE_REPEATED.format(
    subject="audit.namespace = repeated.namespace AND audit.pod = repeated.pod AND audit.pod_uid = repeated.pod_uid"
)
_UPDATE_REPEATED_OF_NODES = _UPDATE_REPEATED.format(
    subject="audit.pod IS NULL AND repeated.pod IS NULL AND audit.node = repeated.node"
)


async def append_outcomes(
    connection: AsyncConnection, outcomes: Sequence[Outcome], completed: Collection[int] = ()
) -> None:
    """Append outcomes in their order, and delete completed intents; a repeated outcome updates its row."""
    if not outcomes and not completed:
        return
    driver = await get_driver_connection(connection)
    last = {outcome.audit_key: outcome for outcome in outcomes if outcome.count > 1}
    new = [outcome for outcome in outcomes if last.get(outcome.audit_key, outcome) is outcome]
    if last:
        repeated = list(last.values())
        columns = list(zip(*map(_repeated_row, range(len(repeated)), repeated), strict=True))
        updated = {
            repeated[position].audit_key
            for statement in (_UPDATE_REPEATED_OF_PODS, _UPDATE_REPEATED_OF_NODES)
            for position, *_ in await driver.fetch(statement, *columns)
        }
        new = [outcome for outcome in new if outcome.audit_key not in updated]
    await driver.copy_records_to_table(audit.name, columns=_COLUMNS, records=_audit_rows(new))
    if completed:
        # Last: no limit of the server ends a COPY whose client has stopped, and it would keep these locks.
        await driver.execute("DELETE FROM intent WHERE id = ANY($1::bigint[])", list(completed))


async def insert_intents(connection: AsyncConnection, intents: Sequence[WriteIntent]) -> None:
    """Store the intents of writes before they are sent."""
    driver = await get_driver_connection(connection)
    await driver.copy_records_to_table(intent.name, columns=list(intent.c.keys()), records=_intent_rows(intents))


async def check_audit_writable(connection: AsyncConnection) -> None:
    """Insert a row and delete it, in one transaction."""
    probe = {"id": -1, "at": func.now(), "kind": "", "action": {}}
    await connection.execute(insert(intent).values(probe))
    await connection.execute(delete(intent).where(intent.c.id == -1))


async def read_open_intents(connection: AsyncConnection) -> Sequence[WriteIntent]:
    """Return the writes without a stored outcome, oldest first."""
    rows = await connection.execute(select(intent).order_by(intent.c.at, intent.c.id))
    return [_to_intent(row) for row in rows]


def _pod_action(action: Action) -> ResizePod | EvictPod | None:
    return action if isinstance(action, ResizePod | EvictPod) else None


def _intent_rows(intents: Sequence[WriteIntent]) -> Iterator[tuple[object, ...]]:
    for one in intents:
        pod = _pod_action(one.action)
        yield (
            one.id,
            one.at,
            get_action_kind(one.action),
            pod and pod.namespace,
            pod and pod.pod,
            one.action.node,
            _to_json(one),
        )


def _to_intent(row: Row[tuple[object, ...]]) -> WriteIntent:
    return WriteIntent(
        row.id, row.at, deserialize_action(row.kind, row.action), deserialize_targets(row.action.get(_BEFORE, []))
    )


def _repeated_row(position: int, outcome: Outcome) -> tuple[object, ...]:
    action = outcome.action
    pod = _pod_action(action)
    return (
        position,
        outcome.at,
        outcome.since,
        outcome.count,
        get_action_kind(action),
        outcome.result.value,
        outcome.reason.value,
        pod and pod.namespace,
        pod and pod.pod,
        pod and pod.uid,
        action.node,
    )


def _audit_rows(outcomes: Sequence[Outcome]) -> Iterator[tuple[object, ...]]:
    for outcome in outcomes:
        action = outcome.action
        pod = _pod_action(action)
        yield (
            outcome.at,
            get_action_kind(action),
            outcome.result.value,
            outcome.reason.value,
            _without_nul(outcome.detail),
            pod and pod.namespace,
            pod and pod.pod,
            pod and pod.uid,
            action.node,
            str(pod.workload) if pod and pod.workload else None,
            _to_json(outcome),
            outcome.first_at,
            outcome.count,
        )


def _to_json(one: Outcome | WriteIntent) -> str:
    """Return the action as JSON, with the sizes before it."""
    document = serialize_action(one.action)
    if one.before:
        document[_BEFORE] = serialize_targets(one.before)
    return msgspec.json.encode(document).decode()


# The condition of the index audit_of_attempts, as text: the planner must know its value.
_IS_ATTEMPT = text(f"audit.result <> '{ActionResult.SKIPPED}'")
_IS_DONE = text(f"audit.result = '{ActionResult.DONE}'")


# The newest rows of each namespace and of nodes, each from its part of the index audit_by_namespace: a condition on all
# namespaces at once would be applied to every row since that time.
_NEWEST_OF_NAMESPACES = """
SELECT newest.id FROM unnest(CAST(:namespaces AS text[])) AS name CROSS JOIN LATERAL (
  SELECT id FROM audit WHERE namespace = name AND at >= :since ORDER BY at DESC, id DESC LIMIT :most
) AS newest
UNION ALL
(SELECT id FROM audit WHERE namespace IS NULL AND at >= :since ORDER BY at DESC, id DESC LIMIT :most)
"""


async def read_newest_outcomes(
    connection: AsyncConnection, since: datetime, limit: int = 1000, namespaces: Set[str] | None = None
) -> Sequence[Outcome]:
    """Return the newest outcomes since a time, newest first; with namespaces, of their pods and of nodes."""
    statement = select(audit).where(audit.c.at >= since)
    if namespaces is not None:
        newest = text(_NEWEST_OF_NAMESPACES).bindparams(namespaces=sorted(namespaces), since=since, most=limit)
        statement = select(audit).where(audit.c.id.in_(newest.columns(audit.c.id)))
    newest_first = statement.order_by(audit.c.at.desc(), audit.c.id.desc())
    return [_to_outcome(row) for row in await connection.execute(newest_first.limit(limit))]


# From one namespace to the next in the index: the rows between them are not read.
_AUDITED_NAMESPACES = text("""
WITH RECURSIVE found AS (
  (SELECT namespace FROM audit WHERE namespace IS NOT NULL ORDER BY namespace LIMIT 1)
  UNION ALL
  SELECT (SELECT audit.namespace FROM audit WHERE audit.namespace > found.namespace ORDER BY namespace LIMIT 1)
  FROM found WHERE found.namespace IS NOT NULL
)
SELECT namespace FROM found WHERE namespace IS NOT NULL
UNION SELECT namespace FROM user_action WHERE namespace IS NOT NULL
""")


async def read_audited_namespaces(connection: AsyncConnection) -> Set[str]:
    """Return the namespaces of all outcomes and of all actions of users."""
    return set(await connection.scalars(_AUDITED_NAMESPACES))


async def read_done_outcomes(
    connection: AsyncConnection, since: datetime, limit: int, namespaces: Set[str] | None = None
) -> Sequence[Outcome]:
    """Return the newest outcomes of actions that were done, newest first; with namespaces, of their pods."""
    statement = select(audit).where(_IS_ATTEMPT, _IS_DONE, audit.c.at >= since)
    if namespaces is not None:
        statement = statement.where(audit.c.namespace.in_(sorted(namespaces)))
    newest_first = statement.order_by(audit.c.at.desc(), audit.c.id.desc())
    return [_to_outcome(row) for row in await connection.execute(newest_first.limit(limit))]


async def count_outcomes(connection: AsyncConnection, since: datetime) -> Sequence[OutcomeCount]:
    """Return the counts of the outcomes since a time, without skips."""
    purpose, cause = audit.c.action["reason"].astext, audit.c.action["cause"].astext
    key = (audit.c.namespace, audit.c.kind, purpose, cause, audit.c.result, audit.c.reason)
    statement = select(*key, func.count()).where(_IS_ATTEMPT, audit.c.at >= since).group_by(*key)
    return [
        OutcomeCount(
            row[0],
            _ACTIONS[row[1]],
            ReasonCode(row[2]),
            None if row[3] is None else ResizeCause(row[3]),
            ActionResult(row[4]),
            ReasonCode(row[5]),
            row[6],
        )
        for row in await connection.execute(statement)
    ]


async def read_outcomes_of_pod(
    connection: AsyncConnection, namespace: str, pod: str, since: datetime
) -> Sequence[Outcome]:
    """Return the outcomes for one pod since a time, newest first."""
    statement = select(audit).where(audit.c.namespace == namespace, audit.c.pod == pod, audit.c.at >= since)
    newest_first = statement.order_by(audit.c.at.desc(), audit.c.id.desc())
    return [_to_outcome(row) for row in await connection.execute(newest_first)]


async def read_evictions_since(connection: AsyncConnection, since: datetime) -> Sequence[Outcome]:
    """Return the evictions started since a time, oldest first, one outcome per pod."""
    counted: ColumnElement[bool] = (audit.c.kind == EVICTION) & audit.c.result.in_(
        [ActionResult.DONE, ActionResult.FAILED]
    )
    statement = select(audit).where(counted, audit.c.at >= since).order_by(audit.c.at, audit.c.id)
    outcomes = [_to_outcome(row) for row in await connection.execute(statement)]
    started = select(intent).where(intent.c.kind == EVICTION, intent.c.at >= since)
    outcomes += [_to_intent(row).started_outcome for row in await connection.execute(started)]
    return find_counted_evictions(outcomes)


async def read_unanswered_resizes(connection: AsyncConnection, since: datetime) -> Sequence[Outcome]:
    """Return the resizes since a time whose answer was not received, oldest first."""
    unanswered = (audit.c.kind == RESIZE) & (audit.c.result == ActionResult.FAILED)
    statement = select(audit).where(unanswered, audit.c.at >= since).order_by(audit.c.at, audit.c.id)
    return [_to_outcome(row) for row in await connection.execute(statement)]


def _to_outcome(row: Row[tuple[object, ...]]) -> Outcome:
    return Outcome(
        at=row.at,
        action=deserialize_action(row.kind, row.action),
        result=ActionResult(row.result),
        reason=ReasonCode(row.reason),
        detail=row.detail,
        first_at=row.first_at,
        count=row.occurrences,
        before=deserialize_targets(row.action.get(_BEFORE, [])),
    )


async def prune_outcomes(connection: AsyncConnection, before: datetime) -> None:
    """Delete the outcomes before a time."""
    await connection.execute(delete(audit).where(audit.c.at < before))


async def insert_user_action(connection: AsyncConnection, action: UserAction) -> None:
    """Append the action of a user."""
    workload = action.workload
    await connection.execute(
        insert(user_action).values(
            at=action.at,
            caller=_without_nul(action.caller),
            kind=action.kind.value,
            namespace=action.namespace,
            workload_kind=workload.kind if workload is not None else None,
            workload_name=workload.name if workload is not None else None,
            detail=_without_nul(action.detail),
        )
    )


async def read_newest_user_actions(
    connection: AsyncConnection, since: datetime, limit: int = 1000, namespaces: Set[str] | None = None
) -> Sequence[UserAction]:
    """Return the newest actions of users since a time, newest first; with namespaces, in these or in none."""
    table = user_action.c
    statement = select(user_action).where(table.at >= since).order_by(table.at.desc(), table.id.desc()).limit(limit)
    if namespaces is not None:
        statement = statement.where(table.namespace.is_(None) | table.namespace.in_(sorted(namespaces)))
    return [
        UserAction(
            row.at,
            row.caller,
            UserActionKind(row.kind),
            row.namespace,
            WorkloadRef(row.workload_kind, row.workload_name) if row.workload_kind is not None else None,
            row.detail,
        )
        for row in await connection.execute(statement)
    ]


async def prune_user_actions(connection: AsyncConnection, before: datetime) -> None:
    """Delete the actions of users before a time."""
    await connection.execute(delete(user_action).where(user_action.c.at < before))


def _without_nul(text: str) -> str:
    """Return the text without NUL characters, which Postgres cannot store."""
    return text.replace("\0", "")
