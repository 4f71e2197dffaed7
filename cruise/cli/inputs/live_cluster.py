"""The cluster as it is now, read once for a command, with what it takes shown on standard error."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum, auto
from pathlib import Path
from typing import TYPE_CHECKING

from cruise.adapters.kube.client import KubernetesClient, connect_to_kubernetes, find_credentials, find_own_namespace
from cruise.adapters.kube.cluster import read_cluster_once
from cruise.adapters.kube.prometheus_services import PrometheusEndpoint, find_prometheus
from cruise.cli.terminal import print_error, redirect_logs, show_spinner
from cruise.domain.cluster import ClusterSnapshot
from cruise.errors import BadInputError, RefusedError

if TYPE_CHECKING:
    from cruise.adapters.prometheus.settings import PrometheusSettings
    from cruise.settings import Settings


class PrometheusRequirement(Enum):
    """Whether a command needs the cluster's Prometheus."""

    REQUIRED = auto()
    OR_KUBELETS = auto()
    IF_FOUND = auto()
    NOT_USED = auto()


class PrometheusNotFound(BadInputError):
    """No Prometheus was found."""


@dataclass(frozen=True, slots=True)
class LiveCluster:
    """A cluster, and how its Prometheus is queried, None where it was not looked for, or kubelets stand in for it."""

    snapshot: ClusterSnapshot
    prometheus: "PrometheusSettings | None"


def has_cluster_credentials(settings: "Settings") -> bool:
    """Tell whether there are credentials for a cluster, whatever they are worth."""
    if settings.kubeconfig is not None:
        return True
    try:
        find_credentials(None, context=settings.kube_context)
    except BadInputError:
        return False
    return True


def read_cluster(
    settings: "Settings", prometheus: PrometheusRequirement, prometheus_url: str | None = None
) -> LiveCluster:
    """Read the whole cluster, and find its Prometheus unless an address is set.

    Raises BadInputError, Throttled, Unavailable; BadInputError also where Prometheus is needed and not found.
    """
    return asyncio.run(_read(settings, prometheus, prometheus_url))


async def _read(settings: "Settings", prometheus: PrometheusRequirement, prometheus_url: str | None) -> LiveCluster:
    async with connect_to_kubernetes(settings.to_kubernetes_settings()) as client:
        # What is missing is better known before the long reading than after it.
        found = await _found(client, settings, prometheus, prometheus_url)
        snapshot = await read_snapshot_from_cluster(client)
        seen = settings.node_autoscaler.resolve(snapshot.node_autoscaler)
        return LiveCluster(replace(snapshot, node_autoscaler=seen), found)


async def _found(
    client: KubernetesClient, settings: "Settings", prometheus: PrometheusRequirement, url: str | None
) -> "PrometheusSettings | None":
    from cruise.settings.value_types import UsageSourceChoice

    either = prometheus is PrometheusRequirement.OR_KUBELETS and url is None
    if prometheus is PrometheusRequirement.NOT_USED or (either and settings.usage_source is UsageSourceChoice.KUBELETS):
        return None
    try:
        return await find_prometheus_settings(client, settings, url)
    except PrometheusNotFound as error:
        if prometheus is PrometheusRequirement.IF_FOUND:
            return None
        if either and settings.usage_source is UsageSourceChoice.AUTO:
            await _refuse_unread_kubelets(client, settings, error)
            return None
        raise
    except BadInputError:
        if prometheus is PrometheusRequirement.IF_FOUND:
            return None
        raise


async def _refuse_unread_kubelets(client: KubernetesClient, settings: "Settings", error: PrometheusNotFound) -> None:
    from cruise.adapters.kube.access import check_access
    from cruise.app.usage_source import get_required_kubelet_access

    need = get_required_kubelet_access(settings)
    if not all(await check_access(client, [need])):
        raise BadInputError(
            f"{error}; the kubelets would do for a glimpse, but this account may not `{need}`"
        ) from error
    print_error(f"{error}; until then the kubelets give a glimpse")


async def find_prometheus_settings(
    client: KubernetesClient, settings: "Settings", prometheus_url: str | None = None
) -> "PrometheusSettings":
    """Return how Prometheus is queried: at the address that is set, else found by the labels of its Service.

    It is looked for in the namespaces that the settings name, and in cruise's own.

    Raises BadInputError where there is none, besides the client's errors.
    """
    if prometheus_url is not None or settings.prometheus_url is not None:
        return settings.to_prometheus_settings(prometheus_url)
    hint = "give --prometheus-url URL, or set prometheus_url"
    try:
        finding = await find_prometheus(
            client, settings.prometheus_namespaces | {find_own_namespace(settings.namespace)}
        )
    except RefusedError as error:
        raise PrometheusNotFound(
            f"Services may not be listed, so Prometheus cannot be found: {hint} ({error})"
        ) from error
    if finding.endpoint is None and finding.in_other_namespaces:
        one = finding.in_other_namespaces[0]
        raise BadInputError(
            f"Service {one} is labelled as Prometheus, but anybody there could have done that: {hint}, "
            f"or add {one.partition('/')[0]} to prometheus_namespaces"
        )
    if finding.endpoint is None:
        raise PrometheusNotFound(f"no Service of the cluster is labelled as Prometheus or its like: {hint}")
    return build_prometheus_settings(finding.endpoint, settings, proxied=not client.in_cluster)


def build_prometheus_settings(place: PrometheusEndpoint, settings: "Settings", proxied: bool) -> "PrometheusSettings":
    """Return how a server is queried that was found, `proxied` by the API server or at its own address."""
    # Credentials are for the address that they were set with. The API server takes its own, and hands on none.
    known = replace(
        settings.to_prometheus_settings(place.url), headers=place.headers, token_file=None, user=None, password=None
    )
    if not proxied:
        return known
    return replace(
        known,
        ca_file=Path(place.ca_file) if place.ca_file is not None else None,
        insecure_tls=place.insecure_tls,
        client_certificate=place.client_certificate,
        uses_get=True,
    )


async def read_snapshot_from_cluster(client: KubernetesClient) -> ClusterSnapshot:
    """Read the whole cluster through a client, and say on standard error what cannot be read."""
    with redirect_logs(), _counting() as show:
        seen = await read_cluster_once(client, show)
    if seen.unreadable:
        first, count = seen.unreadable[0], len(seen.unreadable)
        more = f", and {count - 1:,} more" if count > 1 else ""
        print_error(f"left aside, as it cannot be read: {first.problem}{more}")
    return seen.snapshot


@contextmanager
def _counting() -> Iterator[Callable[[str, int], None]]:
    """Show on a terminal how much was read."""
    counts: dict[str, int] = {}
    with show_spinner("reading the cluster") as update:

        def show(kind: str, count: int) -> None:
            counts[kind] = count
            read = ", ".join(f"{counts[name]:,} {name}" for name in ("nodes", "pods") if name in counts)
            update(f"reading the cluster: {read or f'{sum(counts.values()):,} objects'}")

        yield show
