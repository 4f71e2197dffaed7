"""Which proxy leads to a server, by the environment: as kubectl and every other Go program reads it."""

import ipaddress
import os
from collections.abc import Mapping
from urllib.parse import urlsplit

_PORTS = {"http": 80, "https": 443}


def proxy_for(server: str, environment: Mapping[str, str] = os.environ) -> str | None:
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
