"""A usage source with known samples that records its queries, and rejects those that a test names."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from cruise.domain.arrays import Float64Array, Int64Array
from cruise.domain.cluster import ClusterSnapshot
from cruise.domain.usage import (
    NO_NODE_USAGE,
    ContainerKey,
    NodeLoadAverage,
    NodeUsage,
    PartitionCounterTail,
    SampleBlock,
)
from cruise.errors import CruiseError

STEP = 60


@dataclass(frozen=True)
class Ask:
    """One read, and the time of the tail that it continued from."""

    partition: str
    start: int
    end: int
    continued_from: int | None


@dataclass
class RecordedUsage:
    """Containers by partition; `cpu` and `memory` return a container's samples at some times, NaN for none.

    `refuse` names the error with which a read ends, if it does. `node` is where all run, of which `node_millicores` is
    known, in all that it used.
    """

    containers: Mapping[str, Sequence[ContainerKey]]
    cpu: Callable[[ContainerKey, Int64Array], Float64Array]
    memory: Callable[[ContainerKey, Int64Array], Float64Array]
    refuse: Callable[[Ask], CruiseError | None] = lambda ask: None
    asked: list[Ask] = field(default_factory=list)
    step: int = STEP
    node: str = ""
    node_millicores: float | None = None
    nodes_asked: list[tuple[str, ...]] = field(default_factory=list)

    async def list_partitions(self, snapshot: ClusterSnapshot) -> Sequence[str]:
        return sorted(self.containers)

    async def read(
        self, partition: str, start: int, end: int, tail: PartitionCounterTail | None
    ) -> tuple[SampleBlock, PartitionCounterTail | None]:
        ask = Ask(partition, start, end, None if tail is None else tail.at)
        self.asked.append(ask)
        error = self.refuse(ask)
        if error is not None:
            raise error
        times = np.arange(start + self.step, end + 1, self.step, dtype=np.int64)
        keys = list(self.containers[partition])
        nothing = np.empty((0, len(times)))
        block = SampleBlock(
            keys,
            times,
            np.vstack([nothing, *(self.cpu(key, times) for key in keys)]).astype(np.float32),
            np.vstack([nothing, *(self.memory(key, times) for key in keys)]),
            np.ones(len(keys), dtype=np.bool_),
            [self.node] * len(keys) if self.node else (),
        )
        counters = np.full(len(keys), float(end))
        return block, PartitionCounterTail(end, keys, ["id"] * len(keys), counters, counters, np.full(len(keys), end))

    async def read_node_usage(self, nodes: Collection[str], start: int, end: int) -> NodeUsage:
        self.nodes_asked.append(tuple(nodes))
        if self.node_millicores is None:
            return NO_NODE_USAGE
        times = np.arange(start + self.step, end + 1, self.step, dtype=np.int64)
        known = np.full((1, len(times)), self.node_millicores)
        return NodeUsage([self.node], times, known, np.full((1, len(times)), np.nan))

    async def read_node_loads(self, at: int) -> Mapping[str, NodeLoadAverage]:
        return {}

    def times_asked(self) -> list[tuple[str, int]]:
        """Every (partition, grid time) that was queried, as often as it was."""
        return [
            (ask.partition, at) for ask in self.asked for at in range(ask.start + self.step, ask.end + 1, self.step)
        ]
