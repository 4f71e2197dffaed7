"""The webhook's certificate in a running process: its location, its names and its renewal."""

import asyncio
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

import structlog

from cruise.adapters.kube.client import SERVICE_ACCOUNT, KubernetesClient, connect_to_kubernetes, find_own_namespace
from cruise.adapters.store.embedded_postgres import get_default_data_dir
from cruise.adapters.webhook_tls.certificate_keeper import (
    LIFETIME,
    CertificateKeeper,
    CertificateStorage,
    TlsDirectory,
    TlsSecret,
    publish_ca,
)
from cruise.app.process import get_current_time
from cruise.errors import ThrottledError, UnavailableError
from cruise.settings import Settings

log = structlog.get_logger()

# How often the certificate is checked, and how often while there is none or API servers do not trust it yet.
INTERVAL = timedelta(seconds=10)
_RETRY_SECONDS = 2.0
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


async def start_certificate_keeper(keeper: CertificateKeeper) -> None:
    """Wait for a certificate until the API server, or the process that creates it, provides one."""
    logged = ""
    while True:
        try:
            await keeper.start(get_current_time())
        except (UnavailableError, ThrottledError) as error:
            if str(error) != logged:
                log.warning("waiting for the certificate", error=str(error))
            logged = str(error)
            await asyncio.sleep(_RETRY_SECONDS)
        else:
            return


async def keep_certificate_renewed(keeper: CertificateKeeper, interval: timedelta = INTERVAL) -> None:
    """Check and renew the certificate until cancelled."""
    while True:
        await keeper.step(get_current_time())
        unpublished = keeper.unpublished_reason is not None
        seconds = interval.total_seconds()
        await asyncio.sleep(min(seconds, _RETRY_SECONDS) if unpublished else seconds)


def get_service_names(service: str, namespace: str | None) -> Sequence[str]:
    """Return the DNS names of a Service within its cluster, the one that API servers use first."""
    namespace = find_own_namespace(namespace)
    full = f"{service}.{namespace}.svc"
    return (full, f"{full}.cluster.local", f"{service}.{namespace}", service)


def get_served_names(service: str, namespace: str | None) -> Sequence[str]:
    """Return the names in a Service's certificate; outside a cluster also the loopback address."""
    return (*get_service_names(service, namespace), *_LOOPBACK)


@dataclass(frozen=True, slots=True)
class CertificateRenewalTiming:
    """The lifetime of cruise's own certificates, the time between publication and use, and the interval of checks."""

    lifetime: timedelta = LIFETIME
    publication_time: timedelta = timedelta(seconds=10)
    interval: timedelta = INTERVAL


def create_served_certificate(
    settings: Settings, client: KubernetesClient, times: CertificateRenewalTiming
) -> CertificateKeeper:
    """Return the webhook's certificate: the files of `tls_dir`, otherwise cruise's own."""
    return _create_keeper(settings, client, times, publishes=settings.tls_dir is None)


async def run_certificate_keeper(settings: Settings) -> None:
    """Create, renew and publish the webhook's certificate until cancelled, without a server. Raises CruiseError."""
    times = CertificateRenewalTiming()
    async with connect_to_kubernetes(settings.to_kubernetes_settings()) as client:
        keeper = _create_keeper(settings, client, times, publishes=True)
        await start_certificate_keeper(keeper)
        await keep_certificate_renewed(keeper, times.interval)


def _create_keeper(
    settings: Settings, client: KubernetesClient, times: CertificateRenewalTiming, *, publishes: bool
) -> CertificateKeeper:
    namespace = find_own_namespace(settings.namespace)

    async def publish(bundle: bytes) -> bool:
        return await publish_ca(client, settings.webhook_configuration, bundle)

    return CertificateKeeper(
        _choose_storage(settings, client, namespace),
        get_served_names(settings.webhook_service, settings.namespace),
        publish if publishes else None,
        time.monotonic,
        lifetime=times.lifetime,
        propagation_time=times.publication_time,
    )


def _choose_storage(settings: Settings, client: KubernetesClient, namespace: str) -> CertificateStorage:
    """Return where the certificate is stored: `tls_dir`, in a cluster the Secret, otherwise cruise's own files."""
    if settings.tls_dir is not None:
        return TlsDirectory(settings.tls_dir)
    if os.environ.get("KUBERNETES_SERVICE_HOST") and (SERVICE_ACCOUNT / "token").exists():
        return TlsSecret(client, namespace, f"{settings.webhook_service}-tls")
    return TlsDirectory((settings.data_dir or get_default_data_dir(os.environ)) / "webhook-tls")
