"""The webhook's certificate in a running process: where it is kept, who makes it, and how it is looked after."""

import os
import time
from dataclasses import dataclass
from datetime import timedelta

from cruise.adapters.kube.http.client import KubeClient
from cruise.adapters.kube.http.connecting import SERVICE_ACCOUNT, connect, own_namespace
from cruise.adapters.store.embedded_postgres import default_data_dir
from cruise.adapters.webhook_tls.configuration import publish_ca
from cruise.adapters.webhook_tls.directory import TlsDirectory
from cruise.adapters.webhook_tls.keeping import LIFETIME, CertificateKeeper, CertificatePlace
from cruise.adapters.webhook_tls.secret import TlsSecret
from cruise.app.certificate_upkeep import INTERVAL, begun, kept, served_names
from cruise.settings import Settings


@dataclass(frozen=True, slots=True)
class CertificateTimes:
    """How long a certificate that cruise makes lives, how long before it is used it is published, how often to look."""

    lifetime: timedelta = LIFETIME
    learning_time: timedelta = timedelta(seconds=10)
    interval: timedelta = INTERVAL


def served_certificate(settings: Settings, client: KubeClient, times: CertificateTimes) -> CertificateKeeper:
    """Return what the webhook serves: the files of `tls_dir` as they are, else a certificate of its own."""
    return _keeper(settings, client, times, publishes=settings.tls_dir is None)


async def keep_certificates(settings: Settings, times: CertificateTimes | None = None) -> None:
    """Make, renew and publish until cancelled what webhooks serve; nothing is listened to. Raises CruiseError."""
    times = times or CertificateTimes()
    async with connect(settings.kube()) as client:
        keeper = _keeper(settings, client, times, publishes=True)
        await begun(keeper)
        await kept(keeper, times.interval)


def _keeper(settings: Settings, client: KubeClient, times: CertificateTimes, *, publishes: bool) -> CertificateKeeper:
    namespace = own_namespace(settings.namespace)

    async def publish(bundle: bytes) -> bool:
        return await publish_ca(client, settings.webhook_configuration, bundle)

    return CertificateKeeper(
        _place(settings, client, namespace),
        served_names(settings.webhook_service, settings.namespace),
        publish if publishes else None,
        time.monotonic,
        lifetime=times.lifetime,
        learning_time=times.learning_time,
    )


def _place(settings: Settings, client: KubeClient, namespace: str) -> CertificatePlace:
    """Return where the certificate is: a stated directory, in a cluster the shared Secret, else cruise's own files."""
    if settings.tls_dir is not None:
        return TlsDirectory(settings.tls_dir)
    if os.environ.get("KUBERNETES_SERVICE_HOST") and (SERVICE_ACCOUNT / "token").exists():
        return TlsSecret(client, namespace, f"{settings.webhook_service}-tls")
    return TlsDirectory((settings.data_dir or default_data_dir(os.environ)) / "webhook-tls")
