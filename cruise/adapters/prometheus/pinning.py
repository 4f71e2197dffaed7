"""Which exporter speaks for containers: the one that reports most of those that run.

Servers name the jobs that scrape cAdvisor in many ways, and any pod may expose series of the same metrics. So the
labels of the target, `job` and `metrics_path`, are taken from the server itself: for some of the running containers it
is looked up who reports them. An exporter that reports a few is left out. Of two that report as many it cannot be told
which one is right, whatever they are called: both are read, and have to agree.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cruise.adapters.prometheus.client import PrometheusClient
from cruise.adapters.prometheus.matrix import VectorRow, decoder
from cruise.adapters.prometheus.queries import matcher, quoted, usage_selector
from cruise.adapters.prometheus.settings import PrometheusSettings
from cruise.domain.cluster import ContainerRole, Pod, Snapshot
from cruise.domain.usage import ContainerKey

TARGET_LABELS = ("job", "metrics_path")
_MOST_PODS = 100
_YOUNG = timedelta(minutes=5)
# Of what the exporter with the most reports: as good as that.
NEARLY_ALL = 0.8
# Of all that is reported: so much that nobody else reports is a part of the cluster of its own.
OWN_PART = 0.1

Containers = frozenset[ContainerKey]


@dataclass(frozen=True, slots=True)
class Exporter:
    """A job and metrics path, each empty where series have no such label, and which containers it reports."""

    target: tuple[str, ...]
    containers: Containers

    def __str__(self) -> str:
        """Name it as a selector does."""
        return ",".join(f"{label}={quoted(value)}" for label, value in zip(TARGET_LABELS, self.target, strict=True))


@dataclass(frozen=True, slots=True)
class Pins:
    """The matchers of each metric, empty where nothing is known of it, and the exporters of CPU use beside them."""

    matchers: Mapping[str, str]
    read: Sequence[Exporter] = ()
    left_out: Sequence[Exporter] = ()


def find_pins(settings: PrometheusSettings, client: PrometheusClient, snapshot: Snapshot, at: int) -> Pins | None:
    """Look up who reports some running containers; None where the server knows none of them. It blocks.

    Raises BadInput, Throttled, Unavailable.
    """
    pods = sample_of_pods(snapshot, datetime.fromtimestamp(at, UTC))
    wanted = frozenset(
        ContainerKey(pod.namespace, pod.name, container.name)
        for pod in pods
        for container in pod.containers
        if container.role is not ContainerRole.INIT
    )
    if not wanted:
        return None
    names = "|".join(sorted({pod.name.replace(".", "[.]") for pod in pods}))
    metrics = settings.metrics
    read, left_out = choose(_exporters(settings, client, metrics.cpu, names, wanted, at))
    if not read:
        return None
    matchers = {metrics.cpu: matchers_of(read)}
    for metric, otherwise in ((metrics.cpu_waiting, read), (metrics.memory, ())):
        of_metric, _ = choose(_exporters(settings, client, metric, names, wanted, at))
        # Pressure that no exporter reports yet will come from the same one.
        matchers[metric] = matchers_of(of_metric or otherwise)
    return Pins(matchers, read, left_out)


def choose(exporters: Sequence[Exporter]) -> tuple[tuple[Exporter, ...], tuple[Exporter, ...]]:
    """Return the exporters to read and those to leave out.

    Those that report nearly all that any does; then each that alone reports a tenth of what is left. A job is read from
    one path: kubelets have less of the same containers under others than under cAdvisor's.
    """
    ordered = sorted(exporters, key=lambda one: ("cadvisor" not in one.target[1], one.target))
    most = max((len(one.containers) for one in ordered), default=0)
    read: list[Exporter] = []
    for one in ordered:
        large = len(one.containers) >= NEARLY_ALL * most
        if large and not any(one.target[0] == other.target[0] for other in read):
            read.append(one)
    everything = frozenset[ContainerKey]().union(*(one.containers for one in ordered))
    known = frozenset[ContainerKey]().union(*(one.containers for one in read))
    for one in sorted(ordered, key=lambda one: -len(one.containers - known)):
        own = one.containers - known
        if own and len(own) >= OWN_PART * len(everything):
            read.append(one)
            known |= own
    return tuple(read), tuple(one for one in ordered if one not in read)


def matchers_of(exporters: Sequence[Exporter]) -> str:
    """Return the matchers that select the series of some exporters, empty without any."""
    if not exporters:
        return ""
    return ",".join(
        matcher(label, sorted({one.target[place] for one in exporters})) for place, label in enumerate(TARGET_LABELS)
    )


def sample_of_pods(snapshot: Snapshot, at: datetime) -> list[Pod]:
    """Return some running pods, spread evenly over the sorted names; young ones only where there are no others."""
    running = [pod for pod in snapshot.pods if pod.phase == "Running" and not pod.terminating and not pod.windows]
    # A pod that was not scraped yet has no series, and nothing is wrong with that.
    seen = [pod for pod in running if pod.created_at is None or at - pod.created_at > _YOUNG] or running
    return seen[:: max(1, -(-len(seen) // _MOST_PODS))]


def _exporters(
    settings: PrometheusSettings, client: PrometheusClient, metric: str, pods: str, wanted: Containers, at: int
) -> list[Exporter]:
    labels = settings.labels
    names = (labels.namespace, labels.pod, labels.container)
    query = f"group by ({', '.join((*TARGET_LABELS, *names))}) ({usage_selector(settings, metric, pods)})"
    found: dict[tuple[str, ...], set[ContainerKey]] = {}
    for rows in decoder("vector", VectorRow, settings.accept_partial)(client.query(query, at)):
        for row in rows:
            key = ContainerKey(*(row.metric.get(name, "") for name in names))
            if key in wanted:
                found.setdefault(tuple(row.metric.get(name, "") for name in TARGET_LABELS), set()).add(key)
    return [Exporter(target, frozenset(containers)) for target, containers in found.items()]
