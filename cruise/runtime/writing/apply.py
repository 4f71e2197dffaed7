"""The one way to write to a cluster: a plan in its phases, many actions at once, until done, paused or cancelled."""

import asyncio
from collections.abc import Iterable, Sequence
from datetime import datetime

import structlog

from cruise.domain.actions import Action, EvictPod, Outcome, ResizePod
from cruise.domain.cluster import Snapshot
from cruise.domain.policy import Policy
from cruise.domain.resources import NO_RESOURCES
from cruise.errors import CruiseError
from cruise.runtime.ports import Cluster, Store
from cruise.runtime.writing.action_runner import Application
from cruise.runtime.writing.gate import Gate
from cruise.runtime.writing.guards import Guards
from cruise.runtime.writing.pausing import POLL_SECONDS, Pause, waited

log = structlog.get_logger()

# Chains of action numbers, each to go through in sequence, and how many chains at once.
Phase = tuple[Sequence[Sequence[int]], int]


async def apply(
    actions: Sequence[Action],
    snapshot: Snapshot,
    cluster: Cluster,
    store: Store,
    policy: Policy,
    now: datetime,
    *,
    gate: Gate | None = None,
    at_once: int | None = None,
    asked_for: bool = False,
    pass_began: datetime | None = None,
    poll_seconds: float = POLL_SECONDS,
) -> list[Outcome]:
    """Do what mode, pause, budgets and the cluster as it is now allow; return how each action ended, in their order.

    `snapshot` is what the actions were decided on. First everything that takes no room, up to `at_once` together, or as
    many as the gate lets; then the evictions, one after the other; then the grows, those of one node in sequence.
    `gate` is shared by all that write at the same time. What a person has `asked_for` is done in any mode and while
    paused. Where the actions are a part of a longer pass, `pass_began` is since when evictions count against a node's
    budget. What mode or pause forbids is not audited: it comes again with every pass. Raises Unavailable where the
    cluster or the store is out of reach; what was done until then, and what may have been, is in the audit, as it is
    when this is cancelled.
    """
    gate = gate or Gate()
    guards = Guards(actions, snapshot, policy, gate, now, asked_for=asked_for, pass_began=pass_began)
    pause = Pause(None if asked_for else store, poll_seconds)
    run = Application(actions, cluster, store, guards, gate, pause, now)
    # In a task of its own: a task group that failed leaves no trace in its task of who had cancelled it.
    applying = asyncio.ensure_future(
        _applied(run, _phases(actions, at_once or gate.at_once), gate, pause, poll_seconds)
    )
    task = asyncio.current_task()
    cancelled_before = 0 if task is None else task.cancelling()
    try:
        await applying
    except CruiseError as error:
        if task is not None and task.cancelling() > cancelled_before:
            raise asyncio.CancelledError from error
        raise
    return run.outcomes()


async def _applied(run: Application, phases: Iterable[Phase], gate: Gate, pause: Pause, poll_seconds: float) -> None:
    ended = asyncio.Event()
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(pause.watch(ended))
            tasks.create_task(_record_meanwhile(run, ended, poll_seconds))
            try:
                await run.begin()
                for chains, together in phases:
                    await _in_turn(run, chains, together)
            finally:
                ended.set()
    except asyncio.CancelledError:
        await _record_if_possible(run, gate)
        raise
    except BaseExceptionGroup as group:
        await _record_if_possible(run, gate)
        raise _first(group) from group
    await run.record()


def _phases(actions: Sequence[Action], at_once: int) -> Iterable[Phase]:
    """Yield the phases of a plan."""
    grows: dict[str | None, list[int]] = {}
    evictions: list[int] = []
    others: list[list[int]] = []
    for number, action in enumerate(actions):
        if isinstance(action, EvictPod):
            evictions.append(number)
        elif isinstance(action, ResizePod) and action.growth != NO_RESOURCES:
            grows.setdefault(action.node, []).append(number)
        else:
            others.append([number])
    yield others, at_once
    yield [evictions], 1
    yield list(grows.values()), at_once


async def _in_turn(run: Application, chains: Sequence[Sequence[int]], at_once: int) -> None:
    left = iter(chains)

    async def work() -> None:
        for chain in left:
            for number in chain:
                await run.one(number)

    async with asyncio.TaskGroup() as workers:
        for _ in range(min(at_once, len(chains))):
            workers.create_task(work())


async def _record_meanwhile(run: Application, ended: asyncio.Event, seconds: float) -> None:
    """Bring the audit up to date while a long plan goes on, so that not much is lost with the process."""
    while not await waited(ended, seconds):
        await run.record()


async def _record_if_possible(run: Application, gate: Gate) -> None:
    """Bring the audit up to date after something else went wrong, which must not be hidden."""
    try:
        await run.record()
    except CruiseError as error:
        log.warning("the audit waits for the store", lines=len(gate.unrecorded), error=str(error))


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
