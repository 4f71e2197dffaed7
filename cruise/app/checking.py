"""Looks at everything that cruise depends on; what cannot be looked at is a finding too."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import TypeVar

from cruise.adapters.kube.asking.access import held_to, may
from cruise.adapters.kube.asking.discovery import discover
from cruise.adapters.kube.asking.surroundings import Registration, read_quotas, registration, release, who_asks
from cruise.adapters.kube.following.one_time_list import Look, look
from cruise.adapters.kube.http.client import KubeClient
from cruise.adapters.kube.http.connecting import KubeSettings, connect, own_namespace
from cruise.adapters.prometheus.probing import probe
from cruise.adapters.prometheus.settings import PrometheusSettings
from cruise.adapters.store.embedded_postgres import default_data_dir
from cruise.adapters.store.probing import probe_store
from cruise.adapters.webhook_tls.certificates import certificates_in, read_key_pair, vouches_for
from cruise.adapters.webhook_tls.directory import TlsDirectory
from cruise.adapters.webhook_tls.keeping import CERTIFICATE, KEY, CertificatePlace
from cruise.adapters.webhook_tls.secret import TlsSecret
from cruise.app.usage_source import compare_once, look_at_kubelets, reads_kubelets
from cruise.decisions.preflight.access import POLICIES, required_access
from cruise.domain.cluster import Snapshot
from cruise.domain.preflight import (
    AccessFacts,
    HelmRelease,
    PrometheusFacts,
    ServerFacts,
    StoreFacts,
    Surroundings,
    WebhookFacts,
)
from cruise.errors import CruiseError, Refused
from cruise.settings import Settings
from cruise.settings.choices import ApiAuthentication

T = TypeVar("T")

# Finds the settings of Prometheus on a cluster.
FindPrometheus = Callable[[KubeClient], Awaitable[PrometheusSettings]]


async def surroundings(
    settings: Settings, kube: KubeSettings, find_prometheus: FindPrometheus, now: datetime
) -> Surroundings:
    """Return the facts that `cruise check` judges. Raises BadInput where no cluster is known."""
    problems: list[tuple[str, str, str]] = []

    async def found(area: str, name: str, looking: Awaitable[T]) -> T | None:
        try:
            return await looking
        except CruiseError as error:
            problems.append((area, name, _shortened(error)))
            return None

    store = asyncio.ensure_future(_store(settings))
    try:
        async with connect(kube) as client:
            server = await found("cluster", "API server", _server(client))
            if server is None:
                return Surroundings(store=await store, problems=problems)
            direct = await _reads_kubelets(settings, client)
            access, webhook, prometheus, seen, installed = await asyncio.gather(
                found("rights", "RBAC", _access(client, settings)),
                found("webhook", "registration", _webhook(client, settings)),
                found("metrics", "prometheus", find_prometheus(client) if not direct else _nothing()),
                found("cluster", "objects", _look(client)),
                _release(client, settings),
            )
            usage = await _usage(prometheus, seen.snapshot, settings, now) if prometheus and seen else None
            compared = None
            if prometheus and seen and settings.cross_check_nodes and usage is not None and not usage.problem:
                compared = await found("metrics", "kubelets", compare_once(settings, client, prometheus, seen.snapshot))
            return Surroundings(
                server=server,
                access=access,
                snapshot=seen.snapshot if seen is not None else None,
                unreadable=_unreadable(seen),
                prometheus=usage,
                store=await store,
                webhook=webhook,
                problems=problems,
                cross_check=compared,
                kubelets=await look_at_kubelets(settings, client, seen.snapshot) if direct and seen else None,
                release=installed,
            )
    finally:
        store.cancel()
        await asyncio.wait({store})


async def _reads_kubelets(settings: Settings, client: KubeClient) -> bool:
    try:
        return await reads_kubelets(settings, client)
    except CruiseError:
        # What is wrong is found out by looking for Prometheus as well.
        return False


async def _release(client: KubeClient, settings: Settings) -> HelmRelease | None:
    """Return the Helm release, None as well where it cannot be looked up: then fixes name files."""
    with suppress(CruiseError):
        return await release(client, own_namespace(settings.namespace))
    return None


async def _nothing() -> None:
    return None


async def _server(client: KubeClient) -> ServerFacts:
    found = await discover(client)
    return ServerFacts(found.git_version, found.resizes_pods, found.evicts_pods)


async def _look(client: KubeClient) -> Look:
    """Read the cluster, and what its quotas leave where they may be read."""
    seen = await look(client, lambda kind, count: None)
    if seen.snapshot.quotas:
        return seen
    with suppress(Refused):
        return replace(seen, snapshot=replace(seen.snapshot, quotas=await read_quotas(client)))
    return seen


async def _access(client: KubeClient, settings: Settings) -> AccessFacts:
    reviews_callers = settings.api_authentication is ApiAuthentication.KUBERNETES
    needs = required_access(settings.mode, own_namespace(settings.namespace), reviews_callers=reviews_callers)
    user, allowed, held = await asyncio.gather(who_asks(client), may(client, needs), held_to(client, POLICIES))
    return AccessFacts(user, tuple(need for need, granted in zip(needs, allowed, strict=True) if not granted), held)


async def _usage(
    prometheus: PrometheusSettings, snapshot: Snapshot, settings: Settings, now: datetime
) -> PrometheusFacts:
    is_set = settings.prometheus_url is not None
    try:
        usage = await asyncio.to_thread(probe, prometheus, snapshot, now)
    except CruiseError as error:
        return PrometheusFacts(prometheus.url, is_set, problem=str(error))
    return PrometheusFacts(prometheus.url, is_set, usage)


async def _store(settings: Settings) -> StoreFacts:
    return await probe_store(settings.database_url, settings.data_dir or default_data_dir(os.environ))


async def _webhook(client: KubeClient, settings: Settings) -> WebhookFacts:
    found = await registration(client, settings.webhook_configuration)
    if found is None:
        return WebhookFacts(present=False)
    namespace = own_namespace(settings.namespace)
    place: CertificatePlace = TlsSecret(client, namespace, f"{settings.webhook_service}-tls")
    if settings.tls_dir is not None:
        place = TlsDirectory(settings.tls_dir)
    trusts, expires_at = await _certificate(place, found)
    return WebhookFacts(
        present=True,
        published=bool(found.bundles) and all(found.bundles),
        trusts=trusts,
        expires_at=expires_at,
        fails_open=found.fails_open,
        knows_callers=settings.webhook_client_ca_file is not None,
    )


async def _certificate(place: CertificatePlace, found: Registration) -> tuple[bool | None, datetime | None]:
    """Return whether the published CAs vouch for the certificate in use, and its expiry; None if unreadable."""
    try:
        kept = await place.read()
        if kept.empty:
            return None, None
        pair = read_key_pair(kept.files.get(CERTIFICATE, b""), kept.files.get(KEY, b""), place.name)
    except CruiseError:
        # Reading Secrets is rarely allowed, and a directory of the webhook is on another machine.
        return None, None
    vouched = [any(vouches_for(one, pair) for one in certificates_in(bundle)) for bundle in found.bundles]
    return all(vouched), pair.not_after


def _shortened(error: CruiseError) -> str:
    """Leave out of a refusal what the item about rights says better."""
    text = str(error)
    return text.partition(": User ")[0] if isinstance(error, Refused) else text


def _unreadable(seen: Look | None) -> list[str]:
    return [one.problem for one in seen.unreadable] if seen is not None else []
