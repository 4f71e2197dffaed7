"""Annealing of a part that is small enough: from the best packing that is known, or near to another one."""

import numpy as np

from cruise.packer.arrays import FloatArray, IntArray
from cruise.packer.budget import ANNEALING_STEP, Meter
from cruise.packer.dense.bonding import bonds_of
from cruise.packer.dense.classing import instance_of
from cruise.packer.dense.entries import settled
from cruise.packer.dense.residual import TIER_RATIO, Residual, residual_of
from cruise.packer.kernels.annealing import anneal
from cruise.packer.kernels.placement import Placement, lay_out
from cruise.packer.problem import Problem

# Energies guide the annealer, the vector itself is exact: a staying copy is worth this share of a placed one. A greater
# share keeps the last pods of a tight cluster from finding room: at a third, 2 of 16 runs placed everything, at a
# tenth 14.
_LOYALTY = 0.1
# A copy that has to be placed is worth so much more than others of its tier.
_MUST = 3.0
_ITERATIONS, _MOST_PER_COPY = 400_000, 4_000
# By turns: some of the last steps need a wide detour, and others a patient look around.
_HEATS, _COLD = (0.3, 0.06, 0.5, 0.1), 0.03
_POLISH_ITERATIONS, _POLISH_HEAT = 200_000, 0.1


class Search:
    """A search for better packings of a problem; `assignment[class, node]` are copies, and obey every rule."""

    def __init__(self, problem: Problem, seed: int) -> None:
        self._problem, self._instance = problem, instance_of(problem)
        self._state = np.random.default_rng(seed).integers(1, 2**63, 1, dtype=np.uint64)
        self._rounds = 0
        self._focus(frozenset())

    def anneal(self, assignment: IntArray, entry: int, meter: Meter, start: IntArray | None = None) -> IntArray:
        """What a round about an entry of the key finds that is better than an assignment: itself, or one to be judged.

        It begins there, or at `start`, which may break rules: near to where that is. What it finds is as good in the
        entries before; tiers that are settled stay as they are.
        """
        nailed = settled(self._instance, assignment, entry)
        if start is not None:
            nailed &= settled(self._instance, start, entry)
        if nailed != self._nailed:
            self._focus(nailed)
        best = self._residual.part(assignment)
        if start is None:
            begin, iterations, heat = best.copy(), _ITERATIONS, _HEATS[self._rounds % len(_HEATS)]
            self._rounds += 1
        else:
            begin, iterations, heat = self._residual.part(start), _POLISH_ITERATIONS, _POLISH_HEAT
        iterations = min(iterations, _MOST_PER_COPY * int(self._residual.counts.sum()))
        hot = heat * TIER_RATIO ** float(self._tiers - 1 - self._residual.entries.tier[entry])
        vector, stop = self._residual.vector(best), np.zeros(1, dtype=np.int64)
        placement = self._placement(begin)
        done = anneal(placement, best, vector, self._state, stop, iterations, hot, _COLD, meter.deadline_seconds)
        meter.spend(ANNEALING_STEP * done)
        return self._residual.whole(best)

    def _focus(self, nailed: frozenset[int]) -> None:
        """Leave all that runs of some tiers where it is."""
        self._nailed, self._residual = nailed, residual_of(self._instance, nailed)
        self._tiers, self._bonds = len(self._instance.tiers()), bonds_of(self._problem, self._residual)

    def _placement(self, start: IntArray) -> Placement:
        residual, entries = self._residual, self._residual.entries
        worth: FloatArray = np.power(TIER_RATIO, (self._tiers - 1 - residual.tiers).astype(np.float64))
        return lay_out(
            start,
            residual.demands,
            residual.headroom,
            residual.counts,
            residual.least,
            residual.running,
            residual.limits,
            residual.room,
            residual.floor,
            _deepest(residual),
            entries.place,
            entries.stay,
            entries.weight,
            residual.base.copy(),
            np.where(residual.least > 0, _MUST * worth, worth),
            _LOYALTY * residual.worth,
            self._bonds.copy(),
        )


def _deepest(residual: Residual) -> int:
    """More copies than this are never on one node."""
    most = residual.limits.sum(axis=0)
    for r in range(residual.room.shape[1]):
        smallest = int(residual.demands[:, r].min(initial=0))
        if smallest > 0:
            most = np.minimum(most, residual.room[:, r] // smallest)
    return int(most.max(initial=0))
