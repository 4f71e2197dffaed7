"""One node's time line, pass by pass."""

import numpy as np

from cruise.backtest.replay.demand import Demand
from cruise.backtest.replay.pods import Pods
from cruise.backtest.replay.policy import Decision
from cruise.domain.arrays import Int64Array
from cruise.domain.backtest import NodeTimeLine


def node_name(index: int) -> str:
    """Return what the node of an index is called."""
    return f"node-{index:03d}"


class TimeLineRecorder:
    """Keeps one entry an interval: requests, base and headroom as they were in force in it, and the use.

    A node that is not there has zeros; `node` is its name, None for the first.
    """

    def __init__(self, pods: Pods, node: str | None) -> None:
        self._pods = pods
        self._name = node_name(0) if node is None else node
        digits = self._name.removeprefix("node-")
        self._index = int(digits) if digits.isdecimal() and node_name(int(digits)) == self._name else None
        self._rows: list[tuple[int, ...]] = []
        self._wanted: list[tuple[int, int, int, int]] = []
        self._now = (0, 0, 0, 0)
        self._known = False

    def used(self, at: int, cpu: Demand, memory: Demand | None) -> None:
        """Take in an interval, before anything is changed at its end."""
        nodes = self._pods.nodes
        requested = (0, 0)
        if self._index is not None and self._index < len(nodes.alive):
            requested = int(nodes.cpu_millicores[self._index]), int(nodes.memory_bytes[self._index])
        self._rows.append((at, *requested, self._peak(cpu), 0 if memory is None else self._peak(memory)))
        self._wanted.append(self._now)

    def _peak(self, demand: Demand) -> int:
        (place,) = np.nonzero(demand.places.nodes == self._index)
        return int(np.ceil(demand.sums[:, place].max())) if place.size else 0

    def decided(self, decision: Decision) -> None:
        """Take in what a policy thinks that the node needs from now on."""
        if decision.base is None or decision.headroom is None:
            return
        self._known = True
        columns = (*decision.base, *decision.headroom)
        cpu_base, memory_base, cpu_headroom, memory_headroom = (
            int(column[self._index]) if self._index is not None and self._index < len(column) else 0
            for column in columns
        )
        self._now = (cpu_base, memory_base, cpu_headroom, memory_headroom)

    def time_line(self) -> NodeTimeLine:
        """Return the whole line."""
        rows = np.array(self._rows, dtype=np.int64).reshape(-1, 5)
        wanted = np.array(self._wanted, dtype=np.int64).reshape(-1, 4)
        base: list[Int64Array | None] = [column.copy() for column in wanted.T] if self._known else [None] * 4
        return NodeTimeLine(
            self._name,
            rows[:, 0].copy(),
            self._pods.nodes.allocatable,
            requested_cpu_millicores=rows[:, 1].copy(),
            requested_memory_bytes=rows[:, 2].copy(),
            peak_cpu_millicores=rows[:, 3].copy(),
            peak_memory_bytes=rows[:, 4].copy(),
            base_cpu_millicores=base[0],
            base_memory_bytes=base[1],
            headroom_cpu_millicores=base[2],
            headroom_memory_bytes=base[3],
        )
