"""The cluster as it is now, read once for a command, with what it takes shown on standard error."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum, auto
from pathlib import Path
from typing import TYPE_CHECKING

from cruise.adapters.kube.asking.prometheus_services import PrometheusPlace, find_prometheus
from cruise.adapters.kube.following.one_time_list import look
from cruise.adapters.kube.http.client import KubeClient
from cruise.adapters.kube.http.connecting import account_of, connect, own_namespace
from cruise.cli.terminal import busy, complain, quiet_logs
from cruise.domain.cluster import Snapshot
from cruise.errors import BadInput, Refused

if TYPE_CHECKING:
    from cruise.adapters.prometheus.settings import PrometheusSettings
    from cruise.settings import Settings


class Prometheus(Enum):
    """Whether a command needs the cluster's Prometheus."""

    NEEDED = auto()
    OR_KUBELETS = auto()
    IF_FOUND = auto()
    NOT = auto()


class NoPrometheus(BadInput):
    """No Prometheus was found."""


@dataclass(frozen=True, slots=True)
class Live:
    """A cluster, and how its Prometheus is queried, None where it was not looked for, or kubelets stand in for it."""

    snapshot: Snapshot
    prometheus: "PrometheusSettings | None"


def knows_a_cluster(settings: "Settings") -> bool:
    """Tell whether there are credentials for a cluster, whatever they are worth."""
    if settings.kubeconfig is not None:
        return True
    try:
        account_of(None, context=settings.kube_context)
    except BadInput:
        return False
    return True


def read_cluster(settings: "Settings", prometheus: Prometheus, prometheus_url: str | None = None) -> Live:
    """Read the whole cluster, and find its Prometheus unless an address is set.

    Raises BadInput, Throttled, Unavailable; BadInput also where Prometheus is needed and not found.
    """
    return asyncio.run(_read(settings, prometheus, prometheus_url))


async def _read(settings: "Settings", prometheus: Prometheus, prometheus_url: str | None) -> Live:
    async with connect(settings.kube()) as client:
        # What is missing is better known before the long reading than after it.
        found = await _found(client, settings, prometheus, prometheus_url)
        snapshot = await snapshot_of(client)
        seen = settings.node_autoscaler.settled(snapshot.node_autoscaler)
        return Live(replace(snapshot, node_autoscaler=seen), found)


async def _found(
    client: KubeClient, settings: "Settings", prometheus: Prometheus, url: str | None
) -> "PrometheusSettings | None":
    from cruise.settings.choices import UsageFrom

    either = prometheus is Prometheus.OR_KUBELETS and url is None
    if prometheus is Prometheus.NOT or (either and settings.usage_source is UsageFrom.KUBELETS):
        return None
    try:
        return await prometheus_of(client, settings, url)
    except NoPrometheus as error:
        if prometheus is Prometheus.IF_FOUND:
            return None
        if either and settings.usage_source is UsageFrom.AUTO:
            await _refuse_unread_kubelets(client, settings, error)
            return None
        raise
    except BadInput:
        if prometheus is Prometheus.IF_FOUND:
            return None
        raise


async def _refuse_unread_kubelets(client: KubeClient, settings: "Settings", error: NoPrometheus) -> None:
    from cruise.adapters.kube.asking.access import may
    from cruise.app.usage_source import access_need

    need = access_need(settings)
    if not all(await may(client, [need])):
        raise BadInput(f"{error}; the kubelets would do for a glimpse, but this account may not `{need}`") from error
    complain(f"{error}; until then the kubelets give a glimpse")


async def prometheus_of(
    client: KubeClient, settings: "Settings", prometheus_url: str | None = None
) -> "PrometheusSettings":
    """Return how Prometheus is queried: at the address that is set, else found by the labels of its Service.

    It is looked for in the namespaces that the settings name, and in cruise's own.

    Raises BadInput where there is none, besides the client's errors.
    """
    if prometheus_url is not None or settings.prometheus_url is not None:
        return settings.prometheus(prometheus_url)
    hint = "give --prometheus-url URL, or set prometheus_url"
    try:
        finding = await find_prometheus(client, settings.prometheus_namespaces | {own_namespace(settings.namespace)})
    except Refused as error:
        raise NoPrometheus(f"Services may not be listed, so Prometheus cannot be found: {hint} ({error})") from error
    if finding.place is None and finding.elsewhere:
        one = finding.elsewhere[0]
        raise BadInput(
            f"Service {one} is labelled as Prometheus, but anybody there could have done that: {hint}, "
            f"or add {one.partition('/')[0]} to prometheus_namespaces"
        )
    if finding.place is None:
        raise NoPrometheus(f"no Service of the cluster is labelled as Prometheus or its like: {hint}")
    return settings_for(finding.place, settings, proxied=not client.in_cluster)


def settings_for(place: PrometheusPlace, settings: "Settings", proxied: bool) -> "PrometheusSettings":
    """Return how a server is queried that was found, `proxied` by the API server or at its own address."""
    # Credentials are for the address that they were set with. The API server takes its own, and hands on none.
    known = replace(settings.prometheus(place.url), headers=place.headers, token_file=None, user=None, password=None)
    if not proxied:
        return known
    return replace(
        known,
        ca_file=Path(place.ca_file) if place.ca_file is not None else None,
        insecure_tls=place.insecure_tls,
        client_certificate=place.client_certificate,
        by_get=True,
    )


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
def _counting() -> Iterator[Callable[[str, int], None]]:
    """Show on a terminal how much was read."""
    counts: dict[str, int] = {}
    with busy("reading the cluster") as update:

        def show(kind: str, count: int) -> None:
            counts[kind] = count
            read = ", ".join(f"{counts[name]:,} {name}" for name in ("nodes", "pods") if name in counts)
            update(f"reading the cluster: {read or f'{sum(counts.values()):,} objects'}")

        yield show
