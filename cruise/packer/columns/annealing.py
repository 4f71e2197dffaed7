"""Annealing of a part that is small enough: from the best packing that is known, or near to another one."""

import numpy as np

from cruise.packer.budget import ANNEALING_STEP, BudgetMeter
from cruise.packer.columns.affinity import build_rule_energies
from cruise.packer.columns.instance import (
    PRIORITY_RATIO,
    ResidualInstance,
    build_instance,
    build_residual,
    find_complete_levels,
)
from cruise.packer.kernels.annealing import anneal
from cruise.packer.kernels.placement import CopyPlacement, initialise_placement
from cruise.packer.problem import FloatArray, IntArray, PackingProblem

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


class AnnealingSearch:
    """A search for better packings of a problem; `assignment[class, node]` are copies, and obey every rule."""

    def __init__(self, problem: PackingProblem, seed: int) -> None:
        self._problem, self._instance = problem, build_instance(problem)
        self._state = np.random.default_rng(seed).integers(1, 2**63, 1, dtype=np.uint64)
        self._rounds = 0
        self._focus(frozenset())

    def anneal(self, assignment: IntArray, entry: int, meter: BudgetMeter, start: IntArray | None = None) -> IntArray:
        """What a round about an entry of the key finds that is better than an assignment: itself, or one to be judged.

        It begins there, or at `start`, which may break rules: near to where that is. What it finds is as good in the
        entries before; tiers that are settled stay as they are.
        """
        nailed = find_complete_levels(self._instance, assignment, entry)
        if start is not None:
            nailed &= find_complete_levels(self._instance, start, entry)
        if nailed != self._nailed:
            self._focus(nailed)
        best = self._residual.to_residual(assignment)
        if start is None:
            begin, iterations, heat = best.copy(), _ITERATIONS, _HEATS[self._rounds % len(_HEATS)]
            self._rounds += 1
        else:
            begin, iterations, heat = self._residual.to_residual(start), _POLISH_ITERATIONS, _POLISH_HEAT
        iterations = min(iterations, _MOST_PER_COPY * int(self._residual.counts.sum()))
        hot = heat * PRIORITY_RATIO ** float(self._tiers - 1 - self._residual.entries.priority_level[entry])
        vector, stop = self._residual.vector(best), np.zeros(1, dtype=np.int64)
        placement = self._placement(begin)
        done = anneal(placement, best, vector, self._state, stop, iterations, hot, _COLD, meter.deadline_seconds)
        meter.spend(ANNEALING_STEP * done)
        return self._residual.to_whole(best)

    def _focus(self, nailed: frozenset[int]) -> None:
        """Leave all that runs of some tiers where it is."""
        self._nailed, self._residual = nailed, build_residual(self._instance, nailed)
        self._tiers, self._bonds = (
            len(self._instance.count_priority_levels()),
            build_rule_energies(self._problem, self._residual),
        )

    def _placement(self, start: IntArray) -> CopyPlacement:
        residual, entries = self._residual, self._residual.entries
        worth: FloatArray = np.power(PRIORITY_RATIO, (self._tiers - 1 - residual.tiers).astype(np.float64))
        return initialise_placement(
            start,
            residual.demands,
            residual.headroom,
            residual.counts,
            residual.minimum,
            residual.running,
            residual.limits,
            residual.free_capacity,
            residual.floor,
            _deepest(residual),
            entries.place_entry,
            entries.stay_entry,
            entries.weight,
            residual.base.copy(),
            np.where(residual.minimum > 0, _MUST * worth, worth),
            _LOYALTY * residual.compute_value,
            self._bonds.copy(),
        )


def _deepest(residual: ResidualInstance) -> int:
    """More copies than this are never on one node."""
    most = residual.limits.sum(axis=0)
    for r in range(residual.free_capacity.shape[1]):
        smallest = int(residual.demands[:, r].min(initial=0))
        if smallest > 0:
            most = np.minimum(most, residual.free_capacity[:, r] // smallest)
    return int(most.max(initial=0))
