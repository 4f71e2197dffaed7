"""Containers killed for lack of memory in an interval: at their own limit, or as the kernel chooses on a full node."""

import numpy as np

from cruise.backtest.replay.cluster import ReplayedCluster
from cruise.backtest.replay.pods import ReplayedPodState
from cruise.backtest.replay.policy import ReplayedOomKill, ReplayPolicy
from cruise.backtest.replay.scoring import ChangeCounts, IntervalUsage
from cruise.domain.cluster import QosClass
from cruise.domain.resources import BoolArray, Float32Array, Float64Array, Int64Array
from cruise.simulation.cluster.containers import choose_oom_victims, compute_oom_score_adjustment


class OomKillSimulation:
    """Goes through the samples of an interval; a kill's reaction is in force at the next sample.

    A killed container runs on at the next sample with the use recorded then, and counts as killed once an interval.
    """

    def __init__(
        self, pods: ReplayedPodState, cluster: ReplayedCluster, policy: ReplayPolicy, churn: ChangeCounts
    ) -> None:
        self._pods = pods
        self._cluster = cluster
        self._policy = policy
        self._churn = churn

    def kill(self, rows: Float32Array, demand: IntervalUsage, times: Int64Array) -> None:
        """Kill the containers that an interval's memory samples (one row a time, one column a container) call for."""
        first = self._first_row(demand)
        spared = np.ones(len(self._pods.node), dtype=np.bool_)
        for row in range(first, len(rows)):
            used = np.where(self._pods.node >= 0, np.nan_to_num(rows[row]), 0.0).astype(np.float64)
            for kill in self._kills(used, int(times[row]), spared):
                spared[kill.container] = False
                self._churn.oom_kills[kill.container] += 1
                reaction = self._policy.react_to_oom_kill(kill, self._pods.get_view(kill.at))
                self._cluster.apply_oom_reaction(kill.container, reaction, kill.at)

    def _first_row(self, demand: IntervalUsage) -> int:
        """Return the first row with a kill: before it sizes and places stay what they are."""
        kills = (demand.used > self._limits()[demand.placements.order]).any(axis=1)
        kills |= (demand.sums > self._pods.nodes.allocatable.memory_bytes).any(axis=1)
        return int(kills.argmax()) if kills.any() else len(demand.sums)

    def _limits(self) -> Float64Array:
        limits = self._pods.sizes.memory_limit_bytes
        return np.where(limits > 0, limits, np.inf)

    def _kills(self, used: Float64Array, at: int, spared: BoolArray) -> list[ReplayedOomKill]:
        """Return the kills of one sample: by limit in the order of containers, then node by node."""
        over = used > self._limits()
        found = [(container, True) for container in np.flatnonzero(over).tolist()]
        found += [(container, False) for container in self._victims(np.where(over, 0.0, used))]
        return [ReplayedOomKill(one, at, int(used[one]), by_limit) for one, by_limit in found if spared[one]]

    def _victims(self, held: Float64Array) -> list[int]:
        running = np.flatnonzero(self._pods.node >= 0)
        of_node = self._pods.node[running]
        capacity = self._pods.nodes.allocatable.memory_bytes
        found: list[int] = []
        for node in np.flatnonzero(np.bincount(of_node, weights=held[running]) > capacity).tolist():
            there = running[of_node == node]
            requests = self._pods.sizes.memory_bytes[there].tolist()
            adjustments = [compute_oom_score_adjustment(QosClass.BURSTABLE, request, capacity) for request in requests]
            victims = choose_oom_victims(held[there].tolist(), adjustments, capacity)
            found.extend(there[victims].tolist())
        return found
