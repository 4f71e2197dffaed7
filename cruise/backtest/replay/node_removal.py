"""Simulates consolidation: nodes are drained and removed if all of their pods fit on other nodes."""

from collections.abc import Collection

import numpy as np

from cruise.backtest.replay.cluster import ReplayedCluster
from cruise.backtest.replay.nodes import ReplayedPodState
from cruise.backtest.replay.policy import ConsolidationSizeBasis, ReplayPolicy
from cruise.domain.arrays import Int64Array
from cruise.domain.resources import Resources

DAY_SECONDS = 86400
HOUR_SECONDS = 3600
# Until then most sizes are those of creation, and consolidating by them would use up the day's consolidation.
WARM_UP_SECONDS = 6 * HOUR_SECONDS
# cluster-autoscaler's scale-down-non-empty-candidates-count.
MAX_CANDIDATES = 30
# Karpenter's default disruption budget, as a share of the nodes.
DISRUPTED_SHARE = 0.1


class NodeRemoval:
    """Drains the least requested nodes whose pods fit on the others; never in the first six hours.

    Node autoscalers (cluster-autoscaler, Karpenter) simulate with the pods' present requests. If sizes change at
    admission, the replacement pods may be larger and need a new node, so the moves bring nothing. `REQUESTS` simulates
    this: every hour, up to a tenth of the nodes, and pods may be moved again. `ADMITTED` also tries the sizes of the
    replacement pods, so every removal succeeds: at most once in 24 hours, as many nodes as possible.
    Not simulated: cluster-autoscaler skips nodes that are requested to a half or more, and waits ten minutes after a
    change.
    """

    def __init__(
        self,
        pods: ReplayedPodState,
        cluster: ReplayedCluster,
        policy: ReplayPolicy,
        start: int,
        consolidation: ConsolidationSizeBasis,
    ) -> None:
        self._pods = pods
        self._cluster = cluster
        self._policy = policy
        self._consolidation = consolidation
        self._not_before = start + WARM_UP_SECONDS

    def consolidate(self, time: int) -> None:
        """Drain nodes if a consolidation is due and possible."""
        if time < self._not_before:
            return
        self._not_before = time + HOUR_SECONDS
        plan = _RemovalPlan(self._pods, self._cluster, self._policy, self._consolidation, time)
        order = plan.get_least_requested()
        for first in range(min(MAX_CANDIDATES, len(order))):
            if plan.is_possible(order[first : first + 1]):
                candidates = order[first : first + self._get_max_removed()]
                self._drain(candidates[: plan.count_removable(candidates)], time)
                if self._consolidation is ConsolidationSizeBasis.ADMITTED:
                    self._not_before = time + DAY_SECONDS
                return

    def _get_max_removed(self) -> int:
        nodes = self._pods.nodes.node_count
        return nodes if self._consolidation is ConsolidationSizeBasis.ADMITTED else max(1, int(DISRUPTED_SHARE * nodes))

    def _drain(self, removed: Int64Array, time: int) -> None:
        """Remove nodes and evict their pods."""
        self._pods.nodes.exists[removed] = False
        self._cluster.move(np.flatnonzero(np.isin(self._pods.node, removed)), time)


class _RemovalPlan:
    """Finds the nodes that can be removed at one time; the policy sizes each pod once."""

    def __init__(
        self,
        pods: ReplayedPodState,
        cluster: ReplayedCluster,
        policy: ReplayPolicy,
        consolidation: ConsolidationSizeBasis,
        time: int,
    ) -> None:
        self._pods = pods
        self._cluster = cluster
        self._policy = policy
        self._consolidation = consolidation
        self._view = pods.get_view(time)
        self._admitted_needs: dict[int, Resources] = {}

    def get_least_requested(self) -> Int64Array:
        """Return the nodes whose requests are within the others' free capacity, the least requested first."""
        nodes = self._pods.nodes
        possible = nodes.exists.copy()
        for free, counted in zip(nodes.get_free(), (nodes.cpu_millicores, nodes.memory_bytes), strict=True):
            possible &= counted <= free[nodes.exists].sum() - free
        found = np.flatnonzero(possible)
        # Of equal nodes the last is removed first.
        return found[np.lexsort((-found, nodes.compute_requested_share()[found]))]

    def count_removable(self, order: Int64Array) -> int:
        """Return how many of the first nodes can be removed together, given that one can."""
        possible, impossible = 1, len(order) + 1
        while impossible - possible > 1:
            count = min(2 * possible, (possible + impossible) // 2)
            if self.is_possible(order[:count]):
                possible = count
            else:
                impossible = count
        return possible

    def is_possible(self, removed: Int64Array) -> bool:
        """Return whether all pods of these nodes fit on the others."""
        moving = self._cluster.enqueue(np.flatnonzero(np.isin(self._pods.node, removed)))
        needs = {container: self._pods.get_need(container) for container in moving.tolist()}
        if not self._fit_on_others(needs.values(), removed):
            return False
        if self._consolidation is ConsolidationSizeBasis.REQUESTS:
            return True
        unsized = np.array([container for container in needs if container not in self._admitted_needs], dtype=np.int64)
        if unsized.size:
            sizes = self._policy.admit(unsized, self._view)
            self._admitted_needs.update(zip(unsized.tolist(), self._pods.get_needs(sizes), strict=True))
        return self._fit_on_others([self._admitted_needs[container] for container in needs], removed)

    def _fit_on_others(self, needs: Collection[Resources], removed: Int64Array) -> bool:
        """Return whether pods can be placed on the remaining nodes, one after the other."""
        others = self._pods.nodes.copy()
        others.exists[removed] = False
        if not others.may_fit(needs):
            return False
        for need in needs:
            chosen = others.choose(need)
            if chosen is None:
                return False
            others.add_pod(chosen, need)
        return True
