"""The usage samples of a simulated cluster, with missed, irregular and late scrapes."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cruise.domain.arrays import BoolArray, Float32Array, Float64Array, Int64Array
from cruise.domain.cluster import ClusterSnapshot
from cruise.domain.usage import NodeLoadAverage, NodeUsage, PartitionCounterTail, SampleBlock
from cruise.simulation.cluster.cluster import SimulatedCluster
from cruise.simulation.cluster.state import MINUTE, convert_to_seconds
from cruise.simulation.demand.demand import Measurements

# The increase over a longer gap does not tell its minutes, and Prometheus does not repeat older values.
MAX_GAP_SECONDS = 300
_LONGEST_GAP = MAX_GAP_SECONDS // MINUTE


@dataclass(frozen=True, slots=True)
class ScrapeFaults:
    """The faults of a monitoring system.

    `missed` returns a mask of the scrapes of a node that are missed, for some times. A sample is available after
    `late_seconds`. `ages` returns by how many seconds, less than 60, scrapes precede the times of their samples.
    """

    missed: Callable[[str, Int64Array], BoolArray] | None = None
    late_seconds: int = 0
    ages: Callable[[str, Int64Array], Float64Array] | None = None

    @property
    def are_regular(self) -> bool:
        """Whether no scrape is missed or irregular."""
        return self.missed is None and self.ages is None

    def get_visible(self, measured: Measurements, times: Int64Array) -> Measurements:
        """Return samples, a minute apart, as they appear with these scrapes.

        CPU comes from counters: the increase between two scrapes is averaged over the time between them, across gaps of
        up to five minutes; longer gaps are unknown. Memory is the last scraped value for the same time. A gap without a
        later scrape is unknown.
        """
        if self.are_regular:
            return measured
        cpu, memory = measured.cpu_demand_millicores.copy(), measured.memory_bytes.copy()
        if self.ages is not None:
            ages = {node: self.ages(node, times) for node in set(measured.nodes)}
            for row, node in enumerate(measured.nodes):
                cpu[row] = _between(cpu[row], times, times - ages[node])
                earlier = np.concatenate((memory[row, :1], memory[row, :-1]))
                memory[row] = np.where(ages[node] > 0, earlier, memory[row])
        if self.missed is None:
            return Measurements(measured.keys, measured.nodes, cpu, memory)
        missed = {node: self.missed(node, times) for node in set(measured.nodes)}
        for row, node in enumerate(measured.nodes):
            for before, after in _gaps(missed[node]):
                known = before >= 0 and after < len(times) and after - before <= _LONGEST_GAP
                gap = slice(before + 1, after + 1)
                cpu[row, gap] = cpu[row, gap].mean() if known else np.nan
                repeated = memory[row, before] if before >= 0 else np.nan
                memory[row, before + 1 : after] = np.nan
                memory[row, before + 1 : min(after, before + _LONGEST_GAP)] = repeated
        return Measurements(measured.keys, measured.nodes, cpu, memory)


PERFECT_SCRAPES = ScrapeFaults()


def _between(cpu: Float32Array, times: Int64Array, scraped: Float64Array) -> Float32Array:
    """Return the usage between consecutive scrapes, from the usage of the minutes that end at the times."""
    counter = np.concatenate(([0.0], np.cumsum(np.nan_to_num(cpu))))
    shown = np.interp(scraped, np.concatenate((times[:1] - MINUTE, times)), counter) * MINUTE
    use = cpu.copy()
    use[1:] = np.diff(shown) / np.diff(scraped)
    # Parts of unknown minutes are unknown.
    use[1:][np.isnan(cpu[1:]) | np.isnan(cpu[:-1])] = np.nan
    return use


def _gaps(missed: BoolArray) -> list[tuple[int, int]]:
    """Return the scrapes before and after each gap; -1 or the length if there is none."""
    done = np.concatenate(([-1], np.flatnonzero(~missed), [len(missed)]))
    wide = np.flatnonzero(np.diff(done) > 1)
    return [(int(done[place]), int(done[place + 1])) for place in wide]


class SimulatedUsageSource:
    """The UsageSourcePort port over a simulated cluster; a partition is a namespace.

    Samples are on the minute grid until the simulated time. Before the start they are the demand itself. A container's
    CPU demand is its usage × (1 + the share of time it waited for CPU); that pressure is always known.
    """

    def __init__(self, cluster: SimulatedCluster, scrapes: ScrapeFaults = PERFECT_SCRAPES) -> None:
        self._cluster = cluster
        self._scrapes = scrapes

    async def list_partitions(self, snapshot: ClusterSnapshot) -> Sequence[str]:
        return sorted({pod.namespace for pod in snapshot.pods})

    async def read(
        self, partition: str, start: int, end: int, tail: PartitionCounterTail | None
    ) -> tuple[SampleBlock, PartitionCounterTail | None]:
        times = np.arange((start // MINUTE + 1) * MINUTE, end + 1, MINUTE, dtype=np.int64)
        newest = convert_to_seconds(self._cluster.now) - self._scrapes.late_seconds
        found = self._read(partition, times[times <= newest], newest)
        rows, later = len(found.keys), int(np.count_nonzero(times > newest))
        block = SampleBlock(
            keys=found.keys,
            times=times,
            cpu_demand_millicores=np.hstack(
                (found.cpu_demand_millicores, np.full((rows, later), np.nan, dtype=np.float32))
            ),
            memory_bytes=np.hstack((found.memory_bytes, np.full((rows, later), np.nan))),
            psi_known=np.ones(rows, dtype=np.bool_),
            nodes=found.nodes,
        )
        return block, None

    def _read(self, partition: str, times: Int64Array, newest: int) -> Measurements:
        if self._scrapes.are_regular or not len(times):
            return self._cluster.history.read(partition, times)
        # A gap at either end is filled from samples outside.
        first, last = int(times[0]) - MAX_GAP_SECONDS, min(int(times[-1]) + MAX_GAP_SECONDS, newest)
        wider = np.arange(first, last + 1, MINUTE, dtype=np.int64)
        seen = self._scrapes.get_visible(self._cluster.history.read(partition, wider), wider)
        wanted = np.isin(wider, times)
        return seen.get_time(wanted)

    async def read_node_usage(self, nodes: Collection[str], start: int, end: int) -> NodeUsage:
        """Return the usage of the containers of each node, as scraped."""
        number_by_key = {node: number for number, node in enumerate(sorted(nodes))}
        times = np.arange((start // MINUTE + 1) * MINUTE, end + 1, MINUTE, dtype=np.int64)
        cpu, memory = np.zeros((2, len(number_by_key), len(times)))
        for namespace in await self.list_partitions(await self._cluster.snapshot()):
            block, _ = await self.read(namespace, start, end, None)
            rows = [row for row, node in enumerate(block.nodes) if node in number_by_key]
            numbers = [number_by_key[block.nodes[row]] for row in rows]
            np.add.at(cpu, numbers, np.nan_to_num(block.cpu_demand_millicores[rows]))
            np.add.at(memory, numbers, np.nan_to_num(block.memory_bytes[rows]))
        return NodeUsage(list(number_by_key), times, cpu, memory)

    async def read_node_loads(self, at: int) -> Mapping[str, NodeLoadAverage]:
        """Return each node's CPU demand in cores at the last step until then, which its load average approaches."""
        for load in reversed(self._cluster.loads):
            if load.at <= at:
                names = self._cluster.node_names[: len(load.cpu_demand)]
                cores = zip(names, (load.cpu_demand / 1000).tolist(), strict=True)
                return {node: NodeLoadAverage(wanted, load.at) for node, wanted in cores}
        return {}
