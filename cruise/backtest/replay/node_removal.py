"""Giving nodes back: a node is emptied where all of its pods have room elsewhere."""

from collections.abc import Collection

import numpy as np

from cruise.backtest.replay.cluster import ReplayedCluster
from cruise.backtest.replay.pods import ReplayedPodState
from cruise.backtest.replay.policy import ConsolidationSizes, ReplayPolicy
from cruise.domain.resources import Int64Array, Resources

DAY_SECONDS = 86400
HOUR_SECONDS = 3600
# Until then most sizes are still those of creation, and a consolidation of them would be spent for the day.
WARM_UP_SECONDS = 6 * HOUR_SECONDS
# As many as a cluster autoscaler looks into at a time (its scale-down-non-empty-candidates-count).
MAX_CANDIDATES = 30
# Of the nodes, as many as Karpenter disrupts at a time (its disruption budget).
DISRUPTED_SHARE = 0.1


class NodeRemoval:
    """Empties nodes, the least requested first, where their pods have room elsewhere; none in the first six hours.

    Real autoscalers (Kubernetes' cluster-autoscaler, Karpenter) simulate with the requests that pods have; where sizes
    change at creation the new pods may be larger, and another node is added for them, so that pods were moved in vain.
    By `REQUESTS` it goes as there: every hour, up to a tenth of the nodes, and what was moved in vain may be moved
    again. By `ADMITTED` the simulation tries the sizes as well that the new pods would be created with, and places them
    as kube-scheduler will, so that what is begun succeeds: once in 24 hours at most, as many nodes as can.
    cluster-autoscaler also leaves nodes alone that are requested to a half or more and waits ten minutes after a
    change; Karpenter does neither.
    """

    def __init__(
        self,
        pods: ReplayedPodState,
        cluster: ReplayedCluster,
        policy: ReplayPolicy,
        start: int,
        judgement: ConsolidationSizes,
    ) -> None:
        self._pods = pods
        self._cluster = cluster
        self._policy = policy
        self._judgement = judgement
        self._not_before = start + WARM_UP_SECONDS

    def consolidate(self, at: int) -> None:
        """Empty nodes if that is due and possible."""
        if at < self._not_before:
            return
        self._not_before = at + HOUR_SECONDS
        plan = _RemovalPlan(self._pods, self._cluster, self._policy, self._judgement, at)
        order = plan.get_least_requested()
        for first in range(min(MAX_CANDIDATES, len(order))):
            if plan.is_possible(order[first : first + 1]):
                self._empty(order[first : first + plan.count_removable(order[first : first + self._most()])], at)
                if self._judgement is ConsolidationSizes.ADMITTED:
                    self._not_before = at + DAY_SECONDS
                return

    def _most(self) -> int:
        nodes = self._pods.nodes.count_nodes
        return nodes if self._judgement is ConsolidationSizes.ADMITTED else max(1, int(DISRUPTED_SHARE * nodes))

    def _empty(self, closed: Int64Array, at: int) -> None:
        """Evict all pods of nodes that take no more pods."""
        self._pods.nodes.exists[closed] = False
        self._cluster.move(np.flatnonzero(np.isin(self._pods.node, closed)), at)


class _RemovalPlan:
    """What can be emptied at one time; the policy sizes each pod that may move once."""

    def __init__(
        self,
        pods: ReplayedPodState,
        cluster: ReplayedCluster,
        policy: ReplayPolicy,
        judgement: ConsolidationSizes,
        at: int,
    ) -> None:
        self._pods = pods
        self._cluster = cluster
        self._policy = policy
        self._judgement = judgement
        self._view = pods.get_view(at)
        self._admitted: dict[int, Resources] = {}

    def get_least_requested(self) -> Int64Array:
        """Return the nodes whose requests are within what is free on the others, the least requested first."""
        nodes = self._pods.nodes
        possible = nodes.exists.copy()
        for free, counted in zip(nodes.get_free(), (nodes.cpu_millicores, nodes.memory_bytes), strict=True):
            possible &= counted <= free[nodes.exists].sum() - free
        found = np.flatnonzero(possible)
        # Of equals the last, so that the first nodes last.
        return found[np.lexsort((-found, nodes.requested_share()[found]))]

    def count_removable(self, order: Int64Array) -> int:
        """Return how many nodes from the front on can be emptied together, given that one can."""
        works, fails = 1, len(order) + 1
        while fails - works > 1:
            tried = min(2 * works, (works + fails) // 2)
            if self.is_possible(order[:tried]):
                works = tried
            else:
                fails = tried
        return works

    def is_possible(self, closed: Int64Array) -> bool:
        """Tell whether all pods of some nodes have room on the others, by what the judgement goes by."""
        moving = self._cluster.enqueue(np.flatnonzero(np.isin(self._pods.node, closed)))
        needs = {container: self._pods.get_need(container) for container in moving.tolist()}
        if not self._have_room(needs.values(), closed):
            return False
        if self._judgement is ConsolidationSizes.REQUESTS:
            return True
        unsized = np.array([container for container in needs if container not in self._admitted], dtype=np.int64)
        if unsized.size:
            sizes = self._policy.admit(unsized, self._view)
            self._admitted.update(zip(unsized.tolist(), self._pods.get_needs(sizes), strict=True))
        return self._have_room([self._admitted[container] for container in needs], closed)

    def _have_room(self, needs: Collection[Resources], closed: Int64Array) -> bool:
        """Tell whether pods can be placed on the nodes that stay open, one after the other."""
        others = self._pods.nodes.copy()
        others.exists[closed] = False
        if not others.may_fit(needs):
            return False
        for need in needs:
            chosen = others.choose(need)
            if chosen is None:
                return False
            others.add_pod(chosen, need)
        return True
