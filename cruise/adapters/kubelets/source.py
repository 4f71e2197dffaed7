"""The usage port on the kubelets themselves."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from zlib import crc32

import numpy as np
import structlog

from cruise.adapters.kubelets.exposition import ROOT_GROUP, Figures, figures_of
from cruise.adapters.kubelets.readings import Readings
from cruise.adapters.kubelets.settings import KubeletSettings
from cruise.adapters.prometheus.counter_rows import CountersBefore, Counting
from cruise.adapters.prometheus.counters import usage_of
from cruise.adapters.prometheus.node_loads import cores_of, load_of_root
from cruise.adapters.prometheus.scrapes import HOLE_SECONDS
from cruise.adapters.prometheus.usage_questions import MANY_CORES, use_of_nodes, with_steps_before
from cruise.domain.arrays import Float64Array, Int64Array
from cruise.domain.cluster import Node, Snapshot
from cruise.domain.usage import NO_NODE_USE, ContainerKey, CounterTail, LoadSample, NodeUse, SampleBlock
from cruise.errors import BadInput, CruiseError, Unavailable

log = structlog.get_logger()

# A node's containers are in one partition for as long as there is the node, whatever others come and go.
PARTITIONS = tuple(f"kubelets-{number}" for number in range(8))

Ask = Callable[[Node], Awaitable[bytes]]


class KubeletSource:
    """Usage as kubelets tell it, as far back as `look` read it; steps before that have no samples.

    `ask` returns what one kubelet answers. Nodes are those of the snapshot last given to `partitions`.
    """

    def __init__(self, settings: KubeletSettings, ask: Ask) -> None:
        self._settings = settings
        self._ask = ask
        self._at_once = asyncio.Semaphore(settings.concurrency)
        self._readings = Readings(settings.kept_seconds)
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

    async def partitions(self, snapshot: Snapshot) -> Sequence[str]:
        self._asked_for = True
        self._nodes = {node.name: node for node in snapshot.nodes}
        self._cores = cores_of(snapshot)
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

    async def look(self, nodes: Collection[str], clock: Callable[[], float]) -> None:
        """Read some nodes once, a few at a time; what cannot be read is among the `failures`."""
        await asyncio.gather(*(self._look_at(self._nodes[name], clock) for name in nodes if name in self._nodes))

    def due(self, at: float, every_seconds: float) -> list[str]:
        """Return the nodes whose turn is within the second from `at` on, each at a moment of its own.

        There are none where nobody has asked for usage for long, as in a process that does not lead.
        """
        if self._asked_for:
            self._asked_for, self._asked_for_at = False, at
        if at - self._asked_for_at > self._settings.kept_seconds:
            return []
        moment = int(at % every_seconds)
        return [name for name in self._nodes if crc32(name.encode()) % int(every_seconds) == moment]

    def refuse_silence(self, nodes: Collection[str], end: int) -> None:
        """Raise what keeps all of some nodes from being read until a time; single ones may be down."""
        silent = [name for name in nodes if (self._readings.read_at(name) or -np.inf) <= end - HOLE_SECONDS]
        why = [self.failures[name] for name in silent if name in self.failures]
        if not why or len(silent) < len(nodes):
            return
        first = next((error for error in why if isinstance(error, BadInput)), why[0])
        raise type(first)(f"{first} ({len(why)} of {len(nodes)} nodes cannot be read)")

    async def read(
        self, partition: str, start: int, end: int, tail: CounterTail | None
    ) -> tuple[SampleBlock, CounterTail | None]:
        step = self._settings.step_seconds
        if partition not in PARTITIONS or start % step or end % step or (tail is not None and tail.at != start):
            raise ValueError(f"cannot read {partition!r} from {start} to {end} every {step} s")
        times = np.arange(start + step, end + 1, step, dtype=np.int64)
        nodes = self._of_partition[partition]
        self.refuse_silence([name for name in self._nodes if self._running[name]], end)
        # What was never read has no samples, and costs nothing.
        since = self._known_since(nodes)
        if not len(times) or end < since:
            return _without_samples(times), None if tail is None else replace(tail, at=end)
        # A read without a tail takes no value of its first step for a scrape.
        known = times[times > since - 2 * step]
        if tail is not None and known[0] - start <= HOLE_SECONDS:
            # The counters of before go on.
            known = times
        elif known[0] - start > step:
            tail = None
        answers = await asyncio.to_thread(self._readings.answers, nodes, known)
        counting = Counting(step, self._cores_of(nodes), self._settings.plausible)
        before = CountersBefore.of(tail)
        block, tail = usage_of(answers, known, before, counting, self._pressured_nodes, self._ages_of, self._lately)
        return _from(block, times), tail

    async def node_use(self, nodes: Collection[str], start: int, end: int) -> NodeUse:
        step = self._settings.step_seconds
        times = np.arange(start + step, end + 1, step, dtype=np.int64)
        if not (nodes and len(times)):
            return NO_NODE_USE
        wider = with_steps_before(times, step)
        answers = await asyncio.to_thread(self._readings.answers, nodes, wider, roots=True)
        return use_of_nodes(answers.cpu_seconds, answers.memory_bytes, wider, step, self._cores_of(nodes))

    async def node_loads(self, at: int) -> Mapping[str, LoadSample]:
        """Return the loads of root control groups between the last two readings: kubelets tell no load average."""
        found = {}
        for name, cores in self._cores.items():
            two = self._readings.last_two(name)
            sample = None if two is None else _load(*two, cores)
            if sample is not None and at - HOLE_SECONDS < sample.at <= at:
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
            self._readings.add(node.name, await asyncio.to_thread(figures_of_node, body, node), at)
        except CruiseError as error:
            if str(error) != str(self.failures.get(node.name)):
                log.warning("kubelet not read", node=node.name, why=str(error))
            self.failures[node.name] = error
        else:
            self.failures.pop(node.name, None)
        finally:
            self._under_way.discard(node.name)

    def _known_since(self, nodes: Collection[str]) -> float:
        return min((since for name in nodes if (since := self._readings.known_since(name)) is not None), default=np.inf)

    def _cores_of(self, nodes: Collection[str]) -> float:
        return max((self._cores.get(name, 0.0) for name in nodes), default=0.0) or MANY_CORES

    def _ages_of(self, nodes: Collection[str], first: int, last: int) -> Mapping[str, Float64Array]:
        times = np.arange(first, last + 1, self._settings.step_seconds, dtype=np.int64)
        return self._readings.ages(nodes, times)


def figures_of_node(body: bytes, node: Node) -> Figures:
    """Read what a node answers. Raises Unavailable where it is not what a kubelet tells."""
    try:
        return figures_of(body, node.name)
    except BadInput as error:
        raise Unavailable(f"what node {node.name} answers is not what a kubelet tells: {error}") from error


def _load(earlier: Figures, later: Figures, cores: float) -> LoadSample | None:
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
    return LoadSample(load_of_root(used / seconds, max(0.0, np.nan_to_num(waited)) / seconds, cores), float(now[two]))


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
        refused=None
        if block.refused is None
        else np.column_stack((np.zeros(absent.shape, dtype=np.bool_), block.refused)),
    )
