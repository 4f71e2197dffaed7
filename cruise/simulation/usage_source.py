"""The usage samples of a simulated cluster, as a monitoring system would have them."""

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from cruise.domain.arrays import Int64Array
from cruise.domain.cluster import Snapshot
from cruise.domain.usage import CounterTail, LoadSample, NodeUse, SampleBlock
from cruise.simulation.cluster.cluster import SimulatedCluster
from cruise.simulation.cluster.timeline import MINUTE, seconds
from cruise.simulation.demand.history import Measurements
from cruise.simulation.scrapes import ALL_IN_TIME, LONGEST_GAP_SECONDS, Scrapes


class SimulatedUsage:
    """The UsageSource port over a simulated cluster; a partition is a namespace.

    Samples are on the minute grid and end at the simulated time. What lies before the start is the demand itself. A
    container's CPU demand is its share of a crowded node's CPU × (1 + the share of time it waited). The pressure is
    always known. `scrapes` says which samples are missed, irregular or late: none unless it is given.
    """

    def __init__(self, cluster: SimulatedCluster, scrapes: Scrapes = ALL_IN_TIME) -> None:
        self._cluster = cluster
        self._scrapes = scrapes

    async def partitions(self, snapshot: Snapshot) -> Sequence[str]:
        return sorted({pod.namespace for pod in snapshot.pods})

    async def read(
        self, partition: str, start: int, end: int, tail: CounterTail | None
    ) -> tuple[SampleBlock, CounterTail | None]:
        times = np.arange((start // MINUTE + 1) * MINUTE, end + 1, MINUTE, dtype=np.int64)
        newest = seconds(self._cluster.now) - self._scrapes.late_seconds
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
        if self._scrapes.in_time or not len(times):
            return self._cluster.history.read(partition, times)
        # What a gap at either end is to be filled with lies outside.
        first, last = int(times[0]) - LONGEST_GAP_SECONDS, min(int(times[-1]) + LONGEST_GAP_SECONDS, newest)
        wider = np.arange(first, last + 1, MINUTE, dtype=np.int64)
        seen = self._scrapes.seen(self._cluster.history.read(partition, wider), wider)
        wanted = np.isin(wider, times)
        return seen.at(wanted)

    async def node_use(self, nodes: Collection[str], start: int, end: int) -> NodeUse:
        """Return what the containers of nodes used together, as far as scrapes show it."""
        number_of = {node: number for number, node in enumerate(sorted(nodes))}
        times = np.arange((start // MINUTE + 1) * MINUTE, end + 1, MINUTE, dtype=np.int64)
        cpu, memory = np.zeros((2, len(number_of), len(times)))
        for namespace in await self.partitions(await self._cluster.snapshot()):
            block, _ = await self.read(namespace, start, end, None)
            rows = [row for row, node in enumerate(block.nodes) if node in number_of]
            numbers = [number_of[block.nodes[row]] for row in rows]
            np.add.at(cpu, numbers, np.nan_to_num(block.cpu_demand_millicores[rows]))
            np.add.at(memory, numbers, np.nan_to_num(block.memory_bytes[rows]))
        return NodeUse(list(number_of), times, cpu, memory)

    async def node_loads(self, at: int) -> Mapping[str, LoadSample]:
        """Return each node's runnable CPU demand in cores at the last step until then: what its load average nears."""
        for load in reversed(self._cluster.loads):
            if load.at <= at:
                names = self._cluster.node_names[: len(load.cpu_demand)]
                cores = zip(names, (load.cpu_demand / 1000).tolist(), strict=True)
                return {node: LoadSample(wanted, load.at) for node, wanted in cores}
        return {}
