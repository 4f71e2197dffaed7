"""`cruise serve --once`: fill the statistics, make one node pass, and do what the mode allows."""

import asyncio
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import structlog

from cruise.adapters.kube.client import KubernetesClient, find_own_namespace
from cruise.adapters.kube.leases import read_lease
from cruise.app.serve.activity import ControllerHooks, UsageReadingLog
from cruise.app.serve.connections import (
    SYNC_TIMEOUT,
    ServeConnections,
    create_event_announcer,
    get_policy,
    keep_cluster_synced,
    limit_mode_to_server,
    open_connections,
    wait_until_synced,
)
from cruise.app.serve.controller import Controller
from cruise.app.serve.leadership import LEASE_NAME
from cruise.app.serve.notifier import create_notifier
from cruise.app.serve.serve import check_settings, create_controller
from cruise.decisions.eviction.ranking import ASSUME_UNCHANGED
from cruise.domain.actions import ActionResult, Outcome, SkippedPod
from cruise.domain.cluster import PodsByName
from cruise.domain.policy import Mode
from cruise.domain.users import NO_NOTIFICATIONS, NotificationCounts
from cruise.errors import CruiseError, NotFoundError, UnavailableError
from cruise.runtime.node_pass import NodePassResult
from cruise.runtime.packing.packing_pass import PackingPassResult
from cruise.runtime.packing.solver_client import SolverProcess
from cruise.runtime.usage.usage_reader import UsageReadingProgress
from cruise.settings import Settings

log = structlog.get_logger()

# In lease durations: the Lease of a holder that is gone is free after one.
_LEASE_PATIENCE = 4 / 3
# A leader renews every 2/15 of a lease duration.
_BETWEEN_READS_SECONDS = 1.0
# A failed read is tried once more; after two failures decisions would rest on half of the usage.
_REFRESHES = 2
# Somebody waits for the command to end.
_PAUSES_BETWEEN_NOTICES = (2.0,)


@dataclass(frozen=True, slots=True)
class SinglePassResult:
    """What one pass did, in which mode, and whether writes were paused.

    `packing` is the packing pass after it, None where no pod waits; `packed` what that did. `told` is what others got
    to know of it.
    """

    node_pass: NodePassResult
    mode: Mode
    paused: bool
    packing: PackingPassResult | None = None
    packing_outcomes: Sequence[Outcome] = ()
    notifications: NotificationCounts = NO_NOTIFICATIONS

    @property
    def failed(self) -> bool:
        """Tell whether something was not reached."""
        return any(
            outcome.result is ActionResult.FAILED for outcome in (*self.node_pass.outcomes, *self.packing_outcomes)
        )


async def run_single_pass(
    settings: Settings, on_progress: Callable[[UsageReadingProgress], None] | None
) -> SinglePassResult:
    """Make one pass as the mode allows; it leads meanwhile where it may write.

    Raises BadInputError, and Unavailable where something does not answer or another process leads.
    """
    check_settings(settings)
    async with open_connections(settings, _do_not_wait) as connected:
        # The view of the cluster is retried without end; this request shows at once what is wrong.
        await connected.client.get("/version")
        async with keep_cluster_synced(connected.cluster), SolverProcess(start_now=False) as solver:
            await wait_until_synced(connected.cluster, SYNC_TIMEOUT)
            if connected.usage.first_read is not None:
                await connected.usage.first_read(await connected.cluster.snapshot())
                reading = replace(connected.usage.reading, scrape_delay_seconds=0)
                connected = replace(connected, usage=replace(connected.usage, reading=reading))
            policy = await limit_mode_to_server(connected, get_policy(settings))
            packed: list[Outcome] = []
            announce_pods = create_event_announcer(connected)

            async def announce(outcomes: Sequence[Outcome], holds: Sequence[SkippedPod], pods: PodsByName) -> None:
                packed.extend(outcomes)
                await announce_pods(outcomes, holds, pods)

            hooks = ControllerHooks(announce=announce, on_progress=on_progress or UsageReadingLog())
            ends: Counter[str] = Counter()
            notifier = create_notifier(settings, connected.store, ends, _PAUSES_BETWEEN_NOTICES)
            if notifier is not None:
                hooks = notifier.add_hooks(hooks)
            # The only look that there is, and a person asked for it: what is short now is taken to have been so, and
            # all sizes are published.
            controller = create_controller(
                settings, connected, policy, solver, hooks, earlier=ASSUME_UNCHANGED, most_published=sys.maxsize
            )
            done: list[tuple[NodePassResult, PackingPassResult | None]] = []

            async def work() -> None:
                if connected.lease is not None:
                    connected.store.expect(connected.lease.recorded_epoch)
                node_pass = await _pass(controller)
                packed.clear()
                packing = await controller.pack(min_pending=timedelta(0))
                await _publish(controller)
                done.append((node_pass, packing))

            await _leading(connected, settings, work)
            if notifier is not None:
                await notifier.send()
            [(node_pass, packing)] = done
            if packing is not None and not packing.waiting and packing.plan is None:
                packing = None
            told = NotificationCounts(controller.activity.published, ends["sent"], ends["dropped"])
            return SinglePassResult(
                node_pass, policy.mode, await connected.store.paused(), packing, tuple(packed), told
            )


async def _pass(controller: Controller) -> NodePassResult:
    for _ in range(_REFRESHES):
        await controller.refresh_statistics()
        unread = controller.activity.unreadable
        if not unread:
            return await controller.rightsize()
    raise UnavailableError(f"{unread[0].reason} ({len(unread)} of the reads failed twice)")


async def _publish(controller: Controller) -> None:
    """Publish the sizes; what was done before is reported even where that does not go through."""
    try:
        await controller.publish()
    except CruiseError as error:
        log.warning("not published", problem=str(error))


async def _leading(connected: ServeConnections, settings: Settings, work: Callable[[], Awaitable[None]]) -> None:
    """Run `work` once as the leader, where one is elected. Raises Unavailable where another process leads."""
    lease = connected.lease
    if lease is None:
        await work()
        return
    began = asyncio.Event()

    async def begun() -> None:
        if began.is_set():
            raise UnavailableError(
                "the lead was lost in the middle of the pass; what was done until then is in the audit"
            )
        began.set()
        await work()

    leading = asyncio.ensure_future(lease.lead(begun))
    beginning = asyncio.ensure_future(began.wait())
    contest = asyncio.ensure_future(_another_leader(connected.client, find_own_namespace(settings.namespace)))
    tasks: set[asyncio.Future[Any]] = {leading, beginning, contest}
    try:
        timeout = settings.lease_duration.total_seconds() * _LEASE_PATIENCE
        await asyncio.wait(tasks, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        if began.is_set() or leading.done():
            await leading
            return
        refusal = contest.result() if contest.done() else f"the Lease {LEASE_NAME} could not be had; try again"
        raise UnavailableError(refusal)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _another_leader(client: KubernetesClient, namespace: str) -> str:
    """Return a line about the leader, once it was seen to renew the Lease. Raises what the API server refuses."""
    path = f"/apis/coordination.k8s.io/v1/namespaces/{quote(namespace)}/leases/{LEASE_NAME}"
    holder = version = ""
    while True:
        with suppress(NotFoundError):
            found = read_lease(await client.get(path))
            if holder and found.holder == holder and found.version != version:
                return (
                    f"another cruise leads: {holder} holds the Lease {namespace}/{LEASE_NAME}; stop it first, "
                    "or look without writing in CRUISE_MODE=observe"
                )
            holder, version = found.holder, found.version
        await asyncio.sleep(_BETWEEN_READS_SECONDS)


def _do_not_wait(line: str) -> None:
    raise UnavailableError(line.removeprefix("waiting: "))
