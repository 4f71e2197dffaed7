"""The exporter of containers: the one that reports most of those that run.

Servers name the jobs that scrape cAdvisor in many ways, and any pod may expose series of the same metrics. So `job` and
`metrics_path` are read from the server: for a sample of running containers, by who reports them. An exporter that
reports only a few is ignored. If two report as many, it is unknown which one is right: both are read, and must agree.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from cruise.adapters.prometheus.client import PrometheusClient, check_completeness
from cruise.adapters.prometheus.queries import (
    VectorSample,
    build_matcher,
    build_usage_selector,
    create_answer_decoder,
    quote_promql,
)
from cruise.adapters.prometheus.seen_pods import MAX_DEPTH, PARTITIONS, build_pod_patterns
from cruise.adapters.prometheus.settings import PrometheusSettings
from cruise.domain.cluster import ClusterSnapshot, ContainerRole, Pod
from cruise.domain.usage import ContainerKey
from cruise.errors import DECODE_ERRORS, BadInputError

TARGET_LABELS = ("job", "metrics_path")
_MAX_PODS = 100
_MIN_AGE = timedelta(minutes=5)
# An exporter with this share of the largest one's containers counts as equal.
NEARLY_ALL_SHARE = 0.8
# An exporter that alone reports this share of all containers is read too.
OWN_SHARE = 0.1

Containers = frozenset[ContainerKey]


@dataclass(frozen=True, slots=True)
class Exporter:
    """A job and metrics path, each empty if series have no such label, and the containers that it reports."""

    target: tuple[str, ...]
    containers: Containers

    def __str__(self) -> str:
        """Return the exporter as matchers."""
        return ",".join(
            f"{label}={quote_promql(value)}" for label, value in zip(TARGET_LABELS, self.target, strict=True)
        )


@dataclass(frozen=True, slots=True)
class SeriesSelectors:
    """The matchers of each metric (empty if unknown), and the exporters of CPU usage that are read or ignored."""

    matchers: Mapping[str, str]
    exporters: Sequence[Exporter] = ()
    ignored: Sequence[Exporter] = ()


def find_series_selectors(
    settings: PrometheusSettings, client: PrometheusClient, snapshot: ClusterSnapshot, at: int
) -> SeriesSelectors | None:
    """Find the exporters of some running containers; None if the server has none of them. Blocks.

    Raises BadInputError, ThrottledError and UnavailableError.
    """
    pods = choose_sample_pods(snapshot, datetime.fromtimestamp(at, UTC))
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
    read, ignored = choose_exporters(_find_exporters(settings, client, metrics.cpu, names, wanted, at))
    if not read:
        return None
    matchers = {metrics.cpu: build_matchers(read)}
    for metric, default in ((metrics.cpu_waiting, read), (metrics.memory, ())):
        of_metric, _ = choose_exporters(_find_exporters(settings, client, metric, names, wanted, at))
        # Pressure that is not reported yet will come from the same exporter.
        matchers[metric] = build_matchers(of_metric or default)
    return SeriesSelectors(matchers, read, ignored)


def choose_exporters(exporters: Sequence[Exporter]) -> tuple[tuple[Exporter, ...], tuple[Exporter, ...]]:
    """Return the exporters to read, and those to ignore.

    Read are those that report nearly as much as the largest one, then each that alone reports a tenth of all. A job is
    read from one path: kubelets report fewer series of the same containers under paths other than cAdvisor's.
    """
    ordered = sorted(exporters, key=lambda one: ("cadvisor" not in one.target[1], one.target))
    largest = max((len(one.containers) for one in ordered), default=0)
    read: list[Exporter] = []
    for one in ordered:
        large = len(one.containers) >= NEARLY_ALL_SHARE * largest
        if large and not any(one.target[0] == other.target[0] for other in read):
            read.append(one)
    reported = frozenset[ContainerKey]().union(*(one.containers for one in ordered))
    known = frozenset[ContainerKey]().union(*(one.containers for one in read))
    for one in sorted(ordered, key=lambda one: -len(one.containers - known)):
        exclusive = one.containers - known
        if exclusive and len(exclusive) >= OWN_SHARE * len(reported):
            read.append(one)
            known |= exclusive
    return tuple(read), tuple(one for one in ordered if one not in read)


def build_matchers(exporters: Sequence[Exporter]) -> str:
    """Return the matchers of the exporters' series, empty without any."""
    if not exporters:
        return ""
    return ",".join(
        build_matcher(label, sorted({one.target[place] for one in exporters}))
        for place, label in enumerate(TARGET_LABELS)
    )


def choose_sample_pods(snapshot: ClusterSnapshot, at: datetime) -> list[Pod]:
    """Return some running pods, spread evenly over the sorted names; new pods only if there are no others."""
    running = [
        pod for pod in snapshot.pods if pod.phase == "Running" and not pod.terminating and not pod.runs_on_windows
    ]
    # A new pod may not have been scraped yet.
    seen = [pod for pod in running if pod.created_at is None or at - pod.created_at > _MIN_AGE] or running
    return seen[:: max(1, -(-len(seen) // _MAX_PODS))]


def _find_exporters(
    settings: PrometheusSettings, client: PrometheusClient, metric: str, pods: str, wanted: Containers, at: int
) -> list[Exporter]:
    labels = settings.labels
    names = (labels.namespace, labels.pod, labels.container)
    query = f"group by ({', '.join((*TARGET_LABELS, *names))}) ({build_usage_selector(settings, metric, pods)})"
    found: dict[tuple[str, ...], set[ContainerKey]] = {}
    for rows in create_answer_decoder("vector", VectorSample, settings.accept_partial)(client.query(query, at)):
        for row in rows:
            key = ContainerKey(*(row.metric.get(name, "") for name in names))
            if key in wanted:
                found.setdefault(tuple(row.metric.get(name, "") for name in TARGET_LABELS), set()).add(key)
    return [Exporter(target, frozenset(containers)) for target, containers in found.items()]


# How far back a server may look for a sample; five minutes by default.
LOOKBACK_SECONDS = 900


@dataclass(frozen=True, slots=True)
class UsageSeriesCounts:
    """The containers of a time range, and the number of series of one family by partition and pod name."""

    containers: set[ContainerKey] = field(default_factory=set)
    series_of_pod: dict[str, Counter[str]] = field(default_factory=dict)

    def get_max_concurrent(self) -> int:
        """Return how many series no selector can separate: those of pods with the same long ending."""
        counts_by_ending = Counter[str]()
        for counts in self.series_of_pod.values():
            for pod, count in counts.items():
                counts_by_ending[pod[-MAX_DEPTH:]] += count
        return max(counts_by_ending.values(), default=0)

    def split_into_pieces(self, points: int, settings: PrometheusSettings) -> list[str]:
        """Return selectors of all pods, each small enough for a query of so many points."""
        limit = max(1, min(settings.max_series_per_query, settings.max_samples_per_query // points))
        return [
            piece
            for name, counts in self.series_of_pod.items()
            if counts
            for piece in build_pod_patterns(name, counts, limit)
        ]

    def count_samples(self, requested: int, settings: PrometheusSettings) -> int:
        """Return how many points a query may have, at most `requested`. Raises BadInputError if it may have none."""
        series = self.get_max_concurrent()
        points = min(requested, settings.max_samples_per_query // max(1, series))
        if points < 1:
            raise BadInputError(
                f"prometheus_max_samples_per_query is {settings.max_samples_per_query:,}, and {series:,} series "
                "are of pods that no query can separate by name: raise it"
            )
        return points


def count_usage_series(
    settings: PrometheusSettings, client: PrometheusClient, first: int, last: int
) -> UsageSeriesCounts:
    """Return the usage series between `first` and `last` from the index.

    Raises BadInputError, ThrottledError and UnavailableError.
    """
    labels, metrics = settings.labels, settings.metrics
    families = tuple(dict.fromkeys((metrics.cpu, metrics.cpu_waiting, metrics.memory)))
    fields = {"family": "__name__", "namespace": labels.namespace, "pod": labels.pod, "container": labels.container}
    decode = create_series_decoder(fields, settings.accept_partial)
    series_counts = UsageSeriesCounts()
    for partition in PARTITIONS:
        (pods,) = build_pod_patterns(partition, {}, 1)
        selectors = [build_usage_selector(settings, family, pods) for family in families]
        counts: dict[str, Counter[str]] = {family: Counter() for family in families}
        for one in decode(client.query_series(selectors, first - LOOKBACK_SECONDS, last)):
            if one.family in counts:
                counts[one.family][one.pod] += 1
            if one.family == metrics.cpu and one.namespace and one.pod and one.container:
                series_counts.containers.add(ContainerKey(one.namespace, one.pod, one.container))
        largest = Counter[str]()
        for count in counts.values():
            largest |= count
        series_counts.series_of_pod[partition] = largest
    return series_counts


def create_series_decoder(labels: Mapping[str, str], accept_partial: bool) -> Callable[[bytes], Sequence[Any]]:
    """Return a decoder of lists of series into objects with the given labels, empty if a series has none.

    It raises BadInputError for another kind of answer, UnavailableError for an incomplete one.
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
            raise BadInputError(f"Prometheus did not answer with a list of series: {error}") from error
        check_completeness(document.warnings, document.isPartial, accept_partial)
        return document.data or ()

    return decode
