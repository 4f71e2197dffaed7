"""Anneals a part that is small enough, from the best known packing or near another one."""

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

# Energies guide the search, the key decides: a staying copy is worth this share of a placed one. With a larger share,
# the last pods of a tight cluster find no node: at a third, 2 of 16 runs placed everything, at a tenth 14.
_STAY_SHARE = 0.1
# A required copy is worth so much more than others of its priority.
_REQUIRED_FACTOR = 3.0
_ITERATIONS, _MOST_PER_COPY = 400_000, 4_000
# Start temperatures in turn: some improvements need a wide detour, others a patient local search.
_HEATS, _COLD = (0.3, 0.06, 0.5, 0.1), 0.03
_POLISH_ITERATIONS, _POLISH_HEAT = 200_000, 0.1


class AnnealingSearch:
    """Searches for better packings of a problem; `assignment[class, node]` are copies, and obey every rule."""

    def __init__(self, problem: PackingProblem, seed: int) -> None:
        self._problem, self._instance = problem, build_instance(problem)
        self._state = np.random.default_rng(seed).integers(1, 2**63, 1, dtype=np.uint64)
        self._rounds = 0
        self._focus(frozenset())

    def anneal(self, assignment: IntArray, entry: int, meter: BudgetMeter, start: IntArray | None = None) -> IntArray:
        """Return an assignment that is better in an entry of the key, or the given one; rules are not all checked.

        It starts from the assignment, or from `start`, which may break rules. What it finds is as good in the entries
        before; priorities of which all pods stay are fixed.
        """
        fixed_levels = find_complete_levels(self._instance, assignment, entry)
        if start is not None:
            fixed_levels &= find_complete_levels(self._instance, start, entry)
        if fixed_levels != self._fixed_levels:
            self._focus(fixed_levels)
        best = self._residual.to_residual(assignment)
        if start is None:
            initial, iterations, heat = best.copy(), _ITERATIONS, _HEATS[self._rounds % len(_HEATS)]
            self._rounds += 1
        else:
            initial, iterations, heat = self._residual.to_residual(start), _POLISH_ITERATIONS, _POLISH_HEAT
        iterations = min(iterations, _MOST_PER_COPY * int(self._residual.counts.sum()))
        temperature = heat * PRIORITY_RATIO ** float(
            self._level_count - 1 - self._residual.entries.priority_level[entry]
        )
        vector, stop = self._residual.compute_vector(best), np.zeros(1, dtype=np.int64)
        placement = self._placement(initial)
        done = anneal(
            placement, best, vector, self._state, stop, iterations, temperature, _COLD, meter.deadline_seconds
        )
        meter.spend(ANNEALING_STEP * done)
        return self._residual.to_whole(best)

    def _focus(self, fixed_levels: frozenset[int]) -> None:
        """Fix all running pods of some priorities on their nodes."""
        self._fixed_levels, self._residual = fixed_levels, build_residual(self._instance, fixed_levels)
        self._level_count, self._rule_tables = (
            len(self._instance.list_priorities()),
            build_rule_energies(self._problem, self._residual),
        )

    def _placement(self, start: IntArray) -> CopyPlacement:
        residual, entries = self._residual, self._residual.entries
        worth: FloatArray = np.power(PRIORITY_RATIO, (self._level_count - 1 - residual.tiers).astype(np.float64))
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
            _get_max_copies(residual),
            entries.place_entry,
            entries.stay_entry,
            entries.weight,
            residual.base.copy(),
            np.where(residual.minimum > 0, _REQUIRED_FACTOR * worth, worth),
            _STAY_SHARE * residual.compute_value,
            self._rule_tables.copy(),
        )


def _get_max_copies(residual: ResidualInstance) -> int:
    """Return a bound of the copies on a node."""
    most = residual.limits.sum(axis=0)
    for r in range(residual.free_capacity.shape[1]):
        smallest = int(residual.demands[:, r].min(initial=0))
        if smallest > 0:
            most = np.minimum(most, residual.free_capacity[:, r] // smallest)
    return int(most.max(initial=0))
