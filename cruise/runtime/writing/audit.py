"""Intents: every write is recorded before it is sent, and what was left open is compared with the cluster."""

import asyncio
import secrets
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import structlog

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
)
from cruise.domain.cluster import ClusterSnapshot, Pod
from cruise.domain.pod_resources import get_spec_targets
from cruise.runtime.ports import ClusterPort, StorePort

# The audit as writers fill it: lines in order, repetitions counted, kept until the store has them.

# A line of what goes on is brought up to date after this time, and what has not come again for as long has ended.
_TOLD_AFTER = timedelta(hours=1)
_MANY = 10_000
_Ending = tuple[ActionResult, ReasonCode]


@dataclass(slots=True)
class _OngoingEntry:
    """What goes on: its line as it is now, and as of when and with which count it was last told."""

    entry: Outcome
    reported_at: datetime
    reported_count: int = 1

    @property
    def is_unreported(self) -> bool:
        return self.entry.count > self.reported_count


class AuditQueue:
    """Outcomes on their way into the audit; one for a process, so that what the store refused is not lost."""

    def __init__(self) -> None:
        self._recording = asyncio.Lock()
        self._unrecorded: list[Outcome] = []
        # Intents: those of this process of which the outcome is still to be stored, those that wait to be closed, and
        # those that were left open after their line.
        self._under_way: set[int] = set()
        self._closed: list[int] = []
        self._told_open: set[int] = set()
        self._found: set[int] = set()
        self._going: dict[tuple[type[Action], str], dict[_Ending, _OngoingEntry]] = {}
        self._most_kept = _MANY

    def add_intents(self, intents: Iterable[int]) -> None:
        """Take on intents, until their outcomes are stored."""
        self._under_way.update(intents)

    @property
    def open_intents(self) -> int:
        """The intents without a stored outcome: of this process, and those of others that it has found."""
        return len(self._under_way | self._told_open | self._found)

    def find(self, intents: Iterable[int]) -> None:
        """Take note of intents that nobody saw the end of, until they are compared with the cluster."""
        self._found = set(intents)

    def is_in_progress(self, intent: int) -> bool:
        """Tell whether the outcome of an intent is still to come from this process."""
        return intent in self._under_way

    def close_intents(self, intents: Iterable[int]) -> None:
        """Close intents that were never sent."""
        self._closed += intents

    def leave_open(self, intent: int, line: Outcome | None = None) -> None:
        """Leave an intent to be compared with the cluster; `line` says what is known of it until then."""
        self._under_way.discard(intent)
        if line is not None:
            self._told_open.add(intent)
            self.add(line)

    def mark_reconciled(self, intent: int, outcome: Outcome) -> None:
        """Close an intent that was compared with the cluster, with a line where there is news."""
        self._found.discard(intent)
        told = intent in self._told_open and outcome.result is ActionResult.FAILED
        self._told_open.discard(intent)
        if told:
            self._closed.append(intent)
        else:
            self.add(outcome, intent)

    def add(self, outcome: Outcome, intent: int | None = None) -> None:
        """Add an outcome, which closes its intent.

        What was not done, and was not done last time for the same reason, counts on its line.
        """
        if intent is not None:
            self._closed.append(intent)
        key = (type(outcome.action), _subject(outcome.action))
        if outcome.result is ActionResult.DONE:
            self._tell(self._going.pop(key, {}).values())
            self._unrecorded.append(outcome)
            return
        self._forget_old(outcome.at)
        endings = self._going.setdefault(key, {})
        ending = (outcome.result, outcome.reason)
        before = endings.get(ending)
        if before is None or outcome.at - before.entry.at > _TOLD_AFTER:
            self._tell([] if before is None else [before])
            endings[ending] = _OngoingEntry(outcome, outcome.at)
            self._unrecorded.append(outcome)
            return
        line = before.entry
        before.entry = replace(line, at=outcome.at, first_at=line.since, count=line.count + 1)
        if outcome.at - before.reported_at >= _TOLD_AFTER or outcome.action.reason is ReasonCode.OOM_KILLED:
            # Each kill is an event of its own, and rare: its count is not kept back.
            self._tell([before])

    async def record(self, store: StorePort) -> None:
        """Write the waiting lines to the store; where it fails they go on waiting."""
        async with self._recording:
            lines, self._unrecorded = self._unrecorded, []
            closed, self._closed = self._closed, []
            if not lines and not closed:
                return
            try:
                await store.record_outcomes(lines, closed)
            except BaseException:
                self._unrecorded = [*lines, *self._unrecorded]
                self._closed = [*closed, *self._closed]
                raise
            self._under_way.difference_update(closed)

    @property
    def unrecorded(self) -> Sequence[Outcome]:
        """The lines that wait for the store."""
        return tuple(self._unrecorded)

    def _tell(self, some: Iterable[_OngoingEntry]) -> None:
        for going in some:
            if going.is_unreported:
                self._unrecorded.append(going.entry)
                going.reported_at, going.reported_count = going.entry.at, going.entry.count

    def _forget_old(self, now: datetime) -> None:
        if len(self._going) <= self._most_kept:
            return
        for key, endings in list(self._going.items()):
            if all(now - going.entry.at > _TOLD_AFTER for going in endings.values()):
                self._tell(self._going.pop(key).values())
        self._most_kept = max(_MANY, 2 * len(self._going))


def _subject(action: Action) -> str:
    return action.uid if isinstance(action, ResizePod | EvictPod) else action.node


log = structlog.get_logger()

RECONCILED_DONE = "its answer was not seen; the cluster shows it done"
RECONCILED_NOT_DONE = "its answer was not seen; the cluster does not show it"

# A statement for so many writes: a large pass makes some sixty statements, and a lost process leaves no more open.
_AT_ONCE = 500
_READS_AT_ONCE = 16


class PlanIntents:
    """The intents of one application of a plan, recorded some hundred at a time before the first of them is sent."""

    def __init__(
        self,
        actions: Sequence[Action],
        store: StorePort,
        audit: AuditQueue,
        now: datetime,
        before: Callable[[Action], tuple[ContainerTarget, ...]],
        may_be_sent: Callable[[int], bool],
    ) -> None:
        self._actions = actions
        self._store = store
        self._audit = audit
        self._now = now
        self._before = before
        self._may_be_sent = may_be_sent
        self._ahead: deque[int] = deque()
        self._open: dict[int, int] = {}
        self._beginning = asyncio.Lock()

    def announce(self, numbers: Iterable[int]) -> None:
        """Say which actions come next, in their order; they may be recorded together."""
        self._ahead = deque(numbers)

    async def begin(self, number: int) -> None:
        """Record an action, and those that are expected next. Raises what the store raises: then it is not sent."""
        async with self._beginning:
            if number in self._open:
                return
            batch = [number]
            while self._ahead and len(batch) < _AT_ONCE:
                following = self._ahead.popleft()
                if following != number and self._may_be_sent(following):
                    batch.append(following)
            await self._record(batch)

    async def begin_single(self, number: int) -> None:
        """Record one action."""
        await self._record([number])

    def get_intent(self, number: int) -> int | None:
        """Return the intent of an action that has ended, None where none was recorded."""
        return self._open.pop(number, None)

    def close(self) -> None:
        """Close what was recorded and is not sent any more."""
        self._audit.close_intents(self._open.values())
        self._open.clear()

    async def _record(self, numbers: Sequence[int]) -> None:
        actions = [self._actions[number] for number in numbers]
        intents = [WriteIntent(secrets.randbits(63), self._now, action, self._before(action)) for action in actions]
        self._audit.add_intents(one.id for one in intents)
        try:
            await self._store.begin_writes(intents)
        except BaseException:
            for one in intents:
                # It may be stored all the same.
                self._audit.leave_open(one.id)
            raise
        self._open |= {number: one.id for number, one in zip(numbers, intents, strict=True)}


async def reconcile_intents(
    cluster: ClusterPort, store: StorePort, audit: AuditQueue, snapshot: ClusterSnapshot
) -> Sequence[Outcome]:
    """Give an outcome to each write that nobody saw the end of, from the cluster as it is now.

    Those are the writes that a former leader left open, and those of this process whose answer was lost. Raises
    Unavailable where the cluster or the store is out of reach: then nothing may be written.
    """
    left = [one for one in await store.open_intents() if not audit.is_in_progress(one.id)]
    audit.find(one.id for one in left)
    if not left:
        return ()
    turns = asyncio.Semaphore(_READS_AT_ONCE)

    async def ended(intent: WriteIntent) -> Outcome:
        async with turns:
            done = await _is_done(intent, cluster, snapshot)
        verdict, detail = (ActionResult.DONE, RECONCILED_DONE) if done else (ActionResult.FAILED, RECONCILED_NOT_DONE)
        return Outcome(intent.at, intent.action, verdict, intent.action.reason, detail, before=intent.before)

    outcomes = await asyncio.gather(*map(ended, left))
    for intent, outcome in zip(left, outcomes, strict=True):
        audit.mark_reconciled(intent.id, outcome)
    await audit.record(store)
    done = sum(one.result is ActionResult.DONE for one in outcomes)
    log.warning("writes without an answer were compared with the cluster", writes=len(outcomes), done=done)
    return outcomes


async def _is_done(intent: WriteIntent, cluster: ClusterPort, snapshot: ClusterSnapshot) -> bool:
    action = intent.action
    match action:
        case ResizePod():
            pod = await cluster.read_pod(action.namespace, action.pod)
            return pod is not None and pod.uid == action.uid and _is_resized(intent.before, action, pod)
        case EvictPod():
            pod = await cluster.read_pod(action.namespace, action.pod)
            return pod is None or pod.uid != action.uid or pod.terminating
        case TaintNode() | UntaintNode():
            node = next((one for one in snapshot.nodes if one.name == action.node), None)
            return node is not None and (action.taint in node.taints) == isinstance(action, TaintNode)


def _is_resized(before: Sequence[ContainerTarget], action: ResizePod, pod: Pod) -> bool:
    """Tell whether a pod has not the sizes any more that it had: of a resize a part may have been sent."""
    if before:
        return tuple(before) != get_spec_targets(pod)
    spec = {target.container: target for target in get_spec_targets(pod)}
    return all(
        target.container in spec and spec[target.container].requests == target.requests for target in action.containers
    )
