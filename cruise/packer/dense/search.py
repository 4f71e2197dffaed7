"""The best plan known, and the annealer that looks for a better one."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cruise.packer.arrays import FloatArray, IntArray
from cruise.packer.budget import ANNEALING_STEP, Meter
from cruise.packer.dense.residual import TIER_RATIO, Residual
from cruise.packer.kernels.annealing import anneal
from cruise.packer.kernels.placement import Placement, lay_out

# Energies guide the annealer, the vector itself is exact: a staying copy is worth this share of a placed one. A greater
# share keeps the last pods of a tight cluster from finding room: at a third, 2 of 16 runs placed everything, at a
# tenth 14.
_LOYALTY = 0.1
_HOT, _COLD = 0.3, 0.03
_MOST_PER_COPY = 4000
# A copy that has to be placed is worth so much more than others of its tier.
_MUST = 3.0


@dataclass(slots=True)
class Search:
    """The best assignment of a residual so far, and a placement that goes on from any assignment."""

    residual: Residual
    tier_count: int
    state: NDArray[np.uint64]
    best: IntArray
    best_vector: IntArray
    bonds: IntArray

    def offer(self, assignment: IntArray) -> bool:
        """Keep a feasible assignment if it is better than the best."""
        vector = self.residual.vector(assignment)
        if vector.tolist() <= self.best_vector.tolist() or not self.residual.keeps(assignment):
            return False
        self.best, self.best_vector = assignment.copy(), vector
        return True

    def run(self, start: IntArray, iterations: int, meter: Meter, heat: float = _HOT, from_tier: int = 0) -> None:
        """Anneal from an assignment; `heat` is in energies of a placed copy of the first tier in play."""
        iterations = min(iterations, _MOST_PER_COPY * int(self.residual.counts.sum()))
        placement = self._placement(start)
        stop = np.zeros(1, dtype=np.int64)
        hot = heat * TIER_RATIO ** float(self.tier_count - 1 - from_tier)
        done = anneal(
            placement, self.best, self.best_vector, self.state, stop, iterations, hot, _COLD, meter.deadline_seconds
        )
        meter.spend(ANNEALING_STEP * done)

    def _placement(self, start: IntArray) -> Placement:
        residual, entries = self.residual, self.residual.entries
        worth: FloatArray = np.power(TIER_RATIO, (self.tier_count - 1 - residual.tiers).astype(np.float64))
        return lay_out(
            start.copy(),
            residual.demands,
            residual.headroom,
            residual.counts,
            residual.least,
            residual.running,
            residual.limits,
            residual.room,
            residual.floor,
            self._deepest(),
            entries.place,
            entries.stay,
            entries.weight,
            residual.base.copy(),
            np.where(residual.least > 0, _MUST * worth, worth),
            _LOYALTY * residual.worth,
            self.bonds.copy(),
        )

    def _deepest(self) -> int:
        """More copies than this are never on one node."""
        residual = self.residual
        most = residual.limits.sum(axis=0)
        for r in range(residual.room.shape[1]):
            smallest = int(residual.demands[:, r].min(initial=0))
            if smallest > 0:
                most = np.minimum(most, residual.room[:, r] // smallest)
        return int(most.max(initial=0))


def search_of(
    residual: Residual, tier_count: int, state: NDArray[np.uint64], assignment: IntArray, bonds: IntArray | None = None
) -> Search:
    """A search that knows one feasible assignment; with tables of the rules between pods it keeps to these as well."""
    tables = np.zeros(0, dtype=np.int64) if bonds is None else bonds
    return Search(residual, tier_count, state, assignment.copy(), residual.vector(assignment), tables)
