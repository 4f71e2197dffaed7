"""Intents: every write is recorded before it is sent, and what was left open is compared with the cluster."""

import asyncio
import secrets
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime

import structlog

from cruise.domain.actions import (
    Action,
    ContainerTarget,
    EvictPod,
    Intent,
    Outcome,
    ResizePod,
    TaintNode,
    UntaintNode,
    Verdict,
)
from cruise.domain.cluster import Pod, Snapshot
from cruise.domain.sizes import spec_targets
from cruise.runtime.ports import Cluster, Store
from cruise.runtime.writing.audit import AuditQueue

log = structlog.get_logger()

FOUND_DONE = "its answer was not seen; the cluster shows it done"
FOUND_NOT_DONE = "its answer was not seen; the cluster does not show it"

# A statement for so many writes: a large pass makes some sixty statements, and a lost process leaves no more open.
_AT_ONCE = 500
_READS_AT_ONCE = 16


class PlanIntents:
    """The intents of one application of a plan, recorded some hundred at a time before the first of them is sent."""

    def __init__(
        self,
        actions: Sequence[Action],
        store: Store,
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

    def expect(self, numbers: Iterable[int]) -> None:
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

    async def begin_alone(self, number: int) -> None:
        """Record one action."""
        await self._record([number])

    def take(self, number: int) -> int | None:
        """Return the intent of an action that has ended, None where none was recorded."""
        return self._open.pop(number, None)

    def close(self) -> None:
        """Close what was recorded and is not sent any more."""
        self._audit.close(self._open.values())
        self._open.clear()

    async def _record(self, numbers: Sequence[int]) -> None:
        actions = [self._actions[number] for number in numbers]
        intents = [Intent(secrets.randbits(63), self._now, action, self._before(action)) for action in actions]
        self._audit.begin(one.id for one in intents)
        try:
            await self._store.begin_writes(intents)
        except BaseException:
            for one in intents:
                # It may be stored all the same.
                self._audit.leave_open(one.id)
            raise
        self._open |= {number: one.id for number, one in zip(numbers, intents, strict=True)}


async def reconcile(cluster: Cluster, store: Store, audit: AuditQueue, snapshot: Snapshot) -> Sequence[Outcome]:
    """Give an outcome to each write that nobody saw the end of, from the cluster as it is now.

    Those are the writes that a former leader left open, and those of this process whose answer was lost. Raises
    Unavailable where the cluster or the store is out of reach: then nothing may be written.
    """
    left = [one for one in await store.open_intents() if not audit.is_under_way(one.id)]
    audit.find(one.id for one in left)
    if not left:
        return ()
    turns = asyncio.Semaphore(_READS_AT_ONCE)

    async def ended(intent: Intent) -> Outcome:
        async with turns:
            done = await _is_done(intent, cluster, snapshot)
        verdict, detail = (Verdict.DONE, FOUND_DONE) if done else (Verdict.FAILED, FOUND_NOT_DONE)
        return Outcome(intent.at, intent.action, verdict, intent.action.reason, detail, before=intent.before)

    outcomes = await asyncio.gather(*map(ended, left))
    for intent, outcome in zip(left, outcomes, strict=True):
        audit.reconciled(intent.id, outcome)
    await audit.record(store)
    done = sum(one.verdict is Verdict.DONE for one in outcomes)
    log.warning("writes without an answer were compared with the cluster", writes=len(outcomes), done=done)
    return outcomes


async def _is_done(intent: Intent, cluster: Cluster, snapshot: Snapshot) -> bool:
    action = intent.action
    match action:
        case ResizePod():
            pod = await cluster.pod(action.namespace, action.pod)
            return pod is not None and pod.uid == action.uid and _is_resized(intent.before, action, pod)
        case EvictPod():
            pod = await cluster.pod(action.namespace, action.pod)
            return pod is None or pod.uid != action.uid or pod.terminating
        case TaintNode() | UntaintNode():
            node = next((one for one in snapshot.nodes if one.name == action.node), None)
            return node is not None and (action.taint in node.taints) == isinstance(action, TaintNode)


def _is_resized(before: Sequence[ContainerTarget], action: ResizePod, pod: Pod) -> bool:
    """Tell whether a pod has not the sizes any more that it had: of a resize a part may have been sent."""
    if before:
        return tuple(before) != spec_targets(pod)
    spec = {target.container: target for target in spec_targets(pod)}
    return all(
        target.container in spec and spec[target.container].requests == target.requests for target in action.containers
    )
