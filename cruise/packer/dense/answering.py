"""One phase from its first bound to a proof: generate columns, dive, list what is left, and branch on it."""

import math
from collections.abc import Callable

import numpy as np

from cruise.packer.arrays import IntArray
from cruise.packer.budget import Meter
from cruise.packer.dense.closing import chosen, closer_of
from cruise.packer.dense.dive import dive
from cruise.packer.dense.generation import Generation, generation_of
from cruise.packer.dense.greedy import complete
from cruise.packer.dense.phase import Phase, patterns_of, phase_of, spread
from cruise.packer.dense.search import Search

_POLISH_ITERATIONS = 100_000
_POLISH_HEAT = 0.1
_BETWEEN_ITERATIONS = 400_000
# By turns, since some of the last steps to a bound need a wide detour, and others a patient look around.
_BETWEEN_HEATS = (0.5, 0.06, 0.3, 0.1)
_NOISE = 0.1
_MOST_NOISE = 0.5
# Closing gets this share of what is left, at the first attempt and at each later one.
_CLOSING_SHARE = 0.85
_COMBINING_SHARE = 0.1
_LOSSES = (0.4, 0.2, 0.1, 0.05, 0.02, 0.01)
_MOST_COMBINED = 2_000
_DIVES_BETWEEN = 3
# A master with more rows proves nothing in any reasonable time, and its inverse takes 8 bytes a pair of rows.
_MOST_ROWS = 1_200


def answer_phase(
    search: Search, entry: int, generator: np.random.Generator, meter: Meter, tell: Callable[[], None]
) -> int:
    """Improve the search's best plan in one entry of its vector; returns what no plan surpasses there.

    The bound holds for plans that are no worse in the entries before. `tell` is called now and then, where the best
    plan may be a better one.
    """
    phase = phase_of(search.residual, search.best, entry)
    # What nailed copies and such as have to be placed add.
    besides = int(search.best_vector[entry]) - phase.answer
    if phase.answer >= phase.ceiling:
        return phase.ceiling + besides
    if len(phase.classes) + len(phase.group_size) > _MOST_ROWS:
        search.run(search.best, _BETWEEN_ITERATIONS, meter, from_tier=search.residual.entries.tier[entry])
        return phase.ceiling + besides
    generation = generation_of(phase, generator)
    generation.take(*patterns_of(phase, search.best))
    generation.generate(phase.answer, meter)
    attempt = _Attempt(search, phase, generation, generator)
    while generation.ceiling > attempt.answer() and not meter.over() and generation.bound < math.inf:
        attempt.dive(meter)
        heat = _BETWEEN_HEATS[attempt.dives % len(_BETWEEN_HEATS)]
        search.run(search.best, _BETWEEN_ITERATIONS, meter, heat, search.residual.entries.tier[entry])
        if generation.ceiling > attempt.answer() and attempt.dives % _DIVES_BETWEEN == 1:
            attempt.close(meter)
        tell()
    return max(generation.ceiling, attempt.answer()) + besides


class _Attempt:
    """The dives and closing attempts of one phase."""

    def __init__(self, search: Search, phase: Phase, generation: Generation, generator: np.random.Generator) -> None:
        self.search, self.phase, self.generation, self.generator = search, phase, generation, generator
        self.dives = self.combined = 0
        self.closer = closer_of(generation, generator)

    def answer(self) -> int:
        """What the best plan achieves in the phase's figure."""
        return self.value(self.search.best)

    def value(self, assignment: IntArray) -> int:
        """What an assignment achieves in the phase's figure."""
        mine = self.phase.classes
        stayed = np.minimum(assignment, self.search.residual.running)[mine].sum(axis=1)
        return self.phase.value(assignment[mine].sum(axis=1), stayed)

    def dive(self, meter: Meter) -> None:
        """Dive once, each time with more noise, and polish what comes out."""
        noise = min(_NOISE * self.dives, _MOST_NOISE)
        self.dives += 1
        found = dive(self.generation, self.answer(), noise, self.generator, meter)
        if found is not None:
            self._decode(found[0], found[1], meter)
        if not meter.over():
            self.generation.generate(self.answer(), meter)

    def close(self, meter: Meter) -> None:
        """Settle the ceiling by listing the fillings that could still reach it, as long as they are few."""
        while self.generation.ceiling > self.answer() and not meter.over():
            target = self.generation.ceiling
            listed = self.closer.enumerate(target, meter)
            if listed is None:
                self._combine(meter)
                return
            verdict = self.closer.decide(listed[0], listed[1], target, _CLOSING_SHARE, meter)
            if verdict.reachable is None:
                return
            if verdict.reachable:
                self._decode(*chosen(listed[0], listed[1], verdict), meter)
                return
            self.generation.ceiling = target - 1

    def _combine(self, meter: Meter) -> None:
        """Look for a better answer among the fillings that lose least, where too many could be used to list them all.

        For one at the ceiling first, and where none is found for one half as far, among more fillings.
        """
        target = self.answer() + max((self.generation.ceiling - self.answer()) >> self.combined, 1)
        self.combined += 1
        master = self.generation.master
        groups, fillings = np.array(master.groups), np.array(master.fillings)
        for share in _LOSSES:
            listed = self.closer.enumerate(target, meter, share)
            if listed is not None and len(listed[0]) <= _MOST_COMBINED * self.combined:
                groups, fillings = np.concatenate([groups, listed[0]]), np.concatenate([fillings, listed[1]])
                break
        together = np.unique(np.concatenate([groups[:, None], fillings], axis=1), axis=0)
        groups, fillings = together[:, 0].copy(), np.ascontiguousarray(together[:, 1:])
        # What the master uses is anywhere among them.
        self.closer.known = 0
        verdict = self.closer.decide(groups, fillings, target, _COMBINING_SHARE, meter)
        if verdict.reachable:
            self.combined = 0
            self._decode(*chosen(groups, fillings, verdict), meter)

    def _decode(self, groups: IntArray, fillings: IntArray, meter: Meter) -> None:
        """Make a plan of the fillings, complete it with what they leave out, and polish it."""
        assignment = complete(self.search.residual, spread(self.phase, groups, fillings, self.search.residual))
        self.search.offer(assignment)
        self.search.run(assignment, _POLISH_ITERATIONS, meter, _POLISH_HEAT)
        self.generation.take(*patterns_of(self.phase, self.search.best))
