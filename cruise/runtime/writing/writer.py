"""The only way to write to a cluster: a plan in phases, many actions at a time, until done, paused or cancelled."""

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
from cruise.runtime.writing.guards import DecidedActions, WriteGuards

log = structlog.get_logger()

# Chains of action numbers, each run in sequence, and how many chains run at the same time.
WritePhase = tuple[Sequence[Sequence[int]], int]

CONCURRENT_WRITES = 16
# A pod that was read before its write waits for the rate limit of the others: at most for so many seconds, so that few
# have changed meanwhile.
_QUEUED_SECONDS = 0.2


def compute_concurrent_writes(per_second: float) -> int:
    """Return how many writes may run at the same time under a limit of requests a second."""
    return min(CONCURRENT_WRITES, max(1, int(per_second * _QUEUED_SECONDS)))


class ClusterWriter:
    """Writes to one cluster under one policy; several plans may be applied at the same time.

    Writers of one process share the state that keeps their plans consistent: `audit`, the outcomes that are not stored
    yet; `evictions`, the lock of the budgets; `growths`, the capacity used on nodes; `exclusions`, what node passes
    must not change. A plan has at most `concurrent` writes in progress. `latest` returns the statistics of the last
    usage pass.
    """

    def __init__(
        self,
        cluster: ClusterPort,
        store: StorePort,
        policy: Policy,
        *,
        audit: AuditQueue | None = None,
        evictions: EvictionLock | None = None,
        growths: PendingGrowths | None = None,
        exclusions: WriteExclusions | None = None,
        concurrent: int = CONCURRENT_WRITES,
        timeouts: WriteTimeouts = WRITE_TIMEOUTS,
        latest: Callable[[], StatisticsTable | None] = lambda: None,
    ) -> None:
        self._cluster = cluster
        self._store = store
        self._policy = policy
        self._audit = audit or AuditQueue()
        self._evictions = evictions or EvictionLock()
        self._growths = growths or PendingGrowths()
        self._exclusions = exclusions or WriteExclusions()
        self._concurrent = concurrent
        self._timeouts = timeouts
        self._latest = latest

    async def apply_plan(
        self,
        actions: Sequence[Action],
        snapshot: ClusterSnapshot,
        now: datetime,
        *,
        user_requested: bool = False,
        pass_started_at: datetime | None = None,
        statistics: StatisticsTable | None = None,
    ) -> list[Outcome]:
        """Perform the actions that mode, pause, budgets and the present cluster allow; return their outcomes, in order.

        `snapshot` and `statistics` are what the actions were decided on. They are written while the snapshot is younger
        than `max_decision_age`, and a decrease only if the latest usage still fits. The order: actions that need no
        capacity, at the same time; evictions, one by one; increases, in sequence on each node. Actions that a user
        requested (`user_requested`) are done in any mode and while paused, and so is the removal of cruise's own
        taints. If the actions are a part of a longer pass, evictions since `pass_started_at` count against a node's
        budget. Actions that the mode or a pause forbids are not audited: every pass repeats them. Raises
        UnavailableError if
        the cluster or the database is unreachable; what was done until then, and what may have been done, is in the
        audit, also after a cancellation.
        """
        decided = DecidedActions(actions, snapshot, now, user_requested, pass_started_at, statistics)
        guards = WriteGuards(decided, self._policy, self._growths, self._exclusions, self._latest)
        # Actions that ignore a pause do not wait for the database to report it.
        respects_pause = not user_requested and any(guards.respects_pause(action) for action in actions)
        pause = PauseState(self._store if respects_pause else None, self._timeouts)
        run = ActionRunner(decided, self._cluster, self._store, guards, self._audit, self._evictions, pause)
        # In a separate task: a failed task group hides a cancellation from outside.
        applying = asyncio.ensure_future(self._run(run, _list_phases(actions, self._concurrent), pause))
        task = asyncio.current_task()
        cancelled_before = 0 if task is None else task.cancelling()
        try:
            await applying
        except CruiseError as error:
            if task is not None and task.cancelling() > cancelled_before:
                raise asyncio.CancelledError from error
            raise
        return run.list_outcomes()

    async def add_outcome(self, outcome: Outcome) -> None:
        """Add an action that was not tried to the audit; if the database is unreachable the line is stored later."""
        self._audit.add(outcome)
        await self._store_audit(lambda: self._audit.record(self._store))

    async def _run(self, run: ActionRunner, phases: Iterable[WritePhase], pause: PauseState) -> None:
        ended = asyncio.Event()
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(pause.watch(ended))
                tasks.create_task(self._record_meanwhile(run, ended))
                try:
                    await run.begin()
                    for chains, concurrent in phases:
                        run.announce(number for chain in chains for number in chain)
                        await _run_phase(run, chains, concurrent)
                finally:
                    ended.set()
                    run.finish()
        except asyncio.CancelledError:
            await self._record_if_possible(run)
            raise
        except BaseExceptionGroup as group:
            await self._record_if_possible(run)
            raise _first_failure(group) from group
        await run.record()

    async def _record_meanwhile(self, run: ActionRunner, ended: asyncio.Event) -> None:
        """Store the audit while a long plan is applied, so that little is lost with the process."""
        while not await wait_for_event(ended, self._timeouts.poll):
            # Actions that need no database do not stop without one.
            await (run.record() if run.needs_store else self._record_if_possible(run))

    async def _record_if_possible(self, run: ActionRunner) -> None:
        """Store the audit after another failure, which must not be hidden."""
        try:
            async with asyncio.timeout(self._timeouts.pause_check):
                await self._store_audit(run.record)
        except TimeoutError:
            self._warn_of_unrecorded("no answer in time")

    async def _store_audit(self, record: Callable[[], Awaitable[None]]) -> None:
        try:
            await record()
        except CruiseError as error:
            self._warn_of_unrecorded(str(error))

    def _warn_of_unrecorded(self, problem: str) -> None:
        log.warning("the audit waits for the database", lines=len(self._audit.unrecorded), error=problem)


def _list_phases(actions: Sequence[Action], concurrent: int) -> Iterable[WritePhase]:
    """Yield the phases of a plan."""
    growths: dict[str | None, list[int]] = {}
    evictions: list[int] = []
    others: list[list[int]] = []
    for number, action in enumerate(actions):
        if isinstance(action, EvictPod):
            evictions.append(number)
        elif isinstance(action, ResizePod) and action.needs_capacity:
            growths.setdefault(action.node, []).append(number)
        else:
            others.append([number])
    yield others, concurrent
    yield [evictions], 1
    yield list(growths.values()), concurrent


async def _run_phase(run: ActionRunner, chains: Sequence[Sequence[int]], concurrent: int) -> None:
    remaining = iter(chains)

    async def work() -> None:
        for chain in remaining:
            for number in chain:
                await run.run_action(number)

    async with asyncio.TaskGroup() as workers:
        for _ in range(min(concurrent, len(chains))):
            workers.create_task(work())


def _first_failure(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first exception of a group that is not a CruiseError, otherwise the first CruiseError."""
    leaves: list[BaseException] = []
    pending: list[BaseException] = [group]
    while pending:
        one = pending.pop(0)
        if isinstance(one, BaseExceptionGroup):
            pending += one.exceptions
        else:
            leaves.append(one)
    return next((leaf for leaf in leaves if not isinstance(leaf, CruiseError)), leaves[0])
