"""The usage source of a Prometheus server."""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TypeVar

import numpy as np
import structlog
from numpy.typing import NDArray

from cruise.adapters.prometheus.client import PrometheusClient, QueryTooLargeError
from cruise.adapters.prometheus.clusters import find_cluster, log_cluster_selection
from cruise.adapters.prometheus.counter_rows import CounterReadingOptions, EarlierCounters
from cruise.adapters.prometheus.counters import UsageAnswers, compute_usage, join_tails_of_disjoint_series
from cruise.adapters.prometheus.node_load import NodeLoadReader, count_cores
from cruise.adapters.prometheus.queries import (
    MatrixDecoder,
    SeriesLabelValues,
    SeriesMatrix,
    build_root_cgroup_selector,
    build_usage_query,
    build_usage_selector,
    join_matchers,
    query_range_in_parts,
)
from cruise.adapters.prometheus.scrape_times import ScrapeTimes
from cruise.adapters.prometheus.seen_pods import PARTITIONS, ObservedPods, build_pod_patterns, get_partition
from cruise.adapters.prometheus.series_selectors import find_series_selectors
from cruise.adapters.prometheus.settings import PrometheusSettings
from cruise.domain.arrays import BoolArray, Int64Array
from cruise.domain.cluster import ClusterSnapshot
from cruise.domain.preflight import ClusterSeriesFacts
from cruise.domain.usage import (
    NO_NODE_USAGE,
    ContainerKey,
    NodeLoadAverage,
    NodeUsage,
    PartitionCounterTail,
    SampleBlock,
)
from cruise.errors import BadInputError, CruiseError, UnavailableError

# The upper limit of what one container uses, if no node reports its cores.
MAX_CORES = 1024.0
# A read without a tail cannot compute the usage of its first two steps.
_UNKNOWN_STEPS = 2

UsagePiece = tuple[SampleBlock, PartitionCounterTail]


def extend_times_backwards(times: Int64Array, step: int) -> Int64Array:
    """Return the times with the steps before them that a read without a tail needs."""
    return np.concatenate((times[0] - step * np.arange(_UNKNOWN_STEPS, 0, -1), times))


def compute_node_usage(
    cpu: SeriesMatrix, memory: SeriesMatrix, times: Int64Array, step: int, cores: float
) -> NodeUsage:
    """Turn the series of root control groups into node usage; `times` come from `extend_times_backwards`."""
    cpu, memory = (
        SeriesMatrix(
            [SeriesLabelValues("nodes", one.node, one.id, one.id, one.node, one.core) for one in family.series],
            family.values,
        )
        for family in (cpu, memory)
    )
    answers = UsageAnswers(cpu, SeriesMatrix((), np.empty((0, len(times)))), memory)
    # The same rules as for containers: missed scrapes, servers that disagree, restarts.
    block, _ = compute_usage(answers, times, EarlierCounters(), CounterReadingOptions(step, cores), set())
    use = block.cpu_demand_millicores[:, _UNKNOWN_STEPS:].astype(np.float64)
    return NodeUsage(
        [key.pod for key in block.keys], times[_UNKNOWN_STEPS:], use, block.memory_bytes[:, _UNKNOWN_STEPS:]
    )


class UsageQueries:
    """Queries usage; blocks, and may be shared by threads. It remembers on which nodes pressure was ever seen.

    Duplicate series are read in full, to check that they agree. If samples need not be plausible, the server may merge
    them. Over few steps that makes the answer smaller, but the server merges at each step, which over a day costs four
    times the read.
    """

    def __init__(self, settings: PrometheusSettings, client: PrometheusClient, server_merges: bool = True) -> None:
        self.settings = settings
        self.pod_filter: ObservedPods | None = None
        """The pods that count, where series of other pods may be another cluster's."""
        self._client = client
        self._query = build_usage_query if server_merges and not settings.plausible else build_usage_selector
        self._matrices = MatrixDecoder(settings.labels, settings.accept_partial)
        self.scrape_times = ScrapeTimes(settings, client)
        self._pressured_nodes: set[str] = set()
        self._recent_pressure: dict[ContainerKey, float] = {}

    def update_pods(self, snapshot: ClusterSnapshot) -> None:
        """Set the running pods: their scrape times and pressure are queried in the following reads."""
        self.scrape_times.choose_pods(snapshot)
        running = {(pod.namespace, pod.name) for pod in snapshot.pods} if self._recent_pressure else set()
        self._recent_pressure = {key: share for key, share in self._recent_pressure.items() if key[:2] in running}

    def query(self, pods: str, times: Int64Array, before: EarlierCounters, cores: float) -> UsagePiece:
        """Return the usage of the pods whose names match at the `times`, which are a step apart.

        `cores` is the upper limit for one container. Raises BadInputError, ThrottledError and UnavailableError.
        """
        metrics = self.settings.metrics
        skipped_pods = self.scrape_times.skip(pods, len(times))
        families = [
            self._query_family(metrics.cpu, pods, times),
            self._query_family(metrics.cpu_waiting, pods, times, skipped_pods),
            self._query_family(metrics.memory, pods, times),
        ]
        ignored: tuple[int, ContainerKey] | None = None
        if self.pod_filter is not None:
            families, ignored = self.pod_filter.keep_known_pods(families, times)
        answers = UsageAnswers(families[0], families[1], families[2], pods)
        options = CounterReadingOptions(self.settings.step_seconds, cores, self.settings.plausible)
        get_ages = partial(self.scrape_times.read_ages, self.settings)
        block, tail = compute_usage(
            answers, times, before, options, self._pressured_nodes, get_ages, self._recent_pressure
        )
        return replace(block, from_other_clusters=ignored), tail

    def query_nodes(self, nodes: Sequence[str], times: Int64Array, cores: float) -> NodeUsage:
        """Return the total usage of nodes at the `times` by their root control groups; raises as `query` does."""
        metrics, step = self.settings.metrics, self.settings.step_seconds
        extended = extend_times_backwards(times, step)
        cpu, memory = (self._query_root_groups(metric, nodes, extended) for metric in (metrics.cpu, metrics.memory))
        return compute_node_usage(cpu, memory, extended, step, cores)

    def _query_root_groups(self, metric: str, nodes: Sequence[str], times: Int64Array) -> SeriesMatrix:
        first, last, step = int(times[0]), int(times[-1]), self.settings.step_seconds
        query = build_root_cgroup_selector(self.settings, metric, nodes)
        return query_range_in_parts(self._client, self._matrices, query, first, last, step)

    def _query_family(
        self, metric: str, pods: str, times: Int64Array, skipped_pods: Sequence[str] = ()
    ) -> SeriesMatrix:
        first, last, step = int(times[0]), int(times[-1]), self.settings.step_seconds
        query = self._query(self.settings, metric, pods, skipped_pods)
        matrix = query_range_in_parts(self._client, self._matrices, query, first, last, step)
        if matrix.series and not any(name.namespace and name.pod and name.container for name in matrix.series):
            labels = self.settings.labels
            raise BadInputError(
                f"the series of {metric} lack a label {labels.namespace}, {labels.pod} or {labels.container}: "
                "set the label names"
            )
        return matrix


log = structlog.get_logger()

HOUR_SECONDS = 3600
# Shorter than the life of a pod that counts as unknown (`clusters.MIN_LIFETIME_SECONDS`).
SEEN_PODS_SECONDS = 600
# The query contains their names.
NODES_PER_QUERY = 100

T = TypeVar("T", np.float32, np.float64)


class PrometheusUsageSource:
    """Usage and node load from Prometheus; each sample is queried once.

    The snapshot last given to `list_partitions` sets the size of queries, and the nodes whose load is also read from
    control groups. Exporters and the series of other clusters are looked up once per hour of `clock` (Unix seconds),
    and never without a clock.
    """

    def __init__(self, settings: PrometheusSettings, clock: Callable[[], float] | None = None) -> None:
        if settings.step_seconds < 1 or HOUR_SECONDS % settings.step_seconds:
            raise BadInputError(
                f"prometheus_step is {settings.step_seconds} s; it must be whole seconds that divide an hour"
            )
        self._settings = settings
        self._client = PrometheusClient(settings)
        self._queries = UsageQueries(settings, self._client)
        self._node_loads = NodeLoadReader(settings, self._client)
        self._series_per_query = settings.max_series_per_query
        self._slots = asyncio.Semaphore(settings.concurrency)
        self._containers: dict[str, dict[str, int]] = {}
        self._running: set[tuple[str, str]] = set()
        self._nodes: dict[str, float] = {}
        self._cores = MAX_CORES
        self._clock = clock
        self._series_found_at = float("-inf")
        self._seen = ObservedPods()
        self._seen_at = float("-inf")
        self._ignored: tuple[int, ContainerKey] | None = None
        self.cluster = ClusterSeriesFacts()
        """The series of this cluster, as of the last search."""

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    async def list_partitions(self, snapshot: ClusterSnapshot) -> Sequence[str]:
        containers: dict[str, dict[str, int]] = {name: {} for name in PARTITIONS}
        for pod in snapshot.pods:
            pods_of_partition = containers[get_partition(pod.name)]
            pods_of_partition[pod.name] = pods_of_partition.get(pod.name, 0) + len(pod.containers)
        self._containers = containers
        self._running = {(pod.namespace, pod.name) for pod in snapshot.pods if pod.phase == "Running"}
        self._nodes = count_cores(snapshot)
        self._queries.update_pods(snapshot)
        cores = max((node.allocatable.cpu_millicores / 1000 for node in snapshot.nodes), default=0.0)
        self._cores = cores or MAX_CORES
        if self._settings.plausible and self._clock is not None:
            now = self._clock()
            if not self.cluster.distinguishes_clusters or now - self._seen_at >= SEEN_PODS_SECONDS:
                self._seen.add_snapshot(snapshot, now)
                self._seen_at = now
            await self._find_series(snapshot, now)
        return list(PARTITIONS)

    async def read(
        self, partition: str, start: int, end: int, tail: PartitionCounterTail | None
    ) -> tuple[SampleBlock, PartitionCounterTail | None]:
        step = self._settings.step_seconds
        if partition not in PARTITIONS or start % step or end % step or (tail is not None and tail.at != start):
            raise ValueError(f"cannot read {partition!r} from {start} to {end} every {step} s")
        times = np.arange(start + step, end + 1, step, dtype=np.int64)
        if not len(times):
            return _join_blocks([], times), tail
        before = EarlierCounters.create(tail)
        read = await self._read_pieces(partition, times, before)
        block = _join_blocks([one for one, _ in read], times)
        if self._ignored is not None:
            block, self._ignored = (
                replace(block, from_other_clusters=_sum_counts([block.from_other_clusters, self._ignored])),
                None,
            )
        if not block.keys and any(key[:2] in self._running for key in before.containers):
            # Another exporter may report them now.
            self._series_found_at = float("-inf")
            since = datetime.fromtimestamp(start, UTC)
            raise UnavailableError(
                f"Prometheus has no usage since {since:%F %R} UTC of running containers, but had some before"
            )
        return block, join_tails_of_disjoint_series([one for _, one in read], end)

    async def _read_pieces(self, partition: str, times: Int64Array, before: EarlierCounters) -> list[UsagePiece]:
        """Read a partition in as many pieces as the server's limits need, which may be lower than the settings."""
        containers = self._containers.get(partition, {})
        samples = max(1, self._settings.max_samples_per_query // len(times))
        while True:
            limit = min(self._series_per_query, samples)
            pieces = build_pod_patterns(partition, containers, limit)
            # Wait for all: a query left running would not count against the limit.
            answers = await asyncio.gather(
                *(self._read_piece(pods, times, before) for pods in pieces), return_exceptions=True
            )
            failures = [one for one in answers if isinstance(one, BaseException)]
            if not failures:
                return [one for one in answers if not isinstance(one, BaseException)]
            smaller = min(limit, sum(containers.values())) // 2
            if smaller < 1 or not all(isinstance(one, QueryTooLargeError) for one in failures):
                raise _choose_failure(failures)
            self._series_per_query = smaller
            log.info("the server rejects queries of so many series", partition=partition, series=limit, next=smaller)

    async def read_node_usage(self, nodes: Collection[str], start: int, end: int) -> NodeUsage:
        step, names, labels = self._settings.step_seconds, sorted(nodes), self._settings.labels
        times = np.arange(start + step, end + 1, step, dtype=np.int64)
        if not (names and len(times) and labels.id and labels.node and self.cluster.distinguishes_clusters):
            return NO_NODE_USAGE
        found = [
            await self._query_nodes(names[first : first + NODES_PER_QUERY], times)
            for first in range(0, len(names), NODES_PER_QUERY)
        ]
        return NodeUsage(
            [node for one in found for node in one.nodes],
            times,
            np.concatenate([one.cpu_use_millicores for one in found]),
            np.concatenate([one.memory_bytes for one in found]),
        )

    async def read_node_loads(self, at: int) -> Mapping[str, NodeLoadAverage]:
        if not self.cluster.distinguishes_clusters:
            # Nodes of another cluster may have the same names.
            return {}
        async with self._slots:
            return await asyncio.to_thread(self._node_loads.read, at, self._nodes)

    async def _find_series(self, snapshot: ClusterSnapshot, now: float) -> None:
        """Find the exporters of this cluster's containers, and the labels of its series."""
        if now - self._series_found_at < HOUR_SECONDS:
            return
        settings = self._settings
        async with self._slots:
            if settings.selects_exporters:
                selectors = await asyncio.to_thread(find_series_selectors, settings, self._client, snapshot, int(now))
                settings = replace(settings, series_selectors=selectors.matchers if selectors is not None else {})
            cluster = await asyncio.to_thread(find_cluster, settings, self._client, snapshot, int(now), self._seen)
        if cluster != self.cluster:
            log_cluster_selection(cluster)
        self.cluster = cluster
        self._ignored = (cluster.ignored_series, cluster.example) if cluster.example is not None else None
        settings = replace(settings, matchers=join_matchers(settings.matchers, cluster.matchers))
        self._queries.settings = settings
        self._queries.pod_filter = None if cluster.distinguishes_clusters else self._seen
        self._node_loads = NodeLoadReader(settings, self._client)
        if settings.series_selectors or not settings.selects_exporters:
            self._series_found_at = now

    async def _query_nodes(self, nodes: Sequence[str], times: Int64Array) -> NodeUsage:
        async with self._slots:
            return await asyncio.to_thread(self._queries.query_nodes, nodes, times, self._cores)

    async def _read_piece(self, pods: str, times: Int64Array, before: EarlierCounters) -> UsagePiece:
        async with self._slots:
            return await asyncio.to_thread(self._queries.query, pods, times, before, self._cores)


def _choose_failure(failures: Sequence[BaseException]) -> BaseException:
    """Return the failure to raise: first a bug of cruise, then what the user can fix."""

    def rank(failure: BaseException) -> int:
        return 2 - isinstance(failure, BadInputError) if isinstance(failure, CruiseError) else 0

    return min(failures, key=rank)


def _join_blocks(blocks: Sequence[SampleBlock], times: Int64Array) -> SampleBlock:
    if len(blocks) == 1:
        return blocks[0]
    # Some blocks have steps before the read, which are unknown for the others.
    longest = max((block.times for block in blocks), key=len, default=times)

    def widen(block: SampleBlock, rows: NDArray[T]) -> NDArray[T]:
        return np.column_stack((np.full((len(rows), len(longest) - len(block.times)), np.nan, rows.dtype), rows))

    def widen_rejected(block: SampleBlock) -> BoolArray:
        rejected = np.zeros((len(block.keys), len(longest)), dtype=np.bool_)
        if block.rejected is not None:
            rejected[:, len(longest) - len(block.times) :] = block.rejected
        return rejected

    uses = [(block, block.cpu_use_millicores) for block in blocks]
    empty = np.empty((0, len(longest)))
    return SampleBlock(
        keys=[key for block in blocks for key in block.keys],
        times=longest,
        cpu_demand_millicores=np.concatenate(
            [empty.astype(np.float32), *(widen(block, block.cpu_demand_millicores) for block in blocks)]
        ),
        memory_bytes=np.concatenate([empty, *(widen(block, block.memory_bytes) for block in blocks)]),
        psi_known=np.concatenate([np.zeros(0, dtype=np.bool_), *(block.psi_known for block in blocks)]),
        nodes=[node for block in blocks for node in block.nodes],
        cpu_use_millicores=np.concatenate(
            [empty.astype(np.float32), *(widen(block, use) for block, use in uses if use is not None)]
        ),
        rejected=np.concatenate([widen_rejected(block) for block in blocks])
        if any(block.rejected is not None for block in blocks)
        else None,
        from_other_clusters=_sum_counts([block.from_other_clusters for block in blocks]),
    )


def _sum_counts(counts: Sequence[tuple[int, ContainerKey] | None]) -> tuple[int, ContainerKey] | None:
    known = [one for one in counts if one is not None]
    return (sum(count for count, _ in known), known[0][1]) if known else None
