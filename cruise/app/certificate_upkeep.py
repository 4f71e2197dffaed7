"""Certificates that cruise serves, looked after in a running process: the names they are for, and their renewal."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import structlog

from cruise.adapters.kube.http.connecting import own_namespace
from cruise.adapters.webhook_tls.keeping import CertificateKeeper
from cruise.app.clock import wall_clock
from cruise.errors import Throttled, Unavailable

log = structlog.get_logger()

# How often to look; and how often while there is none, or API servers cannot trust it yet.
INTERVAL = timedelta(seconds=10)
_RETRY_SECONDS = 2.0
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


async def begun(keeper: CertificateKeeper) -> None:
    """Get a certificate, for as long as it takes the API server, or who makes it, to be there."""
    logged = ""
    while True:
        try:
            await keeper.start(wall_clock())
        except (Unavailable, Throttled) as error:
            if str(error) != logged:
                log.warning("waiting for the certificate", error=str(error))
            logged = str(error)
            await asyncio.sleep(_RETRY_SECONDS)
        else:
            return


async def kept(keeper: CertificateKeeper, interval: timedelta = INTERVAL) -> None:
    """Look after the certificate until cancelled."""
    while True:
        await keeper.step(wall_clock())
        unpublished = keeper.why_unpublished is not None
        seconds = interval.total_seconds()
        await asyncio.sleep(min(seconds, _RETRY_SECONDS) if unpublished else seconds)


def service_names(service: str, namespace: str | None) -> Sequence[str]:
    """Return what a Service is called within its cluster, the name that API servers use first."""
    namespace = own_namespace(namespace)
    full = f"{service}.{namespace}.svc"
    return (full, f"{full}.cluster.local", f"{service}.{namespace}", service)


def served_names(service: str, namespace: str | None) -> Sequence[str]:
    """Return the names in a Service's certificate; on the same machine it has a loopback address."""
    return (*service_names(service, namespace), *_LOOPBACK)
