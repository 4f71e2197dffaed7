"""The connections of the controller: API server, database and usage source, opened in this order."""

import asyncio
import os
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial

import structlog

from cruise.adapters.api_client import is_loopback
from cruise.adapters.kube.access import KubernetesAuthority
from cruise.adapters.kube.client import KubernetesClient, connect_to_kubernetes, find_own_namespace
from cruise.adapters.kube.cluster import KubernetesCluster
from cruise.adapters.kube.discovery import discover_api
from cruise.adapters.kube.events import PodEventRecorder
from cruise.adapters.kube.leases import LeaderLease
from cruise.adapters.oidc import OidcProvider
from cruise.adapters.store.embedded_postgres import get_default_data_dir
from cruise.adapters.store.postgres import open_store
from cruise.adapters.webhook_tls.certificate_keeper import CertificateKeeper, TlsDirectory
from cruise.app.certificates import INTERVAL, get_served_names, get_service_names, keep_certificate_renewed
from cruise.app.process import get_current_time
from cruise.app.serve.activity import NO_HOOKS, ControllerHooks
from cruise.app.serve.leadership import create_lease_contender, fence_store, uses_leader_election
from cruise.app.usage_source import OpenedUsageSource, open_usage_source
from cruise.domain.actions import Outcome, SkippedPod, UntaintNode
from cruise.domain.cluster import PodsByName
from cruise.domain.policy import Mode, Policy
from cruise.errors import BadInputError, UnavailableError, raise_single_error
from cruise.interfaces.dashboard.sign_in import IdentityProviderAuthority
from cruise.interfaces.events import build_pod_events
from cruise.interfaces.http.request_guard import (
    CallerAuthority,
    RequestGuardRules,
    StaticTokenAuthority,
    create_allowed_hosts,
)
from cruise.runtime.ports import StorePort
from cruise.settings import Settings
from cruise.settings.value_types import ApiAuthentication, HttpTlsChoice

log = structlog.get_logger()

_BETWEEN_LINES = timedelta(seconds=10)
# For commands: failures that last longer, such as missing permissions, are reported.
SYNC_TIMEOUT = timedelta(seconds=8)
SERVICE_NAME = "cruise"


@dataclass(frozen=True, slots=True)
class ServeConnections:
    """All connections; `lease` is None in modes that write nothing to the cluster."""

    client: KubernetesClient
    cluster: KubernetesCluster
    usage: OpenedUsageSource
    store: StorePort
    lease: LeaderLease | None


@asynccontextmanager
async def open_connections(settings: Settings, on_wait: Callable[[str], None]) -> AsyncIterator[ServeConnections]:
    """Open all connections; `on_wait` gets a line while the database is unreachable.

    Raises BadInputError, UnavailableError.
    """
    data_dir = settings.data_dir or get_default_data_dir(os.environ)
    async with (
        connect_to_kubernetes(settings.to_kubernetes_settings()) as client,
        open_usage_source(settings, client) as usage,
        open_store(settings.database_url, data_dir, on_wait, settings.database_statement_timeout) as store,
    ):
        following = partial(KubernetesCluster, node_autoscaling=settings.node_autoscaler)
        lease = None
        if uses_leader_election(settings.mode):
            lease = create_lease_contender(
                client, find_own_namespace(settings.namespace), settings.lease_duration, lambda: store.epoch
            )
        if lease is None:
            # Without leader election the only writes remove cruise's own taints of an earlier mode.
            cluster = following(client, may_write=lambda action: isinstance(action, UntaintNode))
            yield ServeConnections(client.with_write_guard(lambda: False), cluster, usage, store, None)
            return
        # Checked before and after a write waits for the client's rate limit.
        writer = client.with_write_guard(lambda: lease.is_held)
        cluster = following(writer, may_write=lambda action: lease.is_held)
        yield ServeConnections(writer, cluster, usage, fence_store(store, lambda: lease.is_held), lease)


def create_event_hooks(connected: ServeConnections) -> ControllerHooks:
    """Return hooks that announce outcomes as Events of the pods, unless the mode writes nothing."""
    if connected.lease is None:
        return NO_HOOKS
    events = PodEventRecorder(connected.client, socket.gethostname())

    async def announce(outcomes: Sequence[Outcome], skipped: Sequence[SkippedPod], pods: PodsByName) -> None:
        await events.record(build_pod_events(outcomes, skipped, pods), get_current_time())

    return ControllerHooks(announce, forget_gone_pods=events.forget_gone_pods)


@asynccontextmanager
async def keep_cluster_synced(cluster: KubernetesCluster) -> AsyncIterator[None]:
    """Keep the view of the cluster synced within the context."""
    with raise_single_error():
        async with asyncio.TaskGroup() as tasks:
            following = tasks.create_task(cluster.run())
            yield
            following.cancel()


async def wait_until_synced(cluster: KubernetesCluster, timeout: timedelta | None = None) -> None:
    """Wait until the whole cluster is read, and log what prevents it.

    Raises UnavailableError if it is not read within `timeout`, if one is given.
    """
    logged: list[str] = []
    step = min(_BETWEEN_LINES, timeout or _BETWEEN_LINES)
    waited = timedelta(0)
    while True:
        try:
            async with asyncio.timeout(step.total_seconds()):
                await cluster.wait_until_synced()
        except TimeoutError:
            problems = cluster.list_problems()
            waited += step
            if problems and timeout is not None and waited >= timeout:
                raise UnavailableError(f"the cluster cannot be read: {'; '.join(problems)}") from None
            if problems != logged:
                log.warning("waiting for the cluster", problems=problems)
            logged = problems
        else:
            log.info("the cluster is read")
            return


async def limit_mode_to_server(connected: ServeConnections, policy: Policy) -> Policy:
    """Return the policy with a mode that the API server supports: without in-place resize nothing is written.

    Raises RefusedError, ThrottledError, UnavailableError.
    """
    if policy.mode < Mode.RESIZE:
        return policy
    found = await discover_api(connected.client)
    if found.can_resize_pods:
        return policy
    log.warning(
        "the API server cannot resize pods in place: only pods that are created are sized",
        server=found.git_version,
        mode=policy.mode.label,
    )
    return replace(policy, mode=Mode.INITIAL)


def build_policy_from_settings(settings: Settings) -> Policy:
    """Return the policy; cruise's own namespace is always excluded."""
    policy = settings.to_policy()
    return replace(policy, excluded_namespaces=policy.excluded_namespaces | {find_own_namespace(settings.namespace)})


def check_api_access_settings(settings: Settings) -> None:
    """Check that other hosts cannot use the API without authentication. Raises BadInputError."""
    if settings.api_token_file is not None:
        StaticTokenAuthority(settings.api_token_file).check()
    elif settings.api_authentication is ApiAuthentication.TOKEN and not _is_local(settings):
        raise BadInputError(
            f"http_address {settings.http_address} is open to other machines, and callers would be unknown: "
            "set api_authentication to kubernetes, or api_token_file, or http_address to 127.0.0.1:8080"
        )


def build_request_guard_rules(settings: Settings, client: KubernetesClient) -> RequestGuardRules:
    """Return the rules of the request guard; `client` asks the API server about callers."""
    authority: CallerAuthority | None = None
    if settings.api_authentication is ApiAuthentication.KUBERNETES:
        authority = KubernetesAuthority(client, time.monotonic)
        oidc = settings.to_oidc_settings()
        if oidc is not None:
            authority = IdentityProviderAuthority(OidcProvider(oidc, get_current_time), authority, time.monotonic)
    elif settings.api_token_file is not None:
        authority = StaticTokenAuthority(settings.api_token_file)
    # On localhost a token protects writes only; every local user may read.
    is_open = _is_local(settings) and settings.api_authentication is ApiAuthentication.TOKEN
    return RequestGuardRules(
        authority,
        create_allowed_hosts(
            [
                *settings.http_allowed_hosts,
                get_listen_host(settings),
                *get_service_names(SERVICE_NAME, settings.namespace),
            ]
        ),
        allows_anonymous_reads=is_open,
        allows_anonymous_metrics=is_open or settings.metrics_allow_anonymous,
        concurrent_requests=settings.api_concurrent_requests_per_caller,
    )


@asynccontextmanager
async def open_api_tls_context(
    settings: Settings, interval: timedelta = INTERVAL
) -> AsyncIterator[ssl.SSLContext | None]:
    """Yield the TLS context, None without TLS, and keep its certificate renewed. Raises BadInputError."""
    wanted = settings.http_tls is HttpTlsChoice.ON or settings.http_tls_dir is not None or not _is_local(settings)
    if settings.http_tls is HttpTlsChoice.OFF or not wanted:
        yield None
        return
    directory = settings.http_tls_dir or (settings.data_dir or get_default_data_dir(os.environ)) / "http-tls"
    names = get_served_names(SERVICE_NAME, settings.namespace)
    keeper = CertificateKeeper(TlsDirectory(directory), names, _publish_nowhere, time.monotonic)
    await keeper.start(get_current_time())
    with raise_single_error():
        async with asyncio.TaskGroup() as tasks:
            keeping = tasks.create_task(keep_certificate_renewed(keeper, interval))
            yield keeper.context
            keeping.cancel()


def get_listen_host(settings: Settings) -> str:
    """Return the host to listen on, empty for all addresses."""
    return settings.http_address.rpartition(":")[0].strip("[]")


def _is_local(settings: Settings) -> bool:
    return is_loopback(get_listen_host(settings))


async def _publish_nowhere(bundle: bytes) -> None:
    """Publish nothing: clients trust cruise's own certificate explicitly, or copy it from its directory."""
