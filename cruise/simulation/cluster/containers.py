"""The running containers of a simulated cluster in columns, CPU contention and out-of-memory kills."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cruise.domain.arrays import BoolArray, Float64Array, Int64Array
from cruise.domain.cluster import QosClass
from cruise.domain.resources import StatedResources
from cruise.simulation.demand.demand import DemandSource

NEVER = np.iinfo(np.int64).max
NO_DEMAND = -1
_FIRST_CAPACITY = 64
_COLUMNS: dict[str, tuple[Any, float]] = {
    "alive": (np.bool_, 0),
    "node": (np.int64, -1),
    "source": (np.int64, NO_DEMAND),
    "member": (np.int64, 0),
    "started_at": (np.int64, NEVER),
    "cpu_request": (np.float64, 0),
    "cpu_limit": (np.float64, np.inf),
    "memory_limit": (np.float64, np.inf),
    "history_row": (np.int64, -1),
    "last_memory": (np.float64, np.nan),
    "demand_sum": (np.float64, 0),
    "demand_count": (np.int64, 0),
}
MIN_WEIGHT = 2.0  # the minimum of cpu.shares
_GUARANTEED_ADJUSTMENT = -997
_BEST_EFFORT_ADJUSTMENT = 1000


@dataclass(frozen=True, slots=True)
class SimulatedDemand:
    """The demand of the containers at one time; arrays have one entry per row of `rows`.

    A container that is not running has CPU 0 and memory NaN; `known` is a mask of the containers with known demand.
    """

    rows: Int64Array
    node: Int64Array
    cpu_millicores: Float64Array
    memory_bytes: Float64Array
    known: BoolArray


class ContainerTable:
    """A table with one row per container; the rows of removed containers are reused."""

    node: NDArray[np.int64]
    source: NDArray[np.int64]
    member: NDArray[np.int64]
    started_at: NDArray[np.int64]
    cpu_request: NDArray[np.float64]
    cpu_limit: NDArray[np.float64]
    memory_limit: NDArray[np.float64]
    history_row: NDArray[np.int64]
    last_memory: NDArray[np.float64]
    demand_sum: NDArray[np.float64]
    demand_count: NDArray[np.int64]
    alive: NDArray[np.bool_]

    def __init__(self) -> None:
        self._capacity = 0
        self._free: list[int] = []
        self._sources: list[DemandSource] = []
        self._source_of: dict[int, int] = {}
        self._alive_rows: Int64Array | None = None
        self._by_source: list[tuple[DemandSource, Int64Array, Int64Array]] = []
        self._extend(_FIRST_CAPACITY)

    def add(self, node: int, source: DemandSource | None, member: int, history_row: int) -> int:
        """Add a container that is not running yet, and return its row."""
        if not self._free:
            self._extend(2 * self._capacity)
        row = self._free.pop()
        for name, (_, empty) in _COLUMNS.items():
            getattr(self, name)[row] = empty
        self.alive[row] = True
        self.node[row] = node
        self.source[row] = NO_DEMAND if source is None else self._number(source)
        self.member[row] = member
        self.history_row[row] = history_row
        self._alive_rows = None
        return row

    def remove(self, row: int) -> None:
        """Remove a container."""
        self.alive[row] = False
        self._free.append(row)
        self._alive_rows = None

    def set_sizes(self, row: int, requests: StatedResources, limits: StatedResources) -> None:
        """Set the requests and limits that apply from now on."""
        self.cpu_request[row] = requests.cpu_millicores or 0
        self.cpu_limit[row] = limits.cpu_millicores or np.inf
        self.memory_limit[row] = limits.memory_bytes or np.inf

    def compute_demand(self, at: int) -> SimulatedDemand:
        """Return the demand of every container at a time."""
        rows = self._get_alive_rows()
        cpu = np.full(len(rows), np.nan)
        memory = np.full(len(rows), np.nan)
        now = np.int64(at)
        started = self.started_at[rows]
        age = now - started
        for source, places, members in self._by_source:
            cpu[places], memory[places] = source.compute_demand(members, np.asarray(now), age[places])
        running = started <= at
        cpu[~running] = np.nan
        memory[~running] = np.nan
        known = np.isfinite(cpu)
        return SimulatedDemand(rows, self.node[rows], np.where(known, cpu, 0.0), memory, known)

    def _get_alive_rows(self) -> Int64Array:
        if self._alive_rows is None:
            self._alive_rows = np.flatnonzero(self.alive)
            source, member = self.source[self._alive_rows], self.member[self._alive_rows]
            self._by_source = []
            for number in np.unique(source[source != NO_DEMAND]).tolist():
                places = np.flatnonzero(source == number)
                self._by_source.append((self._sources[number], places, member[places]))
        return self._alive_rows

    def _number(self, source: DemandSource) -> int:
        number = self._source_of.get(id(source))
        if number is None:
            number = self._source_of[id(source)] = len(self._sources)
            self._sources.append(source)
        return number

    def _extend(self, capacity: int) -> None:
        for name, (kind, empty) in _COLUMNS.items():
            column = np.full(capacity, empty, dtype=kind)
            column[: self._capacity] = getattr(self, name, column)[: self._capacity]
            setattr(self, name, column)
        # Popped from the end: the lowest row first.
        self._free = list(range(capacity - 1, self._capacity - 1, -1)) + self._free
        self._capacity = capacity


def share_cpu(wanted: Float64Array, weight: Float64Array, node: Int64Array, capacity: Float64Array) -> Float64Array:
    """Return the CPU that each container receives on its node, in millicores.

    Like the kernel's fair scheduler: by weight, at most the demand, and the rest is shared by the others. `node` is
    each container's index in `capacity`.
    """
    received = wanted.copy()
    is_full = np.bincount(node, weights=wanted, minlength=len(capacity)) > capacity
    places = np.flatnonzero(is_full[node])
    if not places.size:
        return received
    left = capacity.copy()
    while places.size:
        weights = np.maximum(weight[places], MIN_WEIGHT)
        node_of_place = node[places]
        total = np.bincount(node_of_place, weights=weights, minlength=len(capacity))
        share = left[node_of_place] * weights / total[node_of_place]
        is_satisfied = wanted[places] <= share
        # If no container demands less than its share, all receive it; else the satisfied ones are settled first.
        has_satisfied = np.bincount(node_of_place[is_satisfied], minlength=len(capacity)) > 0
        final = is_satisfied | ~has_satisfied[node_of_place]
        received[places[final]] = np.minimum(wanted[places[final]], share[final])
        left -= np.bincount(node_of_place[is_satisfied], weights=wanted[places[is_satisfied]], minlength=len(capacity))
        places = places[~final]
    return received


def compute_cpu_pressure(wanted: Float64Array, received: Float64Array) -> Float64Array:
    """Return the share of time in which a container waits for CPU, as pressure stall information reports it."""
    share = np.zeros_like(wanted)
    np.divide(wanted - received, wanted, out=share, where=wanted > 0)
    return np.clip(share, 0.0, 1.0)


def find_containers_over_memory_limit(memory: Float64Array, limit: Float64Array) -> BoolArray:
    """Return a mask of the containers that are killed because their memory exceeds their limit."""
    over: BoolArray = memory > limit  # False for NaN: not running
    return over


def compute_oom_score_adjustment(qos: QosClass, memory_request: int, node_memory: int) -> int:
    """Return the kubelet's `oom_score_adj` of a container. Source: Kubernetes, Node OOM behavior."""
    match qos:
        case QosClass.GUARANTEED:
            return _GUARANTEED_ADJUSTMENT
        case QosClass.BEST_EFFORT:
            return _BEST_EFFORT_ADJUSTMENT
        case QosClass.BURSTABLE:
            return min(max(3, 1000 - 1000 * memory_request // max(1, node_memory)), 999)


def choose_oom_victims(memory: Sequence[float], adjustment: Sequence[int], node_memory: int) -> list[int]:
    """Return the indices of the containers that the kernel kills until the others fit in the node's memory, in order.

    `memory` is in bytes, 0 for containers that are not running. The largest badness is killed first: memory plus the
    adjustment's thousandths of the node's memory; of equal ones the first.
    """
    left = sum(memory)
    badness = [used + share * node_memory / 1000 for used, share in zip(memory, adjustment, strict=True)]
    victims: list[int] = []
    for index in sorted(range(len(memory)), key=lambda index: (-badness[index], index)):
        if left <= node_memory:
            break
        if memory[index] > 0:
            victims.append(index)
            left -= memory[index]
    return victims
