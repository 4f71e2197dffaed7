"""`cruise serve --once`: fills the statistics, runs one node pass, and does what the mode allows."""

import asyncio
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
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
    build_policy_from_settings,
    create_event_hooks,
    keep_cluster_synced,
    limit_mode_to_server,
    open_connections,
    wait_until_synced,
)
from cruise.app.serve.controller import Controller
from cruise.app.serve.controller_options import ControllerOptions
from cruise.app.serve.leadership import LEASE_NAME
from cruise.app.serve.notifier import create_notifier
from cruise.app.serve.serve import check_required_settings, create_controller
from cruise.decisions.eviction.ranking import ASSUME_UNCHANGED
from cruise.domain.actions import Outcome, SkippedPod
from cruise.domain.cluster import PodsByName
from cruise.domain.users import NotificationCounts
from cruise.errors import CruiseError, NotFoundError, UnavailableError
from cruise.interfaces.single_pass import SinglePassResult
from cruise.runtime.node_pass import NodePassResult
from cruise.runtime.packing.packing_pass import PackingPassResult
from cruise.runtime.packing.solver_client import SolverProcess
from cruise.runtime.usage.usage_reader import UsageReadingProgress
from cruise.settings import Settings

log = structlog.get_logger()

# In lease durations: the Lease of a holder that ended without releasing it expires after one.
_MAX_WAIT_LEASES = 4 / 3
# A leader renews every 2/15 of a lease duration.
_POLL_SECONDS = 1.0
# A failed read is retried once; after two failures decisions would use incomplete usage.
_REFRESHES = 2
# A user waits for the command.
_PAUSES_BETWEEN_NOTICES = (2.0,)


async def run_single_pass(
    settings: Settings, on_progress: Callable[[UsageReadingProgress], None] | None
) -> SinglePassResult:
    """Run one pass as the mode allows; it leads meanwhile if it may write.

    Raises BadInputError, and UnavailableError if something is unreachable or another process leads.
    """
    check_required_settings(settings)
    async with open_connections(settings, _raise_unavailable) as connected:
        # Syncing retries without end; this request reports errors immediately.
        await connected.client.get("/version")
        async with keep_cluster_synced(connected.cluster), SolverProcess(start_now=False) as solver:
            await wait_until_synced(connected.cluster, SYNC_TIMEOUT)
            if connected.usage.first_read is not None:
                await connected.usage.first_read(await connected.cluster.snapshot())
                reading = replace(connected.usage.reading, scrape_delay_seconds=0)
                connected = replace(connected, usage=replace(connected.usage, reading=reading))
            policy = await limit_mode_to_server(connected, build_policy_from_settings(settings))
            packed: list[Outcome] = []
            announce_pods = create_event_hooks(connected).announce

            async def announce(outcomes: Sequence[Outcome], skipped: Sequence[SkippedPod], pods: PodsByName) -> None:
                packed.extend(outcomes)
                await announce_pods(outcomes, skipped, pods)

            hooks = ControllerHooks(announce=announce, on_progress=on_progress or UsageReadingLog())
            counts: Counter[str] = Counter()
            notifier = create_notifier(settings, connected.store, counts, _PAUSES_BETWEEN_NOTICES)
            if notifier is not None:
                hooks = notifier.add_hooks(hooks)
            # There is no earlier pass: shortages are assumed to have lasted, and all recommendations are published.
            options = ControllerOptions(hooks, earlier_passes=ASSUME_UNCHANGED)
            controller = create_controller(settings, connected, policy, solver, options, sys.maxsize)
            done: list[tuple[NodePassResult, PackingPassResult | None]] = []

            async def work() -> None:
                if connected.lease is not None:
                    connected.store.expect_epoch(connected.lease.recorded_epoch)
                node_pass = await _run_pass(controller)
                packed.clear()
                packing = await controller.pack(min_pending=timedelta(0))
                await _publish(controller)
                done.append((node_pass, packing))

            await _run_as_leader(connected, settings, work)
            if notifier is not None:
                await notifier.send()
            [(node_pass, packing)] = done
            if packing is not None and not packing.waiting and packing.plan is None:
                packing = None
            notified = NotificationCounts(controller.activity.published, counts["sent"], counts["dropped"])
            return SinglePassResult(
                node_pass, policy.mode, await connected.store.is_paused(), packing, tuple(packed), notified
            )


async def _run_pass(controller: Controller) -> NodePassResult:
    for _ in range(_REFRESHES):
        await controller.refresh_statistics()
        unreadable = controller.activity.unreadable
        if not unreadable:
            return await controller.rightsize()
    raise UnavailableError(f"{unreadable[0].reason} ({len(unreadable)} of the reads failed twice)")


async def _publish(controller: Controller) -> None:
    """Publish the recommendations; a failure does not hide the results of the pass."""
    try:
        await controller.publish()
    except CruiseError as error:
        log.warning("not published", problem=str(error))


async def _run_as_leader(connected: ServeConnections, settings: Settings, work: Callable[[], Awaitable[None]]) -> None:
    """Run `work` once as the leader, if there is leader election. Raises UnavailableError if another process leads."""
    lease = connected.lease
    if lease is None:
        await work()
        return
    started = asyncio.Event()

    async def work_once() -> None:
        if started.is_set():
            raise UnavailableError("leadership was lost during the pass; what was done until then is in the audit")
        started.set()
        await work()

    leading = asyncio.ensure_future(lease.lead(work_once))
    waiting = asyncio.ensure_future(started.wait())
    observing = asyncio.ensure_future(_find_other_leader(connected.client, find_own_namespace(settings.namespace)))
    tasks: set[asyncio.Future[Any]] = {leading, waiting, observing}
    try:
        timeout = settings.lease_duration.total_seconds() * _MAX_WAIT_LEASES
        await asyncio.wait(tasks, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        if started.is_set() or leading.done():
            await leading
            return
        reason = observing.result() if observing.done() else f"the Lease {LEASE_NAME} could not be had; try again"
        raise UnavailableError(reason)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _find_other_leader(client: KubernetesClient, namespace: str) -> str:
    """Wait until another process renews the Lease, and return a line about it. Raises what the API server raises."""
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
        await asyncio.sleep(_POLL_SECONDS)


def _raise_unavailable(line: str) -> None:
    raise UnavailableError(line.removeprefix("waiting: "))
