"""From a kubeconfig or a pod's service account to a client."""

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from cruise.adapters.kube.http.client import KubeClient
from cruise.adapters.kube.http.credentials import Account, Credentials, KubeConfig, ServiceAccount
from cruise.errors import BadInput

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_DEFAULT_NAMESPACE = "cruise"


@dataclass(frozen=True, slots=True)
class KubeSettings:
    """How the API server is found, and how fast and how long it is asked.

    `kubeconfig` None means the pod's own service account, or outside of a cluster what kubectl would use: $KUBECONFIG,
    then ~/.kube/config. `context` is of a kubeconfig; None means the current one. A request has
    `timeout_seconds` for its whole answer.
    """

    kubeconfig: Path | None = None
    requests_per_second: float = 100.0
    burst: int = 200
    timeout_seconds: float = 30.0
    context: str | None = None


@asynccontextmanager
async def connect(settings: KubeSettings) -> AsyncIterator[KubeClient]:
    """Yield a client with the credentials found; nothing is asked of the server yet.

    Raises BadInput where there are none that can be used.
    """
    if settings.requests_per_second <= 0:
        raise BadInput("kube_requests_per_second is 0: nothing could ever be asked; set it to 100")
    credentials = Credentials(account_of(settings.kubeconfig, context=settings.context))
    (await credentials.load()).tls()
    client = KubeClient(
        credentials,
        requests_per_second=settings.requests_per_second,
        burst=settings.burst,
        timeout_seconds=settings.timeout_seconds,
    )
    try:
        yield client
    finally:
        await client.close()


def account_of(
    kubeconfig: Path | None,
    environment: Mapping[str, str] = os.environ,
    service_account: Path = SERVICE_ACCOUNT,
    context: str | None = None,
) -> Account:
    """Return where the credentials are: the stated file, else the pod's service account, else kubectl's files.

    A pod's account is not for the context of a kubeconfig.
    """
    if kubeconfig is not None:
        if not kubeconfig.is_file():
            raise BadInput(f"kubeconfig {kubeconfig} is not there; set kubeconfig to the file that kubectl uses")
        return KubeConfig(str(kubeconfig), context)
    if context is None and environment.get("KUBERNETES_SERVICE_HOST") and (service_account / "token").exists():
        return ServiceAccount(service_account)
    listed = environment.get("KUBECONFIG") or str(Path("~/.kube/config").expanduser())
    if not any(Path(place).expanduser().is_file() for place in listed.split(os.pathsep) if place):
        raise BadInput(
            f"no cluster is known: cruise is not in a pod with a service account, and there is no {listed}; "
            "set kubeconfig, or KUBECONFIG"
        )
    return KubeConfig(listed, context)


def own_namespace(stated: str | None, service_account: Path = SERVICE_ACCOUNT) -> str:
    """Return cruise's own namespace: the stated one, else the service account's, else `cruise`."""
    if stated:
        return stated
    try:
        return (service_account / "namespace").read_text(encoding="utf-8").strip() or _DEFAULT_NAMESPACE
    except OSError:
        return _DEFAULT_NAMESPACE
