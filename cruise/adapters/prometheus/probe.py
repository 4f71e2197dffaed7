"""What a server has of a cluster, found with a dozen small queries for a sample of its containers."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np

from cruise.adapters.prometheus.client import PrometheusClient
from cruise.adapters.prometheus.clusters import find_cluster
from cruise.adapters.prometheus.counter_rows import EarlierCounters
from cruise.adapters.prometheus.node_load import NodeLoadReader, count_cores, get_node_of_reading
from cruise.adapters.prometheus.queries import (
    VectorSample,
    build_usage_selector,
    create_answer_decoder,
    join_matchers,
    quote_promql,
)
from cruise.adapters.prometheus.seen_pods import ObservedPods
from cruise.adapters.prometheus.series_selectors import SeriesSelectors, choose_sample_pods, find_series_selectors
from cruise.adapters.prometheus.settings import PrometheusSettings
from cruise.adapters.prometheus.source import MAX_CORES, UsageQueries
from cruise.domain.cluster import ClusterSnapshot, ContainerRole
from cruise.domain.preflight import ClusterSeriesFacts, IgnoredExporter, UsageFacts
from cruise.domain.usage import SampleBlock

_MAX_LABELS = 12
_RECENT_STEPS = 10
_HISTORY_SECONDS = tuple(int(days * 86_400) for days in (7, 3, 1, 0.25, 1 / 24))

Containers = set[tuple[str, str, str]]


def probe_prometheus(settings: PrometheusSettings, snapshot: ClusterSnapshot, at: datetime) -> UsageFacts:
    """Look for the series of some running containers, and check their quality; blocks.

    Raises BadInputError, ThrottledError and UnavailableError.
    """
    client = PrometheusClient(settings)
    try:
        return _PrometheusProbe(client, settings, snapshot, int(at.timestamp())).facts()
    finally:
        client.close()


class _PrometheusProbe:
    def __init__(
        self, client: PrometheusClient, settings: PrometheusSettings, snapshot: ClusterSnapshot, at: int
    ) -> None:
        self._client = client
        self._settings = settings
        self._snapshot = snapshot
        self._at = at
        self._rows = create_answer_decoder("vector", VectorSample, settings.accept_partial)
        self._pods = choose_sample_pods(snapshot, datetime.fromtimestamp(at, UTC))

    def facts(self) -> UsageFacts:
        sampled = {
            (pod.namespace, pod.name, container.name)
            for pod in self._pods
            for container in pod.containers
            if container.role is not ContainerRole.INIT
        }
        metrics, nodes = self._settings.metrics, count_cores(self._snapshot)
        selectors, cluster = self._find_exporters(), self._find_cluster()
        # An empty answer to the first query also shows that the server answers.
        cpu = self._find_containers(metrics.cpu) if sampled else set()
        if not cpu & sampled:
            labels = self._list_labels(metrics.cpu) if sampled else ()
            with_memory = len(self._find_containers(metrics.memory) & sampled)
            return UsageFacts(len(sampled), 0, with_memory, labels, nodes=len(nodes), cluster=cluster)
        pressure = self._read_pressure(frozenset(nodes))
        reader = NodeLoadReader(self._settings, self._client)
        read = reader.read(self._at, nodes)
        loads = {node: sample.load1 for node, sample in read.items() if node in nodes}
        labelled = self._settings.labels.node != "" and self._has_node_label(metrics.cpu)
        return UsageFacts(
            queried_containers=len(sampled),
            containers_with_cpu=len(cpu & sampled),
            containers_with_memory=len(self._find_containers(metrics.memory) & sampled),
            nodes_labelled=labelled,
            samples_in_10_minutes=self._query_number(
                f"quantile(0.5, count_over_time({self._selector(metrics.cpu)}[10m]))"
            ),
            newest_at=self._find_newest(metrics.cpu),
            history_days=self._find_history_days(metrics.cpu),
            nodes=len(nodes),
            nodes_with_pressure=sum(value > 0 for value in pressure.values()),
            nodes_without_series=sum(value == 0 for value in pressure.values()),
            nodes_with_load=len(loads),
            loads=loads,
            exporters=tuple(str(one) for one in selectors.exporters) if selectors is not None else (),
            ignored_exporters=tuple(
                IgnoredExporter(str(one), "/".join(min(one.containers))) for one in selectors.ignored
            )
            if selectors
            else (),
            ignored_load_exporters=tuple(
                IgnoredExporter(
                    f"job={quote_promql(one.job)},instance={quote_promql(one.instance)}", get_node_of_reading(one)
                )
                for one in reader.trusted_exporters.ignored
            ),
            disputed_nodes=tuple(sorted(reader.trusted_exporters.disputed_nodes)),
            recent=self._read_recent(max(nodes.values(), default=MAX_CORES)),
            cluster=cluster,
        )

    def _find_exporters(self) -> SeriesSelectors | None:
        """Find the exporters of containers, and use them in the following queries, as the source does."""
        if not self._settings.selects_exporters:
            return None
        selectors = find_series_selectors(self._settings, self._client, self._snapshot, self._at)
        if selectors is not None:
            self._settings = replace(self._settings, series_selectors=selectors.matchers)
        return selectors

    def _find_cluster(self) -> ClusterSeriesFacts:
        """Find the series of this cluster, and use them in the following queries, as the source does."""
        if not (self._settings.plausible and self._pods):
            return ClusterSeriesFacts()
        seen = ObservedPods()
        seen.add_snapshot(self._snapshot, self._at)
        found = find_cluster(self._settings, self._client, self._snapshot, self._at, seen)
        self._settings = replace(self._settings, matchers=join_matchers(self._settings.matchers, found.matchers))
        return found

    def _read_recent(self, cores: float) -> SampleBlock:
        step = self._settings.step_seconds
        times = self._at // step * step + step * np.arange(1 - _RECENT_STEPS, 1)
        names = "|".join(sorted({pod.name.replace(".", "[.]") for pod in self._pods}))
        block, _ = UsageQueries(self._settings, self._client).query(names, times, EarlierCounters(), cores)
        return block

    def _selector(self, metric: str, of_sample: bool = True) -> str:
        names = "|".join(sorted({pod.name.replace(".", "[.]") for pod in self._pods})) if of_sample else None
        return build_usage_selector(self._settings, metric, names)

    def _query(self, query: str, before_seconds: int = 0) -> list[VectorSample]:
        body = self._client.query(query, self._at - before_seconds)
        return [row for rows in self._rows(body) for row in rows]

    def _find_containers(self, metric: str) -> Containers:
        labels = self._settings.labels
        names = (labels.namespace, labels.pod, labels.container)
        rows = self._query(f"count by ({', '.join(names)}) ({self._selector(metric)})")
        return {tuple(row.metric.get(name, "") for name in names) for row in rows}  # type: ignore[misc]

    def _list_labels(self, metric: str) -> tuple[str, ...]:
        """Return the labels of any series of a metric."""
        rows = self._query(f"topk(1, {metric})")
        found = sorted({name for row in rows for name in row.metric if name != "__name__"})
        return tuple(found[:_MAX_LABELS])

    def _has_node_label(self, metric: str) -> bool:
        node = self._settings.labels.node
        rows = self._query(f"count by ({node}) ({self._selector(metric)})")
        return bool(rows) and all(row.metric.get(node) for row in rows)

    def _read_pressure(self, nodes: frozenset[str]) -> Mapping[str, float]:
        """Return the largest pressure counter of each node; series without a node label apply to all nodes."""
        label = self._settings.labels.node
        by = f" by ({label})" if label else ""
        rows = self._query(f"max{by} ({self._selector(self._settings.metrics.cpu_waiting, of_sample=False)})")
        by_node = {row.metric.get(label, ""): row.value[1] for row in rows}
        unlabelled = by_node.pop("", None)
        if unlabelled is not None:
            return dict.fromkeys(nodes, unlabelled) | by_node
        return {node: value for node, value in by_node.items() if node in nodes}

    def _find_newest(self, metric: str) -> datetime | None:
        newest = self._query_number(f"max(timestamp({self._selector(metric)}))")
        return datetime.fromtimestamp(newest, UTC) if newest is not None else None

    def _find_history_days(self, metric: str) -> float:
        """Return how many days back there are samples of any container, of the times that are tried."""
        query = f"count({self._selector(metric, of_sample=False)})"
        return next((back / 86_400 for back in _HISTORY_SECONDS if self._query(query, back)), 0.0)

    def _query_number(self, query: str) -> float | None:
        rows = self._query(query)
        return rows[0].value[1] if rows and np.isfinite(rows[0].value[1]) else None
