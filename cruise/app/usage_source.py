"""Which source usage is read from, and opening it."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager, closing
from dataclasses import dataclass, replace
from datetime import timedelta

import structlog

from cruise.adapters.kube.asking.access import may
from cruise.adapters.kube.asking.prometheus_services import find_prometheus
from cruise.adapters.kube.http.client import KubeClient
from cruise.adapters.kube.http.connecting import own_namespace
from cruise.adapters.kubelets.client import KubeletClient
from cruise.adapters.kubelets.following import followed, look_once
from cruise.adapters.kubelets.settings import Access, Endpoint
from cruise.adapters.kubelets.source import KubeletSource, figures_of_node
from cruise.adapters.kubelets.telling import told_by
from cruise.adapters.prometheus.settings import PrometheusSettings
from cruise.adapters.prometheus.source import PrometheusSource
from cruise.app.clock import wall_clock
from cruise.domain.cluster import Node, Snapshot
from cruise.domain.cross_check import CrossCheck, CrossTally, NodeTold
from cruise.domain.preflight import AccessNeed, KubeletFacts
from cruise.errors import BadInput, CruiseError, Refused, Unavailable
from cruise.runtime.ports import UsageSource
from cruise.runtime.usage.cross_checking import CrossChecked
from cruise.runtime.usage.reading import SETTLE_SECONDS, UsageReading
from cruise.settings import Settings
from cruise.settings.choices import UsageFrom

log = structlog.get_logger()

# A second reading a minute later makes the first rate.
BETWEEN_READINGS = timedelta(seconds=60)
_LOOK_BACK_STEPS = 5
_FEW_NODES = 5


def seconds_now() -> float:
    """Return the time in Unix seconds."""
    return wall_clock().timestamp()


async def reads_kubelets(settings: Settings, client: KubeClient) -> bool:
    """Tell whether usage comes from kubelets: where that is set, or granted in a cluster without Prometheus.

    Raises BadInput where neither can be read, or where there is a Prometheus that is not set; Throttled, Unavailable.
    """
    if settings.usage_source is not UsageFrom.AUTO or settings.prometheus_url is not None:
        return settings.usage_source is UsageFrom.KUBELETS
    try:
        finding = await find_prometheus(client, settings.prometheus_namespaces | {own_namespace(settings.namespace)})
    except Refused:
        finding = None
    if finding is not None and finding.place is not None:
        place = finding.place
        raise BadInput(
            f"prometheus_url is not set, but Service {place.namespace}/{place.service} is labelled as Prometheus: set "
            "prometheus_url to its address, or usage_source=kubelets to do without its history"
        )
    need = access_need(settings)
    [granted] = await may(client, [need])
    if not granted:
        raise BadInput(
            "no Prometheus server is known; set prometheus_url, e.g. http://prometheus.monitoring:9090, or let cruise "
            f"read the kubelets: grant its account `{need}` "
            "(deploy/rbac/kubelets.yaml, kubelets.enabled of the chart)"
        )
    return True


def access_need(settings: Settings) -> AccessNeed:
    """Return the right by which kubelets are read."""
    return AccessNeed("get", "nodes", "", "proxy" if settings.kubelet_access is Access.NODE_PROXY else "metrics")


@dataclass(frozen=True, slots=True)
class Usage:
    """A source and how it is read; `first_look` is there where nothing is known before somebody looks.

    `tally` counts what kubelets said of it.
    """

    source: UsageSource
    reading: UsageReading
    first_look: Callable[[Snapshot], Awaitable[None]] | None = None
    tally: Callable[[], CrossTally] = CrossTally


@asynccontextmanager
async def opened_usage(settings: Settings, client: KubeClient) -> AsyncIterator[Usage]:
    """Open the source of usage that settings or the cluster name. Raises BadInput, Throttled, Unavailable."""
    if await reads_kubelets(settings, client):
        async with kubelet_usage(settings, client) as usage:
            log.info("usage is read from the kubelets", access=settings.kubelet_access.value)
            yield usage
        return
    with closing(PrometheusSource(settings.prometheus(), seconds_now)) as source:
        async with cross_checked(source, settings, client) as checked:
            yield Usage(checked, usage_reading(settings), tally=lambda: checked.tally)


@asynccontextmanager
async def cross_checked(source: UsageSource, settings: Settings, client: KubeClient) -> AsyncIterator[CrossChecked]:
    """Compare a source with some kubelets at each pass, as far as reading them is granted."""
    # Only cAdvisor knows containers by the runtime's ids.
    async with aclosing(KubeletClient(replace(settings.kubelets(), endpoint=Endpoint.CADVISOR), client)) as asking:

        async def ask(node: Node) -> NodeTold:
            await refuse_ungranted(settings, client)
            return await told_by(asking.metrics, node, seconds_now)

        step_seconds = int(settings.prometheus_step.total_seconds())
        yield CrossChecked(source, ask, settings.cross_check_nodes, step_seconds)


async def compare_once(
    settings: Settings, client: KubeClient, prometheus: PrometheusSettings, snapshot: Snapshot
) -> CrossCheck:
    """Compare some nodes' containers with what their kubelets say now. Raises BadInput, Throttled, Unavailable."""
    step = prometheus.step_seconds
    with closing(PrometheusSource(prometheus, seconds_now)) as source:
        async with cross_checked(source, settings, client) as checked:
            partitions = await checked.partitions(snapshot)
            # What is shown after they were asked would come after the wait for it has ended.
            end = int(seconds_now() - SETTLE_SECONDS) // step * step
            for partition in partitions:
                await checked.read(partition, end - _LOOK_BACK_STEPS * step, end, None)
            return checked.of_this_pass


async def look_at_kubelets(settings: Settings, client: KubeClient, snapshot: Snapshot) -> KubeletFacts:
    """Ask a few kubelets, and return how that goes."""
    nodes = [node for node in snapshot.nodes if node.ready][:_FEW_NODES]
    told, pressured, problem = 0, 0, ""
    async with aclosing(KubeletClient(settings.kubelets(), client)) as asking:
        for node in nodes:
            try:
                figures = figures_of_node(await asking.metrics(node), node)
            except CruiseError as error:
                problem = problem or str(error)
            else:
                told += 1
                pressured += bool((figures.cpu_waiting_seconds > 0).any())
    return KubeletFacts(len(nodes), told, pressured, problem)


async def refuse_ungranted(settings: Settings, client: KubeClient) -> None:
    """Raise Unavailable where reading kubelets is not granted."""
    need = access_need(settings)
    if not all(await may(client, [need])):
        raise Unavailable(
            f"this account may not `{need}` (deploy/rbac/kubelets.yaml, kubelets.crossCheck of the chart)"
        )


@asynccontextmanager
async def kubelet_usage(settings: Settings, client: KubeClient) -> AsyncIterator[Usage]:
    """Read usage from kubelets, with the identity that a client has at the API server."""
    async with aclosing(KubeletClient(settings.kubelets(), client)) as asking:
        source = KubeletSource(settings.kubelets(), asking.metrics)

        async def first_look(snapshot: Snapshot) -> None:
            await source.partitions(snapshot)
            await look_once(source, seconds_now)

        async with followed(source, seconds_now):
            yield Usage(source, UsageReading(measures_settle=settings.rules.plausible), first_look)


def usage_reading(settings: Settings) -> UsageReading:
    """Return how usage is read."""
    settle = settings.prometheus_settle
    return UsageReading(
        settle_seconds=SETTLE_SECONDS if settle is None else int(settle.total_seconds()),
        measures_settle=settle is None and settings.rules.plausible,
        step_seconds=int(settings.prometheus_step.total_seconds()),
        samples_per_chunk=settings.prometheus_max_samples_per_query,
        partitions_at_once=settings.prometheus_concurrency,
    )
