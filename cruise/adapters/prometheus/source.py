"""The usage port on a Prometheus server."""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TypeVar

import numpy as np
import structlog
from numpy.typing import NDArray

from cruise.adapters.prometheus.client import PrometheusClient, QueryTooLarge
from cruise.adapters.prometheus.clusters import find_cluster, log_cluster
from cruise.adapters.prometheus.counter_rows import CountersBefore
from cruise.adapters.prometheus.counters import joined_tail
from cruise.adapters.prometheus.node_loads import NodeLoadReader, cores_of
from cruise.adapters.prometheus.partitions import PARTITIONS, partition_of, selectors
from cruise.adapters.prometheus.pinning import find_pins
from cruise.adapters.prometheus.queries import joined
from cruise.adapters.prometheus.seen_pods import SeenPods
from cruise.adapters.prometheus.settings import PrometheusSettings
from cruise.adapters.prometheus.usage_questions import MANY_CORES, Piece, UsageQuestions
from cruise.domain.arrays import BoolArray, Int64Array
from cruise.domain.cluster import Snapshot
from cruise.domain.preflight import ClusterFacts
from cruise.domain.usage import NO_NODE_USE, ContainerKey, CounterTail, LoadSample, NodeUse, SampleBlock
from cruise.errors import BadInput, CruiseError, Unavailable

log = structlog.get_logger()

HOUR_SECONDS = 3600
# Often enough to see what lived for as long as a stranger has to (`clusters.LIVED_SECONDS`).
SEEN_SECONDS = 600
# Their names stand in the question.
NODES_TOGETHER = 100

T = TypeVar("T", np.float32, np.float64)


class PrometheusSource:
    """Usage and node load from Prometheus; every sample costs the server one sample, and is asked for once.

    Containers are counted from the snapshot last given to `partitions`, to bound what one query covers; its nodes are
    those whose load is looked for beyond the load averages. Who reports its containers, and which series are of
    another cluster, is looked up once an hour of `clock`, in Unix seconds; without a clock it is not.
    """

    def __init__(self, settings: PrometheusSettings, clock: Callable[[], float] | None = None) -> None:
        if settings.step_seconds < 1 or HOUR_SECONDS % settings.step_seconds:
            raise BadInput(f"prometheus_step is {settings.step_seconds} s, expected whole seconds that divide an hour")
        self._settings = settings
        self._client = PrometheusClient(settings)
        self._questions = UsageQuestions(settings, self._client)
        self._node_loads = NodeLoadReader(settings, self._client)
        self._series_per_query = settings.max_series_per_query
        self._queries_at_once = asyncio.Semaphore(settings.concurrency)
        self._containers: dict[str, dict[str, int]] = {}
        self._running: set[tuple[str, str]] = set()
        self._nodes: dict[str, float] = {}
        self._cores = MANY_CORES
        self._clock = clock
        self._looked_up_at = float("-inf")
        self._seen = SeenPods()
        self._seen_at = float("-inf")
        self._of_others: tuple[int, ContainerKey] | None = None
        self.cluster = ClusterFacts()
        """Which of the server's series are this cluster's, as of the last look-up."""

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    async def partitions(self, snapshot: Snapshot) -> Sequence[str]:
        containers: dict[str, dict[str, int]] = {name: {} for name in PARTITIONS}
        for pod in snapshot.pods:
            of_partition = containers[partition_of(pod.name)]
            of_partition[pod.name] = of_partition.get(pod.name, 0) + len(pod.containers)
        self._containers = containers
        self._running = {(pod.namespace, pod.name) for pod in snapshot.pods if pod.phase == "Running"}
        self._nodes = cores_of(snapshot)
        self._questions.choose(snapshot)
        cores = max((node.allocatable.cpu_millicores / 1000 for node in snapshot.nodes), default=0.0)
        self._cores = cores or MANY_CORES
        if self._settings.plausible and self._clock is not None:
            now = self._clock()
            if not self.cluster.told_apart or now - self._seen_at >= SEEN_SECONDS:
                self._seen.take(snapshot, now)
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
        before = CountersBefore.of(tail)
        read = await self._read_pieces(partition, times, before)
        block = _joined([one for one, _ in read], times)
        if self._of_others is not None:
            block, self._of_others = replace(block, of_others=_sum([block.of_others, self._of_others])), None
        if not block.keys and any(key[:2] in self._running for key in before.containers):
            # Perhaps another exporter reports them now.
            self._looked_up_at = float("-inf")
            since = datetime.fromtimestamp(start, UTC)
            raise Unavailable(
                f"Prometheus has no usage since {since:%F %R} UTC of containers that run, and had some before"
            )
        return block, joined_tail([one for _, one in read], end)

    async def _read_pieces(self, partition: str, times: Int64Array, before: CountersBefore) -> list[Piece]:
        """Read a partition in as many pieces as the server's limits ask for, which may be lower than those set."""
        containers = self._containers.get(partition, {})
        samples = max(1, self._settings.max_samples_per_query // len(times))
        while True:
            limit = min(self._series_per_query, samples)
            pieces = selectors(partition, containers, limit)
            # All are waited for: a query that goes on unheeded would not count as under way.
            answers = await asyncio.gather(
                *(self._read_piece(pods, times, before) for pods in pieces), return_exceptions=True
            )
            failures = [one for one in answers if isinstance(one, BaseException)]
            if not failures:
                return [one for one in answers if not isinstance(one, BaseException)]
            fewer = min(limit, sum(containers.values())) // 2
            if fewer < 1 or not all(isinstance(one, QueryTooLarge) for one in failures):
                raise _first(failures)
            self._series_per_query = fewer
            log.info("server refuses queries of so many series", partition=partition, series=limit, then=fewer)

    async def node_use(self, nodes: Collection[str], start: int, end: int) -> NodeUse:
        step, names, labels = self._settings.step_seconds, sorted(nodes), self._settings.labels
        times = np.arange(start + step, end + 1, step, dtype=np.int64)
        if not (names and len(times) and labels.id and labels.node and self.cluster.told_apart):
            return NO_NODE_USE
        found = [
            await self._ask_nodes(names[first : first + NODES_TOGETHER], times)
            for first in range(0, len(names), NODES_TOGETHER)
        ]
        return NodeUse(
            [node for one in found for node in one.nodes],
            times,
            np.concatenate([one.cpu_use_millicores for one in found]),
            np.concatenate([one.memory_bytes for one in found]),
        )

    async def node_loads(self, at: int) -> Mapping[str, LoadSample]:
        if not self.cluster.told_apart:
            # Nodes of another cluster may have the same names.
            return {}
        async with self._queries_at_once:
            return await asyncio.to_thread(self._node_loads.read, at, self._nodes)

    async def _look_up(self, snapshot: Snapshot, now: float) -> None:
        """See who reports the containers of this cluster, and by which labels its series are told from others'."""
        if now - self._looked_up_at < HOUR_SECONDS:
            return
        settings = self._settings
        async with self._queries_at_once:
            if settings.finds_exporters:
                pins = await asyncio.to_thread(find_pins, settings, self._client, snapshot, int(now))
                settings = replace(settings, pins=pins.matchers if pins is not None else {})
            cluster = await asyncio.to_thread(find_cluster, settings, self._client, snapshot, int(now), self._seen)
        if cluster != self.cluster:
            log_cluster(cluster)
        self.cluster = cluster
        self._of_others = (cluster.left_out, cluster.example) if cluster.example is not None else None
        settings = replace(settings, matchers=joined(settings.matchers, cluster.matchers))
        self._questions.settings = settings
        self._questions.only_seen = None if cluster.told_apart else self._seen
        self._node_loads = NodeLoadReader(settings, self._client)
        if settings.pins or not settings.finds_exporters:
            self._looked_up_at = now

    async def _ask_nodes(self, nodes: Sequence[str], times: Int64Array) -> NodeUse:
        async with self._queries_at_once:
            return await asyncio.to_thread(self._questions.of_nodes, nodes, times, self._cores)

    async def _read_piece(self, pods: str, times: Int64Array, before: CountersBefore) -> Piece:
        async with self._queries_at_once:
            return await asyncio.to_thread(self._questions.ask, pods, times, before, self._cores)


def _first(failures: Sequence[BaseException]) -> BaseException:
    """Return one failure to speak for all: a mistake of ours goes first, then what the reader can mend."""

    def place(failure: BaseException) -> int:
        return 2 - isinstance(failure, BadInput) if isinstance(failure, CruiseError) else 0

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
        if block.refused is not None:
            refused[:, len(longest) - len(block.times) :] = block.refused
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
        refused=np.concatenate([refused_of(block) for block in blocks])
        if any(block.refused is not None for block in blocks)
        else None,
        of_others=_sum([block.of_others for block in blocks]),
    )


def _sum(counts: Sequence[tuple[int, ContainerKey] | None]) -> tuple[int, ContainerKey] | None:
    known = [one for one in counts if one is not None]
    return (sum(count for count, _ in known), known[0][1]) if known else None
