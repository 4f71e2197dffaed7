"""Cruise's identity at the API server, read by kubernetes_asyncio and read again when tokens or certificates change."""

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

_PORTS = {"http": 80, "https": 443}


def find_proxy(server: str, environment: Mapping[str, str] = os.environ) -> str | None:
    """Return the proxy for a server's URL by the environment, None for a direct connection.

    It follows kubectl and other Go programs: NO_PROXY lists hosts, domains, addresses and networks such as
    10.96.0.0/12, each with an optional port. Loopback addresses never use a proxy.
    """
    parts = urlsplit(server)
    host, port = (parts.hostname or "").rstrip("."), parts.port or _PORTS.get(parts.scheme)
    name = f"{parts.scheme}_proxy"
    proxy = environment.get(name.upper()) or environment.get(name)
    if not proxy or not host or _is_exempt(host, port, environment):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _is_exempt(host: str, port: int | None, environment: Mapping[str, str]) -> bool:
    address = _address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return True
    entries = environment.get("NO_PROXY") or environment.get("no_proxy") or ""
    return any(_matches_entry(entry.strip().lower(), host, address, port) for entry in entries.split(","))


def _matches_entry(entry: str, host: str, address: "_Address | None", port: int | None) -> bool:
    if entry in ("", "*"):
        return entry == "*"
    if "/" in entry:
        network = _network(entry)
        return network is not None and address is not None and address in network
    name, entry_port = _split_port(entry)
    if entry_port is not None and entry_port != port:
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
_MAX_AGE_SECONDS = 60.0
# Credentials that were read within this time are not read again after a 401.
_MIN_AGE_SECONDS = 1.0
# A user may have to sign in to a plugin.
_PLUGIN_TIMEOUT_SECONDS = 60.0
# What the library raises for files of another form, because it checks little itself, and for failing plugins.
_CONFIG_ERRORS = (
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

# The library also logs its errors, with the whole user entry and its credentials.
_library_log = logging.getLogger("kubernetes_asyncio.config")
_library_log.addHandler(logging.NullHandler())
_library_log.propagate = False
# The user entry in the library's messages, which may contain credentials.
_QUOTED_USER = re.compile(r"/\{.*\}")


@dataclass(frozen=True, slots=True)
class ApiIdentity:
    """Current credentials: headers of each request, files for TLS, and their contents to detect changes."""

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
        """Everything that a connection depends on; if it differs, a new connection is needed."""
        return (
            self.server,
            self.ca_file,
            self.certificate,
            self.verify,
            self.server_name,
            self.proxy,
            self.file_contents,
        )

    def create_tls_context(self) -> ssl.SSLContext:
        """Return the TLS context. Raises BadInputError if certificates cannot be read."""
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
            if self.certificate is not None:
                context.load_cert_chain(*self.certificate)
        except (OSError, ValueError) as error:
            raise BadInputError(f"the certificates for {self.server} cannot be used: {error}") from error
        # Certificates of clusters often fail the strict check, which kubectl does not do either.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


class CredentialSource(Protocol):
    """A source of credentials."""

    async def read(self, *, force: bool) -> ApiIdentity:
        """Read the credentials; `force` runs a plugin again before its credentials expire. Raises BadInputError."""


class ServiceAccountCredentials:
    """The service account of cruise's pod; the kubelet rotates its token."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    async def read(self, *, force: bool) -> ApiIdentity:
        configuration = Configuration()
        loader = InClusterConfigLoader(str(self._directory / "token"), str(self._directory / "ca.crt"))
        try:
            loader.load_and_set(configuration)
        except _CONFIG_ERRORS as error:
            raise BadInputError(
                f"the service account in {self._directory} cannot be used: {_to_line(error)}"
            ) from error
        return _to_identity(configuration, {})


def list_contexts(paths: str) -> list[str]:
    """Return the contexts of kubeconfig files in their order; `paths` as in $KUBECONFIG. Raises BadInputError."""
    try:
        merger = KubeConfigMerger(paths)
        if merger.config is None or not isinstance(merger.config.value, dict):
            raise BadInputError(f"kubeconfig {paths} is empty")
        return [str(one["name"]) for one in merger.config.value.get("contexts") or ()]
    except _CONFIG_ERRORS as error:
        raise BadInputError(f"kubeconfig {paths} cannot be used: {_describe_kubeconfig_error(error)}") from error


class KubeconfigCredentials:
    """One or several kubeconfig files, merged as by kubectl; `paths` as in $KUBECONFIG.

    Without a `context`, the current context of the files is used.
    """

    def __init__(self, paths: str, context: str | None = None) -> None:
        self._paths = paths
        self._loader: KubeConfigLoader | None = None
        self._last: ApiIdentity | None = None
        self._context = context

    async def read(self, *, force: bool) -> ApiIdentity:
        configuration = Configuration()
        try:
            merger = KubeConfigMerger(self._paths)
            if merger.config is None or not isinstance(merger.config.value, dict):
                raise BadInputError(f"kubeconfig {self._paths} is empty")
            # A running process keeps its context when kubectl's is switched.
            context = self._context or str(merger.config["current-context"])
            loader = KubeConfigLoader(
                merger.config, context, config_base_path=None, config_persister=merger.save_changes
            )
            user = _find_user(merger.config, context)
            headers = _get_impersonation_headers(user)
            if self._loader is not None and self._last is not None and not force and "exec" in user:
                # Credentials of a plugin without an expiry are used until the server rejects them.
                if not hasattr(self._loader, "exec_plugin_expiry"):
                    return self._last
                loader = self._loader
            async with asyncio.timeout(_PLUGIN_TIMEOUT_SECONDS):
                await loader.load_and_set(configuration)
        except _CONFIG_ERRORS as error:
            raise BadInputError(
                f"kubeconfig {self._paths} cannot be used: {_describe_kubeconfig_error(error)}"
            ) from error
        self._loader, self._context = loader, context
        self._last = _to_identity(configuration, headers)
        return self._last


class Credentials:
    """The current identity, read again after `max_age_seconds` and after a 401; safe for concurrent use."""

    def __init__(self, source: CredentialSource, max_age_seconds: float = _MAX_AGE_SECONDS) -> None:
        self._source = source
        self._max_age_seconds = max_age_seconds
        self._identity: ApiIdentity | None = None
        self._read_at = 0.0
        self._lock = asyncio.Lock()

    @property
    def in_cluster(self) -> bool:
        """Whether these are the credentials of cruise's pod."""
        return isinstance(self._source, ServiceAccountCredentials)

    async def load(self) -> ApiIdentity:
        """Read the credentials. Raises BadInputError."""
        self._identity = await self._source.read(force=True)
        self._read_at = time.monotonic()
        return self._identity

    async def get_identity(self) -> ApiIdentity:
        """Return the identity to use now; if it cannot be read again, the old one stays."""
        identity = self._identity
        if identity is not None and time.monotonic() - self._read_at < self._max_age_seconds:
            return identity
        return await self._read_again(identity, force=False)

    async def renew(self, refused: ApiIdentity) -> ApiIdentity:
        """Return an identity that was read after `refused`, or the same one if it was only just read."""
        return await self._read_again(refused, force=True)

    async def _read_again(self, old: ApiIdentity | None, *, force: bool) -> ApiIdentity:
        async with self._lock:
            if self._identity is not None:
                is_fresh = force and time.monotonic() - self._read_at < _MIN_AGE_SECONDS
                if self._identity is not old or is_fresh:
                    return self._identity
            try:
                found = await self._source.read(force=force)
            except BadInputError:
                # Files may be half replaced, and plugins may fail temporarily.
                if self._identity is None:
                    raise
                found = self._identity
            self._read_at = time.monotonic()
            # Everything cached belongs to one server, so the server must not change.
            if self._identity is None or found.server == self._identity.server:
                self._identity = found
            return self._identity


def _to_identity(configuration: Configuration, extra_headers: Mapping[str, str]) -> ApiIdentity:
    host = configuration.host or ""
    # A token file usually ends with a line feed, which a header must not contain.
    bearer = " ".join(str(configuration.api_key.get("BearerToken", "")).split())
    headers = {**extra_headers, "Authorization": bearer} if bearer else extra_headers
    certificate, key = configuration.cert_file, configuration.key_file
    return ApiIdentity(
        server=host.rstrip("/"),
        headers=headers,
        ca_file=configuration.ssl_ca_cert,
        certificate=(certificate, key) if certificate and key else None,
        verify=bool(configuration.verify_ssl),
        server_name=configuration.tls_server_name,
        proxy=configuration.proxy or find_proxy(host),
        file_contents=tuple(_read_content(file) for file in (configuration.ssl_ca_cert, certificate, key)),
    )


def _read_content(file: str | None) -> object:
    if file is None:
        return None
    try:
        return Path(file).read_bytes()
    except OSError:
        return None


def _find_user(config: ConfigNode, context_name: str) -> Mapping[str, Any]:
    """Return the user entry of a context."""
    context = config["contexts"].get_with_name(context_name)
    name = context["context"].safe_get("user") if context else None
    user = config["users"].get_with_name(name, safe=True) if name else None
    entry = user["user"].value if user else {}
    return entry if isinstance(entry, dict) else {}


def _get_impersonation_headers(user: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the headers of impersonation: without them cruise would act with more permissions."""
    for key in ("as-groups", "as-user-extra"):
        if user.get(key):
            raise ConfigException(f"cruise cannot impersonate with {key}: remove it, or give cruise its own account")
    names = {"as": "Impersonate-User", "as-uid": "Impersonate-Uid"}
    return {header: str(user[key]) for key, header in names.items() if user.get(key)}


def _describe_kubeconfig_error(error: BaseException) -> str:
    """Return the problem of a kubeconfig in words; Python's own messages name no field."""
    if isinstance(error, TypeError | AttributeError):
        return "a field is missing; `kubectl config view` shows its content"
    text = _QUOTED_USER.sub("", _to_line(error))
    return text.removeprefix("Invalid kube-config file. ")


def _to_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return text or type(error).__name__
