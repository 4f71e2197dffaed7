"""The usage source of kubelets."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from zlib import crc32

import numpy as np
import structlog

from cruise.adapters.kubelets.client import KubeletSettings
from cruise.adapters.kubelets.readings import ROOT_GROUP, KubeletMetrics, KubeletReadings, parse_kubelet_metrics
from cruise.adapters.prometheus.counter_rows import CounterReadingOptions, EarlierCounters
from cruise.adapters.prometheus.counters import compute_usage
from cruise.adapters.prometheus.node_load import compute_load_from_root_cgroup, count_cores
from cruise.adapters.prometheus.scrape_times import MAX_GAP_SECONDS
from cruise.adapters.prometheus.series_merging import ID_LENGTH
from cruise.adapters.prometheus.source import MAX_CORES, compute_node_usage, extend_times_backwards
from cruise.domain.arrays import Float64Array, Int64Array
from cruise.domain.cluster import ClusterSnapshot, Node
from cruise.domain.preflight import KubeletContainerUsage
from cruise.domain.usage import (
    NO_NODE_USAGE,
    ContainerKey,
    NodeLoadAverage,
    NodeUsage,
    PartitionCounterTail,
    SampleBlock,
)
from cruise.errors import BadInputError, CruiseError, UnavailableError, raise_single_error

log = structlog.get_logger()

# A node stays in its partition, whatever other nodes there are.
PARTITIONS = tuple(f"kubelets-{number}" for number in range(8))

ReadMetrics = Callable[[Node], Awaitable[bytes]]


class KubeletUsageSource:
    """Usage from kubelets, since the first reading; earlier steps have no samples.

    `read_metrics` returns the answer of one kubelet. Nodes are those of the snapshot last given to `list_partitions`.
    """

    def __init__(self, settings: KubeletSettings, read_metrics: ReadMetrics) -> None:
        self._settings = settings
        self._read_metrics = read_metrics
        self._slots = asyncio.Semaphore(settings.concurrency)
        self._readings = KubeletReadings(settings.retention_seconds)
        self._nodes: dict[str, Node] = {}
        self._nodes_by_partition: dict[str, list[str]] = {name: [] for name in PARTITIONS}
        self._cores: dict[str, float] = {}
        self._running: Counter[str] = Counter()
        self._pressured_nodes: set[str] = set()
        self._recent_pressure: dict[ContainerKey, float] = {}
        self._being_read: set[str] = set()
        self._is_requested, self._requested_at = False, -np.inf
        self.failures: dict[str, CruiseError] = {}
        """The errors of nodes whose last read failed."""

    async def list_partitions(self, snapshot: ClusterSnapshot) -> Sequence[str]:
        self._is_requested = True
        self._nodes = {node.name: node for node in snapshot.nodes}
        self._cores = count_cores(snapshot)
        self._running = Counter(pod.node for pod in snapshot.pods if pod.node is not None and pod.phase == "Running")
        self._nodes_by_partition = {name: [] for name in PARTITIONS}
        for name in self._nodes:
            self._nodes_by_partition[PARTITIONS[crc32(name.encode()) % len(PARTITIONS)]].append(name)
        self._readings.keep_only(self._nodes)
        self.failures = {name: error for name, error in self.failures.items() if name in self._nodes}
        return list(PARTITIONS)

    @property
    def nodes(self) -> Collection[str]:
        """The names of all nodes."""
        return list(self._nodes)

    async def read_nodes(self, nodes: Collection[str], clock: Callable[[], float]) -> None:
        """Read some nodes once, a few in parallel; errors are in `failures`."""
        await asyncio.gather(*(self._read_node(self._nodes[name], clock) for name in nodes if name in self._nodes))

    def get_due_nodes(self, at: float, every_seconds: float) -> list[str]:
        """Return the nodes that are read in the second that starts at `at`; reads are spread over the interval.

        There are none if no usage was requested for a while, as in a process that does not lead.
        """
        if self._is_requested:
            self._is_requested, self._requested_at = False, at
        if at - self._requested_at > self._settings.retention_seconds:
            return []
        second = int(at % every_seconds)
        return [name for name in self._nodes if crc32(name.encode()) % int(every_seconds) == second]

    def check_any_readable(self, nodes: Collection[str], end: int) -> None:
        """Raise an error if none of some nodes could be read until a time; single nodes may be down."""
        unread = [
            name for name in nodes if (self._readings.get_last_reading_time(name) or -np.inf) <= end - MAX_GAP_SECONDS
        ]
        errors = [self.failures[name] for name in unread if name in self.failures]
        if not errors or len(unread) < len(nodes):
            return
        first = next((error for error in errors if isinstance(error, BadInputError)), errors[0])
        raise type(first)(f"{first} ({len(errors)} of {len(nodes)} nodes cannot be read)")

    async def read(
        self, partition: str, start: int, end: int, tail: PartitionCounterTail | None
    ) -> tuple[SampleBlock, PartitionCounterTail | None]:
        step = self._settings.step_seconds
        if partition not in PARTITIONS or start % step or end % step or (tail is not None and tail.at != start):
            raise ValueError(f"cannot read {partition!r} from {start} to {end} every {step} s")
        times = np.arange(start + step, end + 1, step, dtype=np.int64)
        nodes = self._nodes_by_partition[partition]
        self.check_any_readable([name for name in self._nodes if self._running[name]], end)
        # Times before the first reading have no samples.
        since = self._get_known_since(nodes)
        if not len(times) or end < since:
            return _without_samples(times), None if tail is None else replace(tail, at=end)
        # A read without a tail takes no value of its first step for a scrape.
        known = times[times > since - 2 * step]
        if tail is not None and known[0] - start <= MAX_GAP_SECONDS:
            # Continue from the earlier counters.
            known = times
        elif known[0] - start > step:
            tail = None
        answers = await asyncio.to_thread(self._readings.build_answers, nodes, known)
        options = CounterReadingOptions(step, self._get_max_cores(nodes), self._settings.plausible)
        before = EarlierCounters.create(tail)
        block, tail = compute_usage(
            answers, known, before, options, self._pressured_nodes, self._get_ages, self._recent_pressure
        )
        return _extend_backwards(block, times), tail

    async def read_node_usage(self, nodes: Collection[str], start: int, end: int) -> NodeUsage:
        step = self._settings.step_seconds
        times = np.arange(start + step, end + 1, step, dtype=np.int64)
        if not (nodes and len(times)):
            return NO_NODE_USAGE
        extended = extend_times_backwards(times, step)
        answers = await asyncio.to_thread(self._readings.build_answers, nodes, extended, roots=True)
        return compute_node_usage(answers.cpu_seconds, answers.memory_bytes, extended, step, self._get_max_cores(nodes))

    async def read_node_loads(self, at: int) -> Mapping[str, NodeLoadAverage]:
        """Return the load of root control groups between the last two readings; kubelets have no load average."""
        found = {}
        for name, cores in self._cores.items():
            last_two = self._readings.get_last_two(name)
            sample = None if last_two is None else _compute_load(*last_two, cores)
            if sample is not None and at - MAX_GAP_SECONDS < sample.at <= at:
                found[name] = sample
        return found

    async def _read_node(self, node: Node, clock: Callable[[], float]) -> None:
        # No second request to a kubelet that does not answer.
        if node.name in self._being_read:
            return
        self._being_read.add(node.name)
        try:
            async with self._slots:
                body = await self._read_metrics(node)
                at = clock()
            self._readings.add(node.name, await asyncio.to_thread(parse_node_metrics, body, node), at)
        except CruiseError as error:
            if str(error) != str(self.failures.get(node.name)):
                log.warning("cannot read a kubelet", node=node.name, problem=str(error))
            self.failures[node.name] = error
        else:
            self.failures.pop(node.name, None)
        finally:
            self._being_read.discard(node.name)

    def _get_known_since(self, nodes: Collection[str]) -> float:
        return min(
            (since for name in nodes if (since := self._readings.get_oldest_reading_time(name)) is not None),
            default=np.inf,
        )

    def _get_max_cores(self, nodes: Collection[str]) -> float:
        return max((self._cores.get(name, 0.0) for name in nodes), default=0.0) or MAX_CORES

    def _get_ages(self, nodes: Collection[str], first: int, last: int) -> Mapping[str, Float64Array]:
        times = np.arange(first, last + 1, self._settings.step_seconds, dtype=np.int64)
        return self._readings.get_ages(nodes, times)


def parse_node_metrics(body: bytes, node: Node) -> KubeletMetrics:
    """Decode the answer of a node. Raises UnavailableError if it is not that of a kubelet."""
    try:
        return parse_kubelet_metrics(body, node.name)
    except BadInputError as error:
        raise UnavailableError(f"the answer of node {node.name} is not that of a kubelet: {error}") from error


def _compute_load(earlier: KubeletMetrics, later: KubeletMetrics, cores: float) -> NodeLoadAverage | None:
    """Return a node's load from its root control group, None if it is missing or was not measured again."""
    rows = [
        next((row for row, one in enumerate(metrics.series) if one.id == ROOT_GROUP), -1)
        for metrics in (earlier, later)
    ]
    if min(rows) < 0:
        return None
    (first, second), (before, after) = rows, (earlier.measured_at, later.measured_at)
    seconds = float(after[second] - before[first])
    used = float(later.cpu_seconds[second] - earlier.cpu_seconds[first])
    waited = float(later.cpu_waiting_seconds[second] - earlier.cpu_waiting_seconds[first])
    if not (seconds > 0 and used >= 0):
        return None
    return NodeLoadAverage(
        compute_load_from_root_cgroup(used / seconds, max(0.0, np.nan_to_num(waited)) / seconds, cores),
        float(after[second]),
    )


def _without_samples(times: Int64Array) -> SampleBlock:
    empty = np.empty((0, len(times)))
    return SampleBlock((), times, empty.astype(np.float32), empty, np.empty(0, dtype=np.bool_))


def _extend_backwards(block: SampleBlock, times: Int64Array) -> SampleBlock:
    """Let a block start with the first of the `times`, or earlier if it has earlier steps."""
    missing = int(np.count_nonzero(times < block.times[0]))
    if not missing:
        return block
    absent = np.full((len(block.keys), missing), np.nan)
    return replace(
        block,
        times=np.concatenate((times[:missing], block.times)),
        cpu_demand_millicores=np.column_stack((absent.astype(np.float32), block.cpu_demand_millicores)),
        memory_bytes=np.column_stack((absent, block.memory_bytes)),
        cpu_use_millicores=None
        if block.cpu_use_millicores is None
        else np.column_stack((absent.astype(np.float32), block.cpu_use_millicores)),
        rejected=None
        if block.rejected is None
        else np.column_stack((np.zeros(absent.shape, dtype=np.bool_), block.rejected)),
    )


_STEP_SECONDS = 60
_FIRST_NODES = 16


@asynccontextmanager
async def poll_kubelets(source: KubeletUsageSource, clock: Callable[[], float]) -> AsyncIterator[None]:
    """Read the source's nodes until the block ends; `clock` gives Unix seconds."""
    with raise_single_error():
        async with asyncio.TaskGroup() as tasks:
            polling = tasks.create_task(_poll(source, clock))
            yield
            polling.cancel()


async def _poll(source: KubeletUsageSource, clock: Callable[[], float]) -> None:
    second = int(clock())
    async with asyncio.TaskGroup() as reads:
        while True:
            now = int(clock())
            # Also read the nodes of missed seconds, each once.
            for missed in range(max(second, now - _STEP_SECONDS) + 1, now + 1):
                reads.create_task(source.read_nodes(source.get_due_nodes(missed, _STEP_SECONDS), clock))
            second = now
            await asyncio.sleep(1 - clock() % 1)


async def read_kubelets_once(source: KubeletUsageSource, clock: Callable[[], float]) -> None:
    """Read all nodes. Raises BadInputError or UnavailableError if none of the first few can be read.

    With thousands of nodes that do not answer, reading the rest would take an hour.
    """
    nodes = list(source.nodes)
    first_nodes = nodes[:_FIRST_NODES]
    await source.read_nodes(first_nodes, clock)
    source.check_any_readable(first_nodes, int(clock()))
    await source.read_nodes(nodes[_FIRST_NODES:], clock)


async def read_kubelets_twice(source: KubeletUsageSource, clock: Callable[[], float], interval_seconds: float) -> None:
    """Read all nodes twice, some seconds apart, which is the least for a rate.

    It ends at the first full minute after that. Raises as `read_kubelets_once` does.
    """
    first = clock()
    await read_kubelets_once(source, clock)
    await asyncio.sleep(max(0.0, first + interval_seconds - clock()))
    await source.read_nodes(source.nodes, clock)
    await asyncio.sleep(-clock() % _STEP_SECONDS)


async def read_container_usage_of_kubelet(
    read_metrics: ReadMetrics, node: Node, clock: Callable[[], float]
) -> KubeletContainerUsage:
    """Read the containers of one kubelet, for comparison with other sources; `clock` gives Unix seconds.

    Raises BadInputError and UnavailableError.
    """
    metrics = parse_node_metrics(await read_metrics(node), node)
    rows = [row for row, name in enumerate(metrics.series) if name.container]
    names = [metrics.series[row] for row in rows]
    measured_at = metrics.measured_at[rows]
    return KubeletContainerUsage(
        node=node.name,
        # Each container is measured at its own time, some seconds before.
        at=float(np.nanmedian(measured_at)) if not np.isnan(measured_at).all() else clock(),
        keys=[ContainerKey(name.namespace, name.pod, name.container) for name in names],
        series=[name.id[-ID_LENGTH:] for name in names],
        cpu_seconds=metrics.cpu_seconds[rows],
        memory_bytes=metrics.memory_bytes[rows],
    )
