"""HTTP to kubelets: limited answers, and each rejection as one line that says what to set."""

import ssl
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from urllib.parse import quote

import aiohttp
from yarl import URL

from cruise.adapters.kube.client import USER_AGENT, KubernetesClient
from cruise.adapters.kube.credentials import ApiIdentity
from cruise.adapters.kube.responses import find_failure_status
from cruise.domain.cluster import Node
from cruise.errors import BadInputError, CruiseError, UnavailableError


class KubeletAccessMode(StrEnum):
    """How kubelets are reached: at the node's address, or through the API server, which needs access to nodes/proxy."""

    DIRECT = "direct"
    NODE_PROXY = "node-proxy"


class KubeletMetricsPath(StrEnum):
    """The endpoint of a kubelet; `resource` is a small part of `cadvisor`, without pressure."""

    CADVISOR = "cadvisor"
    RESOURCE = "resource"


@dataclass(frozen=True, slots=True)
class KubeletSettings:
    """How kubelets are reached, and how many requests run in parallel.

    Their certificates are verified with `ca_file`, by default the cluster's CA. With `insecure_tls` they are not
    verified, and any server at a node's address gets cruise's token. `max_bytes` limits one answer.
    """

    access: KubeletAccessMode = KubeletAccessMode.DIRECT
    endpoint: KubeletMetricsPath = KubeletMetricsPath.CADVISOR
    ca_file: Path | None = None
    insecure_tls: bool = False
    timeout_seconds: float = 10.0
    concurrency: int = 16
    max_bytes: int = 32 << 20
    step_seconds: int = 60
    retention_seconds: float = 900.0
    plausible: bool = True


_CHUNK_BYTES = 1 << 18
_MAX_ERROR_BYTES = 1 << 12
# Uncompressed, because a few compressed bytes could unpack to any size.
_HEADERS = {"User-Agent": USER_AGENT, "Accept": "text/plain", "Accept-Encoding": "identity"}
_VERIFY = (
    "set kubelet_ca_file to the CA that signs kubelets' certificates, or let the cluster's CA sign them "
    "(serverTLSBootstrap), or go through the API server with kubelet_access=node-proxy; kubelet_insecure_tls=true "
    "would send cruise's token to any server at that address"
)


class KubeletClient:
    """Reads the metrics of kubelets with cruise's identity at the API server."""

    def __init__(self, settings: KubeletSettings, client: KubernetesClient) -> None:
        self._settings = settings
        self._client = client
        self._session: aiohttp.ClientSession | None = None
        self._connection: tuple[object, ...] = ()

    async def aclose(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def read_metrics(self, node: Node) -> bytes:
        """Return the metrics of one node as text.

        Raises BadInputError and UnavailableError, which name node, cause and fix.
        """
        url = self._build_url(node, await self._client.get_identity())
        place = f"the kubelet of node {node.name} at {url.host}:{url.port}"
        if self._settings.access is KubeletAccessMode.NODE_PROXY:
            place = f"the kubelet of node {node.name} behind the API server"
        try:
            return await self._request(url, place)
        except CruiseError:
            raise
        except TimeoutError as error:
            raise UnavailableError(
                f"{place} did not answer completely within {self._settings.timeout_seconds:g} s"
            ) from error
        except aiohttp.ClientConnectorCertificateError as error:
            cause = error.certificate_error
            detail = cause.verify_message if isinstance(cause, ssl.SSLCertVerificationError) else str(cause)
            raise BadInputError(
                f"the certificate of {place} is not accepted, nothing was sent: {detail}; {_VERIFY}"
            ) from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            detail = " ".join(str(error).split()) or type(error).__name__
            raise UnavailableError(f"{place} cannot be read: {detail}") from error

    def _build_url(self, node: Node, identity: ApiIdentity) -> URL:
        path = f"/metrics/{self._settings.endpoint.value}"
        if self._settings.access is KubeletAccessMode.NODE_PROXY:
            return URL(f"{identity.server}/api/v1/nodes/{quote(node.name)}/proxy{path}", encoded=True)
        if not node.address:
            raise UnavailableError(f"node {node.name} has no InternalIP, so its kubelet cannot be reached")
        host = f"[{node.address}]" if ":" in node.address else node.address
        return URL(f"https://{host}:{node.kubelet_port}{path}", encoded=True)

    async def _request(self, url: URL, place: str) -> bytes:
        identity = await self._client.get_identity()
        for attempt in range(2):
            session = await self._get_session(identity)
            async with session.get(
                url,
                headers={**_HEADERS, **identity.headers},
                proxy=identity.proxy if self._settings.access is KubeletAccessMode.NODE_PROXY else None,
                server_hostname=identity.server_name if self._settings.access is KubeletAccessMode.NODE_PROXY else None,
                allow_redirects=False,
            ) as response:
                if response.status == 401 and attempt == 0:
                    identity = await self._client.renew(identity)
                    continue
                if response.status != 200:
                    raise self._create_error(response.status, place, await self._read_message(response))
                return await self._read_body(response, place)
        raise AssertionError

    async def _read_body(self, response: aiohttp.ClientResponse, place: str) -> bytes:
        chunks, size = [], 0
        async for chunk in response.content.iter_chunked(_CHUNK_BYTES):
            size += len(chunk)
            if size > self._settings.max_bytes:
                raise UnavailableError(
                    f"{place} answered with more than {self._settings.max_bytes:,} bytes: raise kubelet_max_bytes, or "
                    "set kubelet_endpoint=resource, which is much smaller"
                )
            chunks.append(chunk)
        return b"".join(chunks)

    async def _read_message(self, response: aiohttp.ClientResponse) -> str:
        """Return the message of the API server, if the request passes through it."""
        if self._settings.access is KubeletAccessMode.DIRECT:
            return ""
        with suppress(aiohttp.ClientError, TimeoutError):
            failure = find_failure_status(await response.content.read(_MAX_ERROR_BYTES))
            if failure is not None and failure.message:
                return f"; the API server says: {' '.join(failure.message.split())}"
        return ""

    def _create_error(self, status: int, place: str, message: str) -> BadInputError | UnavailableError:
        proxied = self._settings.access is KubeletAccessMode.NODE_PROXY
        match status:
            case 401:
                fix = "" if proxied else ": kubelets must accept tokens (authentication.webhook.enabled)"
                return BadInputError(f"{place} does not accept cruise's credentials (401){fix}")
            case 403:
                resource = "nodes/proxy" if proxied else "nodes/metrics"
                return BadInputError(
                    f"{place} may not be read by cruise's account (403): grant it get on {resource}{message}"
                )
            case 404:
                return BadInputError(
                    f"{place} has no /metrics/{self._settings.endpoint.value} (404): set kubelet_endpoint to the other"
                )
            case _:
                return UnavailableError(f"{place} answered with status {status}{message}")

    async def _get_session(self, identity: ApiIdentity) -> aiohttp.ClientSession:
        if self._session is not None and self._connection == identity.connection:
            return self._session
        await self.aclose()
        tls_identity = identity
        if self._settings.access is KubeletAccessMode.DIRECT:
            ca_file = str(self._settings.ca_file) if self._settings.ca_file is not None else identity.ca_file
            tls_identity = replace(identity, ca_file=ca_file, verify=not self._settings.insecure_tls)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=self._settings.concurrency, ssl=tls_identity.create_tls_context()),
            timeout=aiohttp.ClientTimeout(total=self._settings.timeout_seconds),
            # No proxy and no password from the environment.
            trust_env=False,
            auto_decompress=False,
        )
        self._connection = identity.connection
        return self._session
