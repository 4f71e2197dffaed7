"""Computes one step of a simulated cluster's load: CPU shares, out-of-memory kills and recorded usage."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cruise.domain.arrays import Float64Array, Int64Array
from cruise.simulation.cluster.containers import (
    SimulatedDemand,
    choose_oom_victims,
    compute_cpu_pressure,
    compute_oom_score_adjustment,
    find_containers_over_memory_limit,
    share_cpu,
)
from cruise.simulation.cluster.kubelet import Kubelet
from cruise.simulation.cluster.state import MINUTE, SimulatedClusterState

LOAD_RETENTION_SECONDS = 3600
_STARVED_BELOW = 0.99


@dataclass(frozen=True, slots=True)
class SimulatedNodeLoad:
    """The load of every node at one time: CPU demand and usage in millicores, memory usage in bytes."""

    at: int
    cpu_demand: Float64Array
    cpu_used: Float64Array
    memory_used: Float64Array


class LoadSimulation:
    """Computes demand, CPU usage and out-of-memory kills of every step, and records the usage."""

    def __init__(self, state: SimulatedClusterState, kubelet: Kubelet) -> None:
        self._state = state
        self._kubelet = kubelet
        self._step = state.settings.step_seconds
        self._sample_step = max(MINUTE, self._step)
        self._observed: tuple[Int64Array, Float64Array] = (np.empty(0, np.int64), np.empty(0))
        self.loads: deque[SimulatedNodeLoad] = deque(maxlen=max(2, LOAD_RETENTION_SECONDS // self._step))

    def measure(self, at: int) -> Sequence[int]:
        """Compute one step of load; return the rows of the containers to kill, in order."""
        table, demand = self._state.containers, self._state.containers.compute_demand(at)
        rows, nodes = demand.rows, len(self._state.node_names)
        wanted = np.minimum(demand.cpu_millicores, table.cpu_limit[rows])
        received = share_cpu(
            wanted, table.cpu_request[rows], demand.node, self._state.allocatable_cpu.astype(np.float64)
        )
        waiting = compute_cpu_pressure(demand.cpu_millicores, received)
        limit = table.memory_limit[rows]
        is_over_limit = find_containers_over_memory_limit(demand.memory_bytes, limit)
        memory_used = np.nan_to_num(np.minimum(demand.memory_bytes, limit))
        self.loads.append(
            SimulatedNodeLoad(
                at,
                _sum_by_node(demand.node, wanted, nodes),
                _sum_by_node(demand.node, received, nodes),
                _sum_by_node(demand.node, memory_used, nodes),
            )
        )
        starved = demand.known & (received < _STARVED_BELOW * demand.cpu_millicores)
        self._state.counts.container_seconds += self._step * int(np.count_nonzero(demand.known))
        self._state.counts.starved_container_seconds += self._step * int(np.count_nonzero(starved))
        kills: list[int] = rows[is_over_limit].tolist()
        kills += self._find_exhausted(demand, np.where(is_over_limit, 0.0, memory_used))
        memory = np.where(demand.known, np.minimum(demand.memory_bytes, limit), np.nan)
        self._record_measurements(at, demand, np.where(demand.known, received * (1 + waiting), np.nan), memory)
        self._observed = (rows, memory)
        return kills

    def observe(self, at: int) -> None:
        """Store the memory of running containers as the last observation, which a later kill reports."""
        rows, memory = self._observed
        self._state.containers.last_memory[rows] = np.where(
            self._state.containers.started_at[rows] <= at, memory, np.nan
        )

    def _find_exhausted(self, demand: SimulatedDemand, memory_used: Float64Array) -> list[int]:
        """Return the rows of the containers that the kernel kills on nodes without free memory."""
        allocatable = self._state.allocatable_memory
        used = _sum_by_node(demand.node, memory_used, len(allocatable))
        found: list[int] = []
        for index in np.flatnonzero(used > allocatable).tolist():
            places = np.flatnonzero(demand.node == index)
            rows = demand.rows[places].tolist()
            capacity = int(allocatable[index])
            order = sorted(range(len(rows)), key=lambda place: self._get_container_key(rows[place]))
            victims = choose_oom_victims(
                [float(memory_used[places[place]]) for place in order],
                [self._compute_adjustment(rows[place], capacity) for place in order],
                capacity,
            )
            found.extend(rows[order[victim]] for victim in victims)
        return found

    def _get_container_key(self, row: int) -> tuple[str, str, str]:
        record, name = self._kubelet.owner_of_row[row]
        return (*record.key, name)

    def _compute_adjustment(self, row: int, node_memory: int) -> int:
        record, name = self._kubelet.owner_of_row[row]
        container = next(one for one in record.pod.containers if one.name == name)
        return compute_oom_score_adjustment(record.pod.qos, container.requests.memory_bytes or 0, node_memory)

    def _record_measurements(self, at: int, demand: SimulatedDemand, cpu: Float64Array, memory: Float64Array) -> None:
        """Record the mean CPU demand since the last recorded time, and the present memory."""
        rows, table = demand.rows, self._state.containers
        if self._step < self._sample_step:
            known = rows[demand.known]
            table.demand_sum[known] += cpu[demand.known]
            table.demand_count[known] += 1
            if at % self._sample_step:
                return
            cpu = _divide(table.demand_sum[rows], table.demand_count[rows])
            table.demand_sum[rows] = 0
            table.demand_count[rows] = 0
        self._state.history.record(at, table.history_row[rows], cpu, memory)


def _sum_by_node(node: Int64Array, weights: Float64Array, nodes: int) -> Float64Array:
    return np.bincount(node, weights=weights, minlength=nodes).astype(np.float64)


def _divide(total: Float64Array, count: Int64Array) -> Float64Array:
    mean = np.full(total.shape, np.nan)
    np.divide(total, count, out=mean, where=count > 0)
    return mean
