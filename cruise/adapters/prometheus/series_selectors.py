"""Which exporter speaks for containers: the one that reports most of those that run.

Servers name the jobs that scrape cAdvisor in many ways, and any pod may expose series of the same metrics. So the
labels of the target, `job` and `metrics_path`, are taken from the server itself: for some of the running containers it
is looked up who reports them. An exporter that reports a few is left out. Of two that report as many it cannot be told
which one is right, whatever they are called: both are read, and have to agree.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from cruise.adapters.prometheus.client import PrometheusClient, check_completeness
from cruise.adapters.prometheus.queries import (
    VectorRow,
    build_matcher,
    build_usage_selector,
    create_decoder,
    quote_promql,
)
from cruise.adapters.prometheus.seen_pods import MAX_DEPTH, PARTITIONS, build_pod_patterns
from cruise.adapters.prometheus.settings import PrometheusSettings
from cruise.domain.cluster import ClusterSnapshot, ContainerRole, Pod
from cruise.domain.usage import ContainerKey
from cruise.errors import DECODE_ERRORS, BadInputError

TARGET_LABELS = ("job", "metrics_path")
_MOST_PODS = 100
_YOUNG = timedelta(minutes=5)
# Of what the exporter with the most reports: as good as that.
NEARLY_ALL_SHARE = 0.8
# Of all that is reported: so much that nobody else reports is a part of the cluster of its own.
OWN_SHARE = 0.1

Containers = frozenset[ContainerKey]


@dataclass(frozen=True, slots=True)
class Exporter:
    """A job and metrics path, each empty where series have no such label, and which containers it reports."""

    target: tuple[str, ...]
    containers: Containers

    def __str__(self) -> str:
        """Name it as a selector does."""
        return ",".join(
            f"{label}={quote_promql(value)}" for label, value in zip(TARGET_LABELS, self.target, strict=True)
        )


@dataclass(frozen=True, slots=True)
class SeriesSelectors:
    """The matchers of each metric, empty where nothing is known of it, and the exporters of CPU use beside them."""

    matchers: Mapping[str, str]
    exporters: Sequence[Exporter] = ()
    ignored: Sequence[Exporter] = ()


def find_series_selectors(
    settings: PrometheusSettings, client: PrometheusClient, snapshot: ClusterSnapshot, at: int
) -> SeriesSelectors | None:
    """Look up who reports some running containers; None where the server knows none of them. It blocks.

    Raises BadInputError, Throttled, Unavailable.
    """
    pods = sample_pods(snapshot, datetime.fromtimestamp(at, UTC))
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
    read, left_out = choose_exporters(_exporters(settings, client, metrics.cpu, names, wanted, at))
    if not read:
        return None
    matchers = {metrics.cpu: build_matchers(read)}
    for metric, otherwise in ((metrics.cpu_waiting, read), (metrics.memory, ())):
        of_metric, _ = choose_exporters(_exporters(settings, client, metric, names, wanted, at))
        # Pressure that no exporter reports yet will come from the same one.
        matchers[metric] = build_matchers(of_metric or otherwise)
    return SeriesSelectors(matchers, read, left_out)


def choose_exporters(exporters: Sequence[Exporter]) -> tuple[tuple[Exporter, ...], tuple[Exporter, ...]]:
    """Return the exporters to read and those to leave out.

    Those that report nearly all that any does; then each that alone reports a tenth of what is left. A job is read from
    one path: kubelets have less of the same containers under others than under cAdvisor's.
    """
    ordered = sorted(exporters, key=lambda one: ("cadvisor" not in one.target[1], one.target))
    most = max((len(one.containers) for one in ordered), default=0)
    read: list[Exporter] = []
    for one in ordered:
        large = len(one.containers) >= NEARLY_ALL_SHARE * most
        if large and not any(one.target[0] == other.target[0] for other in read):
            read.append(one)
    everything = frozenset[ContainerKey]().union(*(one.containers for one in ordered))
    known = frozenset[ContainerKey]().union(*(one.containers for one in read))
    for one in sorted(ordered, key=lambda one: -len(one.containers - known)):
        own = one.containers - known
        if own and len(own) >= OWN_SHARE * len(everything):
            read.append(one)
            known |= own
    return tuple(read), tuple(one for one in ordered if one not in read)


def build_matchers(exporters: Sequence[Exporter]) -> str:
    """Return the matchers that select the series of some exporters, empty without any."""
    if not exporters:
        return ""
    return ",".join(
        build_matcher(label, sorted({one.target[place] for one in exporters}))
        for place, label in enumerate(TARGET_LABELS)
    )


def sample_pods(snapshot: ClusterSnapshot, at: datetime) -> list[Pod]:
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
    query = f"group by ({', '.join((*TARGET_LABELS, *names))}) ({build_usage_selector(settings, metric, pods)})"
    found: dict[tuple[str, ...], set[ContainerKey]] = {}
    for rows in create_decoder("vector", VectorRow, settings.accept_partial)(client.query(query, at)):
        for row in rows:
            key = ContainerKey(*(row.metric.get(name, "") for name in names))
            if key in wanted:
                found.setdefault(tuple(row.metric.get(name, "") for name in TARGET_LABELS), set()).add(key)
    return [Exporter(target, frozenset(containers)) for target, containers in found.items()]


# Which series a server had in a time, from its index alone: what a query will cost is known before it is asked.

# How far back a server looks for the sample that holds at a time; five minutes, unless it was set otherwise.
LOOKBACK_SECONDS = 900


@dataclass(frozen=True, slots=True)
class SeriesListing:
    """The containers of a time, and by partition how many series of one family each pod's name has."""

    containers: set[ContainerKey] = field(default_factory=set)
    series_of_pod: dict[str, Counter[str]] = field(default_factory=dict)

    def get_max_concurrent(self) -> int:
        """Return how many series no selector can keep apart: those of pods whose names end alike for very long."""
        together = Counter[str]()
        for counts in self.series_of_pod.values():
            for pod, count in counts.items():
                together[pod[-MAX_DEPTH:]] += count
        return max(together.values(), default=0)

    def split_into_pieces(self, points: int, settings: PrometheusSettings) -> list[str]:
        """Return selectors of all pods, none of which makes a query of so many points too large."""
        limit = max(1, min(settings.max_series_per_query, settings.max_samples_per_query // points))
        return [
            piece
            for name, counts in self.series_of_pod.items()
            if counts
            for piece in build_pod_patterns(name, counts, limit)
        ]

    def count_samples(self, wanted: int, settings: PrometheusSettings) -> int:
        """Return for how many points a query may ask, `wanted` at most. Raises BadInputError where it may for none."""
        together = self.get_max_concurrent()
        points = min(wanted, settings.max_samples_per_query // max(1, together))
        if points < 1:
            raise BadInputError(
                f"prometheus_max_samples_per_query is {settings.max_samples_per_query:,}, and {together:,} series "
                "belong to pods whose names cannot be told apart in a query: set it higher"
            )
        return points


def list_usage_series(settings: PrometheusSettings, client: PrometheusClient, first: int, last: int) -> SeriesListing:
    """Return what there was of the usage families at the times from `first` to `last`.

    Raises BadInputError, Throttled, Unavailable.
    """
    labels, metrics = settings.labels, settings.metrics
    families = tuple(dict.fromkeys((metrics.cpu, metrics.cpu_waiting, metrics.memory)))
    fields = {"family": "__name__", "namespace": labels.namespace, "pod": labels.pod, "container": labels.container}
    decode = create_series_decoder(fields, settings.accept_partial)
    listing = SeriesListing()
    for partition in PARTITIONS:
        (pods,) = build_pod_patterns(partition, {}, 1)
        asked = [build_usage_selector(settings, family, pods) for family in families]
        counts: dict[str, Counter[str]] = {family: Counter() for family in families}
        for one in decode(client.series(asked, first - LOOKBACK_SECONDS, last)):
            if one.family in counts:
                counts[one.family][one.pod] += 1
            if one.family == metrics.cpu and one.namespace and one.pod and one.container:
                listing.containers.add(ContainerKey(one.namespace, one.pod, one.container))
        most = Counter[str]()
        for count in counts.values():
            most |= count
        listing.series_of_pod[partition] = most
    return listing


def create_series_decoder(labels: Mapping[str, str], accept_partial: bool) -> Callable[[bytes], Sequence[Any]]:
    """Return what decodes a list of series into objects with the named labels, empty where a series has none.

    It raises BadInputError for what is no such list, Unavailable for one that the server calls incomplete.
    """
    fields = [(name, str, "") for name, label in labels.items() if label]
    one = msgspec.defstruct("One", fields, rename={name: label for name, label in labels.items() if label}, gc=False)
    answer = msgspec.json.Decoder(
        msgspec.defstruct(
            "Series",
            [
                ("status", str),
                ("data", list[one] | None),  # type: ignore[valid-type]
                ("warnings", list[str] | None, None),
                ("isPartial", bool, False),
            ],
        )
    )

    def decode(body: bytes) -> Sequence[Any]:
        try:
            document: Any = answer.decode(body)
        except DECODE_ERRORS as error:
            raise BadInputError(f"Prometheus answered with something else than a list of series: {error}") from error
        check_completeness(document.warnings, document.isPartial, accept_partial)
        return document.data or ()

    return decode
