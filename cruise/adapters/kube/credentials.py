"""Cruise's identity at the API server, read by kubernetes_asyncio, again as tokens and certificates change."""

import asyncio
import ipaddress
import logging
import os
import re
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from subprocess import SubprocessError
from typing import Any, Protocol
from urllib.parse import urlsplit

import yaml
from aiohttp import ClientError
from kubernetes_asyncio.client import Configuration
from kubernetes_asyncio.config import ConfigException
from kubernetes_asyncio.config.incluster_config import InClusterConfigLoader
from kubernetes_asyncio.config.kube_config import ConfigNode, KubeConfigLoader, KubeConfigMerger

from cruise.errors import BadInputError

# Which proxy leads to a server, by the environment: as kubectl and every other Go program reads it.

_PORTS = {"http": 80, "https": 443}


def find_proxy(server: str, environment: Mapping[str, str] = os.environ) -> str | None:
    """Return the proxy for a server's URL, None for a direct connection.

    NO_PROXY lists hosts, domains, addresses and networks such as 10.96.0.0/12, each with a port if need be. Loopback
    addresses never take a proxy.
    """
    parts = urlsplit(server)
    host, port = (parts.hostname or "").rstrip("."), parts.port or _PORTS.get(parts.scheme)
    name = f"{parts.scheme}_proxy"
    proxy = environment.get(name.upper()) or environment.get(name)
    if not proxy or not host or _excepted(host, port, environment):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _excepted(host: str, port: int | None, environment: Mapping[str, str]) -> bool:
    address = _address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return True
    listed = environment.get("NO_PROXY") or environment.get("no_proxy") or ""
    return any(_covers(entry.strip().lower(), host, address, port) for entry in listed.split(","))


def _covers(entry: str, host: str, address: "_Address | None", port: int | None) -> bool:
    if entry in ("", "*"):
        return entry == "*"
    if "/" in entry:
        network = _network(entry)
        return network is not None and address is not None and address in network
    name, stated_port = _split_port(entry)
    if stated_port is not None and stated_port != port:
        return False
    if address is not None:
        return _address(name) == address
    if name.startswith("*."):
        name = name[1:]
    return host.endswith(name) if name.startswith(".") else host == name or host.endswith(f".{name}")


def _split_port(entry: str) -> tuple[str, int | None]:
    if entry.startswith("["):
        name, _, port = entry[1:].partition("]")
        return name, int(port[1:]) if port[1:].isdecimal() else None
    name, _, port = entry.rpartition(":")
    return (name, int(port)) if ":" not in name and name and port.isdecimal() else (entry, None)


_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def _address(text: str) -> _Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None


# Projected tokens are rotated at four fifths of their life, which is never under 10 minutes.
_AGE_SECONDS = 60.0
# Credentials that were read so lately are not worth reading again because of a refusal.
_FRESH_SECONDS = 1.0
# Somebody may have to sign in to a plugin.
_PLUGIN_SECONDS = 60.0
# What the library raises where files are not what it expects, as it checks little itself, and where plugins fail.
_BROKEN = (
    ConfigException,
    OSError,
    ValueError,
    TypeError,
    AttributeError,
    LookupError,
    AssertionError,
    RuntimeError,
    SubprocessError,
    ClientError,
    yaml.YAMLError,
)

# The library logs what it raises as well, with the whole user that it did not understand, credentials included.
_library_log = logging.getLogger("kubernetes_asyncio.config")
_library_log.addHandler(logging.NullHandler())
_library_log.propagate = False
# A user as the library names the place of what it missed: it may be the user with all its credentials.
_QUOTED_USER = re.compile(r"/\{.*\}")


@dataclass(frozen=True, slots=True)
class ApiIdentity:
    """Credentials as they are now: headers for each request, files for TLS, and their contents to detect a change."""

    server: str
    headers: Mapping[str, str]
    ca_file: str | None = None
    certificate: tuple[str, str] | None = None
    verify: bool = True
    server_name: str | None = None
    proxy: str | None = None
    file_contents: tuple[object, ...] = ()

    @property
    def connection(self) -> tuple[object, ...]:
        """What a connection depends on: where it differs, connections are made anew."""
        return (
            self.server,
            self.ca_file,
            self.certificate,
            self.verify,
            self.server_name,
            self.proxy,
            self.file_contents,
        )

    def tls(self) -> ssl.SSLContext:
        """Return the TLS settings. Raises BadInputError where certificates cannot be read."""
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
            if self.certificate is not None:
                context.load_cert_chain(*self.certificate)
        except (OSError, ValueError) as error:
            raise BadInputError(f"the certificates for {self.server} cannot be used: {error}") from error
        # Clusters' own certificates often lack what the strict check asks for, and kubectl does not require it.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


class CredentialSource(Protocol):
    """Where credentials come from."""

    async def read(self, *, anew: bool) -> ApiIdentity:
        """Read them; `anew` runs a plugin again even if its last answer has not expired. Raises BadInputError."""
        ...


class ServiceAccountCredentials:
    """The account of the pod that cruise runs in; its token is rotated under it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    async def read(self, *, anew: bool) -> ApiIdentity:
        configuration = Configuration()
        loader = InClusterConfigLoader(str(self._directory / "token"), str(self._directory / "ca.crt"))
        try:
            loader.load_and_set(configuration)
        except _BROKEN as error:
            raise BadInputError(f"the service account in {self._directory} cannot be used: {_line(error)}") from error
        return _identity(configuration, {})


class KubeconfigCredentials:
    """One or several kubeconfig files, merged as kubectl merges them; `paths` are separated as $KUBECONFIG's.

    Without a `context` the current one of the files counts.
    """

    def __init__(self, paths: str, context: str | None = None) -> None:
        self._paths = paths
        self._loader: KubeConfigLoader | None = None
        self._last: ApiIdentity | None = None
        self._context = context

    async def read(self, *, anew: bool) -> ApiIdentity:
        configuration = Configuration()
        try:
            merger = KubeConfigMerger(self._paths)
            if merger.config is None or not isinstance(merger.config.value, dict):
                raise BadInputError(f"kubeconfig {self._paths} is empty")
            # Switching kubectl's context does not concern a process that runs.
            context = self._context or str(merger.config["current-context"])
            loader = KubeConfigLoader(
                merger.config, context, config_base_path=None, config_persister=merger.save_changes
            )
            user = _user_of(merger.config, context)
            headers = _impersonation(user)
            if self._loader is not None and self._last is not None and not anew and "exec" in user:
                # What a plugin gave without an end is good until it is refused.
                if not hasattr(self._loader, "exec_plugin_expiry"):
                    return self._last
                loader = self._loader
            async with asyncio.timeout(_PLUGIN_SECONDS):
                await loader.load_and_set(configuration)
        except _BROKEN as error:
            raise BadInputError(f"kubeconfig {self._paths} cannot be used: {_why(error)}") from error
        self._loader, self._context = loader, context
        self._last = _identity(configuration, headers)
        return self._last


class Credentials:
    """The identity in use, read again when it is `age_seconds` old and after a refusal; safe for concurrent use."""

    def __init__(self, account: CredentialSource, age_seconds: float = _AGE_SECONDS) -> None:
        self._account = account
        self._age_seconds = age_seconds
        self._identity: ApiIdentity | None = None
        self._read_at = 0.0
        self._lock = asyncio.Lock()

    @property
    def in_cluster(self) -> bool:
        """Tell whether these are a pod's own."""
        return isinstance(self._account, ServiceAccountCredentials)

    async def load(self) -> ApiIdentity:
        """Read the credentials. Raises BadInputError."""
        self._identity = await self._account.read(anew=True)
        self._read_at = time.monotonic()
        return self._identity

    async def current(self) -> ApiIdentity:
        """Return the identity to use now; what cannot be read again for the moment goes on as it is."""
        identity = self._identity
        if identity is not None and time.monotonic() - self._read_at < self._age_seconds:
            return identity
        return await self._renewed(identity, anew=False)

    async def renewed(self, refused: ApiIdentity) -> ApiIdentity:
        """Return an identity read after `refused` was; the same one where it had only just been read."""
        return await self._renewed(refused, anew=True)

    async def _renewed(self, old: ApiIdentity | None, *, anew: bool) -> ApiIdentity:
        async with self._lock:
            if self._identity is not None:
                fresh = anew and time.monotonic() - self._read_at < _FRESH_SECONDS
                if self._identity is not old or fresh:
                    return self._identity
            try:
                found = await self._account.read(anew=anew)
            except BadInputError:
                # Files are replaced one after the other, and plugins fail for a while.
                if self._identity is None:
                    raise
                found = self._identity
            self._read_at = time.monotonic()
            # What is known is known of one server: another has another's pods.
            if self._identity is None or found.server == self._identity.server:
                self._identity = found
            return self._identity


def _identity(configuration: Configuration, more_headers: Mapping[str, str]) -> ApiIdentity:
    host = configuration.host or ""
    # A token file mostly ends with a line feed, which no header may.
    bearer = " ".join(str(configuration.api_key.get("BearerToken", "")).split())
    headers = {**more_headers, "Authorization": bearer} if bearer else more_headers
    certificate, key = configuration.cert_file, configuration.key_file
    return ApiIdentity(
        server=host.rstrip("/"),
        headers=headers,
        ca_file=configuration.ssl_ca_cert,
        certificate=(certificate, key) if certificate and key else None,
        verify=bool(configuration.verify_ssl),
        server_name=configuration.tls_server_name,
        proxy=configuration.proxy or find_proxy(host),
        file_contents=tuple(_content(file) for file in (configuration.ssl_ca_cert, certificate, key)),
    )


def _content(file: str | None) -> object:
    if file is None:
        return None
    try:
        return Path(file).read_bytes()
    except OSError:
        return None


def _user_of(config: ConfigNode, context_name: str) -> Mapping[str, Any]:
    """Return the user of a context as it is written."""
    context = config["contexts"].get_with_name(context_name)
    name = context["context"].safe_get("user") if context else None
    user = config["users"].get_with_name(name, safe=True) if name else None
    written = user["user"].value if user else {}
    return written if isinstance(written, dict) else {}


def _impersonation(user: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the headers by which one user acts as another: without them cruise would act with more rights."""
    for key in ("as-groups", "as-user-extra"):
        if user.get(key):
            raise ConfigException(f"cruise cannot impersonate with {key}; take it out, or give cruise its own account")
    names = {"as": "Impersonate-User", "as-uid": "Impersonate-Uid"}
    return {header: str(user[key]) for key, header in names.items() if user.get(key)}


def _why(error: BaseException) -> str:
    """Return what is wrong with a kubeconfig: what its pieces are not is no text that a person could read."""
    if isinstance(error, TypeError | AttributeError):
        return "something is missing in it; `kubectl config view` shows what it has"
    text = _QUOTED_USER.sub("", _line(error))
    return text.removeprefix("Invalid kube-config file. ")


def _line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return text or type(error).__name__
