"""The usage port on a Prometheus server."""

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
from cruise.adapters.prometheus.counter_rows import CounterReading, EarlierCounters
from cruise.adapters.prometheus.counters import UsageAnswers, compute_usage, join_tails
from cruise.adapters.prometheus.node_load import NodeLoadReader, count_cores
from cruise.adapters.prometheus.queries import (
    MatrixDecoder,
    SeriesMatrix,
    SeriesName,
    build_root_group_selector,
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
from cruise.domain.usage import NO_NODE_USAGE, ContainerKey, CounterTail, NodeLoadSample, NodeUsage, SampleBlock
from cruise.errors import BadInputError, CruiseError, UnavailableError

# One question about usage: the three families of some pods over some times, made into samples.

# What one container may use within a step, where no node reports its cores.
MAX_CORES = 1024.0
# A read without a tail knows nothing of its first two steps.
_STEPS_BEFORE = 2

UsagePiece = tuple[SampleBlock, CounterTail]


def extend_times_backwards(times: Int64Array, step: int) -> Int64Array:
    """Return the times, which are a `step` apart, with those before them that a read without a tail needs."""
    return np.concatenate((times[0] - step * np.arange(_STEPS_BEFORE, 0, -1), times))


def compute_node_usage(
    cpu: SeriesMatrix, memory: SeriesMatrix, times: Int64Array, step: int, cores: float
) -> NodeUsage:
    """Turn the counters and gauges of root control groups at the times of `with_steps_before` into the nodes' use."""
    cpu, memory = (
        SeriesMatrix(
            [SeriesName("nodes", one.node, one.id, one.id, one.node, one.core) for one in family.series], family.values
        )
        for family in (cpu, memory)
    )
    answers = UsageAnswers(cpu, SeriesMatrix((), np.empty((0, len(times)))), memory)
    # A group is read as a container is: missed scrapes, servers that disagree, a node that was started anew.
    block, _ = compute_usage(answers, times, EarlierCounters(), CounterReading(step, cores), set())
    use = block.cpu_demand_millicores[:, _STEPS_BEFORE:].astype(np.float64)
    return NodeUsage([key.pod for key in block.keys], times[_STEPS_BEFORE:], use, block.memory_bytes[:, _STEPS_BEFORE:])


class UsageQueries:
    """Queries a server; blocks, and may be shared by threads. It remembers on which nodes pressure was ever seen.

    Twins of a series come whole, so that it shows whether they agree. Where samples need not be plausible, the server
    may fold them: over few steps the labels that it then leaves out would be most of the answer, but it does so anew at
    each step, which over a day costs it four times the reading.
    """

    def __init__(self, settings: PrometheusSettings, client: PrometheusClient, server_folds: bool = True) -> None:
        self.settings = settings
        self.pod_filter: ObservedPods | None = None
        """The pods that count, where series of other pods may be another cluster's."""
        self._client = client
        self._query = build_usage_query if server_folds and not settings.plausible else build_usage_selector
        self._matrices = MatrixDecoder(settings.labels, settings.accept_partial)
        self.scrape_times = ScrapeTimes(settings, client)
        self._pressured_nodes: set[str] = set()
        self._lately: dict[ContainerKey, float] = {}

    def choose(self, snapshot: ClusterSnapshot) -> None:
        """Take over which pods run: whose times and whose pressure are asked for in the reads that follow."""
        self.scrape_times.choose(snapshot)
        running = {(pod.namespace, pod.name) for pod in snapshot.pods} if self._lately else set()
        self._lately = {key: share for key, share in self._lately.items() if key[:2] in running}

    def query(self, pods: str, times: Int64Array, before: EarlierCounters, cores: float) -> UsagePiece:
        """Return the usage of the pods whose names match at the `times`, which are a step apart.

        `cores` bounds what one container can use. Raises BadInputError, Throttled, Unavailable.
        """
        metrics = self.settings.metrics
        spared = self.scrape_times.skip(pods, len(times))
        families = [
            self._matrix(metrics.cpu, pods, times),
            self._matrix(metrics.cpu_waiting, pods, times, spared),
            self._matrix(metrics.memory, pods, times),
        ]
        of_others: tuple[int, ContainerKey] | None = None
        if self.pod_filter is not None:
            families, of_others = self.pod_filter.keep_certain(families, times)
        answers = UsageAnswers(families[0], families[1], families[2], pods)
        counting = CounterReading(self.settings.step_seconds, cores, self.settings.plausible)
        ages_of = partial(self.scrape_times.ages, self.settings)
        block, tail = compute_usage(answers, times, before, counting, self._pressured_nodes, ages_of, self._lately)
        return replace(block, from_other_clusters=of_others), tail

    def query_nodes(self, nodes: Sequence[str], times: Int64Array, cores: float) -> NodeUsage:
        """Return what nodes used in all at the `times`, which are a step apart, by their root control groups.

        Raises BadInputError, Throttled, Unavailable.
        """
        metrics, step = self.settings.metrics, self.settings.step_seconds
        wider = extend_times_backwards(times, step)
        cpu, memory = (self._of_roots(metric, nodes, wider) for metric in (metrics.cpu, metrics.memory))
        return compute_node_usage(cpu, memory, wider, step, cores)

    def _of_roots(self, metric: str, nodes: Sequence[str], times: Int64Array) -> SeriesMatrix:
        first, last, step = int(times[0]), int(times[-1]), self.settings.step_seconds
        query = build_root_group_selector(self.settings, metric, nodes)
        return query_range_in_parts(self._client, self._matrices, query, first, last, step)

    def _matrix(self, metric: str, pods: str, times: Int64Array, spared: Sequence[str] = ()) -> SeriesMatrix:
        first, last, step = int(times[0]), int(times[-1]), self.settings.step_seconds
        query = self._query(self.settings, metric, pods, spared)
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
# Often enough to see what lived for as long as a stranger has to (`clusters.LIVED_SECONDS`).
SEEN_PODS_SECONDS = 600
# Their names stand in the question.
NODES_PER_QUERY = 100

T = TypeVar("T", np.float32, np.float64)


class PrometheusUsageSource:
    """Usage and node load from Prometheus; every sample costs the server one sample, and is asked for once.

    Containers are counted from the snapshot last given to `partitions`, to bound what one query covers; its nodes are
    those whose load is looked for beyond the load averages. Who reports its containers, and which series are of
    another cluster, is looked up once an hour of `clock`, in Unix seconds; without a clock it is not.
    """

    def __init__(self, settings: PrometheusSettings, clock: Callable[[], float] | None = None) -> None:
        if settings.step_seconds < 1 or HOUR_SECONDS % settings.step_seconds:
            raise BadInputError(
                f"prometheus_step is {settings.step_seconds} s, expected whole seconds that divide an hour"
            )
        self._settings = settings
        self._client = PrometheusClient(settings)
        self._questions = UsageQueries(settings, self._client)
        self._node_loads = NodeLoadReader(settings, self._client)
        self._series_per_query = settings.max_series_per_query
        self._queries_at_once = asyncio.Semaphore(settings.concurrency)
        self._containers: dict[str, dict[str, int]] = {}
        self._running: set[tuple[str, str]] = set()
        self._nodes: dict[str, float] = {}
        self._cores = MAX_CORES
        self._clock = clock
        self._looked_up_at = float("-inf")
        self._seen = ObservedPods()
        self._seen_at = float("-inf")
        self._of_others: tuple[int, ContainerKey] | None = None
        self.cluster = ClusterSeriesFacts()
        """Which of the server's series are this cluster's, as of the last look-up."""

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    async def partitions(self, snapshot: ClusterSnapshot) -> Sequence[str]:
        containers: dict[str, dict[str, int]] = {name: {} for name in PARTITIONS}
        for pod in snapshot.pods:
            of_partition = containers[get_partition(pod.name)]
            of_partition[pod.name] = of_partition.get(pod.name, 0) + len(pod.containers)
        self._containers = containers
        self._running = {(pod.namespace, pod.name) for pod in snapshot.pods if pod.phase == "Running"}
        self._nodes = count_cores(snapshot)
        self._questions.choose(snapshot)
        cores = max((node.allocatable.cpu_millicores / 1000 for node in snapshot.nodes), default=0.0)
        self._cores = cores or MAX_CORES
        if self._settings.plausible and self._clock is not None:
            now = self._clock()
            if not self.cluster.distinguishes_clusters or now - self._seen_at >= SEEN_PODS_SECONDS:
                self._seen.add_snapshot(snapshot, now)
                self._seen_at = now
            await self._look_up(snapshot, now)
        return list(PARTITIONS)

    async def read(
        self, partition: str, start: int, end: int, tail: CounterTail | None
    ) -> tuple[SampleBlock, CounterTail | None]:
        step = self._settings.step_seconds
        if partition not in PARTITIONS or start % step or end % step or (tail is not None and tail.at != start):
            raise ValueError(f"cannot read {partition!r} from {start} to {end} every {step} s")
        times = np.arange(start + step, end + 1, step, dtype=np.int64)
        if not len(times):
            return _joined([], times), tail
        before = EarlierCounters.create(tail)
        read = await self._read_pieces(partition, times, before)
        block = _joined([one for one, _ in read], times)
        if self._of_others is not None:
            block, self._of_others = (
                replace(block, from_other_clusters=_sum([block.from_other_clusters, self._of_others])),
                None,
            )
        if not block.keys and any(key[:2] in self._running for key in before.containers):
            # Perhaps another exporter reports them now.
            self._looked_up_at = float("-inf")
            since = datetime.fromtimestamp(start, UTC)
            raise UnavailableError(
                f"Prometheus has no usage since {since:%F %R} UTC of containers that run, and had some before"
            )
        return block, join_tails([one for _, one in read], end)

    async def _read_pieces(self, partition: str, times: Int64Array, before: EarlierCounters) -> list[UsagePiece]:
        """Read a partition in as many pieces as the server's limits ask for, which may be lower than those set."""
        containers = self._containers.get(partition, {})
        samples = max(1, self._settings.max_samples_per_query // len(times))
        while True:
            limit = min(self._series_per_query, samples)
            pieces = build_pod_patterns(partition, containers, limit)
            # All are waited for: a query that goes on unheeded would not count as under way.
            answers = await asyncio.gather(
                *(self._read_piece(pods, times, before) for pods in pieces), return_exceptions=True
            )
            failures = [one for one in answers if isinstance(one, BaseException)]
            if not failures:
                return [one for one in answers if not isinstance(one, BaseException)]
            fewer = min(limit, sum(containers.values())) // 2
            if fewer < 1 or not all(isinstance(one, QueryTooLargeError) for one in failures):
                raise _first(failures)
            self._series_per_query = fewer
            log.info("server refuses queries of so many series", partition=partition, series=limit, then=fewer)

    async def node_use(self, nodes: Collection[str], start: int, end: int) -> NodeUsage:
        step, names, labels = self._settings.step_seconds, sorted(nodes), self._settings.labels
        times = np.arange(start + step, end + 1, step, dtype=np.int64)
        if not (names and len(times) and labels.id and labels.node and self.cluster.distinguishes_clusters):
            return NO_NODE_USAGE
        found = [
            await self._ask_nodes(names[first : first + NODES_PER_QUERY], times)
            for first in range(0, len(names), NODES_PER_QUERY)
        ]
        return NodeUsage(
            [node for one in found for node in one.nodes],
            times,
            np.concatenate([one.cpu_use_millicores for one in found]),
            np.concatenate([one.memory_bytes for one in found]),
        )

    async def node_loads(self, at: int) -> Mapping[str, NodeLoadSample]:
        if not self.cluster.distinguishes_clusters:
            # Nodes of another cluster may have the same names.
            return {}
        async with self._queries_at_once:
            return await asyncio.to_thread(self._node_loads.read, at, self._nodes)

    async def _look_up(self, snapshot: ClusterSnapshot, now: float) -> None:
        """See who reports the containers of this cluster, and by which labels its series are told from others'."""
        if now - self._looked_up_at < HOUR_SECONDS:
            return
        settings = self._settings
        async with self._queries_at_once:
            if settings.selects_exporters:
                pins = await asyncio.to_thread(find_series_selectors, settings, self._client, snapshot, int(now))
                settings = replace(settings, series_selectors=pins.matchers if pins is not None else {})
            cluster = await asyncio.to_thread(find_cluster, settings, self._client, snapshot, int(now), self._seen)
        if cluster != self.cluster:
            log_cluster_selection(cluster)
        self.cluster = cluster
        self._of_others = (cluster.ignored_series, cluster.example) if cluster.example is not None else None
        settings = replace(settings, matchers=join_matchers(settings.matchers, cluster.matchers))
        self._questions.settings = settings
        self._questions.pod_filter = None if cluster.distinguishes_clusters else self._seen
        self._node_loads = NodeLoadReader(settings, self._client)
        if settings.series_selectors or not settings.selects_exporters:
            self._looked_up_at = now

    async def _ask_nodes(self, nodes: Sequence[str], times: Int64Array) -> NodeUsage:
        async with self._queries_at_once:
            return await asyncio.to_thread(self._questions.query_nodes, nodes, times, self._cores)

    async def _read_piece(self, pods: str, times: Int64Array, before: EarlierCounters) -> UsagePiece:
        async with self._queries_at_once:
            return await asyncio.to_thread(self._questions.query, pods, times, before, self._cores)


def _first(failures: Sequence[BaseException]) -> BaseException:
    """Return one failure to speak for all: a mistake of ours goes first, then what the reader can mend."""

    def place(failure: BaseException) -> int:
        return 2 - isinstance(failure, BadInputError) if isinstance(failure, CruiseError) else 0

    return min(failures, key=place)


def _joined(blocks: Sequence[SampleBlock], times: Int64Array) -> SampleBlock:
    if len(blocks) == 1:
        return blocks[0]
    # Some may tell of steps before the read; the others know nothing more of them.
    longest = max((block.times for block in blocks), key=len, default=times)

    def widened(block: SampleBlock, rows: NDArray[T]) -> NDArray[T]:
        return np.column_stack((np.full((len(rows), len(longest) - len(block.times)), np.nan, rows.dtype), rows))

    def refused_of(block: SampleBlock) -> BoolArray:
        refused = np.zeros((len(block.keys), len(longest)), dtype=np.bool_)
        if block.rejected is not None:
            refused[:, len(longest) - len(block.times) :] = block.rejected
        return refused

    uses = [(block, block.cpu_use_millicores) for block in blocks]
    nothing = np.empty((0, len(longest)))
    return SampleBlock(
        keys=[key for block in blocks for key in block.keys],
        times=longest,
        cpu_demand_millicores=np.concatenate(
            [nothing.astype(np.float32), *(widened(block, block.cpu_demand_millicores) for block in blocks)]
        ),
        memory_bytes=np.concatenate([nothing, *(widened(block, block.memory_bytes) for block in blocks)]),
        psi_known=np.concatenate([np.zeros(0, dtype=np.bool_), *(block.psi_known for block in blocks)]),
        nodes=[node for block in blocks for node in block.nodes],
        cpu_use_millicores=np.concatenate(
            [nothing.astype(np.float32), *(widened(block, use) for block, use in uses if use is not None)]
        ),
        rejected=np.concatenate([refused_of(block) for block in blocks])
        if any(block.rejected is not None for block in blocks)
        else None,
        from_other_clusters=_sum([block.from_other_clusters for block in blocks]),
    )


def _sum(counts: Sequence[tuple[int, ContainerKey] | None]) -> tuple[int, ContainerKey] | None:
    known = [one for one in counts if one is not None]
    return (sum(count for count, _ in known), known[0][1]) if known else None
