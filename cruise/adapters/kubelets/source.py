"""The usage port on the kubelets themselves."""

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
from cruise.adapters.prometheus.counter_rows import CounterReading, EarlierCounters
from cruise.adapters.prometheus.counters import compute_usage
from cruise.adapters.prometheus.node_load import compute_load_from_root_group, count_cores
from cruise.adapters.prometheus.scrape_times import MIN_GAP_SECONDS
from cruise.adapters.prometheus.series_merging import ID_LENGTH
from cruise.adapters.prometheus.source import MAX_CORES, compute_node_usage, extend_times_backwards
from cruise.domain.arrays import Float64Array, Int64Array
from cruise.domain.cluster import ClusterSnapshot, Node
from cruise.domain.preflight import KubeletReport
from cruise.domain.usage import NO_NODE_USAGE, ContainerKey, CounterTail, NodeLoadSample, NodeUsage, SampleBlock
from cruise.errors import BadInputError, CruiseError, UnavailableError, raise_single_error

log = structlog.get_logger()

# A node's containers are in one partition for as long as there is the node, whatever others come and go.
PARTITIONS = tuple(f"kubelets-{number}" for number in range(8))

ReadMetrics = Callable[[Node], Awaitable[bytes]]


class KubeletUsageSource:
    """Usage as kubelets tell it, as far back as `look` read it; steps before that have no samples.

    `ask` returns what one kubelet answers. Nodes are those of the snapshot last given to `partitions`.
    """

    def __init__(self, settings: KubeletSettings, ask: ReadMetrics) -> None:
        self._settings = settings
        self._ask = ask
        self._at_once = asyncio.Semaphore(settings.concurrency)
        self._readings = KubeletReadings(settings.retention_seconds)
        self._nodes: dict[str, Node] = {}
        self._of_partition: dict[str, list[str]] = {name: [] for name in PARTITIONS}
        self._cores: dict[str, float] = {}
        self._running: Counter[str] = Counter()
        self._pressured_nodes: set[str] = set()
        self._lately: dict[ContainerKey, float] = {}
        self._under_way: set[str] = set()
        self._asked_for, self._asked_for_at = False, -np.inf
        self.failures: dict[str, CruiseError] = {}
        """Why nodes could not be read the last time."""

    async def partitions(self, snapshot: ClusterSnapshot) -> Sequence[str]:
        self._asked_for = True
        self._nodes = {node.name: node for node in snapshot.nodes}
        self._cores = count_cores(snapshot)
        self._running = Counter(pod.node for pod in snapshot.pods if pod.node is not None and pod.phase == "Running")
        self._of_partition = {name: [] for name in PARTITIONS}
        for name in self._nodes:
            self._of_partition[PARTITIONS[crc32(name.encode()) % len(PARTITIONS)]].append(name)
        self._readings.keep_only(self._nodes)
        self.failures = {name: why for name, why in self.failures.items() if name in self._nodes}
        return list(PARTITIONS)

    @property
    def nodes(self) -> Collection[str]:
        """The names of all nodes."""
        return list(self._nodes)

    async def read_nodes(self, nodes: Collection[str], clock: Callable[[], float]) -> None:
        """Read some nodes once, a few at a time; what cannot be read is among the `failures`."""
        await asyncio.gather(*(self._look_at(self._nodes[name], clock) for name in nodes if name in self._nodes))

    def get_due_nodes(self, at: float, every_seconds: float) -> list[str]:
        """Return the nodes whose turn is within the second from `at` on, each at a moment of its own.

        There are none where nobody has asked for usage for long, as in a process that does not lead.
        """
        if self._asked_for:
            self._asked_for, self._asked_for_at = False, at
        if at - self._asked_for_at > self._settings.retention_seconds:
            return []
        moment = int(at % every_seconds)
        return [name for name in self._nodes if crc32(name.encode()) % int(every_seconds) == moment]

    def check_any_readable(self, nodes: Collection[str], end: int) -> None:
        """Raise what keeps all of some nodes from being read until a time; single ones may be down."""
        silent = [name for name in nodes if (self._readings.get_read_times(name) or -np.inf) <= end - MIN_GAP_SECONDS]
        why = [self.failures[name] for name in silent if name in self.failures]
        if not why or len(silent) < len(nodes):
            return
        first = next((error for error in why if isinstance(error, BadInputError)), why[0])
        raise type(first)(f"{first} ({len(why)} of {len(nodes)} nodes cannot be read)")

    async def read(
        self, partition: str, start: int, end: int, tail: CounterTail | None
    ) -> tuple[SampleBlock, CounterTail | None]:
        step = self._settings.step_seconds
        if partition not in PARTITIONS or start % step or end % step or (tail is not None and tail.at != start):
            raise ValueError(f"cannot read {partition!r} from {start} to {end} every {step} s")
        times = np.arange(start + step, end + 1, step, dtype=np.int64)
        nodes = self._of_partition[partition]
        self.check_any_readable([name for name in self._nodes if self._running[name]], end)
        # What was never read has no samples, and costs nothing.
        since = self._known_since(nodes)
        if not len(times) or end < since:
            return _without_samples(times), None if tail is None else replace(tail, at=end)
        # A read without a tail takes no value of its first step for a scrape.
        known = times[times > since - 2 * step]
        if tail is not None and known[0] - start <= MIN_GAP_SECONDS:
            # The counters of before go on.
            known = times
        elif known[0] - start > step:
            tail = None
        answers = await asyncio.to_thread(self._readings.build_answers, nodes, known)
        counting = CounterReading(step, self._cores_of(nodes), self._settings.plausible)
        before = EarlierCounters.create(tail)
        block, tail = compute_usage(
            answers, known, before, counting, self._pressured_nodes, self._ages_of, self._lately
        )
        return _from(block, times), tail

    async def node_use(self, nodes: Collection[str], start: int, end: int) -> NodeUsage:
        step = self._settings.step_seconds
        times = np.arange(start + step, end + 1, step, dtype=np.int64)
        if not (nodes and len(times)):
            return NO_NODE_USAGE
        wider = extend_times_backwards(times, step)
        answers = await asyncio.to_thread(self._readings.build_answers, nodes, wider, roots=True)
        return compute_node_usage(answers.cpu_seconds, answers.memory_bytes, wider, step, self._cores_of(nodes))

    async def node_loads(self, at: int) -> Mapping[str, NodeLoadSample]:
        """Return the loads of root control groups between the last two readings: kubelets tell no load average."""
        found = {}
        for name, cores in self._cores.items():
            two = self._readings.get_last_two(name)
            sample = None if two is None else _load(*two, cores)
            if sample is not None and at - MIN_GAP_SECONDS < sample.at <= at:
                found[name] = sample
        return found

    async def _look_at(self, node: Node, clock: Callable[[], float]) -> None:
        # One that hangs is not asked again meanwhile, or its requests would pile up.
        if node.name in self._under_way:
            return
        self._under_way.add(node.name)
        try:
            async with self._at_once:
                body = await self._ask(node)
                at = clock()
            self._readings.add(node.name, await asyncio.to_thread(parse_node_metrics, body, node), at)
        except CruiseError as error:
            if str(error) != str(self.failures.get(node.name)):
                log.warning("kubelet not read", node=node.name, why=str(error))
            self.failures[node.name] = error
        else:
            self.failures.pop(node.name, None)
        finally:
            self._under_way.discard(node.name)

    def _known_since(self, nodes: Collection[str]) -> float:
        return min(
            (since for name in nodes if (since := self._readings.get_known_since(name)) is not None), default=np.inf
        )

    def _cores_of(self, nodes: Collection[str]) -> float:
        return max((self._cores.get(name, 0.0) for name in nodes), default=0.0) or MAX_CORES

    def _ages_of(self, nodes: Collection[str], first: int, last: int) -> Mapping[str, Float64Array]:
        times = np.arange(first, last + 1, self._settings.step_seconds, dtype=np.int64)
        return self._readings.get_ages(nodes, times)


def parse_node_metrics(body: bytes, node: Node) -> KubeletMetrics:
    """Read what a node answers. Raises Unavailable where it is not what a kubelet tells."""
    try:
        return parse_kubelet_metrics(body, node.name)
    except BadInputError as error:
        raise UnavailableError(f"what node {node.name} answers is not what a kubelet tells: {error}") from error


def _load(earlier: KubeletMetrics, later: KubeletMetrics, cores: float) -> NodeLoadSample | None:
    """Return a node's load from its root control group, None where that is not told or was not measured anew."""
    places = [next((row for row, one in enumerate(two.series) if one.id == ROOT_GROUP), -1) for two in (earlier, later)]
    if min(places) < 0:
        return None
    (one, two), (was, now) = places, (earlier.taken_at, later.taken_at)
    seconds = float(now[two] - was[one])
    used = float(later.cpu_seconds[two] - earlier.cpu_seconds[one])
    waited = float(later.cpu_waiting_seconds[two] - earlier.cpu_waiting_seconds[one])
    if not (seconds > 0 and used >= 0):
        return None
    return NodeLoadSample(
        compute_load_from_root_group(used / seconds, max(0.0, np.nan_to_num(waited)) / seconds, cores), float(now[two])
    )


def _without_samples(times: Int64Array) -> SampleBlock:
    nothing = np.empty((0, len(times)))
    return SampleBlock((), times, nothing.astype(np.float32), nothing, np.empty(0, dtype=np.bool_))


def _from(block: SampleBlock, times: Int64Array) -> SampleBlock:
    """Let a block begin with the first of the `times`, or before it where it knows of steps before."""
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


# Reading every kubelet once a minute, each at a moment of its own, for as long as somebody asks for the usage.

_STEP_SECONDS = 60
_FEW = 16


@asynccontextmanager
async def poll_kubelets(
    source: KubeletUsageSource, clock: Callable[[], float], every_seconds: int = _STEP_SECONDS
) -> AsyncIterator[None]:
    """Keep on reading the source's nodes; `clock` gives Unix seconds."""
    with raise_single_error():
        async with asyncio.TaskGroup() as tasks:
            following = tasks.create_task(_follow(source, clock, every_seconds))
            yield
            following.cancel()


async def _follow(source: KubeletUsageSource, clock: Callable[[], float], every_seconds: int) -> None:
    second = int(clock())
    async with asyncio.TaskGroup() as looks:
        while True:
            now = int(clock())
            # A second that was slept through has its nodes read now; of a longer time each once.
            for late in range(max(second, now - every_seconds) + 1, now + 1):
                looks.create_task(source.read_nodes(source.get_due_nodes(late, every_seconds), clock))
            second = now
            await asyncio.sleep(1 - clock() % 1)


async def read_kubelets_once(source: KubeletUsageSource, clock: Callable[[], float]) -> None:
    """Read all nodes. Raises BadInputError or Unavailable where none of the first few can be read.

    Of thousands that do not answer, the rest would take an hour.
    """
    nodes = list(source.nodes)
    few = nodes[:_FEW]
    await source.read_nodes(few, clock)
    source.check_any_readable(few, int(clock()))
    await source.read_nodes(nodes[_FEW:], clock)


async def read_kubelets_twice(source: KubeletUsageSource, clock: Callable[[], float], apart_seconds: float) -> None:
    """Read all nodes twice, some seconds apart: the least that tells a rate.

    It ends with the first minute at which both are known. Raises as `look_once` does.
    """
    first = clock()
    await read_kubelets_once(source, clock)
    await asyncio.sleep(max(0.0, first + apart_seconds - clock()))
    await source.read_nodes(source.nodes, clock)
    await asyncio.sleep(-clock() % _STEP_SECONDS)


# What one kubelet tells of its containers, for comparison with what is read elsewhere.


async def read_kubelet_report(ask: ReadMetrics, node: Node, clock: Callable[[], float]) -> KubeletReport:
    """Ask a kubelet; `clock` gives Unix seconds. Raises BadInputError, Unavailable."""
    figures = parse_node_metrics(await ask(node), node)
    rows = [row for row, name in enumerate(figures.series) if name.container]
    names = [figures.series[row] for row in rows]
    taken_at = figures.taken_at[rows]
    return KubeletReport(
        node=node.name,
        # Each container is measured at a moment of its own, some seconds before.
        at=float(np.nanmedian(taken_at)) if not np.isnan(taken_at).all() else clock(),
        keys=[ContainerKey(name.namespace, name.pod, name.container) for name in names],
        series=[name.id[-ID_LENGTH:] for name in names],
        cpu_seconds=figures.cpu_seconds[rows],
        memory_bytes=figures.memory_bytes[rows],
    )
