"""Collects the facts of `cruise check`; what cannot be read is a fact as well."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import TypeVar

from cruise.adapters.kube.access import check_access, is_admission_policy_bound
from cruise.adapters.kube.client import KubernetesClient, KubernetesSettings, connect_to_kubernetes, find_own_namespace
from cruise.adapters.kube.cluster import ClusterReadResult, read_cluster_once
from cruise.adapters.kube.discovery import (
    WebhookRegistration,
    discover_api,
    find_helm_release,
    read_own_user_name,
    read_quotas,
    read_webhook_registration,
)
from cruise.adapters.prometheus.probe import probe_prometheus
from cruise.adapters.prometheus.settings import PrometheusSettings
from cruise.adapters.store.embedded_postgres import get_default_data_dir
from cruise.adapters.store.postgres import probe_store
from cruise.adapters.webhook_tls.certificate_keeper import CERTIFICATE, KEY, CertificateStorage, TlsDirectory, TlsSecret
from cruise.adapters.webhook_tls.certificates import is_issued_by, read_key_pair, split_bundle
from cruise.app.usage_source import check_kubelets_readable, cross_check_kubelets_once, is_reading_kubelets
from cruise.decisions.preflight.preflight import POLICY_RULES, list_required_access
from cruise.domain.cluster import ClusterSnapshot
from cruise.domain.preflight import (
    AccessFacts,
    HelmRelease,
    PreflightFacts,
    PrometheusFacts,
    ServerFacts,
    StoreFacts,
    WebhookFacts,
)
from cruise.errors import CruiseError, RefusedError
from cruise.settings import Settings
from cruise.settings.value_types import ApiAuthentication

T = TypeVar("T")

# Finds the Prometheus settings of a cluster.
FindPrometheus = Callable[[KubernetesClient], Awaitable[PrometheusSettings]]


async def collect_preflight_facts(
    settings: Settings, kube: KubernetesSettings, find_prometheus: FindPrometheus, now: datetime
) -> PreflightFacts:
    """Return the facts that `cruise check` evaluates. Raises BadInputError if no cluster is configured."""
    problems: list[tuple[str, str, str]] = []

    async def found(area: str, name: str, looking: Awaitable[T]) -> T | None:
        try:
            return await looking
        except CruiseError as error:
            problems.append((area, name, _remove_permission_hint(error)))
            return None

    store = asyncio.ensure_future(_collect_store_facts(settings))
    try:
        async with connect_to_kubernetes(kube) as client:
            server = await found("cluster", "API server", _collect_server_facts(client))
            if server is None:
                return PreflightFacts(store=await store, problems=problems)
            direct = await _read_kubelets(settings, client)
            access, webhook, prometheus, snapshot, installed = await asyncio.gather(
                found("rights", "RBAC", _collect_access_facts(client, settings)),
                found("webhook", "registration", _collect_webhook_facts(client, settings)),
                found("metrics", "prometheus", find_prometheus(client) if not direct else _return_none()),
                found("cluster", "objects", _read_cluster(client)),
                _find_release(client, settings),
            )
            usage = (
                await _collect_usage_facts(prometheus, snapshot.snapshot, settings, now)
                if prometheus and snapshot
                else None
            )
            compared = None
            if (
                prometheus
                and snapshot
                and settings.kubelet_cross_check_nodes
                and usage is not None
                and not usage.problem
            ):
                compared = await found(
                    "metrics", "kubelets", cross_check_kubelets_once(settings, client, prometheus, snapshot.snapshot)
                )
            return PreflightFacts(
                server=server,
                access=access,
                snapshot=snapshot.snapshot if snapshot is not None else None,
                unreadable=_list_unreadable(snapshot),
                prometheus=usage,
                store=await store,
                webhook=webhook,
                problems=problems,
                cross_check=compared,
                kubelets=await check_kubelets_readable(settings, client, snapshot.snapshot)
                if direct and snapshot
                else None,
                release=installed,
            )
    finally:
        store.cancel()
        await asyncio.wait({store})


async def _read_kubelets(settings: Settings, client: KubernetesClient) -> bool:
    try:
        return await is_reading_kubelets(settings, client)
    except CruiseError:
        # The search for Prometheus reports the error as well.
        return False


async def _find_release(client: KubernetesClient, settings: Settings) -> HelmRelease | None:
    """Return the Helm release, None if it cannot be read: then fixes name files."""
    with suppress(CruiseError):
        return await find_helm_release(client, find_own_namespace(settings.namespace))
    return None


async def _return_none() -> None:
    return None


async def _collect_server_facts(client: KubernetesClient) -> ServerFacts:
    found = await discover_api(client)
    return ServerFacts(found.git_version, found.can_resize_pods, found.can_evict_pods)


async def _read_cluster(client: KubernetesClient) -> ClusterReadResult:
    """Read the cluster, and what its quotas leave if they may be read."""
    snapshot = await read_cluster_once(client, lambda kind, count: None)
    if snapshot.snapshot.quotas:
        return snapshot
    with suppress(RefusedError):
        return replace(snapshot, snapshot=replace(snapshot.snapshot, quotas=await read_quotas(client)))
    return snapshot


async def _collect_access_facts(client: KubernetesClient, settings: Settings) -> AccessFacts:
    reviews_callers = settings.api_authentication is ApiAuthentication.KUBERNETES
    needs = list_required_access(settings.mode, find_own_namespace(settings.namespace), reviews_callers=reviews_callers)
    user, allowed, held = await asyncio.gather(
        read_own_user_name(client), check_access(client, needs), is_admission_policy_bound(client, POLICY_RULES)
    )
    return AccessFacts(user, tuple(need for need, granted in zip(needs, allowed, strict=True) if not granted), held)


async def _collect_usage_facts(
    prometheus: PrometheusSettings, snapshot: ClusterSnapshot, settings: Settings, now: datetime
) -> PrometheusFacts:
    is_set = settings.prometheus_url is not None
    try:
        usage = await asyncio.to_thread(probe_prometheus, prometheus, snapshot, now)
    except CruiseError as error:
        return PrometheusFacts(prometheus.url, is_set, problem=str(error))
    return PrometheusFacts(prometheus.url, is_set, usage)


async def _collect_store_facts(settings: Settings) -> StoreFacts:
    return await probe_store(settings.database_url, settings.data_dir or get_default_data_dir(os.environ))


async def _collect_webhook_facts(client: KubernetesClient, settings: Settings) -> WebhookFacts:
    found = await read_webhook_registration(client, settings.webhook_configuration)
    if found is None:
        return WebhookFacts(present=False)
    namespace = find_own_namespace(settings.namespace)
    storage: CertificateStorage = TlsSecret(client, namespace, f"{settings.webhook_service}-tls")
    if settings.tls_dir is not None:
        storage = TlsDirectory(settings.tls_dir)
    trusts, expires_at = await _check_certificate(storage, found)
    return WebhookFacts(
        present=True,
        published=bool(found.ca_bundles) and all(found.ca_bundles),
        trusts_certificate=trusts,
        expires_at=expires_at,
        fails_open=found.fails_open,
        verifies_clients=settings.webhook_client_ca_file is not None,
    )


async def _check_certificate(
    storage: CertificateStorage, found: WebhookRegistration
) -> tuple[bool | None, datetime | None]:
    """Return whether the published CAs verify the certificate in use, and its expiry; None if unreadable."""
    try:
        kept = await storage.read()
        if kept.is_empty:
            return None, None
        pair = read_key_pair(kept.files.get(CERTIFICATE, b""), kept.files.get(KEY, b""), storage.name)
    except CruiseError:
        # Reading Secrets is rarely permitted, and the webhook's directory is on another machine.
        return None, None
    vouched = [any(is_issued_by(one, pair) for one in split_bundle(bundle)) for bundle in found.ca_bundles]
    return all(vouched), pair.not_after


def _remove_permission_hint(error: CruiseError) -> str:
    """Remove from an error what the item about permissions reports better."""
    text = str(error)
    return text.partition(": User ")[0] if isinstance(error, RefusedError) else text


def _list_unreadable(snapshot: ClusterReadResult | None) -> list[str]:
    return [one.problem for one in snapshot.unreadable] if snapshot is not None else []
