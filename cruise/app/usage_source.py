"""Chooses and opens the usage source."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager, closing
from dataclasses import dataclass, replace
from datetime import timedelta

import structlog

from cruise.adapters.kube.access import check_access
from cruise.adapters.kube.client import KubernetesClient, find_own_namespace
from cruise.adapters.kube.prometheus_services import find_prometheus
from cruise.adapters.kubelets.client import KubeletAccessMode, KubeletClient, KubeletMetricsPath
from cruise.adapters.kubelets.source import (
    KubeletUsageSource,
    parse_node_metrics,
    poll_kubelets,
    read_container_usage_of_kubelet,
    read_kubelets_once,
)
from cruise.adapters.prometheus.settings import PrometheusSettings
from cruise.adapters.prometheus.source import PrometheusUsageSource
from cruise.app.process import get_current_time
from cruise.domain.cluster import ClusterSnapshot, Node
from cruise.domain.preflight import (
    CrossCheckCounts,
    CrossCheckResult,
    KubeletContainerUsage,
    KubeletFacts,
    RequiredAccess,
)
from cruise.errors import BadInputError, CruiseError, RefusedError, UnavailableError
from cruise.runtime.ports import UsageSourcePort
from cruise.runtime.usage.usage_pass import CrossCheckedUsageSource
from cruise.runtime.usage.usage_reader import SETTLE_SECONDS, UsageReadingSettings
from cruise.settings import Settings
from cruise.settings.value_types import UsageSourceChoice

log = structlog.get_logger()

# A second reading a minute later gives the first rate.
READING_INTERVAL = timedelta(seconds=60)
_LOOK_BACK_STEPS = 5
_FEW_NODES = 5


def get_current_seconds() -> float:
    """Return the time in Unix seconds."""
    return get_current_time().timestamp()


async def is_reading_kubelets(settings: Settings, client: KubernetesClient) -> bool:
    """Return whether usage comes from kubelets: if configured, or if permitted in a cluster without Prometheus.

    Raises BadInputError if there is no source, or if a Prometheus exists but is not configured; Throttled,
    UnavailableError.
    """
    if settings.usage_source is not UsageSourceChoice.AUTO or settings.prometheus_url is not None:
        return settings.usage_source is UsageSourceChoice.KUBELETS
    try:
        finding = await find_prometheus(
            client, settings.prometheus_namespaces | {find_own_namespace(settings.namespace)}
        )
    except RefusedError:
        finding = None
    if finding is not None and finding.endpoint is not None:
        place = finding.endpoint
        raise BadInputError(
            f"prometheus_url is not set, but Service {place.namespace}/{place.service} is labelled as Prometheus: set "
            "prometheus_url to its address, or usage_source=kubelets to do without its history"
        )
    need = get_required_kubelet_access(settings)
    [granted] = await check_access(client, [need])
    if not granted:
        raise BadInputError(
            "no Prometheus server is known; set prometheus_url, e.g. http://prometheus.monitoring:9090, or let cruise "
            f"read the kubelets: grant its account `{need}` "
            "(deploy/rbac/kubelets.yaml, kubelets.enabled of the chart)"
        )
    return True


def get_required_kubelet_access(settings: Settings) -> RequiredAccess:
    """Return the permission that reading kubelets requires."""
    return RequiredAccess(
        "get", "nodes", "", "proxy" if settings.kubelet_access is KubeletAccessMode.NODE_PROXY else "metrics"
    )


@dataclass(frozen=True, slots=True)
class OpenedUsageSource:
    """A usage source and how it is read; `first_read` fills it if it has no history.

    `cross_check_counts` counts the comparisons with kubelets.
    """

    source: UsageSourcePort
    reading: UsageReadingSettings
    first_read: Callable[[ClusterSnapshot], Awaitable[None]] | None = None
    cross_check_counts: Callable[[], CrossCheckCounts] = CrossCheckCounts


@asynccontextmanager
async def open_usage_source(settings: Settings, client: KubernetesClient) -> AsyncIterator[OpenedUsageSource]:
    """Open the configured usage source, or the cluster's. Raises BadInputError, ThrottledError, UnavailableError."""
    if await is_reading_kubelets(settings, client):
        async with open_kubelet_usage(settings, client) as usage:
            log.info("usage is read from the kubelets", access=settings.kubelet_access.value)
            yield usage
        return
    with closing(PrometheusUsageSource(settings.to_prometheus_settings(), get_current_seconds)) as source:
        async with add_kubelet_cross_check(source, settings, client) as checked:
            yield OpenedUsageSource(
                checked, get_usage_reading_settings(settings), cross_check_counts=lambda: checked.counts
            )


@asynccontextmanager
async def add_kubelet_cross_check(
    source: UsageSourcePort, settings: Settings, client: KubernetesClient
) -> AsyncIterator[CrossCheckedUsageSource]:
    """Compare the source with some kubelets in each pass, if reading them is permitted."""
    # Only cAdvisor has the container runtime's ids.
    async with aclosing(
        KubeletClient(replace(settings.to_kubelet_settings(), endpoint=KubeletMetricsPath.CADVISOR), client)
    ) as asking:

        async def ask(node: Node) -> KubeletContainerUsage:
            await require_kubelet_access(settings, client)
            return await read_container_usage_of_kubelet(asking.read_metrics, node, get_current_seconds)

        step_seconds = int(settings.prometheus_step.total_seconds())
        yield CrossCheckedUsageSource(source, ask, settings.kubelet_cross_check_nodes, step_seconds)


async def cross_check_kubelets_once(
    settings: Settings, client: KubernetesClient, prometheus: PrometheusSettings, snapshot: ClusterSnapshot
) -> CrossCheckResult:
    """Compare some nodes' containers with their kubelets now.

    Raises BadInputError, ThrottledError, UnavailableError.
    """
    step = prometheus.step_seconds
    with closing(PrometheusUsageSource(prometheus, get_current_seconds)) as source:
        async with add_kubelet_cross_check(source, settings, client) as checked:
            partitions = await checked.list_partitions(snapshot)
            # Samples after the kubelets' reports would arrive after this check has ended.
            end = int(get_current_seconds() - SETTLE_SECONDS) // step * step
            for partition in partitions:
                await checked.read(partition, end - _LOOK_BACK_STEPS * step, end, None)
            return checked.pass_result


async def check_kubelets_readable(
    settings: Settings, client: KubernetesClient, snapshot: ClusterSnapshot
) -> KubeletFacts:
    """Read a few kubelets, and return the results."""
    nodes = [node for node in snapshot.nodes if node.ready][:_FEW_NODES]
    reports, pressured, problem = 0, 0, ""
    async with aclosing(KubeletClient(settings.to_kubelet_settings(), client)) as asking:
        for node in nodes:
            try:
                figures = parse_node_metrics(await asking.read_metrics(node), node)
            except CruiseError as error:
                problem = problem or str(error)
            else:
                reports += 1
                pressured += bool((figures.cpu_waiting_seconds > 0).any())
    return KubeletFacts(len(nodes), reports, pressured, problem)


async def require_kubelet_access(settings: Settings, client: KubernetesClient) -> None:
    """Raise UnavailableError if reading kubelets is not permitted."""
    need = get_required_kubelet_access(settings)
    if not all(await check_access(client, [need])):
        raise UnavailableError(
            f"this account may not `{need}` (deploy/rbac/kubelets.yaml, kubelets.crossCheck of the chart)"
        )


@asynccontextmanager
async def open_kubelet_usage(settings: Settings, client: KubernetesClient) -> AsyncIterator[OpenedUsageSource]:
    """Read usage from kubelets, with the client's identity at the API server."""
    async with aclosing(KubeletClient(settings.to_kubelet_settings(), client)) as asking:
        source = KubeletUsageSource(settings.to_kubelet_settings(), asking.read_metrics)

        async def first_look(snapshot: ClusterSnapshot) -> None:
            await source.list_partitions(snapshot)
            await read_kubelets_once(source, get_current_seconds)

        async with poll_kubelets(source, get_current_seconds):
            yield OpenedUsageSource(
                source, UsageReadingSettings(measures_scrape_delay=settings.rules.plausibility_checks), first_look
            )


def get_usage_reading_settings(settings: Settings) -> UsageReadingSettings:
    """Return the settings of reading usage."""
    settle = settings.prometheus_scrape_delay
    return UsageReadingSettings(
        scrape_delay_seconds=SETTLE_SECONDS if settle is None else int(settle.total_seconds()),
        measures_scrape_delay=settle is None and settings.rules.plausibility_checks,
        step_seconds=int(settings.prometheus_step.total_seconds()),
        samples_per_chunk=settings.prometheus_max_samples_per_query,
        partitions_at_once=settings.prometheus_concurrency,
    )
