"""Finds whole packings without a search tree.

Diving rounds a fractional master to whole patterns, a few at a time, with column generation in between. Annealing
starts from the best known packing, or near another one, if the part is small enough.
"""

import numpy as np

from cruise.packer.budget import ANNEALING_STEP, BudgetMeter
from cruise.packer.columns.generation import ColumnGeneration
from cruise.packer.columns.instance import (
    PRIORITY_RATIO,
    ResidualInstance,
    build_instance,
    find_complete_levels,
    fix_running_copies,
)
from cruise.packer.columns.rule_energies import build_rule_energies
from cruise.packer.kernels.annealing import anneal
from cruise.packer.kernels.placement import CopyPlacement, initialise_placement
from cruise.packer.problem import FloatArray, IntArray, PackingProblem

# An objective bonus keeps the basis primal feasible where a bound would not.
_BONUS = 60.0
_BONUS_FOR_ARTIFICIAL = 20.0
# So many unmet copies are left to annealing.
_MAX_UNMET = 2.5
_ARTIFICIAL_COST_FACTOR = 8.0
_WHOLE, _NEARLY = 0.99, 0.85
# With few groups, a round adds few columns.
_ROUNDS, _FEW_GROUPS, _MORE_ROUNDS = 8, 4, 40
_TRACE = 1e-3


def dive_to_whole_patterns(
    generation: ColumnGeneration, answer: int, noise: float, generator: np.random.Generator, meter: BudgetMeter
) -> tuple[IntArray, IntArray] | None:
    """Return the groups and copies of whole patterns for some of the nodes; None if the dive fails.

    It stops when the master no longer reaches `answer`. `noise` blurs which column is rounded up next.
    """
    master = generation.master
    saved = master.save_state()
    fixed = np.zeros(0, dtype=np.int64)
    master.raise_artificials(_ARTIFICIAL_COST_FACTOR)
    try:
        while True:
            fixed = np.concatenate([fixed, np.zeros(len(master.patterns) - len(fixed), dtype=np.int64)])
            values = master.get_column_values()
            value = _compute_value(generation, values)
            if value < answer or master.compute_unmet_demand() > _MAX_UNMET:
                return None
            if not _fix_patterns(generation, values[master.first :], fixed, noise, generator):
                break
            open_groups = generation.subproblem.group_size - np.bincount(
                master.groups, weights=fixed, minlength=len(generation.subproblem.group_size)
            ).astype(np.int64)
            used = fixed @ np.array(master.patterns)
            if (open_groups < 0).any():
                return None
            if not open_groups.any():
                break
            if not _generate_columns(
                generation, np.maximum(generation.subproblem.counts - used, 0), open_groups, meter
            ):
                return None
        chosen = np.repeat(np.arange(len(fixed)), fixed)
        return np.array(master.groups)[chosen], np.array(master.patterns)[chosen]
    finally:
        master.restore_state(saved)


def _compute_value(generation: ColumnGeneration, values: FloatArray) -> float:
    """Return the master's value without bonuses and artificials."""
    subproblem, master = generation.subproblem, generation.master
    counts = master.count_columns[subproblem.counted]
    total = float(values[counts].sum())
    if subproblem.fixed_copies.any():
        levels = values[master.first :]
        for k in np.flatnonzero(levels > 1e-9).tolist():
            stays = np.minimum(master.patterns[k], subproblem.running[master.groups[k]])
            total += float(levels[k]) * float(stays @ subproblem.fixed_copies)
    return total


def _fix_patterns(
    generation: ColumnGeneration, levels: FloatArray, fixed: IntArray, noise: float, generator: np.random.Generator
) -> bool:
    """Fix whole columns, and the largest fraction if it is nearly whole or nothing else is; return whether any is."""
    t, first = generation.master.tableau, generation.master.first
    whole = np.maximum(np.floor(levels + 1.0 - _WHOLE), fixed).astype(np.int64)
    groups = np.array(generation.master.groups)
    sizes = generation.subproblem.group_size
    closed = np.bincount(groups, weights=whole, minlength=len(sizes)) >= sizes
    # Fractions that only the relaxed right-hand sides allow do not count.
    fractions = np.where((levels - whole > _TRACE) & ~closed[groups], levels - whole, 0.0)
    chosen = np.flatnonzero(whole > fixed).tolist()
    if noise > 0.0:
        fractions = np.where(fractions > 0.0, fractions + generator.uniform(0.0, noise, len(fractions)), 0.0)
    largest = int(np.argmax(fractions)) if len(fractions) else -1
    if largest >= 0 and fractions[largest] > 0.0 and (fractions[largest] > _NEARLY or not chosen):
        whole[largest] += 1
        chosen.append(largest)
    bonus = max(_BONUS * generation.subproblem.unit, _BONUS_FOR_ARTIFICIAL * generation.master.get_artificial_cost())
    for k in dict.fromkeys(chosen):
        if fixed[k] == 0:
            t.cost[first + k] += bonus
        fixed[k] = whole[k]
        # A bound below the level would be violated, and make later levels wrong.
        t.upper[first + k] = max(float(whole[k]), float(levels[k]))
    return bool(chosen)


def _generate_columns(
    generation: ColumnGeneration, counts: IntArray, open_groups: IntArray, meter: BudgetMeter
) -> bool:
    """Generate columns for the nodes that are not fixed; False if the budget ends."""
    for _ in range(_ROUNDS if len(open_groups) > _FEW_GROUPS else _MORE_ROUNDS):
        if not generation.master.solve(meter):
            return False
        found = generation.find_patterns(generation.master.compute_values(), counts, open_groups, meter)
        if found is None:
            return False
        if not generation.add_patterns(found[0], found[1]):
            return True
    return generation.master.solve(meter)


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
        vector, placement = self._residual.compute_vector(best), self._placement(initial)
        done = anneal(placement, best, vector, self._state, iterations, temperature, _COLD, meter.deadline_seconds)
        meter.spend(ANNEALING_STEP * done)
        return self._residual.to_whole(best)

    def _focus(self, fixed_levels: frozenset[int]) -> None:
        """Fix all running pods of some priorities on their nodes."""
        self._fixed_levels, self._residual = fixed_levels, fix_running_copies(self._instance, fixed_levels)
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
