"""The one way to write to a cluster: a plan in its phases, many actions at once, until done, paused or cancelled."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime

import structlog

from cruise.domain.actions import Action, EvictPod, Outcome, ResizePod
from cruise.domain.cluster import ClusterSnapshot
from cruise.domain.policy import Policy
from cruise.domain.usage import StatisticsTable
from cruise.errors import CruiseError
from cruise.runtime.ports import ClusterPort, StorePort
from cruise.runtime.writing.action_runner import ActionRunner
from cruise.runtime.writing.api_answers import WRITE_TIMEOUTS, PauseState, WriteTimeouts, wait_for_event
from cruise.runtime.writing.audit import AuditQueue
from cruise.runtime.writing.evictions import EvictionLock, PendingGrowths, WriteExclusions
from cruise.runtime.writing.guards import WriteGuards

log = structlog.get_logger()

# Chains of action numbers, each to go through in sequence, and how many chains at once.
WritePhase = tuple[Sequence[Sequence[int]], int]

CONCURRENT_WRITES = 16
# What waits for its turn was let through before: a pause must not find more than this much of a second in the queue.
_QUEUED_SECONDS = 0.2


def compute_concurrent_writes(per_second: float) -> int:
    """Return how many writes may be under way where so many requests are let through in a second."""
    return min(CONCURRENT_WRITES, max(1, int(per_second * _QUEUED_SECONDS)))


class ClusterWriter:
    """Writes to one cluster under one policy, several plans at the same time if need be.

    Writers of one process share what keeps their plans apart: `audit`, what waits for the store; `evictions`, the turn
    in which budgets are spent; `grows`, the room taken on nodes; `exclusions`, what node passes leave alone. No plan
    has more than `at_once` writes under way. `latest` returns the statistics of the last usage pass.
    """

    def __init__(
        self,
        cluster: ClusterPort,
        store: StorePort,
        policy: Policy,
        *,
        audit: AuditQueue | None = None,
        evictions: EvictionLock | None = None,
        grows: PendingGrowths | None = None,
        exclusions: WriteExclusions | None = None,
        at_once: int = CONCURRENT_WRITES,
        waits: WriteTimeouts = WRITE_TIMEOUTS,
        latest: Callable[[], StatisticsTable | None] = lambda: None,
    ) -> None:
        self._cluster = cluster
        self._store = store
        self._policy = policy
        self._audit = audit or AuditQueue()
        self._evictions = evictions or EvictionLock()
        self._grows = grows or PendingGrowths()
        self._exclusions = exclusions or WriteExclusions()
        self._at_once = at_once
        self._waits = waits
        self._latest = latest

    async def apply_plan(
        self,
        actions: Sequence[Action],
        snapshot: ClusterSnapshot,
        now: datetime,
        *,
        asked_for: bool = False,
        pass_began: datetime | None = None,
        statistics: StatisticsTable | None = None,
    ) -> list[Outcome]:
        """Do what mode, pause, budgets and the cluster as it is now allow; return each action's outcome, in order.

        `snapshot` and `statistics` are what the actions were decided on. They are written while the snapshot is younger
        than `max_decision_age`, and a shrink only where the usage of the latest usage pass has not outgrown it. First
        everything that takes no room, many together; then the evictions, one after the other; then the grows, those of
        one node in sequence. What a person has `asked_for` is done in any mode and while paused, and so is the removal
        of cruise's own taints. Where the actions are a part of a longer pass, `pass_began` is since when evictions
        count against a node's budget. What mode or pause forbids is not audited: it comes again with every pass.
        Raises Unavailable where the cluster or the store is out of reach; what was done until then, and what may have
        been, is in the audit, as it is when this is cancelled.
        """
        guards = WriteGuards(
            actions,
            snapshot,
            self._policy,
            now,
            grows=self._grows,
            exclusions=self._exclusions,
            asked_for=asked_for,
            pass_began=pass_began,
            statistics=statistics,
            latest=self._latest,
        )
        # What no pause holds back does not wait for the store to say so.
        heeded = not asked_for and any(guards.respects_pause(action) for action in actions)
        pause = PauseState(self._store if heeded else None, self._waits)
        run = ActionRunner(
            actions, self._cluster, self._store, guards, self._audit, self._evictions, pause, self._waits, snapshot, now
        )
        # In a task of its own: a task group that failed leaves no trace in its task of a cancellation from outside.
        applying = asyncio.ensure_future(self._run(run, _phases(actions, self._at_once), pause))
        task = asyncio.current_task()
        cancelled_before = 0 if task is None else task.cancelling()
        try:
            await applying
        except CruiseError as error:
            if task is not None and task.cancelling() > cancelled_before:
                raise asyncio.CancelledError from error
            raise
        return run.outcomes()

    async def add_outcome(self, outcome: Outcome) -> None:
        """Add to the audit what was not tried; where the store is out of reach the line waits."""
        self._audit.add(outcome)
        await self._in_audit(lambda: self._audit.record(self._store))

    async def _run(self, run: ActionRunner, phases: Iterable[WritePhase], pause: PauseState) -> None:
        ended = asyncio.Event()
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(pause.watch(ended))
                tasks.create_task(self._record_meanwhile(run, ended))
                try:
                    await run.begin()
                    for chains, together in phases:
                        run.announce(number for chain in chains for number in chain)
                        await _in_turn(run, chains, together)
                finally:
                    ended.set()
                    run.finish()
        except asyncio.CancelledError:
            await self._record_if_possible(run)
            raise
        except BaseExceptionGroup as group:
            await self._record_if_possible(run)
            raise _first(group) from group
        await run.record()

    async def _record_meanwhile(self, run: ActionRunner, ended: asyncio.Event) -> None:
        """Bring the audit up to date while a long plan goes on, so that not much is lost with the process."""
        while not await wait_for_event(ended, self._waits.poll):
            # What is done without a store goes on without one.
            await (run.record() if run.needs_store else self._record_if_possible(run))

    async def _record_if_possible(self, run: ActionRunner) -> None:
        """Bring the audit up to date after something else went wrong, which must not be hidden."""
        await self._in_audit(run.record)

    async def _in_audit(self, record: Callable[[], Awaitable[None]]) -> None:
        try:
            await record()
        except CruiseError as error:
            log.warning("the audit waits for the store", lines=len(self._audit.unrecorded), error=str(error))


def _phases(actions: Sequence[Action], at_once: int) -> Iterable[WritePhase]:
    """Yield the phases of a plan."""
    grows: dict[str | None, list[int]] = {}
    evictions: list[int] = []
    others: list[list[int]] = []
    for number, action in enumerate(actions):
        if isinstance(action, EvictPod):
            evictions.append(number)
        elif isinstance(action, ResizePod) and action.needs_capacity:
            grows.setdefault(action.node, []).append(number)
        else:
            others.append([number])
    yield others, at_once
    yield [evictions], 1
    yield list(grows.values()), at_once


async def _in_turn(run: ActionRunner, chains: Sequence[Sequence[int]], at_once: int) -> None:
    left = iter(chains)

    async def work() -> None:
        for chain in left:
            for number in chain:
                await run.run_one(number)

    async with asyncio.TaskGroup() as workers:
        for _ in range(min(at_once, len(chains))):
            workers.create_task(work())


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return a mistake of ours if there is one among what ended a group, else what the world refused first."""
    leaves: list[BaseException] = []
    pending: list[BaseException] = [group]
    while pending:
        one = pending.pop(0)
        if isinstance(one, BaseExceptionGroup):
            pending += one.exceptions
        else:
            leaves.append(one)
    return next((leaf for leaf in leaves if not isinstance(leaf, CruiseError)), leaves[0])
