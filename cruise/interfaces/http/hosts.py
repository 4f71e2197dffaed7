"""By which names a server answers: a page whose name points here for a moment is not among them."""

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit

_OWN = frozenset({"localhost"})


@dataclass(frozen=True, slots=True)
class Hosts:
    """The names of a server, in lower case; its addresses are always among them, since no page has those by DNS."""

    names: frozenset[str] = frozenset()

    def allows(self, host: str) -> bool:
        """Tell whether a request with this Host header is for this server."""
        name = _name_of(f"//{host}")
        return name is not None and (name in _OWN or name in self.names or _is_address(name))

    def allows_origin(self, origin: str, host: str) -> bool:
        """Tell whether a browser's page of this origin may write here: one that this very server sent."""
        if not origin.startswith(("http://", "https://")):
            return False
        return urlsplit(origin).netloc.lower() == host.lower()


def hosts(names: Iterable[str]) -> Hosts:
    """Return the hosts of some names, in whatever case."""
    return Hosts(frozenset(name.lower().rstrip(".") for name in names if name))


def _name_of(address: str) -> str | None:
    try:
        parts = urlsplit(address)
        # Read for the error that a wrong one raises.
        _ = parts.port
    except ValueError:
        return None
    if parts.username is not None or parts.path or parts.query or parts.fragment or parts.hostname is None:
        return None
    return parts.hostname.rstrip(".")


def _is_address(name: str) -> bool:
    try:
        ip_address(name.partition("%")[0])
    except ValueError:
        return False
    return True
