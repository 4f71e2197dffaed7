"""Diving: turn a fractional master into whole fillings, a few at a time, generating columns on the way."""

import numpy as np

from cruise.packer.arrays import FloatArray, IntArray
from cruise.packer.budget import Meter
from cruise.packer.dense.generation import Generation

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


def dive(
    generation: Generation, answer: int, noise: float, generator: np.random.Generator, meter: Meter
) -> tuple[IntArray, IntArray] | None:
    """The groups and copies of one whole filling a node, for some of the nodes; None when it led nowhere.

    Stops where the master no longer promises as much as `answer`. `noise` blurs which column is rounded up next.
    """
    master = generation.master
    stand = master.stand()
    fixed = np.zeros(0, dtype=np.int64)
    master.raise_artificials(_DEARER)
    try:
        while True:
            fixed = np.concatenate([fixed, np.zeros(len(master.fillings) - len(fixed), dtype=np.int64)])
            values = master.levels()
            promised = _promise(generation, values)
            if promised < answer + _PROMISE or master.artificial() > _UNMET:
                return None
            if not _fix(generation, values[master.first :], fixed, noise, generator):
                break
            open_groups = generation.phase.group_size - np.bincount(
                master.groups, weights=fixed, minlength=len(generation.phase.group_size)
            ).astype(np.int64)
            used = fixed @ np.array(master.fillings)
            if (open_groups < 0).any():
                return None
            if not open_groups.any():
                break
            if not _generate(generation, np.maximum(generation.phase.counts - used, 0), open_groups, meter):
                return None
        chosen = np.repeat(np.arange(len(fixed)), fixed)
        return np.array(master.groups)[chosen], np.array(master.fillings)[chosen]
    finally:
        master.return_to(stand)


def _promise(generation: Generation, values: FloatArray) -> float:
    """The master's value without bonuses and artificials."""
    phase, master = generation.phase, generation.master
    counts = master.count_columns[phase.counted]
    total = float(values[counts].sum())
    if phase.kept.any():
        levels = values[master.first :]
        for k in np.flatnonzero(levels > 1e-9).tolist():
            stays = np.minimum(master.fillings[k], phase.running[master.groups[k]])
            total += float(levels[k]) * float(stays @ phase.kept)
    return total


def _fix(
    generation: Generation, levels: FloatArray, fixed: IntArray, noise: float, generator: np.random.Generator
) -> bool:
    """Fix what is as good as whole, and the largest fraction if that is nearly so or nothing else is whole.

    False when nothing is left to fix: the master leaves the remaining nodes empty.
    """
    t, first = generation.master.tableau, generation.master.first
    whole = np.maximum(np.floor(levels + 1.0 - _WHOLE), fixed).astype(np.int64)
    groups = np.array(generation.master.groups)
    sizes = generation.phase.group_size
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
    bonus = max(_BONUS * generation.phase.unit, _BONUS_FOR_ARTIFICIAL * generation.master.dearest())
    for k in dict.fromkeys(chosen):
        if fixed[k] == 0:
            t.cost[first + k] += bonus
        fixed[k] = whole[k]
        # Below its level it would not be within its bounds any more, and later levels be wrong by far.
        t.upper[first + k] = max(float(whole[k]), float(levels[k]))
    return bool(chosen)


def _generate(generation: Generation, counts: IntArray, open_groups: IntArray, meter: Meter) -> bool:
    """Some rounds of columns for what is not fixed yet; False when the budget ended."""
    for _ in range(_ROUNDS if len(open_groups) > _FEW_GROUPS else _MORE_ROUNDS):
        if not generation.master.solve(meter):
            return False
        found = generation.price(generation.master.worths(), counts, open_groups, meter)
        if found is None:
            return False
        if not generation.take(found[0], found[1]):
            return True
    return generation.master.solve(meter)
