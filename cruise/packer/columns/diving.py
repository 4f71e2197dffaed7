"""Diving: turn a fractional master into whole fillings, a few at a time, generating columns on the way."""

import numpy as np

from cruise.packer.budget import BudgetMeter
from cruise.packer.columns.generation import ColumnGeneration
from cruise.packer.columns.instance import ResidualInstance
from cruise.packer.problem import FloatArray, IntArray

# An objective bonus keeps the basis primal feasible where a bound would not.
_BONUS = 60.0
_BONUS_FOR_ARTIFICIAL = 20.0
# So many copies may be left to the completion and the polish.
_UNMET = 2.5
_DEARER = 8.0
_WHOLE, _NEARLY = 0.99, 0.85
# With few groups, few columns come out of a round.
_ROUNDS, _FEW_GROUPS, _MORE_ROUNDS = 8, 4, 40
_TRACE = 1e-3
# Completing and polishing may make up for what the last fillings fixed cost.
_PROMISE = 0.0


def dive_to_whole_patterns(
    generation: ColumnGeneration, answer: int, noise: float, generator: np.random.Generator, meter: BudgetMeter
) -> tuple[IntArray, IntArray] | None:
    """The groups and copies of one whole filling a node, for some of the nodes; None when it led nowhere.

    Stops where the master no longer promises as much as `answer`. `noise` blurs which column is rounded up next.
    """
    master = generation.master
    stand = master.save_state()
    fixed = np.zeros(0, dtype=np.int64)
    master.raise_artificials(_DEARER)
    try:
        while True:
            fixed = np.concatenate([fixed, np.zeros(len(master.patterns) - len(fixed), dtype=np.int64)])
            values = master.levels()
            promised = _promise(generation, values)
            if promised < answer + _PROMISE or master.artificial() > _UNMET:
                return None
            if not _fix(generation, values[master.first :], fixed, noise, generator):
                break
            open_groups = generation.subproblem.group_size - np.bincount(
                master.groups, weights=fixed, minlength=len(generation.subproblem.group_size)
            ).astype(np.int64)
            used = fixed @ np.array(master.patterns)
            if (open_groups < 0).any():
                return None
            if not open_groups.any():
                break
            if not _generate(generation, np.maximum(generation.subproblem.counts - used, 0), open_groups, meter):
                return None
        chosen = np.repeat(np.arange(len(fixed)), fixed)
        return np.array(master.groups)[chosen], np.array(master.patterns)[chosen]
    finally:
        master.restore_state(stand)


def _promise(generation: ColumnGeneration, values: FloatArray) -> float:
    """The master's value without bonuses and artificials."""
    phase, master = generation.subproblem, generation.master
    counts = master.count_columns[phase.counted]
    total = float(values[counts].sum())
    if phase.fixed_copies.any():
        levels = values[master.first :]
        for k in np.flatnonzero(levels > 1e-9).tolist():
            stays = np.minimum(master.patterns[k], phase.running[master.groups[k]])
            total += float(levels[k]) * float(stays @ phase.fixed_copies)
    return total


def _fix(
    generation: ColumnGeneration, levels: FloatArray, fixed: IntArray, noise: float, generator: np.random.Generator
) -> bool:
    """Fix what is as good as whole, and the largest fraction if that is nearly so or nothing else is whole.

    False when nothing is left to fix: the master leaves the remaining nodes empty.
    """
    t, first = generation.master.tableau, generation.master.first
    whole = np.maximum(np.floor(levels + 1.0 - _WHOLE), fixed).astype(np.int64)
    groups = np.array(generation.master.groups)
    sizes = generation.subproblem.group_size
    closed = np.bincount(groups, weights=whole, minlength=len(sizes)) >= sizes
    # What the relaxed right-hand sides let in is no fraction.
    rest = np.where((levels - whole > _TRACE) & ~closed[groups], levels - whole, 0.0)
    chosen = np.flatnonzero(whole > fixed).tolist()
    if noise > 0.0:
        rest = np.where(rest > 0.0, rest + generator.uniform(0.0, noise, len(rest)), 0.0)
    top = int(np.argmax(rest)) if len(rest) else -1
    if top >= 0 and rest[top] > 0.0 and (rest[top] > _NEARLY or not chosen):
        whole[top] += 1
        chosen.append(top)
    bonus = max(_BONUS * generation.subproblem.unit, _BONUS_FOR_ARTIFICIAL * generation.master.get_most_expensive())
    for k in dict.fromkeys(chosen):
        if fixed[k] == 0:
            t.cost[first + k] += bonus
        fixed[k] = whole[k]
        # Below its level it would not be within its bounds any more, and later levels be wrong by far.
        t.upper[first + k] = max(float(whole[k]), float(levels[k]))
    return bool(chosen)


def _generate(generation: ColumnGeneration, counts: IntArray, open_groups: IntArray, meter: BudgetMeter) -> bool:
    """Some rounds of columns for what is not fixed yet; False when the budget ended."""
    for _ in range(_ROUNDS if len(open_groups) > _FEW_GROUPS else _MORE_ROUNDS):
        if not generation.master.solve(meter):
            return False
        found = generation.price(generation.master.compute_values(), counts, open_groups, meter)
        if found is None:
            return False
        if not generation.add_patterns(found[0], found[1]):
            return True
    return generation.master.solve(meter)


# A feasible plan completed: keep what runs, then place what waits, priority after priority.


def complete_greedily(residual: ResidualInstance, assignment: IntArray) -> IntArray:
    """Add copies to a feasible assignment: first those that may stay, then the others, best fit.

    Within a tier the largest demand goes first. A copy prefers a node where nothing that runs has to give way. What
    every plan has to place stays before all others.
    """
    filling = _NodeFilling(residual, assignment)
    sizes = (residual.demands / filling.scale).sum(axis=1)
    for c in np.flatnonzero(residual.minimum > filling.taken.sum(axis=1)).tolist():
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


class _NodeFilling:
    """Copies on nodes, what is left of their room, and the largest headroom on each."""

    def __init__(self, residual: ResidualInstance, assignment: IntArray) -> None:
        self.residual = residual
        self.taken = assignment.copy()
        self.free = residual.free_capacity - self.taken.T @ residual.demands
        self.peak = residual.floor.copy()
        for c in range(len(residual.headroom)):
            here = self.taken[c] > 0
            self.peak[here] = np.maximum(self.peak[here], residual.headroom[c])
        self.scale: FloatArray = np.maximum(residual.free_capacity.sum(axis=0), 1).astype(np.float64)

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
