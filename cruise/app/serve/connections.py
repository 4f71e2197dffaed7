"""The connections of the controller: API server, store and Prometheus, opened in this order."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial

import structlog

from cruise.adapters.kube.asking.discovery import discover
from cruise.adapters.kube.cluster import KubeCluster
from cruise.adapters.kube.http.client import KubeClient
from cruise.adapters.kube.http.connecting import connect, own_namespace
from cruise.adapters.kube.leading.leases import LeaderLease
from cruise.adapters.kube.writing.events import PodEvents
from cruise.adapters.store.embedded_postgres import default_data_dir
from cruise.adapters.store.opening import open_store
from cruise.app.clock import wall_clock
from cruise.app.serve.hooks import Announce, Pods, say_nothing
from cruise.app.serve.leading import contender, elects, fenced
from cruise.app.usage_source import Usage, opened_usage
from cruise.domain.actions import Hold, Outcome, UntaintNode
from cruise.domain.policy import Mode, Policy
from cruise.errors import Unavailable, one_refusal
from cruise.interfaces.announcements import announcements_of
from cruise.runtime.ports import Store
from cruise.settings import Settings

log = structlog.get_logger()

_BETWEEN_LINES = timedelta(seconds=10)
# For a command that ends: what fails for longer, such as for want of rights, is reported.
PATIENCE = timedelta(seconds=8)


@dataclass(frozen=True, slots=True)
class Connections:
    """Everything that is connected; `lease` is None in modes in which nothing is written to the cluster."""

    client: KubeClient
    cluster: KubeCluster
    usage: Usage
    store: Store
    lease: LeaderLease | None


@asynccontextmanager
async def connections(settings: Settings, on_wait: Callable[[str], None]) -> AsyncIterator[Connections]:
    """Connect to everything; `on_wait` gets a line when the database is waited for. Raises BadInput, Unavailable."""
    data_dir = settings.data_dir or default_data_dir(os.environ)
    async with (
        connect(settings.kube()) as client,
        opened_usage(settings, client) as usage,
        open_store(settings.database_url, data_dir, on_wait, settings.database_timeout) as store,
    ):
        following = partial(KubeCluster, node_autoscaling=settings.node_autoscaler)
        lease = None
        if elects(settings.mode):
            lease = contender(client, own_namespace(settings.namespace), settings.lease_duration, lambda: store.epoch)
        if lease is None:
            # Without an election nothing is written, save that cruise's own taints of an earlier mode come off.
            cluster = following(client, may_write=lambda action: isinstance(action, UntaintNode))
            yield Connections(client.guarded(lambda: False), cluster, usage, store, None)
            return
        # Checked before a write waits for its turn, and after it.
        writer = client.guarded(lambda: lease.held)
        cluster = following(writer, may_write=lambda action: lease.held)
        yield Connections(writer, cluster, usage, fenced(store, lambda: lease.held), lease)


def announcer(connected: Connections) -> Announce:
    """Return what announces outcomes as Events of the pods; nothing does in modes in which nothing is written."""
    if connected.lease is None:
        return say_nothing
    events = PodEvents(connected.client, socket.gethostname())

    async def announce(outcomes: Sequence[Outcome], holds: Sequence[Hold], pods: Pods) -> None:
        await events.record(announcements_of(outcomes, holds, pods), wall_clock())

    return announce


@asynccontextmanager
async def followed(cluster: KubeCluster) -> AsyncIterator[None]:
    """Keep the view of the cluster in step for as long as this lasts."""
    with one_refusal():
        async with asyncio.TaskGroup() as tasks:
            following = tasks.create_task(cluster.run())
            yield
            following.cancel()


async def in_step(cluster: KubeCluster, patience: timedelta | None = None) -> None:
    """Wait until the whole cluster was read, and log what keeps it from that.

    Raises Unavailable where that is still so after `patience`, if one is given.
    """
    logged: list[str] = []
    step = min(_BETWEEN_LINES, patience or _BETWEEN_LINES)
    waited = timedelta(0)
    while True:
        try:
            async with asyncio.timeout(step.total_seconds()):
                await cluster.synced()
        except TimeoutError:
            problems = cluster.problems()
            waited += step
            if problems and patience is not None and waited >= patience:
                raise Unavailable(f"the cluster cannot be read: {'; '.join(problems)}") from None
            if problems != logged:
                log.warning("waiting for the cluster", problems=problems)
            logged = problems
        else:
            log.info("the cluster is read")
            return


async def able(connected: Connections, policy: Policy) -> Policy:
    """Return the policy with a mode that the server supports: without resizes in place there is nothing to write.

    Raises Refused, Throttled, Unavailable.
    """
    if policy.mode < Mode.RESIZE:
        return policy
    found = await discover(connected.client)
    if found.resizes_pods:
        return policy
    log.warning(
        "the API server cannot resize pods in place: only pods that are created are sized",
        server=found.git_version,
        mode=policy.mode.label,
    )
    return replace(policy, mode=Mode.INITIAL)


def policy_of(settings: Settings) -> Policy:
    """Return the policy; cruise's own namespace is always excluded."""
    policy = settings.policy()
    return replace(policy, excluded_namespaces=policy.excluded_namespaces | {own_namespace(settings.namespace)})
