"""Giving nodes back: a node is emptied where all of its pods have room elsewhere."""

import numpy as np

from cruise.backtest.carrying_out import Cluster
from cruise.backtest.fleet import Pods
from cruise.backtest.nodes import Nodes
from cruise.backtest.sizing import Sizing
from cruise.domain.resources import Resources

DAY_SECONDS = 86400
# Until then most sizes are still those of creation, and a consolidation of them would be spent for the day.
FIRST_AFTER_SECONDS = 6 * 3600
# As many as a cluster autoscaler looks into at a time (its scale-down-non-empty-candidates-count).
CANDIDATES = 30


class Consolidation:
    """Empties nodes at most once in 24 hours, at the first pass at which that works.

    The least requested nodes are tried first, one after the other while one can be emptied. Real autoscalers
    (Kubernetes' cluster-autoscaler, Karpenter) simulate with the requests that pods have; who has sizes changed at
    creation may get larger pods, for which another node is added again, so that pods were moved in vain. Here the
    simulation asks in addition with what the new pods would be created with, and places them as kube-scheduler will:
    what is begun succeeds. cluster-autoscaler also leaves nodes alone that are requested to a half or more and waits
    ten minutes after a change; Karpenter does neither. Nothing is emptied in the first six hours.
    """

    def __init__(self, pods: Pods, cluster: Cluster, sizing: Sizing, start: int) -> None:
        self._pods = pods
        self._cluster = cluster
        self._sizing = sizing
        self._not_before = start + FIRST_AFTER_SECONDS
        self._in_vain: Nodes | None = None

    def consolidate(self, at: int) -> None:
        """Empty nodes if that is due and possible."""
        if at < self._not_before:
            return
        while self._empty_one(at):
            self._not_before = at + DAY_SECONDS

    def _empty_one(self, at: int) -> bool:
        nodes = self._pods.nodes
        if nodes.count < 2 or (self._in_vain is not None and nodes.as_full_as(self._in_vain)):
            return False
        possible = False
        for node in self._candidates():
            moving = self._cluster.queue(np.flatnonzero(self._pods.node == node))
            now = [self._pods.need(container) for container in moving.tolist()]
            if not self._have_room(now, node):
                continue
            possible = True
            sizes = self._sizing.admit(moving, self._pods.view(at))
            if self._have_room(self._pods.needs(sizes), node):
                # Nobody is put on it any more.
                nodes.alive[node] = False
                self._cluster.evict(moving, at)
                return True
        if not possible:
            self._in_vain = nodes.copy()
        return False

    def _candidates(self) -> list[int]:
        """Return nodes whose requests are within what is free on the others, the least requested first."""
        nodes = self._pods.nodes
        possible = nodes.alive.copy()
        for free, counted in zip(nodes.free(), (nodes.cpu_millicores, nodes.memory_bytes), strict=True):
            possible &= counted <= free[nodes.alive].sum() - free
        found = np.flatnonzero(possible)
        # Of equals the last, so that the first nodes last.
        order = np.lexsort((-found, nodes.requested_share()[found]))
        candidates: list[int] = found[order][:CANDIDATES].tolist()
        return candidates

    def _have_room(self, needs: list[Resources], node: int) -> bool:
        """Tell whether pods can be placed on the other nodes one after the other."""
        if not self._pods.nodes.fit_one_by_one(needs, node):
            return False
        others = self._pods.nodes.copy()
        others.alive[node] = False
        for need in needs:
            chosen = others.choose(need)
            if chosen is None:
                return False
            others.put(chosen, need)
        return True
