"""The audit queue, and the intents that record every write before it is sent."""

import asyncio
import secrets
from collections import deque
from collections.abc import Callable, Iterable, Sequence, Set
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

# A repeated outcome updates its line after this time; one that did not repeat for as long starts a new line.
_UPDATE_INTERVAL = timedelta(hours=1)
_PRUNE_COUNT = 10_000
_POD_ACTIONS = (ResizePod, EvictPod)
_Ending = tuple[ActionResult, ReasonCode]
log = structlog.get_logger()
RECONCILED_DONE = "its answer was not seen; the cluster shows it done"
RECONCILED_NOT_DONE = "its answer was not seen; the cluster does not show it"
# Writes a statement: a large pass needs about sixty statements, and a killed process leaves at most this many open.
_AT_ONCE = 500
_READS_AT_ONCE = 16


@dataclass(slots=True)
class _OngoingEntry:
    """The line of a repeated outcome, and the time and count that were last stored."""

    entry: Outcome
    reported_at: datetime
    reported_count: int = 1

    @property
    def is_unreported(self) -> bool:
        return self.entry.count > self.reported_count


class AuditQueue:
    """Outcomes that are not stored yet, one queue for a process: lines stay in order, and repetitions are counted."""

    def __init__(self) -> None:
        self._recording = asyncio.Lock()
        self._unrecorded: list[Outcome] = []
        # Intents of this process without a stored outcome, intents to be closed, intents that were left open after
        # their line, and open intents that were found in the database.
        self._in_progress: set[int] = set()
        self._closed: list[int] = []
        self._reported_open: set[int] = set()
        self._found: set[int] = set()
        self._expects_unknown = False
        self._ongoing: dict[tuple[type[Action], str], dict[_Ending, _OngoingEntry]] = {}
        self._prune_count = _PRUNE_COUNT

    def add_intents(self, intents: Iterable[int]) -> None:
        """Add intents whose outcomes will be stored later."""
        self._in_progress.update(intents)

    @property
    def open_intents(self) -> int:
        """How many intents have no stored outcome: of this process, and of others that it has found."""
        return len(self._in_progress | self._reported_open | self._found)

    @property
    def has_unresolved(self) -> bool:
        """Whether intents are known whose outcome only the cluster can tell."""
        return self._expects_unknown or bool(self._reported_open or self._found)

    def expect_unknown_intents(self) -> None:
        """Record that intents may be open of former leaders, or that were stored without an answer.

        The next plan looks for them, even without actions.
        """
        self._expects_unknown = True

    def find(self, intents: Iterable[int]) -> None:
        """Record which intents without an outcome are in the database, until they are compared with the cluster."""
        self._expects_unknown = False
        self._found = set(intents)
        # Another leader has compared the others, or the database has lost them.
        self._reported_open &= self._found

    def is_in_progress(self, intent: int) -> bool:
        """Return whether this process will store the outcome of an intent."""
        return intent in self._in_progress

    def close_intents(self, intents: Iterable[int]) -> None:
        """Close intents that were never sent."""
        self._closed += intents

    def leave_intent_open(self, intent: int, line: Outcome | None = None) -> None:
        """Leave an intent open, to be compared with the cluster; `line` describes it until then."""
        self._in_progress.discard(intent)
        if line is not None:
            self._reported_open.add(intent)
            self.add(line)

    def mark_reconciled(self, intent: int, outcome: Outcome) -> None:
        """Close an intent that was compared with the cluster; add a line unless it repeats the last one."""
        self._found.discard(intent)
        is_reported = intent in self._reported_open and outcome.result is ActionResult.FAILED
        self._reported_open.discard(intent)
        if is_reported:
            self._closed.append(intent)
        else:
            self.add(outcome, intent)

    def add(self, outcome: Outcome, intent: int | None = None) -> None:
        """Add an outcome, which closes its intent.

        An action that was not done again, for the same reason, counts on its earlier line.
        """
        if intent is not None:
            self._closed.append(intent)
        key = (type(outcome.action), _get_subject(outcome.action))
        if outcome.result is ActionResult.DONE:
            self._report(self._ongoing.pop(key, {}).values())
            self._unrecorded.append(outcome)
            return
        if outcome.result is ActionResult.FAILED:
            # It may still be done: budgets and capacities count each one.
            self._unrecorded.append(outcome)
            return
        self._forget_old(outcome.at)
        by_ending = self._ongoing.setdefault(key, {})
        result_and_reason = (outcome.result, outcome.reason)
        before = by_ending.get(result_and_reason)
        if before is None or outcome.at - before.entry.at > _UPDATE_INTERVAL:
            self._report([] if before is None else [before])
            by_ending[result_and_reason] = _OngoingEntry(outcome, outcome.at)
            self._unrecorded.append(outcome)
            return
        line = before.entry
        before.entry = replace(line, at=outcome.at, first_at=line.since, count=line.count + 1)
        if outcome.at - before.reported_at >= _UPDATE_INTERVAL or outcome.action.reason is ReasonCode.OOM_KILLED:
            # Kills are rare, so each one is stored.
            self._report([before])

    def forget_gone_pods(self, pods: Set[str], before: datetime) -> None:
        """Count no further repetitions for pods that are not among `pods`, all uids at a time or later.

        Outcomes since that time stay: they may be of newer pods.
        """
        for key, by_ending in list(self._ongoing.items()):
            is_gone = key[0] in _POD_ACTIONS and key[1] not in pods
            if is_gone and all(ongoing.entry.at < before for ongoing in by_ending.values()):
                self._report(self._ongoing.pop(key).values())

    async def record(self, store: StorePort) -> None:
        """Store the queued lines; if that fails they stay in the queue."""
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
            self._in_progress.difference_update(closed)

    @property
    def unrecorded(self) -> Sequence[Outcome]:
        """The lines that are not stored yet."""
        return tuple(self._unrecorded)

    def _report(self, entries: Iterable[_OngoingEntry]) -> None:
        for ongoing in entries:
            if ongoing.is_unreported:
                self._unrecorded.append(ongoing.entry)
                ongoing.reported_at, ongoing.reported_count = ongoing.entry.at, ongoing.entry.count

    def _forget_old(self, now: datetime) -> None:
        if len(self._ongoing) <= self._prune_count:
            return
        for key, by_ending in list(self._ongoing.items()):
            if all(now - ongoing.entry.at > _UPDATE_INTERVAL for ongoing in by_ending.values()):
                self._report(self._ongoing.pop(key).values())
        self._prune_count = max(_PRUNE_COUNT, 2 * len(self._ongoing))


def _get_subject(action: Action) -> str:
    return action.uid if isinstance(action, ResizePod | EvictPod) else action.node


class PlanIntents:
    """The intents of one application of a plan, stored in batches before their writes are sent."""

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
        """State which actions come next, in their order; they may be stored in one batch."""
        self._ahead = deque(numbers)

    async def begin(self, number: int) -> None:
        """Store an action's intent, and those of the next actions; if the database raises, the action is not sent."""
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
        """Store the intent of one action."""
        await self._record([number])

    def get_intent(self, number: int) -> int | None:
        """Return the intent of an action that has ended, None if none was stored."""
        return self._open.pop(number, None)

    def close(self) -> None:
        """Close the intents of actions that will not be sent."""
        self._audit.close_intents(self._open.values())
        self._open.clear()

    async def _record(self, numbers: Sequence[int]) -> None:
        actions = [self._actions[number] for number in numbers]
        intents = [WriteIntent(secrets.randbits(63), self._now, action, self._before(action)) for action in actions]
        self._audit.add_intents(one.id for one in intents)
        try:
            await self._store.record_intents(intents)
        except BaseException:
            # They may have been stored.
            for one in intents:
                self._audit.leave_intent_open(one.id)
            self._audit.expect_unknown_intents()
            raise
        self._open |= {number: one.id for number, one in zip(numbers, intents, strict=True)}


async def reconcile_intents(
    cluster: ClusterPort, store: StorePort, audit: AuditQueue, snapshot: ClusterSnapshot
) -> Sequence[Outcome]:
    """Give an outcome to each write whose end was not observed, by comparing it with the cluster.

    These are the writes that a former leader left open, and those of this process whose answer was lost. Raises
    Unavailable if the cluster or the database is unreachable: then nothing may be written.
    """
    unresolved = [one for one in await store.read_open_intents() if not audit.is_in_progress(one.id)]
    audit.find(one.id for one in unresolved)
    if not unresolved:
        return ()
    semaphore = asyncio.Semaphore(_READS_AT_ONCE)

    async def reconcile(intent: WriteIntent) -> Outcome:
        async with semaphore:
            done = await _is_done(intent, cluster, snapshot)
        result, detail = (ActionResult.DONE, RECONCILED_DONE) if done else (ActionResult.FAILED, RECONCILED_NOT_DONE)
        return Outcome(intent.at, intent.action, result, intent.action.reason, detail, before=intent.before)

    outcomes = await asyncio.gather(*map(reconcile, unresolved))
    for intent, outcome in zip(unresolved, outcomes, strict=True):
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
    """Return whether a pod's sizes differ from those before the resize: a resize may have been sent in part."""
    if before:
        return tuple(before) != get_spec_targets(pod)
    spec = {target.container: target for target in get_spec_targets(pod)}
    return all(
        target.container in spec and spec[target.container].requests == target.requests for target in action.containers
    )
