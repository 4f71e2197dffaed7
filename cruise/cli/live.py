"""The cluster as it is now, read once for a command, with what it takes shown on standard error."""

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console

from cruise.adapters.kube.client import KubeClient
from cruise.adapters.kube.connecting import KubeSettings, connect
from cruise.adapters.kube.looking import look
from cruise.cli.terminal import complain, quiet_logs
from cruise.domain.cluster import Snapshot

if TYPE_CHECKING:
    from cruise.settings import Settings


def kube_settings(settings: "Settings") -> KubeSettings:
    """Return how the API server is asked."""
    return KubeSettings(
        settings.kubeconfig,
        settings.kube_requests_per_second,
        settings.kube_burst,
        settings.kube_timeout.total_seconds(),
    )


def live_snapshot(settings: "Settings") -> Snapshot:
    """Read the whole cluster. Raises BadInput, Throttled, Unavailable."""

    async def read() -> Snapshot:
        async with connect(kube_settings(settings)) as client:
            return await snapshot_of(client)

    return asyncio.run(read())


async def snapshot_of(client: KubeClient) -> Snapshot:
    """Read the whole cluster through a client, and say on standard error what cannot be read."""
    with quiet_logs(), _counting() as show:
        seen = await look(client, show)
    if seen.unreadable:
        first, count = seen.unreadable[0], len(seen.unreadable)
        more = f", and {count - 1:,} more" if count > 1 else ""
        complain(f"left aside, as it cannot be read: {first.problem}{more}")
    return seen.snapshot


@contextmanager
def _counting() -> "Iterator[Callable[[str, int], None]]":
    """Show how much was read, where people look on."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield lambda kind, count: None
        return
    counts: dict[str, int] = {}
    console = Console(stderr=True, highlight=False, markup=False)
    with console.status("reading the cluster") as status:

        def show(kind: str, count: int) -> None:
            counts[kind] = count
            read = ", ".join(f"{counts[name]:,} {name}" for name in ("nodes", "pods") if name in counts)
            status.update(f"reading the cluster: {read or f'{sum(counts.values()):,} objects'}")

        yield show
