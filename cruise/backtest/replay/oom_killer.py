"""Simulates out-of-memory kills: at a container's own limit, or the kernel's choice on a node without free memory."""

import numpy as np

from cruise.backtest.replay.cluster import ReplayedCluster
from cruise.backtest.replay.nodes import ReplayedPodState
from cruise.backtest.replay.policy import ReplayedOomKill, ReplayPolicy
from cruise.backtest.replay.scoring import ChangeCounts, IntervalUsage
from cruise.domain.arrays import BoolArray, Float32Array, Float64Array, Int64Array
from cruise.domain.cluster import QosClass
from cruise.simulation.cluster.containers import choose_oom_victims, compute_oom_score_adjustment


class OomKillSimulation:
    """Kills containers, sample by sample; the reaction to a kill takes effect at the next sample.

    A killed container continues with the usage recorded next. It is killed at most once per interval.
    """

    def __init__(
        self, pods: ReplayedPodState, cluster: ReplayedCluster, policy: ReplayPolicy, changes: ChangeCounts
    ) -> None:
        self._pods = pods
        self._cluster = cluster
        self._policy = policy
        self._changes = changes

    def kill(self, rows: Float32Array, usage: IntervalUsage, times: Int64Array) -> None:
        """Make the kills of an interval; `rows` is its matrix (times, containers) of memory samples."""
        first = self._find_first_row(usage)
        may_be_killed = np.ones(len(self._pods.node), dtype=np.bool_)
        for row in range(first, len(rows)):
            used = np.where(self._pods.node >= 0, np.nan_to_num(rows[row]), 0.0).astype(np.float64)
            for kill in self._find_kills(used, int(times[row]), may_be_killed):
                may_be_killed[kill.container] = False
                self._changes.oom_kills[kill.container] += 1
                reaction = self._policy.react_to_oom_kill(kill, self._pods.get_view(kill.time))
                self._cluster.apply_oom_reaction(kill.container, reaction, kill.time)

    def _find_first_row(self, usage: IntervalUsage) -> int:
        """Return the first row with a kill; sizes and placements do not change before it."""
        kills = (usage.used > self._get_limits()[usage.placements.order]).any(axis=1)
        kills |= (usage.node_sums > self._pods.nodes.allocatable.memory_bytes).any(axis=1)
        return int(kills.argmax()) if kills.any() else len(usage.node_sums)

    def _get_limits(self) -> Float64Array:
        limits = self._pods.sizes.memory_limit_bytes
        return np.where(limits > 0, limits, np.inf)

    def _find_kills(self, used: Float64Array, time: int, may_be_killed: BoolArray) -> list[ReplayedOomKill]:
        """Return the kills of one sample: first at limits, in the order of containers, then node by node."""
        over = used > self._get_limits()
        found = [(container, True) for container in np.flatnonzero(over).tolist()]
        found += [(container, False) for container in self._choose_victims(np.where(over, 0.0, used))]
        return [ReplayedOomKill(one, time, int(used[one]), by_limit) for one, by_limit in found if may_be_killed[one]]

    def _choose_victims(self, used: Float64Array) -> list[int]:
        running = np.flatnonzero(self._pods.node >= 0)
        node_of_pod = self._pods.node[running]
        capacity = self._pods.nodes.allocatable.memory_bytes
        found: list[int] = []
        for node in np.flatnonzero(np.bincount(node_of_pod, weights=used[running]) > capacity).tolist():
            on_node = running[node_of_pod == node]
            requests = self._pods.sizes.memory_bytes[on_node].tolist()
            adjustments = [compute_oom_score_adjustment(QosClass.BURSTABLE, request, capacity) for request in requests]
            victims = choose_oom_victims(used[on_node].tolist(), adjustments, capacity)
            found.extend(on_node[victims].tolist())
        return found
