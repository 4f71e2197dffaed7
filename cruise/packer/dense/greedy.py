"""A feasible plan completed: keep what runs, then place what waits, priority after priority."""

import numpy as np

from cruise.packer.arrays import FloatArray, IntArray
from cruise.packer.dense.residual import Residual


def complete(residual: Residual, assignment: IntArray) -> IntArray:
    """Add copies to a feasible assignment: first those that may stay, then the others, best fit.

    Within a tier the largest demand goes first. A copy prefers a node where nothing that runs has to give way. What
    every plan has to place stays before all others.
    """
    filling = _Filling(residual, assignment)
    sizes = (residual.demands / filling.scale).sum(axis=1)
    for c in np.flatnonzero(residual.least > filling.taken.sum(axis=1)).tolist():
        filling.keep(c)
    for tier in sorted({int(t) for t in residual.tiers}):
        mine = np.flatnonzero(residual.tiers == tier)
        mine = mine[np.argsort(-sizes[mine], kind="stable")]
        for c in mine.tolist():
            filling.keep(c)
        later = np.flatnonzero(residual.tiers > tier)
        if residual.instance.stays_last:
            later = np.flatnonzero(residual.tiers >= 0)
        claimed = np.maximum(residual.running[later] - filling.taken[later], 0).T @ residual.demands[later]
        for c in mine.tolist():
            for _ in range(int(residual.counts[c] - filling.taken[c].sum())):
                node = filling.best_node(c, claimed)
                if node < 0:
                    break
                filling.put(c, node)
    return filling.taken


class _Filling:
    """Copies on nodes, what is left of their room, and the largest headroom on each."""

    def __init__(self, residual: Residual, assignment: IntArray) -> None:
        self.residual = residual
        self.taken = assignment.copy()
        self.free = residual.room - self.taken.T @ residual.demands
        self.peak = residual.floor.copy()
        for c in range(len(residual.headroom)):
            here = self.taken[c] > 0
            self.peak[here] = np.maximum(self.peak[here], residual.headroom[c])
        self.scale: FloatArray = np.maximum(residual.room.sum(axis=0), 1).astype(np.float64)

    def left(self, c: int) -> IntArray:
        """What is left on each node for demands, once the headroom of a class is kept as well."""
        if not len(self.residual.headroom):
            return self.free
        return np.asarray(self.free - np.maximum(self.peak, self.residual.headroom[c]), dtype=np.int64)

    def keep(self, c: int) -> None:
        """Leave where they are as many copies as fit there."""
        residual, demand, left = self.residual, self.residual.demands[c], self.left(c)
        wanted = np.minimum(residual.running[c], residual.limits[c]) - self.taken[c]
        fits = np.where((left >= 0).all(axis=1), np.iinfo(np.int64).max, 0)
        for r in np.flatnonzero(demand).tolist():
            fits = np.minimum(fits, left[:, r] // demand[r])
        stay = np.clip(np.minimum(wanted, fits), 0, None)
        # Copies placed elsewhere before may leave fewer than could stay.
        over = int(stay.sum() + self.taken[c].sum() - residual.counts[c])
        for node in np.flatnonzero(stay).tolist():
            if over <= 0:
                break
            drop = min(over, int(stay[node]))
            stay[node] -= drop
            over -= drop
        self.taken[c] += stay
        self.free -= stay[:, None] * demand[None, :]
        if len(residual.headroom):
            here = stay > 0
            self.peak[here] = np.maximum(self.peak[here], residual.headroom[c])

    def put(self, c: int, node: int) -> None:
        """Place one copy."""
        self.taken[c, node] += 1
        self.free[node] -= self.residual.demands[c]
        if len(self.residual.headroom):
            self.peak[node] = np.maximum(self.peak[node], self.residual.headroom[c])

    def best_node(self, c: int, claimed: IntArray) -> int:
        """The node that is fullest afterwards, at best one where nothing that runs is in the way; -1 for none."""
        demand, left = self.residual.demands[c], self.left(c)
        allowed = self.taken[c] < self.residual.limits[c]
        for available in (left - claimed, left):
            open_nodes = np.flatnonzero(allowed & (available >= demand).all(axis=1))
            if len(open_nodes):
                rest = ((available[open_nodes] - demand) / self.scale).sum(axis=1)
                return int(open_nodes[np.argmin(rest)])
        return -1
