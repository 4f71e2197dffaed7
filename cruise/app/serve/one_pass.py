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

from cruise.adapters.kube.http.client import KubeClient
from cruise.adapters.kube.http.connecting import own_namespace
from cruise.adapters.kube.leading.lease_record import read_lease
from cruise.app.serve.connections import (
    PATIENCE,
    Connections,
    able,
    announcer,
    connections,
    followed,
    in_step,
    policy_of,
)
from cruise.app.serve.controller import Controller
from cruise.app.serve.hooks import Hooks, Pods
from cruise.app.serve.leading import LEASE
from cruise.app.serve.notifying import notifier_of
from cruise.app.serve.reading_log import ReadingLog
from cruise.app.serve.serving import check, controller_of
from cruise.decisions.eviction.earlier import SAME_AGAIN
from cruise.domain.actions import Hold, Outcome, Verdict
from cruise.domain.notices import NOBODY_TOLD, Told
from cruise.domain.policy import Mode
from cruise.errors import CruiseError, NotFound, Unavailable
from cruise.runtime.packing.packing_pass import PackingPass
from cruise.runtime.packing.worker import PackWorker
from cruise.runtime.sizing.node_pass import NodePass
from cruise.runtime.usage.reading import ReadingProgress
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
class Once:
    """What one pass did, in which mode, and whether writes were paused.

    `packing` is the packing pass after it, None where no pod waits; `packed` what that did. `told` is what others got
    to know of it.
    """

    node_pass: NodePass
    mode: Mode
    paused: bool
    packing: PackingPass | None = None
    packed: Sequence[Outcome] = ()
    told: Told = NOBODY_TOLD

    @property
    def failed(self) -> bool:
        """Tell whether something was not reached."""
        return any(outcome.verdict is Verdict.FAILED for outcome in (*self.node_pass.outcomes, *self.packed))


async def serve_once(settings: Settings, on_progress: Callable[[ReadingProgress], None] | None) -> Once:
    """Make one pass as the mode allows; it leads meanwhile where it may write.

    Raises BadInput, and Unavailable where something does not answer or another process leads.
    """
    check(settings)
    async with connections(settings, _do_not_wait) as connected:
        # The view of the cluster is retried without end; this request shows at once what is wrong.
        await connected.client.get("/version")
        async with followed(connected.cluster), PackWorker(at_once=False) as solver:
            await in_step(connected.cluster, PATIENCE)
            if connected.usage.first_look is not None:
                await connected.usage.first_look(await connected.cluster.snapshot())
                at_once = replace(connected.usage.reading, settle_seconds=0)
                connected = replace(connected, usage=replace(connected.usage, reading=at_once))
            policy = await able(connected, policy_of(settings))
            packed: list[Outcome] = []
            announce_pods = announcer(connected)

            async def announce(outcomes: Sequence[Outcome], holds: Sequence[Hold], pods: Pods) -> None:
                packed.extend(outcomes)
                await announce_pods(outcomes, holds, pods)

            hooks = Hooks(announce=announce, progress=on_progress or ReadingLog())
            ends: Counter[str] = Counter()
            notifier = notifier_of(settings, connected.store, ends, _PAUSES_BETWEEN_NOTICES)
            if notifier is not None:
                hooks = notifier.hooked(hooks)
            # The only look that there is, and a person asked for it: what is short now is taken to have been so, and
            # all sizes are published.
            controller = controller_of(
                settings, connected, policy, solver, hooks, earlier=SAME_AGAIN, most_published=sys.maxsize
            )
            done: list[tuple[NodePass, PackingPass | None]] = []

            async def work() -> None:
                if connected.lease is not None:
                    connected.store.expect(connected.lease.noted_epoch)
                node_pass = await _pass(controller)
                packed.clear()
                packing = await controller.pack(patience=timedelta(0))
                await _publish(controller)
                done.append((node_pass, packing))

            await _leading(connected, settings, work)
            if notifier is not None:
                await notifier.send()
            [(node_pass, packing)] = done
            if packing is not None and not packing.waiting and packing.plan is None:
                packing = None
            told = Told(controller.activity.published, ends["sent"], ends["dropped"])
            return Once(node_pass, policy.mode, await connected.store.paused(), packing, tuple(packed), told)


async def _pass(controller: Controller) -> NodePass:
    for _ in range(_REFRESHES):
        await controller.refresh_statistics()
        unread = controller.activity.unread
        if not unread:
            return await controller.rightsize()
    raise Unavailable(f"{unread[0].why} ({len(unread)} of the reads failed twice)")


async def _publish(controller: Controller) -> None:
    """Publish the sizes; what was done before is reported even where that does not go through."""
    try:
        await controller.publish()
    except CruiseError as error:
        log.warning("not published", problem=str(error))


async def _leading(connected: Connections, settings: Settings, work: Callable[[], Awaitable[None]]) -> None:
    """Run `work` once as the leader, where one is elected. Raises Unavailable where another process leads."""
    lease = connected.lease
    if lease is None:
        await work()
        return
    began = asyncio.Event()

    async def begun() -> None:
        if began.is_set():
            raise Unavailable("the lead was lost in the middle of the pass; what was done until then is in the audit")
        began.set()
        await work()

    leading = asyncio.ensure_future(lease.lead(begun))
    beginning = asyncio.ensure_future(began.wait())
    contest = asyncio.ensure_future(_another_leader(connected.client, own_namespace(settings.namespace)))
    tasks: set[asyncio.Future[Any]] = {leading, beginning, contest}
    try:
        patience = settings.lease_duration.total_seconds() * _LEASE_PATIENCE
        await asyncio.wait(tasks, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
        if began.is_set() or leading.done():
            await leading
            return
        refusal = contest.result() if contest.done() else f"the Lease {LEASE} could not be had; try again"
        raise Unavailable(refusal)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _another_leader(client: KubeClient, namespace: str) -> str:
    """Return a line about the leader, once it was seen to renew the Lease. Raises what the API server refuses."""
    path = f"/apis/coordination.k8s.io/v1/namespaces/{quote(namespace)}/leases/{LEASE}"
    holder = version = ""
    while True:
        with suppress(NotFound):
            found = read_lease(await client.get(path))
            if holder and found.holder == holder and found.version != version:
                return (
                    f"another cruise leads: {holder} holds the Lease {namespace}/{LEASE}; stop it first, "
                    "or look without writing in CRUISE_MODE=observe"
                )
            holder, version = found.holder, found.version
        await asyncio.sleep(_BETWEEN_READS_SECONDS)


def _do_not_wait(line: str) -> None:
    raise Unavailable(line.removeprefix("waiting: "))
