"""What no packing surpasses in one entry of the key, by column generation under the rules that rows can say."""

import math

import numpy as np

from cruise.packer.arrays import IntArray
from cruise.packer.budget import Meter
from cruise.packer.dense.between import between_pods
from cruise.packer.dense.classing import instance_of, weighed
from cruise.packer.dense.closing import closer_of
from cruise.packer.dense.dive import dive
from cruise.packer.dense.generation import generation_of
from cruise.packer.dense.greedy import complete
from cruise.packer.dense.phase import patterns_of, phase_of, spread
from cruise.packer.dense.residual import residual_of
from cruise.packer.problem import Problem

# Later dives round up what is less near to whole.
_NOISE, _MOST_NOISE = 0.1, 0.5

# For nodes, and for classes: no node holds more of these than one of the fillings, beside what cannot move.
Fillings = tuple[IntArray, IntArray, IntArray]


class EntryBound:
    """A bound for packings that are as good as an assignment in the entries before.

    `assignment[class, node]` are copies, and obey every rule. Nodes have no price.
    """

    def __init__(self, problem: Problem, assignment: IntArray, entry: int, seed: int) -> None:
        residual = residual_of(instance_of(problem))
        best = residual.part(assignment)
        self._phase = phase_of(residual, best, entry, between_pods(problem))
        self._generator = np.random.default_rng(seed)
        self._generation = generation_of(self._phase, self._generator)
        self._generation.take(*patterns_of(self._phase, best))
        self._besides = int(residual.vector(best)[entry]) - self._phase.answer
        self._problem, self._entry, self._residual, self._dives = problem, entry, residual, 0

    def bound(self, meter: Meter) -> int:
        """What no packing surpasses, as far as the meter lets find out."""
        self._generation.generate(self._phase.answer, meter)
        return self._weighed()

    def dive(self, assignment: IntArray, meter: Meter) -> IntArray | None:
        """An assignment near the bound, which may break rules; None where the search led nowhere.

        The bound learns from another assignment that is known by now, and may be a lower one afterwards.
        """
        generation, residual, phase = self._generation, self._residual, self._phase
        generation.take(*patterns_of(phase, residual.part(assignment)))
        generation.generate(phase.answer, meter)
        if generation.bound == math.inf:
            return None
        found = dive(generation, phase.answer, min(_NOISE * self._dives, _MOST_NOISE), self._generator, meter)
        self._dives += 1
        if found is None:
            return None
        return residual.whole(complete(residual, spread(phase, *found, residual)))

    def refute(self) -> int:
        """Take note that no packing reaches the bound; what is the bound then."""
        self._generation.ceiling -= 1
        return self._weighed()

    def fillings(self, meter: Meter) -> list[Fillings] | None:
        """What nodes hold in packings that reach the bound; None where that is too much to say."""
        listed = closer_of(self._generation, self._generator).enumerate(self._generation.ceiling, meter)
        if listed is None:
            return None
        phase, generation = self._phase, self._generation
        value, _ = generation.master.prices(generation.duals)
        found = []
        for group in range(len(phase.group_size)):
            # Of a class that costs a node something, any number may be there.
            told = np.flatnonzero(value[group] >= 0)
            nodes = np.flatnonzero(phase.node_group == group)
            fillings = np.unique(listed[1][listed[0] == group][:, told], axis=0)
            found.append((nodes, self._residual.origin[phase.classes[told]], fillings))
        return found

    def _weighed(self) -> int:
        return weighed(self._problem, self._entry, self._besides + self._generation.ceiling)
