"""Read the live cluster once for a command, with progress on standard error."""

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
from cruise.cli.terminal import print_error, show_spinner, suppress_logs
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


class PrometheusNotFoundError(BadInputError):
    """No Prometheus was found."""


@dataclass(frozen=True, slots=True)
class LiveCluster:
    """A cluster and the connection to its Prometheus, None if it was not searched or kubelets are read instead."""

    snapshot: ClusterSnapshot
    prometheus: "PrometheusSettings | None"


def has_cluster_credentials(settings: "Settings") -> bool:
    """Return whether there are credentials for a cluster, valid or not."""
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

    Raises BadInputError, ThrottledError, UnavailableError; BadInputError also if Prometheus is required and not found.
    """
    return asyncio.run(_read(settings, prometheus, prometheus_url))


async def _read(settings: "Settings", prometheus: PrometheusRequirement, prometheus_url: str | None) -> LiveCluster:
    async with connect_to_kubernetes(settings.to_kubernetes_settings()) as client:
        # An error about Prometheus should come before the long read of the cluster.
        prometheus_settings = await _find_prometheus(client, settings, prometheus, prometheus_url)
        snapshot = await read_snapshot_from_cluster(client)
        node_autoscaler = settings.node_autoscaler.resolve(snapshot.node_autoscaler)
        return LiveCluster(replace(snapshot, node_autoscaler=node_autoscaler), prometheus_settings)


async def _find_prometheus(
    client: KubernetesClient, settings: "Settings", prometheus: PrometheusRequirement, url: str | None
) -> "PrometheusSettings | None":
    from cruise.settings.value_types import UsageSourceChoice

    kubelets_allowed = prometheus is PrometheusRequirement.OR_KUBELETS and url is None
    if prometheus is PrometheusRequirement.NOT_USED or (
        kubelets_allowed and settings.usage_source is UsageSourceChoice.KUBELETS
    ):
        return None
    try:
        return await find_prometheus_settings(client, settings, url)
    except PrometheusNotFoundError as error:
        if prometheus is PrometheusRequirement.IF_FOUND:
            return None
        if kubelets_allowed and settings.usage_source is UsageSourceChoice.AUTO:
            await _require_kubelet_access(client, settings, error)
            return None
        raise
    except BadInputError:
        if prometheus is PrometheusRequirement.IF_FOUND:
            return None
        raise


async def _require_kubelet_access(
    client: KubernetesClient, settings: "Settings", error: PrometheusNotFoundError
) -> None:
    from cruise.adapters.kube.access import check_access
    from cruise.app.usage_source import get_required_kubelet_access

    need = get_required_kubelet_access(settings)
    if not all(await check_access(client, [need])):
        raise BadInputError(f"{error}; the kubelets give a short sample, but this account may not `{need}`") from error
    print_error(f"{error}; until then the kubelets give a short sample")


async def find_prometheus_settings(
    client: KubernetesClient, settings: "Settings", prometheus_url: str | None = None
) -> "PrometheusSettings":
    """Return the connection to Prometheus: the configured address, or a Service found by its labels.

    The namespaces of the settings and cruise's own are searched. BadInputError if there is none, and the client's
    errors.
    """
    if prometheus_url is not None or settings.prometheus_url is not None:
        return settings.to_prometheus_settings(prometheus_url)
    hint = "give --prometheus-url URL, or set prometheus_url"
    try:
        finding = await find_prometheus(
            client, settings.prometheus_namespaces | {find_own_namespace(settings.namespace)}
        )
    except RefusedError as error:
        raise PrometheusNotFoundError(
            f"no right to list Services, so Prometheus cannot be found: {hint} ({error})"
        ) from error
    if finding.endpoint is None and finding.in_other_namespaces:
        one = finding.in_other_namespaces[0]
        raise BadInputError(
            f"Service {one} is labelled as Prometheus, but its namespace is not trusted: {hint}, "
            f"or add {one.partition('/')[0]} to prometheus_namespaces"
        )
    if finding.endpoint is None:
        raise PrometheusNotFoundError(
            f"no Service of the cluster is labelled as Prometheus or a compatible server: {hint}"
        )
    return build_prometheus_settings(finding.endpoint, settings, proxied=not client.in_cluster)


def build_prometheus_settings(
    endpoint: PrometheusEndpoint, settings: "Settings", proxied: bool
) -> "PrometheusSettings":
    """Return the connection to a server that was found, through the API server if `proxied`, or at its own address."""
    # Credentials are only for the configured address. The API server needs its own, and forwards none.
    direct = replace(
        settings.to_prometheus_settings(endpoint.url),
        headers=endpoint.headers,
        token_file=None,
        user=None,
        password=None,
        identity=None,
    )
    if not proxied:
        return direct
    return replace(
        direct,
        ca_file=Path(endpoint.ca_file) if endpoint.ca_file is not None else None,
        insecure_tls=endpoint.insecure_tls,
        client_certificate=endpoint.client_certificate,
        uses_get=True,
    )


async def read_snapshot_from_cluster(client: KubernetesClient) -> ClusterSnapshot:
    """Read the whole cluster, and print on standard error which objects are unreadable."""
    with suppress_logs(), _show_counts() as show:
        result = await read_cluster_once(client, show)
    if result.unreadable:
        first, count = result.unreadable[0], len(result.unreadable)
        more = f", and {count - 1:,} more" if count > 1 else ""
        print_error(f"skipped an unreadable object: {first.problem}{more}")
    return result.snapshot


@contextmanager
def _show_counts() -> Iterator[Callable[[str, int], None]]:
    """Show the number of objects read."""
    counts: dict[str, int] = {}
    with show_spinner("reading the cluster") as update:

        def show(kind: str, count: int) -> None:
            counts[kind] = count
            read = ", ".join(f"{counts[name]:,} {name}" for name in ("nodes", "pods") if name in counts)
            update(f"reading the cluster: {read or f'{sum(counts.values()):,} objects'}")

        yield show
