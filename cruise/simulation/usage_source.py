"""The usage samples of a simulated cluster, as a monitoring system would have them."""

from collections.abc import Mapping, Sequence

import numpy as np

from cruise.domain.cluster import Snapshot
from cruise.domain.usage import CounterTail, SampleBlock
from cruise.simulation.cluster.cluster import SimulatedCluster
from cruise.simulation.cluster.timeline import MINUTE, seconds


class SimulatedUsage:
    """The UsageSource port over a simulated cluster; a partition is a namespace.

    Samples are on the minute grid and end at the simulated time. What lies before the start is the demand itself. A
    container's CPU demand is its share of a crowded node's CPU × (1 + the share of time it waited). The pressure is
    always known.
    """

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster

    async def partitions(self, snapshot: Snapshot) -> Sequence[str]:
        return sorted({pod.namespace for pod in snapshot.pods})

    async def read(
        self, partition: str, start: int, end: int, tail: CounterTail | None
    ) -> tuple[SampleBlock, CounterTail | None]:
        times = np.arange((start // MINUTE + 1) * MINUTE, end + 1, MINUTE, dtype=np.int64)
        known = times <= seconds(self._cluster.now)
        found = self._cluster.history.read(partition, times[known])
        rows, later = len(found.keys), len(times) - int(known.sum())
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

    async def node_loads(self, at: int) -> Mapping[str, float]:
        """Return each node's runnable CPU demand in cores at the last step until then: what its load average nears."""
        for load in reversed(self._cluster.loads):
            if load.at <= at:
                return dict(zip(self._cluster.node_names, (load.cpu_demand / 1000).tolist(), strict=True))
        return {}
