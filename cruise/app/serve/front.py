"""What stands before serve's HTTP: who is let in, by which names, and with which certificate."""

import asyncio
import os
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from ipaddress import ip_address

from cruise.adapters.kube.asking.reviews import KubeReviews
from cruise.adapters.kube.http.client import KubeClient
from cruise.adapters.oidc.provider import OidcProvider
from cruise.adapters.store.embedded_postgres import default_data_dir
from cruise.adapters.webhook_tls.directory import TlsDirectory
from cruise.adapters.webhook_tls.keeping import CertificateKeeper
from cruise.app.certificate_upkeep import INTERVAL, kept, served_names, service_names
from cruise.app.clock import wall_clock
from cruise.errors import BadInput, one_refusal
from cruise.interfaces.dashboard.providers import ProvidedCallers
from cruise.interfaces.http.gate import Authority, GateRules
from cruise.interfaces.http.hosts import hosts
from cruise.interfaces.http.static_token import StaticToken
from cruise.settings import Settings
from cruise.settings.choices import ApiAuthentication, HttpTls

SERVICE = "cruise"


def check_front(settings: Settings) -> None:
    """See that nobody gets in unknown from elsewhere. Raises BadInput."""
    if settings.api_token_file is not None:
        StaticToken(settings.api_token_file).check()
    elif settings.api_authentication is ApiAuthentication.TOKEN and not _is_local(settings):
        raise BadInput(
            f"http_address {settings.http_address} is open to other machines, and callers would be unknown: "
            "set api_authentication to kubernetes, or api_token_file, or http_address to 127.0.0.1:8080"
        )


def gate_rules(settings: Settings, client: KubeClient) -> GateRules:
    """Return what may pass; `client` asks the API server about callers."""
    authority: Authority | None = None
    if settings.api_authentication is ApiAuthentication.KUBERNETES:
        authority = KubeReviews(client, time.monotonic)
        oidc = settings.oidc()
        if oidc is not None:
            authority = ProvidedCallers(OidcProvider(oidc, wall_clock), authority, time.monotonic)
    elif settings.api_token_file is not None:
        authority = StaticToken(settings.api_token_file)
    # On its own machine a token protects what is written; what is read is open to everybody who can log in there.
    is_open = _is_local(settings) and settings.api_authentication is ApiAuthentication.TOKEN
    return GateRules(
        authority,
        hosts([*settings.http_allowed_hosts, host_of(settings), *service_names(SERVICE, settings.namespace)]),
        reads_open=is_open,
        metrics_open=is_open or settings.metrics_open,
        at_once=settings.api_requests_per_caller,
    )


@asynccontextmanager
async def certificate(settings: Settings, interval: timedelta = INTERVAL) -> AsyncIterator[ssl.SSLContext | None]:
    """Yield what TLS is served with, None without, kept up to date for as long as this lasts. Raises BadInput."""
    wanted = settings.http_tls is HttpTls.ON or settings.http_tls_dir is not None or not _is_local(settings)
    if settings.http_tls is HttpTls.OFF or not wanted:
        yield None
        return
    directory = settings.http_tls_dir or (settings.data_dir or default_data_dir(os.environ)) / "http-tls"
    names = served_names(SERVICE, settings.namespace)
    keeper = CertificateKeeper(TlsDirectory(directory), names, _publish_nowhere, time.monotonic)
    await keeper.start(wall_clock())
    with one_refusal():
        async with asyncio.TaskGroup() as tasks:
            keeping = tasks.create_task(kept(keeper, interval))
            yield keeper.context
            keeping.cancel()


def host_of(settings: Settings) -> str:
    """Return the host that is listened on, empty for all."""
    return settings.http_address.rpartition(":")[0].strip("[]")


def _is_local(settings: Settings) -> bool:
    host = host_of(settings)
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


async def _publish_nowhere(bundle: bytes) -> None:
    """Leave a certificate of its own to be taken on trust, or copied from its directory."""
